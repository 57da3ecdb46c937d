"""Conversations that nobody has used for long: which they are, and deleting them.

A conversation is used where something is appended to it, it is compacted, or a compaction is taken back; and where it is
brought from elsewhere, however old it is. What its sub-agents do counts for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.stores.base import LAST_USED, SUBAGENT, Expired
from penstock.stores.upkeep import delete_conversations, with_subagents

if TYPE_CHECKING:
    from penstock.stores.database import Row, Transaction

__all__ = ["due_conversations", "expire_conversation"]

_DUE = (
    "SELECT c.key, c.id, c.updated, c.length FROM conversations c WHERE c.updated < ? AND NOT EXISTS "
    "(SELECT 1 FROM sessions s WHERE s.conversation = c.key AND s.kind = ? AND s.parent IS NOT NULL) "
)


def due_conversations(do: Transaction, before: float) -> list[Expired]:
    """Conversations that were last used before that time, the oldest first; sub-agents' go with those they work for."""
    rows = do.rows(f"{_DUE} ORDER BY c.updated, c.key", before, SUBAGENT)
    return [_as_expired(row) for row in rows if not _was_used(do, row[0], before)]


def expire_conversation(do: Transaction, conversation_id: str, before: float) -> Expired | None:
    """Delete a conversation if it is still due; what went. Nobody else may write meanwhile."""
    row = do.one(f"{_DUE} AND c.id = ?", before, SUBAGENT, conversation_id)
    if row is None or _was_used(do, row[0], before):
        return None
    gone = delete_conversations(do, row[0])
    return Expired(id=row[1], updated=row[2], messages=gone)


def _was_used(do: Transaction, conversation: int, before: float) -> bool:
    """Whether it, or a sub-agent of it, was used at that time or later."""
    for key in with_subagents(do, conversation):
        row = do.one("SELECT id, updated FROM conversations WHERE key = ?", key)
        if row is None:
            continue
        if row[1] >= before:
            return True
        noted = do.one("SELECT value FROM notes WHERE name = ? AND key = ?", LAST_USED, row[0])
        if noted is not None and _time_in(bytes(noted[0])) >= before:
            return True
    return False


def _time_in(note: bytes) -> float:
    try:
        return float(note)
    except ValueError:
        return 0.0


def _as_expired(row: Row) -> Expired:
    return Expired(id=row[1], updated=row[2], messages=row[3])
