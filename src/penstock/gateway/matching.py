"""Recognises the conversation of a request by its messages. In memory, for one process.

A client sends the whole conversation each time, and not always with the same bytes: a cache mark moves on, a list
with one text becomes that text, keys change places. So a request is looked up in three ways, the cheapest first:

- **by the bytes of its list**: if it begins with the list of an earlier request, byte for byte, only the rest is
  looked at. Beginnings are compared by one digest, at the ends of the last few messages.
- **by the bytes of each message**, without cache marks, as chained digests.
- **by content** (`conversation.identity`): a message that was never seen with these bytes is read.

The digests of bytes are made with a seed that only this process knows and with the caller's scope, so that no caller can
find another's conversation by them, and they are never stored. Conversations that have left this memory are found in the
store, by a worker.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import xxhash

from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest, extends
from penstock.conversation.message import Role
from penstock.conversation.wire import parse_json
from penstock.errors import InputError
from penstock.gateway.orders import ViewPrefix, ViewStanding
from penstock.gateway.splicing import locate, slice_messages
from penstock.providers.cache_marks import strip_marks

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Sequence

    from penstock.conversation.dialects import Dialect
    from penstock.conversation.message import Message
    from penstock.gateway.exchange import WireDialect
    from penstock.gateway.inner_turns import InnerTurn

__all__ = [
    "DIGEST_BYTES",
    "KnownConversation",
    "KnownConversations",
    "Match",
    "Scope",
    "SeenMessages",
    "is_shortened",
]

DIGEST_BYTES = 16

_FOUND_BY = 32  # of the last messages: a request that leaves a conversation earlier is looked up in the store
_MOST_ALIKE = 8  # conversations that begin alike and are looked at; the newest
_RECENT = 6  # messages whose bytes are held: a client may spell its newest messages otherwise the next time
# Of the last messages: at their ends the bytes of a list are compared with those of the last time.
_CHECKED = 4
_HEADS = (1 << 16, 1 << 14, 1 << 12, 1 << 10)  # bytes by which conversations that begin alike are found
_OWN_BYTES = 3_000  # what a conversation takes in this memory with no message
_ENTRY_BYTES = 500  # what a message takes in this memory beside its text: digests and places in tables
_MARK = b'"cache_control"'


class Scope(NamedTuple):
    """The callers and requests that may share a conversation."""

    owner: str
    dialect: WireDialect
    store: str


class _Check(NamedTuple):
    """The end of the last of so many messages of a list, and the digest of all bytes up to there."""

    messages: int
    end: int
    digest: bytes


class SeenMessages:
    """The messages of one request: where each stands in its list, and the digests of those that are new.

    The first `known` of them are, byte for byte, those of an earlier request. `raws`, `cleaned` (the same without cache
    marks) and `chains` are of the rest.
    """

    def __init__(
        self, scope: Scope, listed: bytes, first: _Beginning, raws: list[bytes], seed: bytes
    ) -> None:
        self.scope = scope
        self.listed = listed
        self.known = first.messages
        self.raws = raws
        self.cleaned = _clean(raws, scope.dialect)
        self.chains = _chain(
            first.chain or xxhash.xxh3_128_digest(seed + "\0".join(scope).encode()), self.cleaned
        )
        starts, ends = locate(listed, first.end, raws)
        self.starts = [*first.starts, *starts]
        self.ends = [*first.ends, *ends]
        marked = {self.known + at for at, raw in enumerate(raws) if raw is not self.cleaned[at]}
        self.marked = marked | first.marked

    def __len__(self) -> int:
        return len(self.ends)

    def message(self, place: int) -> bytes:
        """Returns the bytes of a message."""
        return self.listed[self.starts[place] : self.ends[place]]

    def span(self, start: int, end: int) -> bytes:
        """Returns the bytes of neighbouring messages with what stands between them; at least one."""
        return self.listed[self.starts[start] : self.ends[end - 1]]

    def count_bytes(self, place: int) -> int:
        """Returns the bytes of the messages from a place on."""
        return self.ends[-1] - self.starts[place] if place < len(self) else 0

    def slice_all(self) -> tuple[bytes, ...]:
        """Returns the bytes of all messages."""
        return tuple(self.message(place) for place in range(len(self)))

    def slice_from(self, place: int) -> tuple[bytes, ...]:
        """Returns the bytes of the messages from a place on."""
        return tuple(self.message(at) for at in range(place, len(self)))


class _Beginning(msgspec.Struct, frozen=True):
    """The beginning of a list that an earlier request had: so many messages, and where they end, begin and are marked."""

    messages: int = 0
    end: int = 0
    chain: bytes = b""
    starts: list[int] = []
    ends: list[int] = []
    marked: frozenset[int] = frozenset()


class KnownConversation:
    """A conversation as the gateway's memory has it: digests of its messages, and the bytes that are sent in their place.

    `length` is that of its log, which grows when an order to log messages is given. `writing` is done when all that was
    ordered is durable. `stale` is True where the worker has lost it: the next request opens it anew.
    """

    def __init__(self, conversation: str, scope: Scope) -> None:
        self.id = conversation
        self.scope = scope
        self.hint = ("", "", "")  # by which its client names it: owner, session, sub-agent
        self.standing = ViewStanding()
        self.stale = False
        self.writing: Future[Any] | None = None
        self.unsized_bytes = 0  # of messages that `standing` does not count yet
        self.last_request = 0.0
        self.outside = b""  # a digest of what stood beside the messages of the last order
        self.prefix = ViewPrefix()
        self.prefix_bytes = b""
        self.chains: list[bytes] = []  # after each message: by the bytes that it was last seen with
        self.digests: list[bytes] = []  # of each message's content; shorter than `chains` while an order runs
        self.outdated: list[bytes] = []  # chains that it is no longer found by
        self.heads: list[bytes] = []  # digests of the first bytes of its list
        self.inner: dict[int, InnerTurn] = {}  # by place: turns with rounds that the client did not see
        self._seen = _Beginning()  # all of the last list
        self._checks: list[_Check] = []
        self._held: dict[int, bytes] = {}  # first bytes of messages that came back in another spelling
        self._recent: dict[int, bytes] = {}

    @property
    def length(self) -> int:
        """The number of messages of the log."""
        return len(self.chains)

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        inner = (raw for turn in self.inner.values() for raw in turn.messages)
        texts = (self.prefix_bytes, self.prefix_bytes, *self._held.values(), *self._recent.values(), *inner)
        return _OWN_BYTES + self.length * _ENTRY_BYTES + sum(map(len, texts))

    def take(self, seen: SeenMessages) -> None:
        """Takes the messages of a request that begins as the conversation does.

        Of a message that is known, the bytes of the first time are held where they differ from those of now. A shorter
        request, sent again, changes nothing.
        """
        changed = len(self.chains)
        for at, chain in enumerate(seen.chains):
            place = seen.known + at
            if place >= len(self.chains):
                self._recent[place] = seen.cleaned[at]
            elif chain != self.chains[place]:
                changed = min(changed, place)
                first = self._recent.get(place)
                if first is not None and first != seen.cleaned[at]:
                    self._held.setdefault(place, first)
        if len(seen) < len(self.chains):
            return
        self.outdated += self.chains[changed:]
        self.chains[changed:] = seen.chains[changed - seen.known :]
        for place in [place for place in self._recent if place < len(self.chains) - _RECENT]:
            del self._recent[place]
        self._see(seen)

    def _see(self, seen: SeenMessages) -> None:
        """Remembers the list as it stands now, to know the next one by its bytes."""
        self._seen = _Beginning(
            len(seen), seen.ends[-1], self.chains[-1], seen.starts, seen.ends, frozenset(seen.marked)
        )
        view, done = memoryview(seen.listed), 0
        digest = xxhash.xxh3_128()
        self._checks = []
        for count in range(max(1, len(seen) - _CHECKED + 1), len(seen) + 1):
            digest.update(view[done : seen.ends[count - 1]])
            done = seen.ends[count - 1]
            self._checks.append(_Check(count, done, digest.digest()))

    def compare_bytes(self, listed: bytes) -> _Beginning | None:
        """Returns the beginning that a list has in common with the last one, byte for byte; None where it has little or none."""
        view = memoryview(listed)
        for check in reversed(self._checks):
            if len(listed) > check.end and xxhash.xxh3_128_digest(view[: check.end]) == check.digest:
                seen = self._seen
                count = check.messages
                return _Beginning(
                    count,
                    check.end,
                    self.chains[count - 1],
                    seen.starts[:count],
                    seen.ends[:count],
                    frozenset(place for place in seen.marked if place < count),
                )
        return None

    def use_prefix(self, prefix: ViewPrefix) -> None:
        """Replaces the messages that it covers with this prefix from now on."""
        self.prefix = prefix
        self.prefix_bytes = b",".join(prefix.messages)
        self._held = {place: raw for place, raw in self._held.items() if place >= prefix.covers}
        self._drop_turns()

    def keep_turn(self, turn: InnerTurn) -> None:
        """Replays this turn in later requests, in place of the part that the client saw."""
        self.inner = {place: one for place, one in self.inner.items() if place < turn.at}
        self.inner[turn.at] = turn
        self._drop_turns()

    def _drop_turns(self) -> None:
        """Forgets turns whose message no longer stands whole in the view."""
        whole = set(self.prefix.positions)
        self.inner = {
            place: turn for place, turn in self.inner.items() if place >= self.prefix.covers or place in whole
        }

    def lacks_bytes(self, seen: SeenMessages) -> bool:
        """Returns True where a request spells an older message otherwise, and only the log knows how it was first sent."""
        pairs = enumerate(zip(seen.chains, self.chains[seen.known :], strict=False), seen.known)
        first = next((place for place, (now, before) in pairs if now != before), None)
        if first is None:
            return False
        # Chained as they are, digests do not tell which of those behind the first are spelled otherwise, too.
        places = range(max(first, self.prefix.covers), min(len(seen), self.length))
        return any(self.recall_bytes(place) is None for place in places)

    def recall_bytes(self, place: int) -> bytes | None:
        """Returns the bytes that one of the newest messages was first sent with, without marks; None for older ones."""
        return self._held.get(place) or self._recent.get(place)

    def hold(self, place: int, first: bytes) -> None:
        """Sends a message with these bytes from now on, until it is compacted."""
        self._held[place] = first

    def list_held(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """Returns the messages of these places that were first sent with other bytes, with those, without marks."""
        return [(place, self._held[place]) for place in sorted(self._held) if start <= place < end]


class Match(NamedTuple):
    """The conversation that a request belongs to, and how many of the request's messages are its first ones."""

    known: KnownConversation
    length: int

    @property
    def leaves(self) -> bool:
        """True where the request has other messages than the conversation behind those that both have."""
        return self.length < self.known.length


