"""An engine that knows lists of OpenAI-format dicts alone, at work on a conversation in any dialect.

Its code is not ours: what it raises comes out as EngineFailure, and a list that a provider would refuse is not taken.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.dialects.chat import CHAT
from penstock.conversation.message import ToolCall
from penstock.conversation.rules import check, legal_cuts
from penstock.conversation.wire import encode_wire
from penstock.engine.contract import ContextEngine
from penstock.engine.registry import blaming
from penstock.errors import EngineFailure, InputError
from penstock.transfer.convert import convert
from penstock.writing.stubs import arguments_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from penstock.measure.usage import Usage

__all__ = ["ListEngine"]


class _Unit(msgspec.Struct, frozen=True):
    """Messages that stay together by the rules of their dialect, and what the engine sees of them."""

    wires: list[Any]
    chat: list[dict[str, Any]]


class ListEngine:
    """Such an engine, and the dialect of the conversation that it works on."""

    def __init__(self, engine: ContextEngine, dialect: str) -> None:
        self._engine = engine
        self._dialect = dialect_named(dialect)

    def is_due(self, view: Sequence[Any], tokens: int) -> bool:
        """Whether the engine wants to compress a request of so many tokens, and finds something to compress in it."""
        engine = self._engine
        with blaming(engine.name):
            if not engine.should_compress(tokens):
                # Only an engine that decides by the messages is worth having them converted before each request.
                if type(engine).should_compress_preflight is ContextEngine.should_compress_preflight:
                    return False
                if not engine.should_compress_preflight(self.seen(view)):
                    return False
            return bool(engine.has_content_to_compress(self.seen(view)))

    def compress(self, view: Sequence[Any], tokens: int, focus: str | None) -> list[Any]:
        """What the engine makes of the view, in the dialect of the view; what it kept is what was there.

        Raises EngineFailure where that is no conversation that the provider would take.
        """
        units = list(self._units(view))
        given = [wire for unit in units for wire in unit.chat]
        with blaming(self._engine.name):
            made: Any = self._engine.compress(given, tokens, focus)
        if not isinstance(made, list) or not made or not all(isinstance(one, dict) for one in made):
            raise self._refused("it is no list of messages")
        try:
            wires = made if self._dialect is CHAT else list(self._back(made, units))
            broken = check(decode_all(self._dialect, wires), self._dialect.rules)
        except InputError as error:
            raise self._refused(str(error)) from error
        if broken:
            raise self._refused(f"at message {broken[0].index + 1}, {broken[0].text}")
        return wires

    def tool_schemas(self, taken: Container[str]) -> list[dict[str, Any]]:
        """The tools that the engine has the host offer; those with a name that is taken are left out."""
        with blaming(self._engine.name):
            schemas = [one for one in self._engine.get_tool_schemas() if _is_function(one)]
        return [one for one in schemas if one["function"]["name"] not in taken]

    def call(self, name: str, arguments: str, view: Sequence[Any]) -> str:
        """The answer of one of those tools."""
        args = arguments_of(ToolCall("", name, arguments))
        with blaming(self._engine.name):
            return str(self._engine.handle_tool_call(name, args, messages=self.seen(view)))

    def used(self, usage: Usage) -> None:
        """Tell the engine what a provider reported, in the shape of OpenAI's chat API."""
        report = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {
                "cached_tokens": usage.cache_read_tokens,
                "cache_write_tokens": usage.cache_write_tokens,
            },
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }
        with blaming(self._engine.name):
            self._engine.update_from_response(report)

    def end(self, session_id: str, view: Sequence[Any]) -> None:
        """Tell the engine that the session is over."""
        with blaming(self._engine.name):
            self._engine.on_session_end(session_id, self.seen(view))

    def seen(self, view: Sequence[Any]) -> list[dict[str, Any]]:
        """The view as the engine sees it."""
        return (
            list(view) if self._dialect is CHAT else [one for unit in self._units(view) for one in unit.chat]
        )

    def _units(self, view: Sequence[Any]) -> Iterator[_Unit]:
        if self._dialect is CHAT:
            yield _Unit(list(view), list(view))
            return
        messages = decode_all(self._dialect, view)
        for start, end in pairwise(legal_cuts(messages, self._dialect.rules)):
            chat = convert(messages[start:end], self._dialect, CHAT).wires
            yield _Unit(list(view[start:end]), chat)

    def _back(self, made: list[dict[str, Any]], units: Sequence[_Unit]) -> Iterator[Any]:
        """The list in the conversation's own dialect: units that came back whole as they were, the rest converted."""
        places: dict[bytes, list[int]] = {}
        for place, unit in enumerate(units):
            if unit.chat:
                places.setdefault(encode_wire(unit.chat[0]), []).append(place)
        new: list[dict[str, Any]] = []
        at = first = 0
        while at < len(made):
            equal = places.get(encode_wire(made[at]), ())
            found = next(
                (
                    place  # of several that are equal, the very one that the engine was given
                    for place in sorted(equal, key=lambda place: units[place].chat[0] is not made[at])
                    if place >= first and made[at : at + len(units[place].chat)] == units[place].chat
                ),
                None,
            )
            if found is None:
                new.append(made[at])
                at += 1
                continue
            yield from self._converted(new)
            new = []
            yield from units[found].wires
            at, first = at + len(units[found].chat), found + 1
        yield from self._converted(new)

    def _converted(self, chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return convert(decode_all(CHAT, chat), CHAT, self._dialect).wires if chat else []

    def _refused(self, why: str) -> EngineFailure:
        return EngineFailure(
            f"the engine {self._engine.name!r} made a list that the provider would refuse ({why}); it was not taken"
        )


def _is_function(schema: Any) -> bool:
    function = schema.get("function") if isinstance(schema, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str) and "parameters" in function
