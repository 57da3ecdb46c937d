"""A provider counts otherwise than we do, and its window is small: no turn of a long session fails for it.

PENSTOCK_TURNS=300 runs it in full.
"""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.loop.events import Compacted
from penstock.settings import settings_from
from penstock.stores.store import open_store
from penstock.testing import Reply, ScriptedModel

TURNS = int(os.environ.get("PENSTOCK_TURNS", "30"))
WINDOW = 32_000
HANDOFF = (
    "## Goal\nA parts list, one part a turn.\n\n## Completed Actions\n1. The parts so far were written.\n"
)


class PartsModel:
    """Plays the model: each turn reads a drawing, now and then one that floods the window, and says a word."""

    def __init__(self, folder):
        self.summaries = []
        for size in (40, 400, 1_600):
            lines = (f"hole {n} at {n * 37 % 9_973} mm, tapped M{n % 7 + 3}\n" for n in range(size))
            (folder / f"drawing_{size}.txt").write_text("".join(lines))

    def __call__(self, request):
        last = request.messages[-1]
        asked = last["content"] if last["role"] == "user" else ""
        if "Write the handoff now" in asked or "Write notes on this part" in asked:
            self.summaries.append(request.prompt_tokens)
            return Reply(text=HANDOFF)
        if last["role"] == "tool":
            return Reply(text="The part is written. " + "It has its holes where the drawing has them. " * 20)
        part = int(re.findall(r"part (\d+)", asked)[-1])
        size = 1_600 if part % 9 == 4 else 400 if part % 3 == 1 else 40
        return Reply.calling("read_file", path=f"drawing_{size}.txt")


@pytest.mark.parametrize("known", [True, False], ids=["window known", "window learned"])
@pytest.mark.parametrize("factor", [1.0, 1.3, 1.6])
def test_no_turn_fails_where_a_provider_counts_more_than_we_do(factor, known, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "work"
    folder.mkdir()
    script, made = PartsModel(folder), []
    model = ScriptedModel(script, name="parts", window_tokens=WINDOW, token_factor=factor)
    store = open_store("memory:")

    def tell(event):
        if isinstance(event, Compacted):
            made.append(event)

    async def work():
        place = AgentPlace(folder=folder, store=store, tell=tell, yes=True)
        settings = settings_from({"model.context_length": WINDOW} if known else {})
        agent = make_agent(place, model, settings)
        failed = []
        for turn in range(TURNS):
            ended = await agent.turn(f"Now part {turn}, please.")
            if ended.reason != "done":
                failed.append((turn, ended.what))
        await agent.aclose()
        return failed

    assert asyncio.run(work()) == []
    assert not [breach for breach in model.violations if breach.rule != "script"]
    # What was refused came from a flood that nobody could foresee, never from a request for a summary.
    refused = [request for request in model.received if request.prompt_tokens > WINDOW]
    assert len(refused) <= TURNS / 9 + 1
    assert max(script.summaries, default=0) <= WINDOW
    # Where every compaction was an emergency, which asks no model, there is no such request at all.
    emergencies = [one for one in made if "of the window are used" in one.reason]
    assert script.summaries or len(emergencies) == len(made) or TURNS < 100
    tokens = sum(entry.tokens for entry in store.read_from(store.list(limit=1)[0].tip.id, 0)) * factor
    assert 1 <= len(made) <= tokens / 5_000
    store.close()
