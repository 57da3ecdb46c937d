"""PostgreSQL behind the store, by psycopg and a pool of connections.

Writers of one conversation take their turn by locks on its rows. A connection that was lost is replaced: what
was under way fails with StoreUnavailable, what comes after it works again as soon as the server does.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

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
_Begun = tuple[_Connection, _Cursor]


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
        self._pool = psycopg_pool.ConnectionPool(
            url,
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=wait_seconds,
            reconnect_timeout=wait_seconds,
            open=False,
            configure=self._configure,
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
        """Returns whether several transactions can be under way at once: always."""
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
                if transaction.connection is not None:
                    transaction.connection.execute("COMMIT")
            except BaseException:
                if transaction.connection is not None and not transaction.connection.closed:
                    transaction.connection.rollback()
                raise
            finally:
                if transaction.connection is not None:
                    self._pool.putconn(transaction.connection)

    def begin(self, begin: str, statement: bytes, values: Sequence[Any], *, again: bool = True) -> _Begun:
        """Begins a transaction together with its first statement: one round trip for both.

        A connection that was lost while it was idle is replaced unseen: nothing was committed over it.
        """
        connection = self._pool.getconn()
        try:
            with connection.pipeline():
                connection.execute(begin)
                cursor = connection.execute(statement, values, binary=True)
        except psycopg.OperationalError:
            if not (connection.closed and again):
                self._give_back(connection)
                raise
            self._pool.putconn(connection)
        except BaseException:
            self._give_back(connection)
            raise
        else:
            return connection, cursor
        self._pool.check()  # the others were lost with it
        return self.begin(begin, statement, values, again=False)

    def _give_back(self, connection: _Connection) -> None:
        if not connection.closed:
            connection.rollback()
        self._pool.putconn(connection)

    @contextmanager
    def _hold(self) -> Iterator[_Connection]:
        connection = self._pool.getconn()
        try:
            yield connection
        finally:
            self._pool.putconn(connection)

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, psycopg_pool.PoolClosed) as error:
            raise self._as_store_error(error) from None  # the chain would show what the text must not

    def _configure(self, connection: _Connection) -> None:
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
    """Statements inside a transaction, which begins with the first of them. `connection` is None before."""

    __slots__ = ("_begin", "_database", "connection", "owner")

    def __init__(self, database: PostgresDatabase, begin: str) -> None:
        self._database = database
        self._begin = begin
        self.connection: _Connection | None = None
        self.owner: str | None = None

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Returns the rows of a query."""
        return self._execute(statement, values).fetchall()

    def one(self, statement: str, *values: Any) -> Row | None:
        """Returns the first row."""
        return self._execute(statement, values).fetchone()

    def run(self, statement: str, *values: Any) -> int:
        """Runs a statement, and returns how many rows it touched."""
        return max(0, self._execute(statement, values).rowcount)

    def run_many(self, statement: str, many: Sequence[Row]) -> None:
        """Runs a statement for each of many rows of values."""
        if many and self.connection is None:
            self.run(statement, *many[0])
            many = many[1:]
        if many and self.connection is not None:
            with self.connection.cursor() as cursor:
                cursor.executemany(_translate(statement), many)

    def _execute(self, statement: str, values: Sequence[Any]) -> _Cursor:
        translated = _translate(statement)
        if self.connection is None:
            self.connection, cursor = self._database.begin(self._begin, translated, values)
            return cursor
        return self.connection.execute(translated, values, binary=True)


# Texts, quoted names and comments are passed on; outside of them `?` is a value.
_TOKENS = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|\?")


@lru_cache(maxsize=512)
def _translate(statement: str) -> bytes:
    """Returns the statement with psycopg's mark for values; a `%` or `?` of its own stays what it is."""
    doubled = statement.replace("%", "%%")
    return _TOKENS.sub(lambda found: "%s" if found[0] == "?" else found[0], doubled).encode()


def _split_password(url: str) -> tuple[str, tuple[str, ...]]:
    """Returns the address without its password, and what must not be shown, longest first.

    Raises ValueError where the two cannot be told apart: a password with a `/` or `?` that is not escaped.
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
