"""The values that a store takes and returns.

A *conversation* has one log, whose positions count from 0; a handle `m12` names position 11 for good. A
*session* is a stretch of it: a compaction ends one and opens its continuation. Messages are stored once by
their chained id, however many conversations share them. Nothing of a log is ever changed; deleting takes a
conversation as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.conversation.view import Compaction
    from penstock.measure.usage import Usage

__all__ = [
    "AppendResult",
    "CompactionRow",
    "ConversationRow",
    "Delivery",
    "ExpiredConversation",
    "FactRow",
    "LogEntry",
    "LogShape",
    "LogTip",
    "NewCompaction",
    "NewFact",
    "NewMessage",
    "NewSession",
    "OpenedTurn",
    "QueuedMessage",
    "SessionRow",
    "Standing",
    "StoreFault",
    "StoredResult",
    "UsageRow",
]

COMPRESSION, BRANCH, SUBAGENT, MAIN = "compression", "branch", "subagent", "main"
REWOUND = "rewound"  # in a receipt: how many messages the record took out; no compaction has it
LAST_USED = "last used"  # a note by a conversation's id: seconds since 1970, where its messages are older than its use


class NewMessage(msgspec.Struct, frozen=True, gc=False):
    """A message to append: its exact bytes, the digest of its content, its role and its tokens.

    `at` is when it was said, if that is not when it is appended. `results` are the ids of the stored results
    that it replaces: they are kept as long as it is.
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


class LogShape(msgspec.Struct, frozen=True, eq=False):
    """The tokens of each message of a log, and when it was said; 0 for what a damaged store no longer has."""

    tokens: Sequence[int]
    created: Sequence[float]


class LogTip(msgspec.Struct, frozen=True):
    """The end of a log: the id of its last message ("" if it is empty) and the number of messages."""

    id: str
    length: int


class AppendResult(msgspec.Struct, frozen=True):
    """The ids of messages that were appended, and the end of the log after it.

    `again` is True if they were there already, at this very place: a retry changes nothing.
    """

    ids: tuple[str, ...]
    tip: LogTip
    again: bool = False


class Delivery(msgspec.Struct, frozen=True):
    """A message that a client delivered under a name of its own, so that the same delivery again is known as that.

    `digest` is of the request, `position` the message's in the log (-1 while it waits for a turn to take it), `answer`
    the reply that the client was given, None until there is one.
    """

    name: str
    digest: bytes
    position: int = -1
    answer: bytes | None = None


class QueuedMessage(msgspec.Struct, frozen=True):
    """A message that came while a turn was under way, and waits for that turn to take it. `key` gives their order."""

    key: int
    raw: bytes


class Standing(msgspec.Struct, frozen=True):
    """The state of a conversation in few values: its log's end, and the key of the compaction in force (0: none).

    Two that are equal have the same view: a host that keeps a view in memory knows by it whether the view is still true.
    """

    tip: LogTip
    view: int


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to open. `id` and `at` come from the caller, so that stores need no clock and no randomness."""

    id: str
    at: float
    dialect: str = "chat"
    model: str = ""
    title: str = ""
    kind: str = MAIN


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session. `parent` is the session it continues, branched off or works for, `owner` its conversation's."""

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
    owner: str = ""


class OpenedTurn(msgspec.Struct, frozen=True):
    """A turn that was claimed, with everything that a host has to know first.

    The session at the tip, the state of the conversation, the record of the delivery that the turn is for, and whether
    messages wait that an earlier turn has left.
    """

    row: SessionRow
    standing: Standing
    delivery: Delivery | None
    has_queued: bool


class ConversationRow(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a list: its tip, its title, its length and its usage.

    `tokens` are those of the whole log, `view_tokens` those of the messages that the model would be sent.
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
    """The cost of all requests; None if one has no known cost, or there were none."""
    known_cost: float = 0.0
    """The cost of those requests whose cost is known."""


class NewFact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact of the ledger about one message.

    `text` is redacted, `superseded` the position of the message that changed it.
    """

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

    `over` is the key of the compaction whose view it was made of, 0 for the bare log: it is committed only
    while that one is still the newest. `key` makes a retry harmless. `session` is the continuation that it
    opens. `facts` are those of the messages that it takes out of the view, the most needed first.
    """

    compaction: Compaction
    over: int
    receipt: Mapping[str, Any]
    session: NewSession
    key: str = ""
    facts: Sequence[NewFact] = ()


class CompactionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction or a rewind that was committed. `undone` is when it was undone, None if it is in force."""

    key: int
    compaction: Compaction
    over: int
    receipt: Mapping[str, Any]
    created: float
    session: str
    undone: float | None

    @property
    def is_rewind(self) -> bool:
        """True for the record of a rewind, which only takes messages out of the view."""
        return REWOUND in self.receipt


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """A tool result that is too large for the context, with the session it belongs to."""

    id: str
    session: str
    tool: str
    text: str
    created: float


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request: its purpose, its usage and its cost in US dollars, None if that is unknown."""

    session: str
    at: float
    model: str
    task: str
    usage: Usage
    cost: float | None = None


class ExpiredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that was not used for long.

    `updated` is when it was used last, `messages` how many it has, or how many went with it.
    """

    id: str
    updated: float
    messages: int


class StoreFault(msgspec.Struct, frozen=True):
    """A fault of a store: its place, what it is, and whether `repair` can mend it."""

    where: str
    what: str
    mendable: bool = False
