"""Makes messages smaller without a model: turns results into a line, shortens long arguments, turns images into a stub.

Every function returns replacements for parts; all other parts stay unchanged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects.content import read_attachment
from penstock.conversation.dialects.wire_kinds import is_attachment, is_fixed
from penstock.conversation.handles import name_message
from penstock.conversation.message import Image, Message, Opaque, Part, Text, ToolCall, ToolResult
from penstock.conversation.speakers import Voice, VoicedPart, part_voices
from penstock.conversation.wire import json_text, parse_arguments, parse_json
from penstock.writing.excerpts import redact_readable
from penstock.writing.harness import shorten_harness
from penstock.writing.ledger import read_outcome
from penstock.writing.stubs import clip, describe, shorten, shows_files, state_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor
    from penstock.writing.telling import Teller

__all__ = ["Elider"]

_SMALLEST_RESULT = 200  # characters: shorter results stay
_LONGEST_LEAF = 200  # characters of one text in the arguments of a call
_LEAF_HEAD = 60
_LONGEST_ARGUMENTS = 1_000  # characters of all arguments of a call together, however short each value is
_LONGEST_TITLE = 80
_LONGEST_ERROR = 160
_LINE_NUMBER = re.compile(r"(?<![\w.])\d{2,6}(?![\w.])")
_LEAST_COPY = 24  # tokens of a harness text with a copy in a later message


class Elider:
    """Elides messages of one conversation. Stubs name the agent's `recall_tool`, if it has one."""

    def __init__(
        self,
        calls: Mapping[str, ToolCall],
        tokenizer: Tokenizer,
        redactor: Redactor,
        recall_tool: str | None = None,
    ) -> None:
        self._calls = calls
        self._tokenizer = tokenizer
        self._redactor = redactor
        self._recall = f", {recall_tool}" if recall_tool else ""

    def stub(self, result: ToolResult, number: int) -> str:
        """Returns the line that replaces a result: it has the handle of the original and, after a failure, the error."""
        call = self._calls.get(result.call_id)
        line = describe(call, result, self._redactor.redact)
        pictures = f", {len(result.images)} images" if result.images else ""
        stub = f"{line}{pictures} ({name_message(number)}{self._recall})"
        if shows_files(call) and not result.is_error:
            return stub
        outcome = read_outcome(result, self._redactor.redact)
        return f"{stub}: {shorten(outcome.text, _LONGEST_ERROR)}" if outcome.failed and outcome.text else stub

    def elide_results(self, message: Message, number: int) -> dict[int, Part]:
        """Returns long results as stubs and images as a line; empty if nothing gets smaller."""
        parts: dict[int, Part] = {}
        for place, part in enumerate(message.parts):
            if is_fixed(part):
                continue
            if isinstance(part, ToolResult) and (len(part.text) > _SMALLEST_RESULT or part.images):
                stub = self.stub(part, number)
                if len(stub) < len(part.text) or part.images:
                    parts[place] = msgspec.structs.replace(part, text=stub, images=())
            elif isinstance(part, Image):
                parts[place] = Text(
                    f"[image, {part.size_bytes:,} bytes ({name_message(number)}{self._recall})]"
                )
            elif isinstance(part, Opaque) and is_attachment(part):
                line = self.name_attachment(part, number)
                if part.media_bytes or len(line) < len(part.text):
                    parts[place] = Text(line)
        return parts

    def name_attachment(self, part: Opaque, number: int) -> str:
        """Returns the line that replaces a document or file, with the handle of the original."""
        title, text = read_attachment(part)
        size = f"{part.media_bytes:,} bytes" if part.media_bytes else f"{len(text or part.text):,} chars"
        named = f" {self._redactor.redact(title[:_LONGEST_TITLE])!r}" if title else ""
        return f"[{part.kind}{named}, {size} ({name_message(number)}{self._recall})]"

    def tell_result(  # where it stands, and how it is told
        self,
        message: Message,
        at: int,
        number: int,
        limit: int,
        teller: Teller,
        told_beside: Container[str] = frozenset(),
    ) -> ToolResult | None:
        """Returns a result of the message as its most telling lines, below its outcome and its handle, in about `limit` tokens.

        Repeats nothing of the call, which comes right before it, nor of the lines in `told_beside`. Returns None if this
        would not be smaller than the result itself.
        """
        part = message.parts[at]
        if not isinstance(part, ToolResult) or is_fixed(part):
            return None
        call = self._calls.get(part.call_id)
        count = self._tokenizer.count
        outcome = f", {ended}" if (ended := state_outcome(call, part)) else ""
        pictures = f", {len(part.images)} images" if part.images else ""
        head = f"[part of {name_message(number)}{outcome}{pictures}{self._recall}]"
        is_file = shows_files(call) and not part.is_error
        room = limit - count(head) - 1
        clean = redact_readable(part.text, self._redactor.redact)
        near = (
            frozenset(map(int, _LINE_NUMBER.findall(call.arguments)))
            if call is not None
            else frozenset[int]()
        )
        lines = (
            teller.tell(clean, room, is_file=is_file, near=near, told_beside=told_beside) if room > 0 else ""
        )
        text = f"{head}\n{lines}" if lines else self.stub(part, number)
        if count(text) >= count(part.text) and not part.images:
            return None
        return msgspec.structs.replace(part, text=text, images=())

    def shorten_arguments(self, message: Message, number: int) -> dict[int, Part]:
        """Returns the calls with long arguments, shortened; the JSON stays valid."""
        parts: dict[int, Part] = {}
        for place, part in enumerate(message.parts):
            if isinstance(part, ToolCall) and len(part.arguments) > _LONGEST_LEAF and not is_fixed(part):
                shorter = self._shorten_json(part.arguments, number)
                if shorter is not None:
                    parts[place] = msgspec.structs.replace(part, arguments=shorter)
        return parts

    def trim_harness(
        self, message: Message, number: int, limit: int, count: Callable[[str], int], newest: dict[str, int]
    ) -> dict[int, Part]:
        """Cuts harness texts of more than `limit` tokens to their telling lines, and returns them; a person's words stay.

        `newest` has the long harness texts of later messages, with their numbers, and gets those of this one: among equal
        texts, the newest stands for all.
        """
        parts: dict[int, Part] = {}
        for place, part in enumerate(message.parts):
            if not isinstance(part, Text) or len(part.text) <= limit:
                continue
            voices = part_voices(part.text)
            if all(one.voice is Voice.PERSON for one in voices):
                continue
            written: list[str] = []
            for one in voices:
                if one.voice is Voice.PERSON or len(one.text) <= limit:
                    written.append(one.text)
                    continue
                clean = VoicedPart(one.voice, self._redactor.redact(one.text))
                known = newest.setdefault(one.text.strip(), number)
                copy = f", the same as {name_message(known)}" if known != number else ""
                note = f"all of it: {name_message(number)}{self._recall}{copy}"
                shorter = shorten_harness(clean, _LEAST_COPY if copy else limit, count, note)
                written.append(shorter if len(shorter) < len(one.text) else one.text)
            shortened = "".join(written)
            if len(shortened) < len(part.text):
                parts[place] = Text(self._redactor.redact(shortened))
        return parts

    def clip(self, text: str, limit: int, number: int, count: Callable[[str], int]) -> str:
        """Returns the head and the tail of the text within `limit` tokens, redacted."""
        return clip(
            self._redactor.redact(text), limit, count, f"all of it: {name_message(number)}{self._recall}"
        )

    def _shorten_json(self, arguments: str, number: int) -> str | None:
        """Returns the arguments with long texts shortened and only the first of very many values; None if they are short.

        Redacts the arguments as a whole, since a secret is often recognised by its key.
        """
        try:
            given = parse_json(arguments)
        except ValueError:
            return self._leaf(arguments, number)
        if len(arguments) <= _LONGEST_ARGUMENTS and not _has_long_leaf(given):
            return None
        try:
            clean = parse_json(self._redactor.redact(arguments))
        except ValueError:  # redacting a secret has removed a quote
            return json_text(parse_arguments(self._leaf(arguments, number)))
        shortened = self._shorten(clean, number)
        text = json_text(shortened)
        if len(text) > _LONGEST_ARGUMENTS:
            text = json_text(_keep_first(shortened, [_LONGEST_ARGUMENTS // 2], number))
        return text if len(text) < len(arguments) else None

    def _shorten(self, node: Any, number: int) -> Any:
        if isinstance(node, dict):
            return {key: self._shorten(value, number) for key, value in node.items()}
        if isinstance(node, list):
            return [self._shorten(value, number) for value in node]
        if isinstance(node, str):
            return self._leaf(node, number) if len(node) > _LONGEST_LEAF else self._redactor.redact(node)
        return node

    def _leaf(self, text: str, number: int) -> str:
        head = " ".join(self._redactor.redact(text[: _LEAF_HEAD * 4])[:_LEAF_HEAD].split())
        return f"{head}… [{len(text):,} chars, {name_message(number)}]"


def _keep_first(node: Any, room: list[int], number: int) -> Any:
    """Returns the first values of lists and objects that fit `room[0]` characters, and the number of the others.

    Types stay the same: a list of texts stays a list of texts. `room` is a list with one number, the room that is left.
    """
    if not isinstance(node, dict | list):
        room[0] -= len(node) if isinstance(node, str) else 6
        return node
    kept: list[tuple[Any, Any]] = []
    items = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
    for key, value in items:
        if room[0] <= 0:
            break
        room[0] -= len(key) + 6 if isinstance(key, str) else 2
        kept.append((key, _keep_first(value, room, number)))
    left = len(items) - len(kept)
    if left:
        kept.append(("…", f"[{left:,} more, {name_message(number)}]"))
    return dict(kept) if isinstance(node, dict) else [value for _, value in kept]


def _has_long_leaf(node: Any) -> bool:
    if isinstance(node, dict):
        return any(map(_has_long_leaf, node.values()))
    if isinstance(node, list):
        return any(map(_has_long_leaf, node))
    return isinstance(node, str) and len(node) > _LONGEST_LEAF
