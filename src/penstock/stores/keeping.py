"""Rows beside messages: large tool results, the usage of requests, notes."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

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
from penstock.stores.rows import cut_batches, find_session, find_stretches
from penstock.stores.values import StoredResult, UsageRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.stores.database import Row, Transaction

__all__ = ["book_usage", "find_note", "find_result", "keep_note", "keep_result", "list_usage"]

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
        "SELECT r.id, s.id, r.tool, r.raw, r.packed, r.created, s.conversation, r.message FROM results r "
        "JOIN sessions s ON s.key = r.session WHERE r.id = ?",
        result_id,
    )
    if row is None or (session_id is not None and not _is_in_log(do, session_id, row[6], row[7])):
        return None
    with reading_kept(f"the result {result_id}"):
        text = unpack(row[3], row[4]).decode("utf-8", "surrogatepass")
    return StoredResult(id=row[0], session=row[1], tool=row[2], text=text, created=row[5])


def _is_in_log(do: Transaction, session_id: str, owner: int, message: int | None) -> bool:
    """Returns whether a result belongs to a session's log.

    It does where the session is one of its conversation, or where the log has the message of the result.
    """
    _, _, conversation = find_session(do, session_id)
    if conversation == owner:
        return True
    return message is not None and any(
        do.one(
            "SELECT 1 FROM entries WHERE message = ? AND conversation = ? AND position >= ? AND position < ?",
            *(message, part, low, high),
        )
        for part, low, high in find_stretches(do, conversation)
    )


def book_usage(do: Transaction, rows: Sequence[UsageRow], hold: str) -> None:
    """Records what requests used."""
    # In one order for all, so that two who book for the same sessions do not wait for each other.
    sessions = {name: find_session(do, name, hold)[1] for name in sorted({row.session for row in rows})}
    do.run_many(
        "INSERT INTO usage (session, at, model, task, input, output, cache_read, cache_write, cache_write_1h, "
        "reasoning, cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(sessions[row.session], *_usage_values(row)) for row in rows],
    )


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
    """Returns what requests used, oldest first: of a conversation, or of all."""
    if session_id is None:
        rows = list(_read_usage_of_all(do, since))
    else:
        rows = _read_usage_of(do, find_session(do, session_id)[2], since)
    return [
        UsageRow(session=row[2], at=row[0], model=row[3], task=row[4], usage=Usage(*row[5:11]), cost=row[11])
        for row in rows
        if row[2] is not None
    ]


def _read_usage_of(do: Transaction, conversation: int, since: float) -> list[Row]:
    """Returns the rows of a conversation, by its sessions: a join may begin with the usage of all others."""
    found: list[Row] = []
    sessions = do.rows("SELECT key FROM sessions WHERE conversation = ?", conversation)
    for some in cut_batches([row[0] for row in sessions]):
        marks = ", ".join("?" * len(some))
        found += do.rows(f"{_USAGE} WHERE u.session IN ({marks}) AND u.at >= ?", *some, since)
    return sorted(found, key=itemgetter(0, 1))


def _read_usage_of_all(do: Transaction, since: float) -> Iterator[Row]:
    """Yields the rows from a moment on.

    They are asked for page by page, the first a short one: a database that is asked for all that is later than a moment, and
    has not looked at its rows yet, takes them for a third of its table, and reads the whole of it.
    """
    moment, key, limit = since, -1, _FIRST_PAGE
    while page := do.rows(
        f"{_USAGE} WHERE u.at >= ? AND (u.at, u.key) > (?, ?) ORDER BY u.at, u.key LIMIT {limit}",
        *(moment, moment, key),
    ):
        yield from page
        moment, key = page[-1][:2]
        limit = min(2 * limit, _LONGEST_PAGE)


def keep_note(do: Transaction, name: str, key: str, value: bytes) -> None:
    """Keeps something small by name and key."""
    do.run(
        "INSERT INTO notes (name, key, value) VALUES (?, ?, ?) "
        "ON CONFLICT (name, key) DO UPDATE SET value = excluded.value",
        *(require_identifier(name), require_identifier(key), value),
    )


def find_note(do: Transaction, name: str, key: str) -> bytes | None:
    """Returns what is kept under that name and key."""
    if not (is_storable(name) and is_storable(key)):
        return None
    row = do.one("SELECT value FROM notes WHERE name = ? AND key = ?", name, key)
    return bytes(row[0]) if row else None
