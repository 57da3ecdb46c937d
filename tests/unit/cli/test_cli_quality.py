"""An agent goes on after a compaction in all four ways, and the commands on its store tell how."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.settings import settings_from
from penstock.stores.store import open_store
from penstock.testing import Reply, ScriptedModel

CRANES = {n: f"crane_{n * 7919 % 100_003}" for n in range(100, 1_300)}
LISTED = "\n".join(f"berth {n} is served by {crane}" for n, crane in CRANES.items())


class GoesOn:
    """Uses one value that it sees, then one that it searches for, one that it reads again, one that it asks for."""

    def __init__(self):
        self.step = 0
        self.lost = ()

    def __call__(self, received):
        if not received.body.get("tools"):  # it is asked for a summary
            return Reply(text="Nothing to add.")
        seen = json.dumps(received.body["messages"])
        if not self.lost:
            lost = [n for n, crane in CRANES.items() if crane not in seen]
            self.lost = lost[0], lost[len(lost) // 2], lost[-1]  # a search also finds what stands around it
            self.known = next(crane for crane in CRANES.values() if crane in seen)
        self.step += 1
        searched, read, asked = self.lost
        match self.step:
            case 1:
                return Reply.calling("terminal", command=f"echo {self.known}")
            case 2:
                return Reply.calling("history_search", query=f"berth {searched} is served by")
            case 3:
                return Reply.calling("terminal", command=f"echo {CRANES[searched]}")
            case 4:
                return Reply.calling("terminal", command=f"grep -o 'berth {read} .*' list.txt")
            case 5:
                return Reply.calling("terminal", command=f"echo {CRANES[read]}")
            case 6:
                return Reply(text="Which one is it for the last berth?")
            case _:
                return Reply(text=f"It is {CRANES[asked]}.")


@pytest.fixture
def compacted(tmp_path, monkeypatch):
    """The store of an agent that was compacted and went on, and the id of its conversation."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "list.txt").write_text(LISTED)
    url = f"sqlite:///{tmp_path / 'sessions.db'}"
    store, script = open_store(url), GoesOn()
    place = AgentPlace(folder=tmp_path, store=store, tell=lambda _event: None, yes=True)
    agent = make_agent(place, ScriptedModel(script), settings_from({"model.context_length": 24_000}))
    agent.context.append(
        [
            {"role": "user", "content": "Good morning."},
            {"role": "assistant", "content": "Good morning."},
            {"role": "user", "content": "Which cranes are there?"},
            {"role": "assistant", "content": LISTED},
            {"role": "user", "content": "Thank you. Now something else."},
            *[
                {"role": ("assistant", "user")[n % 2], "content": f"{n}: the harbour is quiet " * 40}
                for n in range(31)
            ],
        ]
    )

    async def go_on():
        assert await agent.compact() is not None
        await agent.turn("Try the cranes.")
        await agent.turn(f"The one of the last berth is {CRANES[script.lost[2]]}.")
        await agent.aclose()

    asyncio.run(go_on())
    assert script.step == 7
    conversation = agent.session.row.conversation
    store.close()
    return url, conversation


@pytest.mark.outside
def test_show_and_insights_tell_how_the_agent_went_on(penstock, compacted):
    url, conversation = compacted
    shown = penstock("sessions", "show", conversation, "--store", url)
    assert shown.code == 0, shown.err
    told = (
        "Of 4 earlier values the agent used next, 1 stood in the view (25%, 1 only in the handoff), 1 came back by recall, "
        "1 was read again, 1 was asked of the person again."
    )
    assert f"\n{' ' * 20}{told}\n" in shown.text
    counts = {
        "used": 4,
        "in_view": 1,
        "in_handoff": 1,
        "recalled": 1,
        "read_again": 1,
        "asked_again": 1,
        "otherwise": 0,
        "answers": 7,
        "settled": False,
    }
    found = json.loads(penstock("sessions", "show", conversation, "--json", "--store", url).out)
    assert found["compactions"][0]["receipt"]["quality"] == counts
    assert f" since {told} " in " ".join(penstock("insights", "--store", url).text.split()) + " "
    assert json.loads(penstock("insights", "--json", "--store", url).out)["compactions"]["quality"] == counts
