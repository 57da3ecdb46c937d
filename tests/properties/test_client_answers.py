"""Whatever a server sends, it is read as an answer or refused as one error; streamed or not, it says the same."""

import contextlib
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ProviderError
from penstock.measure.usage import Usage
from penstock.providers import anthropic, bodies, chat, responses
from penstock.providers.exchange import Answer, CallDelta, Called, Finish, ReasoningDelta, TextDelta
from penstock.providers.sse import EventParser
from penstock.testing.provider_wire import stream_frames, wire_named
from penstock.testing.provider_wire.served import Served
from penstock.testing.scripted import Reply

READ = {
    "chat": (chat.answer_from_body, chat.ChatAccumulator),
    "responses": (responses.answer_from_body, responses.ResponsesAccumulator),
    "anthropic": (anthropic.answer_from_body, anthropic.AnthropicAccumulator),
}
DIALECTS = sorted(READ)
TEXT = st.text(alphabet="ab é漢🙂\n\r:{}\"'\\", max_size=40)
CALLS = st.lists(
    st.builds(
        Called,
        st.just(""),
        st.sampled_from(["read_file", "f"]),
        st.dictionaries(st.text(max_size=3), st.integers() | TEXT, max_size=2).map(json.dumps),
    ),
    max_size=3,
)
REPLIES = st.builds(
    Reply,
    text=TEXT,
    reasoning=TEXT,
    calls=CALLS.map(tuple),
    finish=st.none() | st.sampled_from(Finish),
    chunk_chars=st.integers(1, 9),
)
USAGES = st.builds(Usage, *[st.integers(0, 9_999)] * 4, st.just(0), st.integers(0, 0))


def read_stream(dialect, stream, places):
    """All events of a stream that was split at these places, and the answer at its end."""
    borders = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    parser, gathered, events = EventParser(), READ[dialect][1](), []
    for start, end in zip(borders, [*borders[1:], len(stream)], strict=True):
        for event in parser.feed(stream[start:end]):
            events += gathered.take(event)
    for event in parser.close():
        events += gathered.take(event)
    return events, gathered.answer()


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(DIALECTS), REPLIES, USAGES, st.lists(st.integers(0, 9_999), max_size=5))
def test_a_stream_becomes_the_answer_that_would_have_come_whole(dialect, reply, usage, places):
    served = Served(reply=reply, number=1, model="m", usage=usage, include_usage=True)
    whole = READ[dialect][0](json.loads(json.dumps(wire_named(dialect).body(served))))
    stream = b"".join(frame.encode() for frame in stream_frames(served, dialect))
    events, streamed = read_stream(dialect, stream, places)
    assert msgspec.structs.replace(streamed, calls=(), wires=()) == msgspec.structs.replace(
        whole, calls=(), wires=()
    )
    assert [call.name for call in streamed.calls] == [call.name for call in whole.calls]
    assert [call.arguments for call in streamed.calls] == [call.arguments for call in reply.calls]
    if reply.text or reply.calls:
        assert bare(streamed.wires) == bare(whole.wires)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == reply.text
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == reply.reasoning
    written = {}
    for event in events:
        if isinstance(event, CallDelta):
            written[event.id] = written.get(event.id, "") + event.arguments
    assert written == {call.id: call.arguments for call in streamed.calls}


def bare(wires):
    """Wires with the JSON of arguments read, since a whole body of Anthropic has it parsed."""
    return json.loads(json.dumps(wires))


NAMES = st.sampled_from(
    [
        *(
            "choices",
            "message",
            "delta",
            "content",
            "tool_calls",
            "function",
            "name",
            "arguments",
            "id",
            "index",
        ),
        *(
            "finish_reason",
            "usage",
            "output",
            "status",
            "type",
            "text",
            "summary",
            "response",
            "item",
            "model",
        ),
        *(
            "content_block",
            "stop_reason",
            "input",
            "partial_json",
            "citation",
            "thinking",
            "signature",
            "refusal",
        ),
        *(
            "reasoning",
            "reasoning_details",
            "output_index",
            "item_id",
            "call_id",
            "incomplete_details",
            "x_groq",
        ),
    ]
)
WORDS = st.sampled_from(
    [
        *(
            "message",
            "text",
            "tool_use",
            "thinking",
            "function_call",
            "reasoning",
            "output_text",
            "text_delta",
        ),
        *("message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop"),
        *(
            "response.completed",
            "response.output_item.added",
            "response.output_item.done",
            "input_json_delta",
        ),
        *("response.output_text.delta", "completed", "incomplete", "failed", "stop", "", "x"),
    ]
)
SCALARS = st.none() | st.booleans() | st.integers(-2, 3) | st.floats(allow_nan=False) | WORDS
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=18,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(DIALECTS), st.dictionaries(NAMES, ANYTHING, max_size=6))
def test_any_body_is_an_answer_or_one_error(dialect, body):
    with contextlib.suppress(ProviderError):
        sound(READ[dialect][0](bodies.parse_body(json.dumps(body).encode())))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(DIALECTS), st.lists(st.dictionaries(NAMES, ANYTHING, max_size=6), max_size=6))
def test_any_stream_is_an_answer_or_one_error(dialect, events):
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    with contextlib.suppress(ProviderError):
        got, answer = read_stream(dialect, stream + b"data: [DONE]\n\n" * (dialect == "chat"), [])
        sound(answer)
        assert all(isinstance(event.text, str) for event in got if isinstance(event, TextDelta))


def sound(answer):
    assert isinstance(answer, Answer)
    assert isinstance(answer.text, str)
    assert isinstance(answer.reasoning, str)
    assert isinstance(answer.finish, Finish)
    for call in answer.calls:
        assert all(isinstance(field, str) for field in (call.id, call.name, call.arguments))
    msgspec.json.encode(answer.wires)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("data", [b"", b"\xff", b"[1]", b"1", b'"a"', b"null", b"<p>", b"{", b'{"a":1}x'])
def test_a_body_that_is_no_object_is_one_error(dialect, data):
    with pytest.raises(ProviderError, match="cannot be read"):
        READ[dialect][0](bodies.parse_body(data))
