"""Nothing that is passed to the core, answered to it, or changed while it asks can crash it: an error at most.

These tests say little where they pass, since a step beyond an array is mostly not noticed. `make sanitize` runs them with a
compiler's checks, where it ends the process.
"""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.writing.greedy import CountedExcerpts

core = pytest.importorskip("penstock_core")

SEEDS = st.integers(0, 2**32 - 1)
REFUSALS = (TypeError, ValueError, OverflowError, BufferError, RuntimeError, KeyError, AttributeError)
FAR = (-(2**31), -2, -1, 0, 1, 2, 3, 17, 255, 2**31 - 2, 2**31 - 1)


class Text(str):
    __slots__ = ()


class Rows(list):
    __slots__ = ()


def make_things():
    """Things of all kinds, most of which fit nowhere."""
    numbers = np.arange(4, dtype=np.int32)
    return [
        *(None, True, 0, -1, 2**31, 2**64, -(2**70), 1.5, float("nan"), "", "ab", Text("é\ud800"), b"", b"ab", bytearray(b"abcd")),
        *([], ["/a/bc"], Rows(["a"]), [b"ab"], (), ("a", "b"), {}, {b"id": 1}, {"id": 1}, object(), iter([1]), range(3), len, gc),
        *(memoryview(b"abc"), numbers, numbers[::-1], numbers[::2], numbers[:0], numbers.reshape(2, 2), numbers.astype(">i4")),
        *(np.array(3, np.int32), np.zeros((0, 2), np.int32), np.zeros(2, object), np.zeros(2, "U1"), np.zeros(2, "M8[s]")),
        *(np.zeros(2, np.float32), np.zeros(2, np.bool_), np.zeros(2, [("a", "i4")]), np.zeros(2, np.complex64), np.zeros(2, np.float16)),
    ]  # fmt: skip


FUNCTIONS = sorted(name for name in dir(core) if not name.startswith("_") and callable(getattr(core, name)))


@pytest.mark.parametrize("name", FUNCTIONS)
@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_things_of_any_kind_are_taken_or_refused(name, seed):
    some = random.Random(seed)
    call = getattr(core, name)
    try:
        made = call(*some.choices(make_things(), k=some.choice([0, 1, 1, 2, 2, 3, 4, 6, 9, 19])))
    except REFUSALS:
        return
    if type(made).__module__ != "penstock_core":  # a list refuses in ways of its own
        return
    for method in [method for method in dir(made) if not method.startswith("_")]:
        try:
            getattr(made, method)(*some.choices(make_things(), k=some.randrange(5)))
        except REFUSALS:
            continue


def make_block(some):
    """Bytes of any kind, or those that tokens, quotes, ends and characters of several bytes are made of."""
    kinds = [range(256), b"\x80\xc3\xe2\xf0\xff\xed\xa0\x00\n\"'`A_0\\ ./-"]
    return bytes(some.choices(some.choice(kinds), k=some.randrange(200)))


@given(seed=SEEDS)
@settings(max_examples=300, deadline=None)
def test_blocks_and_answers_of_any_kind(seed):
    some = random.Random(seed)
    words = {make_block(some)[:64]: some.randrange(128) for _ in range(some.choice([1, 9, 900]))}
    table = core.ValueTable(some.getrandbits(64), words, [b"with"])
    separators = [None, bytes(65_536), b"\1" * 65_536, bytes(some.randbytes(65_536))]

    def describe(tokens):
        one = some.choice(
            [make_things, lambda: [table.find(b"x", None, None)], lambda: None, lambda: None, lambda: None]
        )()
        if one is not None:
            return some.choice(one)
        values = [tuple(make_block(some)[:9] for _ in range(some.randrange(4))) for _ in tokens]
        return [(held, some.choice([0, 127, 127, 128]), some.choice([0, 7, 65_535])) for held in values]

    for _ in range(9):
        before = len(table)
        try:
            table.find(make_block(some), some.choice(separators), describe)
        except REFUSALS:
            assert len(table) == before
        table.find_known(make_block(some), some.choice(separators))
        assert set(np.frombuffer(table.look_up(["a", "\ud800", "é"]), np.int32).tolist()) <= {
            *range(-1, len(table))
        }