class KnownConversations:
    """The conversations that this process has seen, within a limit of memory; those that were used last stay.

    `forget` is called with each conversation that leaves.
    """

    def __init__(self, most_bytes: int, forget: Callable[[KnownConversation], None]) -> None:
        self._most_bytes = most_bytes
        self._forget = forget
        self._seed = secrets.token_bytes(16)
        self._known: OrderedDict[str, KnownConversation] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._by_chain: dict[bytes, KnownConversation] = {}
        self._alike: dict[bytes, list[KnownConversation]] = {}  # by the first bytes, or the first content

    def __len__(self) -> int:
        return len(self._known)

    @property
    def memory_bytes(self) -> int:
        """About how much memory all of them take."""
        return self._bytes

    def get(self, conversation: str) -> KnownConversation | None:
        """Returns the conversation with this id, where it is here."""
        return self._known.get(conversation)

    def read(self, scope: Scope, listed: bytes, hinted: str = "") -> tuple[SeenMessages, Match | None] | None:
        """Reads the messages of a request, and finds the conversation that has the most of them as its first ones.

        `hinted` is a conversation that is looked at first. None where the list is no list of messages.
        """
        for known in self._list_alike(scope, listed, hinted):
            beginning = known.compare_bytes(listed)
            if beginning is None or known.stale:
                continue
            raws = slice_messages(listed, beginning.end)
            if raws is None:
                return None
            seen = SeenMessages(scope, listed, beginning, raws, self._seed)
            match = Match(known, _extend(known, seen))
            if match.length == min(len(seen), known.length):
                return seen, self._find_longer(match, seen)
            break  # it leaves this one; another may have more of it
        raws = slice_messages(listed)
        if raws is None:
            return None
        seen = SeenMessages(scope, listed, _Beginning(), raws, self._seed)
        return seen, self.find(seen)

    def read_anew(self, seen: SeenMessages) -> SeenMessages:
        """Returns the messages of a request with the digests of all of them, as if none were known."""
        if not seen.known:
            return seen
        return SeenMessages(seen.scope, seen.listed, _Beginning(), list(seen.slice_all()), self._seed)

    def find_again(self, known: KnownConversation, seen: SeenMessages) -> Match | None:
        """Matches a request with a conversation anew, now that more of that is known; None if it has left this memory."""
        return Match(known, _extend(known, seen)) if self._known.get(known.id) is known else None

    def _find_longer(self, match: Match, seen: SeenMessages) -> Match:
        """Returns the conversation that has more of a request than one that it goes on: this may be a branch with less of it."""
        other = self._find_by_chain(seen)
        return match if other is None or other.length <= match.length else other

    def _find_by_chain(self, seen: SeenMessages) -> Match | None:
        for place in range(len(seen.chains) - 1, -1, -1):
            known = self._by_chain.get(seen.chains[place])
            if known is not None:
                return Match(known, _extend(known, seen, seen.known + place + 1))
        return None

    def find(self, seen: SeenMessages) -> Match | None:
        """Returns the conversation that has the most of these messages as its first ones; None where none has the first."""
        found = self._find_by_chain(seen)
        if found is not None or seen.known:
            return found
        # Not even its first message was seen with these bytes: a client may spell that one otherwise, too.
        first = _digest(dialect_named(seen.scope.dialect), seen.cleaned[0])
        alike = [] if first is None else self._alike.get(self._seal(seen.scope, first), [])
        matches = [Match(known, _extend(known, seen)) for known in reversed(alike)]
        return max(matches, key=lambda match: match.length, default=None)

    def _list_alike(self, scope: Scope, listed: bytes, hinted: str) -> list[KnownConversation]:
        """Returns conversations whose lists may begin with the same bytes, the likeliest first."""
        found = self._known.get(hinted)
        first = [found] if found is not None and found.scope == scope else []
        for size in _HEADS:
            if len(listed) > size:
                alike = self._alike.get(self._seal(scope, listed[:size]))
                if alike:
                    return [*first, *reversed(alike)]
        return first

    def _seal(self, scope: Scope, content: bytes) -> bytes:
        return xxhash.xxh3_128_digest(self._seed + "\0".join(scope).encode() + content)

    def keep(self, known: KnownConversation, listed: bytes = b"") -> None:
        """Keeps a conversation as it is now, as the one that was used last; others leave where there is no room.

        `listed` is the list of its last request. One that was opened anew takes the place of what was known of it before.
        """
        before = self._known.get(known.id)
        if before is not None and before is not known:
            self._unlink(before)
        for chain in known.outdated:
            if self._by_chain.get(chain) is known:
                del self._by_chain[chain]
        known.outdated.clear()
        for chain in known.chains[-_FOUND_BY:]:
            self._by_chain[chain] = known
        self._list_by_heads(known, listed)
        size = known.memory_bytes
        self._bytes += size - self._sizes.get(known.id, 0)
        self._sizes[known.id] = size
        self._known[known.id] = known
        self._known.move_to_end(known.id)
        while self._bytes > self._most_bytes and len(self._known) > 1:
            self.drop(next(iter(self._known.values())))

    def _list_by_heads(self, known: KnownConversation, listed: bytes) -> None:
        """Makes the conversation findable by its first bytes: once when it is new, and again when its list has grown past a size."""
        wanted = [known.digests[0]] if known.digests else []
        wanted += [listed[:size] for size in _HEADS if len(listed) > size]
        if len(wanted) == len(known.heads):
            return
        self._unlist(known)
        known.heads = [self._seal(known.scope, content) for content in wanted]
        for head in known.heads:
            alike = self._alike.setdefault(head, [])
            alike.append(known)
            del alike[:-_MOST_ALIKE]

    def drop(self, known: KnownConversation) -> None:
        """Forgets a conversation."""
        self._unlink(known)
        if self._known.get(known.id) is known:
            del self._known[known.id]
            self._bytes -= self._sizes.pop(known.id)
            self._forget(known)

    def _unlink(self, known: KnownConversation) -> None:
        for chain in (*known.chains, *known.outdated):
            if self._by_chain.get(chain) is known:
                del self._by_chain[chain]
        self._unlist(known)

    def _unlist(self, known: KnownConversation) -> None:
        for head in known.heads:
            left = [one for one in self._alike.get(head, ()) if one is not known]
            if left:
                self._alike[head] = left
            else:
                self._alike.pop(head, None)
        known.heads = []


