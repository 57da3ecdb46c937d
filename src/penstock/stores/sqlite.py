"""SQLite behind the store: a file in WAL mode, or memory.

Writers take their turn (`BEGIN IMMEDIATE`); readers are never held up. A commit is synced to disk before it
returns. Each transaction has a connection to itself; a database in memory has only one, which is waited for.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from penstock.errors import StoreConflict, StoreError, StoreUnavailable
from penstock.stores.database import SqlSpelling

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.stores.database import Row

__all__ = ["SqliteDatabase"]

_CACHE_KIB = 16_384
_LOG_BYTES = 64 << 20  # of a write-ahead log that stays when it has been written down
_MOST_IDLE = 8  # connections that are kept, each with its cache
_UNAVAILABLE = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.IOError,
    apsw.PermissionsError,
)
_NEXT_STEP: dict[type, str] = {
    apsw.BusyError: "another process has locked it; try again in a moment",
    apsw.LockedError: "another process has locked it; try again in a moment",
    apsw.FullError: "the disk is full; free some space",
    apsw.ReadOnlyError: "it is read-only; check the permissions of the file and its folder",
    apsw.CantOpenError: "it cannot be opened; check the path and its permissions",
    apsw.IOError: "its disk cannot be read or written; check the disk, then run penstock doctor",
    apsw.PermissionsError: "this user may not open it; check the permissions of the file and its folder",
}


class SqliteDatabase:
    """A SQLite database in a file, made if it is not there (0600, in a folder of 0700), or in memory (None).

    `wait_seconds` is how long the lock of another process is waited for.
    """

    words = SqlSpelling(
        key="INTEGER PRIMARY KEY AUTOINCREMENT",
        number="INTEGER PRIMARY KEY",
        blob="BLOB",
        real="REAL",
        name="TEXT",
        for_update="",
        hold_session="",
        hold_all="",
        hold_index=(),
        hold_schema="",
        find_table="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
        find_stranger="SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name LIMIT 1",
        clustered=" WITHOUT ROWID",
        trigger="CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN {body} END;\n",
    )

    def __init__(self, path: Path | None, wait_seconds: float = 10.0) -> None:
        self._path = path
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._in_memory = threading.RLock()
        self._written = threading.Lock()
        self._idle: list[apsw.Connection] = []
        self._closed = False
        self._unscrubbed = False
        if path is not None:
            _make_private(path)
        with self._map_errors():
            self._idle.append(self._connect())
        self._file = self._identify_file()

    @property
    def url(self) -> str:
        """The address."""
        return "memory:" if self._path is None else f"sqlite:///{self._path}"

    @property
    def is_shared(self) -> bool:
        """Returns True if several transactions can be under way at once: not in memory."""
        return self._path is not None

    @contextmanager
    def reading(self) -> Iterator[SqliteTransaction]:
        """Opens a transaction that only reads."""
        yield from self._run("BEGIN")

    @contextmanager
    def writing(self) -> Iterator[SqliteTransaction]:
        """Opens a transaction that writes; synced when the block ends.

        Writers of this process wait for each other here: SQLite would have them sleep and look again, for up to a
        tenth of a second at a time.
        """
        if self.is_shared and not self._written.acquire(timeout=self._wait_seconds):
            error = apsw.BusyError("another transaction of this process is still writing")
            raise _as_store_error(error, self.url) from error
        try:
            if (
                self._identify_file() != self._file
            ):  # SQLite would go on with one that nobody can open any more
                raise StoreUnavailable(
                    f"{self.url} is no longer the file that was opened: it was moved, deleted or replaced; put it back, or "
                    "start the program again"
                )
            yield from self._run("BEGIN IMMEDIATE")
        finally:
            if self.is_shared:
                self._written.release()

    def _identify_file(self) -> tuple[int, int] | None:
        """Returns what tells the file from all others; None where there is none."""
        try:
            found = os.stat(self._path) if self._path is not None else None  # noqa: PTH116 - half the time of Path.stat
        except OSError:
            return None
        return None if found is None else (found.st_dev, found.st_ino)

    def scrub(self) -> bool:
        """Rids the write-ahead log of deleted data; freed pages are overwritten as they come."""
        with self._hold() as connection:
            busy = next(iter(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")))[0]
        self._unscrubbed = bool(busy)
        return not busy

    def reclaim(self) -> None:
        """Does nothing: pages are free as soon as no transaction reads them."""

    def find_damage(self) -> list[str]:
        """Returns what SQLite's own check finds."""
        with self._hold() as connection:
            try:
                found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)")]
            except apsw.CorruptError as error:  # so damaged that the check itself fails
                found = [str(error)]
        return [text for text in found if text != "ok"]

    def close(self) -> None:
        """Closes all connections: those in use when they are given back, the only one to memory when it is free."""
        if self._unscrubbed and not self._closed:
            self.scrub()
        with self._in_memory, self._lock:
            self._closed = True
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _run(self, begin: str) -> Iterator[SqliteTransaction]:
        """Yields a transaction, which is committed if nothing raises.

        One generator does everything that has to be undone: every append goes through here, and each further context costs more
        than a statement.
        """
        try:
            connection = self._borrow()
            try:
                connection.execute(begin)
                try:
                    yield SqliteTransaction(connection)
                    connection.execute("COMMIT")
                finally:  # what is not committed by now is broken off, whatever ended it
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            finally:
                self._give_back(connection)
        except apsw.Error as error:
            raise _as_store_error(error, self.url) from error

    @contextmanager
    def _hold(self) -> Iterator[apsw.Connection]:
        """Holds a connection for one user at a time."""
        with self._map_errors():
            connection = self._borrow()
            try:
                yield connection
            finally:
                self._give_back(connection)

    def _borrow(self) -> apsw.Connection:
        """Returns a connection for one user at a time. There is only one to a database in memory, which is waited for."""
        if self._path is None:
            self._in_memory.acquire()
            with ExitStack() as undo:
                undo.callback(self._in_memory.release)
                self._require_open()
                undo.pop_all()
            return self._idle[0]
        with self._lock:
            self._require_open()
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.url} is closed; open it again")

    def _give_back(self, connection: apsw.Connection) -> None:
        if self._path is None:
            self._in_memory.release()
            return
        with self._lock:
            if self._closed or len(self._idle) >= _MOST_IDLE:
                connection.close()
            else:
                self._idle.append(connection)

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise _as_store_error(error, self.url) from error

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(":memory:" if self._path is None else str(self._path))
        connection.set_busy_timeout(round(1_000 * self._wait_seconds))
        self._use_wal(connection)
        for pragma in (
            "synchronous = FULL",
            "secure_delete = ON",
            "foreign_keys = OFF",
            "temp_store = MEMORY",
            f"journal_size_limit = {_LOG_BYTES}",
            f"cache_size = -{_CACHE_KIB}",
        ):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    def _is_foreign(self, connection: apsw.Connection) -> bool:
        """Returns True if the file has tables, and none of them is ours."""
        words = self.words
        stranger = connection.execute(words.find_stranger).fetchone()
        ours = connection.execute(words.find_table, ("penstock_schema",)).fetchone()
        return stranger is not None and ours is None

    def _use_wal(self, connection: apsw.Connection) -> None:
        """Switches to the write-ahead log. Where two processes do so at once, SQLite does not wait: we do.

        The file of another program is left as it is; `migrate` refuses it.
        """
        if self._path is None or self._is_foreign(connection):
            return
        until = time.monotonic() + self._wait_seconds
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except apsw.BusyError:
                if time.monotonic() >= until:
                    raise
                time.sleep(0.01)
            else:
                return


