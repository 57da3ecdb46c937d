"""What the clients do when a server refuses, breaks off or talks nonsense, over real HTTP."""

import traceback

import msgspec
import pytest
from client_talk import HELLO, KEY, PROVIDERS, Clock, ask_for, failure_of, stream_of, talk

from penstock.errors import ErrorKind
from penstock.providers.exchange import Answered, TextDelta
from penstock.testing.scripted import Failure, RawBody, Reply


@pytest.mark.parametrize("use", [ask_for(HELLO), stream_of(HELLO)], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_it_asks_again_and_waits_as_long_as_the_provider_wants(provider, use):
    clock = Clock()
    replies = [Reply.rate_limited(retry_after=7), Reply.overloaded(), "At last."]
    result, server = talk(provider, replies, use, clock)
    answer = result[-1].answer if isinstance(result, list) else result
    assert answer.text == "At last."
    assert answer.requests == len(server.received) == 3
    assert 7 <= clock.slept[0] <= 7.7
    assert clock.slept[1] <= 1


@pytest.mark.parametrize("use", [ask_for(HELLO), stream_of(HELLO)], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("reply", "kind", "requests"),
    [
        (Reply.rate_limited(retry_after=600), ErrorKind.RATE_LIMIT, 1),
        (Reply.rate_limited(), ErrorKind.RATE_LIMIT, 3),
        (Reply.overloaded(), ErrorKind.OVERLOAD, 3),
        (Reply.server_error(), ErrorKind.OVERLOAD, 3),
        (Reply.page(), ErrorKind.OVERLOAD, 3),
        (Reply.unauthorised(), ErrorKind.AUTH, 1),
        (Reply.quota_exceeded(), ErrorKind.QUOTA, 1),
        (Reply.payload_too_large(), ErrorKind.PAYLOAD_TOO_LARGE, 1),
        (Reply.too_long(window=8192, prompt=9000), ErrorKind.PROMPT_TOO_LONG, 1),
        (Reply.output_cap(cap=4096, asked=9000), ErrorKind.OUTPUT_CAP_TOO_LARGE, 1),
        (Reply.failing(400, {"error": {"message": "what?"}}), ErrorKind.BAD_REQUEST, 1),
        (Reply(cut_after_chunks=0), ErrorKind.NETWORK, 3),
        (Reply("long " * 50, cut_after_chunks=1), ErrorKind.NETWORK, 3),
    ],
    ids=lambda value: value.value if isinstance(value, ErrorKind) else "",
)
def test_refusals_are_understood_and_only_passing_ones_repeated(provider, use, reply, kind, requests):
    if reply.cut_after_chunks == 1 and provider == "anthropic":
        reply = msgspec.structs.replace(reply, cut_after_chunks=2)  # before the first piece of text
    error, server = talk(provider, [reply], failure_of(use), repeat_last=True)
    assert error.failure.kind is kind
    assert len(server.received) == requests
    assert KEY not in f"{error}{error.failure}"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_error_before_the_first_piece_of_a_stream_is_tried_again(provider):
    early = Reply("", stream_failure=Failure(kind=ErrorKind.OVERLOAD), cut_after_chunks=1)
    events, server = talk(provider, [early, "Fine."], stream_of(HELLO))
    assert events[-1].answer.text == "Fine."
    assert events[-1].answer.requests == len(server.received) == 2


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "reply",
    [
        Reply("word " * 40, stream_failure=Failure(kind=ErrorKind.OVERLOAD), cut_after_chunks=8),
        Reply("word " * 40, cut_after_chunks=8),
    ],
    ids=["error event", "dropped connection"],
)
def test_an_error_after_the_first_piece_ends_the_stream_and_is_not_tried_again(provider, reply):
    got = []

    async def use(model):
        async for event in model.stream(HELLO):
            got.append(event)  # noqa: PERF401 - what came before the error is what is looked at

    error, server = talk(provider, [reply], failure_of(use))
    assert any(isinstance(event, TextDelta) for event in got)
    assert not any(isinstance(event, Answered) for event in got)
    assert error.failure.kind in {ErrorKind.OVERLOAD, ErrorKind.NETWORK}
    assert len(server.received) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"<html>Welcome</html>",
        b"{}",
        b'{"choices": [], "output": null, "content": null}',
        b'{"choices": [{}], "output": [1], "content": [1]}',
        b'{"choices": [{"message": {}}], "output": [{"type": "message", "content": 5}], "content": [{}]}',
        b'{"choices": [{"message": {"content": 5}}], "output": {}, "content": [{"type": "text", "text": 5}]}',
        b'{"choices": 7, "output": 7, "content": 7}',
        b'{"choices": [{"message": {"content": "a", "tool_calls": [7]}}], "output": "x", "content": "x"}',
        b'{"choices": [{"message": {"content": "a"}, "finish_reason": 1}], "output": {}, "content": {}}',
        b"[" * 3_000,
    ],
    ids=range(15),
)
def test_an_answer_that_cannot_be_read_is_one_clear_error(provider, body):
    for use in (ask_for(HELLO), stream_of(HELLO)):
        error, server = talk(provider, [Reply.malformed(body)], failure_of(use))
        assert error.failure.kind is ErrorKind.BAD_REQUEST
        assert error.failure.code == "malformed_answer"
        assert "cannot be read" in str(error)
        assert len(server.received) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_error_inside_a_200_is_an_error(provider):
    body = b'{"error": {"message": "Provider returned error: overloaded", "code": 503}}'
    error, server = talk(provider, [Reply.malformed(body)], failure_of(ask_for(HELLO)), repeat_last=True)
    assert error.failure.kind is ErrorKind.OVERLOAD
    assert len(server.received) == 3


