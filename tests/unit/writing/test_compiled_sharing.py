"""Passes over so many rows that a second thread helps with them give the same as those in Python, whoever does which part."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from penstock.writing import compiled
from penstock.writing.importance import (
    _LN_OF_OCTAVE,
    _LN_OF_PART,
    BesideRows,
    ExcerptRows,
    LearnedImportance,
    MentionRows,
    RuleRows,
    TreeWeights,
    _make_cases,
    _squash,
    _weights_of_rule,
    count_mentions_in_python,
    look_beside_in_python,
    score_rule_in_python,
    squash_in_python,
)

core = pytest.importorskip("penstock_core")

VALUES, EXCERPTS, SOURCES, MESSAGES = 120_000, 50_000, 3_000, 2_000


@pytest.fixture(params=[0, 1, 2])
def random(request):
    return np.random.default_rng(request.param)


def make_runs(random, count, rows):
    """Random runs of so many rows together: where each begins, and a value for each row."""
    inner = np.sort(random.integers(0, rows + 1, count - 1))
    return np.concatenate([[0], inner, [rows]]).astype(np.int32), random.integers(0, VALUES, rows).astype(
        np.int32
    )


def make_places(random, many):
    """The places of some values among those that are asked about, and their numbers."""
    numbers = np.sort(random.choice(VALUES, many, replace=False))
    place_of = np.full(VALUES, -1, np.int32)
    place_of[numbers] = np.arange(many, dtype=np.int32)
    return numbers, place_of


def test_what_stands_beside_values(random):
    starts, ids = make_runs(random, EXCERPTS, 200_000)
    numbers, place_of = make_places(random, 20_000)
    rows = ExcerptRows(
        starts,
        ids,
        place_of,
        random.integers(-800, 200, VALUES).astype(np.int32),
        random.random(VALUES) < 0.2,
        random.choice(np.array([0, 0, 0, 5, 9], np.int32), EXCERPTS),
        random.choice(np.array([0, 0, 0, 2, 7], np.int32), EXCERPTS),
        np.sort(random.integers(0, SOURCES, EXCERPTS)).astype(np.int32),
    )
    one, other = BesideRows.of(len(numbers), EXCERPTS), BesideRows.of(len(numbers), EXCERPTS)
    look_beside_in_python(rows, numbers, one)
    core.beside(rows, other)
    for expected, found in zip(one, other, strict=True):
        assert found.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="fit"):  # wherever the row is
        core.beside(
            rows._replace(ids=np.where(np.arange(len(ids)) == 150_000, VALUES, ids).astype(np.int32)), other
        )


def test_a_logit_that_no_weights_add_up_to_is_refused(random):
    rows = ExcerptRows(*make_runs(random, 5, 20), *np.zeros((5, VALUES), np.int32), np.zeros(5, np.int32))
    rows = rows._replace(used=np.zeros(VALUES, np.bool_))
    core.beside(rows, BesideRows.of(1, 5))
    with pytest.raises(ValueError, match="fit"):
        core.beside(rows._replace(rule=np.full(VALUES, 9_000, np.int32)), BesideRows.of(1, 5))


def test_mentions(random):
    edges, mentioned = make_runs(random, SOURCES, 150_000)
    _, place_of = make_places(random, 20_000)
    rows = MentionRows(
        edges,
        mentioned,
        place_of,
        random.random(VALUES) < 0.2,
        random.integers(0, 5, SOURCES).astype(np.int8),
        np.sort(random.integers(0, MESSAGES, SOURCES)).astype(np.int32),
    )
    found = []
    for count in (core.count_mentions, lambda *all_of: count_mentions_in_python(rows, *all_of[-3:])):
        counted = (
            np.zeros((20_000, 5), np.int32),
            np.full((20_000, 5), -1, np.int32),
            np.zeros(SOURCES, np.int32),
        )
        count(*rows, *counted)
        found.append([array.tolist() for array in counted])
    assert found[0] == found[1]


def test_what_all_excerpts_lack(random):
    starts, ids = make_runs(random, EXCERPTS, 200_000)
    weights = random.random(VALUES).astype(np.float32)
    covered = random.choice(np.array([0, 0.6, 1], np.float32), VALUES)
    allowed = random.random(EXCERPTS) < 0.9
    one, other = np.zeros((2, EXCERPTS), np.float32)
    core.sum_lacks(starts, ids, weights, covered, allowed, one)
    numbers = np.flatnonzero(allowed).astype(np.int32)
    few = np.zeros(len(numbers), np.float32)
    core.sum_lacks(starts, ids, weights, covered, numbers, few)
    other[numbers] = few
    assert one.tobytes() == other.tobytes()


def test_leaves(random):
    depths = random.integers(0, 6, 30).tolist()
    weights = TreeWeights(
        provenance={},
        features=("kind", "length", "words"),
        rule_share=50,
        bias=3,
        splits=tuple(
            tuple((int(random.integers(3)), int(random.integers(-5, 5))) for _ in range(depth))
            for depth in depths
        ),
        leaves=tuple(tuple(random.integers(-1_000, 1_000, 1 << depth).tolist()) for depth in depths),
    )
    table = random.integers(-6, 6, (60, 10_001)).astype(np.int32)
    found = []
    for with_core in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled, "HAS_CORE", with_core)
            found.append(LearnedImportance(weights).logits(table).tolist())
    assert found[0] == found[1]


def test_the_rule(random):
    counts = np.array([0, 1, 2, 3, 7, 300, 5_000, 1 << 30], np.int32)
    rows = RuleRows(
        random.integers(0, MESSAGES, VALUES).astype(np.int32),
        *random.choice(counts, (3, VALUES)),
        random.integers(0, 8, VALUES).astype(np.int8),
        *(random.random((2, VALUES)) < 0.3),
        random.integers(0, 256, VALUES).astype(np.uint8),
        *random.integers(0, 65, (2, VALUES)).astype(np.int32),
    )
    recency = random.integers(-9_000_000, 0, MESSAGES).astype(np.int32)
    one, other = np.zeros((2, VALUES), np.int32)
    core.score_rule(
        *rows, recency, _make_cases().ravel(), _LN_OF_PART, _LN_OF_OCTAVE, _weights_of_rule(), one
    )
    score_rule_in_python(rows, recency, other)
    assert one.tolist() == other.tolist()


def test_the_curve_from_several_threads_at_once(random):
    """Callers do not wait for each other, and each gets its own."""
    logits = random.integers(-2_000_000, 2_000_000, 150_000).astype(np.int32)
    expected = np.empty(len(logits), np.float32)
    squash_in_python(logits, 100, expected)
    same: list[bool] = []

    def squash_again() -> None:
        same.extend(_squash(logits, 100).tobytes() == expected.tobytes() for _ in range(100))

    threads = [threading.Thread(target=squash_again) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 400
