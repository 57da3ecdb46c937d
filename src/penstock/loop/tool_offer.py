"""Chooses the tools that a request offers in full, and those that it only names. Pure.

If the schemas of all tools take more than a tenth of the window, those that are rarely used are named with one line
each in the description of `load_tools`; a call of it loads them. A tool that was loaded or used stays for the session. This
is derived from the log, from which a compaction removes nothing, so it also holds after a compaction and a restart.

An offer only ever grows within a session, and loaded tools stand at its end: the prefix that the provider has cached
changes as seldom as possible.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.message import ToolCall, ToolResult
from penstock.errors import InputError
from penstock.measure.weigh import tools_tokens
from penstock.recall.tool_arguments import read_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.conversation.message import Message
    from penstock.measure.tokens import Tokenizer

__all__ = ["LOAD_TOOLS", "ToolOffer", "ToolUse", "answer_load", "load_schema", "make_offer"]

LOAD_TOOLS = "load_tools"
WINDOW_SHARE = 0.10
_LINE_CHARS = 120


class ToolUse(msgspec.Struct, frozen=True):
    """The tools in a log: those that were loaded, in that order, and how often each was called."""

    loaded: tuple[str, ...] = ()
    calls: Mapping[str, int] = msgspec.field(default_factory=dict)
    pending: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    def after(self, messages: Iterable[Message]) -> ToolUse:
        """Returns the use after these messages. Costs only these, however long the log is."""
        calls, pending = Counter(self.calls), dict(self.pending)
        loaded = dict.fromkeys(self.loaded)
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolCall):
                    calls[part.name] += 1
                    if part.name == LOAD_TOOLS:
                        pending[part.call_id] = _read_names(part.arguments)
                elif isinstance(part, ToolResult):
                    names = pending.pop(part.call_id, ())
                    loaded |= {} if part.is_error else dict.fromkeys(names)
        return ToolUse(tuple(loaded), dict(calls), pending)


class ToolOffer(msgspec.Struct, frozen=True):
    """The schemas to send, and the names of the tools that are only named."""

    schemas: tuple[Mapping[str, Any], ...]
    named: tuple[str, ...] = ()


class _Item(msgspec.Struct, frozen=True):
    name: str
    schema: Mapping[str, Any]
    tokens: int


def make_offer(
    schemas: Sequence[Mapping[str, Any]],
    use: ToolUse,
    *,
    window_tokens: int,
    tokenizer: Tokenizer,
    always: Iterable[str] = (),
    past_calls: Mapping[str, int] | None = None,
) -> ToolOffer:
    """Returns the offer for a request.

    `schemas` are OpenAI function tools, in order. Those in `always` are always offered in full. The others fill the
    tenth of the window by how often they were called in earlier sessions (`past_calls`), then in their order; the rest
    is named until it is loaded or called.
    """
    items = [_Item(_name(one), one, tools_tokens([one], tokenizer)) for one in schemas]
    room = int(window_tokens * WINDOW_SHARE)
    if sum(item.tokens for item in items) <= room:
        return ToolOffer(tuple(schemas))
    fixed = set(always)
    fitting = _choose_fitting(items, fixed, room, past_calls or {}, tokenizer)
    prunable = [item for item in items if item.name not in fitting]
    wanted = {*use.loaded, *(name for name, count in use.calls.items() if count)}
    by_name = {item.name: item for item in prunable}
    order = [*use.loaded, *(item.name for item in prunable)]
    later = [by_name[name] for name in dict.fromkeys(order) if name in wanted and name in by_name]
    return ToolOffer(
        schemas=(
            *(item.schema for item in items if item.name in fitting),
            load_schema([item.schema for item in prunable]),
            *(item.schema for item in later),
        ),
        named=tuple(item.name for item in prunable if item.name not in wanted),
    )


def load_schema(schemas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the tool that loads others. It names all of them, even those already loaded, so that it never changes."""
    lines = "\n".join(f"- {_name(one)}: {_line(one)}" for one in schemas)
    names = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    return {
        "type": "function",
        "function": {
            "name": LOAD_TOOLS,
            "description": f"Load tools before you use them. There are:\n{lines}",
            "parameters": {
                "type": "object",
                "properties": {"names": names},
                "required": ["names"],
                "additionalProperties": False,
            },
        },
    }


def answer_load(args: Any, known: Iterable[str]) -> tuple[str, bool]:
    """Returns the answer to a call of `load_tools`, and True if it failed: an unknown name fails, and loads nothing."""
    wanted, everything = _read_names(args), set(known)
    if not wanted:
        return f"give names, a list of tools to load, for example {sorted(everything)[:3]}", True
    unknown = [name for name in wanted if name not in everything]
    if unknown:
        return f"there is no tool {', '.join(unknown)}; load_tools lists them", True
    return f"Loaded: {', '.join(wanted)}. They can be called from now on.", False


def _choose_fitting(
    items: Sequence[_Item], fixed: set[str], room: int, past_calls: Mapping[str, int], tokenizer: Tokenizer
) -> set[str]:
    """Returns the names of the tools that are offered in full from the start, whatever happens in the session."""
    fitting = {item.name for item in items if item.name in fixed}
    # As if all others were named: the line of one that fits after all is then room to spare.
    others = [item for item in items if item.name not in fixed]
    left = room - sum(item.tokens for item in items if item.name in fixed)
    left -= tools_tokens([load_schema([item.schema for item in others])], tokenizer)
    for item in sorted(others, key=lambda item: -past_calls.get(item.name, 0)):
        if item.tokens > left:
            break
        fitting.add(item.name)
        left -= item.tokens
    return fitting


def _read_names(args: Any) -> tuple[str, ...]:
    """Returns the names in the arguments of a call; a single one may come as a text."""
    try:
        names = read_object(args).get("names")
    except InputError:
        return ()
    names = [names] if isinstance(names, str) else names
    return (
        tuple(dict.fromkeys(one for one in names if isinstance(one, str))) if isinstance(names, list) else ()
    )


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema["function"]["name"])


def _line(schema: Mapping[str, Any]) -> str:
    first = str(schema["function"].get("description", "")).strip().partition("\n")[0]
    return first if len(first) <= _LINE_CHARS else f"{first[: _LINE_CHARS - 1]}…"
