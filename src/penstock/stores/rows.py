"""Rows and their values: the statements that several operations of a store share."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import StoreConflict, StoreError, UnknownSession
from penstock.stores.encoding import (
    clean_label,
    is_storable,
    require_identifier,
    require_moment,
)
from penstock.stores.values import LogTip, SessionRow, Standing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.stores.database import PendingRows, Row, Transaction
    from penstock.stores.values import NewSession

__all__ = [
    "ENTRY",
    "SESSION",
    "build_session",
    "build_standing",
    "build_tip",
    "cut_batches",
    "defer_conversation",
    "defer_session",
    "find_conversation_key",
    "find_id_at_end",
    "find_last_session",
    "find_log",
    "find_session",
    "find_stretches",
    "insert_conversation",
    "insert_session",
    "limit_to_owner",
    "make_fingerprint",
    "read_conversation",
    "read_ids",
    "read_log_tip",
    "read_session",
    "require_row",
    "select_conversation",
    "sum_tokens",
]

SESSION = (
    "SELECT s.key, s.id, c.id, p.id, s.kind, s.started, s.ended, s.end_reason, s.model, s.title, c.dialect, s.conversation, "
    "s.owner "
    "FROM sessions s JOIN conversations c ON c.key = s.conversation LEFT JOIN sessions p ON p.key = s.parent "
)
ENTRY = (
    "SELECT e.position, m.id, m.raw, m.packed, m.role, e.tokens, e.created, m.fingerprint "
    "FROM entries e JOIN messages m ON m.key = e.message WHERE e.conversation = ?"
)
_T = TypeVar("_T")


def find_session(do: Transaction, session_id: str, hold: str = "") -> tuple[SessionRow, int, int]:
    """Returns the session, its key and its conversation's; `hold` keeps others from changing it meanwhile.

    Raises UnknownSession, also for a session of another owner.
    """
    return read_session(do, session_id, defer_session(do, session_id, hold))


def defer_session(do: Transaction, session_id: str, hold: str = "") -> PendingRows:
    """Has a session found, and held, together with the statements that follow; `read_session` reads it."""
    return do.defer(f"{SESSION} WHERE s.id = ? {hold}", _spell_id(session_id))


def read_session(do: Transaction, session_id: str, found: PendingRows) -> tuple[SessionRow, int, int]:
    """Returns what `find_session` returns. Raises UnknownSession as it does."""
    row = found.one()
    if row is None or do.owner not in (None, row[12]):
        raise _unknown_session(session_id)
    return build_session(row), row[0], row[11]


def find_conversation_key(do: Transaction, session_id: str, hold: str = "") -> tuple[int, str]:
    """Returns the key of the session's conversation and its owner, as `find_session` does and at a fraction of its cost."""
    return read_conversation(do, session_id, defer_conversation(do, session_id, hold))


def defer_conversation(do: Transaction, session_id: str, hold: str = "") -> PendingRows:
    """Has a session's conversation found, together with the statements that follow; `read_conversation` reads it."""
    return do.defer(
        f"SELECT s.conversation, s.owner FROM sessions s WHERE s.id = ? {hold}", _spell_id(session_id)
    )


def read_conversation(do: Transaction, session_id: str, found: PendingRows) -> tuple[int, str]:
    """Returns what `find_conversation_key` returns. Raises UnknownSession as it does."""
    row = found.one()
    if row is None or do.owner not in (None, row[1]):
        raise _unknown_session(session_id)
    return row[0], row[1]


def _spell_id(session_id: str) -> str:
    """Returns the id; an empty one, which no session has, for an id that no database would take."""
    return session_id if is_storable(session_id) else ""


def _unknown_session(session_id: str) -> UnknownSession:
    return UnknownSession(f"unknown session {session_id!r}; list the sessions of this store to see their ids")


def select_conversation(do: Transaction, session_id: str) -> tuple[str, tuple[str, ...]]:
    """Returns a subquery for the key of a session's conversation, and its values: for statements that do not wait for it.

    It finds nothing for a session that does not exist or belongs to another owner.
    """
    owned, owner = limit_to_owner(do, "s.owner")
    return f"(SELECT s.conversation FROM sessions s WHERE {owned}s.id = ?)", (*owner, _spell_id(session_id))


def limit_to_owner(do: Transaction, column: str) -> tuple[str, tuple[str, ...]]:
    """Returns a condition, ending in AND, that only rows of the asking owner meet, and its value.

    Both are empty if the rows of all owners may be seen.
    """
    return ("", ()) if do.owner is None else (f"{column} = ? AND ", (do.owner,))


def build_session(row: Row) -> SessionRow:
    """Returns the session of a row of `SESSION`."""
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
        owner=row[12],
    )


def find_last_session(do: Transaction, conversation: int) -> Row:
    """Returns the row of the session in which a conversation continues.

    A compaction always continues the last one.
    """
    row: Row = require_row(
        do.one(f"{SESSION} WHERE s.conversation = ? ORDER BY s.key DESC LIMIT 1", conversation)
    )
    return row


def insert_conversation(
    do: Transaction,
    session: NewSession,
    owner: str,
    *,
    forked_from: int | None = None,
    fork_length: int = 0,
    tip: bytes = b"",
) -> int:
    """Inserts a conversation, and returns its key."""
    _require_new(do, session.id)
    tokens = sum_tokens(do, forked_from, 0, fork_length) if forked_from is not None else 0
    row = do.one(
        "INSERT INTO conversations (id, owner, dialect, created, updated, tip, length, tokens, view, forked_from, fork_length) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?) RETURNING key",
        *(require_identifier(session.id), owner, session.dialect, require_moment(session.at), session.at),
        *(tip, fork_length, tokens, forked_from, fork_length),
    )
    return int(require_row(row)[0])


