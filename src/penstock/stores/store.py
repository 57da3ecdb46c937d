"""The store of sessions, in portable SQL over any `Database`, and `open_store`.

Calls are synchronous and each is one transaction, durable when it returns. Async code runs them in a thread.
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
from penstock.stores.index_keeper import IndexKeeper
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
    find_conversation,
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
    """A place for sessions, in a database. Raises StoreError; where it raises, nothing was changed.

    It sees the conversations of all owners, and what it creates has no owner: the store of one person. See `for_owner`.
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
        """The address, without a password."""
        return self._database.url

    @property
    def database(self) -> Database:
        """The database below, for code that has tables of its own beside the store's."""
        return self._database

    def close(self) -> None:
        """Closes files and connections."""
        self._keeper.stop()
        self._database.close()

    def for_owner(self, owner: str) -> Store:
        """Returns this store as one owner sees it, over the same connections.

        What it creates is the owner's. Sessions, hashes, results, usage, searches and deletions of others are not there for
        it, and nothing that it does tells whether they are. An empty name means conversations without an owner. Notes, indexing and
        checks concern the store as a whole.
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
        """Creates a conversation that shares the first `length` messages of another one's log and goes its own way."""
        with self._writing() as do:
            return branch_off(do, session_id, length, new, self._words.hold_session)

    def session(self, session_id: str) -> SessionRow:
        """Returns the session. Raises UnknownSession."""
        with self._reading() as do:
            session = defer_session(do, session_id)
        return read_session(do, session_id, session)[0]

    def tip(self, session_id: str) -> SessionRow:
        """Returns the session that the conversation goes on in.

        Continuations are followed, branches and sub-agents are not.
        """
        with self._reading() as do:
            conversation, named = select_conversation(do, session_id)
            session = defer_session(do, session_id)
            later = defer_continuations(do, conversation, named)
        return follow_continuations(read_session(do, session_id, session)[0], later.rows())

    def list_children(self, session_id: str) -> Sequence[SessionRow]:
        """Returns sessions that continue this one, branched off or work for it, oldest first."""
        with self._reading() as do:
            return list_children(do, session_id)

    def list(
        self, *, limit: int = 50, offset: int = 0, after: tuple[float, str] | None = None
    ) -> Sequence[ConversationRow]:
        """Returns conversations, the one that was used last first; sub-agents' are left out.

        `after` is `updated` and `id` of the last conversation that the caller has seen: a page that begins behind it misses
        none that was not used meanwhile, and shows none twice.
        """
        with self._reading() as do:
            return list_conversations(do, limit, offset, after)

    def heads(self) -> dict[str, float]:
        """Returns when each conversation was used last, by its id; sub-agents' are left out."""
        with self._reading() as do:
            return list_heads(do)

    def show(self, ids: Sequence[str]) -> Sequence[ConversationRow]:
        """Returns the conversations with these ids as `list` does; those that are not there are left out."""
        with self._reading() as do:
            return show_conversations(do, ids)

    def find(self, prefix: str, *, limit: int = 5) -> Sequence[SessionRow]:
        """Returns the tips of up to `limit` conversations that have a session whose id begins so; sub-agents' are left out."""
        with self._reading() as do:
            return find_by_prefix(do, prefix, limit)

    def end(self, session_id: str, reason: str, at: float) -> None:
        """Ends a session; one that has ended stays as it is."""
        with self._writing() as do:
            end_session(do, session_id, reason, at, self._words.hold_session)

    def update(self, session_id: str, *, title: str | None = None, model: str | None = None) -> None:
        """Gives a session another title or model."""
        with self._writing() as do:
            update_session(do, session_id, title, model, self._words.hold_session)

    # The log.

    def append(self, session_id: str, messages: Sequence[NewMessage], after: str, at: float) -> AppendResult:
        """Appends to the log whose last message has the id `after`.

        Raises StoreConflict where it has another.
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
        """Appends as `append` does, and notes in the same transaction how the messages came.

        `delivery` is that of the first one; messages that waited for the turn, up to the key `queued_upto`, wait no more.
        Raises StoreConflict also where the same messages stand there already: they may be another's.
        """
        require_moment(at)
        packed = pack_messages(messages, after)
        with self._writing() as do:
            done, conversation = append_messages(do, session_id, packed, at, self._words)
            if done.again:
                raise StoreConflict("the same was said there by another; read what was added, then retry")
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
        """Returns the end of the log and the compaction in force: where they are as before, so is the view."""
        with self._reading() as do:
            conversation, named = select_conversation(do, session_id)
            known = defer_conversation(do, session_id)
            standing = do.defer(
                f"SELECT tip, length, view FROM conversations WHERE key = {conversation}", *named
            )
        read_conversation(do, session_id, known)
        return build_standing(standing.one())

    def read(self, session_id: str, positions: Sequence[int]) -> Sequence[LogEntry]:
        """Returns the messages at these positions, in their order.

        Positions that are not there are left out.
        """
        with self._reading() as do:
            read = read_positions(do, session_id, positions)
        return read()

    def read_from(self, session_id: str, start: int, limit: int | None = None) -> Sequence[LogEntry]:
        """Returns the messages from a position on."""
        with self._reading() as do:
            read = read_stretch(do, session_id, start, limit)
        return read()

    def shape(self, session_id: str) -> LogShape:
        """Returns the tokens and times of all messages of the log, without reading the messages."""
        with self._reading() as do:
            return read_log_shape(do, session_id)

    def log_tokens(self, session_id: str) -> int:
        """Returns what all messages of the log weigh."""
        with self._reading() as do:
            conversation, _ = find_conversation(do, session_id)
            return sum_tokens(do, conversation)

    def ids(self, session_id: str) -> Sequence[str]:
        """Returns the ids of all messages of the log."""
        with self._reading() as do:
            conversation, _ = find_conversation(do, session_id)
            return read_ids(do, conversation)

    def find_known_prefix(self, ids: Sequence[str]) -> tuple[str, int] | None:
        """Returns the session whose log begins with the most of these ids, and how many.

        Returns None where no log has the first.
        """
        with self._reading() as do:
            return find_longest_known(do, ids)

    # Compactions.

    def commit(self, session_id: str, new: NewCompaction) -> CompactionRow:
        """Commits a compaction, ends its session and opens the continuation.

        Raises StoreConflict where it is late.
        """
        with self._writing() as do:
            return commit_compaction(do, session_id, new, self._words)

    def compactions(self, session_id: str, *, undone: bool = False) -> Sequence[CompactionRow]:
        """Returns the compactions that hold, oldest first; with `undone`, those that were taken back too."""
        with self._reading() as do:
            return list_compactions(do, session_id, undone=undone)

    def newest_compaction(self, session_id: str) -> CompactionRow | None:
        """Returns the compaction whose view is the present one, None for the bare log."""
        with self._reading() as do:
            read = find_newest_of(do, session_id)
        return read()

    def facts(self, session_id: str) -> Sequence[FactRow]:
        """Returns the facts that compactions took from the ledger, in the order of their messages.

        Facts of a compaction that was taken back are left out.
        """
        with self._reading() as do:
            return list_facts(do, session_id)

    def list_compacted(self) -> set[str]:
        """Returns the ids of all conversations that have compactions, undone ones included."""
        with self._reading() as do:
            return list_compacted(do)

    def undo(self, session_id: str, at: float, *, only: int | None = None) -> CompactionRow | None:
        """Takes the newest compaction back: the view before it is the present one.

        Returns None where there is none, or, with `only`, where the newest is not the one with this key.
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
            conversation, _ = find_conversation(do, session_id)
            return frozenset(
                row[0] for row in do.rows("SELECT position FROM pins WHERE conversation = ?", conversation)
            )

    # Turns.

    def open_turn(
        self, session_id: str, holder: str, now: float, until: float, delivery: str = ""
    ) -> OpenedTurn | None:
        """Claims the turn of a conversation, as `claim_turn` does, and returns what a host has to know; None where another has it.

        `delivery` is the name of the one that it is for.
        """
        with self._writing() as do:
            read = open_turn(do, session_id, TurnClaim(holder, now, until), self._words, delivery)
        return read()

    def close_turn(
        self, session_id: str, holder: str, now: float, delivery: Delivery | None = None
    ) -> Standing | None:
        """Ends a turn, and settles the delivery that it was for; returns where the conversation stands.

        Returns None, with the turn kept and nothing settled, where messages wait that came while it lasted.
        """
        with self._writing() as do:
            read = close_turn(do, session_id, holder, now, delivery, self._words)
        return read()

    def claim_turn(self, session_id: str, holder: str, now: float, until: float) -> bool:
        """Claims the turn of a conversation until a moment, or renews it; returns False where another has it.

        One that has run out is anybody's. The moments are the caller's: several machines should agree on the time.
        """
        with self._writing() as do:
            read = claim_turn(do, session_id, TurnClaim(holder, now, until), self._words)
        return read()

    def find_turn(self, session_id: str, now: float) -> str:
        """Returns the holder of a conversation's turn; empty where there is none."""
        with self._reading() as do:
            return find_turn(do, session_id, now)

    def queue_message(
        self, session_id: str, raw: bytes, now: float, delivery: Delivery | None = None
    ) -> bool:
        """Has a message wait for the turn that is under way; returns False, with nothing kept, where there is none."""
        with self._writing() as do:
            return queue_message(do, session_id, raw, now, self._words, delivery)

    def queued(self, session_id: str) -> Sequence[QueuedMessage]:
        """Returns the messages that wait for a turn to take them (`append`), in their order."""
        with self._reading() as do:
            return list_queued(do, session_id)

    def delivery(self, session_id: str, name: str) -> Delivery | None:
        """Returns what is known of a delivery of the last day; None where there was none of that name."""
        with self._reading() as do:
            read = find_delivery(do, session_id, name)
        return read()

    def settle_delivery(self, session_id: str, delivery: Delivery, now: float) -> None:
        """Keeps the reply that a delivery was given, for the same delivery again; one that logged nothing is noted with it."""
        with self._writing() as do:
            settle_delivery(do, session_id, delivery, require_moment(now), self._words)

    # Results, usage, notes.

    def put_result(self, result: StoredResult) -> None:
        """Keeps a tool result; the same id again changes nothing."""
        with self._writing() as do:
            keep_result(do, result, self._words.hold_session)

    def result(self, result_id: str, *, session_id: str | None = None) -> StoredResult | None:
        """Returns a tool result, or None.

        With a session, the result must belong to its conversation or to a message that this one shares.
        """
        with self._reading() as do:
            return find_result(do, result_id, session_id)

    def book(self, row: UsageRow) -> None:
        """Records what a request used."""
        self.book_all([row])

    def book_all(self, rows: Sequence[UsageRow]) -> None:
        """Records what many requests used, all of them or none."""
        with self._writing() as do:
            book_usage(do, rows, self._words.hold_session)

    def usage(self, *, session_id: str | None = None, since: float = 0.0) -> Sequence[UsageRow]:
        """Returns what requests used, oldest first: of a conversation, or of all."""
        with self._reading() as do:
            return list_usage(do, session_id, since)

    def last_request(self, session_id: str, task: str) -> UsageRow | None:
        """Returns the newest request for a task in a session, not in those that it continues; None where there is none."""
        with self._reading() as do:
            return find_last_request(do, session_id, task)

    def moments(self, since: float) -> Sequence[float]:
        """Returns when requests were made since a moment, oldest first."""
        with self._reading() as do:
            return list_moments(do, since)

    def users(self, after: int = 0) -> tuple[set[str], int]:
        """Returns the ids of conversations whose requests were booked after a mark, and the mark for the next time."""
        with self._reading() as do:
            return list_users(do, after)

    def put_note(self, name: str, key: str, value: bytes, *, session_id: str | None = None) -> None:
        """Keeps something small by name and key: a calibration, a learned window, notes on a part.

        What belongs to a conversation has a session's id or a message's as its key, or such an id, `/` and
        more: it goes when they are deleted. With `session_id`, it is kept only while that session is there: nothing that is
        written while a conversation is deleted stays behind.
        """
        with self._writing() as do:
            keep_note(do, name, key, value, self._words, session_id)

    def note(self, name: str, key: str) -> bytes | None:
        """Returns the note of that name and key, or None."""
        with self._reading() as do:
            read = find_note(do, name, key)
        return read()

    def change_note(
        self, name: str, key: str, how: Callable[[bytes], bytes], *, session_id: str | None = None
    ) -> bytes:
        """Puts what `how` makes of a note (empty where there is none) in its place, in one step for all others.

        Returns the new one. Raises what `how` raises, and UnknownSession where `session_id` was deleted: nothing was
        changed then.
        """
        with self._writing() as do:
            return change_note(do, name, key, how, self._words, session_id)

    # Entities.

    def entities(self, session_id: str, *, redact: Callable[[str], str]) -> Sequence[EntityState]:
        """Returns what is known now of each file, command, record and person in the session's log, the newest first.

        Messages that were logged since the last time are looked at first; what they say is kept, redacted.
        """
        with self._reading() as do:
            conversation, _ = find_conversation(do, session_id)
            start = 0 if count_unread(do, conversation) else None
        while start is not None:
            with self._writing() as do:
                for statement in self._words.hold_index:  # one process at a time, and no deletion meanwhile
                    do.run(statement)
                conversation, _ = find_conversation(do, session_id)
                start = add_sightings(do, conversation, redact, start)
        with self._reading() as do:
            conversation, _ = find_conversation(do, session_id)
            return fold_entities(read_sightings(do, conversation))

    # Recall.

    def index(self, limit: int | None = None, *, embedder: Embedder | None = None) -> int:
        """Indexes what was written since the last time, or about `limit` messages of it.

        Returns how many messages, summaries and results that were. Where much is written, a thread does so beside, and a
        search indexes what little it lacks by itself. With an embedder they get vectors, too, and count once more for these.
        """
        return self._keeper.index(limit, embedder)

    def count_unindexed(self, *, embedder: Embedder | None = None) -> int:
        """Returns how many messages, summaries and results are still to be indexed: a search may not find these yet."""
        with self._reading() as do:
            return self._keeper.count_waiting(do, embedder)

    def count_unsearched(self, session_id: str, hidden: Collection[int] = ()) -> int:
        """Returns how many of these a search in a session's conversation, without the positions in `hidden`, would miss now."""
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
        """Returns the best findings in all conversations, or in that of a session and all that its log shares.

        Of a session, nothing is found at the positions in `hidden`, nor in the summary that stands in the view. Excerpts
        are drawn from messages that went through `redact` as a whole. With an embedder, what is near in meaning is found
        beside what holds the words: in a conversation, or in all, among the newest 50,000 messages. What waits to be
        indexed is indexed first, for half a second at most: where very much waits, `count_unindexed` says how much may be missing.
        """
        caught_up = False
        while True:
            with self._reading() as do:
                # Anew each time: the session may be deleted while the index catches up.
                scope = None if session_id is None else self._find_scope(do, session_id, hidden)
                if caught_up or not (embedder is not None or count_lacking(do, scope)):
                    return search(do, SearchQuery(query, wish or Wish(), scope, redact, embedder, within))
            self._keeper.catch_up(None if scope is None else scope.conversation, embedder)
            caught_up = True

    def _find_scope(self, do: Transaction, session_id: str, hidden: Collection[int]) -> SearchScope:
        conversation, _ = find_conversation(do, session_id)
        return SearchScope(conversation, frozenset(hidden), find_shown_summaries(do, conversation))

    # Upkeep.

    def delete(self, session_id: str) -> int:
        """Deletes the session's conversation, its sub-agents' and all that only they hold.

        Returns how many messages went. Branches keep what they share with it. The bytes are gone from the
        file, too.
        """
        with self._writing_alone() as do:
            conversation, _ = find_conversation(do, session_id)
            gone = delete_conversations(do, conversation)
        self._scrub()
        return gone

    def delete_owner(self, owner: str) -> int:
        """Deletes all conversations of an owner, as `delete` does, and returns how many messages went.

        Notes whose key is the owner's name, `/` and more go with them. Each conversation is one transaction, so that others
        can write in between; where it raises, call it again.
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
        """Returns conversations that were not used since that time, the oldest first.

        These are what `expire` would delete.
        """
        with self._reading() as do:
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
        with self._writing() as do:
            if self._words.hold_all:
                do.run(self._words.hold_all)
            yield do

    def _scrub(self) -> None:
        """Removes every trace of what was deleted, block by block of the search index, so that others can write in between.

        The deletion stands. What cannot be done now, because another process holds the store for long, is done by the next
        call that indexes or deletes.
        """
        try:
            self._keeper.purge()
            self._database.scrub()
        except StoreError as error:
            log.warning("what was deleted has not left the files of the store yet: %s", error)

    def faults(self) -> Sequence[StoreFault]:
        """Returns every fault of the store.

        Every id is worked out anew, every reference looked up.
        """
        damage = [StoreFault("database", text) for text in self._database.find_damage()]
        if damage:  # rows read from damaged pages would show faults that are none
            return damage
        with self._reading() as do:
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
