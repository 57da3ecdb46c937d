import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.measure.tokens import ByteEstimate, estimate_tokens, tokenizer_named

ROWS = {
    row["name"]: row
    for row in json.loads((Path(__file__).parent / "reference_counts.json").read_text(encoding="utf-8"))
}
WRITTEN_TEXT = [
    "english prose", "python code", "json records", "pretty json", "shell session", "markdown", "chinese",
    "japanese", "korean", "russian", "greek", "arabic", "hebrew", "hindi", "thai", "german", "french", "polish",
    "vietnamese", "emoji", "mixed agent turn",
]  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN_TEXT)
def test_the_estimate_is_within_a_quarter_of_o200k(name):
    row = ROWS[name]
    assert estimate_tokens(row["text"]) == pytest.approx(row["o200k_base"], rel=0.25)


def test_characters_by_four_would_not_be():
    row = ROWS["chinese"]
    assert len(row["text"]) / 4 < row["o200k_base"] * 0.5


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_text_has_an_estimate_and_only_the_empty_one_has_none(text):
    assert (estimate_tokens(text) > 0) == bool(text)


@settings(max_examples=100, deadline=None)
@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(one, other):
    assert estimate_tokens(one + other) >= max(estimate_tokens(one), estimate_tokens(other))


def test_it_stands_in_for_a_tokenizer():
    tokenizer = tokenizer_named("utf8-bytes")
    assert isinstance(tokenizer, ByteEstimate)
    assert not tokenizer.exact
    assert tokenizer.count_many(["", "gate", "水门"]) == [0, tokenizer.count("gate"), tokenizer.count("水门")]
