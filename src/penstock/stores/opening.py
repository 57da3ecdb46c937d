"""A store by its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from penstock.config import data_folder
from penstock.errors import SettingsError
from penstock.stores.sql import SqlStore

if TYPE_CHECKING:
    from penstock.stores.base import Store

__all__ = ["open_store"]

_FILE = "sqlite:///"


def open_store(url: str | None = None, *, wait_seconds: float = 10.0) -> Store:
    """The store at `sqlite:///FILE` (`sqlite:////tmp/x.db` for an absolute path), `postgresql://…` or `memory:`.

    Without an address, `sessions.db` in the user's data folder. The file is made where it is not there, for this user
    alone; the schema is brought up to date. `wait_seconds` is how long somebody else's lock is waited for. Raises
    SettingsError for an address that is none of these, StoreError for a store that cannot be opened.
    """
    if url is None:
        return _sqlite(data_folder() / "sessions.db", wait_seconds)
    if url == "memory:":
        return _sqlite(None, wait_seconds)
    if url.startswith(_FILE) and url != _FILE:
        return _sqlite(Path(unquote(url.removeprefix(_FILE))), wait_seconds)
    if url.startswith(("postgresql://", "postgres://")):
        from penstock.stores.postgres import PostgresDatabase  # noqa: PLC0415 - an extra

        return SqlStore(PostgresDatabase(url, wait_seconds))
    if not {":", "@"} & set(url) and {"/", "."} & set(url):  # a path; an address may hold a password
        raise SettingsError(f"{url!r} is no address of a store; for a file use {_FILE}{quote(url)}")
    raise SettingsError("this is no address of a store; use sqlite:///FILE, postgresql://… or memory:")


def _sqlite(path: Path | None, wait_seconds: float) -> Store:
    from penstock.stores.sqlite import SqliteDatabase  # noqa: PLC0415 - SQLite is loaded when a store is opened

    return SqlStore(SqliteDatabase(path, wait_seconds))
