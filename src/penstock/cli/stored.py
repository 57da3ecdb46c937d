"""Opens the store for commands on stored conversations."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.cli.source import settings_of
from penstock.errors import StoreUnavailable
from penstock.measure.wording import pluralise
from penstock.sessions.retention import honour_retention
from penstock.stores.store import open_store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from penstock.stores.store import Store

__all__ = ["open_store_of"]

_FILE = "sqlite:///"


@contextmanager
def open_store_of(
    args: argparse.Namespace, *, keep_expired: bool = False, must_exist: bool = False
) -> Iterator[Store]:
    """Opens the store that `--store` or the settings name, else the one in the user's data folder.

    Conversations that have expired by `store.retention_days` are deleted first, and reported, unless `keep_expired`. A
    file that does not exist is created; with `must_exist`, StoreUnavailable is raised: a command that reads would find
    nothing in a new store, and a mistyped address would look like a sound one.
    """
    settings = settings_of(args)
    url = args.store or settings.store.url
    if must_exist and url is not None:
        _require_file(url)
    store = open_store(url)
    try:
        gone = () if keep_expired else honour_retention(store, settings, time.time())
        if gone and sys.stderr is not None:
            days = pluralise(settings.store.retention_days or 0, "day")
            what = pluralise(len(gone), "conversation")
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
            f"there is no store at {url}: check the address; penstock sessions import creates one"
        )
