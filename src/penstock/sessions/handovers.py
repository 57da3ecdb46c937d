"""Handoffs that a client carries from one conversation into the next: how both are linked.

A client that compacts sends a shorter list from then on, which by its messages is another conversation. The old one keeps
what was handed over (`HandedOver`); the new one keeps where it comes from (`HandoverOrigin`). A handoff in plain text names
its conversation in its mark, so that it is recognised wherever the client puts it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.conversation import mark
from penstock.errors import UnknownSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stores.store import Store

__all__ = [
    "HandedOver",
    "HandoverOrigin",
    "find_origin",
    "keep_handover",
    "keep_origin",
    "read_handovers",
    "read_origin",
    "sign_handoff",
]

_ORIGIN = "compacted from"
_HANDED_OVER = "handed over"
_OF = "of"
_MOST_KEPT = 1_000
# As it stands in JSON, where quotes are escaped.
_SIGNED = re.compile(rb'<penstock-handoff v=\\"\d+\\"[^<>]{0,400}? of=\\"([0-9A-Za-z_-]{1,80}) (\d{1,9})\\"')


class HandoverOrigin(msgspec.Struct, frozen=True):
    """The conversation that another one continues: its first `length` messages are what the first `behind` stand for.

    `behind` is 0 if only the client's own name for both is known.
    """

    conversation: str
    length: int
    behind: int


class HandedOver(msgspec.Struct, frozen=True, kw_only=True):
    """The receipt of a handoff that was given to a client. `client` is empty for one that the client cannot read."""

    created: float
    client: str
    messages: int
    tokens_before: int
    tokens_after: int


_READ_ORIGIN = msgspec.json.Decoder(HandoverOrigin).decode
_READ_HANDOVERS = msgspec.json.Decoder(list[HandedOver]).decode


def sign_handoff(text: str, conversation: str, length: int) -> str:
    """Returns a handoff whose mark names the messages that it stands for."""
    found = mark.find(text)
    if found is None:
        return text
    signed = mark.wrap(
        found.text, {**found.attributes, _OF: f"{conversation} {length}"}, version=found.version
    )
    return text[: found.start] + signed + text[found.end :]


def find_origin(store: Store, messages: Sequence[bytes]) -> HandoverOrigin | None:
    """Returns the conversation of the newest signed handoff in the messages; None if it belongs to another owner."""
    for place in range(len(messages) - 1, -1, -1):
        signed = _SIGNED.findall(messages[place]) if mark.OPENING.encode() in messages[place] else []
        if not signed:
            continue
        name, length = signed[-1]
        try:
            row = store.session(name.decode())
        except UnknownSession:
            return None
        return HandoverOrigin(row.conversation, int(length), place + 1)
    return None


def keep_origin(store: Store, conversation: str, origin: HandoverOrigin) -> None:
    """Stores the origin of a conversation."""
    store.put_note(_ORIGIN, conversation, msgspec.json.encode(origin), session_id=conversation)


def read_origin(store: Store, conversation: str) -> HandoverOrigin | None:
    """Returns the origin of a conversation; None if it is not known to have one."""
    noted = store.note(_ORIGIN, conversation)
    return None if noted is None else _READ_ORIGIN(noted)


def keep_handover(store: Store, conversation: str, receipt: HandedOver) -> None:
    """Keeps the receipt of a handoff that a client was given."""
    known = read_handovers(store, conversation)[-_MOST_KEPT:]
    kept = msgspec.json.encode([*known, receipt])
    store.put_note(_HANDED_OVER, conversation, kept, session_id=conversation)


def read_handovers(store: Store, conversation: str) -> list[HandedOver]:
    """Returns the receipts of all handoffs that clients were given of a conversation, the oldest first."""
    noted = store.note(_HANDED_OVER, conversation)
    return [] if noted is None else _READ_HANDOVERS(noted)
