"""The view of one session in memory: it grows with the log, so that a turn costs what it adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.conversation.view import ViewMessage
from penstock.conversation.wire import parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sessions.appending import PreparedMessages
    from penstock.sessions.drafts import CompactionDraft
    from penstock.sessions.session import Session
    from penstock.stores.values import Delivery

__all__ = ["LiveView"]


class LiveView:
    """The messages of the next request, and how many tokens they take.

    `messages` have the bytes that were logged and their place in the log. `tokens` is their size as we count it, without
    what stands beside them in a request. `settled_end` is how many of them the last compaction has settled, None without
    a compaction.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.messages: list[ViewMessage] = []
        self.tokens = 0
        self.settled_end: int | None = None
        self.load()

    @property
    def wires(self) -> list[Any]:
        """The messages as they are sent."""
        return [message.wire for message in self.messages]

    def load(self) -> None:
        """Reads the view from the store, as `Session.view` does: if a killed process has left the log broken, it is mended."""
        base = self._session.workings.read_view_base()
        self.messages = base.view.mend()
        self.tokens = self.weigh(self.messages)
        self.settled_end = base.prefix_end or None

    def append(
        self,
        prepared: PreparedMessages,
        *,
        delivery: Delivery | None = None,
        queued_upto: int | None = None,
    ) -> None:
        """Logs messages, and sends them from now on; `delivery` and `queued_upto` as `Store.deliver` takes them."""
        self.messages += self._session.workings.log_prepared(
            prepared, delivery=delivery, queued_upto=queued_upto
        )
        self.tokens += prepared.tokens

    def follow(self, length: int) -> list[ViewMessage]:
        """Adds and returns what another process has logged since the log had this length; it has compacted nothing."""
        entries = self._session.store.read_from(self._session.id, length)
        new = [ViewMessage(parse_json(entry.raw), entry.raw, entry.position) for entry in entries]
        self.messages += new
        self.tokens += self.weigh(new)
        return new

    def replace(self, draft: CompactionDraft, tokens: int) -> None:
        """Takes the view of a compaction, of `tokens` tokens, and adds what was logged since it was begun."""
        later = self.list_logged_since(draft.base.tip.length)
        self.messages = [*draft.messages, *later]
        self.tokens = tokens + self.weigh(later)
        self.settled_end = len(draft.messages)

    def restore_bytes(self, messages: Sequence[Any]) -> list[Any]:
        """Returns the messages of a request, as bytes if they are still the objects of the view."""
        return [
            logged.raw if message is logged.wire else message
            for message, logged in zip(messages, self.messages, strict=True)
        ]

    def read_log(self) -> list[Any]:
        """Returns every message of the log, including those that a compaction took out of the view."""
        if self.settled_end is None:
            return self.wires
        entries = self._session.store.read_from(self._session.id, 0)
        return [parse_json(entry.raw) for entry in entries]

    def list_logged_since(self, length: int) -> list[ViewMessage]:
        """Returns the messages that were logged since the log had this length."""
        return self.messages[len(self.messages) - (len(self._session) - length) :]

    def weigh(self, messages: Sequence[ViewMessage]) -> int:
        """Returns the tokens of messages, as we count them."""
        return self._session.workings.weigh([message.wire for message in messages])
