"""The store of sessions, in portable SQL over any `Database`, and `open_store`.

Calls are synchronous; each is one transaction and durable when it returns. Async code runs them in a thread.
"""

from __future__ import annotations

from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from msgspec import structs

import penstock.installed_dialects  # noqa: F401 - stored conversations may be in a dialect of an installed package
from penstock._log import log
from penstock.config import data_folder
from penstock.errors import SettingsError, StoreConflict, StoreError
from penstock.recall.ranking import Wish
from penstock.stores.checks import find_faults, mend
from penstock.stores.compactions import (
    commit_compaction,
    find_newest_of,
    list_compacted,
    list_compactions,
    list_facts,
    pin_message,
    undo_newest,
)
from penstock.stores.conversations import (
    append_messages,
    branch_off,
    create_conversation,
    defer_continuations,
    end_session,
    find_by_prefix,
    find_longest_known,
    follow_continuations,
    list_children,
    list_conversations,
    list_heads,
    pack_messages,
    read_log_shape,
    read_positions,
    read_stretch,
    show_conversations,
    update_session,
)
from penstock.stores.deletion import delete_conversations, delete_some_of_owner, expire_conversation, list_due
from penstock.stores.encoding import is_storable, require_moment
from penstock.stores.entities import add_sightings, count_unread, read_sightings
from penstock.stores.indexing import IndexKeeper
from penstock.stores.keeping import (
    book_usage,
    change_note,
    find_last_request,
    find_note,
    find_result,
    keep_note,
    keep_result,
    list_moments,
    list_usage,
    list_users,
)
from penstock.stores.rows import (
    build_standing,
    defer_conversation,
    defer_session,
    find_conversation_key,
    read_conversation,
    read_ids,
    read_session,
    select_conversation,
    sum_tokens,
)
from penstock.stores.schema import migrate
from penstock.stores.searching import (
    SearchFilter,
    SearchQuery,
    SearchScope,
    count_lacking,
    find_shown_summaries,
    search,
)
from penstock.stores.turns import (
    TurnClaim,
    claim_turn,
    close_turn,
    find_delivery,
    find_turn,
    keep_delivery,
    list_queued,
    open_turn,
    queue_message,
    settle_delivery,
    take_queued,
)
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
        Delivery,
        ExpiredConversation,
        FactRow,
        LogEntry,
        LogShape,
        LogTip,
        NewCompaction,
        NewMessage,
        NewSession,
        OpenedTurn,
        QueuedMessage,
        SessionRow,
        Standing,
        StoredResult,
        UsageRow,
    )
    from penstock.writing.entities import EntityState

__all__ = ["Store", "open_store", "require_store"]


_FILE = "sqlite:///"


