"""The engine with recall tools: what left the view over several compactions is found, read and named."""

from __future__ import annotations

import copy
import json
import random
import time

import pytest
from benchmarks.generate import coding_session

from penstock.engine.compressor import ContextCompressor
from penstock.measure.tokens import tokenizer_for
from penstock.testing.engine_contract import EngineContract, long_conversation

pytestmark = pytest.mark.outside  # takes long: not for `make quick`

COUNT = tokenizer_for(None).count
NEEDLE = "The crane at the north quay answers on port 47113 under the name crane-ostrich-5."


class TestRecallingCompressor(EngineContract):
    def make_engine(self):
        return ContextCompressor(context_length=16_000, recall_tools=True)


class Talk:
    """An agent's loop over a prepared session, with everything that was ever said in it."""

    def __init__(self, engine, messages=()):
        self.engine = engine
        self.said = []  # m1 is the first
        self.view = []
        self.left = set()
        for message in messages:
            self.say(message)

    def say(self, message):
        self.said.append(copy.deepcopy(message))
        self.view.append(message)
        if message["role"] == "tool" and self.engine.should_compress_preflight(self.view):
            result = self.engine.compact(self.view)
            gone = {verdict.number for verdict in result.verdicts if verdict.fate != "kept"}
            self.left |= gone - {0}  # the handoff before it
            self.view = result.messages

    def call(self, name, **args):
        return json.loads(self.engine.handle_tool_call(name, args, messages=self.view))

    def read(self, handle):
        pages, offset = [], 0
        while offset is not None:
            page = self.call("history_expand", handle=handle, offset=offset)
            pages.append(page["text"])
            offset = page.get("next_offset")
        return "".join(pages)


@pytest.fixture(scope="module")
def talk():
    session = coding_session(60_000, seed=11)
    request = next(n for n, message in enumerate(session) if n > 30 and message["role"] == "user")
    session.insert(request, {"role": "user", "content": NEEDLE})
    done = Talk(ContextCompressor(12_000, recall_tools=True), session)
    assert done.engine.compression_count >= 4
    return done


@pytest.mark.outside
def test_a_value_that_left_the_view_is_found_and_read(talk):
    assert "47113" not in json.dumps(talk.view)
    first = talk.call("history_search", query="port of the crane at the north quay")["found"][0]
    assert "47113" in first["excerpt"]
    handle = first["handles"][0]
    assert talk.read(handle) == NEEDLE
    assert talk.said[int(handle[1:]) - 1]["content"] == NEEDLE
    told = talk.call("history_describe", handle=handle)
    assert (told["title"], told["in_view"]) == (NEEDLE, False)


def test_every_message_that_was_compacted_is_reachable(talk):
    assert len(talk.left) > 0.8 * len(talk.said)
    for number in sorted(talk.left):
        original, text = talk.said[number - 1], talk.read(f"m{number}")
        spoken = original.get("content") or ""
        called = [call["function"]["arguments"] for call in original.get("tool_calls", ())]
        assert text == spoken or (text.startswith(spoken) and all(part in text for part in called))


@pytest.mark.outside
def test_nothing_that_stands_in_the_view_is_found(talk):
    whole = [message for message in talk.view if message in talk.said]
    numbers = {talk.said.index(message) + 1 for message in whole}
    assert len(numbers) > 10
    for message in random.Random(1).sample(whole, 10):
        words = (message.get("content") or json.dumps(message))[:300]
        for finding in talk.call("history_search", query=words, limit=20)["found"]:
            assert not numbers & {int(handle[1:]) for handle in finding["handles"]}


def test_answers_fit_a_small_window(talk):
    for name, args in (
        ("history_search", {"query": "test patch file error", "limit": 20}),
        ("history_describe", {"handle": "s3"}),
        ("history_expand", {"handle": "s3"}),
    ):
        assert COUNT(talk.engine.handle_tool_call(name, args, messages=talk.view)) <= 12_000 // 8


def test_each_summary_lists_what_it_stands_for(talk):
    last = f"s{talk.engine.compression_count}"
    told = talk.call("history_describe", handle=last)
    assert told["in_view"] is True
    assert told["inside_count"] > 0.5 * len(talk.left)
    assert talk.call("history_describe", handle="s1")["in_view"] is False
    handoff = next(m["content"] for m in talk.view if "<penstock-handoff" in str(m["content"]))
    assert talk.read(last) in handoff


def test_handoffs_and_stubs_name_the_tool_only_where_there_is_one():
    messages = long_conversation()
    for engine, named in (
        (ContextCompressor(16_000, recall_tools=True), True),
        (ContextCompressor(16_000), False),
    ):
        summarised = json.dumps(engine.compact(messages, target_tokens=2_000).messages)
        assert ("history_expand reads" in summarised) is named
        elided = json.dumps(engine.compact(messages, target_tokens=12_000).messages)
        assert (", history_expand)" in elided) is named
        assert ("history_" in summarised + elided) is named


@pytest.mark.parametrize("target", [400, 700, 1_500, 3_000])
def test_the_target_holds_with_the_tool_named(target):
    result = ContextCompressor(16_000, recall_tools=True).compact(long_conversation(), target_tokens=target)
    assert result.receipt.tokens_after <= target


