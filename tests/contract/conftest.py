"""The three stores, one at a time."""

from __future__ import annotations

import pytest

from penstock.stores.opening import open_store


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store_url(request, tmp_path):
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/folder/sessions.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def store(store_url):
    opened = open_store(store_url)
    yield opened
    opened.close()
