"""The rules of the providers' APIs, one per file, and what follows from them for a list of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.rules.base import Rule, Violation
from penstock.conversation.rules.repair import Repaired, open_calls, repair

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.conversation.message import Message

__all__ = ["Repaired", "Rule", "Violation", "check", "legal_cuts", "open_calls", "repair"]


def legal_cuts(messages: Sequence[Message], rules: Iterable[Rule]) -> list[int]:
    """Where the list may be cut, sorted: i stands for the cut before message i. 0 and len are always there."""
    illegal: set[int] = set()
    for rule in rules:
        illegal |= rule.illegal_cuts(messages)
    last = len(messages)
    return [index for index in range(last + 1) if index in (0, last) or index not in illegal]


def check(messages: Sequence[Message], rules: Iterable[Rule]) -> list[Violation]:
    """Every breach of every rule, in the order of the messages."""
    return sorted(violation for rule in rules for violation in rule.violations(messages))
