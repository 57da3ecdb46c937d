"""Conversations, their sessions and their logs.

Conversations are created, branched off, listed and ended here; their logs are appended to and read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.handles import name_message
from penstock.conversation.identity import chain
from penstock.conversation.wire import parse_json
from penstock.errors import StoreConflict, StoreError
from penstock.measure.usage import Usage
from penstock.stores.encoding import clean_label, is_storable, pack, require_moment, unpack
from penstock.stores.rows import (
    ENTRY,
    SESSION,
    build_session,
    cut_batches,
    find_id_at_end,
    find_last_session,
    find_session,
    find_stretches,
    insert_conversation,
    insert_session,
    make_fingerprint,
    read_ids,
    read_log_tip,
    require_row,
    sum_tokens,
)
from penstock.stores.values import (
    BRANCH,
    COMPRESSION,
    SUBAGENT,
    AppendResult,
    ConversationRow,
    LogEntry,
    LogTip,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stores.database import Row, SqlSpelling, Transaction
    from penstock.stores.values import NewMessage, NewSession, SessionRow

__all__ = [
    "append_messages",
    "branch_off",
    "create_conversation",
    "end_session",
    "find_longest_known",
    "follow_continuations",
    "list_children",
    "list_conversations",
    "read_positions",
    "read_stretch",
    "update_session",
]

_USED = ", ".join(
    f"coalesce(sum(u.{column}), 0)"
    for column in ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
)


def create_conversation(do: Transaction, session: NewSession) -> SessionRow:
    """Creates a conversation, with its first session."""
    conversation = insert_conversation(do, session)
    insert_session(do, session, conversation, None)
    return find_session(do, session.id)[0]


def branch_off(do: Transaction, session_id: str, length: int, new: NewSession, hold: str) -> SessionRow:
    """Creates a conversation that shares the first `length` messages of another one's log."""
    _, key, source = find_session(do, session_id, hold)
    tip = find_id_at_end(do, source, length)
    conversation = insert_conversation(do, new, forked_from=source, fork_length=length, tip=tip)
    kind = new.kind if new.kind == SUBAGENT else BRANCH
    insert_session(do, msgspec.structs.replace(new, kind=kind), conversation, key)
    return find_session(do, new.id)[0]


def end_session(do: Transaction, session_id: str, reason: str, at: float, hold: str) -> None:
    """Ends a session; one that has ended stays as it is."""
    _, key, _ = find_session(do, session_id, hold)
    do.run(
        "UPDATE sessions SET ended = ?, end_reason = ? WHERE key = ? AND ended IS NULL",
        *(require_moment(at), clean_label(reason), key),
    )


def update_session(do: Transaction, session_id: str, title: str | None, model: str | None, hold: str) -> None:
    """Gives a session another title or model."""
    _, key, _ = find_session(do, session_id, hold)
    if title is not None:
        do.run("UPDATE sessions SET title = ? WHERE key = ?", clean_label(title), key)
    if model is not None:
        do.run("UPDATE sessions SET model = ? WHERE key = ?", clean_label(model), key)


def list_children(do: Transaction, session_id: str) -> list[SessionRow]:
    """Returns sessions that continue this one, branched off or work for it, oldest first."""
    _, key, _ = find_session(do, session_id)
    return [build_session(row) for row in do.rows(f"{SESSION} WHERE s.parent = ? ORDER BY s.key", key)]


def follow_continuations(do: Transaction, row: SessionRow, conversation: int) -> SessionRow:
    """Returns the session that one goes on in.

    A continuation started when the session that it continues had ended, or later.
    """
    sessions = [
        build_session(one)
        for one in do.rows(
            f"{SESSION} WHERE s.conversation = ? AND s.kind = ? ORDER BY s.key", conversation, COMPRESSION
        )
    ]
    # In the order in which they were opened, so that no continuation comes before its parent.
    for session in sessions:
        if session.parent == row.id and row.ended is not None and session.started >= row.ended:
            row = session
    return row


