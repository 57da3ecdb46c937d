"""Memory takes what people said to remember before it is left behind; context for one request goes with that one only."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.errors import ToolFailure
from penstock.loop.events import Noticed
from penstock.loop.memory import MemoryFiles, MemoryName, MemoryTaker
from penstock.providers.exchange import Called
from penstock.settings import settings_from
from penstock.stores.values import NewFact
from penstock.testing import Reply, ScriptedModel
from penstock.writing.constraints import find_constraints, is_lasting

TALK = "The harbour was quiet and nobody spoke of the ship. "
SMALL = {"model.context_length": 24_000}


def agent_in(store, folder, events, values=SMALL, *, session_id=None, model=None):
    model = model or ScriptedModel([Reply(text="yes")], repeat_last=True)
    place = AgentPlace(folder=folder, store=store, tell=events.append, yes=True)
    return make_agent(place, model, settings_from(values), session_id=session_id), model


def long_talk(number=40, **said):
    talk = [{"role": ("user", "assistant")[n % 2], "content": f"{n}: {TALK * 40}"} for n in range(number)]
    for place, text in said.items():
        talk[int(place[1:])] = {"role": "user", "content": text}
    return talk


def notices(events):
    return [event.text for event in events if isinstance(event, Noticed)]


@pytest.mark.parametrize(
    ("sentence", "lasts"),
    [
        ("Remember that the staging port is 7443.", True),
        ("From now on, run make lint before every commit.", True),
        ("Ab jetzt bitte nur noch auf Deutsch antworten.", True),
        ("记住：不要修改迁移文件。", True),
        ("记住：端口是7443。", True),
        ("Never touch b.py.", False),
        ("Always use tabs in this file.", False),
    ],
)
def test_only_what_is_meant_for_later_lasts(sentence, lasts):
    assert find_constraints(sentence) == [sentence]
    assert is_lasting(sentence) is lasts


def test_what_was_said_to_remember_is_in_the_prompt_of_the_next_conversation(store, tmp_path):
    events = []
    agent, _ = agent_in(store, tmp_path, events)

    async def talk():
        await agent.turn("Remember that the staging port is 7443. Never touch b.py.")
        await agent.turn("From now on, ask me before you push.")
        await agent.aclose()

    asyncio.run(talk())
    later, _ = agent_in(store, tmp_path, events)
    prompt = later.prompt.current.text
    assert "Remember that the staging port is 7443." in prompt
    assert "b.py" not in prompt
    memory = MemoryFiles(tmp_path / "data" / "penstock" / "memory")
    assert "staging port" in memory.text(MemoryName.MEMORY)
    assert "ask me before you push" in memory.text(MemoryName.USER)
    assert notices(events) == [
        "MEMORY.md now holds: Remember that the staging port is 7443.",
        "USER.md now holds: From now on, ask me before you push.",
    ]


def test_a_compaction_lets_memory_take_it_and_the_prompt_has_it_at_once(store, tmp_path):
    events = []
    agent, _ = agent_in(store, tmp_path, events)
    agent.context.append(long_talk(m6=f"Remember that the staging port is 7443. {TALK * 40}"))
    assert asyncio.run(agent.compact()) is not None
    assert "staging port is 7443" in agent.prompt.current.text
    asyncio.run(agent.aclose())
    assert len(notices(events)) == 1  # it is taken once


def test_a_session_that_is_tidied_when_it_is_resumed_loses_nothing_either(store, tmp_path):
    first, _ = agent_in(store, tmp_path, [])
    first.context.append(long_talk(100, m6=f"Remember that the staging port is 7443. {TALK * 40}"))
    # The process is killed here: nothing was left in order.
    events = []
    again, _ = agent_in(store, tmp_path, events, session_id=first.session.id)
    assert store.newest_compaction(again.session.id) is not None
    assert "staging port is 7443" in again.prompt.current.text


def test_it_can_be_turned_off(store, tmp_path):
    agent, _ = agent_in(store, tmp_path, [], {**SMALL, "agent.remember": False})
    agent.context.append([{"role": "user", "content": "Remember that the staging port is 7443."}])
    asyncio.run(agent.aclose())
    assert not (tmp_path / "data" / "penstock" / "memory").exists()


def test_memory_takes_each_thing_once_in_whatever_words_and_no_secret(tmp_path, store):
    memory, told = MemoryFiles(tmp_path), []
    memory.change(MemoryName.MEMORY, lambda _: "- The staging port is 7443, remember that well.\n")
    take = MemoryTaker(memory, told.append)
    facts = [
        NewFact(position=0, kind="constraint", text="Remember that the staging port is 7443."),
        NewFact(position=2, kind="constraint", text="From now on use pnpm."),
        NewFact(position=4, kind="constraint", text="In future use yarn.", superseded=6),
        NewFact(position=6, kind="decision", text="From now on we use bun."),
    ]
    take(facts)
    take(facts)
    assert told == ["MEMORY.md now holds: From now on use pnpm."]
    agent, _ = agent_in(store, tmp_path, [])
    agent.context.append(
        [{"role": "user", "content": "Remember that the token is ghp_x7Kq2LmP9vRt4ZsW8yBn3CdF6gHj1QaE5uTi."}]
    )
    asyncio.run(agent.aclose())
    assert "x7Kq2LmP" not in MemoryFiles(tmp_path / "data" / "penstock" / "memory").text(MemoryName.MEMORY)


def test_a_full_memory_is_said_once_and_stops_nothing(tmp_path):
    memory = MemoryFiles(tmp_path, memory_chars=40)
    take = MemoryTaker(memory, lambda _text: None)
    facts = [
        NewFact(
            position=0, kind="constraint", text="From now on write every commit message in Latin, please."
        ),
        NewFact(position=2, kind="constraint", text="From now on use pnpm."),
    ]
    with pytest.raises(ToolFailure, match="40 are allowed"):
        take(facts)
    assert "pnpm" in memory.text(MemoryName.MEMORY)
    take(facts)


@pytest.mark.parametrize("dialect", ["chat", "anthropic", "responses"])
def test_context_for_one_request_is_sent_with_it_and_never_logged(store, tmp_path, dialect):
    replies = [
        Reply(calls=(Called("c1", "list_files", '{"path": "."}'),)),
        Reply(text="done"),
        Reply(text="done"),
    ]
    model = ScriptedModel(replies, dialect=dialect)
    agent, _ = agent_in(store, tmp_path, [], model=model)
    agent.add_to_next_request("The weather in Bergen: rain, 7 °C.")

    async def talk():
        ended = await agent.turn("Is it wet outside?")
        assert ended.reason == "done", ended.what
        agent.add_to_next_request("The ferry leaves at 9:40.")
        await agent.turn("And the ferry?")

    asyncio.run(talk())
    sent = [json.dumps(one.body, ensure_ascii=False) for one in model.received]
    assert model.violations == ()
    assert ["Bergen" in one for one in sent] == [True, False, False]
    assert ["9:40" in one for one in sent] == [False, False, True]
    assert sent[0].index("wet outside") < sent[0].index("for this request only") < sent[0].index("Bergen")
    logged = b"".join(entry.raw for entry in store.read_from(agent.session.id, 0))
    assert b"Bergen" not in logged
    assert b"9:40" not in logged
    assert b"wet outside" in logged


def test_context_for_one_request_counts_against_the_window(store, tmp_path):
    agent, _ = agent_in(store, tmp_path, [])
    agent.context.weigh(agent.asking.beside())
    before = agent.context.counted
    agent.add_to_next_request("word " * 1_000)
    agent.context.weigh(agent.asking.beside())
    assert agent.context.counted - before >= 1_000
    asyncio.run(agent.turn("Hello"))
    agent.context.weigh(agent.asking.beside())
    assert agent.context.counted - before < 1_000