class Store:
    """Sessions in a database. Its methods raise StoreError; if one raises, it has changed nothing.

    This store sees the conversations of all owners and creates some without an owner, as for a single person. See
    `for_owner`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.owner: str | None = None
        self._words = database.words
        try:
            migrate(database)
        except StoreError:
            database.close()
            raise
        self._keeper = IndexKeeper(database)

    @property
    def url(self) -> str:
        """The address, without its password."""
        return self._database.url

    @property
    def database(self) -> Database:
        """The underlying database, for code with tables of its own beside the store's."""
        return self._database

    def close(self) -> None:
        """Closes files and connections."""
        self._keeper.stop()
        self._database.close()

    def for_owner(self, owner: str) -> Store:
        """Returns this store as one owner sees it, over the same connections.

        Everything it creates belongs to the owner. It neither finds nor deletes anything of other owners (sessions, hashes,
        results, usage), and nothing it does reveals whether they exist. An empty name means the conversations without an
        owner. Notes, indexing and checks concern the store as a whole.
        """
        given: Any = owner
        if not isinstance(given, str) or not is_storable(given):
            raise StoreError(f"{given!r} cannot be an owner; use text without NUL and lone surrogates")
        view = copy(self)
        view.owner = owner
        return view

    @contextmanager
    def _reading(self) -> Iterator[Transaction]:
        with self._database.reading() as do:
            do.owner = self.owner
            yield do

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        with self._database.writing() as do:
            do.owner = self.owner
            yield do

    # Sessions.

    def create(self, session: NewSession) -> SessionRow:
        """Creates a conversation, with its first session."""
        with self._writing() as do:
            return create_conversation(do, session)

    def branch(self, session_id: str, length: int, new: NewSession) -> SessionRow:
        """Creates a conversation that shares the first `length` messages of another one's log, and grows on its own."""
        with self._writing() as do:
            return branch_off(do, session_id, length, new, self._words.hold_session)

    def session(self, session_id: str) -> SessionRow:
        """Returns the session. Raises UnknownSession."""
        with self._reading() as do:
            session = defer_session(do, session_id)
        return read_session(do, session_id, session)[0]

    def tip(self, session_id: str) -> SessionRow:
        """Returns the session in which the conversation continues.

        Follows continuations, but not branches or sub-agents.
        """
        with self._reading() as do:
            conversation, named = select_conversation(do, session_id)
            session = defer_session(do, session_id)
            later = defer_continuations(do, conversation, named)
        return follow_continuations(read_session(do, session_id, session)[0], later.rows())

    def list_children(self, session_id: str) -> Sequence[SessionRow]:
        """Returns the sessions that continue this one, branched off it or work for it, oldest first."""
        with self._reading() as do:
            return list_children(do, session_id)

    def list(
        self, *, limit: int = 50, offset: int = 0, after: tuple[float, str] | None = None
    ) -> Sequence[ConversationRow]:
        """Returns conversations, last used first; leaves out those of sub-agents.

        `after` is the `updated` and `id` of the last conversation that the caller has seen. The page that follows it shows
        none twice and misses none, except those used meanwhile.
        """
        with self._reading() as do:
            return list_conversations(do, limit, offset, after)

    def heads(self) -> dict[str, float]:
        """Returns the time of last use of each conversation, by id; leaves out those of sub-agents."""
        with self._reading() as do:
            return list_heads(do)

    def show(self, ids: Sequence[str]) -> Sequence[ConversationRow]:
        """Returns the conversations with these ids, as `list` does; skips ids that do not exist."""
        with self._reading() as do:
            return show_conversations(do, ids)

    def find(self, prefix: str, *, limit: int = 5) -> Sequence[SessionRow]:
        """Returns the tips of up to `limit` conversations with a session id that has this prefix; no sub-agents'."""
        with self._reading() as do:
            return find_by_prefix(do, prefix, limit)

    def end(self, session_id: str, reason: str, at: float) -> None:
        """Ends a session; does nothing to one that has ended."""
        with self._writing() as do:
            end_session(do, session_id, reason, at, self._words.hold_session)

    def update(self, session_id: str, *, title: str | None = None, model: str | None = None) -> None:
        """Changes the title or the model of a session."""
        with self._writing() as do:
            update_session(do, session_id, title, model, self._words.hold_session)

    # The log.

    def append(self, session_id: str, messages: Sequence[NewMessage], after: str, at: float) -> AppendResult:
        """Appends to the log whose last message has the id `after`.

        Raises StoreConflict if the last message is another one.
        """
        require_moment(at)
        packed = pack_messages(messages, after)
        with self._writing() as do:
            appended, _ = append_messages(do, session_id, packed, at, self._words)
        self._keeper.note_written(len(messages))
        return appended

    def deliver(
        self,
        session_id: str,
        messages: Sequence[NewMessage],
        after: str,
        at: float,
        *,
        delivery: Delivery | None = None,
        queued_upto: int | None = None,
    ) -> AppendResult:
        """Appends as `append` does, and records the delivery of the messages in the same transaction.

        `delivery` is the delivery of the first message. Takes messages up to the key `queued_upto` off the queue for the
        turn. Raises StoreConflict even if the same messages are in the log already: they may be another caller's.
        """
        require_moment(at)
        packed = pack_messages(messages, after)
        with self._writing() as do:
            done, conversation = append_messages(do, session_id, packed, at, self._words)
            if done.again:
                raise StoreConflict(
                    "another process has said the same there; read what was added, then retry"
                )
            if delivery is not None:
                first = done.tip.length - len(messages)
                keep_delivery(do, conversation, structs.replace(delivery, position=first), at)
            if queued_upto is not None:
                take_queued(do, conversation, queued_upto)
        self._keeper.note_written(len(messages))
        return done

    def log_tip(self, session_id: str) -> LogTip:
        """Returns the end of the log of the session's conversation."""
        return self.standing(session_id).tip

    def standing(self, session_id: str) -> Standing:
        """Returns the end of the log and the compaction in force: if neither has changed, nor has the view."""
        with self._reading() as do:
            conversation, named = select_conversation(do, session_id)
            known = defer_conversation(do, session_id)
            standing = do.defer(
                f"SELECT tip, length, view FROM conversations WHERE key = {conversation}", *named
            )
        read_conversation(do, session_id, known)
        return build_standing(standing.one())

    def read(self, session_id: str, positions: Sequence[int]) -> Sequence[LogEntry]:
        """Returns the messages at these positions, in order.

        Skips positions that do not exist.
        """
        with self._reading() as do:
            read = read_positions(do, session_id, positions)
        return read()

    def read_from(self, session_id: str, start: int, limit: int | None = None) -> Sequence[LogEntry]:
        """Returns the messages from a position onwards."""
        with self._reading() as do:
            read = read_stretch(do, session_id, start, limit)
        return read()

    def shape(self, session_id: str) -> LogShape:
        """Returns the tokens and times of all messages of the log, without reading the messages."""
        with self._reading() as do:
            return read_log_shape(do, session_id)

    def log_tokens(self, session_id: str) -> int:
        """Returns the tokens of all messages of the log together."""
        with self._reading() as do:
            conversation, _ = find_conversation_key(do, session_id)
            return sum_tokens(do, conversation)

    def ids(self, session_id: str) -> Sequence[str]:
        """Returns the ids of all messages of the log."""
        with self._reading() as do:
            conversation, _ = find_conversation_key(do, session_id)
            return read_ids(do, conversation)

    def find_known_prefix(self, ids: Sequence[str]) -> tuple[str, int] | None:
        """Returns the session whose log begins with the most of these ids, and how many.

        Returns None if no log begins with the first.
        """
        with self._reading() as do:
            return find_longest_known(do, ids)

    # Compactions.

    def commit(self, session_id: str, new: NewCompaction) -> CompactionRow:
        """Commits a compaction, ends its session and opens the continuation.

        Raises StoreConflict if another compaction was committed first.
        """
        with self._writing() as do:
            return commit_compaction(do, session_id, new, self._words)

    def compactions(self, session_id: str, *, undone: bool = False) -> Sequence[CompactionRow]:
        """Returns the compactions in force, oldest first; with `undone`, also those that were undone."""
        with self._reading() as do:
            return list_compactions(do, session_id, undone=undone)

    def newest_compaction(self, session_id: str) -> CompactionRow | None:
        """Returns the compaction that made the present view; None if the view is the bare log."""
        with self._reading() as do:
            read = find_newest_of(do, session_id)
        return read()

    def facts(self, session_id: str) -> Sequence[FactRow]:
        """Returns the facts that compactions took from the ledger, in the order of their messages.

        Leaves out facts of compactions that were undone.
        """
        with self._reading() as do:
            return list_facts(do, session_id)

    def list_compacted(self) -> set[str]:
        """Returns the ids of all conversations that have compactions, undone ones included."""
        with self._reading() as do:
            return list_compacted(do)

    def undo(self, session_id: str, at: float, *, only: int | None = None) -> CompactionRow | None:
        """Undoes the newest compaction, so that the view before it is the present one again.

        Returns None if there is none or, with `only`, if the newest one has another key.
        """
        require_moment(at)
        with self._writing() as do:
            return undo_newest(do, session_id, at, self._words, only)

    def pin(self, session_id: str, position: int, *, pinned: bool = True) -> None:
        """Pins a message of the log, or unpins it."""
        with self._writing() as do:
            pin_message(do, session_id, position, self._words.hold_session, pinned=pinned)

    def pins(self, session_id: str) -> frozenset[int]:
        """Returns the positions of pinned messages."""
        with self._reading() as do:
            conversation, _ = find_conversation_key(do, session_id)
            return frozenset(
                row[0] for row in do.rows("SELECT position FROM pins WHERE conversation = ?", conversation)
            )

    # Turns.

    def open_turn(
        self, session_id: str, holder: str, now: float, until: float, delivery: str = ""
    ) -> OpenedTurn | None:
        """Claims the turn of a conversation, as `claim_turn` does; returns what a host needs to know, or None if it is taken.

        `delivery` is the name of the delivery that the turn is for.
        """
        with self._writing() as do:
            read = open_turn(do, session_id, TurnClaim(holder, now, until), self._words, delivery)
        return read()

    def close_turn(
        self, session_id: str, holder: str, now: float, delivery: Delivery | None = None
    ) -> Standing | None:
        """Ends a turn and settles the delivery that it was for; returns the state of the conversation.

        If messages have been queued during the turn, returns None, keeps the turn and settles nothing.
        """
        with self._writing() as do:
            read = close_turn(do, session_id, holder, now, delivery, self._words)
        return read()

    def claim_turn(self, session_id: str, holder: str, now: float, until: float) -> bool:
        """Claims or renews the turn of a conversation until the time `until`; returns False if another holder has it.

        Anyone may claim a turn that has run out. The times are the caller's: several machines should agree on the clock.
        """
        with self._writing() as do:
            read = claim_turn(do, session_id, TurnClaim(holder, now, until), self._words)
        return read()

    def find_turn(self, session_id: str, now: float) -> str:
        """Returns the holder of a conversation's turn; empty if nobody has it."""
        with self._reading() as do:
            return find_turn(do, session_id, now)

    def queue_message(
        self, session_id: str, raw: bytes, now: float, delivery: Delivery | None = None
    ) -> bool:
        """Queues a message for the turn that is under way; returns False and stores nothing if there is none."""
        with self._writing() as do:
            return queue_message(do, session_id, raw, now, self._words, delivery)

    def queued_messages(self, session_id: str) -> Sequence[QueuedMessage]:
        """Returns the messages that wait for a turn to take them (`deliver`), in order."""
        with self._reading() as do:
            return list_queued(do, session_id)

    def delivery(self, session_id: str, name: str) -> Delivery | None:
        """Returns the record of a delivery of the last day; None if there was none of that name."""
        with self._reading() as do:
            read = find_delivery(do, session_id, name)
        return read()

    def settle_delivery(self, session_id: str, delivery: Delivery, now: float) -> None:
        """Keeps the reply to a delivery, in case it is delivered again. Records the delivery if it has logged nothing."""
        with self._writing() as do:
            settle_delivery(do, session_id, delivery, require_moment(now), self._words)

    # Results, usage, notes.

    def put_result(self, result: StoredResult) -> None:
        """Stores a tool result. A second one with the same id changes nothing."""
        with self._writing() as do:
            keep_result(do, result, self._words.hold_session)

    def result(self, result_id: str, *, session_id: str | None = None) -> StoredResult | None:
        """Returns a tool result, or None.

        With a session, the result must belong to its conversation or to a message that this conversation shares.
        """
        with self._reading() as do:
            return find_result(do, result_id, session_id)

    def book(self, row: UsageRow) -> None:
        """Records the usage of a request."""
        self.book_all([row])

    def book_all(self, rows: Sequence[UsageRow]) -> None:
        """Records the usage of many requests: of all of them or of none."""
        with self._writing() as do:
            book_usage(do, rows, self._words.hold_session)

    def usage(self, *, session_id: str | None = None, since: float = 0.0) -> Sequence[UsageRow]:
        """Returns the usage of requests, oldest first: those of a conversation, or all."""
        with self._reading() as do:
            return list_usage(do, session_id, since)

    def last_request(self, session_id: str, task: str) -> UsageRow | None:
        """Returns the newest request for a task in this very session, not in those that it continues; None if there is none."""
        with self._reading() as do:
            return find_last_request(do, session_id, task)

    def moments(self, since: float) -> Sequence[float]:
        """Returns the times of all requests since a moment, oldest first."""
        with self._reading() as do:
            return list_moments(do, since)

    def users(self, after: int = 0) -> tuple[set[str], int]:
        """Returns the ids of conversations with requests recorded after a mark, and the mark for the next call."""
        with self._reading() as do:
            return list_users(do, after)

    def put_note(self, name: str, key: str, value: bytes, *, session_id: str | None = None) -> None:
        """Stores something small by name and key: a calibration, a learned window, notes on a part.

        A note that belongs to a conversation has the id of a session or a message as its key, perhaps followed by `/` and
        more: it is deleted along with them. With `session_id`, the note is stored only if that session exists, so that
        nothing written during the deletion of a conversation stays behind.
        """
        with self._writing() as do:
            keep_note(do, name, key, value, self._words, session_id)

    def note(self, name: str, key: str) -> bytes | None:
        """Returns the note with that name and key, or None."""
        with self._reading() as do:
            read = find_note(do, name, key)
        return read()

    def change_note(
        self, name: str, key: str, how: Callable[[bytes], bytes], *, session_id: str | None = None
    ) -> bytes:
        """Replaces a note by `how(note)`, atomically; `how` gets empty bytes if there is no note.

        Returns the new note. Raises what `how` raises, and UnknownSession if `session_id` was deleted; then nothing has
        changed.
        """
        with self._writing() as do:
            return change_note(do, name, key, how, self._words, session_id)

    # Entities.

    def entities(self, session_id: str, *, redact: Callable[[str], str]) -> Sequence[EntityState]:
        """Returns the present state of each file, command, record and person in the session's log, newest first.

        First reads the messages that were logged since the last call, and stores their statements, redacted.
        """
        with self._reading() as do:
            conversation, _ = find_conversation_key(do, session_id)
            start = 0 if count_unread(do, conversation) else None
        while start is not None:
            with self._writing() as do:
                for statement in self._words.hold_index:  # one process at a time, and no deletion meanwhile
                    do.run(statement)
                conversation, _ = find_conversation_key(do, session_id)
                start = add_sightings(do, conversation, redact, start)
        with self._reading() as do:
            conversation, _ = find_conversation_key(do, session_id)
            return fold_entities(read_sightings(do, conversation))

    # Recall.

    def index(self, limit: int | None = None, *, embedder: Embedder | None = None) -> int:
        """Indexes what was written since the last call, or about `limit` messages of it.

        Returns the number of messages, summaries and results. There is seldom a need to call it: after many appends a
        thread of the store indexes them, and a search indexes the little that is missing. With an embedder, they get
        vectors, too, and count twice.
        """
        return self._keeper.index(limit, embedder)

    def count_unindexed(self, *, embedder: Embedder | None = None) -> int:
        """Returns how many messages, summaries and results are not indexed yet, so that a search may miss them."""
        with self._reading() as do:
            return self._keeper.count_waiting(do, embedder)

    def count_unsearched(self, session_id: str, hidden: Collection[int] = ()) -> int:
        """Returns how many of them a search in the session's conversation would miss now, apart from positions in `hidden`."""
        with self._reading() as do:
            return count_lacking(do, self._find_scope(do, session_id, hidden))

    def search(  # noqa: PLR0913  # all but the first two by name
        self,
        query: str,
        wish: Wish | None = None,
        *,
        session_id: str | None = None,
        hidden: Collection[int] = (),
        redact: Callable[[str], str] = str,
        embedder: Embedder | None = None,
        within: SearchFilter | None = None,
    ) -> Sequence[Finding]:
        """Returns the best findings in all conversations, or in that of a session and in all that its log shares.

        In a session, leaves out the positions in `hidden` and the summary that is in the view. `redact` sees each message
        as a whole before excerpts are taken from it. With an embedder, also finds what is near in meaning: in a
        conversation, or among the newest 50,000 messages of all. First indexes what is not indexed yet, for at most half
        a second; `count_unindexed` tells how much may be missing after that.
        """
        caught_up = False
        while True:
            with self._reading() as do:
                # Again in each round: the session may be deleted while the index catches up.
                scope = None if session_id is None else self._find_scope(do, session_id, hidden)
                if caught_up or not (embedder is not None or count_lacking(do, scope)):
                    return search(do, SearchQuery(query, wish or Wish(), scope, redact, embedder, within))
            self._keeper.catch_up(None if scope is None else scope.conversation, embedder)
            caught_up = True

    def _find_scope(self, do: Transaction, session_id: str, hidden: Collection[int]) -> SearchScope:
        conversation, _ = find_conversation_key(do, session_id)
        return SearchScope(conversation, frozenset(hidden), find_shown_summaries(do, conversation))

    # Upkeep.

    def delete(self, session_id: str) -> int:
        """Deletes the session's conversation, its sub-agents' conversations, and all that only they hold.

        Returns the number of deleted messages. Branches keep the messages that they share with it. The bytes are gone
        from the file, too.
        """
        with self._writing_alone() as do:
            conversation, _ = find_conversation_key(do, session_id)
            gone = delete_conversations(do, conversation)
        self._scrub()
        return gone

    def delete_owner(self, owner: str) -> int:
        """Deletes all conversations of an owner, as `delete` does; returns the number of deleted messages.

        Also deletes notes with a key that begins with the owner's name and `/`. Each conversation is one transaction, so
        that others can write in between. If it raises, call it again.
        """
        if not owner:
            raise StoreError(
                "give the name of an owner; conversations without an owner are deleted one by one"
            )
        if self.owner not in (None, owner):
            raise StoreError(f"this is the store of {self.owner!r}: it deletes nothing of another owner")
        with self._writing() as do:
            start = f"{owner}/"
            do.run("DELETE FROM notes WHERE substr(key, 1, ?) = ?", len(start), start)
        total, gone = 0, self._delete_some(owner)
        while gone is not None:
            total, gone = total + gone, self._delete_some(owner)
        self._scrub()
        return total

    def _delete_some(self, owner: str) -> int | None:
        with self._writing_alone() as do:
            return delete_some_of_owner(do, owner)

    def due(self, before: float) -> Sequence[ExpiredConversation]:
        """Returns the conversations that nobody has used since that time, oldest first.

        These are the ones that `expire` would delete.
        """
        with self._reading() as do:
            return list_due(do, require_moment(before))

    def expire(self, before: float) -> Sequence[ExpiredConversation]:
        """Deletes the conversations that nobody has used since that time, as `delete` does; returns them."""
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
        with self._writing() as do:
            if self._words.hold_all:
                do.run(self._words.hold_all)
            yield do

    def _scrub(self) -> None:
        """Removes every trace of deleted text, one block of the search index at a time, so that others can write in between.

        The deletion itself is done. If another process holds the store for long, the next call that indexes or deletes
        finishes this work.
        """
        try:
            self._keeper.purge()
            self._database.scrub()
        except StoreError as error:
            log.warning("what was deleted has not left the files of the store yet: %s", error)

    def faults(self) -> Sequence[StoreFault]:
        """Returns every fault of the store.

        Computes every id again and looks up every reference.
        """
        damage = [StoreFault("database", text) for text in self._database.find_damage()]
        if damage:  # rows from damaged pages would report faults that do not exist
            return damage
        with self._reading() as do:
            return [finding.fault for finding in find_faults(do)]

    def repair(self) -> Sequence[StoreFault]:
        """Repairs the faults that can be repaired, and returns them."""
        with self._writing_alone() as do:
            return mend(do)


