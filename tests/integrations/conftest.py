"""Which frameworks are tested here, an event loop for each test, and a provider for the examples."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest

from penstock.testing import Reply, scripted_provider
from tests.integrations import long_task as task

# These have environments of their own: `make test-integrations` runs their tests there.
HEAVY = {
    "test_litellm.py": "litellm",
    "test_hermes.py": "hermes_cli",
    "test_llama_index.py": "llama_index",
    "test_openhands.py": "openhands",
    "test_strands.py": "strands",
}
collect_ignore = [name for name, package in HEAVY.items() if find_spec(package) is None]
READS = 30


@pytest.fixture(autouse=True)
def closed_loop():
    """A loop that is closed at the end: `run_sync` of some frameworks makes one and leaves it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
    asyncio.set_event_loop(None)


@pytest.fixture
def provider():
    """A provider whose model reads 29 files, one after the other, and that every request of an example has to please."""
    asked = iter(range(1, READS + 1))

    def reply(_received):
        number = next(asked)
        return "All files are read." if number == READS else Reply.calling("read_file", path=str(number))

    with scripted_provider(reply) as running:
        yield running
        assert not running.violations
        assert len(running.received) == READS
        assert max(one.prompt_tokens for one in running.received) < task.WINDOW // 2
        assert any(task.holds_handoff(one.messages) for one in running.received)