class SqliteTransaction:
    """Statements inside a transaction."""

    __slots__ = ("_connection", "owner")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.owner: str | None = None

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Returns the rows of a query."""
        return list(self._connection.execute(statement, values))

    def one(self, statement: str, *values: Any) -> Row | None:
        """Returns the first row."""
        return next(iter(self._connection.execute(statement, values)), None)

    def run(self, statement: str, *values: Any) -> int:
        """Runs a statement, and returns how many rows it touched."""
        self._connection.execute(statement, values)
        return self._connection.changes()

    def run_many(self, statement: str, many: Sequence[Row]) -> None:
        """Runs a statement for each of many rows of values."""
        self._connection.executemany(statement, many)

    def defer(self, statement: str, *values: Any) -> ReadRows:
        """Runs a statement at once: there is no round trip to save."""
        return ReadRows(self._connection.execute(statement, values))


class ReadRows(list["Row"]):
    """Rows that were read already."""

    def rows(self) -> list[Row]:
        """Returns the rows."""
        return self

    def one(self) -> Row | None:
        """Returns the first row."""
        return self[0] if self else None


def _make_private(path: Path) -> None:
    """Creates the folder for us alone if it does not exist, and the file for us alone from its first byte."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            path.touch(mode=0o600)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be created: {error.strerror}; check the permissions of its folder, or name another store"
        ) from error


def _as_store_error(error: apsw.Error, url: str) -> StoreError:
    step = next((_NEXT_STEP[kind] for kind in type(error).__mro__ if kind in _NEXT_STEP), "")
    if isinstance(error, _UNAVAILABLE):
        return StoreUnavailable(f"{url}: {step or error}")
    if isinstance(error, apsw.ConstraintError):
        return StoreConflict(f"{url}: another process wrote the same first; read again, then retry")
    if isinstance(error, (apsw.NotADBError, apsw.CorruptError)):
        return StoreError(
            f"{url} is damaged or not a Penstock store: {error}; restore a copy, or name another file"
        )
    return StoreError(f"{url}: {error}; penstock doctor tells whether the store is sound")
