"""Deleting a conversation: nothing of it stays behind, and nothing that others share goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.stores.rows import cut_batches, limit_to_owner, require_row
from penstock.stores.values import LAST_USED, SUBAGENT, ExpiredConversation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from penstock.stores.database import Row, Transaction

__all__ = ["delete_conversations", "delete_some_of_owner", "expire_conversation", "list_due"]

_DUE = (
    "SELECT c.key, c.id, c.updated, c.length FROM conversations c WHERE {owned}c.updated < ? AND NOT EXISTS "
    "(SELECT 1 FROM sessions s WHERE s.conversation = c.key AND s.kind = ? AND s.parent IS NOT NULL) "
)


def delete_conversations(do: Transaction, conversation: int) -> int:
    """Deletes a conversation and those of its sub-agents; returns how many messages went.

    No other writer may be active.
    """
    return sum(_delete(do, key) for key in reversed(_find_with_subagents(do, conversation)))


def delete_some_of_owner(do: Transaction, owner: str) -> int | None:
    """Deletes the owner's newest conversation, with its sub-agents'; returns how many messages that were, None if there is none.

    Branches are deleted before the conversations that they branched off from, so that nothing is passed on to one that is
    deleted next.
    """
    row = do.one("SELECT max(key) FROM conversations WHERE owner = ?", owner)
    return None if row is None or row[0] is None else delete_conversations(do, row[0])


def _find_with_subagents(do: Transaction, conversation: int) -> list[int]:
    """Returns the conversation, and those of the sub-agents that work for it."""
    found = [conversation]
    for key in found:  # grows while it is walked: sub-agents may have sub-agents
        rows = do.rows(
            "SELECT DISTINCT s.conversation FROM sessions s JOIN sessions p ON p.key = s.parent "
            "WHERE p.conversation = ? AND s.conversation <> ? AND s.kind = ? ORDER BY s.conversation",
            *(key, key, SUBAGENT),
        )
        found += (row[0] for row in rows if row[0] not in found)
    return found


def _delete(do: Transaction, conversation: int) -> int:
    _hand_over(do, conversation)
    sessions = do.rows("SELECT key, id FROM sessions WHERE conversation = ?", conversation)
    keys = [row[0] for row in sessions]
    for some in cut_batches(keys):
        marks = ", ".join("?" * len(some))
        _hand_over_results(do, conversation, some)
        do.run(f"DELETE FROM results WHERE session IN ({marks})", *some)
        do.run(f"DELETE FROM usage WHERE session IN ({marks})", *some)
        do.run(f"UPDATE sessions SET parent = NULL WHERE parent IN ({marks})", *some)
    messages = do.rows("SELECT DISTINCT message FROM entries WHERE conversation = ?", conversation)
    for table in ("entries", "facts", "compactions", "pins", "turns", "queued", "deliveries", "sessions"):
        do.run(f"DELETE FROM {table} WHERE conversation = ?", conversation)
    do.run("DELETE FROM conversations WHERE key = ?", conversation)
    gone = _delete_unused(do, messages)
    _delete_notes(do, {*gone, *(row[1] for row in sessions)})
    return len(gone)


def _hand_over(do: Transaction, conversation: int) -> None:
    """Gives branches the entries that they read here, and the place that this one branched off from."""
    source, low = require_row(
        do.one("SELECT forked_from, fork_length FROM conversations WHERE key = ?", conversation)
    )
    branches = do.rows("SELECT key, fork_length FROM conversations WHERE forked_from = ?", conversation)
    for branch, high in branches:
        do.run(
            "INSERT INTO entries (conversation, position, message, tokens, created) "
            f"SELECT {int(branch)}, position, message, tokens, created FROM entries "
            "WHERE conversation = ? AND position >= ? AND position < ?",
            *(conversation, low, high),
        )
        do.run(
            "UPDATE conversations SET forked_from = ?, fork_length = ? WHERE key = ?",
            *(source, min(low, high), branch),
        )


def _hand_over_results(do: Transaction, conversation: int, sessions: Sequence[int]) -> None:
    """Gives stored results whose message stands in another log, too, to a session of that one."""
    marks = ", ".join("?" * len(sessions))
    do.run(
        "UPDATE results SET session = coalesce((SELECT min(s.key) FROM entries e JOIN sessions s "
        "ON s.conversation = e.conversation WHERE e.message = results.message AND e.conversation <> ?), session) "
        f"WHERE message IS NOT NULL AND session IN ({marks})",
        *(conversation, *sessions),
    )


def _delete_unused(do: Transaction, messages: Sequence[Row]) -> list[str]:
    """Deletes those of the messages that are in no log, and returns their ids."""
    gone: list[str] = []
    for some in cut_batches([row[0] for row in messages]):
        marks = ", ".join("?" * len(some))
        unused = f"key IN ({marks}) AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.message = messages.key)"
        rows = do.rows(f"DELETE FROM messages WHERE {unused} RETURNING id", *some)
        gone += (bytes(row[0]).hex() for row in rows)
    return gone


def _delete_notes(do: Transaction, gone: AbstractSet[str]) -> None:
    """Deletes the notes of deleted conversations: those whose key is an id of theirs, or such an id, `/` and more."""
    notes = [row for row in do.rows("SELECT name, key FROM notes") if _belongs(row[1], gone)]
    do.run_many("DELETE FROM notes WHERE name = ? AND key = ?", notes)


def _belongs(key: str, gone: AbstractSet[str]) -> bool:
    return key in gone or any(key[:at] in gone for at, mark in enumerate(key) if mark == "/")


def list_due(do: Transaction, before: float) -> list[ExpiredConversation]:
    """Returns conversations last used before that time, the oldest first.

    A conversation is used when something is appended to it, when it is compacted, when a compaction is undone, and
    when it is imported, however old it is. Use of its sub-agents' conversations counts for it, and they are deleted with it.
    """
    owned, owner = limit_to_owner(do, "c.owner")
    rows = do.rows(f"{_DUE.format(owned=owned)} ORDER BY c.updated, c.key", *owner, before, SUBAGENT)
    return [_build_expired(row) for row in rows if not _was_used(do, row[0], before)]


def expire_conversation(do: Transaction, conversation_id: str, before: float) -> ExpiredConversation | None:
    """Deletes a conversation if it is still due, and returns what went. No other writer may be active."""
    owned, owner = limit_to_owner(do, "c.owner")
    row = do.one(f"{_DUE.format(owned=owned)} AND c.id = ?", *owner, before, SUBAGENT, conversation_id)
    if row is None or _was_used(do, row[0], before):
        return None
    gone = delete_conversations(do, row[0])
    return ExpiredConversation(id=row[1], updated=row[2], messages=gone)


def _was_used(do: Transaction, conversation: int, before: float) -> bool:
    """Returns True if it, or a sub-agent's conversation, was used at that time or later."""
    for key in _find_with_subagents(do, conversation):
        row = do.one("SELECT id, updated FROM conversations WHERE key = ?", key)
        if row is None:
            continue
        if row[1] >= before:
            return True
        noted = do.one("SELECT value FROM notes WHERE name = ? AND key = ?", LAST_USED, row[0])
        if noted is not None and _read_time(bytes(noted[0])) >= before:
            return True
    return False


def _read_time(note: bytes) -> float:
    try:
        return float(note)
    except ValueError:
        return 0.0


def _build_expired(row: Row) -> ExpiredConversation:
    return ExpiredConversation(id=row[1], updated=row[2], messages=row[3])
