"""A pattern that ignores case says the same as `re` does, for any text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.writing import ledger, state, stubs
from penstock.writing.caseless import CaselessPattern

PATTERNS = {
    f"{module.__name__}.{name}": value
    for module in (ledger, state, stubs)
    for name, value in vars(module).items()
    if isinstance(value, CaselessPattern)
}
WORDS = [
    "decided",
    "decision",
    "i",
    "will",
    "’ll",
    "'ll",
    "use",
    "pick",
    "instead of",
    "root cause",
    "because",
    "let me",
    "next",
    "perhaps",
]
ODD = [
    "ſ",
    "ı",
    "İ",
    "\u212a",
    "→",
    "решил",
    "ПРИЧИНА",
    "é",
    "É",
    "\u1c83",
    "原因",
    " ",
    ",",
    ".",
    "now",
    "checking",
    "might",
    "seems",
    "exit code",
    "Exited with 1",
    "return code: -2",
    "no such file",
    "TypeError:",
    "_error",
    "xerrors",
    "FAILED",
    "\n",
]
TEXTS = st.lists(st.sampled_from([*WORDS, *ODD]) | st.text(max_size=3), max_size=10).map(" ".join)


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS, upper=st.booleans())
def test_the_same_as_re(name, text, upper):
    pattern = PATTERNS[name]
    same = re.compile(pattern._pattern, re.IGNORECASE)
    said = text.upper() if upper else text
    assert pattern.starts(said) == (same.match(said) is not None)
    assert pattern.is_in(said) == (same.search(said) is not None)


@pytest.mark.parametrize(("said", "is_in"), [("deciſion", True), ("DECISION", True), ("ſet", False)])
def test_a_letter_that_equals_another(said, is_in):
    assert CaselessPattern("decision").is_in(said) is is_in


OLD_ERROR = re.compile(
    r"^.*(?:\b(?:\w*Error|\w*Exception|error|fatal|panic|failed|failure|FAILED|denied|not found|cannot|"
    r"No such file|undefined|traceback)\b).*$",
    re.MULTILINE | re.IGNORECASE,
)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_the_line_of_an_error_is_that_of_a_pattern_for_whole_lines(text):
    found = OLD_ERROR.search(text)
    expected = found[0] if found else next((line for line in text.split("\n") if line.strip()), "")
    assert ledger._find_line_of_error(text) == expected
