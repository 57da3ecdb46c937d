"""The agent with an engine of a third party that knows lists only: from the settings to the end of the session."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from agent_talk import DIALECTS, pause
from tests.unit.engine.plugin_stage import LAST_TURNS, install, write_plugin

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.context.engine_adapter import EngineAdapter
from penstock.errors import EngineFailure, SettingsError
from penstock.loop.events import Compacted, Compacting, Noticed, ToolEnded
from penstock.settings import settings_from
from penstock.testing import Reply, ScriptedModel

pytestmark = pytest.mark.sampled(3)  # each of its cases is long

WINDOW = 12_000
LONG = "word " * 1_500


@pytest.fixture(autouse=True)
def plugins(tmp_path, monkeypatch):
    """The plugin folder is the default one, in the user's data folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "penstock" / "plugins"


def agent_of(replies, store, folder, *, session_id=None, dialect="chat", engine="last-turns", **values):
    events = []
    model = ScriptedModel(replies, dialect=dialect, window_tokens=WINDOW, repeat_last=True)
    settings = settings_from({"context.engine": engine, "model.context_length": WINDOW, **values})
    place = AgentPlace(folder=folder, store=store, tell=events.append, yes=True)
    return make_agent(place, model, settings, session_id=session_id), model, events


def run(agent, *texts):
    async def all_turns():
        return [await agent.turn(text) for text in texts]

    return asyncio.run(all_turns())


def troubles(events):
    """What the person was told, but for how full the context is."""
    told = [event.text for event in events if isinstance(event, Noticed)]
    return [text for text in told if not text.startswith("The context")]


def changed(old, new):
    assert old in LAST_TURNS
    return LAST_TURNS.replace(old, new)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_long_session_stays_inside_the_window_and_is_legal(store, tmp_path, plugins, dialect):
    write_plugin(plugins)
    script = [Reply.calling("list_files"), Reply(text="Seen.", reasoning="Let me see.")] * 12
    agent, model, events = agent_of(script, store, tmp_path, dialect=dialect)
    ended = run(agent, *(f"question {number}: {LONG}" for number in range(12)))
    assert {turn.reason for turn in ended} == {"done"}
    assert model.violations == ()
    made = [event.receipt for event in events if isinstance(event, Compacted)]
    assert len(made) >= 2
    assert all(receipt.tokens_after < receipt.tokens_before for receipt in made)
    assert all("last-turns" in receipt.reason for receipt in made)
    assert agent.status().compactions == len(made) == agent.context.engine.compression_count
    assert not troubles(events)
    last = json.dumps(model.received[-1].body)
    assert "question 11" in last
    assert "question 1:" not in last
    assert "earlier messages left out" in last
    log = [entry.raw for entry in store.read_from(agent.session.id, 0)]
    each = (
        5 if dialect == "responses" else 4
    )  # a question, a call, its result, an answer; reasoning stands alone
    assert len(log) == 12 * each  # nothing is gone


