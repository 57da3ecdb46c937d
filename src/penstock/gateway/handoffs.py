"""Writes and opens the handoffs that clients carry: in a worker, with the store at hand.

A client that compacts by a provider's protocol keeps nothing but that one text, so it takes the whole budget. It is
written from the messages themselves, also those that an earlier handoff stands for, where the store has them. So does one
that compacts by a call of its own, and keeps the text: that is signed in its mark, and not sealed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.conversation.message import Text, ToolCall, ToolResult
from penstock.conversation.wire import json_text, parse_json
from penstock.errors import UnknownSession
from penstock.gateway.compactor import HandoffOrder
from penstock.gateway.orders import Unsealed, WrittenHandoff
from penstock.gateway.sealing import READ_SEALED, Sealed, digest_token, name_conversation, open_seal, seal
from penstock.sessions.handovers import (
    HandedOver,
    HandoverOrigin,
    keep_handover,
    keep_origin,
    read_origin,
    sign_handoff,
)
from penstock.writing.stubs import arguments_of

if TYPE_CHECKING:
    from penstock.conversation.message import Part
    from penstock.gateway.attending import Attended
    from penstock.gateway.orders import Unseal, Write
    from penstock.gateway.sealing import SealKeys
    from penstock.stores.store import Store

__all__ = ["AskedHandoff", "ask_for_handoff", "hand_over", "read_originals", "unseal"]

_KEPT = "sealed"  # the notes with the handoffs that clients carry, by conversation and digest
_MOST_BYTES = 4_000_000  # of earlier messages that are read once more; beyond, their handoff stands for them
_NOTHING = "Nothing was said or done before this."
_TELLING_CHARS = 60  # of a text by which it is found in a client's own account


class AskedHandoff(NamedTuple):
    """A handoff that is to be written, and the number of messages that it stands for."""

    order: HandoffOrder
    length: int


def ask_for_handoff(found: Attended, order: Write) -> AskedHandoff:
    """Returns what is to be written for an order. Reads the log."""
    session = found.session
    store, name = session.store, found.id
    if order.follows is not None and order.follows.conversation and found.mode == "full":
        origin = HandoverOrigin(order.follows.conversation, order.follows.length, order.behind)
        keep_origin(store, name, origin)
    length = _find_length(found, order)
    messages = read_originals(store, name, length, _MOST_BYTES)
    if messages is None:
        messages = [entry.raw for entry in store.read_from(session.id, 0, length)]
    asked = HandoffOrder(
        messages=tuple(messages),
        dialect=session.row.dialect,
        tokens=order.target_tokens or found.find_handoff_size(),
        settings=session.settings,
        model=session.row.model or None,
        focus=order.focus,
    )
    return AskedHandoff(asked, length)


def hand_over(found: Attended, order: Write, length: int, written: str, keys: SealKeys) -> WrittenHandoff:
    """Returns a handoff of so many messages as its client gets it: sealed for its owner, or signed for the client that keeps it.

    Raises PenstockError.
    """
    session = found.session
    store, name, kept = session.store, found.id, found.mode == "full"
    text, token = written or _NOTHING, ""
    if not order.client:
        sealed = Sealed(text=text, conversation=name if kept else "", length=length if kept else 0)
        token = seal(keys.current(), found.owner, sealed)
        if kept:
            key = f"{name}/{digest_token(token)}"
            store.put_note(_KEPT, key, msgspec.msgpack.encode(sealed), session_id=name)
    elif kept:
        text = sign_handoff(text, name, length)
    tokens, before = session.workings.notebook.tokenizer.count(text), found.context.tokens()
    if kept:
        receipt = HandedOver(
            created=time.time(),
            client=order.client,
            messages=length,
            tokens_before=before,
            tokens_after=tokens,
        )
        keep_handover(store, name, receipt)
    return WrittenHandoff(text=text, token=token, tokens=tokens, tokens_before=before)


def _find_length(found: Attended, order: Write) -> int:
    """Returns how many messages the handoff stands for."""
    session = found.session
    length = min(order.length or len(session), len(session))
    if not order.transcript:
        return length
    dialect = found.dialect
    for entry in reversed(session.store.read_from(session.id, 0, length)):
        message = dialect.decode(parse_json(entry.raw))
        if any(_is_told(part, order.transcript) for part in message.parts):
            return entry.position + 1
    return length


def _is_told(part: Part, transcript: str) -> bool:
    """Returns True where a client's account has this part of a message. It cuts results short, and leaves out ids."""
    if isinstance(part, ToolCall):
        words = [str(value) for value in arguments_of(part).values() if isinstance(value, str)]
        return bool(words) and all(json_text(word)[1:-1][:_TELLING_CHARS] in transcript for word in words)
    text = part.text.strip()[:_TELLING_CHARS] if isinstance(part, Text | ToolResult) else ""
    return bool(text) and text in transcript


def read_originals(store: Store, conversation: str, length: int, room: int) -> list[bytes] | None:
    """Returns the messages of a conversation with those that it goes on from; None where they are too many, or gone."""
    parts: list[list[bytes]] = []
    seen: set[str] = set()
    while conversation and conversation not in seen:
        seen.add(conversation)
        try:
            entries = store.read_from(store.tip(conversation).id, 0, length)
        except UnknownSession:  # deleted since, or of another owner
            return None
        origin = read_origin(store, conversation)
        raws = [entry.raw for entry in entries[origin.behind if origin else 0 :]]
        room -= sum(map(len, raws))
        if room < 0:
            return None
        parts.append(raws)
        conversation, length = (origin.conversation, origin.length) if origin and origin.behind else ("", 0)
    return [raw for part in reversed(parts) for raw in part]


def unseal(store: Store, keys: SealKeys, order: Unseal) -> Unsealed:
    """Opens tokens for their owner. One whose key is gone is looked up by its digest among what is kept."""
    own = store.for_owner(order.owner)
    return Unsealed(
        tuple(open_seal(token, order.owner, keys.find) or _look_up(own, token) for token in order.tokens)
    )


def _look_up(store: Store, token: str) -> Sealed | None:
    conversation = name_conversation(token)
    if not conversation:
        return None
    try:
        store.session(conversation)  # of this owner, and not deleted
    except UnknownSession:
        return None
    kept = store.note(_KEPT, f"{conversation}/{digest_token(token)}")
    return None if kept is None else READ_SEALED(kept)
