"""Rows and the values they stand for: the statements that several operations of a store share."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.conversation.wire import parse_json
from penstock.errors import StoreConflict, StoreError, UnknownSession
from penstock.measure.usage import Usage
from penstock.stores.encoding import (
    clean_label,
    is_storable,
    pack,
    require_identifier,
    require_moment,
    unpack,
)
from penstock.stores.values import COMPRESSION, Appended, ConversationRow, LogEntry, LogTip, SessionRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.stores.database import Row, Transaction
    from penstock.stores.values import NewMessage, NewSession

__all__ = [
    "ENTRY",
    "SESSION",
    "build_conversation",
    "build_entry",
    "build_session",
    "cut_batches",
    "find_id_at_end",
    "find_last_session",
    "find_session",
    "find_stretches",
    "follow_continuations",
    "insert_conversation",
    "insert_session",
    "make_fingerprint",
    "read_ids",
    "read_log_tip",
    "recognise_retry",
    "require_row",
    "store_messages",
    "sum_tokens",
]

SESSION = (
    "SELECT s.key, s.id, c.id, p.id, s.kind, s.started, s.ended, s.end_reason, s.model, s.title, c.dialect, s.conversation "
    "FROM sessions s JOIN conversations c ON c.key = s.conversation LEFT JOIN sessions p ON p.key = s.parent "
)
ENTRY = (
    "SELECT e.position, m.id, m.raw, m.packed, m.role, e.tokens, e.created "
    "FROM entries e JOIN messages m ON m.key = e.message WHERE e.conversation = ?"
)
_USAGE = "coalesce(sum(u.input), 0), coalesce(sum(u.output), 0), coalesce(sum(u.cache_read), 0), coalesce(sum(u.cache_write), 0), coalesce(sum(u.cache_write_1h), 0), coalesce(sum(u.reasoning), 0)"
_T = TypeVar("_T")


def find_session(do: Transaction, session_id: str, hold: str = "") -> tuple[SessionRow, int, int]:
    """The session, its key and its conversation's; `hold` keeps others from changing it meanwhile."""
    row = do.one(f"{SESSION} WHERE s.id = ? {hold}", session_id) if is_storable(session_id) else None
    if row is None:
        raise UnknownSession(f"there is no session {session_id!r} here; list those that there are")
    return build_session(row), row[0], row[11]


def build_session(row: Row) -> SessionRow:
    """The session of a row of `SESSION`."""
    return SessionRow(
        id=row[1],
        conversation=row[2],
        parent=row[3] or "",
        kind=row[4],
        started=row[5],
        ended=row[6],
        end_reason=row[7],
        model=row[8],
        title=row[9],
        dialect=row[10],
    )


def build_conversation(do: Transaction, row: Row) -> ConversationRow:
    """The conversation of a row, with its tip and what it has used."""
    key = row[0]
    tip = find_last_session(do, key)
    titled = do.one(
        "SELECT title FROM sessions WHERE conversation = ? AND title <> '' ORDER BY key DESC LIMIT 1", key
    )
    used = require_row(
        do.one(
            f"SELECT {_USAGE}, sum(u.cost), count(*), count(u.cost) FROM usage u JOIN sessions s ON s.key = u.session "
            "WHERE s.conversation = ?",
            key,
        )
    )
    return ConversationRow(
        id=row[1],
        tip=build_session(tip),
        title=titled[0] if titled else "",
        started=row[2],
        updated=row[3],
        messages=row[4],
        tokens=row[5],
        view_tokens=_view_tokens(do, key, row[6]) if row[6] else row[5],
        compactions=row[7],
        usage=Usage(*map(int, used[:6])),
        cost=used[6] if used[7] and used[7] == used[8] else None,
    )


def _view_tokens(do: Transaction, conversation: int, view: int) -> int:
    """Tokens of a compaction's result, and of what was logged after it."""
    length, receipt = require_row(do.one("SELECT length, receipt FROM compactions WHERE key = ?", view))
    try:
        after = parse_json(bytes(receipt)).get("tokens_after", 0)
    except ValueError:  # `doctor` says so; a list is shown all the same
        after = 0
    return int(after) + sum_tokens(do, conversation, length)


def sum_tokens(do: Transaction, conversation: int, start: int = 0, stop: int = 1 << 62) -> int:
    """Tokens of the messages of a log from a position on, up to another."""
    total = 0
    for part, low, high in find_stretches(do, conversation):
        row = do.one(
            "SELECT sum(tokens) FROM entries WHERE conversation = ? AND position >= ? AND position < ?",
            *(part, max(low, start), min(high, stop)),
        )
        total += int(row[0] or 0) if row is not None else 0
    return total


def follow_continuations(do: Transaction, row: SessionRow, conversation: int) -> SessionRow:
    """The session that one goes on in: each continuation started when what it continues had ended, or later."""
    sessions = [
        build_session(one)
        for one in do.rows(
            f"{SESSION} WHERE s.conversation = ? AND s.kind = ? ORDER BY s.key", conversation, COMPRESSION
        )
    ]
    for (
        session
    ) in sessions:  # in the order in which they were opened, so no continuation comes before its parent
        if session.parent == row.id and row.ended is not None and session.started >= row.ended:
            row = session
    return row


def find_last_session(do: Transaction, conversation: int) -> Row:
    """The row of the session that a conversation goes on in: a compaction always continues the last one."""
    row: Row = require_row(
        do.one(f"{SESSION} WHERE s.conversation = ? ORDER BY s.key DESC LIMIT 1", conversation)
    )
    return row


