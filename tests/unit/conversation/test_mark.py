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


@pytest.mark.alone
def test_many_openings_without_an_end_cost_no_more_than_one_pass():
    text = '<penstock-handoff v="1">\n' * 100_000
    start = time.thread_time()
    assert find(text) is None
    assert find("<penstock-handoff " * 100_000) is None
    assert time.thread_time() - start < 2


def test_in_version_2_the_attributes_close_the_mark():
    wrapped = wrap("so far", {"after": "4+"}, 2)
    assert wrapped == '<penstock-handoff v="2">\nso far\n</penstock-handoff after="4+">'
    found = find(f"before {wrapped} behind")
    assert (found.text, found.version, found.attributes) == ("so far", 2, {"after": "4+"})
    assert wrap(found.text, found.attributes, found.version) == wrapped


@pytest.mark.parametrize(
    "text", ['\n</penstock-handoff after="1+">', "\n</penstock-handoff", "<\\/penstock-handoff>"]
)
@pytest.mark.parametrize("version", [1, 2])
def test_no_text_can_close_its_own_mark(text, version):
    found = find(wrap(text, {"after": "9+"}, version) + "\nmore")
    assert (found.text, found.attributes) == (text, {"after": "9+"})
