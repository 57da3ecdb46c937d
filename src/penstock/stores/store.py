"""The store of sessions, in portable SQL over any `Database`, and `open_store`.

Calls are synchronous and each is one transaction, durable when it returns. Async code runs them in a thread.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from penstock.config import data_folder
from penstock.errors import SettingsError, StoreError, StoreUnavailable
from penstock.recall.ranking import Wish
from penstock.stores.checks import find_faults, mend
from penstock.stores.compactions import (
    commit_compaction,
    find_newest,
    list_compactions,
    list_facts,
    pin_message,
    undo_newest,
)
from penstock.stores.conversations import (
    append_messages,
    branch_off,
    create_conversation,
    end_session,
    find_longest_known,
    follow_continuations,
    list_children,
    list_conversations,
    read_positions,
    read_stretch,
    update_session,
)
from penstock.stores.deletion import delete_conversations, expire_conversation, list_due
from penstock.stores.encoding import require_moment
from penstock.stores.index import purge_some
from penstock.stores.indexing import count_unembedded, count_waiting, embed_some, index_some
from penstock.stores.keeping import book_usage, find_note, find_result, keep_note, keep_result, list_usage
from penstock.stores.rows import find_session, read_ids, read_log_tip
from penstock.stores.schema import migrate
from penstock.stores.searching import SearchQuery, SearchScope, find_shown_summaries, search
from penstock.stores.values import StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from penstock.recall.embedding import Embedder
    from penstock.recall.history import Finding
    from penstock.stores.database import Database
    from penstock.stores.values import (
        Appended,
        CompactionRow,
        ConversationRow,
        Expired,
        FactRow,
        LogEntry,
        LogTip,
        NewCompaction,
        NewMessage,
        NewSession,
        SessionRow,
        StoredResult,
        UsageRow,
    )

__all__ = ["Store", "open_store"]


_log = logging.getLogger("penstock")
_MUCH = 8_000  # passages: the room that they had is worth having back at once


class Store:
    """A place for sessions, in a database. Raises StoreError; where it raises, nothing was changed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._words = database.words
        try:
            migrate(database)
        except StoreError:
            database.close()
            raise

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return self._database.url

    @property
    def database(self) -> Database:
        """What it stands on, for what has tables of its own beside the store's."""
        return self._database

    def close(self) -> None:
        """Let go of files and connections."""
        self._database.close()

    # Sessions.

    def create(self, session: NewSession) -> SessionRow:
        """A new conversation, with its first session."""
        with self._database.writing() as do:
            return create_conversation(do, session)

    def branch(self, session_id: str, length: int, new: NewSession) -> SessionRow:
        """A conversation that shares the first `length` messages of another one's log and goes its own way."""
        with self._database.writing() as do:
            return branch_off(do, session_id, length, new, self._words.hold_session)

    def session(self, session_id: str) -> SessionRow:
        """The session. Raises UnknownSession."""
        with self._database.reading() as do:
            return find_session(do, session_id)[0]

    def tip(self, session_id: str) -> SessionRow:
        """The session that the conversation goes on in: compression children are followed, nothing else."""
        with self._database.reading() as do:
            row, _, conversation = find_session(do, session_id)
            return follow_continuations(do, row, conversation)

    def children(self, session_id: str) -> Sequence[SessionRow]:
        """Sessions that continue this one, branched off or work for it, oldest first."""
        with self._database.reading() as do:
            return list_children(do, session_id)

    def list(self, *, limit: int = 50, offset: int = 0) -> Sequence[ConversationRow]:
        """Conversations, the one that was used last first; sub-agents' are left out."""
        with self._database.reading() as do:
            return list_conversations(do, limit, offset)

    def end(self, session_id: str, reason: str, at: float) -> None:
        """End a session; one that has ended stays as it is."""
        with self._database.writing() as do:
            end_session(do, session_id, reason, at, self._words.hold_session)

    def update(self, session_id: str, *, title: str | None = None, model: str | None = None) -> None:
        """Give a session another title or model."""
        with self._database.writing() as do:
            update_session(do, session_id, title, model, self._words.hold_session)

    # The log.

    def append(self, session_id: str, messages: Sequence[NewMessage], after: str, at: float) -> Appended:
        """Append to the log whose last message has the id `after`. Raises StoreConflict where it has another."""
        require_moment(at)
        with self._database.writing() as do:
            return append_messages(do, session_id, messages, after, at, self._words)

    def log_tip(self, session_id: str) -> LogTip:
        """The end of the log of the session's conversation."""
        with self._database.reading() as do:
            _, _, conversation = find_session(do, session_id)
            return read_log_tip(do, conversation)

    def read(self, session_id: str, positions: Sequence[int]) -> Sequence[LogEntry]:
        """The messages at these positions, in their order; positions that are not there are left out."""
        with self._database.reading() as do:
            return read_positions(do, session_id, positions)

    def read_from(self, session_id: str, start: int, limit: int | None = None) -> Sequence[LogEntry]:
        """The messages from a position on."""
        with self._database.reading() as do:
            return read_stretch(do, session_id, start, limit)

    def ids(self, session_id: str) -> Sequence[str]:
        """The ids of all messages of the log."""
        with self._database.reading() as do:
            _, _, conversation = find_session(do, session_id)
            return read_ids(do, conversation)

    def known_prefix(self, ids: Sequence[str]) -> tuple[str, int] | None:
        """The session whose log begins with the most of these ids, and how many; None where nobody knows the first."""
        with self._database.reading() as do:
            return find_longest_known(do, ids)

    # Compactions.

    def commit(self, session_id: str, new: NewCompaction) -> CompactionRow:
        """Commit a compaction, end its session and open the continuation. Raises StoreConflict where it is late."""
        with self._database.writing() as do:
            return commit_compaction(do, session_id, new, self._words)

    def compactions(self, session_id: str, *, undone: bool = False) -> Sequence[CompactionRow]:
        """The compactions that hold, oldest first; with `undone`, those that were taken back too."""
        with self._database.reading() as do:
            return list_compactions(do, session_id, undone=undone)

    def newest_compaction(self, session_id: str) -> CompactionRow | None:
        """The compaction whose view is the present one, None for the bare log."""
        with self._database.reading() as do:
            _, _, conversation = find_session(do, session_id)
            return find_newest(do, conversation)

    def facts(self, session_id: str) -> Sequence[FactRow]:
        """What the ledger held of messages when they left the view, in their order: of the compactions that hold."""
        with self._database.reading() as do:
            return list_facts(do, session_id)

    def undo(self, session_id: str, at: float) -> CompactionRow | None:
        """Take the newest compaction back: the view before it is the present one. None where there is none."""
        require_moment(at)
        with self._database.writing() as do:
            return undo_newest(do, session_id, at, self._words)

    def pin(self, session_id: str, position: int, *, pinned: bool = True) -> None:
        """Pin a message of the log, or unpin it."""
        with self._database.writing() as do:
            pin_message(do, session_id, position, self._words.hold_session, pinned=pinned)

    def pins(self, session_id: str) -> frozenset[int]:
        """The positions of pinned messages."""
        with self._database.reading() as do:
            _, _, conversation = find_session(do, session_id)
            return frozenset(
                row[0] for row in do.rows("SELECT position FROM pins WHERE conversation = ?", conversation)
            )

    # Results, usage, notes.

    def put_result(self, result: StoredResult) -> None:
        """Keep a tool result; the same id again changes nothing."""
        with self._database.writing() as do:
            keep_result(do, result, self._words.hold_session)

    def result(self, result_id: str, *, session_id: str | None = None) -> StoredResult | None:
        """A tool result, or None. With a session, only one that its conversation has, or shares with the one that does."""
        with self._database.reading() as do:
            return find_result(do, result_id, session_id)

    def book(self, row: UsageRow) -> None:
        """Take down what a request used."""
        self.book_all([row])

    def book_all(self, rows: Sequence[UsageRow]) -> None:
        """Take down what many requests used, all of them or none."""
        with self._database.writing() as do:
            book_usage(do, rows, self._words.hold_session)

    def usage(self, *, session_id: str | None = None, since: float = 0.0) -> Sequence[UsageRow]:
        """What requests used, oldest first: of a conversation, or of all."""
        with self._database.reading() as do:
            return list_usage(do, session_id, since)

    def put_note(self, name: str, key: str, value: bytes) -> None:
        """Keep something small by name and key: a calibration, a learned window, notes on a part.

        What belongs to a conversation has a session's id or a message's as its key, or such an id, `/` and more: it
        goes when they are deleted.
        """
        with self._database.writing() as do:
            keep_note(do, name, key, value)

    def note(self, name: str, key: str) -> bytes | None:
        """What is kept under that name and key."""
        with self._database.reading() as do:
            return find_note(do, name, key)

    # Recall.

    def index(self, limit: int | None = None, *, embedder: Embedder | None = None) -> int:
        """Index what was written since the last time, or about so much of it; how many messages, summaries and results.

        A search does so by itself. Whoever wrote much may call it when there is time. With an embedder they get vectors,
        too, and count once more for these.
        """
        done = 0
        while limit is None or done < limit:
            with self._database.writing() as do:
                indexed = index_some(do, self._words.hold_index)
                some = indexed.sources
                if not some and embedder is not None:
                    some = embed_some(do, self._words.hold_index, embedder)
            done += some
            if not some:
                break
            if indexed.anew >= _MUCH:
                with suppress(
                    StoreUnavailable
                ):  # what was indexed is, and the server does it later by itself
                    self._database.reclaim()
        return done

    def unindexed(self, *, embedder: Embedder | None = None) -> int:
        """How many messages, summaries and results the next search indexes first."""
        with self._database.reading() as do:
            return count_waiting(do) + (count_unembedded(do, embedder) if embedder is not None else 0)

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
        if self.unindexed(embedder=embedder):
            self.index(embedder=embedder)
        with self._database.reading() as do:
            scope = None
            if session_id is not None:
                _, _, conversation = find_session(do, session_id)
                scope = SearchScope(conversation, frozenset(hidden), find_shown_summaries(do, conversation))
            asked = SearchQuery(query, wish or Wish(), scope, redact, embedder)
            return search(do, asked)

    # Upkeep.

    def delete(self, session_id: str) -> int:
        """Delete the session's conversation, its sub-agents' and all that only they hold. How many messages went.

        Branches keep what they share with it. The bytes are gone from the file, too.
        """
        with self._database.writing() as do:
            if self._words.hold_all:
                do.run(self._words.hold_all)
            _, _, conversation = find_session(do, session_id)
            gone = delete_conversations(do, conversation)
        self._scrub()
        return gone

    def due(self, before: float) -> Sequence[Expired]:
        """Conversations that nobody has used since that time, the oldest first: what `expire` would delete."""
        with self._database.reading() as do:
            return list_due(do, require_moment(before))

    def expire(self, before: float) -> Sequence[Expired]:
        """Delete conversations that nobody has used since that time, as `delete` does; what went."""
        gone: list[Expired] = []
        for due in self.due(before):
            with self._database.writing() as do:
                if self._words.hold_all:
                    do.run(self._words.hold_all)
                expired = expire_conversation(do, due.id, before)
            if expired is not None:
                gone.append(expired)
        if gone:
            self._scrub()
        return gone

    def _scrub(self) -> None:
        """Leave nothing of what was deleted: block by block of the search index, so that others write in between.

        The deletion stands. What cannot be done now, because somebody holds the store for long, is done by the next who index
        or delete.
        """
        try:
            while self._purge_one():
                pass
            self._database.scrub()
        except StoreError as error:
            _log.warning("what was deleted has not left the files of the store yet: %s", error)

    def _purge_one(self) -> bool:
        with self._database.writing() as do:
            for statement in self._words.hold_index:
                do.run(statement)
            return purge_some(do)

    def faults(self) -> Sequence[StoreFault]:
        """Everything that is not as it should be: every id is worked out anew, every reference looked up."""
        damage = [StoreFault("database", text) for text in self._database.damage()]
        if damage:  # rows read from damaged pages would show faults that are none
            return damage
        with self._database.reading() as do:
            return [finding.fault for finding in find_faults(do)]

    def repair(self) -> Sequence[StoreFault]:
        """Mend what can be mended; returns what was."""
        with self._database.writing() as do:
            if self._words.hold_all:
                do.run(self._words.hold_all)
            return mend(do)


