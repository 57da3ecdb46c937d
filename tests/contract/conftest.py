"""The three stores, one at a time, each empty."""

from __future__ import annotations

import pytest

from penstock.stores.store import open_store

TABLES = (
    "conversations",
    "facts",
    "sessions",
    "messages",
    "entries",
    "compactions",
    "facts",
    "pins",
    "results",
    "usage",
    "notes",
    "indexed",
    "unindexed",
    "blocks",
    "postings",
    "removed",
    "vectors",
    "vectors_made",
    "sightings",
    "sighted",
    "gateway_keys",
    "gateway_spending",
    "turns",
    "queued",
    "deliveries",
)


@pytest.fixture(scope="session")
def contract_url(postgres_server):
    """One schema for all: emptying it is much quicker than making one."""
    import psycopg

    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA contract")
    return f"{postgres_server.get_uri()}&options=-csearch_path%3Dcontract"


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store_url(request, tmp_path):
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/folder/sessions.db"
    return request.getfixturevalue("contract_url")


@pytest.fixture
def store(store_url):
    opened = open_store(store_url)
    yield opened
    opened.close()  # and with it what indexes beside
    if store_url.startswith("postgresql:"):
        emptied = open_store(store_url)
        with emptied.database.writing() as do:
            for table in TABLES:
                do.run(f"DELETE FROM {table}")
        emptied.close()
