"""Approvals of one conversation, kept in the store: what was allowed in it, and questions that wait for an answer.

One process may ask, and another one receive the answer.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import msgspec

from penstock.loop.approvals import ApprovalReply, ApprovalRule, Permission

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.stores.store import Store

__all__ = ["PendingApproval", "StoredApprovals"]

_NOTE = "approvals"
_MOST_ASKED = 50  # answered questions go first


class PendingApproval(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question, and its answer once there is one."""

    id: str
    asked: Permission
    reply: ApprovalReply | None = None


class _Page(msgspec.Struct, frozen=True, omit_defaults=True):
    allowed: tuple[ApprovalRule, ...] = ()
    asked: tuple[PendingApproval, ...] = ()


_DECODE = msgspec.json.Decoder(_Page).decode


class StoredApprovals:
    """The book of a conversation, given by its id. Every call goes to the store."""

    def __init__(self, store: Store, conversation: str) -> None:
        self._store = store
        self._conversation = conversation

    # As an `ApprovalBook`.

    def rules(self) -> tuple[ApprovalRule, ...]:
        """Returns the rules in force: each allows exactly the same call again."""
        return self._read().allowed

    def add(self, rule: ApprovalRule) -> None:
        """Allows the subject of the rule from now on."""
        new = ApprovalRule(rule.tool, rule.pattern or "", exact=True)
        self._change(
            lambda page: (
                page if new in page.allowed else msgspec.structs.replace(page, allowed=(*page.allowed, new))
            )
        )

    def remove(self, rule: ApprovalRule) -> bool:
        """Revokes a rule; returns True if it was there."""
        old = ApprovalRule(rule.tool, rule.pattern or "", exact=True)
        found = old in self._read().allowed
        self._change(
            lambda page: msgspec.structs.replace(
                page, allowed=tuple(one for one in page.allowed if one != old)
            )
        )
        return found

    # Questions.

    def ask(self, asked: Permission) -> PendingApproval:
        """Stores a question, for any process to answer."""
        new = PendingApproval(secrets.token_hex(8), asked)
        self._change(lambda page: msgspec.structs.replace(page, asked=(*page.asked, new)[-_MOST_ASKED:]))
        return new

    def list_open(self) -> list[PendingApproval]:
        """Returns the unanswered questions."""
        return [one for one in self._read().asked if one.reply is None]

    def find(self, approval_id: str) -> PendingApproval | None:
        """Returns a question, answered or not; None if there is none with that id."""
        return next((one for one in self._read().asked if one.id == approval_id), None)

    def reply(self, approval_id: str, reply: ApprovalReply) -> bool:
        """Answers an open question; returns False if it is no longer open."""
        answered = False

        def answer(page: _Page) -> _Page:
            nonlocal answered
            answered = any(one.id == approval_id and one.reply is None for one in page.asked)
            asked = tuple(
                msgspec.structs.replace(one, reply=one.reply or reply) if one.id == approval_id else one
                for one in page.asked
            )
            return msgspec.structs.replace(page, asked=asked)

        self._change(answer)
        return answered

    def close(self, approval_id: str) -> None:
        """Removes a question that no longer needs an answer."""
        self._change(
            lambda page: msgspec.structs.replace(
                page, asked=tuple(one for one in page.asked if one.id != approval_id)
            )
        )

    def _read(self) -> _Page:
        return _read_page(self._store.note(_NOTE, self._conversation) or b"")

    def _change(self, how: Callable[[_Page], _Page]) -> None:
        self._store.change_note(
            _NOTE,
            self._conversation,
            lambda kept: msgspec.json.encode(how(_read_page(kept))),
            session_id=self._conversation,
        )


def _read_page(kept: bytes) -> _Page:
    return _DECODE(kept) if kept else _Page()
