"""Sessions and conversations: opened, branched off, ended, listed, followed to their tip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.stores.encoding import label, moment
from penstock.stores.rows import (
    SESSION,
    as_conversation,
    as_session,
    new_conversation,
    new_session,
    session_of,
    tip_of,
)
from penstock.stores.values import BRANCH, SUBAGENT

if TYPE_CHECKING:
    from penstock.stores.database import Transaction
    from penstock.stores.values import ConversationRow, NewSession, SessionRow

__all__ = [
    "branch_off",
    "children_of",
    "create_conversation",
    "end_session",
    "list_conversations",
    "update_session",
]


def create_conversation(do: Transaction, session: NewSession) -> SessionRow:
    """A new conversation, with its first session."""
    conversation = new_conversation(do, session)
    new_session(do, session, conversation, None)
    return session_of(do, session.id)[0]


def branch_off(do: Transaction, session_id: str, length: int, new: NewSession, hold: str) -> SessionRow:
    """A conversation that shares the first `length` messages of another one's log."""
    _, key, source = session_of(do, session_id, hold)
    tip = tip_of(do, source, length)
    conversation = new_conversation(do, new, forked_from=source, fork_length=length, tip=tip)
    kind = new.kind if new.kind == SUBAGENT else BRANCH
    new_session(do, msgspec.structs.replace(new, kind=kind), conversation, key)
    return session_of(do, new.id)[0]


def children_of(do: Transaction, session_id: str) -> list[SessionRow]:
    """Sessions that continue this one, branched off or work for it, oldest first."""
    _, key, _ = session_of(do, session_id)
    return [as_session(row) for row in do.rows(f"{SESSION} WHERE s.parent = ? ORDER BY s.key", key)]


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
    return [as_conversation(do, row) for row in rows]


def end_session(do: Transaction, session_id: str, reason: str, at: float, hold: str) -> None:
    """End a session; one that has ended stays as it is."""
    _, key, _ = session_of(do, session_id, hold)
    do.run(
        "UPDATE sessions SET ended = ?, end_reason = ? WHERE key = ? AND ended IS NULL",
        *(moment(at), label(reason), key),
    )


def update_session(do: Transaction, session_id: str, title: str | None, model: str | None, hold: str) -> None:
    """Give a session another title or model."""
    _, key, _ = session_of(do, session_id, hold)
    if title is not None:
        do.run("UPDATE sessions SET title = ? WHERE key = ?", label(title), key)
    if model is not None:
        do.run("UPDATE sessions SET model = ? WHERE key = ?", label(model), key)
