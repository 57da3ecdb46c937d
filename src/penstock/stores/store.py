"""The store of sessions, in portable SQL over any `Database`, and `open_store`.

Calls are synchronous and each is one transaction, durable when it returns. Async code runs them in a thread.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from penstock._log import log
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
from penstock.stores.entities import add_sightings, count_unread, read_sightings
from penstock.stores.index import purge_some
from penstock.stores.indexing import count_unembedded, count_waiting, embed_some, index_some
from penstock.stores.keeping import book_usage, find_note, find_result, keep_note, keep_result, list_usage
from penstock.stores.rows import find_session, read_ids, read_log_tip
from penstock.stores.schema import migrate
from penstock.stores.searching import SearchQuery, SearchScope, find_shown_summaries, search
from penstock.stores.values import StoreFault
from penstock.writing.entities import fold_entities

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from penstock.recall.embedding import Embedder
    from penstock.recall.history import Finding
    from penstock.stores.database import Database, Transaction
    from penstock.stores.values import (
        AppendResult,
        CompactionRow,
        ConversationRow,
        ExpiredConversation,
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
    from penstock.writing.entities import EntityState

__all__ = ["Store", "open_store", "require_store"]


_FILE = "sqlite:///"
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
        """The address, without a password."""
        return self._database.url

    @property
    def database(self) -> Database:
        """The database below, for code that has tables of its own beside the store's."""
        return self._database

    def close(self) -> None:
        """Closes files and connections."""
        self._database.close()

    # Sessions.

    def create(self, session: NewSession) -> SessionRow:
        """Creates a conversation, with its first session."""
        with self._database.writing() as do:
            return create_conversation(do, session)

    def branch(self, session_id: str, length: int, new: NewSession) -> SessionRow:
        """Creates a conversation that shares the first `length` messages of another one's log and goes its own way."""
        with self._database.writing() as do:
            return branch_off(do, session_id, length, new, self._words.hold_session)

    def session(self, session_id: str) -> SessionRow:
        """Returns the session. Raises UnknownSession."""
        with self._database.reading() as do:
            return find_session(do, session_id)[0]

    def tip(self, session_id: str) -> SessionRow:
        """Returns the session that the conversation goes on in.

        Continuations are followed, branches and sub-agents are not.
        """
        with self._database.reading() as do:
            row, _, conversation = find_session(do, session_id)
            return follow_continuations(do, row, conversation)

    def children(self, session_id: str) -> Sequence[SessionRow]:
        """Returns sessions that continue this one, branched off or work for it, oldest first."""
        with self._database.reading() as do:
            return list_children(do, session_id)

    def list(self, *, limit: int = 50, offset: int = 0) -> Sequence[ConversationRow]:
        """Returns conversations, the one that was used last first; sub-agents' are left out."""
        with self._database.reading() as do:
            return list_conversations(do, limit, offset)

    def end(self, session_id: str, reason: str, at: float) -> None:
        """Ends a session; one that has ended stays as it is."""
        with self._database.writing() as do:
            end_session(do, session_id, reason, at, self._words.hold_session)

    def update(self, session_id: str, *, title: str | None = None, model: str | None = None) -> None:
        """Gives a session another title or model."""
        with self._database.writing() as do:
            update_session(do, session_id, title, model, self._words.hold_session)

    # The log.

    def append(self, session_id: str, messages: Sequence[NewMessage], after: str, at: float) -> AppendResult:
        """Appends to the log whose last message has the id `after`.

        Raises StoreConflict where it has another.
        """
        require_moment(at)
        with self._database.writing() as do:
            return append_messages(do, session_id, messages, after, at, self._words)

    def log_tip(self, session_id: str) -> LogTip:
        """Returns the end of the log of the session's conversation."""
        with self._database.reading() as do:
            _, _, conversation = find_session(do, session_id)
            return read_log_tip(do, conversation)

    def read(self, session_id: str, positions: Sequence[int]) -> Sequence[LogEntry]:
        """Returns the messages at these positions, in their order.

        Positions that are not there are left out.
        """
        with self._database.reading() as do:
            return read_positions(do, session_id, positions)

    def read_from(self, session_id: str, start: int, limit: int | None = None) -> Sequence[LogEntry]:
        """Returns the messages from a position on."""
        with self._database.reading() as do:
            return read_stretch(do, session_id, start, limit)

    def ids(self, session_id: str) -> Sequence[str]:
        """Returns the ids of all messages of the log."""
        with self._database.reading() as do:
            _, _, conversation = find_session(do, session_id)
            return read_ids(do, conversation)

    def known_prefix(self, ids: Sequence[str]) -> tuple[str, int] | None:
        """Returns the session whose log begins with the most of these ids, and how many.

        Returns None where no log has the first.
        """
        with self._database.reading() as do:
            return find_longest_known(do, ids)

    # Compactions.

    def commit(self, session_id: str, new: NewCompaction) -> CompactionRow:
        """Commits a compaction, ends its session and opens the continuation.

        Raises StoreConflict where it is late.
        """
        with self._database.writing() as do:
            return commit_compaction(do, session_id, new, self._words)

    def compactions(self, session_id: str, *, undone: bool = False) -> Sequence[CompactionRow]:
        """Returns the compactions that hold, oldest first; with `undone`, those that were taken back too."""
        with self._database.reading() as do:
            return list_compactions(do, session_id, undone=undone)

    def newest_compaction(self, session_id: str) -> CompactionRow | None:
        """Returns the compaction whose view is the present one, None for the bare log."""
        with self._database.reading() as do:
            _, _, conversation = find_session(do, session_id)
            return find_newest(do, conversation)

    def facts(self, session_id: str) -> Sequence[FactRow]:
        """Returns the facts that compactions took from the ledger, in the order of their messages.

        Facts of a compaction that was taken back are left out.
        """
        with self._database.reading() as do:
            return list_facts(do, session_id)

    def undo(self, session_id: str, at: float) -> CompactionRow | None:
        """Takes the newest compaction back: the view before it is the present one.

        Returns None where there is none.
        """
        require_moment(at)
        with self._database.writing() as do:
            return undo_newest(do, session_id, at, self._words)

    def pin(self, session_id: str, position: int, *, pinned: bool = True) -> None:
        """Pins a message of the log, or unpins it."""
        with self._database.writing() as do:
            pin_message(do, session_id, position, self._words.hold_session, pinned=pinned)

    def pins(self, session_id: str) -> frozenset[int]:
        """Returns the positions of pinned messages."""
        with self._database.reading() as do:
            _, _, conversation = find_session(do, session_id)
            return frozenset(
                row[0] for row in do.rows("SELECT position FROM pins WHERE conversation = ?", conversation)
            )

    # Results, usage, notes.

    def put_result(self, result: StoredResult) -> None:
        """Keeps a tool result; the same id again changes nothing."""
        with self._database.writing() as do:
            keep_result(do, result, self._words.hold_session)

    def result(self, result_id: str, *, session_id: str | None = None) -> StoredResult | None:
        """Returns a tool result, or None.

        With a session, the result must belong to its conversation or to a message that this one shares.
        """
        with self._database.reading() as do:
            return find_result(do, result_id, session_id)

    def book(self, row: UsageRow) -> None:
        """Records what a request used."""
        self.book_all([row])

    def book_all(self, rows: Sequence[UsageRow]) -> None:
        """Records what many requests used, all of them or none."""
        with self._database.writing() as do:
            book_usage(do, rows, self._words.hold_session)

    def usage(self, *, session_id: str | None = None, since: float = 0.0) -> Sequence[UsageRow]:
        """Returns what requests used, oldest first: of a conversation, or of all."""
        with self._database.reading() as do:
            return list_usage(do, session_id, since)

    def put_note(self, name: str, key: str, value: bytes) -> None:
        """Keeps something small by name and key: a calibration, a learned window, notes on a part.

        What belongs to a conversation has a session's id or a message's as its key, or such an id, `/` and
        more: it goes when they are deleted.
        """
        with self._database.writing() as do:
            keep_note(do, name, key, value)

    def note(self, name: str, key: str) -> bytes | None:
        """Returns what is kept under that name and key."""
        with self._database.reading() as do:
            return find_note(do, name, key)

    # Entities.

    def entities(self, session_id: str, *, redact: Callable[[str], str]) -> Sequence[EntityState]:
        """Returns what is known now of each file, command, record and person in the session's log, the newest first.

        Messages that were logged since the last time are looked at first; what they say is kept, redacted.
        """
        with self._database.reading() as do:
            _, _, conversation = find_session(do, session_id)
            start = 0 if count_unread(do, conversation) else None
        while start is not None:
            with self._database.writing() as do:
                for statement in self._words.hold_index:  # one process at a time, and no deletion meanwhile
                    do.run(statement)
                _, _, conversation = find_session(do, session_id)
                start = add_sightings(do, conversation, redact, start)
        with self._database.reading() as do:
            _, _, conversation = find_session(do, session_id)
            return fold_entities(read_sightings(do, conversation))

    # Recall.

    def index(self, limit: int | None = None, *, embedder: Embedder | None = None) -> int:
        """Indexes what was written since the last time, or about `limit` messages of it.

        Returns how many messages, summaries and results that were. A search does this first, by itself; a
        caller that wrote much may do so when there is time. With an embedder they get vectors, too, and count
        once more for these.
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
                # What was indexed stays so where this fails, and the server does it later by itself.
                with suppress(StoreUnavailable):
                    self._database.reclaim()
        return done

    def unindexed(self, *, embedder: Embedder | None = None) -> int:
        """Returns how many messages, summaries and results the next search indexes first."""
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
        """Returns the best findings in all conversations, or in that of a session and all that its log shares.

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
        """Deletes the session's conversation, its sub-agents' and all that only they hold.

        Returns how many messages went. Branches keep what they share with it. The bytes are gone from the
        file, too.
        """
        with self._writing_alone() as do:
            _, _, conversation = find_session(do, session_id)
            gone = delete_conversations(do, conversation)
        self._scrub()
        return gone

    def due(self, before: float) -> Sequence[ExpiredConversation]:
        """Returns conversations that were not used since that time, the oldest first.

        These are what `expire` would delete.
        """
        with self._database.reading() as do:
            return list_due(do, require_moment(before))

    def expire(self, before: float) -> Sequence[ExpiredConversation]:
        """Deletes conversations that were not used since that time, as `delete` does, and returns what went."""
        gone: list[ExpiredConversation] = []
        for due in self.due(before):
            with self._writing_alone() as do:
                expired = expire_conversation(do, due.id, before)
            if expired is not None:
                gone.append(expired)
        if gone:
            self._scrub()
        return gone

    @contextmanager
    def _writing_alone(self) -> Iterator[Transaction]:
        """Opens a transaction that keeps all other writers away until it ends."""
        with self._database.writing() as do:
            if self._words.hold_all:
                do.run(self._words.hold_all)
            yield do

    def _scrub(self) -> None:
        """Removes every trace of what was deleted, block by block of the search index, so that others can write in between.

        The deletion stands. What cannot be done now, because another process holds the store for long, is done by the next
        call that indexes or deletes.
        """
        try:
            while self._purge_one():
                pass
            self._database.scrub()
        except StoreError as error:
            log.warning("what was deleted has not left the files of the store yet: %s", error)

    def _purge_one(self) -> bool:
        with self._database.writing() as do:
            for statement in self._words.hold_index:
                do.run(statement)
            return purge_some(do)

    def faults(self) -> Sequence[StoreFault]:
        """Returns everything that is not as it should be.

        Every id is worked out anew, every reference looked up.
        """
        damage = [StoreFault("database", text) for text in self._database.damage()]
        if damage:  # rows read from damaged pages would show faults that are none
            return damage
        with self._database.reading() as do:
            return [finding.fault for finding in find_faults(do)]

    def repair(self) -> Sequence[StoreFault]:
        """Mends what can be mended, and returns what was."""
        with self._writing_alone() as do:
            return mend(do)


