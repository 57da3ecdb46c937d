"""A store by its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.config import data_folder
from penstock.errors import SettingsError
from penstock.stores.sql import SqlStore

if TYPE_CHECKING:
    from penstock.stores.base import Store

__all__ = ["open_store"]

_FILE = "sqlite:///"


def open_store(url: str | None = None) -> Store:
    """The store at `sqlite:///FILE` (`sqlite:////tmp/x.db` for an absolute path), `postgresql://…` or `memory:`.

    Without an address, `sessions.db` in the user's data folder. The file is made where it is not there, for this user
    alone; the schema is brought up to date. Raises SettingsError for an address that is none of these, StoreError for
    a store that cannot be opened.
    """
    if url is None:
        return _sqlite(data_folder() / "sessions.db")
    if url == "memory:":
        return _sqlite(None)
    if url.startswith(_FILE) and url != _FILE:
        return _sqlite(Path(unquote(url.removeprefix(_FILE))))
    if url.startswith(("postgresql://", "postgres://")):
        from penstock.stores.postgres import PostgresDatabase  # noqa: PLC0415 - an extra

        return SqlStore(PostgresDatabase(url))
    raise SettingsError("this is no address of a store; use sqlite:///FILE, postgresql://… or memory:")


def _sqlite(path: Path | None) -> Store:
    from penstock.stores.sqlite import SqliteDatabase  # noqa: PLC0415 - SQLite is loaded when a store is opened

    return SqlStore(SqliteDatabase(path))