def streamed(*events):
    """A stream of these events, whatever they are."""
    body = b"".join(b"data: " + event + b"\n\n" for event in events)
    return Reply(raw=RawBody(body, "text/event-stream"))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "event",
    [
        b"no json",
        b"[]",
        b'{"choices": [5], "type": "content_block_delta"}',
        b'{"choices": [{"delta": {"tool_calls": [5]}}], "type": "content_block_start"}',
        b'{"choices": [], "type": "message_start", "message": 5}',
    ],
)
def test_a_stream_of_nonsense_is_one_clear_error(provider, event):
    reply = streamed(event, b'{"type": "response.completed", "response": 5}', b"[DONE]")
    error, server = talk(provider, [reply], failure_of(stream_of(HELLO)))
    assert error.failure.code == "malformed_answer"
    assert len(server.received) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_that_ends_in_order_but_too_early_is_tried_again(provider):
    error, server = talk(provider, [streamed()], failure_of(stream_of(HELLO)), repeat_last=True)
    assert (error.failure.kind, error.failure.code) == (ErrorKind.NETWORK, "cut_off")
    assert len(server.received) == 3


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("status", [200, 400, 401, 403, 503])
def test_a_key_that_the_server_quotes_is_not_shown(provider, status):
    quoted = {"error": {"message": f"Incorrect API key provided: {KEY}. Bearer {KEY}", "code": f"bad {KEY}"}}
    reply = Reply(raw=RawBody(msgspec.json.encode(quoted), status=status))
    for use in (ask_for(HELLO), stream_of(HELLO), lambda model: model.answer(HELLO)):
        error, _ = talk(provider, [reply], failure_of(use), repeat_last=True)
        shown = "".join(traceback.format_exception(error)) + repr(error) + repr(error.failure)
        assert KEY not in shown
        assert "made-up-key" not in shown


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_refused_key_says_where_it_came_from(provider):
    error, _ = talk(provider, ["Yes."], failure_of(ask_for(HELLO)), api_key="another-key-than-ours")
    assert error.failure.kind is ErrorKind.AUTH
    assert "check the key in TEST_KEY" in str(error)
