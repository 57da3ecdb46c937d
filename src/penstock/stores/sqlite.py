"""SQLite behind the store: a file in WAL mode, or memory.

Writers take their turn (`BEGIN IMMEDIATE`); readers are never held up. A commit is synced to disk before it returns.
Each thread has a connection of its own to a file; a database in memory has one, shared under a lock.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from penstock.errors import StoreError, StoreUnavailable
from penstock.stores.database import Words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.stores.database import Row

__all__ = ["SqliteDatabase"]

_BUSY_MS = 10_000
_CACHE_KIB = 16_384
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
    apsw.BusyError: "another process holds it: try again in a moment",
    apsw.LockedError: "another process holds it: try again in a moment",
    apsw.FullError: "the disk is full: free some space",
    apsw.ReadOnlyError: "it cannot be written to: look at the rights of the file and its folder",
    apsw.CantOpenError: "it cannot be opened: look at the path and its rights",
}


class SqliteDatabase:
    """A SQLite database in a file, made if it is not there (0600, in a folder of 0700), or in memory (None)."""

    words = Words(key="INTEGER PRIMARY KEY AUTOINCREMENT", blob="BLOB", real="REAL", for_update="")

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._local = threading.local()
        self._shared: apsw.Connection | None = None
        self._lock = threading.RLock()
        self._opened: list[apsw.Connection] = []
        if path is None:
            self._shared = self._connect()
        else:
            _make_private(path)
            self._connection()

    @property
    def url(self) -> str:
        """Where it is."""
        return "memory:" if self._path is None else f"sqlite:///{self._path}"

    @contextmanager
    def reading(self) -> Iterator[SqliteTransaction]:
        """A transaction that only reads."""
        with self._transaction("BEGIN") as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[SqliteTransaction]:
        """A transaction that writes; synced when the block ends."""
        with self._transaction("BEGIN IMMEDIATE") as transaction:
            yield transaction

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for connection in self._opened:
                connection.close()
            self._opened.clear()
            self._shared = None
            self._local = threading.local()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[SqliteTransaction]:
        with self._mapped(), self._held() as connection:
            connection.execute(begin)
            try:
                yield SqliteTransaction(connection)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            try:
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _held(self) -> Iterator[apsw.Connection]:
        if self._shared is None:
            yield self._connection()
            return
        with self._lock:
            yield self._shared

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise _as_store_error(error, self.url) from error

    def _connection(self) -> apsw.Connection:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            with self._mapped():
                connection = self._local.connection = self._connect()
        return connection

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(":memory:" if self._path is None else str(self._path))
        connection.set_busy_timeout(_BUSY_MS)
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = OFF",
            "temp_store = MEMORY",
            f"cache_size = -{_CACHE_KIB}",
        ):
            connection.execute(f"PRAGMA {pragma}")
        with self._lock:
            self._opened.append(connection)
        return connection


class SqliteTransaction:
    """Statements inside a transaction."""

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """The rows of a query."""
        return list(self._connection.execute(statement, values))

    def one(self, statement: str, *values: Any) -> Row | None:
        """The first row."""
        return next(iter(self._connection.execute(statement, values)), None)

    def run(self, statement: str, *values: Any) -> int:
        """Carry out a statement; how many rows it touched."""
        self._connection.execute(statement, values)
        return self._connection.changes()

    def run_many(self, statement: str, many: Sequence[Row]) -> None:
        """Carry out a statement for each of many rows of values."""
        self._connection.executemany(statement, many)


def _make_private(path: Path) -> None:
    """The folder for us alone where we make it, and the file for us alone from its first byte."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            path.touch(mode=0o600)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be made: {error.strerror}; name another store, or look at the rights of its folder"
        ) from error


def _as_store_error(error: apsw.Error, url: str) -> StoreError:
    step = next((_NEXT_STEP[kind] for kind in type(error).__mro__ if kind in _NEXT_STEP), "")
    if isinstance(error, _UNAVAILABLE):
        return StoreUnavailable(f"{url}: {step or error}")
    if isinstance(error, (apsw.NotADBError, apsw.CorruptError)):
        return StoreError(
            f"{url} is damaged or no store of ours: {error}; restore a copy, or name another file"
        )
    return StoreError(f"{url}: {error}")