def test_an_installed_engine_is_told_of_its_model_and_session(store, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "acme_engines", raising=False)
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", {"last-turns": "acme_engines:LastTurns"})))
    agent, _, _ = agent_of([Reply(text="Hello.")], store, tmp_path)
    sys.modules.pop("acme_engines")  # what the next test installs is another one
    engine = agent.context.engine
    assert (engine.context_length, engine.threshold_tokens) == (WINDOW, 9_000)
    run(agent, "Hello.")
    assert engine.last_prompt_tokens > 0
    assert engine.last_completion_tokens > 0
    asyncio.run(agent.aclose())
    session = agent.session.id
    assert engine.sessions == [("start", session, {"model": "scripted-model"}), ("end", session, 2)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_its_tools_are_offered_and_answered(store, tmp_path, plugins, dialect):
    write_plugin(plugins)
    script = [Reply.calling("count_word", word="pelican"), Reply.calling("count_word"), Reply(text="Twice.")]
    agent, model, events = agent_of(script, store, tmp_path, dialect=dialect)
    assert run(agent, "How often do I say pelican, pelican?")[0].reason == "done"
    assert "count_word" in json.dumps(model.received[0].body["tools"])
    assert [event.is_error for event in events if isinstance(event, ToolEnded)] == [False, False]
    sent = json.dumps(model.received[-1].body)
    assert '\\"count\\": 3' in sent  # twice in the question, once in its own call
    assert "word is missing" in sent
    assert model.violations == ()


def test_what_is_ours_is_not_taken_over(store, tmp_path, plugins):
    write_plugin(plugins, text=LAST_TURNS.replace("count_word", "list_files"))
    roomy = {"model.context_length": 2 * WINDOW}  # so that every tool is offered in full
    agent, model, _ = agent_of([Reply.calling("list_files"), Reply(text="ok")], store, tmp_path, **roomy)
    (tmp_path / "here.txt").write_text("x")
    run(agent, "List.")
    assert json.dumps(model.received[0].body["tools"]).count('"list_files"') == 1
    assert "here.txt" in json.dumps(model.received[-1].body["messages"])


def test_a_tool_that_breaks_is_an_answer(store, tmp_path, plugins):
    write_plugin(plugins, text=changed('word = args.get("word")', 'word = args["missing"]'))
    agent, model, events = agent_of(
        [Reply.calling("count_word", word="x"), Reply(text="ok")], store, tmp_path
    )
    assert run(agent, "Go.")[0].reason == "done"
    assert [event.is_error for event in events if isinstance(event, ToolEnded)] == [True]
    assert "failed with KeyError" in json.dumps(model.received[-1].body)


def test_a_compaction_by_hand_is_made_once_and_can_be_undone(store, tmp_path, plugins):
    write_plugin(plugins)
    agent, _, _ = agent_of([Reply(text="ok")], store, tmp_path)
    run(agent, *(f"question {number}: {LONG[:3000]}" for number in range(5)))
    before = list(agent.context.view)
    done = asyncio.run(agent.compact("nothing in particular"))
    assert done.receipt.messages_after == len(agent.context.view) == 5
    assert agent.context.engine.compression_count == 1
    assert agent.context.tokens() < 5_000
    assert agent.context.undo()
    assert agent.context.view == before
    assert agent.status().compactions == 0
    assert not agent.context.undo()


def test_what_is_pinned_and_the_exchanges_to_keep_come_back_behind_what_it_wrote(store, tmp_path, plugins):
    write_plugin(plugins)
    agent, _, _ = agent_of([Reply(text="ok")], store, tmp_path)
    run(agent, *(f"question {number}: {LONG[:3000]}" for number in range(6)))
    agent.session.pin("m1")
    assert asyncio.run(agent.compact(keep_exchanges=3)) is not None
    asked = [one["content"][:10] for one in agent.context.view if one["role"] == "user"]
    assert asked == ["[8 earlier", "question 0", "question 3", "question 4", "question 5"]
    assert agent.session.view() == agent.context.view


def test_it_has_what_the_built_in_engine_has(store, tmp_path, plugins):
    """Continuation sessions, counts, warnings of pressure, search behind the view, and one undo for each compaction."""
    text = LAST_TURNS + (
        "\n    def on_session_switch(self, old_id, new_id, reason):\n"
        '        self.sessions.append(("switch", old_id, new_id, reason))\n'
    )
    write_plugin(plugins, text=text)
    agent, _, events = agent_of([Reply(text="ok")], store, tmp_path)
    first = agent.session.id
    run(agent, f"the pelican lands at noon: {LONG}", *(f"question {number}: {LONG}" for number in range(14)))
    rows = store.compactions(agent.session.id)
    engine = agent.context.engine
    assert len(rows) == engine.compression_count == agent.status().compactions >= 2
    switches = [one for one in engine.sessions if one[0] == "switch"]
    assert (switches[0][1], switches[-1][2], switches[0][3]) == (first, agent.session.id, "compression")
    assert store.tip(first).id == agent.session.id != first
    levels = [event.level for event in events if isinstance(event, Noticed)]
    assert levels.count("warn") >= 2
    assert agent.session.view() == agent.context.view
    found = json.loads(agent.calls.recall("history_search", '{"query": "pelican noon"}'))["found"]
    assert "pelican" in json.dumps(found[0])
    assert json.loads(agent.calls.recall("history_describe", '{"handle": "s1"}'))["kind"] == "summary"
    assert rows[-1].receipt["decision"]["reason"]
    for left in range(len(rows) - 1, -1, -1):
        assert agent.context.undo()
        assert agent.status().compactions == left
        assert agent.session.view() == agent.context.view
    assert len(agent.context.view) == 30


def test_one_that_says_so_works_beside_the_turns(store, tmp_path, plugins):
    text = LAST_TURNS.replace("        self.compression_count += 1\n", "") + (
        "\n    @property"
        "\n    def hosting(self):"
        "\n        return penstock.Hosting(works_in_background=True, on_compaction=self._count)"
        "\n"
        "\n    def _count(self, receipt, current_tokens):"
        '\n        self.compression_count += receipt.outcome == "compacted"'
        "\n"
    )
    write_plugin(plugins, text=text)
    agent, model, events = agent_of([Reply(text="ok")], store, tmp_path)

    async def all_turns():
        for number in range(60):
            assert (await agent.turn(f"question {number}: {LONG[:1500]}")).reason == "done"
            await pause(agent)
        await agent.aclose()

    asyncio.run(all_turns())
    made = [event for event in events if isinstance(event, Compacted)]
    assert len(made) >= 2
    assert not [event for event in events if isinstance(event, Compacting)], "no turn has waited"
    assert agent.context.engine.compression_count == len(made) == agent.status().compactions
    assert agent.session.view() == agent.context.view
    assert model.violations == ()


ILL = {
    "raises": (
        "self.compression_count += 1\n",
        'raise ValueError(messages[0]["content"])\n',
        "failed with ValueError",
    ),
    "parts a call from its result": (
        "return [*head, note, *messages[start:]]",
        'return [one for one in messages if not one.get("tool_calls")]',
        "the provider would refuse",
    ),
    "no list": ("return [*head, note, *messages[start:]]", "return None", "not a list of messages"),
    "rubbish": ("return [*head, note, *messages[start:]]", 'return [{"x": 1}]', "the provider would refuse"),
}


@pytest.mark.parametrize("fault", ILL)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_engine_that_fails_leaves_the_conversation_as_it_was(store, tmp_path, plugins, fault, dialect):
    old, new, reason = ILL[fault]
    write_plugin(plugins, text=changed(old, new))
    script = [Reply.calling("list_files"), Reply(text="Seen.")] * 3
    agent, model, events = agent_of(script, store, tmp_path, dialect=dialect)
    ended = run(agent, *(f"pelican {number}: {LONG}" for number in range(6)))
    assert {turn.reason for turn in ended} == {"done"}
    assert model.violations == ()
    notices = troubles(events)
    assert notices, "the person is told"
    assert all(reason in text and "last-turns" in text for text in notices)
    assert len(notices) <= 2, "and not before each request"
    assert not any("pelican" in text for text in notices)
    assert agent.session.view() == agent.context.view
    with pytest.raises(EngineFailure, match="last-turns"):
        asyncio.run(agent.compact())


def test_a_full_window_with_an_engine_that_fails_ends_the_turn_with_its_reason(store, tmp_path, plugins):
    write_plugin(plugins, text=changed("self.compression_count += 1\n", "raise ValueError\n"))
    agent, _, _ = agent_of([Reply(text="ok")], store, tmp_path)
    ended = run(agent, *(f"question {number}: {LONG * 2}" for number in range(6)))
    assert ended[-1].reason == "failed"
    assert "the engine 'last-turns' failed with ValueError" in ended[-1].what


def test_an_engine_that_does_not_listen_loses_no_answer(store, tmp_path, plugins):
    text = changed("reported = penstock.normalise_usage(usage)", "raise ValueError")
    write_plugin(plugins, text=text.replace('self.sessions.append(("end"', 'raise OSError(("end"'))
    agent, model, events = agent_of([Reply(text="an answer")], store, tmp_path)
    assert [turn.reason for turn in run(agent, "Hello.", "Hello again.")] == ["done", "done"]
    assert len(store.read_from(agent.session.id, 0)) == 4
    asyncio.run(agent.aclose())
    told = troubles(events)
    assert ["ValueError" in text for text in told] == [True, True, False]
    assert "OSError" in told[-1]
    assert model.violations == ()


def test_off_means_off(store, tmp_path, plugins):
    write_plugin(plugins)
    agent, _, events = agent_of([Reply(text="ok")], store, tmp_path, **{"compression.enabled": False})
    run(agent, *(f"question {number}: {LONG}" for number in range(6)))
    assert not [event for event in events if isinstance(event, Compacted)]
    assert asyncio.run(agent.compact()) is not None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_session_that_is_resumed_goes_on_with_the_view_it_had(store, tmp_path, plugins, dialect):
    write_plugin(plugins)
    first, _, _ = agent_of(
        [Reply.calling("list_files"), Reply(text="ok")] * 12, store, tmp_path, dialect=dialect
    )
    run(first, *(f"question {number}: {LONG}" for number in range(11)))
    assert first.status().compactions >= 2
    asyncio.run(first.aclose())
    again, model, _ = agent_of(
        [Reply(text="ok")], store, tmp_path, dialect=dialect, session_id=first.session.id
    )
    assert again.context.view == first.context.view
    assert again.context.counted == first.context.counted
    assert again.status().compactions == first.status().compactions
    run(again, "And now?", f"question 9: {LONG}", f"question 10: {LONG}")
    assert model.violations == ()
    third, _, _ = agent_of([Reply(text="ok")], store, tmp_path, dialect=dialect, session_id=first.session.id)
    assert third.context.view == again.context.view
    while third.context.undo():
        pass
    whole = [json.loads(entry.raw) for entry in store.read_from(first.session.id, 0)]
    assert third.context.view == whole
    off = {"compression.enabled": False}  # else a conversation that is far too long is tidied first
    fourth, _, _ = agent_of(
        [Reply(text="ok")], store, tmp_path, dialect=dialect, session_id=first.session.id, **off
    )
    assert fourth.context.view == whole


def test_the_view_is_that_of_the_conversation_whatever_engine_goes_on_with_it(store, tmp_path, plugins):
    write_plugin(plugins)
    first, _, _ = agent_of([Reply(text="ok")], store, tmp_path)
    run(first, *(f"question {number}: {LONG[:3000]}" for number in range(5)))
    asyncio.run(first.compact())
    session_id = first.session.id
    built_in, model, _ = agent_of(
        [Reply(text="ok")], store, tmp_path, session_id=session_id, engine="compressor"
    )
    assert built_in.context.view == first.context.view
    run(built_in, *(f"question {number}: {LONG[:3000]}" for number in range(5, 9)))
    made = asyncio.run(built_in.compact())
    assert made is not None
    assert "m0" not in json.dumps(built_in.context.view), "what another engine wrote has no number"
    assert model.violations == ()
    again, model, _ = agent_of([Reply(text="ok")], store, tmp_path, session_id=session_id)
    assert again.context.view == built_in.context.view == again.session.view()
    run(again, "And now?", *(f"question {number}: {LONG}" for number in range(9, 14)))
    assert model.violations == ()
    assert again.session.view() == again.context.view


def test_an_engine_that_decides_by_the_messages_is_asked_before_a_request(store, tmp_path, plugins):
    text = LAST_TURNS + (
        "\n    def should_compress_preflight(self, messages):\n"
        '        return sum(message["role"] == "user" for message in messages) > 3\n'
    )
    write_plugin(plugins, text=text)
    agent, model, events = agent_of([Reply(text="ok")], store, tmp_path, dialect="anthropic")
    run(agent, *(f"question {number} " * 40 for number in range(8)))
    assert len([event for event in events if isinstance(event, Compacted)]) >= 2
    assert agent.context.engine.should_compress(agent.context.tokens()) is False
    assert model.violations == ()


def test_an_engine_that_cannot_be_loaded_stops_only_who_chooses_it(store, tmp_path, plugins):
    write_plugin(plugins, "broken.py", "import nothing_like_it\n")
    with pytest.raises(SettingsError, match=r"'broken', but that engine cannot be used: .*nothing_like_it"):
        agent_of([Reply(text="ok")], store, tmp_path, engine="broken")
    agent, _, _ = agent_of([Reply(text="ok")], store, tmp_path, engine="compressor")
    assert run(agent, "Hello.")[0].reason == "done"


def test_an_engine_that_builds_on_the_compressor_is_treated_as_it_is(store, tmp_path, plugins):
    text = """
import penstock

class Mine(penstock.ContextCompressor):
    switches = []
    name = "mine"

    def on_session_switch(self, old_id, new_id, reason):
        super().on_session_switch(old_id, new_id, reason)
        self.switches.append((old_id, new_id, reason))
"""
    write_plugin(plugins, "mine.py", text)
    agent, model, events = agent_of([Reply(text="ok")], store, tmp_path, engine="mine")
    first = agent.session.id
    run(agent, *(f"question {number}: {LONG}" for number in range(9)))
    assert [event for event in events if isinstance(event, Compacted)]
    assert model.violations == ()
    switches = agent.context.engine.switches
    assert (switches[0][0], switches[-1][1], switches[0][2]) == (first, agent.session.id, "compression")
    assert len(store.compactions(agent.session.id)) == len(switches) == agent.status().compactions
    assert agent.context.undo()


def test_what_is_kept_comes_back_as_it_was():
    """Signed reasoning and the pairing of calls survive the way through the chat format and back."""

    class KeepsAll:
        name = "all"

        def compress(self, messages, tokens, focus):
            return [{"role": "user", "content": "A note."}, *(dict(one) for one in messages[1:])]

    call = {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "text"}
    view = [
        {"role": "user", "content": "Begin."},
        {"role": "assistant", "content": [thought, call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": "Done.", "x": 1}]},
    ]
    made = EngineAdapter(KeepsAll(), "anthropic").compress(view, 100, None)
    assert made == [{"role": "user", "content": "A note."}, *view[1:]]
    assert all(one is other for one, other in zip(made[1:], view[1:], strict=True))


def fill(store, tmp_path):
    """A conversation that nearly fills the window, left behind by another engine."""
    agent, _, _ = agent_of(
        [Reply(text="ok")], store, tmp_path, engine="compressor", **{"compression.enabled": False}
    )
    agent.log([{"role": ("user", "assistant")[n % 2], "content": f"note {n}: {LONG}"} for n in range(8)])
    return agent.session.id


def test_a_resumed_conversation_is_tidied_before_the_session_starts(store, tmp_path, plugins):
    write_plugin(plugins)
    session_id = fill(store, tmp_path)
    agent, _, events = agent_of([Reply(text="ok")], store, tmp_path, session_id=session_id)
    assert agent.session.id != session_id
    assert agent.context.engine.sessions == [("start", agent.session.id, {"model": "scripted-model"})]
    assert len(agent.context.view) == 5
    assert agent.context.tokens() < 0.85 * WINDOW
    assert troubles(events) == []


def test_an_engine_that_cannot_tidy_does_not_lock_a_person_out(store, tmp_path, plugins):
    write_plugin(plugins, text=changed("start = asked[-self.keep]", "start = asked[-1000]"))
    session_id = fill(store, tmp_path)
    agent, _, events = agent_of([Reply(text="ok")], store, tmp_path, session_id=session_id)
    assert agent.session.id == session_id
    assert ["IndexError" in text and "continues unchanged" in text for text in troubles(events)] == [True]
