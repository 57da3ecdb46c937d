"""Answers that end too early, say nothing, or call a tool with what cannot be read."""

from __future__ import annotations

import asyncio
import json

import pytest
from agent_talk import DIALECTS, agent_of, run

from penstock.loop.events import Noticed, ToolEnded
from penstock.loop.wire import is_whole, mend_calls
from penstock.providers.exchange import Called, Finish
from penstock.sessions.session import Session
from penstock.testing import Reply

HALF = '{"path": "a.txt", "content": "one\\ntw'


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(text="half an ans", finish=Finish.LENGTH), "cut at its limit"),
        (Reply(text="", finish=Finish.REFUSED), "declined to answer"),
        (Reply(text=""), "an empty answer"),
        (Reply(text="", reasoning="Only thoughts."), "an empty answer"),
        (Reply(text="Fine."), ""),
    ],
)
def test_a_person_is_told_of_an_answer_that_is_none(store, tmp_path, dialect, reply, told):
    agent, model, events = agent_of([reply, Reply(text="fine")], store, tmp_path, dialect=dialect)
    assert run(agent, "hello").reason == "done"
    notices = [event.text for event in events if isinstance(event, Noticed)]
    assert len(notices) == bool(told)
    assert all(told in notice for notice in notices)
    assert run(agent, "and?").reason == "done"
    assert not model.violations


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_that_was_cut_off_is_not_made_and_the_model_knows_why(store, tmp_path, dialect):
    cut = Reply(
        calls=(Called("c1", "list_files", "{}"), Called("c2", "write_file", HALF)), finish=Finish.LENGTH
    )
    agent, model, events = agent_of([cut, Reply(text="in parts, then")], store, tmp_path, dialect=dialect)
    assert run(agent, "Write it.").reason == "done"
    listed, written = [event for event in events if isinstance(event, ToolEnded)]
    assert not listed.is_error
    assert written.summary == "cut off: the answer reached its limit of tokens"
    assert "in smaller parts" in json.dumps(model.received[-1].body)
    assert not (tmp_path / "a.txt").exists()
    assert not model.violations


def test_arguments_that_cannot_be_read_are_sent_on_as_something_that_can(store, tmp_path):
    """vLLM and llama.cpp parse the calls of earlier turns, and refuse every request after a broken one."""
    broken = Reply(calls=(Called("c1", "write_file", HALF), Called("c2", "list_files", "")))
    agent, model, _ = agent_of([broken, Reply(text="sorry")], store, tmp_path)
    assert run(agent, "Write it.").reason == "done"
    (called,) = [one for one in model.received[-1].body["messages"] if one.get("tool_calls")]
    first, second = (one["function"]["arguments"] for one in called["tool_calls"])
    assert json.loads(first) == {"unreadable": HALF}
    assert second in ("", "{}")


@pytest.mark.parametrize("text", ["{", "[1]", "null", "3", "{]", '{"a": NaN}'])
def test_what_is_no_object(text):
    assert not is_whole(text)
    wire = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "x", "arguments": text}}]}
    (made,) = mend_calls("chat", [wire])
    assert json.loads(made["tool_calls"][0]["function"]["arguments"]) == {"unreadable": text}
    assert wire["tool_calls"][0]["function"]["arguments"] == text
    assert mend_calls("responses", [wire]) == [wire]


@pytest.mark.parametrize("text", ["", "  ", "{}", '{"a": 1}'])
def test_what_is_one(text):
    assert is_whole(text)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_was_said_before_the_connection_broke_is_kept(store, tmp_path, dialect):
    broken = Reply(text="one two three four five six seven", chunk_chars=4, cut_after_chunks=6)
    agent, model, _ = agent_of([broken, Reply(text="fine")], store, tmp_path, dialect=dialect)
    assert run(agent, "Count.").reason == "failed"
    last = json.dumps(agent.context.view[-1])
    assert "one" in last
    assert "[cut off" in last
    assert run(agent, "Go on.").reason == "done"
    assert not model.violations


def test_a_conversation_that_went_on_elsewhere_goes_on_here_too(store, tmp_path):
    agent, model, events = agent_of([Reply(text="yes")], store, tmp_path, repeat_last=True)
    assert run(agent, "one").reason == "done"
    other = Session.resume(store, agent.session.id)
    other.append([{"role": "user", "content": "two"}, {"role": "assistant", "content": "from elsewhere"}])
    assert run(agent, "three").reason == "done"
    assert "from elsewhere" in json.dumps(model.received[-1].body)
    assert [event.text for event in events if isinstance(event, Noticed)] == [
        "another process has continued this conversation; its messages are included now"
    ]
    other.refresh()
    other.append([{"role": "user", "content": "four"}])
    other.compact(target_tokens=60)
    assert run(agent, "five").reason == "done"
    assert agent.session.view() == agent.context.view
    asyncio.run(agent.aclose())
