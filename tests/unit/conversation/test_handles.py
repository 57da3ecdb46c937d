"""Handles as people and models write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.conversation.handles import HandleKind, parse_handle, parse_message_handle
from penstock.errors import UnknownHandle


@pytest.mark.parametrize(
    "written", ["m4", "M4", "[m4]", "(m4)", " m4 ", "m04", "`m4`", '"m4"', "m4.", "**m4**", "<m4>,"]
)
def test_a_message_is_named_in_many_ways(written):
    found = parse_handle(written)
    assert (found.kind, found.number, found.text) == (HandleKind.MESSAGE, 4, "m4")
    assert parse_message_handle(written) == 4


@pytest.mark.parametrize(
    ("written", "kind", "number", "text"),
    [
        ("N7", HandleKind.NODE, 7, "n7"),
        ("[n12]", HandleKind.NODE, 12, "n12"),
        ("(s1)", HandleKind.SUMMARY, 1, "s1"),
        ("R0123456789AB", HandleKind.RESULT, 0, "r0123456789ab"),
        ("`r0123456789ab`", HandleKind.RESULT, 0, "r0123456789ab"),
        (" Handoff", HandleKind.HANDOFF, 0, "handoff"),
        ("m1-m4", HandleKind.SEVERAL, 0, "m1-m4"),
        ("[m1, M4]", HandleKind.SEVERAL, 0, "m1, M4"),
        ("Result-7f3a", HandleKind.OTHER, 0, "Result-7f3a"),
        ("m0", HandleKind.OTHER, 0, "m0"),
        ("12", HandleKind.OTHER, 0, "12"),
        ("m1234567890", HandleKind.OTHER, 0, "m1234567890"),
        ("m٣", HandleKind.OTHER, 0, "m٣"),
        ("r0123", HandleKind.OTHER, 0, "r0123"),
        ("", HandleKind.OTHER, 0, ""),
    ],
)
def test_every_kind(written, kind, number, text):
    assert parse_handle(written) == (kind, number, text)
    with pytest.raises(UnknownHandle, match="m1, m2 and so on"):
        parse_message_handle(written)


@given(st.one_of(st.text(), st.from_regex(r"[([]?[mnsr]?\d{1,12}[-\w]*[)\]]?", fullmatch=True)))
def test_what_it_says_it_says_again(written):
    found = parse_handle(written)
    assert parse_handle(found.text) == found
