"""Rows beside messages: large tool results, the usage of requests, notes."""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from penstock.errors import UnknownSession
from penstock.measure.usage import Usage
from penstock.stores.encoding import (
    clean_label,
    is_storable,
    pack,
    reading_kept,
    require_identifier,
    require_moment,
    require_price,
    unpack,
)
from penstock.stores.rows import (
    cut_batches,
    defer_conversation,
    find_conversation_key,
    find_session,
    find_stretches,
    limit_to_owner,
    read_conversation,
    require_row,
)
from penstock.stores.values import StoredResult, UsageRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.stores.database import Row, SqlSpelling, Transaction

__all__ = [
    "book_usage",
    "change_note",
    "find_last_request",
    "find_note",
    "find_result",
    "keep_note",
    "keep_result",
    "list_moments",
    "list_usage",
    "list_users",
]

_USAGE = (
    "SELECT u.at, u.key, (SELECT s.id FROM sessions s WHERE s.key = u.session), u.model, u.task, u.input, u.output, "
    "u.cache_read, u.cache_write, u.cache_write_1h, u.reasoning, u.cost FROM usage u"
)
_FIRST_PAGE, _LONGEST_PAGE = 16, 4_096  # rows


def keep_result(do: Transaction, result: StoredResult, hold: str) -> None:
    """Keeps a tool result; the same id again changes nothing."""
    raw, packed = pack(result.text.encode("utf-8", "surrogatepass"))
    _, session, _ = find_session(do, result.session, hold)
    do.run(
        "INSERT INTO results (id, session, tool, raw, packed, created) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO NOTHING",
        require_identifier(result.id),
        session,
        clean_label(result.tool),
        raw,
        packed,
        require_moment(result.created),
    )


def find_result(do: Transaction, result_id: str, session_id: str | None) -> StoredResult | None:
    """Returns a tool result, or None; with a session, only one that belongs to its log."""
    if not is_storable(result_id):
        return None
    row = do.one(
        "SELECT r.id, s.id, r.tool, r.raw, r.packed, r.created, s.conversation, r.message, c.owner FROM results r "
        "JOIN sessions s ON s.key = r.session JOIN conversations c ON c.key = s.conversation WHERE r.id = ?",
        result_id,
    )
    if session_id is not None and (row is None or not _is_in_log(do, session_id, row[6], row[7])):
        return None
    if row is None or do.owner not in (None, row[8]):
        return None
    with reading_kept(f"the result {result_id}"):
        text = unpack(row[3], row[4]).decode("utf-8", "surrogatepass")
    return StoredResult(id=row[0], session=row[1], tool=row[2], text=text, created=row[5])


def _is_in_log(do: Transaction, session_id: str, home: int, message: int | None) -> bool:
    """Returns True if a result belongs to a session's log.

    It does if the session is one of its conversation, or if the log has the message of the result.
    """
    conversation, _ = find_conversation_key(do, session_id)
    if conversation == home:
        return True
    return message is not None and any(
        do.one(
            "SELECT 1 FROM entries WHERE message = ? AND conversation = ? AND position >= ? AND position < ?",
            *(message, part, low, high),
        )
        for part, low, high in find_stretches(do, conversation)
    )


def book_usage(do: Transaction, rows: Sequence[UsageRow], hold: str, *, of_known_only: bool = False) -> None:
    """Records what requests used.

    Raises UnknownSession; with `of_known_only`, requests of sessions that are not there any more are left out instead.
    """
    # In one order for all, so that two processes that book for the same sessions do not wait for each other.
    rows = sorted(rows, key=attrgetter("session"))
    names = () if of_known_only else dict.fromkeys(row.session for row in rows)
    found = [(name, defer_conversation(do, name, hold)) for name in names]
    owned, owner = limit_to_owner(do, "s.owner")
    do.run_many(
        "INSERT INTO usage (session, owner, at, model, task, input, output, cache_read, cache_write, cache_write_1h, "
        f"reasoning, cost) SELECT s.key, s.owner, {', '.join('?' * 10)} FROM sessions s WHERE {owned}s.id = ? {hold}",
        [(*_usage_values(row), *owner, row.session) for row in rows],
    )
    for name, session in found:
        read_conversation(do, name, session)


def _usage_values(row: UsageRow) -> Row:
    used = row.usage
    return (
        require_moment(row.at),
        clean_label(row.model),
        clean_label(row.task),
        used.input_tokens,
        used.output_tokens,
        *(used.cache_read_tokens, used.cache_write_tokens, used.cache_write_1h_tokens),
        *(used.reasoning_tokens, require_price(row.cost)),
    )


def list_usage(do: Transaction, session_id: str | None, since: float) -> list[UsageRow]:
    """Returns what requests used, oldest first: of a conversation, or of all that may be seen."""
    if session_id is None:
        rows = list(_read_usage_of_all(do, since))
    else:
        rows = _read_usage_of(do, find_session(do, session_id)[2], since)
    return [_build_usage(row) for row in rows if row[2] is not None]


def _build_usage(row: Row) -> UsageRow:
    return UsageRow(
        session=row[2], at=row[0], model=row[3], task=row[4], usage=Usage(*row[5:11]), cost=row[11]
    )


