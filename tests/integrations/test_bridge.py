"""The bridge by itself: what needs no framework."""

from __future__ import annotations

import json

from penstock import open_store
from penstock.integrations.bridge import write_options


def test_options_are_written_without_passwords_open_stores_and_functions():
    options = {
        "context_length": 16_000,
        "model": "gpt-4o",
        "recall_tools": True,
        "settings": {"compression.threshold": 0.6},
        "summariser": None,
    }
    store = open_store("memory:")
    kept_back = {"store": "postgresql://ann:otter@db.example/agents", "on_receipt": print}
    assert write_options({**options, **kept_back}) == options
    assert write_options({**options, "store": store}) == options
    assert write_options({"store": "sqlite:///agents.db"}) == {"store": "sqlite:///agents.db"}
    assert json.loads(json.dumps(write_options(options))) == options
    store.close()
