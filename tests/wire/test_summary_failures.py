"""Models that fail, in every way there is: no message is lost, and the receipt tells each rung of the ladder."""

import asyncio
import copy

import pytest
from client_talk import Clock
from summary_cases import (
    ONCE,
    PROVIDERS,
    ask_server,
    attempts_of,
    claim_sound,
    good_handoff,
    is_notes,
    notes,
    planted,
)

import penstock
from penstock.engine.summariser import Summariser, SummaryLimits
from penstock.errors import ErrorKind
from penstock.providers.connect import ConnectOptions, connect
from penstock.providers.exchange import Finish
from penstock.providers.retries import RetryPolicy
from penstock.testing.provider_server import ScriptedProvider
from penstock.testing.scripted import Failure, RawBody, Reply

AGAIN = {"repeat_last": True}
OWN, PARTS = "from the turns", "from smaller parts"
ONLY_OWN, BOTH = [OWN], [OWN, PARTS]
DONE = "wrote the handoff"

# The reply, what the receipt calls it, and the ways in which one model is asked before it is given up.
FAILURES = {
    "429": (Reply.rate_limited(), "rate limit (429)", ONLY_OWN),
    "429 with a time": (Reply.rate_limited(retry_after=7), "rate limit (429)", ONLY_OWN),
    "500": (Reply.server_error(), "overload (500)", ONLY_OWN),
    "529": (Reply(failure=Failure(kind=ErrorKind.OVERLOAD, status=529)), "overload (529)", ONLY_OWN),
    "400": (Reply.failing(400, {"error": {"message": "no such field"}}), "bad request (400)", ONLY_OWN),
    "401": (Reply.unauthorised(), "auth (401)", ONLY_OWN),
    "quota": (Reply.quota_exceeded(), "quota (4", ONLY_OWN),
    "413": (Reply.payload_too_large(), "payload too large (413)", BOTH),
    "prompt too long": (Reply.too_long(window=9_000, prompt=20_000), "prompt too long (400)", BOTH),
    "output cap": (Reply.output_cap(cap=300, asked=9_000), "output cap too large (400)", BOTH),
    "page of a proxy": (Reply.page(), "overload (502)", ONLY_OWN),
    "page with 200": (Reply.page(status=200), "bad request (200)", ONLY_OWN),
    "malformed": (Reply.malformed(), "bad request (200)", ONLY_OWN),
    "nothing": (Reply(raw=RawBody(b"")), "bad request (200)", ONLY_OWN),
    "hung up": (Reply("late", cut_after_chunks=0), "network (cut_off)", ONLY_OWN),
    "cut": (Reply(good_handoff(), cut_after_chunks=2), "network (cut_off)", ONLY_OWN),
    "blank": (Reply(" \n "), "its answer was empty", BOTH),
    "refusal": (Reply("I cannot help with that.", finish=Finish.REFUSED), "it refused", BOTH),
    "out of tokens": (Reply(good_handoff(), finish=Finish.LENGTH), "its answer was cut off", BOTH),
    "tool call": (Reply.calling("read_shelf", shelf=1), "it called a tool instead of writing", BOTH),
}


def ladder(replies, *, times=1, served=None, policy=ONCE, **given):
    """What came of `times` compactions by "chosen", with "main" behind it, on one server."""
    talk = planted("chat")
    before = copy.deepcopy(talk.wires)

    async def run():
        async with ScriptedProvider(replies, **(served or {})) as server:
            options = ConnectOptions(pace=Clock().pace(), policy=policy)
            made = [
                connect("openai", name, base_url=server.base_url, options=options)
                for name in ("chosen", "main")
            ]
            summariser = Summariser(made[0], main=made[1], **given)
            results = [
                await penstock.acompress(
                    talk.wires, target_tokens=talk.target, model="another", summariser=summariser
                )
                for _ in range(times)
            ]
            for model in made:
                await model.aclose()
            return results, server

    results, server = asyncio.run(run())
    assert talk.wires == before
    for result in results:
        claim_sound(talk, result)
    return results, server


def by_model(**replies):
    """A script by the name of the model that is asked."""
    return lambda received: replies[received.model]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_failure_loses_a_message(provider, failure):
    reply, told, ways = FAILURES[failure]
    talk = planted(PROVIDERS[provider])
    result, server = ask_server(provider, talk, [reply], served=AGAIN)
    receipt = result.receipt

    claim_sound(talk, result)
    assert receipt.outcome == "degraded"
    assert [way for _, way, _ in attempts_of(result)] == ways
    assert all(outcome.startswith(told) for _, _, outcome in attempts_of(result))
    assert told in receipt.reason
    assert receipt.model_calls == len(server.received) == sum(one["requests"] for one in receipt.attempts)
    assert receipt.summary_limits == {"requests": 32, "prompt_tokens": 2_000_000, "seconds": 180.0}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_model_that_does_not_answer_in_time_is_left(provider):
    talk = planted(PROVIDERS[provider])
    slow = Reply(good_handoff(), delay_seconds=20)
    result, _ = ask_server(provider, talk, [slow], given={"timeout_seconds": 0.2}, disconnects=1)
    claim_sound(talk, result)
    assert attempts_of(result) == [("scripted-model", OWN, "timeout (timeout)")]
    assert 0.15 < result.receipt.attempts[0]["seconds"] < 5