def list_conversations(do: Transaction, limit: int, offset: int) -> list[ConversationRow]:
    """Returns conversations, the one that was used last first; sub-agents' are left out."""
    rows = do.rows(
        "SELECT c.key, c.id, c.created, c.updated, c.length, c.tokens, c.view, "
        "(SELECT count(*) FROM compactions k WHERE k.conversation = c.key AND k.undone IS NULL) "
        "FROM conversations c WHERE "
        "(SELECT count(*) FROM sessions s WHERE s.conversation = c.key AND s.kind = ?) = 0 "
        "ORDER BY c.updated DESC, c.key DESC LIMIT ? OFFSET ?",
        *(SUBAGENT, limit, offset),
    )
    return [_build_conversation(do, row) for row in rows]


def _build_conversation(do: Transaction, row: Row) -> ConversationRow:
    """Returns the conversation of a row, with its tip and what it has used."""
    key = row[0]
    tip = find_last_session(do, key)
    used, cost = _sum_usage(do, key)
    titled = do.one(
        "SELECT title FROM sessions WHERE conversation = ? AND title <> '' ORDER BY key DESC LIMIT 1", key
    )
    return ConversationRow(
        id=row[1],
        tip=build_session(tip),
        title=titled[0] if titled else "",
        started=row[2],
        updated=row[3],
        messages=row[4],
        tokens=row[5],
        view_tokens=_sum_view_tokens(do, key, row[6]) if row[6] else row[5],
        compactions=row[7],
        usage=used,
        cost=cost,
    )


def _sum_usage(do: Transaction, conversation: int) -> tuple[Usage, float | None]:
    """Returns what a conversation has used, and its cost where that of every request is known."""
    used, cost, requests, priced = Usage(), 0.0, 0, 0
    sessions = do.rows("SELECT key FROM sessions WHERE conversation = ?", conversation)
    for some in cut_batches([row[0] for row in sessions]):
        row = require_row(
            do.one(
                f"SELECT {_USED}, coalesce(sum(u.cost), 0), count(*), count(u.cost) FROM usage u "
                f"WHERE u.session IN ({', '.join('?' * len(some))})",
                *some,
            )
        )
        used += Usage(*map(int, row[:6]))
        cost, requests, priced = cost + row[6], requests + row[7], priced + row[8]
    return used, cost if requests and requests == priced else None


def _sum_view_tokens(do: Transaction, conversation: int, view: int) -> int:
    """Returns tokens of a compaction's result, and of what was logged after it."""
    length, receipt = require_row(do.one("SELECT length, receipt FROM compactions WHERE key = ?", view))
    try:
        after = parse_json(bytes(receipt)).get("tokens_after", 0)
    except (ValueError, AttributeError):  # `doctor` says so; a list is shown all the same
        after = 0
    return int(after) + sum_tokens(do, conversation, length)


def append_messages(
    do: Transaction,
    session_id: str,
    messages: Sequence[NewMessage],
    after: str,
    at: float,
    words: SqlSpelling,
) -> AppendResult:
    """Appends to the log whose last message has the id `after`."""
    ids: list[str] = []
    for message in messages:
        ids.append(chain(ids[-1] if ids else after, message.digest))
    _, _, conversation = find_session(do, session_id, words.hold_session)
    tip = read_log_tip(do, conversation, words.for_update)
    if tip.id != after:
        return _recognise_retry(do, conversation, tip, ids, after)
    keys = _store_messages(do, messages, ids)
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
    return AppendResult(tuple(ids), new)


def _store_messages(do: Transaction, messages: Sequence[NewMessage], ids: Sequence[str]) -> list[int]:
    """Returns the keys of the messages, which are stored unless they were before."""
    rows: list[Row] = []
    for message, message_id in zip(messages, ids, strict=True):
        raw, packed = pack(message.raw)
        rows.append(
            (
                bytes.fromhex(message_id),
                make_fingerprint(message.raw),
                message.digest,
                message.role,
                raw,
                packed,
            )
        )
    do.run_many(
        "INSERT INTO messages (id, fingerprint, digest, role, raw, packed) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (id, fingerprint) DO NOTHING",
        rows,
    )
    keys: dict[tuple[bytes, bytes], int] = {}
    for some in cut_batches([row[0] for row in rows]):
        marks = ", ".join("?" * len(some))
        found = do.rows(f"SELECT id, fingerprint, key FROM messages WHERE id IN ({marks})", *some)
        keys.update(((bytes(row[0]), bytes(row[1])), row[2]) for row in found)
    return [keys[row[0], row[1]] for row in rows]


