"""Large tools in a small window: a compaction still leaves room for some turns."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from penstock.context.events import Compacted
from penstock.context.live import Beside, Context
from penstock.engine.compressor import ContextCompressor
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.stores.store import open_store

WINDOW = 20_000


@pytest.mark.parametrize(
    ("words", "reserved"), [(0, 0), (9_000, 0), (11_000, 0), (4_000, 8_000), (6_000, 8_000)]
)
def test_a_compaction_leaves_room_for_some_turns_however_large_the_tools_are(words, reserved):
    async def go():
        store = open_store("memory:")
        session = Session.create(store, settings=settings_from({"model.context_length": WINDOW}))
        events = []
        context = Context(session, ContextCompressor(context_length=WINDOW), events.append)
        context.reserve_output(reserved)
        tools = [{"type": "function", "function": {"name": "run", "description": "word " * words}}]
        compacted = []
        context.append([{"role": "user", "content": "Run everything."}])
        for turn in range(40):
            call = {"id": f"c{turn}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
            result = " ".join(f"value-{turn}-{number}" for number in range(110))
            context.append(
                [
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": f"c{turn}", "content": result},
                ]
            )
            await context.fit(Beside(tools=tools))
            assert context.tokens() <= WINDOW
            if any(isinstance(event, Compacted) for event in events):
                compacted.append(turn)
                events.clear()
        await context.aclose()
        store.close()
        assert compacted
        assert all(later - earlier >= 3 for earlier, later in pairwise(compacted))

    asyncio.run(go())
