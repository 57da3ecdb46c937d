"""Anthropic: what a tool of the provider's returned stays with its use.

Both are opaque to us but for their ids. They normally share one assistant message; after a paused turn the
result opens the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.message import Message, Opaque
from penstock.conversation.rules.base import Violation
from penstock.conversation.rules.pairs import inside_spans
from penstock.conversation.wire import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ServerTools", "orphan_server_results"]

_USES = ("server_tool_use", "mcp_tool_use")


class ServerTools:
    """No cut between a server tool's use and its result, and no result without its use."""

    name = "server tools"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """Every cut between the message of a use and that of its result."""
        spans, _ = _pair(messages)
        return inside_spans(spans, len(messages))

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Results whose use does not stand before them."""
        return [
            Violation(index, self.name, "the result of a server tool has no use of that tool before it")
            for index, _ in orphan_server_results(messages)
        ]

    def __repr__(self) -> str:
        return "ServerTools()"


def orphan_server_results(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Message and part index of each result without its use."""
    return _pair(messages)[1]


def _pair(messages: Sequence[Message]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    uses: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    orphans: list[tuple[int, int]] = []
    for index, number, part in _server_parts(messages):
        if part.kind in _USES:
            uses[_field(part, "id")] = index
            continue
        use = uses.get(_field(part, "tool_use_id"))
        if use is None:
            orphans.append((index, number))
        else:
            spans.append((use, index))
    return spans, orphans


def _server_parts(messages: Sequence[Message]) -> Iterator[tuple[int, int, Opaque]]:
    for index, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if type(part) is Opaque and (part.kind in _USES or part.kind.endswith("_tool_result")):
                yield index, number, part


def _field(part: Opaque, name: str) -> str:
    block = parse_json(part.text)
    value = block.get(name) if isinstance(block, dict) else None
    return value if isinstance(value, str) else ""
