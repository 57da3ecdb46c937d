import pytest
from agent_stage import Stage

from penstock.stores.store import open_store


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


@pytest.fixture
def store():
    opened = open_store("memory:")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Memory files, plugins and settings are looked for in a folder of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
