"""Nothing stands in a handoff that the conversation does not say."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.writing.values import values_in
from penstock.writing.verify import STRUCK, strike_unknown

KNOWN = frozenset(values_in("job_1 runs src/app.py on port 5433, 'no such table'"))


def test_known_values_stay():
    text = "job_1 runs src/app.py on port 5433"
    assert strike_unknown(text, KNOWN).text == text
    assert strike_unknown(text, KNOWN).struck == ()


def test_invented_values_are_struck_and_named():
    verified = strike_unknown("job_2 runs src/main.py on port 5433", KNOWN)
    assert verified.text == f"{STRUCK} runs {STRUCK} on port 5433"
    assert set(verified.struck) >= {"job_2", "src/main.py"}


def test_longer_values_go_first_so_that_none_is_left_in_part():
    verified = strike_unknown("see src/other/deep.py", KNOWN)
    assert "deep.py" not in verified.text
    assert "src/other" not in verified.text


def test_invented_quotations_are_struck():
    assert strike_unknown("it said 'table not there'", KNOWN).struck == ("table not there",)
    assert strike_unknown("it said 'no such table'", KNOWN).struck == ()


def test_plain_language_is_never_struck():
    text = "The user wants the importer to be repaired."
    assert strike_unknown(text, frozenset()).text == text


def test_handles_are_ours():
    assert strike_unknown("as m12 and m4711 say", frozenset()).struck == ()


@given(st.text(max_size=80), st.sets(st.text(max_size=8)))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_a_text_whose_values_are_all_known_is_not_touched(text, more):
    assert strike_unknown(text, set(values_in(text)) | more).text == text