def open_store(url: str | None = None, *, wait_seconds: float = 10.0) -> Store:
    """Returns the store at an address: `sqlite:///FILE`, `postgresql://…` or `memory:`.

    `sqlite:////tmp/x.db` is an absolute path. Without an address, `sessions.db` in the user's data folder.
    The file is made where it is not there, for this user alone; the schema is brought up to date.
    `wait_seconds` is how long the lock of another process is waited for. Raises SettingsError for an address
    that is none of these, StoreError for a store that cannot be opened.
    """
    given: Any = url
    if given is not None and not isinstance(given, str):
        raise SettingsError(
            f"the address of a store is a text, not a {type(given).__name__}; for a file use {_FILE}FILE"
        )
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
        raise SettingsError(f"{url!r} is not the address of a store; for a file use {_FILE}{quote(url)}")
    raise SettingsError("this is not the address of a store; use sqlite:///FILE, postgresql://… or memory:")


def require_store(store: Any) -> Store:
    """Returns the store. Raises SettingsError for what is none, such as the address of one."""
    if not hasattr(store, "log_tip"):
        raise SettingsError(f"store is a {type(store).__name__}; open one first, with penstock.open_store(…)")
    return store  # type: ignore[no-any-return]  # anything that does what a store does


def _sqlite(path: Path | None, wait_seconds: float) -> Store:
    from penstock.stores.sqlite import SqliteDatabase  # noqa: PLC0415 - SQLite is loaded when a store is opened

    return Store(SqliteDatabase(path, wait_seconds))