def insert_session(
    do: Transaction, session: NewSession, owner: str, conversation: int, parent: int | None
) -> int:
    """Inserts a session, and returns its key."""
    _require_new(do, session.id)
    row = do.one(
        "INSERT INTO sessions (id, owner, conversation, parent, kind, started, ended, end_reason, model, title) "
        "VALUES (?, ?, ?, ?, ?, ?, NULL, '', ?, ?) RETURNING key",
        *(
            require_identifier(session.id),
            owner,
            conversation,
            parent,
            session.kind,
            require_moment(session.at),
        ),
        *(clean_label(session.model), clean_label(session.title)),
    )
    return int(require_row(row)[0])


def _require_new(do: Transaction, session_id: str) -> None:
    if do.one("SELECT 1 FROM sessions WHERE id = ?", require_identifier(session_id)) is not None:
        raise StoreConflict(f"session {session_id!r} exists already; give the new one another id")


def read_log_tip(do: Transaction, conversation: int, hold: str = "") -> LogTip:
    """Returns the end of a log; `hold` keeps it from others until the transaction ends."""
    return build_tip(do.one(f"SELECT tip, length FROM conversations WHERE key = ? {hold}", conversation))


def build_tip(row: Row | None) -> LogTip:
    """Returns the end of a log, of a row that begins with tip and length."""
    found = require_row(row)
    return LogTip(bytes(found[0]).hex(), found[1])


def build_standing(row: Row | None) -> Standing:
    """Returns the end of a log and the compaction in force, of a row that begins with tip, length and view."""
    return Standing(build_tip(row), require_row(row)[2])


def find_log(do: Transaction, session_id: str) -> tuple[LogTip, list[tuple[int, int, int]]]:
    """Returns the end of a session's log, and its stretches as `find_stretches` does: in one round trip, except for branches.

    Raises UnknownSession.
    """
    subquery, named = select_conversation(do, session_id)
    found = defer_conversation(do, session_id)
    end = do.defer(
        f"SELECT tip, length, forked_from, fork_length FROM conversations WHERE key = {subquery}", *named
    )
    conversation, _ = read_conversation(do, session_id, found)
    row = require_row(end.one())
    return build_tip(row), _follow_forks(do, conversation, row[2:])


def find_stretches(do: Transaction, conversation: int) -> list[tuple[int, int, int]]:
    """Returns which conversations hold which positions of a log, as (conversation, first, end).

    They are the log's own, and those that it branched off from.
    """
    return _follow_forks(do, conversation, _find_fork(do, conversation))


def _follow_forks(do: Transaction, conversation: int, fork: Row) -> list[tuple[int, int, int]]:
    stretches: list[tuple[int, int, int]] = []
    high = 1 << 62
    while True:
        source, length = fork
        low = min(length, high)
        stretches.append((conversation, low, high))
        if source is None:
            return stretches[::-1]
        conversation, high, fork = source, low, _find_fork(do, source)


def _find_fork(do: Transaction, conversation: int) -> Row:
    row: Row = require_row(
        do.one("SELECT forked_from, fork_length FROM conversations WHERE key = ?", conversation)
    )
    return row


def read_ids(do: Transaction, conversation: int, start: int = 0, stop: int = 1 << 62) -> list[str]:
    """Returns the ids of a log's messages from a position on, up to another."""
    found: list[str] = []
    for part, low, high in find_stretches(do, conversation):
        rows = do.rows(
            "SELECT m.id FROM entries e JOIN messages m ON m.key = e.message "
            "WHERE e.conversation = ? AND e.position >= ? AND e.position < ? ORDER BY e.position",
            *(part, max(low, start), min(high, stop)),
        )
        found += (bytes(row[0]).hex() for row in rows)
    return found


def find_id_at_end(do: Transaction, conversation: int, length: int) -> bytes:
    """Returns the id of the last of the first `length` messages."""
    if not length:
        return b""
    for part, low, high in find_stretches(do, conversation):
        if low <= length - 1 < high:
            row = do.one(f"{ENTRY} AND e.position = ?", part, length - 1)
            if row is not None:
                return bytes(row[1])
    raise StoreError(f"the log has fewer than {length:,} messages; branch off from an earlier one")


def sum_tokens(do: Transaction, conversation: int, start: int = 0, stop: int = 1 << 62) -> int:
    """Returns tokens of the messages of a log from a position on, up to another."""
    total = 0
    for part, low, high in find_stretches(do, conversation):
        row = do.one(
            "SELECT sum(tokens) FROM entries WHERE conversation = ? AND position >= ? AND position < ?",
            *(part, max(low, start), min(high, stop)),
        )
        total += int(row[0] or 0) if row is not None else 0
    return total


def make_fingerprint(raw: bytes) -> bytes:
    """Returns 16 bytes that distinguish these exact bytes from others."""
    return hashlib.blake2b(raw, digest_size=16).digest()


def cut_batches(values: Sequence[_T], size: int = 500) -> Iterator[Sequence[_T]]:
    """Returns the values, as many at a time as one statement takes."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def require_row(row: Row | None) -> Any:
    """Returns the row. It must exist: otherwise the store is damaged."""
    if row is None:
        raise StoreError("the store lacks a row that another one refers to; run `penstock doctor`")
    return row
