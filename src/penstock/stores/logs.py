"""Logs: appending to one, reading it, and finding the one that a list of messages belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.identity import chain
from penstock.stores.encoding import is_storable, moment
from penstock.stores.rows import (
    ENTRY,
    appended_before,
    as_entry,
    batches,
    log_tip_of,
    session_of,
    store_messages,
    stretches,
)
from penstock.stores.values import Appended, LogEntry, LogTip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stores.database import SqlSpelling, Transaction
    from penstock.stores.values import NewMessage

__all__ = ["append_messages", "longest_known", "read_positions", "read_stretch"]


def append_messages(
    do: Transaction,
    session_id: str,
    messages: Sequence[NewMessage],
    after: str,
    at: float,
    words: SqlSpelling,
) -> Appended:
    """Append to the log whose last message has the id `after`."""
    ids: list[str] = []
    for message in messages:
        ids.append(chain(ids[-1] if ids else after, message.digest))
    _, _, conversation = session_of(do, session_id, words.hold_session)
    tip = log_tip_of(do, conversation, words.for_update)
    if tip.id != after:
        return appended_before(do, conversation, tip, ids, after)
    keys = store_messages(do, messages, ids)
    do.run_many(
        "INSERT INTO entries (conversation, position, message, tokens, created) VALUES (?, ?, ?, ?, ?)",
        [
            (
                conversation,
                tip.length + n,
                key,
                message.tokens,
                at if message.at is None else moment(message.at),
            )
            for n, (key, message) in enumerate(zip(keys, messages, strict=True))
        ],
    )
    _tie_results(do, conversation, keys, messages)
    new = LogTip(ids[-1] if ids else after, tip.length + len(ids))
    do.run(
        "UPDATE conversations SET tip = ?, length = ?, tokens = tokens + ?, updated = ? WHERE key = ?",
        *(bytes.fromhex(new.id), new.length, sum(message.tokens for message in messages), at, conversation),
    )
    return Appended(tuple(ids), new)


def _tie_results(
    do: Transaction, conversation: int, keys: Sequence[int], messages: Sequence[NewMessage]
) -> None:
    """Have stored results of the conversation stay as long as the messages that stand in their place."""
    do.run_many(
        "UPDATE results SET message = ? WHERE id = ? AND message IS NULL "
        "AND session IN (SELECT key FROM sessions WHERE conversation = ?)",
        [
            (key, result, conversation)
            for key, message in zip(keys, messages, strict=True)
            for result in message.results
            if is_storable(result)
        ],
    )


def read_positions(do: Transaction, session_id: str, positions: Sequence[int]) -> list[LogEntry]:
    """The messages at these positions, in their order; positions that are not there are left out."""
    _, _, conversation = session_of(do, session_id)
    found: dict[int, LogEntry] = {}
    for part, low, high in stretches(do, conversation):
        wanted = [position for position in positions if low <= position < high]
        for some in batches(wanted):
            marks = ", ".join("?" * len(some))
            rows = do.rows(f"{ENTRY} AND e.position IN ({marks})", part, *some)
            found.update((row[0], as_entry(row)) for row in rows)
    return [found[position] for position in positions if position in found]


def read_stretch(do: Transaction, session_id: str, start: int, limit: int | None) -> list[LogEntry]:
    """The messages from a position on."""
    _, _, conversation = session_of(do, session_id)
    end = log_tip_of(do, conversation).length
    if limit is not None:
        end = min(end, start + limit)
    entries: list[LogEntry] = []
    for part, low, high in stretches(do, conversation):
        rows = do.rows(
            f"{ENTRY} AND e.position >= ? AND e.position < ? ORDER BY e.position",
            *(part, max(low, start), min(high, end)),
        )
        entries += map(as_entry, rows)
    return entries


def longest_known(do: Transaction, ids: Sequence[str]) -> tuple[str, int] | None:
    """The session whose log begins with the most of these ids, and how many."""
    low, high = 0, len(ids)
    while low < high:  # ids are chained: who knows one knows all before it
        middle = (low + high + 1) // 2
        known = do.one("SELECT 1 FROM messages WHERE id = ?", bytes.fromhex(ids[middle - 1]))
        low, high = (middle, high) if known else (low, middle - 1)
    for length in range(low, 0, -1):
        row = do.one(
            "SELECT s.id FROM messages m JOIN entries e ON e.message = m.key "
            "JOIN sessions s ON s.conversation = e.conversation WHERE m.id = ? ORDER BY s.key DESC LIMIT 1",
            bytes.fromhex(ids[length - 1]),
        )
        if row is not None:
            return row[0], length
    return None