def _clean(messages: list[bytes], dialect: WireDialect) -> list[bytes]:
    """Returns the messages without cache marks; those that have none are the same objects."""
    if dialect == "responses":
        return messages
    return [strip_marks(raw, dialect) if _MARK in raw else raw for raw in messages]


def _chain(last: bytes, cleaned: Sequence[bytes]) -> list[bytes]:
    digest = xxhash.xxh3_128_digest
    chains = []
    for raw in cleaned:
        last = digest(last + digest(raw))
        chains.append(last)
    return chains


def _extend(known: KnownConversation, seen: SeenMessages, length: int = 0) -> int:
    """Returns how many messages agree with the conversation; the first `length`, and those known by bytes, do."""
    read = dialect_named(seen.scope.dialect)
    length = max(length, seen.known)
    most = min(len(seen), known.length)
    while length < most:
        at = length - seen.known
        same = seen.chains[at] == known.chains[length]
        if (
            not same
            and (length >= len(known.digests) or _digest(read, seen.cleaned[at]) != known.digests[length])
            and not _is_shortened(known, seen, length, read)
        ):
            break
        length += 1
    return length


def _is_shortened(known: KnownConversation, seen: SeenMessages, place: int, dialect: Dialect) -> bool:
    """Returns True for the newest message of the last request where the client has shortened it since it was answered.

    Some clients, such as aider, send a reminder behind what the person said, and leave it out the next time. What was
    answered is the longer one. A person who takes words back sends the message again before it was answered.
    """
    at = place - seen.known
    first = known.recall_bytes(place)
    if first is None or place != known.length - 1 or at + 1 >= len(seen.cleaned):
        return False
    before, now, answer = (_read(dialect, raw) for raw in (first, seen.cleaned[at], seen.cleaned[at + 1]))
    return before is not None and now is not None and answer is not None and is_shortened(before, now, answer)


def is_shortened(before: Message, now: Message, answer: Message) -> bool:
    """Returns True where a message of the user has lost its end since it was answered."""
    return before.role is Role.USER and answer.role is Role.ASSISTANT and extends(before, now)


def _digest(dialect: Dialect, raw: bytes) -> bytes | None:
    """Returns the digest of what a message says; None where it cannot be read."""
    message = _read(dialect, raw)
    return None if message is None else content_digest(message)


def _read(dialect: Dialect, raw: bytes) -> Message | None:
    try:
        return dialect.decode(parse_json(raw))
    except (ValueError, InputError):
        return None
