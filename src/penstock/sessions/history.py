"""The history of a stored conversation: searched in the store, and read by handle. Messages in the view are left out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.handles import HandleKind, explain_range, name_message, parse_handle
from penstock.conversation.pairing import calls_by_id
from penstock.conversation.view import Handoff, Kept, fold
from penstock.conversation.wire import parse_json
from penstock.errors import UnknownHandle
from penstock.recall.history import HistoryPlace
from penstock.recall.originals import write_original, write_originals, write_title
from penstock.recall.passages import cut_passages
from penstock.recall.query import find_subject, find_values
from penstock.sessions.pins import stands_whole
from penstock.sessions.stored_view import read_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.conversation.dialects.base import Dialect
    from penstock.conversation.message import Message, ToolCall
    from penstock.recall.embedding import Embedder
    from penstock.recall.history import Finding
    from penstock.recall.ranking import Wish
    from penstock.stores.store import Store
    from penstock.stores.values import CompactionRow, LogEntry, SessionRow, StoredResult
    from penstock.writing.entities import EntityState

__all__ = ["SessionHistory"]

_BACK = 64  # messages before a result among which its call is looked for
_LATEST = 8  # messages of the log that are read first for what was said last
_ID_CHARACTERS = 8  # of a conversation's id, before the handle of something in it
_OF_OTHERS = 3  # one finding in so many is left to other conversations
_WIDER = 6  # times as many findings are asked of all conversations: many may be of this one


class _SeenView(msgspec.Struct, frozen=True, gc=False):
    """The values in a view: by the key of the compaction that it rests on, and the length of the log that it reaches to."""

    compaction: int = -1
    length: int = 0
    values: frozenset[str] = frozenset()


class SessionHistory:
    """A conversation in a store, at its tip, as an agent sees it whose prompt holds the view.

    Only the values in the view are kept between calls, so a search after a turn reads only what that turn added. With an
    embedder, it also finds what is near in meaning. With `others`, it also searches and reads the other conversations
    of the same owner: `3f9a2c41/m12` is m12 of the one whose id begins so.
    """

    def __init__(
        self,
        store: Store,
        session_id: str,
        count: Callable[[str], int],
        redact: Callable[[str], str],
        embedder: Embedder | None = None,
        *,
        others: bool = False,
    ) -> None:
        self._store = store
        self.session_id = session_id
        self._count = count
        self._redact = redact
        self._embedder = embedder
        self._others = others
        self._seen = _SeenView()

    def search(self, query: str, wish: Wish) -> Sequence[Finding]:
        """Returns the best findings among what does not stand whole in the view, ranked by what the view talks about."""
        row = self._store.session(self.session_id)
        newest, length = self._store.newest_compaction(row.id), self._store.log_tip(row.id).length
        known = wish.known | self._find_values(row, newest, length)
        about = wish.surroundings or find_subject(self._read_back(row, newest, length))
        wish = msgspec.structs.replace(wish, known=known, surroundings=about, now=wish.now or time.time())
        own = self._store.search(
            query,
            wish,
            session_id=self.session_id,
            hidden=_find_whole(newest, length),
            redact=self._redact,
            embedder=self._embedder,
        )
        if not self._others:
            return own
        others = self._search_others(query, wish)
        room = max(wish.hits - len(own), wish.hits // _OF_OTHERS)
        return [*own[: wish.hits - min(room, len(others))], *others[:room]]

    def count_unsearched(self) -> int:
        """Returns how many messages of the conversation a search misses so far: those in the view are not meant."""
        newest = self._store.newest_compaction(self.session_id)
        length = self._store.log_tip(self.session_id).length
        return self._store.count_unsearched(self.session_id, _find_whole(newest, length))

    def describe(self, handle: str) -> HistoryPlace:
        """Describes the message, node or summary that the handle names. Raises UnknownHandle."""
        if (other := self._find_other(handle)) is not None:
            history, inner = other
            place = history.describe(inner)
            conversation = handle.rpartition("/")[0]
            inside = tuple(f"{conversation}/{one}" for one in place.inside)
            return msgspec.structs.replace(place, handle=handle, inside=inside, in_view=False)
        asked = parse_handle(handle)
        if asked.kind is HandleKind.MESSAGE:
            return self._describe_message(asked.text, asked.number - 1)
        if asked.kind is HandleKind.SUMMARY:
            return self._describe_summary(asked.text, self._compaction(asked.text, asked.number))
        if asked.kind is HandleKind.HANDOFF:
            return self._describe_handoff(asked.text)
        return self._describe_result(asked.text)

    def text(self, handle: str) -> str:
        """Returns the full text of the message, node or summary that the handle names. Raises UnknownHandle.

        The text of another conversation is redacted: the agent may not have seen it before.
        """
        if (other := self._find_other(handle)) is not None:
            history, inner = other
            return self._redact(history.text(inner))
        asked = parse_handle(handle)
        if asked.kind is HandleKind.MESSAGE:
            return write_original(self._message(self._entry(asked.text, asked.number - 1)))
        if asked.kind is HandleKind.SUMMARY:
            return _summary_text(self._compaction(asked.text, asked.number))
        if asked.kind is HandleKind.HANDOFF:
            return write_originals(
                (entry.position + 1, entry.role, write_original(self._message(entry)))
                for entry in self.read_covered()
            )
        return self._result(asked.text).text

    def entities(self) -> Sequence[EntityState]:
        """Returns the present state of each file, command, record and person, the newest first."""
        return self._store.entities(self.session_id, redact=self._redact)

    def read_covered(self) -> Sequence[LogEntry]:
        """Returns the messages that the handoff in the view stands for. Raises UnknownHandle if there is no handoff."""
        newest = self._store.newest_compaction(self.session_id)
        covers = _find_covered(newest) if newest is not None else []
        entries = self._store.read(self.session_id, covers)
        if not entries:
            raise _unknown(HandleKind.HANDOFF.value)
        return entries

    # The owner's other conversations.

    def _search_others(self, query: str, wish: Wish) -> list[Finding]:
        """Returns findings in the owner's other conversations, by handles that name these, but for what this one shares."""
        row = self._store.session(self.session_id)
        found = self._store.for_owner(row.owner).search(
            query,
            msgspec.structs.replace(wish, hits=_WIDER * wish.hits, surroundings=""),
            redact=self._redact,
            embedder=self._embedder,
        )
        named = []
        for one in found:
            if one.session == row.conversation or self._shares(one):
                continue
            short = one.session[:_ID_CHARACTERS]
            handles = tuple(f"{short}/{handle}" for handle in one.handles)
            title = self._store.tip(one.session).title
            named.append(msgspec.structs.replace(one, handles=handles, session=short, title=title))
        return named

    def _shares(self, finding: Finding) -> bool:
        """Returns True if the best message of a finding is in this conversation, too: one branched off from the other."""
        asked = parse_handle(finding.handles[0])
        if asked.kind is not HandleKind.MESSAGE:
            return False
        theirs = self._store.read(finding.session, [asked.number - 1])
        ours = self._store.read(self.session_id, [asked.number - 1])
        return [entry.id for entry in theirs] == [entry.id for entry in ours]

    def _find_other(self, handle: str) -> tuple[SessionHistory, str] | None:
        """Returns the history of another conversation that a handle names, and the handle in it; None for one of our own.

        Raises UnknownHandle.
        """
        prefix, slash, inner = handle.rpartition("/")
        if not (slash and self._others):
            return None
        store = self._store.for_owner(self._store.session(self.session_id).owner)
        found = {row.conversation: row for row in store.find(prefix)} if prefix else {}
        if len(found) != 1:
            raise _unknown(handle)
        (row,) = found.values()
        tip = store.tip(row.id)
        return SessionHistory(store, tip.id, self._count, self._redact, self._embedder), inner

    # What stands in this one.

    def _describe_message(self, handle: str, position: int) -> HistoryPlace:
        entry = self._entry(handle, position)
        message = self._message(entry)
        newest = self._store.newest_compaction(self.session_id)
        return HistoryPlace(
            handle=handle,
            kind="message",
            turn=self._turn(position),
            role=entry.role,
            title=write_title(message, self._calls_before(position), self._redact),
            characters=len(write_original(message)),
            tokens=entry.tokens,
            at=entry.created,
            in_view=stands_whole(newest.compaction if newest is not None else None, position),
        )

    def _describe_summary(self, handle: str, row: CompactionRow) -> HistoryPlace:
        covers = _find_covered(row)
        text = _summary_text(row)
        newest = self._store.newest_compaction(self.session_id)
        return HistoryPlace(
            handle=handle,
            kind="summary",
            turn=covers[0] + 1 if covers else 0,
            role="",
            title=f"summary of {len(covers):,} messages",
            characters=len(text),
            tokens=self._count(text),
            at=row.created,
            in_view=newest is not None and newest.key == row.key,
            inside=tuple(name_message(place + 1) for place in covers),
        )

    def _describe_handoff(self, handle: str) -> HistoryPlace:
        covered, text = self.read_covered(), self.text(handle)
        return HistoryPlace(
            handle=handle,
            kind="summary",
            turn=covered[0].position + 1,
            role="",
            title=f"the {len(covered):,} messages that the handoff stands for",
            characters=len(text),
            tokens=sum(entry.tokens for entry in covered),
            inside=tuple(name_message(entry.position + 1) for entry in covered),
        )

    def _describe_result(self, handle: str) -> HistoryPlace:
        result = self._result(handle)
        text = result.text
        first = next(iter(self._redact(text).split("\n")), "")
        return HistoryPlace(
            handle=handle,
            kind="result",
            turn=0,
            role="tool",
            title=f"[{result.tool}] {first}"[:120],
            characters=len(text),
            tokens=self._count(text),
            at=result.created,
        )

    def _entry(self, handle: str, position: int) -> LogEntry:
        entries = self._store.read(self.session_id, [position])
        if not entries:
            length = self._store.log_tip(self.session_id).length
            raise UnknownHandle(f"{_unknown(handle)}; {explain_range(length)}")
        return entries[0]

    def _message(self, entry: LogEntry) -> Message:
        return self._dialect().decode(parse_json(entry.raw))

    def _turn(self, position: int) -> int:
        """Returns the number of the message that begins the turn."""
        entries = self._store.read_from(self.session_id, max(0, position - _BACK), min(position, _BACK) + 1)
        return next((entry.position + 1 for entry in reversed(entries) if entry.role != "tool"), position + 1)

    def _calls_before(self, position: int) -> dict[str, ToolCall]:
        entries = self._store.read_from(self.session_id, max(0, position - _BACK), min(position, _BACK))
        return calls_by_id(decode_all(self._dialect(), [parse_json(entry.raw) for entry in entries]))

    def _compaction(self, handle: str, number: int) -> CompactionRow:
        rows = self._store.compactions(self.session_id, undone=True)
        if number > len(rows):
            raise _unknown(handle)
        return rows[number - 1]

    def _result(self, handle: str) -> StoredResult:
        result = self._store.result(handle, session_id=self.session_id)
        if result is None:
            raise _unknown(handle)
        return result

    def _dialect(self) -> Dialect:
        return dialect_named(self._store.session(self.session_id).dialect)

    def _read_back(self, row: SessionRow, newest: CompactionRow | None, length: int) -> Iterator[Message]:
        """Yields the messages of the view from the last one back. The latest words are mostly among the newest few of the log."""
        dialect = dialect_named(row.dialect)
        latest = self._store.read_from(row.id, max(_find_settled(newest), length - _LATEST), _LATEST)
        for entry in reversed(latest):
            yield dialect.decode(parse_json(entry.raw))
        view = read_view(self._store, row, newest.compaction if newest is not None else None, length)
        for wire in reversed(view.wires[-_BACK : len(view.wires) - len(latest)]):
            yield dialect.decode(wire)

    def _find_values(self, row: SessionRow, newest: CompactionRow | None, length: int) -> frozenset[str]:
        """Returns every value in the view. Messages that were read before are not read again until a compaction."""
        dialect = dialect_named(row.dialect)
        compaction = newest.key if newest is not None else 0
        seen = self._seen
        if seen.compaction == compaction and _find_settled(newest) <= seen.length <= length:
            entries = self._store.read_from(row.id, seen.length, length - seen.length)
            wires, values = [parse_json(entry.raw) for entry in entries], seen.values
        else:
            view = read_view(self._store, row, newest.compaction if newest is not None else None, length)
            wires, values = view.wires, frozenset()
        if wires:
            messages = map(dialect.decode, wires)
            values |= find_values(passage.text for one in messages for passage in cut_passages(one))
        self._seen = _SeenView(compaction, length, values)
        return values


def _find_settled(newest: CompactionRow | None) -> int:
    """Returns the position from which on the view is the log: a handoff may stand inside the first message behind it."""
    return newest.compaction.length + 1 if newest is not None else 0


def _summary_text(row: CompactionRow) -> str:
    return "\n".join(piece.summary.text for piece in row.compaction.pieces if isinstance(piece, Handoff))


def _find_whole(newest: CompactionRow | None, length: int) -> set[int]:
    """Returns the positions of the messages that stand whole in the view."""
    pieces = fold(length, newest.compaction if newest is not None else None)
    return {piece.position for piece in pieces if isinstance(piece, Kept)}


def _find_covered(row: CompactionRow) -> list[int]:
    """Returns the positions of the messages that the handoffs of a compaction stand for, in order."""
    handoffs = [piece for piece in row.compaction.pieces if isinstance(piece, Handoff)]
    return sorted({place for piece in handoffs for place in piece.covers})


def _unknown(handle: str) -> UnknownHandle:
    return UnknownHandle(f"there is no original {handle!r} in this conversation")