# A store by its address.

_FILE = "sqlite:///"


def open_store(url: str | None = None, *, wait_seconds: float = 10.0) -> Store:
    """The store at `sqlite:///FILE` (`sqlite:////tmp/x.db` for an absolute path), `postgresql://…` or `memory:`.

    Without an address, `sessions.db` in the user's data folder. The file is made where it is not there, for this user
    alone; the schema is brought up to date. `wait_seconds` is how long somebody else's lock is waited for. Raises
    SettingsError for an address that is none of these, StoreError for a store that cannot be opened.
    """
    if url is None:
        return _sqlite(data_folder() / "sessions.db", wait_seconds)
    if url == "memory:":
        return _sqlite(None, wait_seconds)
    if url.startswith(_FILE) and url != _FILE:
        return _sqlite(Path(unquote(url.removeprefix(_FILE))), wait_seconds)
    if url.startswith(("postgresql://", "postgres://")):
        from penstock.stores.postgres import PostgresDatabase  # noqa: PLC0415 - an extra

        return Store(PostgresDatabase(url, wait_seconds))
    if not {":", "@"} & set(url) and {"/", "."} & set(url):  # a path; an address may hold a password
        raise SettingsError(f"{url!r} is no address of a store; for a file use {_FILE}{quote(url)}")
    raise SettingsError("this is no address of a store; use sqlite:///FILE, postgresql://… or memory:")


def _sqlite(path: Path | None, wait_seconds: float) -> Store:
    from penstock.stores.sqlite import SqliteDatabase  # noqa: PLC0415 - SQLite is loaded when a store is opened

    return Store(SqliteDatabase(path, wait_seconds))
