"""Numbers for values are given in the order of meeting, for good; words inside values are those a reader finds."""

from __future__ import annotations

import re
from itertools import islice, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.writing import compiled, vocabulary
from penstock.writing import finder as laid_out
from penstock.writing.finder import UNKNOWN, Interner, ValueLabel
from penstock.writing.token_values import lay_tokens, read_tokens
from penstock.writing.value_looks import bucket, find_words, look_at
from penstock.writing.values import (
    NO_SUBJECT,
    plain_stem,
    sub_words,
    tokens_of,
    values_in,
    values_in_token,
    values_of_each,
)
from penstock.writing.vocabulary import Postings, Vocabulary, holds_each

batches = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12), max_size=6)


@given(batches)
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_it_numbers_as_a_dict_would(given_batches):
    interner, expected = Interner(), {}
    for batch in given_batches:
        before = len(expected)
        interned = interner.intern(np.array(batch, np.int64))
        for one in batch:
            expected.setdefault(one, len(expected))
        assert interned.numbers.tolist() == [expected[one] for one in batch]
        assert [batch[place] for place in interned.fresh] == list(expected)[before:]
        assert [batch.index(batch[place]) for place in interned.fresh] == interned.fresh.tolist()
        assert len(interner) == len(expected)
    assert interner.look_up(np.array(list(expected), np.int64)).tolist() == list(expected.values())


def test_what_was_never_met_has_no_number():
    interner = Interner()
    assert interner.look_up(np.array([1, 2], np.int64)).tolist() == [UNKNOWN, UNKNOWN]
    interner.intern(np.array([2], np.int64))
    assert interner.look_up(np.array([1, 2, 3], np.int64)).tolist() == [UNKNOWN, 0, UNKNOWN]


ASCII_VALUES = st.text(alphabet="abcXYZ019_-./ @", max_size=30)


def found(values):
    words = find_words("\n".join([*values, ""]))
    return [set(words.buckets[words.owners == place].tolist()) for place in range(len(values))]


@settings(max_examples=200)
@given(st.lists(ASCII_VALUES, min_size=1, max_size=8))
def test_the_same_words_as_one_by_one(values):
    assert found(values) == [{bucket(word) for word in sub_words(value)} for value in values]


def test_a_word_is_the_same_whatever_stands_beside_its_value():
    values = ["\ua7ab_x", "order_711", "İZ9"]  # small, the first takes a byte less, the last one more
    beside = find_words("\n".join([*values, ""]))
    assert beside.owners.tolist() == [1, 1]
    assert beside.buckets.tolist() == [bucket("order"), bucket("711")]


def test_case_does_not_matter_and_capitals_stay_with_their_word():
    one, other = found(["getUserName", "user_name"])
    assert one & other == {bucket("user"), bucket("name")}
    assert found(["HTTPServer"]) == [{bucket("https"), bucket("erver")}]


def test_words_beyond_ascii():
    assert found(["订单编号", "Привет", "привет"]) == [
        {bucket("订单编号")},
        {bucket("привет")},
        {bucket("привет")},
    ]


def test_no_words_at_all():
    words = find_words("a.b\n--\n")
    assert len(words.buckets) == len(words.owners) == 0


def test_numbers_are_spread():
    numbers = {bucket(f"word{n}") for n in range(2_000)}
    assert len(numbers) > 1_980
    assert all(0 <= number < 1 << 16 for number in numbers)


def test_a_very_long_word_is_cut_and_not_refused():
    assert found(["x" * 10_000]) == [{bucket("x" * 256)}]
    assert np.isscalar(bucket(""))


TOKENS = st.text(alphabet="abzABZ019_@#~$/\\.-%+", min_size=1, max_size=14)
PHRASES = st.text(alphabet="ab_ -9.\t\x1c", max_size=9).map('"{}"'.format)
ANY_TOKENS = st.lists(
    TOKENS | PHRASES | st.sampled_from(["é", "prix_é", "漢字abc", "--", "---flag", "a1" * 101])
)


@settings(max_examples=300, deadline=None)
@given(ANY_TOKENS)
def test_tokens_read_side_by_side_hold_what_each_holds_alone(tokens):
    many = [*tokens, *["order_id"] * 200]  # so few are read one by one
    assert read_tokens(many) == values_of_each(many)


WORDS = st.sampled_from(
    [*laid_out.LABELS, *NO_SUBJECT, "reservationsx", "abcdefghijklmnop", "I", "d", "_", "é"]
)
CASES = st.sampled_from(
    [str, str.upper, str.title, "my_{}".format, "{}_x".format, "{}1".format, "{}Id".format]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.builds(lambda word, change: change(word), WORDS, CASES) | TOKENS, min_size=1))
def test_tokens_side_by_side_are_described_as_each_is_alone(tokens):
    labels, words = laid_out._describe_each(tokens)
    assert labels.tolist() == list(map(laid_out._label_of, tokens))
    assert words.tolist() == [bucket(stem) if (stem := plain_stem(token)) else 0 for token in tokens]
    if all(map(str.isascii, tokens)):
        assert laid_out._describe(lay_tokens(tokens))[0].tolist() == labels.tolist()


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_numbers_are_found_among_ordered_ones(some, numbers):
    held = holds_each(np.array(sorted(some), np.int64), np.array(numbers, np.int64))
    assert held.tolist() == [number in some for number in numbers]


