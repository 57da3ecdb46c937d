"""What a store keeps and what it can be asked: values, and the protocol that every store fulfils.

A *conversation* has one log, whose positions count from 0; a handle `m12` names position 11 for good. A *session* is a
stretch of it: a compaction ends one and opens its continuation. Messages are stored once by their chained id, however
many conversations share them. Nothing of a log is ever changed; deleting takes a conversation as a whole.

Calls are synchronous and each is one transaction, durable when it returns. Async code runs them in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from penstock.conversation.view import Compaction
    from penstock.measure.usage import Usage
    from penstock.recall.embedding import Embedder
    from penstock.recall.history import Finding
    from penstock.recall.ranking import Wish

__all__ = [
    "Appended",
    "CompactionRow",
    "ConversationRow",
    "Expired",
    "FactRow",
    "LogEntry",
    "LogTip",
    "NewCompaction",
    "NewFact",
    "NewMessage",
    "NewSession",
    "SessionRow",
    "Store",
    "StoreFault",
    "StoredResult",
    "UsageRow",
]

COMPRESSION, BRANCH, SUBAGENT, MAIN = "compression", "branch", "subagent", "main"
LAST_USED = "last used"  # a note by a conversation's id: seconds since 1970, where its messages are older than its use


class NewMessage(msgspec.Struct, frozen=True, gc=False):
    """A message to append: its exact bytes, the digest of its content, its role and its tokens.

    `at` is when it was said, where that is not when it is appended. `results` are the ids of stored results in whose
    place it stands: they are kept as long as it is.
    """

    raw: bytes
    digest: bytes
    role: str
    tokens: int
    at: float | None = None
    results: tuple[str, ...] = ()


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """A message in a log."""

    position: int
    id: str
    raw: bytes
    role: str
    tokens: int
    created: float


class LogTip(msgspec.Struct, frozen=True):
    """The end of a log: the id of its last message ("" where it is empty) and how many there are."""

    id: str
    length: int


class Appended(msgspec.Struct, frozen=True):
    """The ids of messages that were appended, and the end of the log after it.

    `again` where they stood there already, at this very place: a retry changes nothing.
    """

    ids: tuple[str, ...]
    tip: LogTip
    again: bool = False


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to open. `id` and `at` come from the caller, so that stores need no clock and no randomness."""

    id: str
    at: float
    dialect: str = "chat"
    model: str = ""
    title: str = ""
    kind: str = MAIN


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session. `parent` is the session it continues, branched off or works for."""

    id: str
    conversation: str
    parent: str
    kind: str
    started: float
    ended: float | None
    end_reason: str
    model: str
    title: str
    dialect: str


class ConversationRow(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a list: its tip, its title, how long it is and what it has used.

    `tokens` are those of the whole log, `view_tokens` those of what the model would be sent.
    """

    id: str
    tip: SessionRow
    title: str
    started: float
    updated: float
    messages: int
    tokens: int
    view_tokens: int
    compactions: int
    usage: Usage
    cost: float | None


class NewFact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the ledger holds of one message: `text` is redacted, `superseded` the position of what changed it."""

    position: int
    kind: str
    text: str
    label: str = ""
    uses: int = 1
    superseded: int | None = None


class FactRow(NewFact, frozen=True, kw_only=True, gc=False):
    """A fact that is kept, with the time of its message and the key of the compaction it came with."""

    at: float
    compaction: int


class NewCompaction(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction to commit.

    `over` is the key of the compaction whose view it was made of, 0 for the bare log: it is committed only while
    that one is still the newest. `key` makes a retry harmless. `session` is the continuation that it opens. `facts` are
    those of the messages that it takes out of the view, the most needed first.
    """

    compaction: Compaction
    over: int
    receipt: Mapping[str, Any]
    session: NewSession
    key: str = ""
    facts: Sequence[NewFact] = ()


class CompactionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that was committed. `undone` is when it was taken back, None where it holds."""

    key: int
    compaction: Compaction
    over: int
    receipt: Mapping[str, Any]
    created: float
    session: str
    undone: float | None


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """A tool result that is too large for the context, with the session it belongs to."""

    id: str
    session: str
    tool: str
    text: str
    created: float


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request: what it was for, what it used and what it cost in US dollars, None where that is not known."""

    session: str
    at: float
    model: str
    task: str
    usage: Usage
    cost: float | None = None


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that nobody has used for long: when it was, and how many messages it has, or went with it."""

    id: str
    updated: float
    messages: int


class StoreFault(msgspec.Struct, frozen=True):
    """Something that is not as it should be: where, what, and whether `repair` can mend it."""

    where: str
    what: str
    mendable: bool = False


class Store(Protocol):
    """A place for sessions. Raises StoreError; where it raises, nothing was changed."""

    @property
    def url(self) -> str:
        """Where it is, without a password."""

    def create(self, session: NewSession) -> SessionRow:
        """A new conversation, with its first session."""

    def branch(self, session_id: str, length: int, new: NewSession) -> SessionRow:
        """A conversation that shares the first `length` messages of another one's log and goes its own way."""

    def session(self, session_id: str) -> SessionRow:
        """The session. Raises UnknownSession."""

    def tip(self, session_id: str) -> SessionRow:
        """The session that the conversation goes on in: compression children are followed, nothing else."""

    def children(self, session_id: str) -> Sequence[SessionRow]:
        """Sessions that continue this one, branched off or work for it, oldest first."""

    def list(self, *, limit: int = 50, offset: int = 0) -> Sequence[ConversationRow]:
        """Conversations, the one that was used last first; sub-agents' are left out."""

    def end(self, session_id: str, reason: str, at: float) -> None:
        """End a session; one that has ended stays as it is."""

    def update(self, session_id: str, *, title: str | None = None, model: str | None = None) -> None:
        """Give a session another title or model."""

    def append(self, session_id: str, messages: Sequence[NewMessage], after: str, at: float) -> Appended:
        """Append to the log whose last message has the id `after`. Raises StoreConflict where it has another."""

    def log_tip(self, session_id: str) -> LogTip:
        """The end of the log of the session's conversation."""

    def read(self, session_id: str, positions: Sequence[int]) -> Sequence[LogEntry]:
        """The messages at these positions, in their order; positions that are not there are left out."""

    def read_from(self, session_id: str, start: int, limit: int | None = None) -> Sequence[LogEntry]:
        """The messages from a position on."""

    def ids(self, session_id: str) -> Sequence[str]:
        """The ids of all messages of the log."""

    def known_prefix(self, ids: Sequence[str]) -> tuple[str, int] | None:
        """The session whose log begins with the most of these ids, and how many; None where nobody knows the first."""

    def commit(self, session_id: str, new: NewCompaction) -> CompactionRow:
        """Commit a compaction, end its session and open the continuation. Raises StoreConflict where it is late."""

    def compactions(self, session_id: str, *, undone: bool = False) -> Sequence[CompactionRow]:
        """The compactions that hold, oldest first; with `undone`, those that were taken back too."""

    def newest_compaction(self, session_id: str) -> CompactionRow | None:
        """The compaction whose view is the present one, None for the bare log."""

    def facts(self, session_id: str) -> Sequence[FactRow]:
        """What the ledger held of messages when they left the view, in their order: of the compactions that hold."""

    def undo(self, session_id: str, at: float) -> CompactionRow | None:
        """Take the newest compaction back: the view before it is the present one. None where there is none."""

    def pin(self, session_id: str, position: int, *, pinned: bool = True) -> None:
        """Pin a message of the log, or unpin it."""

    def pins(self, session_id: str) -> frozenset[int]:
        """The positions of pinned messages."""

    def put_result(self, result: StoredResult) -> None:
        """Keep a tool result; the same id again changes nothing."""

    def result(self, result_id: str, *, session_id: str | None = None) -> StoredResult | None:
        """A tool result, or None. With a session, only one that its conversation has, or shares with the one that does."""

    def book(self, row: UsageRow) -> None:
        """Take down what a request used."""

    def book_all(self, rows: Sequence[UsageRow]) -> None:
        """Take down what many requests used, all of them or none."""

    def usage(self, *, session_id: str | None = None, since: float = 0.0) -> Sequence[UsageRow]:
        """What requests used, oldest first: of a conversation, or of all."""

    def put_note(self, name: str, key: str, value: bytes) -> None:
        """Keep something small by name and key: a calibration, a learned window, notes on a part.

        What belongs to a conversation has a session's id or a message's as its key, or such an id, `/` and more: it
        goes when they are deleted.
        """

    def note(self, name: str, key: str) -> bytes | None:
        """What is kept under that name and key."""

    def index(self, limit: int | None = None, *, embedder: Embedder | None = None) -> int:
        """Index what was written since the last time, or about so much of it; how many messages, summaries and results.

        A search does so by itself. Whoever wrote much may call it when there is time. With an embedder they get vectors,
        too, and count once more for these.
        """

    def unindexed(self, *, embedder: Embedder | None = None) -> int:
        """How many messages, summaries and results the next search indexes first."""

    def search(
        self,
        query: str,
        wish: Wish | None = None,
        *,
        session_id: str | None = None,
        hidden: Collection[int] = (),
        redact: Callable[[str], str] = str,
        embedder: Embedder | None = None,
    ) -> Sequence[Finding]:
        """The best findings in all conversations, or in that of a session, with all that its log shares with others.

        Of a session, nothing is found at the positions in `hidden`, nor in the summary that stands in the view. Excerpts
        are drawn from messages that went through `redact` as a whole. With an embedder, what is near in meaning is found
        beside what holds the words: in a conversation, or in all, among the newest 50,000 messages.
        """

    def delete(self, session_id: str) -> int:
        """Delete the session's conversation, its sub-agents' and all that only they hold. How many messages went.

        Branches keep what they share with it. The bytes are gone from the file, too.
        """

    def due(self, before: float) -> Sequence[Expired]:
        """Conversations that nobody has used since that time, the oldest first: what `expire` would delete."""

    def expire(self, before: float) -> Sequence[Expired]:
        """Delete conversations that nobody has used since that time, as `delete` does; what went."""

    def faults(self) -> Sequence[StoreFault]:
        """Everything that is not as it should be: every id is worked out anew, every reference looked up."""

    def repair(self) -> Sequence[StoreFault]:
        """Mend what can be mended; returns what was."""

    def close(self) -> None:
        """Let go of files and connections."""