def open_store(url: str | None = None, *, wait_seconds: float = 10.0) -> Store:
    """Returns the store at an address: `sqlite:///FILE`, `postgresql://…` or `memory:`.

    `sqlite:////tmp/x.db` is an absolute path. Without an address, opens `sessions.db` in the user's data folder.
    Creates a missing file, readable for this user alone, and brings the schema up to date. Waits up to `wait_seconds`
    for another process's lock. Raises SettingsError for any other address, and StoreError for a store that cannot be
    opened.
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
    scheme = url.partition("://")[0]  # what follows may hold a password
    named = f"'{scheme}://…'" if "://" in url and scheme.isidentifier() else "this"
    raise SettingsError(
        f"{named} is not the address of a store; use sqlite:///FILE, postgresql://… or memory:"
    )


def require_store(store: Any) -> Store:
    """Returns the store. Raises SettingsError for anything else, such as an address."""
    if not hasattr(store, "log_tip"):
        raise SettingsError(f"store is a {type(store).__name__}; open one first, with penstock.open_store(…)")
    return store  # type: ignore[no-any-return]  # anything that does what a store does


def _sqlite(path: Path | None, wait_seconds: float) -> Store:
    from penstock.stores.sqlite import SqliteDatabase  # noqa: PLC0415 - SQLite is loaded when a store is opened

    return Store(SqliteDatabase(path, wait_seconds))
