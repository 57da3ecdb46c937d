"""Chat Completions as its many servers speak it."""

import json

import pytest

from penstock.errors import ErrorClass, ErrorKind, ProviderError
from penstock.providers import chat
from penstock.providers.chat import ChatAccumulator
from penstock.providers.exchange import Ask, CallDelta, Called, Finish, ReasoningDelta, TextDelta
from penstock.providers.quirks import Quirks, adapt_quirks, quirks_of
from penstock.providers.sse import ServerEvent


def answer(message, finish="stop", **body):
    return chat.answer_from_body({"choices": [{"message": message, "finish_reason": finish}], **body})


def stream(*deltas, finish="stop", done=True, **last):
    """The events and the answer of a stream of these deltas."""
    gathered = ChatAccumulator()
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], **last})
    texts = [json.dumps(chunk) for chunk in chunks] + (["[DONE]"] if done else [])
    events = [event for text in texts for event in gathered.take(ServerEvent("message", text))]
    return events, gathered.answer()


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_under_any_name_is_read_and_kept(name):
    got = answer({"role": "assistant", "content": "4", name: "2 and 2"})
    assert (got.text, got.reasoning) == ("4", "2 and 2")
    assert got.wires[0][name] == "2 and 2"
    events, streamed = stream({name: "2 and"}, {name: " 2"}, {"content": "4"})
    assert events == [ReasoningDelta("2 and"), ReasoningDelta(" 2"), TextDelta("4")]
    assert streamed.wires == got.wires


def test_reasoning_that_comes_under_both_names_is_told_once():
    events, got = stream({"reasoning": "hm", "reasoning_content": "hm"}, {"content": "4"})
    assert events[0] == ReasoningDelta("hm")
    assert got.reasoning == "hm"


def test_content_in_parts_with_thinking():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "2 and "}, {"type": "text", "text": "2"}]},
        {"type": "text", "text": "It is "},
        {"type": "text", "text": "4"},
        "!",
    ]
    got = answer({"role": "assistant", "content": parts})
    assert (got.text, got.reasoning) == ("It is 4!", "2 and 2")
    assert got.wires[0]["content"] == parts


def test_streamed_parts_are_put_together():
    events, got = stream(
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "2 "}]}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "and 2"}]}]},
        {"content": "It is "},
        {"content": [{"type": "text", "text": "4"}]},
    )
    assert events == [
        ReasoningDelta("2 "),
        ReasoningDelta("and 2"),
        TextDelta("It is "),
        TextDelta("4"),
    ]
    assert got.text == "It is 4"
    assert [part["type"] for part in got.wires[0]["content"]] == ["thinking", "text"]


def test_a_refusal_is_refused_and_its_words_are_the_text():
    got = answer({"role": "assistant", "content": None, "refusal": "I can't help with that."})
    assert (got.text, got.finish) == ("I can't help with that.", Finish.REFUSED)
    events, streamed = stream({"refusal": "I can't"}, {"refusal": " help."})
    assert events == [TextDelta("I can't"), TextDelta(" help.")]
    assert (streamed.text, streamed.finish) == ("I can't help.", Finish.REFUSED)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", Finish.STOP),
        ("length", Finish.LENGTH),
        ("model_length", Finish.LENGTH),
        ("content_filter", Finish.REFUSED),
        ("insufficient_system_resource", Finish.OTHER),
        ("abort", Finish.OTHER),
        (None, Finish.OTHER),
    ],
)
def test_why_it_stopped(reason, finish):
    assert answer({"content": "x"}, reason).finish is finish


def test_no_content_is_a_blank_answer_with_nothing_to_append():
    got = answer({"role": "assistant", "content": None, "reasoning": "long thoughts"}, "length")
    assert (got.text, got.finish, got.wires, got.reasoning) == ("", Finish.LENGTH, (), "long thoughts")


def test_what_is_to_be_appended_has_no_empty_fields_and_all_others():
    message = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "audio": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "sealed"}],
        "unknown": {"kept": 1},
    }
    wire = answer(message, "tool_calls").wires[0]
    assert set(wire) == {"role", "content", "tool_calls", "reasoning_details", "unknown"}
    assert wire["content"] is None


def test_calls_with_an_object_for_arguments_no_id_and_stop():
    calls = [
        {"function": {"name": "f", "arguments": {"a": 1}}},
        {"function": {"name": "g", "arguments": None}},
    ]
    got = answer({"content": "", "tool_calls": calls}, "stop")
    assert got.calls == (Called("call_0", "f", '{"a":1}'), Called("call_1", "g", "{}"))
    assert got.finish is Finish.TOOL_CALLS


def call(index, arguments="", **fields):
    name = {"name": fields.pop("name")} if "name" in fields else {}
    return {"tool_calls": [{"index": index, "function": {**name, "arguments": arguments}, **fields}]}


def test_parallel_calls_that_come_interleaved():
    events, got = stream(
        call(0, id="a", type="function", name="f"),
        call(1, id="b", type="function", name="g"),
        call(0, '{"x":'),
        call(1, '{"y":'),
        call(0, "1}"),
        call(1, "2}"),
        finish="tool_calls",
    )
    assert got.calls == (Called("a", "f", '{"x":1}'), Called("b", "g", '{"y":2}'))
    assert events[:3] == [CallDelta("a", "f", ""), CallDelta("b", "g", ""), CallDelta("a", "", '{"x":')]
    assert "index" not in got.wires[0]["tool_calls"][0]
    assert got.wires[0]["content"] is None


