"""Deletes conversations that were not used for longer than `store.retention_days`, when a store is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._log import log
from penstock.conversation.wire import encode_wire, parse_json
from penstock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import ExpiredConversation

__all__ = ["expire", "honour_retention"]

DAY_SECONDS = 86_400.0
_HOUR_SECONDS = 3_600.0
_NOTE = "retention"


def honour_retention(store: Store, settings: Settings, now: float) -> Sequence[ExpiredConversation]:
    """Deletes expired conversations by the settings, at most once an hour; returns what was deleted.

    Does nothing if the store cannot be written to at the moment: the next process that opens it tries again.
    """
    days = settings.store.retention_days
    if days is None:
        return ()
    try:
        when = f"checked/{store.owner}" if store.owner is not None else "checked"
        checked = store.note(_NOTE, when)
        if checked is not None and 0 <= now - _time_in(checked) < _HOUR_SECONDS:
            return ()
        store.put_note(_NOTE, when, str(now).encode())
        return expire(store, now, days)
    except StoreError as error:
        log.warning("conversations older than store.retention_days stay for now: %s", error)
        return ()


def expire(store: Store, now: float, days: float) -> Sequence[ExpiredConversation]:
    """Deletes conversations that were not used for so many days, and records how many; returns what was deleted."""
    gone = store.expire(now - days * DAY_SECONDS)
    if gone:
        messages = sum(one.messages for one in gone)
        receipt = {"at": now, "days": days, "conversations": len(gone), "messages": messages}
        store.put_note(_NOTE, "last", encode_wire(receipt))
        log.info("deleted %d conversations unused for %g days, %d messages", len(gone), days, messages)
    return gone


def _time_in(note: bytes) -> float:
    found = parse_json(note)
    return float(found) if isinstance(found, (int, float)) else 0.0
