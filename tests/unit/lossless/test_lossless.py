"""The engine whose handoffs are outlines: what stays, what is found again, and what its tools open."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest

import penstock
from penstock.conversation import mark
from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.handles import number_messages
from penstock.engine.registry import engine_named
from penstock.engine.summariser import SummaryLimits
from penstock.errors import SettingsError, UnknownHandle
from penstock.lossless.engine import LosslessEngine
from penstock.lossless.outline import parse_outline, spot_of
from penstock.stores.shelf import MemoryShelf, open_shelf
from penstock.stores.store import open_store
from penstock.stores.values import NewSession
from penstock.testing.engine_contract import agent_turns
from penstock.testing.scripted import Reply
from penstock.testing.scripted_model import ScriptedModel
from penstock.writing.work import WorkMaker

pytestmark = pytest.mark.outside  # takes long: not for `make quick`

NOTES = "## Active State\n- All parts were looked at.\n"


def handoff_of(messages):
    return next(m["content"] for m in messages if mark.OPENING in str(m["content"]))


def nodes_of(messages):
    return parse_outline(handoff_of(messages))


def asked(engine, name, view=None, /, **args):
    return json.loads(engine.handle_tool_call(name, args, messages=view))


def test_it_is_chosen_by_its_name():
    engine = engine_named("lossless", context_length=32_000)
    assert isinstance(engine, penstock.LosslessEngine)
    assert engine.name == "lossless"
    assert engine_named("compressor").name == "compressor"
    with pytest.raises(SettingsError, match="did you mean lossless"):
        engine_named("losless")


def test_the_recall_tools_are_on_unless_told_otherwise():
    names = [schema["function"]["name"] for schema in LosslessEngine().get_tool_schemas()]
    assert names == ["history_search", "history_describe", "history_expand", "history_entity"]
    assert LosslessEngine(recall_tools=False).get_tool_schemas() == []


@pytest.mark.parametrize("kind", [LosslessEngine, penstock.ContextCompressor])
def test_what_is_known_of_a_file_spans_what_was_compacted_and_what_stands(kind):
    def touched(number, tool):
        arguments = json.dumps({"path": "src/harbour.py"})
        call = {"id": f"h{number}", "type": "function", "function": {"name": tool, "arguments": arguments}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"h{number}", "content": "done"},
        ]

    engine = kind(16_000, recall_tools=True)
    log = [*agent_turns(0, 3), *touched(1, "read_file"), *agent_turns(3, 60)]
    view = [*engine.compress(log), *touched(2, "patch")]
    read, edited = len(agent_turns(0, 3)) + 2, len(log) + 1
    (found,) = asked(engine, "history_entity", view, name="harbour.py")["found"]
    assert found["state"] == f"edited m{edited}, read m{read}"
    assert "'h1'" not in str(view)  # the first of the two has left the view


def test_every_node_opens_down_to_the_originals():
    engine = LosslessEngine(16_000)
    log = agent_turns(0, 40)
    view = engine.compress(log)
    log += agent_turns(40, 75)
    view = engine.compress(view + agent_turns(40, 75))
    parent = next(node for node in nodes_of(view) if spot_of(node.handles[0]).level == 1)
    told = asked(engine, "history_describe", handle=f"n{parent.handles[0]}")
    children = [inside["handle"] for inside in told["inside"]]
    assert (told["kind"], told["in_view"], len(children)) == ("segment", True, 2)
    opened = asked(engine, "history_expand", handle=told["handle"])["text"]
    assert all(f"[{child} m" in opened for child in children)
    leaf = asked(engine, "history_describe", handle=children[0])
    assert leaf["in_view"] is False
    assert leaf["inside"][0]["handle"] == f"m{parent.runs[0][0]}"
    originals = asked(engine, "history_expand", handle=children[0])["text"]
    first = log[parent.runs[0][0] - 1]
    assert originals.startswith(f"[m{parent.runs[0][0]} {first['role']}]")
    assert engine.original(children[0])[0] == first
    assert engine.original(f"m{parent.runs[0][0]}") == first


def test_a_handle_that_names_nothing_is_an_answer():
    engine = LosslessEngine(16_000)
    engine.compress(agent_turns(0, 40))
    assert "error" in asked(engine, "history_describe", handle="n999")
    assert "error" in asked(engine, "history_expand", handle="m999")
    with pytest.raises(UnknownHandle, match="n999"):
        engine.original("n999")


def test_a_search_finds_what_no_node_tells():
    engine = LosslessEngine(16_000)
    engine.compress(agent_turns(0, 40))
    found = asked(engine, "history_search", query="step_3_44")["found"]
    assert "step_3_44" in found[0]["excerpt"]


def test_the_beginning_of_the_handoff_stays_as_it_was_while_there_is_room():
    engine = LosslessEngine(200_000)
    first = engine.compact(agent_turns(0, 40), target_tokens=6_000)
    before = handoff_of(first.messages)
    after = handoff_of(engine.compact(first.messages + agent_turns(40, 60), target_tokens=12_000).messages)
    shared = before[: before.index("## Active Task")]
    assert after.startswith(shared)
    assert len(shared) > 0.8 * len(before)


def test_a_new_conversation_begins_with_the_first_node():
    engine = LosslessEngine(16_000)
    engine.compress(agent_turns(0, 40))
    engine.on_session_reset()
    assert engine.get_status()["nodes"] == 0
    assert nodes_of(engine.compress(agent_turns(50, 90)))[0].handles == (1,)
    with pytest.raises(UnknownHandle):
        LosslessEngine().original("n1")


@pytest.mark.outside
def test_what_comes_back_where_room_is_left_leaves_no_gaps_in_the_outline():
    """Each gap would stand in a header for good."""
    engine = LosslessEngine(8_000)
    view, kept = [], []
    for number in range(8):
        view = engine.compress(view + agent_turns(25 * number, 25 * (number + 1)))
        kept.append(len(view))
        assert all(len(node.runs) == 1 for node in nodes_of(view))
    assert len(set(kept)) > 1  # some came back


@pytest.mark.outside
def test_thirty_compactions_stay_within_bounds():
    engine = LosslessEngine(12_000)
    view, sizes, levels, leaves = [], [], [], 0
    for number in range(30):
        view = engine.compress(view + agent_turns(30 * number, 30 * (number + 1)))
        sizes.append(len(handoff_of(view)))
        levels.append(engine.get_status()["levels"])
        leaves = max(spot_of(node.handles[-1]).leaves for node in nodes_of(view))
        told = sorted(n for node in nodes_of(view) for a, b in node.runs for n in range(a, b + 1))
        standing = {n for n in number_messages(decode_all(DIALECTS["chat"], view)) if n}
        assert told == list(range(told[0], told[-1] + 1))
        assert standing.isdisjoint(told)
        assert standing.union(told) == set(range(1, 120 * (number + 1) + 1))
    assert leaves > 30
    assert max(levels) <= leaves.bit_length()
    assert max(sizes[5:]) < 1.3 * min(sizes[5:])
    reached = messages_below(engine, [f"n{h}" for node in nodes_of(view) for h in node.handles])
    assert reached == set(told)


def messages_below(engine, handles):
    history = engine._recollection.history
    reached, waiting = set(), list(handles)
    while waiting:
        handle = waiting.pop()
        if handle.startswith("m"):
            reached.add(int(handle[1:]))
        else:
            waiting += history.describe(handle).inside
    return reached


# With a model.


def test_a_model_writes_on_each_new_node_once():
    model = ScriptedModel(lambda received: NOTES)
    engine = LosslessEngine(32_000, summariser=model)
    result = engine.compact(agent_turns(0, 80))
    fresh = nodes_of(result.messages)
    assert len(model.received) == len(fresh) == result.receipt.model_calls
    assert all(node.text.startswith("- All parts were looked at.\n") for node in fresh)
    assert result.receipt.model == model.name
    view = result.messages + agent_turns(80, 150)
    before = len(model.received)
    engine.compact(view)
    assert 0 < len(model.received) - before < 2 * len(fresh)


def test_the_same_messages_are_never_written_on_twice():
    model = ScriptedModel(lambda received: NOTES)
    shelf = MemoryShelf()
    first = LosslessEngine(32_000, summariser=model, shelf=shelf).compact(agent_turns(0, 80))
    calls = len(model.received)
    again = LosslessEngine(32_000, summariser=model, shelf=shelf).compact(agent_turns(0, 80))
    assert len(model.received) == calls
    assert again.messages == first.messages


def test_what_a_model_invents_is_struck_and_what_fails_is_excerpts():
    replies = [
        "## Active State\n- It is in src/invented_9.py and step_1_1 (m3).\n- See part_1.py, step_1_1 and bogus_77.\n"
    ]
    model = ScriptedModel(lambda received: replies[0] if received.number % 2 else Reply.unauthorised())
    result = LosslessEngine(32_000, summariser=model).compact(agent_turns(0, 80))
    text = handoff_of(result.messages)
    assert "invented_9" not in text
    assert "bogus_77" not in text
    assert result.receipt.facts_struck > 0
    assert result.receipt.tokens_after <= result.receipt.target_tokens


def test_where_no_model_writes_the_outline_stands_without_it():
    model = ScriptedModel(lambda received: "I am sorry, I cannot do that.")
    result = LosslessEngine(32_000, summariser=model).compact(agent_turns(0, 80))
    plain = LosslessEngine(32_000).compact(agent_turns(0, 80))
    assert result.receipt.outcome == "degraded"
    assert "written without a model" in result.receipt.reason
    assert result.messages == plain.messages


def test_a_compaction_asks_no_more_than_its_limits_allow_and_for_the_newest_nodes_first():
    model = ScriptedModel(lambda received: NOTES)
    summariser = penstock.Summariser(model, limits=SummaryLimits(requests=3))
    result = LosslessEngine(32_000, summariser=summariser).compact(agent_turns(0, 80))
    nodes = nodes_of(result.messages)
    assert len(model.received) == result.receipt.model_calls == 3
    assert [node.text.startswith("- All parts") for node in nodes] == [False] * (len(nodes) - 3) + [True] * 3
    assert f"{len(nodes) - 3} of {len(nodes)} new nodes have excerpts alone" in result.receipt.reason


@pytest.fixture
def trims(monkeypatch):
    """The choosing of lines for nodes that a small window cannot hold: how many at once, and how many have ended."""
    at_once, most, ended = [], [], []
    begun = threading.Event()
    trim = WorkMaker.trim

    def trim_slowly(maker, work, room_tokens):
        at_once.append(work)
        most.append(len(at_once))
        begun.set()
        time.sleep(0.05)
        try:
            return trim(maker, work, room_tokens)
        finally:
            at_once.pop()
            ended.append(work)

    monkeypatch.setattr(WorkMaker, "trim", trim_slowly)
    return begun, most, ended


def large_turns():
    """Turns whose results are each too large for many requests to a small model."""
    chat = agent_turns(0, 40)
    lines = "\n".join(f"line {line} of shelf {line * 7} holds item_{line}" for line in range(900))
    return [
        {**one, "content": f"{one['content']}\n{lines}"} if one["role"] == "tool" else one for one in chat
    ]


def test_lines_for_two_nodes_are_not_chosen_at_the_same_time(trims):
    """All choose in the arrays of one notebook, which serves one thread."""
    summariser = penstock.Summariser(ScriptedModel(lambda received: NOTES), window_tokens=2_600)
    result = LosslessEngine(8_000, summariser=summariser).compact(large_turns())
    _, most, ended = trims
    assert len(ended) > 1
    assert max(most) == 1
    assert result.receipt.tokens_after <= result.receipt.target_tokens


def test_cancelled_it_leaves_no_thread_that_chooses_lines(trims):
    summariser = penstock.Summariser(ScriptedModel(lambda received: NOTES), window_tokens=2_600)
    engine = LosslessEngine(8_000, summariser=summariser)
    begun, most, ended = trims

    async def go():
        task = asyncio.ensure_future(engine.acompact(large_turns()))
        assert await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(most), len(ended)

    at_first, over = asyncio.run(go())
    assert at_first == over == len(ended)


def test_where_all_that_it_writes_is_invented_the_receipt_says_so():
    model = ScriptedModel(lambda received: "## Active State\n- It is all in src/invented_9.py.\n")
    result = LosslessEngine(32_000, summariser=model).compact(agent_turns(0, 80))
    assert result.receipt.outcome == "degraded"
    assert "was struck" in result.receipt.reason
    assert result.messages == LosslessEngine(32_000).compact(agent_turns(0, 80)).messages


# In a store.


@pytest.fixture
def store(tmp_path):
    with_file = open_store(f"sqlite:///{tmp_path}/nodes.db")
    yield with_file
    with_file.close()


def test_a_session_that_is_resumed_finds_its_nodes_and_its_originals(store):
    session = penstock.Session.create(store)
    log = agent_turns(0, 80)
    session.append(log)
    model = ScriptedModel(lambda received: NOTES)
    first = LosslessEngine(32_000, summariser=model, store=store)
    first.on_session_start(session.id)
    view = first.compress(log)
    calls = len(model.received)
    resumed = LosslessEngine(32_000, summariser=model, store=store)
    resumed.on_session_start(session.id)
    assert resumed.compress(log) == view
    assert len(model.received) == calls
    late = LosslessEngine(32_000, store=store)
    late.on_session_start(session.id)
    node = nodes_of(view)[0]
    opened = asked(late, "history_expand", view, handle=f"n{node.handles[0]}")
    assert log[node.runs[0][0] - 1]["role"] in opened["text"].split("\n")[0]


def test_a_session_that_the_store_does_not_know_is_kept_in_memory(store):
    engine = LosslessEngine(16_000, store=store)
    engine.on_session_start("nobody")
    assert nodes_of(engine.compress(agent_turns(0, 40)))


def test_a_shelf_that_fails_stops_no_compaction(store):
    failures = []
    store.create(NewSession(id="one", at=1.0))
    shelf = open_shelf(store, "one", failures.append)
    store.close()
    engine = LosslessEngine(16_000, shelf=shelf)
    view = engine.compress(agent_turns(0, 40))
    assert view == LosslessEngine(16_000).compress(agent_turns(0, 40))
    assert failures
    assert "text" in asked(engine, "history_expand", handle=f"n{nodes_of(view)[0].handles[0]}")


def test_a_node_without_room_for_its_text_keeps_it_to_be_opened():
    first = LosslessEngine(200_000)
    wide = first.compact(agent_turns(0, 40), target_tokens=6_000).messages
    texts = {node.handles[0]: node.text for node in nodes_of(wide)}
    resumed = LosslessEngine(200_000)  # it has never made these nodes
    small = resumed.compact(wide + agent_turns(40, 80), target_tokens=700).messages
    assert len(handoff_of(small)) < 3_000
    for handle, text in texts.items():
        assert resumed._tree.node(handle).text == text