def insert_conversation(
    do: Transaction,
    session: NewSession,
    *,
    forked_from: int | None = None,
    fork_length: int = 0,
    tip: bytes = b"",
) -> int:
    """Make a conversation; its key."""
    _require_new(do, session.id)
    tokens = sum_tokens(do, forked_from, 0, fork_length) if forked_from is not None else 0
    row = do.one(
        "INSERT INTO conversations (id, dialect, created, updated, tip, length, tokens, view, forked_from, fork_length) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?) RETURNING key",
        *(require_identifier(session.id), session.dialect, require_moment(session.at), session.at),
        *(tip, fork_length, tokens, forked_from, fork_length),
    )
    return int(require_row(row)[0])


def insert_session(do: Transaction, session: NewSession, conversation: int, parent: int | None) -> int:
    """Make a session; its key."""
    _require_new(do, session.id)
    row = do.one(
        "INSERT INTO sessions (id, conversation, parent, kind, started, ended, end_reason, model, title) "
        "VALUES (?, ?, ?, ?, ?, NULL, '', ?, ?) RETURNING key",
        *(require_identifier(session.id), conversation, parent, session.kind, require_moment(session.at)),
        *(clean_label(session.model), clean_label(session.title)),
    )
    return int(require_row(row)[0])


def _require_new(do: Transaction, session_id: str) -> None:
    if do.one("SELECT 1 FROM sessions WHERE id = ?", require_identifier(session_id)) is not None:
        raise StoreError(f"there is a session {session_id!r} already: give the new one another id")


def read_log_tip(do: Transaction, conversation: int, hold: str = "") -> LogTip:
    """The end of a log; `hold` keeps it from others until the transaction ends."""
    row = require_row(do.one(f"SELECT tip, length FROM conversations WHERE key = ? {hold}", conversation))
    return LogTip(bytes(row[0]).hex(), row[1])


def find_stretches(do: Transaction, conversation: int) -> list[tuple[int, int, int]]:
    """Which conversations hold which positions of a log: its own, and those that it branched off from."""
    stretches: list[tuple[int, int, int]] = []
    high = 1 << 62
    part: int | None = conversation
    while part is not None:
        row = require_row(do.one("SELECT forked_from, fork_length FROM conversations WHERE key = ?", part))
        low = min(row[1], high)
        stretches.append((part, low, high))
        part, high = row[0], low
    return stretches[::-1]


def read_ids(do: Transaction, conversation: int, start: int = 0, stop: int = 1 << 62) -> list[str]:
    """The ids of a log's messages from a position on, up to another."""
    found: list[str] = []
    for part, low, high in find_stretches(do, conversation):
        rows = do.rows(
            "SELECT m.id FROM entries e JOIN messages m ON m.key = e.message "
            "WHERE e.conversation = ? AND e.position >= ? AND e.position < ? ORDER BY e.position",
            *(part, max(low, start), min(high, stop)),
        )
        found += (bytes(row[0]).hex() for row in rows)
    return found


def find_position(do: Transaction, conversation: int, message_id: str) -> int | None:
    """Where a message stands in a log, None where it does not."""
    for part, low, high in find_stretches(do, conversation):
        row = do.one(
            "SELECT e.position FROM messages m JOIN entries e ON e.message = m.key "
            "WHERE m.id = ? AND e.conversation = ? AND e.position >= ? AND e.position < ?",
            *(bytes.fromhex(message_id), part, low, high),
        )
        if row is not None:
            return int(row[0])
    return None


def find_id_at_end(do: Transaction, conversation: int, length: int) -> bytes:
    """The id of the last of the first `length` messages."""
    if not length:
        return b""
    for part, low, high in find_stretches(do, conversation):
        if low <= length - 1 < high:
            row = do.one(f"{ENTRY} AND e.position = ?", part, length - 1)
            if row is not None:
                return bytes(row[1])
    raise StoreError(f"the log has no {length:,} messages to branch off from")


def store_messages(do: Transaction, messages: Sequence[NewMessage], ids: Sequence[str]) -> list[int]:
    """The keys of the messages, which are stored unless they were before."""
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


def make_fingerprint(raw: bytes) -> bytes:
    """16 bytes that tell exact bytes from others."""
    return hashlib.blake2b(raw, digest_size=16).digest()


def cut_batches(values: Sequence[_T], size: int = 500) -> Iterator[Sequence[_T]]:
    """The values, as many at a time as one statement takes."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def recognise_retry(
    do: Transaction, conversation: int, tip: LogTip, ids: Sequence[str], after: str
) -> Appended:
    """What was appended, where the very same messages stand there already. Raises StoreConflict otherwise."""
    before = find_position(do, conversation, after) if after else -1
    if before is not None and read_ids(do, conversation, before + 1, before + 1 + len(ids)) == list(ids):
        return Appended(tuple(ids), tip, again=True)
    raise StoreConflict(
        f"the log goes on after another message than {after[:12] or 'its beginning'}: read what was added, then append anew"
    )


def build_entry(row: Row) -> LogEntry:
    """The message of a row of `ENTRY`."""
    return LogEntry(row[0], bytes(row[1]).hex(), unpack(row[2], row[3]), row[4], row[5], row[6])


def require_row(row: Row | None) -> Any:
    """The row, which must be there: another answer means that the store is damaged."""
    if row is None:
        raise StoreError("the store lacks a row that another one names; run penstock doctor")
    return row
