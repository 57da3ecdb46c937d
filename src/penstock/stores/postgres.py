"""PostgreSQL behind the store, by psycopg and a pool of connections.

Writers of one conversation take turns by locks on its rows. A lost connection is replaced: operations
under way fail with StoreUnavailable, later ones work again as soon as the server does.
"""

from __future__ import annotations

import re
import selectors
import time
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from weakref import WeakKeyDictionary

from penstock.errors import SettingsError, StoreConflict, StoreError, StoreUnavailable, name_install
from penstock.stores.database import SqlSpelling

try:
    import psycopg
    import psycopg_pool
except ImportError as error:
    raise SettingsError(
        f"sessions in PostgreSQL need two more packages: {name_install('postgres')}"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.stores.database import Row

__all__ = ["PostgresDatabase"]

_CONNECTIONS = 8
_TRUSTED_SECONDS = 30.0  # of idleness: routers and balancers forget connections that are idle for minutes
# Any numbers that other programs are unlikely to use.
_SCHEMA_LOCK, _INDEX_LOCK = 5_067_011_734, 5_067_011_735
_SECRETS = frozenset(("password", "sslpassword"))
_UNAVAILABLE = (psycopg.OperationalError, psycopg.InterfaceError, psycopg_pool.PoolTimeout)
# What happened, and what a person can do about it. Before there is a session, the server and the library say it in words
# alone; later the error has a code.
_BY_WORDS = (
    (
        r'(?:role|database) ".*" does not exist|authentication failed|no pg_hba\.conf entry|no password supplied',
        "refuses the connection",
        "check the user, the password and the database in its address",
    ),
    (
        r"translate host name|failed to resolve|name or service not known|nodename nor servname",
        "cannot be found",
        "check the host in its address",
    ),
    (
        r"connection refused|no such file or directory|is the server running|timeout expired|no route to host",
        "does not answer",
        "check that the server runs there, and the host and the port in its address",
    ),
    (r"\bSSL\b|certificate", "refuses the connection", "check sslmode and the certificates in its address"),
)
# What libpq asks the reader at the end of its text; what to do is said by us.
_OWN_ADVICE = re.compile(r"\s+Is the server running .*\?$")
_BY_CODE = {
    "42501": "this user may not do that; grant it the right, or create the tables with a user who has it",
    "25006": "the server only lets data be read, as a standby does; name the primary server",
    "53100": "the server's disk is full; free some space there",
    "53300": "the server has no connection left; close some, or raise its max_connections",
    "3F000": "the schema does not exist; create it, or correct search_path in the address",
}
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_EMPTIED = "messages, entries, compactions, results, facts, notes, pins, usage, turns, queued, deliveries, sessions, conversations, postings, blocks, removed, indexed"
_REPLACED = "postings, blocks, unindexed"

_Connection = psycopg.Connection[tuple[Any, ...]]
_Cursor = psycopg.Cursor[tuple[Any, ...]]


class PostgresDatabase:
    """A PostgreSQL database by its address, `postgresql://user:password@host/name`.

    `wait_seconds` is how long a connection, or the lock of another writer, is waited for.
    """

    words = SqlSpelling(
        key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        number="BIGINT PRIMARY KEY",
        blob="BYTEA",
        real="DOUBLE PRECISION",
        name='TEXT COLLATE "C"',
        for_update="FOR NO KEY UPDATE",
        hold_session="FOR KEY SHARE OF s",
        hold_all="LOCK TABLE sessions IN EXCLUSIVE MODE",
        hold_index=(
            "LOCK TABLE sessions IN ROW SHARE MODE",
            f"SELECT pg_advisory_xact_lock({_INDEX_LOCK})",
        ),
        hold_schema=f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})",
        find_table="SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = current_schema() AND tablename = ?",
        trigger="CREATE FUNCTION penstock_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NULL; END $$;\n"
        "CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW EXECUTE FUNCTION penstock_{name}();\n",
        # These bytes are compressed already.
        storage="ALTER TABLE postings ALTER COLUMN page SET STORAGE EXTERNAL;\n"
        "ALTER TABLE messages ALTER COLUMN raw SET STORAGE EXTERNAL;\n"
        "ALTER TABLE results ALTER COLUMN raw SET STORAGE EXTERNAL;\n",
    )

    def __init__(self, url: str, wait_seconds: float = 10.0) -> None:
        self._wait_seconds = wait_seconds
        try:
            self._url, self._secrets = _split_password(url)
            psycopg.conninfo.conninfo_to_dict(url)
        except (ValueError, psycopg.Error):  # whose text may quote the password
            raise SettingsError(
                "the address of the PostgreSQL store cannot be parsed; use postgresql://user:password@host:5432/name, "
                "and escape special characters in it (%40 for @, %2F for /, %3F for ?, %25 for %)"
            ) from None
        self._used: WeakKeyDictionary[_Connection, float] = WeakKeyDictionary()  # when each was used last
        self._pool = psycopg_pool.ConnectionPool(
            url,
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=wait_seconds,
            reconnect_timeout=wait_seconds,
            open=False,
            configure=self._configure,
            check=self._require_alive,
            kwargs={"autocommit": True, "connect_timeout": max(2, round(wait_seconds))},
        )
        self._check_it_answers(url)
        self._pool.open()

    @property
    def url(self) -> str:
        """The address, without a password."""
        return self._url

    @property
    def is_shared(self) -> bool:
        """Returns True: several transactions can always be under way at once."""
        return True

    @contextmanager
    def reading(self) -> Iterator[PostgresTransaction]:
        """Opens a transaction that only reads, and sees one state."""
        with self._transaction(_READ) as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[PostgresTransaction]:
        """Opens a transaction that writes; durable when the block ends."""
        with self._transaction(_WRITE) as transaction:
            yield transaction

    def scrub(self) -> bool:
        """Has the server free what was deleted; a table that is in use is left to its own cleaning."""
        self._vacuum(_EMPTIED)
        return True

    def reclaim(self) -> None:
        """Has the server free what indexing replaced, which it would do by itself a minute later."""
        self._vacuum(_REPLACED)

    def find_damage(self) -> list[str]:
        """Returns nothing: the server checks its pages as it reads them."""
        return []

    def close(self) -> None:
        """Closes all connections."""
        self._pool.close()

    def _vacuum(self, tables: str) -> None:
        with self._map_errors(), self._hold() as connection:
            connection.execute(f"VACUUM (SKIP_LOCKED) {tables}")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[PostgresTransaction]:
        transaction = PostgresTransaction(self, begin)
        with self._map_errors():
            try:
                yield transaction
                transaction.end()
            finally:
                if transaction.connection is not None:
                    self._give_back(transaction.connection)

    def begin(
        self, begin: str, statements: Sequence[_Statement], *, ends: bool, again: bool = True
    ) -> _Connection:
        """Begins a transaction together with its first statements, and its end if it `ends` with them: one round trip.

        A connection that was lost while it was idle is replaced unseen, unless something may have been committed over it.
        """
        connection = self._pool.getconn()
        with ExitStack() as unless_begun:
            unless_begun.callback(self._give_back, connection)
            try:
                _send(connection, statements, begin, ends=ends)
            except psycopg.OperationalError:
                in_doubt = ends and begin is _WRITE
                if in_doubt or not (connection.closed and again):
                    raise
            else:
                unless_begun.pop_all()
                return connection
        self._pool.check()  # the others were lost with it
        return self.begin(begin, statements, ends=ends, again=False)

    def _require_alive(self, connection: _Connection) -> None:
        """Raises OperationalError for a connection that was lost while it was idle: the pool takes another one.

        An idle connection hears only that it is being closed. Where something in between has forgotten it, it hears nothing,
        so one that was idle for long is asked: lost with a whole transaction on it, it would leave in doubt what was committed.
        """
        if _has_input(connection):
            connection.close()
            raise psycopg.OperationalError("the connection was closed while it was idle")
        if time.monotonic() - self._used.get(connection, 0.0) > _TRUSTED_SECONDS:
            psycopg_pool.ConnectionPool.check_connection(connection)

    def _give_back(self, connection: _Connection) -> None:
        try:
            if not connection.closed:
                connection.rollback()
        finally:  # one that is lost here would be missing from the pool for good
            self._put(connection)

    def _put(self, connection: _Connection) -> None:
        self._used[connection] = time.monotonic()
        self._pool.putconn(connection)

    @contextmanager
    def _hold(self) -> Iterator[_Connection]:
        connection = self._pool.getconn()
        try:
            yield connection
        finally:
            self._put(connection)

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, psycopg_pool.PoolClosed) as error:
            raise self._as_store_error(error) from None  # the chain would show what the text must not

    def _configure(self, connection: _Connection) -> None:
        self._used[connection] = time.monotonic()
        milliseconds = max(1, round(1_000 * self._wait_seconds))
        connection.execute(f"SET lock_timeout = {milliseconds}")
        connection.execute("SET synchronous_commit = on")

    def _check_it_answers(self, url: str) -> None:
        """Opens one connection by hand: the pool would only say that it waited in vain."""
        with self._map_errors():
            psycopg.connect(url, connect_timeout=max(2, round(self._wait_seconds))).close()

    def _as_store_error(self, error: Exception) -> StoreError:
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "…")
        if isinstance(error, psycopg_pool.PoolClosed):
            return StoreError(f"{self._url} is closed; open it again")
        if isinstance(error, psycopg.IntegrityError):
            return StoreConflict(f"{self._url}: another process wrote the same first; read again, then retry")
        if step := _BY_CODE.get(getattr(error, "sqlstate", None) or ""):
            return StoreUnavailable(f"{self._url}: {text}; {step}")
        if isinstance(error, _UNAVAILABLE):
            for words, what, step in _BY_WORDS:
                if re.search(words, text, re.IGNORECASE):
                    return StoreUnavailable(f"{self._url} {what}: {_OWN_ADVICE.sub('', text)}; {step}")
            return StoreUnavailable(f"{self._url} does not answer: {text}; try again in a moment")
        return StoreError(f"{self._url}: {text}; penstock doctor tells whether the store is sound")


