"""All conversations of a store in memory, so that they can be filtered and sorted while a person types.

Reading ten thousand conversations takes seconds; looking for what has changed since takes milliseconds. What is shown of
a conversation is read anew for every look: the catalogue only finds it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from penstock.accounts.conversations import (
    ListedConversation,
    filter_conversations,
    make_title,
    show_remaining,
)
from penstock.accounts.spending import CompactionTotals, group_compactions
from penstock.accounts.usage import name_day
from penstock.errors import UnknownSession

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from penstock.stores.store import Store
    from penstock.stores.values import ConversationRow

__all__ = ["ORDERS", "Catalogue", "CatalogueQuery", "Savings", "read_catalogue_query"]

_AT_ONCE = 50  # conversations that are read before it is asked whether to go on
_FEW = 100  # conversations: so many are read at once while a person waits

ORDERS: dict[str, tuple[str, Callable[[ListedConversation], Any]]] = {
    "activity": ("last activity", lambda one: one.row.updated),
    "title": ("conversation", lambda one: one.title.casefold()),
    "model": ("model", lambda one: one.row.tip.model),
    "tokens": ("tokens", lambda one: one.row.view_tokens),
    "messages": ("messages", lambda one: one.row.messages),
    "cost": ("cost", lambda one: one.row.known_cost),
    "cache": ("cache", lambda one: -1.0 if one.cache_hit is None else one.cache_hit),
    "compactions": ("compactions", lambda one: one.row.compactions),
}
"""The orders of the list, by the word that is typed for each: its name, and what is compared."""
_RISING = frozenset(("title", "model"))  # read from A to Z; all others with the largest first


class CatalogueQuery(msgspec.Struct, frozen=True):
    """Words that must occur, and an order; `reverse` turns the order around."""

    words: str = ""
    order: str = "activity"
    reverse: bool = False

    @property
    def is_plain(self) -> bool:
        """Returns True if the store's own order answers it: the last used first."""
        return not self.words and self.order == "activity" and not self.reverse


def read_catalogue_query(typed: str, order: str = "") -> CatalogueQuery:
    """Returns what was typed: words, and `sort:cost` or `sort:-cost` for the order; `order` holds where none was typed."""
    words: list[str] = []
    for word in typed.split():
        if word.startswith("sort:") and word[5:].lstrip("-") in ORDERS:
            order = word[5:]
        else:
            words.append(word)
    name = order.lstrip("-")
    known = name in ORDERS
    return CatalogueQuery(" ".join(words), name if known else "activity", known and order.startswith("-"))


class Savings(msgspec.Struct, frozen=True):
    """The cost and savings of compactions, in total and by day; `complete` is False while they are still added up."""

    total: CompactionTotals
    per_day: dict[str, CompactionTotals]
    complete: bool


class Catalogue:
    """The conversations of a store, as far as they have been read. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._refreshing = threading.Lock()
        self._listed: dict[str, ListedConversation] = {}
        self._savings: dict[str, dict[str, CompactionTotals]] = {}
        self._heads: dict[str, float] = {}
        self._unpriced: set[str] = set()
        self._users_mark = 0
        self._total = 0
        self._stopped = False

    @property
    def total(self) -> int:
        """Returns the number of conversations in the store, as of the last look."""
        return self._total

    @property
    def waiting(self) -> int:
        """Returns how many conversations have changed and are still to be read."""
        return len(self._heads) - sum(1 for _ in self._known()) + len(self._unpriced)

    def _known(self) -> list[str]:
        return [one for one, updated in self._heads.items() if self._is_read(one, updated)]

    def _is_read(self, one: str, updated: float) -> bool:
        listed = self._listed.get(one)
        return listed is not None and listed.row.updated == updated

    def refresh(self, *, quick: bool = False) -> bool:
        """Reads what has changed in the store; returns True if nothing is left to read.

        With `quick`, much is left to be read later. Where another thread is at it already, returns at once.
        """
        if not self._refreshing.acquire(blocking=False):
            return False
        try:
            self._look()
            if quick and self.waiting > _FEW:
                return False
            while not self._stopped and self._read_some():
                pass
            return not self._stopped
        finally:
            self._refreshing.release()

    def stop(self) -> None:
        """Has a thread that reads end soon, and no other begin."""
        self._stopped = True

    def title(self, row: ConversationRow) -> str:
        """Returns the title that was made of a conversation, as long as nothing has changed that; else an empty text."""
        listed = self._listed.get(row.id)
        return listed.title if listed is not None and listed.row.title == row.title else ""

    def find(self, query: CatalogueQuery) -> list[ListedConversation]:
        """Returns the conversations that match, in order, as far as they have been read."""
        listed = list(self._listed.values())
        found = filter_conversations(listed, query.words) if query.words else listed
        compare = ORDERS[query.order][1]
        found.sort(key=lambda one: one.row.updated, reverse=True)
        falling = (query.order not in _RISING) != query.reverse
        found.sort(key=compare, reverse=falling)
        return found

    @property
    def savings(self) -> Savings:
        """Returns what compactions cost and saved, in all conversations that have been read."""
        per_day: dict[str, CompactionTotals] = {}
        for days in list(self._savings.values()):
            for day, totals in days.items():
                per_day[day] = per_day.get(day, CompactionTotals()) + totals
        ordered = {day: per_day[day] for day in sorted(per_day)}
        total = sum(ordered.values(), CompactionTotals())
        return Savings(total, ordered, complete=not self._unpriced)

    def _look(self) -> None:
        """Finds out which conversations are new, changed or gone, and in which of them requests were booked."""
        heads = self._store.heads()
        used, self._users_mark = self._store.users(self._users_mark)
        compacted = self._store.list_compacted()
        changed = {one for one in compacted if heads.get(one) != self._heads.get(one)} | (used & compacted)
        self._unpriced = (self._unpriced | changed) & compacted
        for gone in self._listed.keys() - heads.keys():
            self._listed.pop(gone, None)
        for gone in self._savings.keys() - compacted:
            self._savings.pop(gone, None)
        self._heads, self._total = heads, len(heads)

    def _read_some(self) -> bool:
        """Reads some of what has changed; returns False if there is nothing left."""
        unread = [one for one, updated in self._heads.items() if not self._is_read(one, updated)]
        some = sorted(unread, key=self._heads.__getitem__, reverse=True)[:_AT_ONCE]
        for one in show_remaining(self._store.show(some), self._list):
            self._listed[one.row.id] = one
            self._heads[one.row.id] = one.row.updated
        for gone in set(some) - self._listed.keys():
            self._heads.pop(gone, None)  # deleted meanwhile
        priced = list(self._unpriced)[:_AT_ONCE]
        for conversation in priced:
            self._price(conversation)
        return bool(some or priced)

    def _list(self, row: ConversationRow) -> ListedConversation:
        return ListedConversation(row, make_title(self._store, row.tip, row.title))

    def _price(self, conversation: str) -> None:
        try:
            made = self._store.compactions(conversation, undone=True)
            requests = self._store.usage(
                session_id=conversation, since=min((row.created for row in made), default=0.0)
            )
        except UnknownSession:
            self._savings.pop(conversation, None)
        else:
            self._savings[conversation] = group_compactions(made, requests, name_day)
        self._unpriced.discard(conversation)
