"""Keeps what messages say of entities beside them: the state by entity of any log is folded from it.

Sightings belong to a message, as its bytes do, and not to a log: a branch has those of the messages that it shares and no
others, and undoing a compaction changes nothing here. They are found on request, in all messages of the
asked log that have none yet. So an append costs nothing more, and messages that an older version wrote have them, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.dialects import dialect_named
from penstock.conversation.wire import parse_json
from penstock.errors import PenstockError
from penstock.stores.compactions import find_newest
from penstock.stores.encoding import clean_label, unpack
from penstock.stores.rows import find_stretches, require_row
from penstock.writing.sightings import SIGHTINGS_VERSION, Sighting, SightingRole, sightings_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.stores.database import Row, Transaction

__all__ = ["add_sightings", "count_unread", "read_sightings"]

_AT_ONCE = 256  # messages: other writers wait meanwhile
_UNREAD = (
    "FROM entries e JOIN messages m ON m.key = e.message WHERE e.conversation = ? AND e.position >= ? AND e.position < ? "
    "AND NOT EXISTS (SELECT 1 FROM sighted d WHERE d.message = e.message AND d.version = ?)"
)


def count_unread(do: Transaction, conversation: int) -> int:
    """Returns how many messages of a log have not been looked at."""
    return sum(
        require_row(do.one(f"SELECT count(*) {_UNREAD}", *stretch, SIGHTINGS_VERSION))[0]
        for stretch in find_stretches(do, conversation)
    )


def add_sightings(do: Transaction, conversation: int, redact: Callable[[str], str], start: int) -> int | None:
    """Finds what the next messages of a log say of entities, from a position on.

    Returns the position to continue from; None if there are no more.
    """
    dialect = dialect_named(
        require_row(do.one("SELECT dialect FROM conversations WHERE key = ?", conversation))[0]
    )
    for part, low, high in find_stretches(do, conversation):
        rows = do.rows(
            f"SELECT e.position, m.key, m.raw, m.packed {_UNREAD} ORDER BY e.position LIMIT ?",
            *(part, max(low, start), high, SIGHTINGS_VERSION, _AT_ONCE),
        )
        if not rows:
            continue
        found: list[Row] = []
        for _, key, raw, packed in rows:
            try:
                sightings = sightings_in(dialect.decode(parse_json(unpack(raw, packed))), redact)
            except (PenstockError, ValueError):  # `doctor` says why
                continue
            found += (_to_row(key, place, one) for place, one in enumerate(sightings))
        keys = [(row[1],) for row in rows]
        do.run_many("DELETE FROM sightings WHERE message = ?", keys)
        do.run_many("DELETE FROM sighted WHERE message = ?", keys)
        do.run_many(
            "INSERT INTO sightings (message, place, role, kind, name, says, call, failed, status) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            found,
        )
        do.run_many(
            "INSERT INTO sighted (message, version) VALUES (?, ?)",
            [(row[1], SIGHTINGS_VERSION) for row in rows],
        )
        return int(rows[-1][0]) + 1
    return None


def _to_row(message: int, place: int, one: Sighting) -> Row:
    texts = map(clean_label, (one.kind, one.name, one.says, one.call_id))
    return (message, place, int(one.role), *texts, int(one.failed), one.status)


def read_sightings(do: Transaction, conversation: int) -> list[Sighting]:
    """Returns what the messages of a conversation say of entities, in their order, numbered and with their times.

    Messages that a record took out of the view and that nothing stands for, as a rewind does, say nothing any more.
    """
    newest = find_newest(do, conversation)
    length, told = (0, set[int]()) if newest is None else (newest.compaction.length, newest.compaction.told)
    found: list[Sighting] = []
    for stretch in find_stretches(do, conversation):
        rows = do.rows(
            "SELECT s.role, s.kind, s.name, s.says, s.call, s.failed, s.status, e.position, e.created "
            "FROM entries e JOIN sightings s ON s.message = e.message "
            "WHERE e.conversation = ? AND e.position >= ? AND e.position < ? ORDER BY e.position, s.place",
            *stretch,
        )
        found += (
            Sighting(
                SightingRole(row[0]), row[1], row[2], row[3], row[4], bool(row[5]), row[6], row[7] + 1, row[8]
            )
            for row in rows
            if row[7] >= length or row[7] in told
        )
    return found
