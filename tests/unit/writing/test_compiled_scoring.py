"""The passes of the core that score values give the same as those in Python, and refuse rows that do not fit each other."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.writing import compiled
from penstock.writing.importance import (
    FortuneCounts,
    FortuneRows,
    LearnedImportance,
    Live,
    MentionRows,
    TreeWeights,
    count_fortunes_in_python,
    count_mentions_in_python,
    score_by_rule,
)
from penstock.writing.value_looks import SHAPES
from penstock.writing.vocabulary import Postings, Vocabulary

core = pytest.importorskip("penstock_core")

SEEDS = st.integers(0, 2**32 - 1)


def make_runs(random, count, longest, below):
    """Random runs of rows, each row a number below `below`: where they begin, and all of them."""
    sizes = random.integers(0, longest + 1, count)
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return edges, random.integers(0, below, int(edges[-1])).astype(np.int32)


@given(SEEDS, st.sampled_from([1, 7, 8, 9, 40, 129, 300, 1_500]))
@settings(max_examples=150, deadline=None)
def test_what_excerpts_lack_is_added_up_in_the_order_of_numpy(seed, longest):
    random = np.random.default_rng(seed)
    starts, ids = make_runs(random, 30, longest, 50)
    weights = random.random(50).astype(np.float32)
    covered = random.choice(np.array([0, 0.6, 1], np.float32), 50)
    lacks = (np.float32(1.0) - covered) * weights
    filled = np.flatnonzero(np.diff(starts))
    expected = np.zeros(30, np.float32)
    if len(filled):
        expected[filled] = np.add.reduceat(lacks[ids], starts[filled])
    sums, some = np.zeros(30, np.float32), np.full(30, 7, np.float32)
    core.sum_lacks(starts, ids, weights, covered, np.arange(30, dtype=np.int32), sums)
    assert sums.tobytes() == expected.tobytes()
    allowed = random.random(30) < 0.5
    core.sum_lacks(starts, ids, weights, covered, allowed, some)
    assert some.tobytes() == np.where(allowed, expected, np.float32(7)).tobytes()


@given(SEEDS, st.integers(0, 9), st.sampled_from([0, 1, 255, 256, 257, 700]))
@settings(max_examples=60, deadline=None)
def test_values_come_to_the_same_leaves(seed, trees, values):
    random = np.random.default_rng(seed)
    depths = random.integers(0, 6, trees).tolist()
    weights = TreeWeights(
        provenance={},
        features=("kind", "length", "words"),
        rule_share=50,
        bias=int(random.integers(-9, 9)),
        splits=tuple(
            tuple((int(random.integers(3)), int(random.integers(-5, 5))) for _ in range(depth))
            for depth in depths
        ),
        leaves=tuple(tuple(random.integers(-1_000, 1_000, 1 << depth).tolist()) for depth in depths),
    )
    table = random.integers(-6, 6, (60, values)).astype(np.int32)
    found = []
    for with_core in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled, "HAS_CORE", with_core)
            found.append(LearnedImportance(weights).logits(table).tolist())
    assert found[0] == found[1]


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_mentions_are_counted_the_same(seed):
    random = np.random.default_rng(seed)
    edges, mentioned = make_runs(random, 25, 12, 40)
    asked_about = random.permutation(40)[:15]
    place_of = np.full(40, -1, np.int32)
    place_of[asked_about] = np.arange(15)
    rows = MentionRows(
        edges,
        mentioned,
        place_of,
        random.random(40) < 0.3,
        random.integers(0, 5, 25).astype(np.int8),
        np.sort(random.integers(0, 20, 25)).astype(np.int32),
    )
    found = []
    for count in (core.count_mentions, lambda *all_of: count_mentions_in_python(rows, *all_of[-3:])):
        counted = (np.zeros((15, 5), np.int32), np.full((15, 5), -1, np.int32), np.zeros(25, np.int32))
        count(*rows, *counted)
        found.append([array.tolist() for array in counted])
    assert found[0] == found[1]


def with_and_without(work):
    """Returns what a function returns with the core, and without it."""
    results = []
    for with_core in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled, "HAS_CORE", with_core)
            results.append(work())
    return results


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_fortunes_are_counted_the_same(seed):
    random = np.random.default_rng(seed)
    values, sources = 60, 25
    edges, mentioned = make_runs(random, sources, 12, values)
    rows = FortuneRows(
        edges,
        mentioned,
        random.integers(0, 7, sources).astype(np.int8),
        np.sort(random.integers(0, 20, sources)).astype(np.int32),
        random.integers(0, 4, sources).astype(np.int32),
        random.integers(-1, 20, values).astype(np.int32),
        random.choice(np.array([0, 3, 9, 17, 24, 1 << 30], np.int32), values),
        random.integers(0, 8, values).astype(np.int8),
        random.integers(0, SHAPES, values).astype(np.int16),
        random.integers(0, sources + 1, 1).astype(np.int32),
    )
    sizes = {"kind": 8, "shape": SHAPES, "tool": 4, "tool and shape": 1_009}
    one, other = FortuneCounts.of(sizes, values), FortuneCounts.of(sizes, values)
    core.count_fortunes(*rows, *one)
    count_fortunes_in_python(rows, other)
    assert [array.tolist() for array in one] == [array.tolist() for array in other]


class RandomIndex:
    """What the rule reads of an index, at random."""

    def __init__(self, random, values, messages):
        self.messages = messages
        self.last_message = random.integers(0, messages, values).astype(np.int32)
        counts = np.array([0, 1, 2, 9, 255, 256, 4_095, 4_096, 70_000, 1 << 30], np.int32)
        self.in_sources, self.in_excerpts, self.crowd = random.choice(counts, (3, values))
        self.said, self.said_by_assistant = random.random((2, values)) < 0.3
        self.labels = random.integers(0, 256, values).astype(np.uint8)
        self.vocabulary = Vocabulary()
        names = " ".join(f"{random.choice(['port', 'slot', 'lane'])}_{number}" for number in range(values))
        self.vocabulary.find([names])
        rows = len(self.vocabulary)
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray):
                setattr(self, name, np.resize(array, rows))


@given(SEEDS, st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_the_rule_gives_the_same_weights(seed, messages):
    random = np.random.default_rng(seed)
    index = RandomIndex(random, 70, messages)
    tokens_after = np.cumsum(random.integers(0, 90_000, messages))[::-1].astype(np.int64)
    live = Live("the port of lane 7", "slot 3 has a port")
    one, other = with_and_without(lambda: score_by_rule(index, live, tokens_after).tobytes())
    assert one == other


@given(SEEDS, st.sampled_from([np.uint8, np.uint16]))
@settings(max_examples=100, deadline=None)
def test_shares_of_words_are_the_same(seed, bits):
    random = np.random.default_rng(seed)
    found = random.choice(np.array([0, 0, 1, 2, 3, 5, 62, 63, 64, 200, 70_000], np.int32), 90)
    vocabulary, words = Vocabulary(), Postings()
    vocabulary._word_count = random.integers(1, 256, 90).astype(bits)
    words.add(np.repeat(np.uint16(3), 90), np.arange(90, dtype=np.int32))

    def relate():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Vocabulary, "__len__", lambda _: 90)
            patch.setattr(
                Postings, "count_owners", lambda _self, _words, _times, into: np.copyto(into, found)
            )
            return vocabulary.relation(["port"]).tolist()

    one, other = with_and_without(relate)
    assert one == other


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_sources_that_hold_a_word_are_counted_the_same(seed):
    random = np.random.default_rng(seed)
    postings, owners = Postings(), 0
    source_of = np.sort(random.integers(0, 30, 400)).astype(np.int32)
    for many in random.integers(0, 40_000, 4).tolist():
        some = np.sort(random.integers(owners, min(owners + 100, 400), many)).astype(np.int32)
        postings.add(random.integers(0, 12, many).astype(np.uint16), some)
        owners += 100
    wanted = np.flatnonzero(random.random(14) < 0.6).astype(np.uint16)
    one, other = with_and_without(lambda: postings.count_sources(wanted, source_of).tolist())
    assert one == other


@given(SEEDS, st.integers(1, 300), st.sampled_from([3, 500, 1 << 17, 1 << 31]))
@settings(max_examples=150, deadline=None)
def test_the_least_of_the_greatest_is_the_same(seed, count, spread):
    random = np.random.default_rng(seed)
    numbers = random.integers(-spread, spread, count).astype(np.int32)
    most = int(random.integers(1, count + 1))
    one, other = with_and_without(lambda: compiled.find_least_of_most(numbers, most))
    assert one == other


def arrays_of(name):
    """Arrays that fit each other, for the function of this name."""
    whole, small, flags = np.int32, np.int8, np.bool_
    return {
        "sum_lacks": [
            np.array([0, 1, 2], whole),
            np.array([0, 1], whole),
            *np.ones((2, 2), np.float32),
            np.array([0, 1], whole),
            np.zeros(2, np.float32),
        ],
        "add_leaves": [
            *(np.array(some, whole) for some in ([0], [3], [0, 1], [0], [0, 2], [5, 6])),
            np.array([[1, 9]], whole),
            np.zeros(2, whole),
        ],
        "count_mentions": [
            *(np.array(some, whole) for some in ([0, 2], [0, 1], [0, -1])),
            np.array([True, False], flags),
            np.array([1], small),
            np.array([4], whole),
            *np.zeros((2, 1, 5), whole),
            np.zeros(1, whole),
        ],
        "count_fortunes": [
            *(np.array(some, whole) for some in ([0, 2], [0, 1])),
            np.array([1], small),
            *(np.array(some, whole) for some in ([4], [1], [5, 5], [0, 1 << 30])),
            np.array([1, 2], small),
            np.array([1, 0], np.int16),
            np.array([1], whole),
            *(np.zeros(size, whole) for size in (3, 2, 3, 2, 3, 2, 2, 5)),
            np.zeros(2, np.uint8),
        ],
        "count_sources": [
            np.array([3], np.uint16),
            *(np.array(some, whole) for some in ([0, 2], [0, 1])),
            np.array([3], np.uint16),
            *(np.array(some, whole) for some in ([4, 7], [-1], [0])),
        ],
        "make_shares": [np.array([2, 3], np.uint8), np.array([1, 0], whole)],
        "score_rule": [
            *(np.array(some, whole) for some in ([0, 1], [1, 2], [3, 1], [1, 1 << 30])),
            np.array([0, 1], small),
            *np.zeros((2, 2), flags),
            np.array([0, 128], np.uint8),
            *(np.array(some, whole) for some in ([0, 64], [9, 0], [-5, -6])),
            *(np.arange(size, dtype=whole) for size in (16, 1_024, 65, 5)),
            np.zeros(2, whole),
        ],
        "squash": [
            np.array([-900, 5], whole),
            np.array([2, 16], whole),
            *np.ones((2, 2), np.float32),
        ],
        "find_least_of_most": [np.array([4, -9], whole), np.array([2], whole), np.zeros(1, whole)],
        "count_owners": [
            np.array([3], np.uint16),
            *(np.array(some, whole) for some in ([0, 2], [0, 1])),
            np.array([3], np.uint16),
            np.array([1], whole),
            np.zeros(2, whole),
        ],
    }[name]


def disguised(array):
    """What holds the same bytes and is another array: of another type or order, of other dimensions, with gaps, unaligned."""
    raw, codes = (
        array.tobytes(),
        {4: ["u4", "f4", "i4", ">i4", "S4"], 2: ["i2", "u2", ">u2"], 1: ["?", "i1", "u1"]},
    )
    others = [code for code in codes[array.itemsize] if np.dtype(code) != array.dtype]
    yield from (np.frombuffer(bytearray(raw), code).reshape(array.shape) for code in others)
    yield from (array.astype(np.int64), "text", None, array[..., None], array.reshape(-1)[:0])
    if array.dtype != np.uint8:  # which is what it is
        yield bytearray(raw)
    if array.ndim > 1:
        yield from (
            array.reshape(-1),
            np.asfortranarray(np.repeat(array, 2, axis=0)),
        )
    if array.shape[-1] > 1:
        yield np.repeat(array, 2, axis=-1)[..., ::2]
    if array.itemsize > 1:
        unaligned = np.frombuffer(bytearray(b"\0" + raw), np.uint8)[1:].view(array.dtype)
        yield unaligned.reshape(array.shape)


NAMES = (
    "sum_lacks",
    "add_leaves",
    "count_fortunes",
    "count_mentions",
    "count_owners",
    "count_sources",
    "find_least_of_most",
    "make_shares",
    "score_rule",
    "squash",
)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_that_fit_are_taken(name):
    assert getattr(core, name)(*arrays_of(name)) is None


@pytest.mark.parametrize("name", NAMES)
def test_arrays_that_do_not_fit_are_refused_and_nothing_beyond_them_is_touched(name):
    call = getattr(core, name)
    with pytest.raises(TypeError):
        call(*arrays_of(name)[:-1])
    for place, array in enumerate(arrays_of(name)):
        for other in disguised(array):
            given_arrays = arrays_of(name)
            given_arrays[place] = other
            with pytest.raises((TypeError, ValueError, BufferError)):
                call(*given_arrays)
        for far in (1_000_000, -1_000_000) if array.dtype == np.int32 else ():
            given_arrays = arrays_of(name)
            given_arrays[place] = array + np.int32(far)
            with contextlib.suppress(ValueError):  # thresholds, leaves, messages and counts may be any number
                call(*given_arrays)
    read_only = arrays_of(name)
    read_only[-1].flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        call(*read_only)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_random_rows_are_taken_or_refused(name, data):
    """No row, whatever it is, leads beyond the arrays: with a sanitizer this would end the process."""
    arrays = arrays_of(name)
    for array in arrays:
        if array.dtype == np.int32 and len(array):
            flat = array.reshape(-1)
            place = data.draw(st.integers(0, len(flat) - 1))
            flat[place] = data.draw(st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 17, 2**31 - 1]))
    try:
        getattr(core, name)(*arrays)
    except ValueError:
        return


def test_sums_that_are_too_large_begin_anew_as_those_of_numpy_do():
    """With a sanitizer any other would end the process."""
    largest, least = 2**31 - 1, -(2**31)
    leaves, owners, mentions = (arrays_of(name) for name in ("add_leaves", "count_owners", "count_mentions"))
    leaves[-1][:], owners[-1][:], mentions[-3][:] = largest, largest, largest
    core.add_leaves(*leaves)
    assert leaves[-1].tolist() == [least + 4, least + 5]
    core.count_owners(*owners)
    assert owners[-1].tolist() == [least, least]
    core.count_mentions(*mentions)
    assert mentions[-3].tolist() == [[largest, least, largest, largest, largest]]


def test_words_that_nobody_holds_count_nothing():
    postings, found = Postings(), np.zeros(3, np.int32)
    postings.count_owners([1, 2], [1, 1], found)
    postings.add(np.array([5, 5], np.uint16), np.array([0, 2], np.int32))
    postings.count_owners([1, 5, 65_535], [1, 2, 1], found)
    assert found.tolist() == [2, 0, 2]