def test_without_the_tools_nothing_is_offered():
    engine = ContextCompressor(16_000)
    engine.compact(long_conversation())
    assert engine.get_tool_schemas() == []
    assert "error" in json.loads(engine.handle_tool_call("history_search", {"query": "owner"}))


def test_the_list_need_not_be_handed_over():
    engine = ContextCompressor(16_000, recall_tools=True)
    assert json.loads(engine.handle_tool_call("history_search", {"query": "owner"}))["found"] == []
    view = engine.compact(long_conversation()).messages
    assert json.loads(engine.handle_tool_call("history_search", {"query": "part_3 step_3_5"}))["found"]
    view.append({"role": "user", "content": "And now?"})
    engine.should_compress_preflight(view)
    newest = json.loads(engine.handle_tool_call("history_describe", {"handle": "m123"}))
    assert (newest["title"], newest["in_view"]) == ("And now?", True)


@pytest.mark.parametrize("messages", [None, 7, "x", [], [None], [{"role": "what"}], [[]], {}])
def test_a_list_that_is_none_does_no_harm(messages):
    engine = ContextCompressor(16_000, recall_tools=True)
    engine.compact(long_conversation())
    answered = engine.handle_tool_call("history_expand", {"handle": "m4"}, messages=messages)
    assert "def step_0_0(job)" in json.loads(answered)["text"]


def test_what_came_between_two_requests_has_its_time():
    engine = ContextCompressor(16_000, recall_tools=True)
    messages = long_conversation()
    engine.should_compress_preflight(messages[:21])
    engine.should_compress_preflight(messages[:60])
    view = engine.compact(messages).messages
    told = [
        json.loads(engine.handle_tool_call("history_describe", {"handle": handle}, messages=view))
        for handle in ("m9", "m40", "m90")
    ]
    assert ["time" in one for one in told] == [False, True, False]
    assert told[1]["time"][:4] == time.strftime("%Y", time.gmtime())


def test_what_a_tool_gave_is_not_found_again_once_it_is_compacted():
    engine = ContextCompressor(16_000, recall_tools=True)
    talk = Talk(engine, [{"role": "user", "content": NEEDLE}, *long_conversation(40)[1:-1]])
    query = {"query": "crane north quay port"}
    given = json.dumps(talk.call("history_search", **query))
    call = {"id": "r1", "type": "function"}
    call["function"] = {"name": "history_search", "arguments": json.dumps(query)}
    talk.say({"role": "assistant", "content": None, "tool_calls": [call]})
    talk.say({"role": "tool", "tool_call_id": "r1", "content": given})
    for message in long_conversation(40)[1:-1]:
        talk.say(message)
    assert engine.compression_count >= 2
    asked = 160 + 2
    assert asked in talk.left
    assert talk.read(f"m{asked + 1}") == given
    found = talk.call("history_search", **query)["found"]
    assert not any(f"m{asked + 1}" in finding["handles"] for finding in found)


def test_another_model_keeps_the_history_and_a_reset_forgets_it():
    engine = ContextCompressor(16_000, recall_tools=True, model="gpt-4o")
    engine.compact(long_conversation())
    engine.update_model("gpt-4", 8_000)
    assert "text" in json.loads(engine.handle_tool_call("history_expand", {"handle": "m4"}))
    engine.on_session_reset()
    assert "error" in json.loads(engine.handle_tool_call("history_expand", {"handle": "m4"}))


def test_secrets_are_not_quoted():
    messages = long_conversation()
    messages[4]["content"] = "The quay gate opens with password=hunter2-harbour-91, by the way."
    engine = ContextCompressor(6_000, recall_tools=True)
    view = engine.compact(messages).messages
    found = engine.handle_tool_call("history_search", {"query": "quay gate"}, messages=view)
    assert "quay gate" in found
    assert "hunter2" not in found
    assert "hunter2" in engine.handle_tool_call("history_expand", {"handle": "m5"}, messages=view)


def test_the_handoff_is_read_as_the_messages_that_it_stands_for():
    talk = Talk(ContextCompressor(context_length=16_000, recall_tools=True))
    assert "no original" in talk.call("history_expand", handle="handoff")["error"]
    said = long_conversation(40)
    result = talk.engine.compact(said)
    talk.view = result.messages
    about = talk.call("history_describe", handle="handoff")
    assert about["inside_count"] == len(result.original("handoff"))
    gone = [number for number, wire in enumerate(said, 1) if wire in result.original("handoff")]
    text = talk.read("handoff")
    assert [text.find(f"[m{number} {said[number - 1]['role']}]\n") >= 0 for number in gone] == [True] * len(
        gone
    )
    assert talk.read(f"m{gone[0]}") in text


def test_a_tool_call_may_show_a_shorter_list_than_the_last_one():
    """As after an undo: the next estimate looked for a message behind its end."""
    engine = ContextCompressor(16_000, recall_tools=True)
    messages = long_conversation(12)
    engine.estimate(messages)
    engine.handle_tool_call("history_search", {"query": "part"}, messages=messages[:5])
    fresh = ContextCompressor(16_000, recall_tools=True)
    assert engine.estimate(messages) == fresh.estimate(messages)
