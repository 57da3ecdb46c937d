"""A store that writes what may wait in batches, and commits what may not together.

The log is durable when `append` returns, as in any store; appends that come at the same time share one transaction, and
its one wait for the disk. Usage and notes are seen at once by this process and written by `flush`, which its owner calls
every moment and at the end: a process that is killed loses the last moment of its books, and nothing of a conversation.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock._log import log
from penstock.errors import PenstockError, StoreError
from penstock.stores.conversations import append_messages, pack_messages
from penstock.stores.encoding import require_identifier, require_moment, require_price
from penstock.stores.keeping import book_usage, keep_note
from penstock.stores.store import Store
from penstock.stores.turns import close_turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.stores.conversations import PackedMessages
    from penstock.stores.database import Database, Transaction
    from penstock.stores.values import AppendResult, Delivery, NewMessage, Standing, UsageRow

__all__ = ["WriteBehindStore"]

_MOST_TOGETHER = 64  # appends in one transaction
_FRESH_SECONDS = 1.0  # a note that was read is not read again: what others have learned meanwhile can wait
_HOSTED_FRESH_SECONDS = 30.0  # where the turns say when another instance has written notes of a conversation
# Between two writings of notes on no session: all turns of all processes would wait for their rows.
_LEARNED_SECONDS = 5.0
_MOST_READ = 4_096  # notes


class _Append(NamedTuple):
    owner: str | None
    session_id: str
    packed: PackedMessages
    at: float
    done: Future[AppendResult]


class _Note(NamedTuple):
    value: bytes
    session_id: str | None  # it is on this one, and goes with it


class _Waiting:
    """The rows that wait to be written; one for all views of the store."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.notes: dict[tuple[str, str], _Note] = {}
        self.read: dict[tuple[str, str], tuple[float, bytes | None]] = {}
        self.usage: list[UsageRow] = []
        self.appends: list[_Append] = []
        self.announced: dict[str, _Append] = {}  # by session
        self.committing = threading.Lock()
        self.learned_at = 0.0  # when notes on no session were written last
        self.fails = False  # the last flush did, which was said


