"""Sessions and conversations: opened, branched off, ended, listed, followed to their tip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.identity import chain
from penstock.stores.encoding import clean_label, is_storable, require_moment
from penstock.stores.rows import (
    ENTRY,
    SESSION,
    build_conversation,
    build_entry,
    build_session,
    cut_batches,
    find_id_at_end,
    find_session,
    find_stretches,
    insert_conversation,
    insert_session,
    read_log_tip,
    recognise_retry,
    store_messages,
)
from penstock.stores.values import BRANCH, SUBAGENT, Appended, LogEntry, LogTip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stores.database import SqlSpelling, Transaction
    from penstock.stores.values import ConversationRow, NewMessage, NewSession, SessionRow

__all__ = [
    "append_messages",
    "branch_off",
    "create_conversation",
    "end_session",
    "find_longest_known",
    "list_children",
    "list_conversations",
    "read_positions",
    "read_stretch",
    "update_session",
]


def create_conversation(do: Transaction, session: NewSession) -> SessionRow:
    """A new conversation, with its first session."""
    conversation = insert_conversation(do, session)
    insert_session(do, session, conversation, None)
    return find_session(do, session.id)[0]


def branch_off(do: Transaction, session_id: str, length: int, new: NewSession, hold: str) -> SessionRow:
    """A conversation that shares the first `length` messages of another one's log."""
    _, key, source = find_session(do, session_id, hold)
    tip = find_id_at_end(do, source, length)
    conversation = insert_conversation(do, new, forked_from=source, fork_length=length, tip=tip)
    kind = new.kind if new.kind == SUBAGENT else BRANCH
    insert_session(do, msgspec.structs.replace(new, kind=kind), conversation, key)
    return find_session(do, new.id)[0]


def list_children(do: Transaction, session_id: str) -> list[SessionRow]:
    """Sessions that continue this one, branched off or work for it, oldest first."""
    _, key, _ = find_session(do, session_id)
    return [build_session(row) for row in do.rows(f"{SESSION} WHERE s.parent = ? ORDER BY s.key", key)]


def list_conversations(do: Transaction, limit: int, offset: int) -> list[ConversationRow]:
    """Conversations, the one that was used last first; sub-agents' are left out."""
    rows = do.rows(
        "SELECT c.key, c.id, c.created, c.updated, c.length, c.tokens, c.view, "
        "(SELECT count(*) FROM compactions k WHERE k.conversation = c.key AND k.undone IS NULL) "
        "FROM conversations c WHERE NOT EXISTS "
        "(SELECT 1 FROM sessions s WHERE s.conversation = c.key AND s.kind = ?) "
        "ORDER BY c.updated DESC, c.key DESC LIMIT ? OFFSET ?",
        *(SUBAGENT, limit, offset),
    )
    return [build_conversation(do, row) for row in rows]


def end_session(do: Transaction, session_id: str, reason: str, at: float, hold: str) -> None:
    """End a session; one that has ended stays as it is."""
    _, key, _ = find_session(do, session_id, hold)
    do.run(
        "UPDATE sessions SET ended = ?, end_reason = ? WHERE key = ? AND ended IS NULL",
        *(require_moment(at), clean_label(reason), key),
    )


def update_session(do: Transaction, session_id: str, title: str | None, model: str | None, hold: str) -> None:
    """Give a session another title or model."""
    _, key, _ = find_session(do, session_id, hold)
    if title is not None:
        do.run("UPDATE sessions SET title = ? WHERE key = ?", clean_label(title), key)
    if model is not None:
        do.run("UPDATE sessions SET model = ? WHERE key = ?", clean_label(model), key)


# Logs: appending to one, reading it, and finding the one that a list of messages belongs to.


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
    _, _, conversation = find_session(do, session_id, words.hold_session)
    tip = read_log_tip(do, conversation, words.for_update)
    if tip.id != after:
        return recognise_retry(do, conversation, tip, ids, after)
    keys = store_messages(do, messages, ids)
    do.run_many(
        "INSERT INTO entries (conversation, position, message, tokens, created) VALUES (?, ?, ?, ?, ?)",
        [
            (
                conversation,
                tip.length + n,
                key,
                message.tokens,
                at if message.at is None else require_moment(message.at),
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
    _, _, conversation = find_session(do, session_id)
    found: dict[int, LogEntry] = {}
    for part, low, high in find_stretches(do, conversation):
        wanted = [position for position in positions if low <= position < high]
        for some in cut_batches(wanted):
            marks = ", ".join("?" * len(some))
            rows = do.rows(f"{ENTRY} AND e.position IN ({marks})", part, *some)
            found.update((row[0], build_entry(row)) for row in rows)
    return [found[position] for position in positions if position in found]


def read_stretch(do: Transaction, session_id: str, start: int, limit: int | None) -> list[LogEntry]:
    """The messages from a position on."""
    _, _, conversation = find_session(do, session_id)
    end = read_log_tip(do, conversation).length
    if limit is not None:
        end = min(end, start + limit)
    entries: list[LogEntry] = []
    for part, low, high in find_stretches(do, conversation):
        rows = do.rows(
            f"{ENTRY} AND e.position >= ? AND e.position < ? ORDER BY e.position",
            *(part, max(low, start), min(high, end)),
        )
        entries += map(build_entry, rows)
    return entries


def find_longest_known(do: Transaction, ids: Sequence[str]) -> tuple[str, int] | None:
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