@settings(max_examples=200)
@given(st.text(max_size=60))
def test_many_tokens_at_once_give_the_values_of_each(text):
    tokens = tokens_of(re.sub(r"[\"'`]", " ", text))
    values, counts = values_of_each(tokens)
    assert values == [value for token in tokens for value in values_in_token(token)]
    assert sum(counts) == len(values)
    assert len(counts) == len(tokens)


def labels_in(*texts):
    """For each text its values with what the words before them say."""
    vocabulary = Vocabulary()
    found = vocabulary.find(texts)
    names = {int(vocabulary.numbers_of([value])[0]): value for text in texts for value in values_in(text)}
    return [
        {
            names[value]: ValueLabel(label)
            for value, label in zip(found.ids[a:b].tolist(), found.labels[a:b].tolist(), strict=True)
        }
        for a, b in pairwise(found.starts)
    ]


def test_the_word_before_a_value_says_what_it_is():
    (labels,) = labels_in("order_id #W4711, price 12.50 · def parse_date · userId AB12CD and XY99ZZ")
    assert labels["#W4711"] is ValueLabel.IDENTIFIER
    assert labels["12.50"] is ValueLabel.AMOUNT
    assert labels["parse_date"] is ValueLabel.DEFINITION
    assert labels["AB12CD"] is ValueLabel.IDENTIFIER
    assert labels["XY99ZZ"] == ValueLabel(0)


def test_all_that_stands_before_a_value_in_one_text_counts_and_no_other_text():
    assert labels_in("date 2026-11-16 until 2026-11-16", "id", "2026-11-16") == [
        {"2026-11-16": ValueLabel.TIME},
        {},
        {"2026-11-16": ValueLabel(0)},
    ]


@given(st.lists(st.text(alphabet="id price ABC12,.", max_size=30), max_size=6))
def test_labels_do_not_depend_on_what_is_read_together(texts):
    assert labels_in(*texts) == [labels for text in texts for labels in labels_in(text)]


def test_plain_words_are_counted_text_by_text_and_empty_ones_are_not_words():
    found = Vocabulary().find(["Desk lamps, and a desk_lamp", "", "with the lamp4 lamps"])
    assert found.word_counts.tolist() == [2, 0, 1]
    assert found.words.tolist() == [bucket("desk"), bucket("lamps"), bucket("lamps")]


@given(st.lists(st.lists(st.integers(0, 9), max_size=20), max_size=8), st.sampled_from([1, 3, 10_000]))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_owners_of_words_and_their_sources_are_counted(pieces, small_piece):
    postings, expected, owner = Postings(), {word: [] for word in range(10)}, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "_SMALL_PIECE", small_piece)
        for words in pieces:
            owners = np.arange(owner, owner + len(words), dtype=np.int32)
            postings.add(np.array(words, np.uint16), owners)
            for word, one in zip(words, owners.tolist(), strict=True):
                expected[word].append(one)
            owner += len(words)
    times = {2: 1, 7: 3, 9: 2}
    counts = np.zeros((2, owner), np.int32)
    source_of = np.arange(owner, dtype=np.int32) // 3
    for row, with_core in zip(counts, (compiled.HAS_CORE, False), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled, "HAS_CORE", with_core)
            postings.count_owners(sorted(times), [times[word] for word in sorted(times)], row)
            many = postings.count_sources(np.array(sorted(times), np.uint16), source_of)
            assert many.tolist() == [len({one // 3 for one in expected[word]}) for word in sorted(times)]
    assert counts[0].tolist() == counts[1].tolist()
    for one in range(owner):
        assert counts[0][one] == sum(
            times[word] for word in times for other in expected[word] if other == one
        )


def test_there_are_never_many_pieces_of_postings(monkeypatch):
    """Whether rows come all at once, in equal parts, or a few at a time."""
    monkeypatch.setattr(vocabulary, "_SMALL_PIECE", 4)
    postings, owner = Postings(), 0
    for many in (*[500] * 5, *[3] * 400, *[40] * 100, 2_000, *[3] * 100):
        postings.add(np.arange(many, dtype=np.uint16), np.arange(owner, owner + many, dtype=np.int32))
        owner += many
        assert len(postings._owners) <= 20
    assert sum(map(len, postings._owners)) == owner


def test_a_value_may_have_more_words_than_fit_into_the_fewest_bits():
    words = ["".join(some) for some in islice(product("abcdefghijklmnopqrstuvwxyz", repeat=4), 70_000)]
    sizes = [2, 254, 255, 256, 300, 70_000, 3]
    met = Vocabulary()
    for size in sizes:  # one by one, so that the bits grow; `find` would pass the longest over
        met._add(look_at(["_".join(words[:size])]))
        of = met.word_counts()
        found = np.minimum(100, of).astype(np.int32)
        shares = vocabulary._look_up_share(found, of).tolist()
        assert shares == vocabulary._look_up_share(found, of.astype(np.int32)).tolist()
    assert met.word_counts().tolist() == sizes
