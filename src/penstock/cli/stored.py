"""What commands on stored conversations share: the store, a conversation by its id, how times and money read."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.cli.layout import plural
from penstock.cli.source import settings_of
from penstock.config import own_secrets
from penstock.errors import StoreUnavailable, UnknownSession
from penstock.measure.prices import Money
from penstock.redaction import Redactor
from penstock.sessions.retention import honour_retention
from penstock.stores.store import open_store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from penstock.stores.store import Store
    from penstock.stores.values import ConversationRow, SessionRow

__all__ = [
    "SHORT",
    "conversations",
    "found_session",
    "moment",
    "money",
    "opened_store",
    "redacted",
    "redactor",
]

SHORT = 8  # characters of an id in a list
_FILE = "sqlite:///"
_PAGE = 200
_SHOWN = 4


@contextmanager
def opened_store(
    args: argparse.Namespace, *, as_it_is: bool = False, is_there: bool = False
) -> Iterator[Store]:
    """The store that `--store` or the settings name, else the one in the user's data folder.

    What is due by `store.retention_days` is deleted first, and told; unless the store is wanted as it is. A file that
    was named and is not there is made; with `is_there`, StoreUnavailable is raised: nobody looks for something in a
    store that is only just being made.
    """
    settings = settings_of(args)
    url = args.store or settings.store.url
    if is_there and url is not None:
        _require_file(url)
    store = open_store(url)
    try:
        gone = () if as_it_is else honour_retention(store, settings, time.time())
        if gone and sys.stderr is not None:
            days = plural(settings.store.retention_days or 0, "day")
            what = plural(len(gone), "conversation")
            print(f"penstock: deleted {what} not used for {days} (store.retention_days)", file=sys.stderr)
        yield store
    finally:
        store.close()


def _require_file(url: str) -> None:
    if not url.startswith(_FILE) or url == _FILE:
        return
    path = Path(unquote(url.removeprefix(_FILE)))
    if not path.exists():
        raise StoreUnavailable(
            f"there is no store at {url}: look at the address; penstock sessions import makes one"
        )


def conversations(store: Store) -> Iterator[ConversationRow]:
    """All conversations, the one that was used last first."""
    offset = 0
    while page := store.list(limit=_PAGE, offset=offset):
        yield from page
        offset += len(page)


def found_session(store: Store, given: str) -> SessionRow:
    """The tip of the conversation with that id, or with the only id that begins so.

    Raises UnknownSession where there is none, or more than one.
    """
    try:
        return store.tip(given)
    except UnknownSession:
        pass
    found = [row for row in conversations(store) if row.id.startswith(given) or row.tip.id.startswith(given)]
    if not given or not found:
        raise UnknownSession(f"there is no conversation {given!r} here; see penstock sessions list")
    if len(found) > 1:
        ids = ", ".join(row.id for row in found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
        raise UnknownSession(f"{given!r} is the beginning of {len(found):,} ids ({ids}): give more of it")
    return found[0].tip


def moment(at: float) -> str:
    """A time as people read it, in their own zone."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def money(cost: float | None) -> str:
    """An amount; one that is not known says so."""
    return "unknown" if cost is None else str(Money(Decimal(repr(cost))))


def redactor() -> Redactor:
    """What makes words of a conversation such as may be shown."""
    return Redactor(own_secrets())


def redacted(text: str) -> str:
    """Words of a conversation as they may be shown."""
    return redactor().redact(text)
