"""Keeps the search index of a database up to date, in slices that hold other writers for milliseconds.

Slow work (reading messages, making terms, packing and joining blocks) is done in transactions that only read; a transaction that
writes puts a slice in place. After many appends a thread indexes them beside the writers (`note_written`), and ends when
nothing waits any more. A search indexes what it needs and is still missing, within a moment, and can say how much is not searched yet.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

from penstock.errors import StoreError, StoreUnavailable
from penstock.stores.index import find_purge, join_blocks, prepare_join
from penstock.stores.indexing import (
    add_slice,
    add_vectors,
    count_unembedded,
    count_waiting,
    is_current,
    prepare_slice,
    prepare_vectors,
    renew_index,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.recall.embedding import Embedder
    from penstock.stores.database import Database, Transaction

__all__ = ["IndexKeeper"]

log = logging.getLogger(__name__)

_MUCH = 8_000  # passages: the room that they had is worth having back at once
_WRITTEN = 200  # messages that wait before a thread indexes them beside
_BESIDE_AT_ONCE = 64  # sources of a slice that is indexed beside: others share the processor
_REST = 1.0  # times as long as a slice took, the thread leaves the processor and the store to others
_LONGEST_REST = 0.5  # seconds
_CATCH_UP_SECONDS = 0.5
_NEEDED_AT_ONCE = 32  # sources of a slice that a search waits for


class IndexKeeper:
    """Indexes what was written to a database. It can be shared between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._slicing = threading.Lock()  # two threads would make the terms of the same slice
        self._joining = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._written = 0

    def index(self, limit: int | None = None, embedder: Embedder | None = None) -> int:
        """Indexes what waits, or about `limit` sources of it; then indexes anew sources of an older version.

        Returns how many sources that were. With an embedder they get vectors, too, and count once more for these.
        """
        self._require_version()
        self.purge()
        done = 0
        while limit is None or done < limit:
            some = self._index_slice(None)
            if not some and embedder is not None:
                some = self._embed_slice(embedder)
            if not some:
                break
            done += some
        return done

    def catch_up(self, conversation: int | None, embedder: Embedder | None = None) -> None:
        """Indexes what waits, for a search that needs it, within a moment: of one conversation first, where it is given.

        Raises nothing where others keep the store busy: the indexed part can be searched.
        """
        until = time.monotonic() + _CATCH_UP_SECONDS
        with suppress(StoreUnavailable):
            self._require_version()
            limit = None if conversation is None else _NEEDED_AT_ONCE
            while self._index_slice(conversation, limit) and time.monotonic() < until:
                if not self._count_waiting(conversation):
                    break
            while embedder is not None and time.monotonic() < until:
                if not self._embed_slice(embedder):
                    break
        if self._count_waiting(None) >= _WRITTEN:
            self._start()

    def count_waiting(self, do: Transaction, embedder: Embedder | None = None) -> int:
        """Returns how many sources are still to be indexed, and how many to be given vectors."""
        return count_waiting(do) + (count_unembedded(do, embedder) if embedder is not None else 0)

    def purge(self) -> None:
        """Takes deleted passages out of their blocks, some pages at a time."""
        while True:
            with self._database.reading() as do:
                purge = find_purge(do)
            if purge is None:
                return
            goes_on = True
            while goes_on:
                with self._holding() as do:
                    goes_on = purge.rewrite_some(do)

    def note_written(self, count: int) -> None:
        """Notes that messages were written; when many wait, a thread begins to index them."""
        self._written += count
        if self._written >= _WRITTEN:
            self._written = 0
            self._start()

    def stop(self) -> None:
        """Ends the thread, if there is one, after the slice that it is at."""
        self._stopped.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # One slice.

    def _index_slice(self, conversation: int | None, limit: int | None = None) -> int:
        """Indexes one slice, and returns how many sources it had. A slice that others indexed meanwhile is made again."""
        while True:
            with self._slicing:
                with self._database.reading() as do:
                    ready = prepare_slice(do, conversation, limit)
                if ready is None:
                    return 0
                with self._holding() as do:
                    done = add_slice(do, ready)
            if done:
                if self._joining.acquire(blocking=False):
                    try:
                        self._join_blocks()
                    finally:
                        self._joining.release()
                return done

    def _join_blocks(self) -> None:
        anew = 0
        while True:
            with self._database.reading() as do:
                join = prepare_join(do)
            if join is None:
                break
            with self._holding() as do:
                anew += join_blocks(do, join)
        if anew >= _MUCH:
            # What was indexed stays so where this fails, and the server does it later by itself.
            with suppress(StoreUnavailable):
                self._database.reclaim()

    def _embed_slice(self, embedder: Embedder) -> int:
        while True:
            with self._database.reading() as do:
                ready = prepare_vectors(do, embedder)
            if ready is None:
                return 0
            with self._holding() as do:
                done = add_vectors(do, ready)
            if done:
                return done

    def _require_version(self) -> None:
        with self._database.reading() as do:
            if is_current(do):
                return
        with self._holding() as do:
            renew_index(do)

    def _count_waiting(self, conversation: int | None) -> int:
        with self._database.reading() as do:
            return count_waiting(do, conversation)

    @contextmanager
    def _holding(self) -> Iterator[Transaction]:
        """Opens a transaction that writes to the index, and keeps others from doing so meanwhile."""
        with self._database.writing() as do:
            for statement in self._database.words.hold_index:
                do.run(statement)
            yield do

    # The thread beside the writers.

    def _start(self) -> None:
        if not self._database.is_shared:
            return
        with self._lock:
            if self._stopped.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._work, name="penstock-index", daemon=True)
            _running.add(self)
            self._thread.start()

    def _work(self) -> None:
        try:
            self._require_version()
            self.purge()
            while not self._stopped.is_set():
                start = time.monotonic()
                if not self._index_slice(None, _BESIDE_AT_ONCE):
                    return
                self._stopped.wait(min(_REST * (time.monotonic() - start), _LONGEST_REST))
        except StoreError as error:  # the next append or search goes on from here
            log.info("indexing beside was broken off: %s", error)


_running: WeakSet[IndexKeeper] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """Ends all threads before the interpreter exits."""
    for keeper in list(_running):
        keeper.stop()
