import pytest
from agent_stage import Stage


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Memory files, plugins and settings are looked for in a folder of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
