"""A conversation as bytes: a file or a request body, and the same with other messages in it.

Four shapes are read: an array of messages; an object that holds them under `messages`, `input` or
`conversations`; an object whose `input` is one string (Responses); one message per line. Each message keeps
its exact bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation.dialects import Dialect, candidates, decode_all, dialect_named
from penstock.conversation.dialects.base import describe_value
from penstock.conversation.slicing import JsonSource, decode_utf8, slice_array, slice_object
from penstock.conversation.wire import encode_wire, parse_json
from penstock.errors import InputError, MalformedJSON, UnknownDialect

if TYPE_CHECKING:
    from penstock.conversation.message import Message

__all__ = ["Document", "DocumentShape", "holds_messages", "read_document"]

_LIST_KEYS = ("messages", "input", "conversations")
_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"


class DocumentShape(StrEnum):
    """The ways in which messages stand in the bytes."""

    ARRAY = "array"
    OBJECT = "object"
    STRING = "string"  # an object whose `input` is one string
    LINES = "lines"


class _Frame(msgspec.Struct, frozen=True):
    """The rest of the document, around the messages."""

    shape: DocumentShape
    envelope: dict[str, Any] = {}
    key: str = ""
    fields: dict[str, bytes] = {}
    ends_line: bool = True


class _Line(NamedTuple):
    """A line of the input: its number from 0, its offset in bytes, and its text without blanks around it."""

    number: int
    offset: int
    text: bytes


class Document(msgspec.Struct, frozen=True):
    """A conversation that was read from bytes.

    `raws`, `wires` and `messages` run in parallel: exact bytes, decoded object, Message whose origin is
    those bytes.
    """

    dialect: Dialect
    raws: list[bytes]
    wires: list[Any]
    messages: list[Message]
    frame: _Frame

    @property
    def shape(self) -> DocumentShape:
        """The way in which the messages stood in the bytes."""
        return self.frame.shape

    @property
    def envelope(self) -> dict[str, Any]:
        """The fields beside the messages (model, tools, system …), decoded."""
        return self.frame.envelope

    def with_messages(self, encoded: Sequence[bytes | Mapping[str, Any]]) -> bytes:
        """Returns the same document with these messages: bytes as they are, objects as compact JSON."""
        slices = [item if isinstance(item, bytes) else encode_wire(item) for item in encoded]
        if self.shape is DocumentShape.LINES:
            # A line end inside a message can only be blank space between its tokens.
            lines = b"\n".join(item.replace(b"\n", b" ") for item in slices)
            return lines + b"\n" if lines and self.frame.ends_line else lines
        array = b"[" + b",".join(slices) + b"]"
        if self.shape is DocumentShape.ARRAY:
            return array
        key, fields = self.frame.key, self.frame.fields
        if self.shape is DocumentShape.STRING and slices == self.raws:
            array = fields[key]
        written = {**fields, key: array}
        return b"{" + b",".join(encode_wire(name) + b":" + value for name, value in written.items()) + b"}"


def read_document(data: bytes, dialect: str = "auto") -> Document:
    """Returns the conversation in the bytes.

    Raises InputError with the position of what is wrong and the next step.
    """
    asked = None if dialect == "auto" else dialect_named(dialect)
    body = data.removeprefix(_BOM)
    source = JsonSource(bytes_before=len(data) - len(body))
    start = body.lstrip(_SPACE)[:1]
    if not start:
        raise InputError(
            "the input is empty: give a JSON array of messages, a request body, or one message per line"
        )
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError("the input is UTF-16: save the file as UTF-8", position="byte 0, line 1")
    try:
        if start == b"[":
            return _read_array(asked, slice_array(body, source))
        if start == b"{":
            return _read_braces(asked, body, source)
    except UnicodeDecodeError:  # found in one message: what helps is the place in the whole
        decode_utf8(body, source)
        raise
    decode_utf8(body, source)
    at = len(data) - len(body.lstrip(_SPACE))
    line = data.count(b"\n", 0, at) + 1
    what = "is JSON, but not a conversation: one" if _is_json(body) else "is not JSON: a conversation"
    raise MalformedJSON(f"the input {what} begins with [ or {{", position=f"byte {at}, line {line}")


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    return True


def _read_braces(asked: Dialect | None, body: bytes, source: JsonSource) -> Document:
    """Reads one object, or one message per line."""
    try:
        fields = slice_object(body, source)
    except MalformedJSON:
        lines = _lines(body, source.bytes_before)
        if len(lines) < 2 or not _is_object(lines[0].text):
            raise
        return _read_lines(asked, lines, _Frame(DocumentShape.LINES, ends_line=body.endswith(b"\n")))
    key = _list_key(fields)
    if key is not None:
        return _read_envelope(asked, fields, key)
    raw = body.strip(_SPACE)
    if not fields.keys() & {"role", "from", "type"}:
        seen = describe_value(fields)
        raise UnknownDialect(
            f"{seen} is neither a message nor an object with a list of messages under {', '.join(_LIST_KEYS)}: "
            "check that the file is a conversation"
        )
    return _document(asked, _Frame(DocumentShape.LINES, ends_line=body.endswith(b"\n")), [raw])


def _list_key(fields: Mapping[str, bytes]) -> str | None:
    """Returns the field with the messages. An item has a `type` of its own, and may have an `input` too."""
    for key in _LIST_KEYS:
        starts = (b"[", b'"') if key == "input" else (b"[",)
        if key in fields and fields[key][:1] in starts and not (key == "input" and "type" in fields):
            return key
    return None


def holds_messages(value: Any) -> bool:
    """Returns True for a whole conversation: an object that would be read as one if it stood alone."""
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("input"), list | str) and "type" not in value:
        return True
    return isinstance(value.get("messages"), list) or isinstance(value.get("conversations"), list)


def _read_array(asked: Dialect | None, raws: list[bytes]) -> Document:
    """Reads an array of messages.

    A row of training data often has an id. It would pass for a reference to an item of the Responses API, and all that it
    holds for one item that may not be touched.
    """
    if raws and holds_messages(_decode(raws[0], 1)):
        raise InputError(
            f"each element of the array holds a whole conversation ({len(raws)} of them): give one at a time, "
            "as a file of its own",
            position="element 1",
        )
    return _document(asked, _Frame(DocumentShape.ARRAY), raws)


def _read_envelope(asked: Dialect | None, fields: dict[str, bytes], key: str) -> Document:
    envelope = {name: _envelope_value(name, raw) for name, raw in fields.items() if name != key}
    if fields[key][:1] == b"[":
        return _document(asked, _Frame(DocumentShape.OBJECT, envelope, key, fields), slice_array(fields[key]))
    message = {"role": "user", "content": parse_json(fields[key])}
    asked = asked or dialect_named("responses")
    return _document(asked, _Frame(DocumentShape.STRING, envelope, key, fields), [encode_wire(message)])


def _envelope_value(name: str, raw: bytes) -> Any:
    try:
        return parse_json(raw)
    except ValueError as error:
        raise InputError(f"the field {name!r} cannot be read: {error}") from None


def _lines(body: bytes, skipped: int) -> list[_Line]:
    """Returns the lines that are not blank."""
    found: list[_Line] = []
    offset = skipped
    for number, line in enumerate(body.split(b"\n")):
        text = line.strip(_SPACE)
        if text:
            found.append(_Line(number, offset, text))
        offset += len(line) + 1
    return found


def _is_object(text: bytes) -> bool:
    """Returns True if the first line is a JSON object by itself: then the file was meant as one message per line."""
    try:
        return isinstance(parse_json(text), dict)
    except ValueError:
        return False


def _read_lines(asked: Dialect | None, lines: list[_Line], frame: _Frame) -> Document:
    for line in lines:
        if line.text[:1] != b"{":
            raise MalformedJSON(
                "a line must hold one JSON object, a message",
                position=f"byte {line.offset}, line {line.number + 1}",
            )
        fields = slice_object(line.text, JsonSource(lines_before=line.number, bytes_before=line.offset))
        if _list_key(fields) is not None:
            raise InputError(
                f"each line holds a whole conversation ({len(lines)} of them): give one line at a time, "
                "as a file of its own",
                position=f"line {line.number + 1}",
            )
    return _document(asked, frame, [line.text for line in lines])


def _document(asked: Dialect | None, frame: _Frame, raws: list[bytes]) -> Document:
    wires = [_decode(raw, number) for number, raw in enumerate(raws, start=1)]
    dialect = asked or _detect(wires, frame.envelope, frame.key)
    messages = decode_all(dialect, wires, raws)
    return Document(dialect, raws, wires, messages, frame)


def _decode(raw: bytes, number: int) -> Any:
    try:
        return parse_json(raw)
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise InputError(str(error), position=f"message {number}") from None


def _detect(wires: Sequence[Any], envelope: Mapping[str, Any], key: str) -> Dialect:
    """Returns the dialect that the messages fit; if several do, the fields beside the messages decide."""
    fitting = candidates(wires)
    hint = _hint(envelope, key)
    return next((dialect for dialect in fitting if dialect.name == hint), fitting[0])


def _hint(envelope: Mapping[str, Any], key: str) -> str:
    if key == "input":
        return "responses"
    tools = envelope.get("tools")
    tool = tools[0] if isinstance(tools, list) and tools and isinstance(tools[0], Mapping) else {}
    anthropic = "system" in envelope or "anthropic_version" in envelope or "input_schema" in tool
    return "anthropic" if key == "messages" and anthropic else "chat"