@pytest.mark.parametrize("failure", FAILURES)
def test_the_main_model_is_asked_after_the_chosen_one(failure):
    reply, told, _ = FAILURES[failure]
    (result,), _ = ladder(by_model(chosen=reply, main=good_handoff()))
    (first, way, outcome), last = attempts_of(result)
    assert (first, way) == ("chosen", OWN)
    assert outcome.startswith(told)
    assert last == ("main", OWN, DONE)
    assert (result.receipt.outcome, result.receipt.model) == ("compacted", "main")
    assert needed_words(result)


def needed_words(result):
    return any("every shelf of the warehouse" in str(wire) for wire in result.messages)


def test_smaller_parts_come_after_both_models():
    def script(received):
        whole = "</conversation>" in received.text and not is_notes(received)
        return " " if whole else notes(received)

    (result,), server = ladder(script)
    assert attempts_of(result) == [
        ("chosen", OWN, "its answer was empty"),
        ("main", OWN, "its answer was empty"),
        ("chosen", PARTS, DONE),
    ]
    assert result.receipt.outcome == "compacted"
    assert len(server.received) >= 5
    assert server.violations == ()


def test_all_rungs_are_told_where_nothing_helps():
    (result,), server = ladder([" "], served=AGAIN)
    assert [(model, way) for model, way, _ in attempts_of(result)] == [
        ("chosen", OWN),
        ("main", OWN),
        ("chosen", PARTS),
        ("main", PARTS),
    ]
    assert result.receipt.outcome == "degraded"
    assert result.receipt.model_calls == len(server.received)


@pytest.mark.parametrize(
    ("reply", "rests"),
    [
        (Reply.rate_limited(), 30),
        (Reply.server_error(), 30),
        (Reply.rate_limited(retry_after=90), 90),
        (Reply.unauthorised(), 600),
        (Reply.quota_exceeded(), 600),
    ],
)
def test_a_model_that_failed_rests(reply, rests):
    seconds = iter([0.0, rests - 1.0, rests + 1.0])
    clock = [0.0]
    talk = planted("chat")

    async def run():
        async with ScriptedProvider(by_model(chosen=reply)) as server:
            options = ConnectOptions(policy=ONCE)
            async with connect("openai", "chosen", base_url=server.base_url, options=options) as model:
                summariser = Summariser(model, now=lambda: clock[0])
                told = []
                for clock[0] in seconds:
                    result = await penstock.acompress(
                        talk.wires, target_tokens=talk.target, summariser=summariser
                    )
                    claim_sound(talk, result)
                    assert result.receipt.outcome == "degraded"
                    told.append((attempts_of(result)[0][2], len(server.received)))
                return told

    first, during, after = asyncio.run(run())
    assert first[1] == 1
    assert during == ("rests for 1 s after a failure", 1)
    assert after[1] == 2
    assert after[0] == first[0]


def test_rests_grow_and_end_with_a_success():
    clock = [0.0]
    talk = planted("chat")
    replies = [Reply.server_error(), Reply.server_error(), good_handoff(), Reply.server_error()]

    async def run():
        async with ScriptedProvider(replies) as server:
            options = ConnectOptions(policy=ONCE)
            async with connect("openai", "chosen", base_url=server.base_url, options=options) as model:
                summariser = Summariser(model, now=lambda: clock[0])
                told = []
                for clock[0] in (0.0, 31.0, 62.0, 92.0, 93.0, 122.0, 124.0):
                    result = await penstock.acompress(
                        talk.wires, target_tokens=talk.target, summariser=summariser
                    )
                    told.append(attempts_of(result)[0][2])
                return told

    failed = "overload (500)"
    assert asyncio.run(run()) == [
        failed,
        failed,
        "rests for 29 s after a failure",
        DONE,
        failed,
        "rests for 1 s after a failure",
        "bad request (400)",  # it was asked: the script has nothing more to say
    ]


def test_the_limit_of_requests_holds_for_all_rungs_together():
    (result,), server = ladder([" "], served=AGAIN, limits=SummaryLimits(requests=2))
    assert len(server.received) == result.receipt.model_calls == 2
    assert result.receipt.summary_limits["requests"] == 2
    assert result.receipt.outcome == "degraded"


def test_repeats_of_the_client_count_as_requests():
    limits = SummaryLimits(requests=4)
    (result,), server = ladder(
        [Reply.server_error()], served=AGAIN, limits=limits, policy=RetryPolicy(tries=3)
    )
    assert result.receipt.model_calls == len(server.received) <= 4


def test_the_limit_of_tokens_is_told_and_nothing_is_sent_over_it():
    (result,), server = ladder([" "], served=AGAIN, limits=SummaryLimits(prompt_tokens=9_000))
    assert attempts_of(result)[0] == ("chosen", OWN, "the limit of 9,000 prompt tokens is used up")
    assert sum(received.prompt_tokens for received in server.received) <= 9_000
    assert "9,000 prompt tokens" in result.receipt.reason


def test_the_limit_of_seconds_ends_the_ladder():
    slow = Reply(" ", delay_seconds=0.25)
    (result,), _ = ladder([slow], served=AGAIN, limits=SummaryLimits(seconds=0.4))
    assert attempts_of(result)[1][2] in {"timeout (timeout)", "the limit of 0.4 seconds is used up"}
    assert len(attempts_of(result)) == 2


def test_a_time_that_is_over_by_the_clock_is_told():
    clock = iter(range(0, 100_000, 100))
    (result,), server = ladder([" "], served=AGAIN, limits=SummaryLimits(seconds=50), now=lambda: next(clock))
    assert "the limit of 50 seconds is used up" in result.receipt.reason
    assert server.received == ()