class WriteBehindStore(Store):
    """A store for one process with many conversations."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._waiting = _Waiting()
        self._indexes = False  # in a worker, those who search have it done
        self._fresh_seconds = _FRESH_SECONDS

    @classmethod
    def beside(cls, store: Store) -> Self:
        """Returns one over the same connections as another store, for a process that takes turns with others.

        What is appended to it is indexed beside, as in any store. Notes of a conversation are read again after `forget_read`.
        """
        made = cls.__new__(cls)
        own = {"_waiting": _Waiting(), "_indexes": True, "_fresh_seconds": _HOSTED_FRESH_SECONDS}
        vars(made).update(vars(store) | own)
        return made

    # The log.

    def announce(self, session_id: str, messages: Sequence[NewMessage], after: str) -> None:
        """Puts the `append` that is about to come with this very list into the next transaction, with those of other sessions.

        So one thread that appends to many conversations waits for the disk once: it announces all of them first.
        """
        one = _Append(self.owner, session_id, pack_messages(messages, after), time.time(), Future())
        with self._waiting.lock:
            self._waiting.appends.append(one)
            self._waiting.announced[session_id] = one

    def append(self, session_id: str, messages: Sequence[NewMessage], after: str, at: float) -> AppendResult:
        """Appends as any store does; a caller that comes while another is writing joins the next transaction."""
        waiting = self._waiting
        with waiting.lock:
            one = waiting.announced.pop(session_id, None)
        if one is None or one.packed.messages is not messages:
            one = _Append(
                self.owner, session_id, pack_messages(messages, after), require_moment(at), Future()
            )
            with waiting.lock:
                waiting.appends.append(one)
        with waiting.committing:
            if not one.done.done():
                self._commit_some()
        appended = one.done.result()
        if self._indexes:
            self._keeper.note_written(len(messages))
        return appended

    def _commit_some(self) -> None:
        """Commits all appends that wait, and tells each its outcome."""
        waiting = self._waiting
        while True:
            with waiting.lock:
                some, waiting.appends = waiting.appends[:_MOST_TOGETHER], waiting.appends[_MOST_TOGETHER:]
            if not some:
                return
            try:
                self._commit(some)
            except PenstockError as error:
                for one in some:
                    one.done.set_exception(error)

    def _commit(self, some: Sequence[_Append]) -> None:
        with self._database.writing() as do:
            done = [self._append_one(do, one, alone=len(some) == 1) for one in some]
        for one, result in zip(some, done, strict=True):
            if isinstance(result, PenstockError):
                one.done.set_exception(result)
            else:
                one.done.set_result(result)

    def _append_one(self, do: Transaction, one: _Append, *, alone: bool) -> AppendResult | PenstockError:
        """Appends for one of several; that it fails is nothing to the others."""
        do.owner = one.owner
        if alone:
            return append_messages(do, one.session_id, one.packed, one.at, self._words)[0]
        do.defer("SAVEPOINT one")
        try:
            result, _ = append_messages(do, one.session_id, one.packed, one.at, self._words)
        except PenstockError as error:
            do.defer("ROLLBACK TO SAVEPOINT one")
            return error
        do.defer("RELEASE SAVEPOINT one")
        return result

    # Usage and notes.

    def book_all(self, rows: Sequence[UsageRow]) -> None:
        """Records what many requests used, with the next `flush`."""
        for row in rows:  # one that no store can hold would keep all others from being written
            require_moment(row.at)
            require_price(row.cost)
        with self._waiting.lock:
            self._waiting.usage += rows

    def usage(self, *, session_id: str | None = None, since: float = 0.0) -> Sequence[UsageRow]:
        """Returns the usage of requests, including rows that are not written yet."""
        self._flush(with_notes=False)
        return super().usage(session_id=session_id, since=since)

    def put_note(self, name: str, key: str, value: bytes, *, session_id: str | None = None) -> None:
        """Keeps something small, with the next `flush`."""
        for one in (name, key) if session_id is None else (name, key, session_id):  # as in `book_all`
            require_identifier(one)
        waiting = self._waiting
        with waiting.lock:
            waiting.notes[name, key] = _Note(value, session_id)
            waiting.read.pop((name, key), None)

    def note(self, name: str, key: str) -> bytes | None:
        """Returns the note of that name and key, even if it is not written yet."""
        waiting, now, place = self._waiting, time.monotonic(), (name, key)
        with waiting.lock:
            waits, known = waiting.notes.get(place), waiting.read.get(place)
        if waits is not None:
            return waits.value
        if known is not None and now < known[0]:
            return known[1]
        found = super().note(name, key)
        with waiting.lock:
            # Unless it was written meanwhile: what was found may be older.
            if place not in waiting.notes and waiting.read.get(place) is known:
                if len(waiting.read) >= _MOST_READ:
                    waiting.read.clear()
                waiting.read[place] = now + self._fresh_seconds, found
        return found

    def forget_read(self, conversation: str) -> None:
        """Forgets the notes of a conversation that were read: another process has written some that matter now."""
        read = self._waiting.read
        with self._waiting.lock:
            for place in [one for one in read if f"{one[1]}/".startswith(f"{conversation}/")]:
                del read[place]

    def flush(self) -> None:
        """Writes what waits. Where the store fails, it goes on waiting, and the log says so, once until it works again.

        Not beside `close_turn`: a note that changes meanwhile could be written in the wrong order.
        """
        self._flush(with_notes=True)

    def _flush(self, *, with_notes: bool) -> None:
        waiting = self._waiting
        with waiting.committing:
            with waiting.lock:
                notes = dict(waiting.notes) if with_notes else {}
            if not notes and not waiting.usage:
                return
            try:
                with self._writing_waiting(notes):
                    pass
            except StoreError as error:
                if not waiting.fails:
                    log.warning("usage is not written to the store yet: %s", error)
                waiting.fails = True
            else:
                waiting.fails = False

    def close_turn(
        self, session_id: str, holder: str, now: float, delivery: Delivery | None = None
    ) -> Standing | None:
        """Ends a turn as any store does, and writes usage and notes on this session in the same transaction.

        So the next instance knows them. Notes on no session, what was learned of a model, go with it every few seconds:
        all turns of all instances would wait for their rows.
        """
        waiting, moment = self._waiting, time.monotonic()
        with waiting.lock:
            is_due = moment - waiting.learned_at > _LEARNED_SECONDS
            if is_due:
                waiting.learned_at = moment
            wanted = (session_id, None) if is_due else (session_id,)
            notes = {key: note for key, note in waiting.notes.items() if note.session_id in wanted}
        with self._writing_waiting(notes) as do:
            read = close_turn(do, session_id, holder, now, delivery, self._words)
        return read()

    @contextmanager
    def _writing_waiting(self, notes: dict[tuple[str, str], _Note]) -> Iterator[Transaction]:
        """Opens a transaction that begins with these notes and all usage that waits; where it fails, they go on waiting."""
        waiting = self._waiting
        with waiting.lock:
            rows, waiting.usage = waiting.usage, []
        try:
            with self._database.writing() as do:
                for (name, key), note in sorted(notes.items()):  # in one order for all processes
                    keep_note(do, name, key, note.value, self._words, note.session_id)
                book_usage(do, rows, self._words.hold_session, of_known_only=True)
                do.owner = self.owner
                yield do
        except BaseException:  # whatever it is, what was not written waits on
            with waiting.lock:
                waiting.usage = rows + waiting.usage
            raise
        until = time.monotonic() + self._fresh_seconds
        with waiting.lock:
            for place, note in notes.items():
                if waiting.notes.get(place) is note:
                    del waiting.notes[place]
                    waiting.read[place] = until, note.value

    def close(self) -> None:
        """Writes what waits, then closes files and connections."""
        self.flush()
        super().close()