def _recognise_retry(
    do: Transaction, conversation: int, tip: LogTip, ids: Sequence[str], after: str
) -> AppendResult:
    """Returns what was appended, where the very same messages stand there already.

    Raises StoreConflict otherwise.
    """
    before = _find_position(do, conversation, after) if after else -1
    if before is not None and read_ids(do, conversation, before + 1, before + 1 + len(ids)) == list(ids):
        return AppendResult(tuple(ids), tip, again=True)
    raise StoreConflict(
        f"the log no longer ends with {after[:12] or 'nothing'}; read what was added, then append again"
    )


def _find_position(do: Transaction, conversation: int, message_id: str) -> int | None:
    """Returns where a message stands in a log, None where it does not."""
    for part, low, high in find_stretches(do, conversation):
        row = do.one(
            "SELECT e.position FROM messages m JOIN entries e ON e.message = m.key "
            "WHERE m.id = ? AND e.conversation = ? AND e.position >= ? AND e.position < ?",
            *(bytes.fromhex(message_id), part, low, high),
        )
        if row is not None:
            return int(row[0])
    return None


def _tie_results(
    do: Transaction, conversation: int, keys: Sequence[int], messages: Sequence[NewMessage]
) -> None:
    """Ties stored results of the conversation to the messages that stand in their place.

    A result stays as long as its message does.
    """
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
    """Returns the messages at these positions, in their order; positions that are not there are left out."""
    _, _, conversation = find_session(do, session_id)
    found: dict[int, LogEntry] = {}
    for part, low, high in find_stretches(do, conversation):
        wanted = [position for position in positions if low <= position < high]
        for some in cut_batches(wanted):
            marks = ", ".join("?" * len(some))
            rows = do.rows(f"{ENTRY} AND e.position IN ({marks})", part, *some)
            found.update((row[0], _build_entry(row)) for row in rows)
    return [found[position] for position in positions if position in found]


def read_stretch(do: Transaction, session_id: str, start: int, limit: int | None) -> list[LogEntry]:
    """Returns the messages from a position on."""
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
        entries += map(_build_entry, rows)
    return entries


def _build_entry(row: Row) -> LogEntry:
    """Returns the message of a row of `ENTRY`. Raises StoreError where its bytes are not those that were logged."""
    raw = unpack(row[2], row[3])
    if make_fingerprint(raw) != bytes(row[7]):
        raise StoreError(
            f"{name_message(row[0] + 1)} is damaged on disk; `penstock doctor` shows what else is, then restore a copy"
        )
    return LogEntry(row[0], bytes(row[1]).hex(), raw, row[4], row[5], row[6])


def find_longest_known(do: Transaction, ids: Sequence[str]) -> tuple[str, int] | None:
    """Returns the session whose log begins with the most of these ids, and how many; of several, the newest log's last."""
    low, high = 0, len(ids)
    while low < high:  # ids are chained: who knows one knows all before it
        middle = (low + high + 1) // 2
        known = do.one("SELECT 1 FROM messages WHERE id = ?", bytes.fromhex(ids[middle - 1]))
        low, high = (middle, high) if known else (low, middle - 1)
    for length in range(low, 0, -1):
        holders = []
        for (message,) in do.rows("SELECT key FROM messages WHERE id = ?", bytes.fromhex(ids[length - 1])):
            # One step at a time: the planner of a database that has not counted its rows may begin at the wrong end.
            holders += do.rows(
                "SELECT conversation FROM entries WHERE message = ? ORDER BY conversation DESC LIMIT 1",
                message,
            )
        if holders:
            return find_last_session(do, max(holders)[0])[1], length
    return None