def find_last_request(do: Transaction, session_id: str, task: str) -> UsageRow | None:
    """Returns the newest request of a session, not of those that it continues, that was for this task."""
    _, session, _ = find_session(do, session_id)
    row = do.one(
        f"{_USAGE} WHERE u.session = ? AND u.task = ? ORDER BY u.key DESC LIMIT 1",
        *(session, clean_label(task)),
    )
    return None if row is None else _build_usage(row)


def list_moments(do: Transaction, since: float) -> list[float]:
    """Returns when requests were made, oldest first."""
    return [row[0] for row in _read_usage_of_all(do, since, "SELECT u.at, u.key FROM usage u")]


def list_users(do: Transaction, after: int) -> tuple[set[str], int]:
    """Returns the ids of conversations whose requests were booked after a mark, and the mark for the next time."""
    newest = do.one("SELECT coalesce(max(key), 0) FROM usage")
    mark = int(newest[0]) if newest is not None else 0
    if mark <= after:
        return set(), mark
    owned, owner = limit_to_owner(do, "u.owner")
    rows = do.rows(
        "SELECT c.id FROM conversations c WHERE c.key IN (SELECT s.conversation FROM sessions s WHERE s.key IN "
        f"(SELECT u.session FROM usage u WHERE {owned}u.key > ?))",
        *(*owner, after),
    )
    return {row[0] for row in rows}, mark


def _read_usage_of(do: Transaction, conversation: int, since: float) -> list[Row]:
    """Returns the rows of a conversation, by its sessions: a join may begin with the usage of all others."""
    found: list[Row] = []
    sessions = do.rows("SELECT key FROM sessions WHERE conversation = ?", conversation)
    for some in cut_batches([row[0] for row in sessions]):
        marks = ", ".join("?" * len(some))
        found += do.rows(f"{_USAGE} WHERE u.session IN ({marks}) AND u.at >= ?", *some, since)
    return sorted(found, key=itemgetter(0, 1))


def _read_usage_of_all(do: Transaction, since: float, select: str = _USAGE) -> Iterator[Row]:
    """Yields the rows from a moment on. The selected columns begin with the moment and the key.

    They are asked for page by page, the first a short one: a database that is asked for all that is later than a moment, and
    has not looked at its rows yet, takes them for a third of its table, and reads the whole of it.
    """
    moment, key, limit = since, -1, _FIRST_PAGE
    owned, owner = limit_to_owner(do, "u.owner")
    while page := do.rows(
        f"{select} WHERE {owned}u.at >= ? AND (u.at, u.key) > (?, ?) ORDER BY u.at, u.key LIMIT {limit}",
        *(*owner, moment, moment, key),
    ):
        yield from page
        moment, key = page[-1][:2]
        limit = min(2 * limit, _LONGEST_PAGE)


def keep_note(
    do: Transaction, name: str, key: str, value: bytes, words: SqlSpelling, session_id: str | None = None
) -> None:
    """Keeps something small by name and key, except for a note on a session that no longer exists."""
    how = "ON CONFLICT (name, key) DO UPDATE SET value = excluded.value"
    _defer_note(do, (name, key, value), how, words, session_id)


def _defer_note(
    do: Transaction, note: tuple[str, str, bytes], how: str, words: SqlSpelling, session_id: str | None
) -> None:
    values = require_identifier(note[0]), require_identifier(note[1]), note[2]
    into = "INSERT INTO notes (name, key, value)"
    if session_id is None:
        do.defer(f"{into} VALUES (?, ?, ?) {how}", *values)
    else:
        held = f"FROM sessions s WHERE s.id = ? {words.hold_session}"
        do.defer(f"{into} SELECT ?, ?, ? {held} {how}", *values, require_identifier(session_id))


def change_note(
    do: Transaction,
    name: str,
    key: str,
    how: Callable[[bytes], bytes],
    words: SqlSpelling,
    session_id: str | None = None,
) -> bytes:
    """Puts what `how` makes of a note in its place; returns it. One that was not there is made first, to be held.

    Raises UnknownSession for a note on a session that is not there any more.
    """
    _defer_note(do, (name, key, b""), "ON CONFLICT (name, key) DO NOTHING", words, session_id)
    row = do.one(f"SELECT value FROM notes WHERE name = ? AND key = ? {words.for_update}", name, key)
    if row is None and session_id is not None:
        raise UnknownSession(f"session {session_id!r} was deleted; there is nothing left to note")
    value = how(bytes(require_row(row)[0]))
    do.defer("UPDATE notes SET value = ? WHERE name = ? AND key = ?", value, name, key)
    return value


def find_note(do: Transaction, name: str, key: str) -> Callable[[], bytes | None]:
    """Looks up the note of that name and key; returns a function that gives it, for when the transaction has ended."""
    storable = is_storable(name) and is_storable(key)
    found = do.defer(
        "SELECT value FROM notes WHERE name = ? AND key = ?", *((name, key) if storable else ("", ""))
    )

    def read() -> bytes | None:
        row = found.one()
        return bytes(row[0]) if row else None

    return read
