from __future__ import annotations

import time

import pytest

from penstock.conversation.mark import find, wrap


def test_how_it_looks():
    assert wrap("so far", {"from": "m4", "to": 'm"5'}) == (
        '<penstock-handoff v="1" from="m4" to="m&quot;5">\nso far\n</penstock-handoff>'
    )


def test_the_first_whole_mark_is_found():
    text = f"<penstock-handoff> <penstock-handoff v=1> {wrap('a', {})} {wrap('b', {})}"
    found = find(text)
    assert found.text == "a"
    assert text[found.start : found.end] == wrap("a", {})
    assert find(text, found.end).text == "b"


@pytest.mark.parametrize("text", ["", "words", '<penstock-handoff v="1">\nno end', "</penstock-handoff>"])
def test_no_mark(text):
    assert find(text) is None


def test_later_versions_are_read():
    assert find(wrap("x", {}).replace('v="1"', 'v="12"')).version == 12


@pytest.mark.parametrize("name", ["v", "", "a b", 'a"', "1a", "é"])
def test_names_that_cannot_be_attributes(name):
    with pytest.raises(ValueError, match="cannot be the name"):
        wrap("x", {name: "y"})


def test_many_openings_without_an_end_cost_no_more_than_one_pass():
    text = '<penstock-handoff v="1">\n' * 100_000
    start = time.perf_counter()
    assert find(text) is None
    assert find("<penstock-handoff " * 100_000) is None
    assert time.perf_counter() - start < 2
