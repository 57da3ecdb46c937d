"""A long task at a scripted provider, driven in a process of its own so that it can be killed and resumed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.loop.events import Compacted, Recovering
from penstock.providers.connect import connect
from penstock.settings import settings_from
from penstock.stores.store import open_store

CONSTRAINTS = (
    "Never touch anything in migrations/.",
    "Always write files below out/ only.",
    "You must keep the header line 'licence: none' in every file.",
)
WINDOW = 32_000


def task(turn: int) -> str:
    if turn == 0:
        return f"We build a parts list, one file for each part. {' '.join(CONSTRAINTS)} Begin with part 0."
    return f"Now part {turn}, please."


def main(base_url: str, database: str, folder: str, turns: int, switch_at: int, report: str) -> None:
    asyncio.run(_work(base_url, database, Path(folder), turns, switch_at, Path(report)))


async def _work(base_url: str, database: str, folder: Path, turns: int, switch_at: int, report: Path) -> None:
    store = open_store(database)
    settings = settings_from({"model.context_length": WINDOW})
    notes = report.open("a")

    def tell(event):
        match event:
            case Compacted(receipt=receipt, waited_seconds=waited):
                print(
                    json.dumps({"compacted": receipt.tokens_before, "waited": waited}), file=notes, flush=True
                )
            case Recovering(what=what):
                print(json.dumps({"recovering": what}), file=notes, flush=True)

    place = AgentPlace(folder=folder, store=store, tell=tell, yes=True)
    rows = store.list(limit=1)
    model = _model(base_url, "scripted-a")
    agent = make_agent(place, model, settings, session_id=rows[0].tip.id if rows else None)
    done = sum(json.loads(entry.raw)["role"] == "user" for entry in store.read_from(agent.session.id, 0))
    for turn in range(done, turns):
        if turn == switch_at:
            model = _model(base_url, "scripted-b")
            await agent.switch_model(model)
        ended = await agent.turn(task(turn))
        print(json.dumps({"turn": turn, "reason": ended.reason, "what": ended.what}), file=notes, flush=True)
    await agent.aclose()
    await model.aclose()
    store.close()


def _model(base_url: str, name: str):
    return connect("openai", name, base_url=base_url, api_key="any")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