class PostgresTransaction:
    """Statements inside a transaction, which begins with the first that is sent. `connection` is None before.

    Each time something is sent is a round trip to the server, which is what most operations cost: statements that may
    wait are sent together, as a pipeline.
    """

    __slots__ = ("_begin", "_database", "_waiting", "connection", "owner")

    def __init__(self, database: PostgresDatabase, begin: str) -> None:
        self._database = database
        self._begin = begin
        self._waiting: list[_Statement] = []
        self.connection: _Connection | None = None
        self.owner: str | None = None

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Returns the rows of a query."""
        return self.defer(statement, *values).rows()

    def one(self, statement: str, *values: Any) -> Row | None:
        """Returns the first row."""
        return self.defer(statement, *values).one()

    def run(self, statement: str, *values: Any) -> int:
        """Runs a statement, and returns how many rows it touched."""
        return self.defer(statement, *values).count()

    def run_many(self, statement: str, many: Sequence[Row]) -> None:
        """Runs a statement for each of many rows of values, with the next one whose rows are read."""
        if many:
            self._waiting.append(_Statement(self, statement, many, for_each=True))

    def defer(self, statement: str, *values: Any) -> _Statement:
        """Has a statement sent with the next one whose rows are read, or with the end of the transaction."""
        waiting = _Statement(self, statement, values)
        self._waiting.append(waiting)
        return waiting

    def end(self) -> None:
        """Ends the transaction, in one round trip with all that wait."""
        if self._waiting or self.connection is not None:
            self.send(ends=True)

    def send(self, *, ends: bool = False) -> None:
        """Sends all that wait, and waits for what comes of them."""
        waiting, self._waiting = self._waiting, []
        if self.connection is None:
            self.connection = self._database.begin(self._begin, waiting, ends=ends)
        else:
            _send(self.connection, waiting, ends=ends)


class _Statement:
    """A statement with its values, or with many rows of them, and what came of it."""

    __slots__ = ("_for_each", "_found", "_statement", "_touched", "_transaction", "_values")

    def __init__(
        self,
        transaction: PostgresTransaction,
        statement: str,
        values: Sequence[Any],
        *,
        for_each: bool = False,
    ) -> None:
        self._transaction = transaction
        self._statement = _translate(statement)
        self._values = values
        self._for_each = for_each
        self._found: list[Row] | None = None
        self._touched = 0

    def execute(self, connection: _Connection) -> _Cursor:
        """Executes it; in a pipeline, the cursor has its result when that ends."""
        if not self._for_each:
            return connection.execute(self._statement, self._values, binary=True)
        cursor = connection.cursor()
        cursor.executemany(self._statement, self._values)
        return cursor

    def take(self, cursor: _Cursor) -> None:
        """Takes the result from the cursor, which goes with the connection."""
        self._found = cursor.fetchall() if not self._for_each and cursor.description is not None else []
        self._touched = max(0, cursor.rowcount)

    def rows(self) -> list[Row]:
        """Returns the rows; first sends the statement, with all that wait, if that was not done."""
        if self._found is None:
            self._transaction.send()
        return self._found or []

    def one(self) -> Row | None:
        """Returns the first row."""
        rows = self.rows()
        return rows[0] if rows else None

    def count(self) -> int:
        """Returns how many rows it touched."""
        self.rows()
        return self._touched


def _send(connection: _Connection, statements: Sequence[_Statement], begin: str = "", *, ends: bool) -> None:
    """Executes statements in one round trip, behind the beginning of their transaction and before its end, where these are given."""
    if len(statements) == 1 and not begin and not ends:
        statements[0].take(statements[0].execute(connection))
        return
    with connection.pipeline():
        if begin:
            connection.execute(begin)
        cursors = [one.execute(connection) for one in statements]
        if ends:
            connection.execute("COMMIT")
    for one, cursor in zip(statements, cursors, strict=True):
        one.take(cursor)


def _has_input(connection: _Connection) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        return bool(selector.select(0))


# Texts, quoted names and comments are passed on; outside of them `?` is a value.
_TOKENS = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|\?")


@lru_cache(maxsize=512)
def _translate(statement: str) -> bytes:
    """Returns the statement with psycopg's mark for values; a `%` or `?` of its own stays what it is."""
    doubled = statement.replace("%", "%%")
    return _TOKENS.sub(lambda found: "%s" if found[0] == "?" else found[0], doubled).encode()


def _split_password(url: str) -> tuple[str, tuple[str, ...]]:
    """Returns the address without its password, and the texts that must not be shown, longest first.

    Raises ValueError if the two cannot be separated: a password with a `/` or `?` that is not escaped.
    """
    parts = urlsplit(url)
    if "@" in parts.path + parts.query + parts.fragment:
        raise ValueError("an @ behind the host")
    user, at, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    query = parse_qsl(parts.query, keep_blank_values=True)
    shown = urlencode([(key, value) for key, value in query if key not in _SECRETS])
    hidden = {password, unquote(password), *(value for key, value in query if key in _SECRETS)}
    hidden |= {quote(secret) for secret in hidden}
    clean = f"{parts.scheme}://{name}{at}{host}{parts.path}{'?' if shown else ''}{shown}"
    return clean, tuple(sorted((secret for secret in hidden if secret), key=len, reverse=True))
