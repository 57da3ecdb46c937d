"""A file of conversations, whichever program wrote it: recognised by its content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.document import read_document
from penstock.errors import InputError, MalformedJSON
from penstock.transfer import claude_code, codex
from penstock.transfer.lines import read_lines
from penstock.transfer.recorded import LineFault, RecordedConversation, RecordedFile, RecordedMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.transfer.lines import JsonLine

__all__ = ["FILE", "read_recorded"]

FILE = "file"
_LIST_KEYS = ("messages", "input", "conversations")


def read_recorded(data: bytes, dialect: str = "auto") -> RecordedFile:
    """Returns the conversations of a file. Raises InputError for any other file.

    Sessions of Claude Code, rollouts of Codex, and what `read_document` reads: an array, a request body, one
    message per line; also one whole conversation per line. `dialect` names that of a document where it cannot
    be told. A session in which nothing was said yet has no conversations.
    """
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
        return RecordedFile((_read_one(data, dialect),))
    lines, faults = read_lines(data)
    if claude_code.is_claude_code(lines):
        return claude_code.read_claude_code(lines, faults)
    if codex.is_codex(lines):
        return codex.read_codex(lines, faults)
    return _read_other(data, lines, faults, dialect)


def _read_other(
    data: bytes, lines: Sequence[JsonLine], faults: Sequence[LineFault], dialect: str
) -> RecordedFile:
    whole = [line for line in lines if any(isinstance(line.value.get(key), list) for key in _LIST_KEYS)]
    if len(lines) > 1 and len(whole) == len(lines):
        return _read_many(lines, faults, dialect)
    try:
        return RecordedFile((_read_one(data, dialect),))
    except MalformedJSON:
        if len(lines) <= len(faults):  # no lines of messages, but one value over several lines
            raise
    return RecordedFile((_read_one(b"\n".join(line.raw for line in lines), dialect),), tuple(faults))


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
