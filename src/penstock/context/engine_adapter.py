"""Lets an engine work on a conversation in any dialect: it sees lists of OpenAI-format dicts, as its contract says.

An engine may be a third party's: what it raises becomes EngineFailure, and a list that a provider would refuse is
rejected.
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
from penstock.engine.registry import blame_engine
from penstock.errors import EngineFailure, InputError
from penstock.transfer.convert import convert
from penstock.writing.stubs import arguments_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from penstock.engine.compress import Compressed, CompressRequest
    from penstock.engine.contract import CompactionWish
    from penstock.measure.usage import Usage
    from penstock.planning.receipt import Receipt

__all__ = ["EngineAdapter"]


class _Unit(msgspec.Struct, frozen=True):
    """Messages that stay together by the rules of their dialect, and what the engine sees of them."""

    wires: list[Any]
    chat: list[dict[str, Any]]


class EngineAdapter:
    """An engine, and the dialect of the conversation that it works on. Every call may raise EngineFailure."""

    def __init__(self, engine: ContextEngine, dialect: str) -> None:
        self.engine = engine
        self._dialect = dialect_named(dialect)

    def is_due(self, view: Sequence[Any], tokens: int) -> bool:
        """Returns True if the engine wants to compress a request of this size, and can."""
        with blame_engine(self.engine.name):
            is_due = self.engine.hosting.is_due
            return bool(self._ask_whether_due(view, tokens) if is_due is None else is_due(tokens))

    def _ask_whether_due(self, view: Sequence[Any], tokens: int) -> bool:
        """Asks the engine through its contract; converts nothing for an engine that decides by the tokens alone."""
        if not self.engine.should_compress(tokens):
            if type(self.engine).should_compress_preflight is ContextEngine.should_compress_preflight:
                return False
            if not self.engine.should_compress_preflight(self.show(view)):
                return False
        return self.engine.has_content_to_compress(self.show(view))

    async def compact_view(
        self, view: Sequence[Any], numbers: Sequence[int], wish: CompactionWish
    ) -> Compressed | None:
        """Returns a compaction with its plan; None for an engine that only knows lists, which is asked through `compress`."""
        with blame_engine(self.engine.name):
            compact_view = self.engine.hosting.compact_view
            return None if compact_view is None else await compact_view(view, numbers, wish)

    def describe(self, wish: CompactionWish) -> CompressRequest | None:
        """Returns what `compact_view` would ask of `compress_list`; None for an engine that has to do it itself."""
        with blame_engine(self.engine.name):
            describe = self.engine.hosting.describe
            return None if describe is None else describe(wish)

    def compress(self, view: Sequence[Any], tokens: int, focus: str | None) -> list[Any]:
        """Returns the list that the engine makes of the view, in the view's dialect; kept messages are the originals.

        Raises EngineFailure if the provider would not accept it.
        """
        units = list(self._units(view))
        given = [wire for unit in units for wire in unit.chat]
        with blame_engine(self.engine.name):
            made: Any = self.engine.compress(given, tokens, focus)
        if not isinstance(made, list) or not made or not all(isinstance(one, dict) for one in made):
            raise self._refusal("it is not a list of messages")
        try:
            wires = made if self._dialect is CHAT else list(self._restore(made, units))
            broken = check(decode_all(self._dialect, wires), self._dialect.rules)
        except InputError as error:
            raise self._refusal(str(error)) from error
        if broken:
            raise self._refusal(f"at message {broken[0].index + 1}, {broken[0].text}")
        return wires

    def tool_schemas(self, taken: Container[str]) -> list[dict[str, Any]]:
        """Returns the tools that the engine wants the host to offer, except those whose name is taken."""
        with blame_engine(self.engine.name):
            schemas = [one for one in self.engine.get_tool_schemas() if _is_function(one)]
        return [one for one in schemas if one["function"]["name"] not in taken]

    def call(self, name: str, arguments: str, view: Sequence[Any]) -> str:
        """Returns the answer of one of those tools."""
        args = arguments_of(ToolCall("", name, arguments))
        with blame_engine(self.engine.name):
            return str(self.engine.handle_tool_call(name, args, messages=self.show(view)))

    def report(self, usage: Usage) -> None:
        """Tells the engine what a provider reported, in the shape of OpenAI's chat API."""
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
        with blame_engine(self.engine.name):
            self.engine.update_from_response(report)

    def settle(self, receipt: Receipt, tokens: int) -> None:
        """Tells the engine the outcome of a compaction. `tokens` is the size of the request before it."""
        with blame_engine(self.engine.name):
            self.engine.hosting.on_compaction(receipt, tokens)

    def switch(self, old_id: str, new_id: str, reason: str) -> None:
        """Tells the engine that the session continues under another id."""
        with blame_engine(self.engine.name):
            self.engine.on_session_switch(old_id, new_id, reason)

    def start(self, session_id: str) -> None:
        """Tells the engine that the session begins anew, as after an undo."""
        with blame_engine(self.engine.name):
            self.engine.on_session_start(session_id)

    def update_model(self, model: str, window_tokens: int, base_url: str, provider: str = "") -> None:
        """Tells the engine of another model, or of another window of the same one."""
        with blame_engine(self.engine.name):
            self.engine.update_model(model, window_tokens, base_url=base_url, provider=provider)

    def reserve_output(self, tokens: int) -> None:
        """Tells the engine how long answers may be."""
        with blame_engine(self.engine.name):
            self.engine.hosting.reserve_output(tokens)

    def end(self, session_id: str, view: Sequence[Any]) -> None:
        """Tells the engine that the session is over."""
        with blame_engine(self.engine.name):
            self.engine.on_session_end(session_id, self.show(view))

    def show(self, view: Sequence[Any]) -> list[dict[str, Any]]:
        """Returns the view as the engine sees it."""
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

    def _restore(self, made: list[dict[str, Any]], units: Sequence[_Unit]) -> Iterator[Any]:
        """Yields the list in the conversation's own dialect: units that came back whole as they were, the rest converted.

        Two units may look the same to the engine. Most engines keep the newest messages, so the end is matched first.
        """
        last, end = len(units), len(made)
        while last and (chat := units[last - 1].chat) and made[max(0, end - len(chat)) : end] == chat:
            last, end = last - 1, end - len(chat)
        places: dict[bytes, list[int]] = {}
        for place, unit in enumerate(units[:last]):
            if unit.chat:
                places.setdefault(encode_wire(unit.chat[0]), []).append(place)
        new: list[dict[str, Any]] = []
        at = first = 0
        while at < end:
            equal = places.get(encode_wire(made[at]), ())
            found = next(
                (
                    place  # of several that are equal, the very one that the engine was given
                    for place in sorted(equal, key=lambda place: units[place].chat[0] is not made[at])
                    if place >= first and made[at : at + len(units[place].chat)] == units[place].chat
                ),
                None,
            )
            if found is None or at + len(units[found].chat) > end:
                new.append(made[at])
                at += 1
                continue
            yield from self._convert_back(new)
            new = []
            yield from units[found].wires
            at, first = at + len(units[found].chat), found + 1
        yield from self._convert_back(new)
        for unit in units[last:]:
            yield from unit.wires

    def _convert_back(self, chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return convert(decode_all(CHAT, chat), CHAT, self._dialect).wires if chat else []

    def _refusal(self, why: str) -> EngineFailure:
        return EngineFailure(
            f"the engine {self.engine.name!r} made a list that the provider would refuse ({why}); it was rejected"
        )


def _is_function(schema: Any) -> bool:
    function = schema.get("function") if isinstance(schema, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str) and "parameters" in function
