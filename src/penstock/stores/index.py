"""What the store needs of a database's full-text index: passages by their terms.

A passage has a number and the terms that `penstock.recall` makes of it, which the index takes as they are: no
database cuts words here. Passages are added, never changed, and go with what they come from: triggers see to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.stores.database import Transaction

__all__ = ["MESSAGE", "RESULT", "SUMMARY", "Index", "Spread", "Terms", "triggers"]

MESSAGE, SUMMARY, RESULT = 0, 1, 2
"""What passages come from, as the tables have it."""


_OF_SESSION = "coalesce((SELECT conversation FROM sessions WHERE key = NEW.session), 0)"


def triggers(queued: str, forgotten: str) -> str:
    """The statements by which what is written waits to be indexed, and what is deleted leaves the index.

    `queued` and `forgotten` are those for one table, with its name, kind, key and conversation left open.
    """
    return "".join(
        (
            queued.format(table="entries", kind=MESSAGE, key="message", conversation="NEW.conversation"),
            queued.format(table="compactions", kind=SUMMARY, key="key", conversation="NEW.conversation"),
            queued.format(table="results", kind=RESULT, key="key", conversation=_OF_SESSION),
            forgotten.format(table="messages", kind=MESSAGE),
            forgotten.format(table="compactions", kind=SUMMARY),
            forgotten.format(table="results", kind=RESULT),
        )
    )


class Terms(msgspec.Struct, frozen=True):
    """Which passages are meant: those that hold all of these terms and, where given, one of those."""

    all_of: tuple[str, ...]
    one_of: tuple[str, ...] = ()


class Spread(msgspec.Struct, frozen=True):
    """How many passages were found, and the lowest number among them (0 for none)."""

    passages: int
    lowest: int


class Index(Protocol):
    """The passages of a database by their terms."""

    @property
    def tables(self) -> str:
        """The statements that make it, with its triggers, each ending with `;` and a line break."""

    @property
    def vectors(self) -> str:
        """The statements that make the table of vectors by the number of their first passage; they go with that."""

    def hold(self, do: Transaction) -> None:
        """Keep others from adding passages until the transaction ends."""

    def add(self, do: Transaction, passages: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Add passages by number, with their terms."""

    def settle(self, do: Transaction) -> None:
        """After the last of many passages that were added."""

    def empty(self, do: Transaction) -> None:
        """Remove all passages."""

    def ready(self, do: Transaction) -> None:
        """Before the first look in a transaction."""

    def newest(self, do: Transaction, terms: Terms, limit: int) -> list[int]:
        """The highest numbers among the passages that are meant, highest first."""

    def spread(self, do: Transaction, terms: Terms, limit: int) -> Spread:
        """Of so many passages with the highest numbers: how many there are, and where they begin."""