class Playing:
    """A loop over a few excerpts, played at random; what it asks plays on, writes to its arrays, or fails."""

    def __init__(self, some):
        self.some, self.count, self.values = some, some.randrange(1, 30), some.randrange(1, 12)
        self.sources = np.array(sorted(some.choices(range(4), k=self.count)), np.int32)
        self.pool = np.zeros(0, np.int32)
        weights = np.array(
            some.choices([0, 0.5, 2, np.nan, np.inf, -1], [3, 9, 9, 1, 1, 1], k=self.values), np.float32
        )
        self.loop = core.Greedy(weights, np.array(some.choices([0, 0.6, 1], k=self.values), np.float32))

    def add(self, numbers):
        some, count = self.some, len(numbers)
        held = [some.choices(range(self.values), k=some.randrange(4)) for _ in numbers]
        rows = CountedExcerpts(
            np.array(numbers, np.int32),
            self.sources[numbers],
            np.array(some.choices([1, 5, 9], k=count), np.int32),
            np.cumsum([len(one) for one in held], dtype=np.int64),
            np.array([value for one in held for value in one], np.int32),
            np.array(some.choices([True, False], k=count), np.bool_),
            np.array(some.choices([-1, 0, 1, 2, 127], k=count), np.int8),
        )
        one = some.choice(rows)
        if some.random() < 0.1 and one.size and one.dtype != np.bool_:
            one[some.randrange(one.size)] = some.choice([-1, 0, 99])
        self.loop.add(rows)

    def allow(self):
        count = self.count * some_times(self.some)
        flags = np.array(self.some.choices([True, False], k=count), np.bool_)
        worth = np.array(self.some.choices([0, 1, np.nan], k=count), np.float32)
        lengths = np.array(self.some.choices(FAR, k=count), np.int32)
        self.loop.allow(flags, self.some.choice([None, worth]), np.resize(self.sources, count), lengths)

    def begin(self):
        numbers = np.array([number for number in range(self.count) if self.some.random() < 0.6], np.int32)
        unknown = np.frombuffer(self.loop.missing(numbers), np.int32)
        self.pool = np.setdiff1d(numbers, unknown).astype(np.int32)
        self.loop.begin(self.pool, np.ones(len(self.pool), np.float32), self)

    def step(self):
        some, loop = self.some, self.loop
        number = some.randrange(self.count)
        steps = (
            lambda: self.add(sorted(some.sample(range(self.count), some.randrange(self.count + 1)))),
            lambda: loop.set_header(some.randrange(5), some.choice([0, 1, 2**31 - 1])),
            self.allow,
            self.begin,
            *[lambda: loop.run(some.choice([-1, 5, 50, 2**62]), self)] * 3,
            lambda: loop.is_chosen(number) or loop.choose(number, self),
            loop.drop_last,
            lambda: loop.notice(np.array(some.choices(FAR, k=3), np.int32)),
            lambda: (loop.order, loop.tokens, loop.is_chosen(number), loop.price(number)),
        )
        some.choice(steps)()

    def disturb(self):
        chance = self.some.random()
        if chance < 0.05:
            raise KeyboardInterrupt
        if chance < 0.4:
            try:
                self.step()
            except REFUSALS:
                return
        elif chance < 0.6:
            self.pool[:] = self.some.choice(FAR)

    def plain_words(self, _number):
        self.disturb()
        return self.some.choice([0, 1, 2, 127, 128, -1, 2**40, -(2**70), True, 1.5])

    def is_shown(self, _number):
        self.disturb()
        return self.some.random() < 0.2

    def prepare(self, number):
        self.disturb()
        if self.some.random() < 0.9:
            self.add([number])


def some_times(some):
    """How many rows an array has for each excerpt: mostly as many as there are."""
    return some.choice([1, 1, 1, 2, 0])


@given(seed=SEEDS)
@settings(max_examples=300, deadline=None)
def test_a_loop_that_is_disturbed_by_what_it_asks(seed):
    playing = Playing(random.Random(seed))
    for _ in range(40):
        try:
            playing.step()
        except (*REFUSALS, KeyboardInterrupt):
            continue
    order = playing.loop.order
    assert [number for number in range(playing.count) if playing.loop.is_chosen(number)] == sorted(set(order))


def make_calls():
    """A call of each function, and of each method that needs memory. They are made before memory runs out."""
    one, texts = np.zeros(1, np.int32), ["/src/main.py x/y", "é"] * 9
    two, flags = np.zeros(2, np.int32), np.zeros(1, np.bool_)
    anchors = core.Anchors([b"ab", b"abc", "é".encode()])
    table = core.ValueTable(seed=1, labels={}, no_subject=[])
    table.find(b"name_7 \x00", None, None)
    loop = core.Greedy(np.ones(1, np.float32), np.zeros(1, np.float32))
    numbers = np.arange(300, dtype=np.int32)
    rows = CountedExcerpts(
        numbers,
        numbers,
        numbers + 1,
        numbers + np.int64(1),
        numbers * 0,
        numbers < 0,
        np.full(300, 2, np.int8),
    )
    gains = np.ones(300, np.float32)

    def play():
        fresh = core.Greedy(np.ones(1, np.float32), np.zeros(1, np.float32))
        fresh.add(rows)
        fresh.begin(numbers, gains, None)
        fresh.choose(7, None)
        assert fresh.order == [7]

    outlook = np.arange(3, dtype=np.int32), two, one, one, flags, two, two, two
    filled = tuple(np.zeros((7, 1), np.int32))
    return {
        "Anchors": lambda: core.Anchors([b"ab", b"abc"]).find("xabc"),
        "Anchors.find": lambda: anchors.find("xabcé\ud800" * 9),
        "ValueTable": lambda: len(core.ValueTable(seed=1, labels={b"id": 1}, no_subject=[b"with"])),
        "ValueTable.find_known": lambda: table.find_known("name_7 é".encode(), None),
        "ValueTable.look_up": lambda: table.look_up(texts),
        "Greedy": play,
        "Greedy.missing": lambda: loop.missing(numbers),
        "beside": lambda: core.beside(outlook, filled),
        "count_equal": lambda: core.count_equal([{"a": [1, 2.0]}], [{"a": [1, 2.0]}]),
        "cut": lambda: core.cut("Hello there. " * 30 + "\nab\n  cd\né", 1, 1),
        "find_each": lambda: core.find_each("abc" * 30, ("a", "c") * 9, 9),
        "path_parts": lambda: core.path_parts(texts),
        "plain_words": lambda: core.plain_words("Hello there", 2),
    }


@pytest.mark.parametrize("name", make_calls())
def test_where_memory_runs_out_that_is_said(name):
    limit = pytest.importorskip("_testcapi")
    call = make_calls()[name]
    expected, done = call(), False
    for allocation in range(2_000):
        limit.set_nomemory(allocation, allocation + 1)
        try:
            found, done = call(), True
        except MemoryError:
            done = False
        finally:
            limit.remove_mem_hooks()
        if done:
            assert found == expected
        if done and allocation > 60:  # Python itself makes do with what it has in store now and then
            break
    assert done
