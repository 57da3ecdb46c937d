"""`Secret`, what a rule finds, and `RedactionRule`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

__all__ = ["REDACTED", "Detector", "Find", "RedactionRule", "Secret", "ends_escape"]

REDACTED = "[REDACTED]"


class Secret(msgspec.Struct, frozen=True, order=True):
    """A secret's value in a text: the characters from `start` up to `end`, and what kind of secret it is."""

    start: int
    end: int
    kind: str


Find: TypeAlias = Callable[[str, int, int], Iterable[Secret]]
"""Looks around one anchor, which stands from the first to the second number, for secrets."""

Detector: TypeAlias = Callable[[str], Iterable[Secret]]
"""A detector from elsewhere: all the secrets that it sees in a text."""


class RedactionRule(msgspec.Struct, frozen=True):
    """A kind of secret: the literal strings that always stand near one, and the search around each of them.

    `find` looks only near the anchor and reads a bounded number of characters unless it finds something, so
    that a text costs no more than its length. It takes `REDACTED` for no secret.
    """

    anchors: tuple[str, ...]
    find: Find
    stands_free: bool = False
    """Nothing is found where a letter, a digit, `_` or `-` stands right before the anchor, unless it ends an escape."""
    ends_word: bool = False
    """Nothing is found where small letters go on right behind the anchor, unless they begin an ending of `named`."""


def ends_escape(text: str, place: int) -> bool:
    """Returns True if the character before this place is the letter of an escape: of a line break, a tab and so on."""
    return place > 1 and text[place - 2] == "\\" and text[place - 1] in "nrtbf"
