"""`Secret`, what a rule finds, and `RedactionRule`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

__all__ = ["REDACTED", "Detector", "Find", "RedactionRule", "Secret"]

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
    """Literal strings without which there can be no such secret, and what to do where one stands.

    `find` looks only near the anchor and reads a bounded number of characters unless it finds something, so
    that a text costs no more than its length. It takes `REDACTED` for no secret.
    """

    anchors: tuple[str, ...]
    find: Find