def test_calls_of_servers_that_use_the_index_as_they_like():
    same_index = stream(call(0, "{}", id="a", name="f"), call(0, "{}", id="b", name="g"))[1]
    no_index = stream(call(None, "{}", id="a", name="f"), call(None, "{}", id="b", name="g"))[1]
    for got in (same_index, no_index):
        assert got.calls == (Called("a", "f", "{}"), Called("b", "g", "{}"))
    repeated = stream(call(0, '{"x"', id="a", name="f"), call(0, ":1}", id="a", name="f"))[1]
    assert repeated.calls == (Called("a", "f", '{"x":1}'),)
    nameless = stream(call(0, "{}", name="f"), call(1, "{}", name="g", id=""))[1]
    assert nameless.calls == (Called("call_0", "f", "{}"), Called("call_1", "g", "{}"))


def test_a_signature_on_a_call_is_sent_back():
    extra = {"google": {"thought_signature": "sealed"}}
    got = stream(call(0, "{}", id="a", name="f", extra_content=extra), finish="tool_calls")[1]
    assert got.wires[0]["tool_calls"][0]["extra_content"] == extra


def test_reasoning_details_in_pieces_are_joined():
    details = [
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "2 and", "signature": None}]},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": " 2", "signature": "sealed"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}], "content": "4"},
    ]
    assert stream(*details)[1].wires[0]["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "2 and 2", "signature": "sealed"},
        {"type": "reasoning.encrypted", "data": "x"},
    ]


@pytest.mark.parametrize("field", ["usage", "x_groq"])
def test_usage_of_a_stream(field):
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    got = stream({"content": "a"}, **{field: usage if field == "usage" else {"usage": usage}})[1]
    assert (got.usage.prompt_tokens, got.usage.output_tokens) == (7, 3)


def test_chunks_without_choices_and_other_choices_are_passed_over():
    gathered = ChatAccumulator()
    for chunk in (
        {"choices": [], "prompt_filter_results": []},
        {"choices": [{"index": 1, "delta": {"content": "another"}}]},
        {"choices": [{"index": 0, "delta": {"content": "this"}, "finish_reason": "stop"}]},
    ):
        gathered.take(ServerEvent("message", json.dumps(chunk)))
    assert gathered.answer().text == "this"


def test_a_stream_may_end_without_done_but_not_without_a_reason():
    assert stream({"content": "a"}, done=False)[1].text == "a"
    with pytest.raises(ProviderError, match="before the answer was complete"):
        stream({"content": "a"}, finish=None, done=False)
    assert stream({"content": "a"}, finish=None)[1].finish is Finish.OTHER


@pytest.mark.parametrize("place", ["choice", "body"])
def test_an_error_upstream_is_an_error(place):
    error = {"code": 429, "message": "Rate limit exceeded upstream"}
    choice = {"message": {"content": ""}, "finish_reason": "error", "error": error}
    body = {"choices": [choice]} if place == "choice" else {"choices": [], "error": error}
    with pytest.raises(ProviderError) as caught:
        chat.answer_from_body(body) if place == "choice" else stream({"content": "a"}, error=error)
    assert caught.value.failure.kind is ErrorKind.RATE_LIMIT


@pytest.mark.parametrize(
    ("host", "field"),
    [
        ("api.openai.com", "max_completion_tokens"),
        ("eu.api.openai.com", "max_completion_tokens"),
        ("mine.openai.azure.com", "max_completion_tokens"),
        ("openrouter.ai", "max_tokens"),
        ("localhost", "max_tokens"),
        ("api.openai.com.example.org", "max_tokens"),
        ("notopenai.azure.com", "max_tokens"),
    ],
)
def test_the_name_of_the_cap_goes_by_the_host(host, field):
    ask = Ask(messages=[], max_output_tokens=5)
    assert chat.request_body(ask, "m", quirks_of(host))[field] == 5


def test_usage_is_asked_for_in_streams_but_not_of_mistral():
    ask = Ask(messages=[])
    assert chat.request_body(ask, "m", quirks_of("h"), stream=True)["stream_options"] == {
        "include_usage": True
    }
    assert "stream_options" not in chat.request_body(ask, "m", quirks_of("api.mistral.ai"), stream=True)
    assert "stream_options" not in chat.request_body(ask, "m", quirks_of("h"))


def test_extra_wins_over_all_but_streaming():
    ask = Ask(messages=[], max_output_tokens=5, extra={"max_tokens": 9, "stream": False, "model": "other"})
    body = chat.request_body(ask, "m", Quirks(), stream=True)
    assert (body["max_tokens"], body["model"], body["stream"]) == (9, "other", True)


def refusal(message, status=400, kind=ErrorKind.BAD_REQUEST):
    return ErrorClass(kind=kind, status=status, message=message)


@pytest.mark.parametrize(
    ("failure", "changed"),
    [
        (refusal("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."), True),
        (refusal("max_tokens: Extra inputs are not permitted", 422), True),
        (refusal("max_tokens is too large", kind=ErrorKind.OUTPUT_CAP_TOO_LARGE), False),
        (refusal("max_tokens", 500), False),
        (refusal("messages: bad role"), False),
    ],
)
def test_a_refusal_that_names_the_cap_changes_its_name(failure, changed):
    new = adapt_quirks(Quirks(), frozenset({"max_tokens", "messages"}), failure)
    assert (new is not None) is changed
    if new is not None:
        assert new.cap_field == "max_completion_tokens"
    assert adapt_quirks(Quirks(), frozenset({"messages"}), failure) is None
