"""Exports a stored conversation as bytes: its log or its view, exactly as it came, or in another dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.opening import mend_wires
from penstock.conversation.wire import encode_wire, parse_json
from penstock.sessions.stored_view import read_view_base
from penstock.transfer.convert import convert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stores.store import Store

__all__ = ["Export", "export_conversation", "read_view_bytes", "write_document"]

ARRAY, LINES = "json", "jsonl"


class Export(msgspec.Struct, frozen=True):
    """The messages of a conversation, each as JSON."""

    dialect: str
    messages: list[bytes]
    lost: dict[str, int] = {}
    """Kinds of content that the dialect cannot say, with how often each was left out."""
    missing: int = 0
    """Messages of the log that a damaged store no longer has."""


def export_conversation(
    store: Store, session_id: str, *, view: bool = False, dialect: str | None = None
) -> Export:
    """Returns the log of the session's conversation, or its view; logged messages in their own dialect have their exact bytes.

    Raises UnknownSession, UnknownDialect.
    """
    row = store.tip(session_id)
    length = store.log_tip(row.id).length
    raws = read_view_bytes(store, row.id) if view else [entry.raw for entry in store.read_from(row.id, 0)]
    missing = 0 if view else max(0, length - len(raws))
    if dialect is None or dialect == row.dialect:
        return Export(row.dialect, raws, missing=missing)
    source, target = dialect_named(row.dialect), dialect_named(dialect)
    converted = convert(decode_all(source, [parse_json(raw) for raw in raws]), source, target)
    # A view is to be sent, and what one dialect allows another may not: that an assistant speaks first.
    wires = [one.wire for one in mend_wires(converted.wires, target)] if view else converted.wires
    return Export(target.name, [encode_wire(wire) for wire in wires], converted.lost, missing)


def read_view_bytes(store: Store, session_id: str) -> list[bytes]:
    """Returns the messages for the model: the exact bytes of kept messages, and our JSON of the others."""
    return [message.raw for message in read_view_base(store, store.tip(session_id)).view.mend()]


def write_document(messages: Sequence[bytes], form: str = ARRAY) -> bytes:
    """Returns the messages as a JSON array, or one per line."""
    if form == LINES:
        # A line end inside a message can only be blank space between its tokens.
        return b"".join(raw.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n" for raw in messages)
    return b"[" + b",\n".join(messages) + b"]\n"
