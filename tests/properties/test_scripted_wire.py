"""Whatever a script answers is legal to send back, and a stream of it says the same as the whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.strategies.conversations import broken_conversations, conversations, json_values, texts

from penstock.measure.tokens import tokenizer_named
from penstock.measure.usage import Usage
from penstock.providers.exchange import Called, Finish
from penstock.testing.provider_wire import stream_frames, wire_named
from penstock.testing.provider_wire.served import Served
from penstock.testing.request_reading import read_request
from penstock.testing.scripted import Received, Reply

SOME = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
DIALECTS = ("chat", "responses", "anthropic")
BYTES = tokenizer_named("utf8-bytes")
HELLO = {"role": "user", "content": "Hello"}


def faults(dialect, messages):
    body = {"model": "m", "input" if dialect == "responses" else "messages": messages, "max_tokens": 9}
    received = Received(number=1, dialect=dialect, path="", body=body, raw=b"")
    return read_request(received, BYTES).faults


def replies():
    arguments = st.dictionaries(texts(min_size=1, max_size=6), json_values(), max_size=2)
    call = st.builds(lambda given: Called("", "read_file", json.dumps(given)), arguments)
    return st.builds(
        Reply,
        text=texts(min_size=1).filter(lambda text: not text.isspace()),
        reasoning=texts(),
        calls=st.lists(call, max_size=3).map(tuple),
        finish=st.sampled_from([None, *Finish]),
        chunk_chars=st.integers(1, 9),
    )


def served(reply):
    return Served(reply=reply, number=1, model="m", usage=Usage(input_tokens=5, output_tokens=2))


def results(dialect, calls):
    ids = [call.id for call in calls]
    if dialect == "chat":
        return [{"role": "tool", "tool_call_id": name, "content": "ok"} for name in ids]
    if dialect == "responses":
        return [{"type": "function_call_output", "call_id": name, "output": "ok"} for name in ids]
    blocks = [{"type": "tool_result", "tool_use_id": name, "content": "ok"} for name in ids]
    return [{"role": "user", "content": blocks}] if blocks else []


def joined_chat(frames):
    """Text, reasoning and arguments by call, out of chunks."""
    assert frames.pop().data == "[DONE]"
    text = reasoning = ""
    calls = {}
    for frame in frames:
        delta = frame.data["choices"][0]["delta"]
        text += delta.get("content") or ""
        reasoning += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            calls[call["index"]] = calls.get(call["index"], "") + call["function"]["arguments"]
    return text, reasoning, [calls[index] for index in sorted(calls)]


def joined_responses(frames):
    found = {"output_text": "", "reasoning_summary_text": ""}
    calls = {}
    for frame in frames:
        name = frame.event.split(".")
        if name[-1] != "delta":
            continue
        if name[1] in found:
            found[name[1]] += frame.data["delta"]
        else:
            place = frame.data["output_index"]
            calls[place] = calls.get(place, "") + frame.data["delta"]
    return found["output_text"], found["reasoning_summary_text"], [calls[place] for place in sorted(calls)]


def joined_anthropic(frames):
    found = {"text": "", "thinking": ""}
    calls = {}
    for frame in frames:
        delta = frame.data.get("delta", {})
        if delta.get("type") == "input_json_delta":
            place = frame.data["index"]
            calls[place] = calls.get(place, "") + delta["partial_json"]
        for kind in found:
            found[kind] += delta.get(kind, "") if frame.event == "content_block_delta" else ""
    return found["text"], found["thinking"], [calls[place] for place in sorted(calls)]


JOINED = {"chat": joined_chat, "responses": joined_responses, "anthropic": joined_anthropic}


@pytest.mark.parametrize("dialect", DIALECTS)
@SOME
@given(data=st.data())
def test_a_legal_conversation_is_let_through(dialect, data):
    assert faults(dialect, data.draw(conversations(dialect))) == ()


@pytest.mark.parametrize("dialect", DIALECTS)
@SOME
@given(data=st.data())
def test_a_broken_conversation_is_read_without_a_fall(dialect, data):
    faults(dialect, data.draw(broken_conversations(dialect)))


@pytest.mark.parametrize("dialect", DIALECTS)
@SOME
@given(reply=replies())
def test_an_answer_is_legal_to_send_back(dialect, reply):
    answer = served(reply)
    history = [HELLO, *wire_named(dialect).wires(answer), *results(dialect, answer.calls)]
    assert faults(dialect, history) == ()


@pytest.mark.parametrize("dialect", DIALECTS)
@SOME
@given(reply=replies())
def test_a_stream_says_the_same_as_the_whole(dialect, reply):
    answer = served(reply)
    frames = stream_frames(answer, dialect)
    assert JOINED[dialect](frames) == (
        reply.text,
        reply.reasoning,
        [call.arguments for call in reply.calls],
    )
    if dialect == "responses":
        last = frames[-1].data["response"]
        assert last == wire_named(dialect).body(answer)


@pytest.mark.parametrize("dialect", DIALECTS)
@SOME
@given(reply=replies(), cut=st.integers(0, 40))
def test_a_cut_stream_is_the_beginning_of_the_whole(dialect, reply, cut):
    whole = stream_frames(served(reply), dialect)
    assert stream_frames(served(replace(reply, cut_after_chunks=cut)), dialect) == whole[:cut]
