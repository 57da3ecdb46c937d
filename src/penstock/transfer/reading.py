"""A file of conversations, whichever program wrote it: recognised by its content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.document import holds_messages, read_document
from penstock.conversation.slicing import slice_array
from penstock.conversation.wire import parse_json
from penstock.errors import InputError, MalformedJSON
from penstock.transfer import claude_code, codex
from penstock.transfer.lines import read_lines
from penstock.transfer.recorded import LineFault, RecordedConversation, RecordedFile, RecordedMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.transfer.lines import JsonLine

__all__ = ["FILE", "read_recorded"]

FILE = "file"
_BOM = b"\xef\xbb\xbf"


def read_recorded(data: bytes, dialect: str = "auto") -> RecordedFile:
    """Returns the conversations of a file. Raises InputError for any other file.

    Sessions of Claude Code, rollouts of Codex, and what `read_document` reads: an array, a request body, one
    message per line; also one whole conversation per line, or an array of them. `dialect` names that of a document where it cannot
    be told. A session in which nothing was said yet has no conversations.
    """
    if data.lstrip(_BOM + b" \t\r\n")[:1] == b"[":
        return _read_array(data, dialect)
    lines, faults = read_lines(data)
    if claude_code.is_claude_code(lines):
        return claude_code.read_claude_code(lines, faults)
    if codex.is_codex(lines):
        return codex.read_codex(lines, faults)
    return _read_other(data, lines, faults, dialect)


def _read_other(
    data: bytes, lines: Sequence[JsonLine], faults: Sequence[LineFault], dialect: str
) -> RecordedFile:
    if len(lines) > 1 and all(holds_messages(line.value) for line in lines):
        return _read_many(lines, faults, dialect)
    try:
        return RecordedFile((_read_one(data, dialect),))
    except MalformedJSON:
        if len(lines) <= len(faults):  # no lines of messages, but one value over several lines
            raise
    return RecordedFile((_read_one(b"\n".join(line.raw for line in lines), dialect),), tuple(faults))


def _read_array(data: bytes, dialect: str) -> RecordedFile:
    """Reads an array of messages; or of whole conversations, as training data has them too."""
    rows = _slice_rows(data)
    if not rows:
        return RecordedFile((_read_one(data, dialect),))
    found: list[RecordedConversation] = []
    broken: list[LineFault] = []
    line = end = 0
    for number, row in enumerate(rows, start=1):
        start = data.index(row, end)
        line += data.count(b"\n", end, start)
        try:
            found.append(_read_one(row, dialect))
        except InputError as error:
            broken.append(LineFault(line + 1, f"element {number} of the array: {error}"))
        end = start + len(row)
        line += row.count(b"\n")
    return RecordedFile(tuple(found), tuple(broken))


def _slice_rows(data: bytes) -> list[bytes]:
    """Returns the conversations of an array; none if it holds none, or is broken: reading it as one tells that best."""
    try:
        rows = slice_array(data.removeprefix(_BOM))
        return rows if rows and holds_messages(parse_json(rows[0])) else []
    except (InputError, ValueError):
        return []


def _read_many(lines: Sequence[JsonLine], faults: Sequence[LineFault], dialect: str) -> RecordedFile:
    """Reads one conversation per line, as training data has it."""
    found: list[RecordedConversation] = []
    broken = list(faults)
    for line in lines:
        try:
            found.append(_read_one(line.raw, dialect))
        except InputError as error:
            broken.append(LineFault(line.number, str(error)))
    return RecordedFile(tuple(found), tuple(sorted(broken, key=lambda fault: fault.line)))


def _read_one(data: bytes, dialect: str) -> RecordedConversation:
    document = read_document(data, dialect)
    if not document.raws:
        raise InputError("the conversation has no messages")
    model = document.envelope.get("model")
    beside = {
        f"the field {name!r} beside the messages": 1
        for name in ("system", "instructions", "tools")
        if document.envelope.get(name)
    }
    return RecordedConversation(
        format=FILE,
        dialect=document.dialect.name,
        messages=tuple(RecordedMessage(raw) for raw in document.raws),
        model=model if isinstance(model, str) else "",
        left_out=beside,
    )
