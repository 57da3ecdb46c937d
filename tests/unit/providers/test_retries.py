import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorClass, ErrorKind, ProviderError
from penstock.providers.retries import CERTIFICATE, Pace, RetryPolicy, next_delay, retry

TRANSIENT = [kind for kind in ErrorKind if kind.transient]
LASTING = [kind for kind in ErrorKind if not kind.transient]


class Time:
    """A clock that only moves when somebody sleeps, or is told to."""

    def __init__(self):
        self.seconds = 100.0
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.seconds += seconds

    def pace(self, seed=0):
        return Pace(now=lambda: self.seconds, sleep=self.sleep, rng=random.Random(seed))


def failing(*failures, then="answer"):
    """A request that fails so often and so, then answers; what it was told of the time left is kept."""
    left = list(failures)
    told = []

    async def ask(seconds):
        told.append(seconds)
        if left:
            raise ProviderError("it failed", failure=left.pop(0))
        return then

    return ask, told


def rate_limit(after=None):
    return ErrorClass(kind=ErrorKind.RATE_LIMIT, status=429, retry_after_seconds=after)


OTHERWISE_TRANSIENT = [kind for kind in TRANSIENT if kind is not ErrorKind.RATE_LIMIT]


@given(st.sampled_from(OTHERWISE_TRANSIENT), st.integers(1, 200), st.integers())
def test_the_wait_stays_in_its_interval(kind, attempt, seed):
    policy = RetryPolicy(tries=1_000, base_seconds=0.5, cap_seconds=8)
    delay = next_delay(attempt, ErrorClass(kind=kind), random.Random(seed), policy)
    assert 0 <= delay <= min(8, 0.5 * 2.0 ** (attempt - 1))


def test_waits_use_the_whole_interval():
    rng = random.Random(3)
    overload = ErrorClass(kind=ErrorKind.OVERLOAD)
    waits = [next_delay(2, overload, rng, RetryPolicy(base_seconds=1)) for _ in range(500)]
    assert min(waits) < 0.1
    assert max(waits) > 1.9


@given(st.integers(1, 200), st.integers())
def test_after_a_rate_limit_without_a_time_the_waits_are_long_and_grow(attempt, seed):
    policy = RetryPolicy(tries=1_000)
    delay = next_delay(attempt, rate_limit(), random.Random(seed), policy)
    longest = min(policy.cap_seconds, 6 * 2.0 ** (attempt - 1))
    assert longest / 2 <= delay <= longest


def test_the_tries_after_a_rate_limit_span_more_than_a_few_seconds():
    time = Time()
    ask, told = failing(*[rate_limit()] * 3)
    with pytest.raises(ProviderError):
        asyncio.run(retry(ask, pace=time.pace()))
    assert len(told) == 3
    assert 9 <= sum(time.slept) <= 18


@given(st.sampled_from(LASTING), st.integers())
def test_what_will_not_pass_is_not_repeated(kind, seed):
    assert next_delay(1, ErrorClass(kind=kind, retry_after_seconds=1), random.Random(seed)) is None


def test_a_bad_certificate_is_not_asked_again():
    failure = ErrorClass(kind=ErrorKind.NETWORK, code=CERTIFICATE)
    assert next_delay(1, failure, random.Random(0)) is None


def test_tries_are_counted():
    rng = random.Random(0)
    policy = RetryPolicy(tries=3)
    assert [next_delay(n, rate_limit(), rng, policy) is None for n in (1, 2, 3, 4)] == [
        False,
        False,
        True,
        True,
    ]


@given(st.floats(0.001, 60), st.integers())
def test_what_the_provider_asks_for_is_waited_and_hardly_more(asked, seed):
    delay = next_delay(1, rate_limit(asked), random.Random(seed))
    assert asked <= delay <= asked * 1.1


def test_a_wait_beyond_the_longest_is_refused_not_shortened():
    assert next_delay(1, rate_limit(60.5), random.Random(0)) is None
    assert next_delay(1, rate_limit(0), random.Random(0)) is not None


def test_it_is_asked_again_until_it_answers():
    time = Time()
    ask, told = failing(rate_limit(2), rate_limit(4))
    assert asyncio.run(retry(ask, pace=time.pace())) == "answer"
    assert told == [None, None, None]
    assert 2 <= time.slept[0] <= 2.2
    assert 4 <= time.slept[1] <= 4.4


def test_the_last_error_is_raised_when_tries_run_out():
    time = Time()
    ask, told = failing(rate_limit(1), rate_limit(2), rate_limit(3))
    with pytest.raises(ProviderError) as caught:
        asyncio.run(retry(ask, pace=time.pace()))
    assert caught.value.failure.retry_after_seconds == 3
    assert len(told) == 3
    assert len(time.slept) == 2


def test_a_wait_that_does_not_fit_the_deadline_is_not_begun():
    time = Time()
    ask, told = failing(rate_limit(2), rate_limit(5))
    with pytest.raises(ProviderError):
        asyncio.run(retry(ask, pace=time.pace(), timeout_seconds=6))
    assert len(time.slept) == 1
    assert told[0] == 6
    assert told[1] == pytest.approx(6 - time.slept[0])


def test_other_errors_pass_through():
    async def ask(seconds):
        raise KeyError("ours")

    with pytest.raises(KeyError):
        asyncio.run(retry(ask, pace=Time().pace()))
