from __future__ import annotations

import pytest

from penstock.stores.store import open_store


@pytest.fixture
def store():
    """A store in memory."""
    opened = open_store("memory:")
    yield opened
    opened.close()
