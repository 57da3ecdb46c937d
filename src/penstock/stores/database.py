"""The database below a store, SQLite or PostgreSQL.

Statements are portable SQL with `?` for values. The differences between the two are here, as words of a
dialect and as transactions; everything else is in `store.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

__all__ = ["Database", "PendingRows", "Row", "SqlSpelling", "Transaction"]

Row = tuple[Any, ...]


class SqlSpelling(msgspec.Struct, frozen=True):
    """The words of a database for what has no common spelling."""

    key: str
    number: str
    """The type of a number that is the key of its table."""
    blob: str
    real: str
    name: str
    """The type of a text that is ordered by its bytes, so that an index finds what begins with something."""
    for_update: str
    """Behind a SELECT: hold the row until the transaction ends, where the transaction does not hold all anyway."""
    hold_session: str
    """Behind a SELECT of sessions as `s`: keep them from being deleted until the transaction ends.

    Others may change them: a writer that holds the conversation also ends its last session, which another
    writer may hold while it waits for the conversation.
    """
    hold_all: str
    """A statement that keeps all other writers away until the transaction ends, or nothing."""
    hold_index: tuple[str, ...]
    """Statements that keep others from changing the search index, and from deleting what is in it, as above."""
    hold_schema: str
    """A query that lets one process at a time change the schema, or nothing."""
    find_table: str
    """A query with a row where there is a table of the given name."""
    trigger: str
    """Statements, each ending with `;` and a line break, that run `{body}` after each `{event}` on a row of `{table}`."""
    find_stranger: str = ""
    """A query for the name of any table, where a database without our schema must be an empty one, or nothing."""
    clustered: str = ""
    """Behind the columns of a table: its rows stand in the order of its primary key, in one tree instead of two."""
    storage: str = ""
    """More such statements, behind those that make the tables."""


class PendingRows(Protocol):
    """The rows of a statement that may not have been sent yet. They can still be read when the transaction has ended."""

    def rows(self) -> list[Row]:
        """Returns the rows; first sends the statement, with all that wait, if that was not done."""

    def one(self) -> Row | None:
        """Returns the first row, as `rows` does."""


class Transaction(Protocol):
    """Statements that take effect together or not at all."""

    owner: str | None
    """Whose conversations it may see; None for everybody's."""

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Returns the rows of a query, or of a statement with RETURNING."""

    def one(self, statement: str, *values: Any) -> Row | None:
        """Returns the first row."""

    def run(self, statement: str, *values: Any) -> int:
        """Runs a statement, and returns how many rows it touched."""

    def run_many(self, statement: str, many: Sequence[Row]) -> None:
        """Runs a statement for each of many rows of values, as `defer` does."""

    def defer(self, statement: str, *values: Any) -> PendingRows:
        """Has a statement sent with the next one whose rows are read, or with the end of the transaction.

        Where the database is a server, all that wait share one round trip. They run in the order in which they were given.
        """


class Database(Protocol):
    """A database. Foreign errors come out as StoreError."""

    words: SqlSpelling

    @property
    def url(self) -> str:
        """The address, without a password."""

    @property
    def is_shared(self) -> bool:
        """Returns True if several transactions can be under way at once, in this process or others."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """Opens a transaction that only reads, and sees one state."""

    def writing(self) -> AbstractContextManager[Transaction]:
        """Opens a transaction that writes: durable when the block ends, undone if it raises."""

    def scrub(self) -> bool:
        """Overwrites deleted data that is still on disk.

        Returns False if another reader keeps it there.
        """

    def reclaim(self) -> None:
        """Frees the room of replaced data, after much was rewritten."""

    def find_damage(self) -> list[str]:
        """Returns what the database itself finds wrong with its pages and indexes."""

    def close(self) -> None:
        """Closes files and connections."""
