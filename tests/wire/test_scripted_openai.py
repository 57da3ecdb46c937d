"""The official OpenAI client against the scripted provider: what it understands is what the API sends."""

from __future__ import annotations

import json

import openai
import pytest

from penstock.measure.usage import Usage, normalise_usage
from penstock.providers.exchange import Called, Finish
from penstock.testing.provider_server import scripted_provider
from penstock.testing.scripted import Reply

ASKED = [{"role": "user", "content": "What is in a.py?"}]
USAGE = Usage(
    input_tokens=70, output_tokens=20, cache_read_tokens=4096, cache_write_tokens=30, reasoning_tokens=9
)
CALLS = (
    Called("call_a", "read_file", '{"path": "a.py", "from": 1}'),
    Called("call_b", "terminal", '{"command": "ls é"}'),
)
TEXT = "The file holds one function, größer than it looks.\n"


def client_of(server):
    return openai.OpenAI(base_url=server.base_url, api_key="no-real-key", max_retries=0)


def test_chat_whole():
    with scripted_provider([Reply(TEXT, reasoning="Let me see.", usage=USAGE)]) as server:
        with client_of(server) as client:
            answer = client.chat.completions.create(model="gpt-x", messages=ASKED)
        assert answer.choices[0].message.content == TEXT
        assert answer.choices[0].message.reasoning_content == "Let me see."
        assert answer.choices[0].finish_reason == "stop"
        assert answer.model == "gpt-x"
        assert answer.usage.prompt_tokens_details.cached_tokens == 4096
        assert normalise_usage(answer.usage) == USAGE
        assert answer._request_id
        assert server.violations == ()
        assert server.received[0].messages == ASKED
        assert server.received[0].path == "/chat/completions"
        assert json.loads(server.received[0].raw) == server.received[0].body


def test_chat_stream_is_put_together_by_the_helper():
    with scripted_provider([Reply(TEXT, calls=CALLS, usage=USAGE, chunk_chars=5)]) as server:
        with (
            client_of(server) as client,
            client.chat.completions.stream(
                model="gpt-x", messages=ASKED, stream_options={"include_usage": True}
            ) as stream,
        ):
            kinds = [event.type for event in stream]
            whole = stream.get_final_completion()
        message = whole.choices[0].message
        assert message.content == TEXT
        assert [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls] == [
            (c.id, c.name, c.arguments) for c in CALLS
        ]
        assert whole.choices[0].finish_reason == "tool_calls"
        assert normalise_usage(whole.usage) == USAGE
        assert kinds.count("content.delta") == 1 + -(-len(TEXT) // 5)  # the opening has an empty one
        assert server.received[0].streaming


def test_chat_stream_tells_usage_only_when_asked():
    with scripted_provider([TEXT], repeat_last=True) as server, client_of(server) as client:
        chunks = list(client.chat.completions.create(model="m", messages=ASKED, stream=True))
        assert all(chunk.usage is None and chunk.choices for chunk in chunks)
        asked = {"include_usage": True}
        chunks = list(
            client.chat.completions.create(model="m", messages=ASKED, stream=True, stream_options=asked)
        )
        assert chunks[-1].choices == []
        assert chunks[-1].usage.total_tokens > 0
        assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize(
    ("finish", "reason"), [(Finish.LENGTH, "length"), (Finish.REFUSED, "content_filter"), (None, "stop")]
)
def test_chat_reasons_to_stop(finish, reason):
    with scripted_provider([Reply("So", finish=finish)]) as server, client_of(server) as client:
        answer = client.chat.completions.create(model="m", messages=ASKED)
    assert answer.choices[0].finish_reason == reason


def test_chat_answers_can_be_sent_back():
    with scripted_provider([Reply(calls=CALLS), "Done."]) as server:
        with client_of(server) as client:
            first = client.chat.completions.create(model="m", messages=ASKED).choices[0].message
            results = [{"role": "tool", "tool_call_id": c.id, "content": "ok"} for c in first.tool_calls]
            history = [*ASKED, first.model_dump(exclude_none=True), *results]
            second = client.chat.completions.create(model="m", messages=history)
        assert second.choices[0].message.content == "Done."
        assert second.usage.prompt_tokens > 20
        assert server.violations == ()


def test_responses_whole():
    reply = Reply(TEXT, reasoning="Let me see.", calls=CALLS, usage=USAGE)
    with scripted_provider([reply]) as server:
        with client_of(server) as client:
            answer = client.responses.create(
                model="gpt-x", input="What is in a.py?", instructions="Be brief."
            )
        assert answer.output_text == TEXT
        assert answer.status == "completed"
        assert [item.type for item in answer.output] == ["reasoning", "message", *["function_call"] * 2]
        assert answer.output[0].summary[0].text == "Let me see."
        assert [(i.call_id, i.name, i.arguments) for i in answer.output[2:]] == [
            (c.id, c.name, c.arguments) for c in CALLS
        ]
        assert answer.usage.input_tokens_details.cached_tokens == 4096
        assert normalise_usage(answer.usage) == USAGE
        assert server.violations == ()
        assert server.received[0].messages == [{"role": "user", "content": "What is in a.py?"}]
        assert server.received[0].system == "Be brief."


def test_responses_stream_is_put_together_by_the_helper():
    reply = Reply(TEXT, reasoning="Let me see.", calls=CALLS, usage=USAGE, chunk_chars=7)
    with (
        scripted_provider([reply]) as server,
        client_of(server) as client,
        client.responses.stream(model="gpt-x", input=ASKED) as stream,
    ):
        events = list(stream)
        whole = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    names = [event.type for event in events]
    assert names[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert names[-1] == "response.completed"
    # Every item that is announced is closed, every part too.
    assert names.count("response.output_item.added") == names.count("response.output_item.done") == 4
    assert names.count("response.content_part.added") == names.count("response.content_part.done") == 1
    deltas = [e.delta for e in events if e.type == "response.reasoning_summary_text.delta"]
    assert "".join(deltas) == "Let me see."
    assert whole.output_text == TEXT
    assert [item.arguments for item in whole.output[2:]] == [call.arguments for call in CALLS]
    assert normalise_usage(whole.usage) == USAGE


@pytest.mark.parametrize(
    ("finish", "reason"), [(Finish.LENGTH, "max_output_tokens"), (Finish.REFUSED, "content_filter")]
)
def test_responses_that_are_incomplete(finish, reason):
    with (
        scripted_provider([Reply("So", finish=finish)], repeat_last=True) as server,
        client_of(server) as client,
    ):
        whole = client.responses.create(model="m", input="Go on.")
        events = list(client.responses.create(model="m", input="Go on.", stream=True))
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", reason)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == reason


def test_responses_answers_can_be_sent_back():
    with scripted_provider([Reply(reasoning="Look first.", calls=CALLS), "Done."]) as server:
        with client_of(server) as client:
            first = client.responses.create(model="m", input=ASKED)
            results = [{"type": "function_call_output", "call_id": call.id, "output": "ok"} for call in CALLS]
            items = [item.model_dump(exclude_none=True) for item in first.output]
            second = client.responses.create(model="m", input=[*ASKED, *items, *results])
        assert second.output_text == "Done."
        assert server.violations == ()


@pytest.mark.parametrize(
    ("reply", "raised", "code"),
    [
        (Reply.rate_limited(), openai.RateLimitError, "rate_limit_exceeded"),
        (Reply.quota_exceeded(), openai.RateLimitError, "insufficient_quota"),
        (Reply.overloaded(), openai.InternalServerError, None),
        (Reply.server_error(), openai.InternalServerError, None),
        (Reply.unauthorised(), openai.AuthenticationError, "invalid_api_key"),
        (Reply.too_long(window=8192, prompt=9000), openai.BadRequestError, "context_length_exceeded"),
        (
            Reply.output_over_window(window=8192, prompt=5000, asked=4000),
            openai.BadRequestError,
            "context_length_exceeded",
        ),
        (Reply.output_cap(cap=16384, asked=99999), openai.BadRequestError, "invalid_value"),
        (Reply.failing(404, {"error": {"message": "gone", "code": "x"}}), openai.NotFoundError, "x"),
        (Reply.page(), openai.InternalServerError, None),
    ],
)
def test_errors_become_the_clients_own(reply, raised, code):
    with (
        scripted_provider([reply]) as server,
        client_of(server) as client,
        pytest.raises(raised) as caught,
    ):
        client.chat.completions.create(model="m", messages=ASKED)
    assert caught.value.code == code


def test_the_client_waits_as_long_as_it_is_told():
    with scripted_provider([Reply.rate_limited(retry_after=0.2), "Here."]) as server:
        with openai.OpenAI(base_url=server.base_url, api_key="no-real-key", max_retries=1) as client:
            answer = client.chat.completions.create(model="m", messages=ASKED)
        assert answer.choices[0].message.content == "Here."
        assert len(server.received) == 2


def test_an_error_inside_a_stream():
    reply = Reply(TEXT, stream_failure=Reply.overloaded().failure, cut_after_chunks=3)
    with scripted_provider([reply], repeat_last=True) as server, client_of(server) as client:
        seen = []
        with pytest.raises(openai.APIError, match="overloaded"):
            seen.extend(client.chat.completions.create(model="m", messages=ASKED, stream=True))
        events = list(client.responses.create(model="m", input=ASKED, stream=True))
    assert [event.type for event in events][3:] == ["error", "response.failed"]
    assert events[-1].response.status == "failed"
    assert "overloaded" in events[-1].response.error.message


def test_a_connection_that_breaks_in_the_midst_of_a_stream():
    with (
        scripted_provider([Reply(TEXT, cut_after_chunks=3)]) as server,
        client_of(server) as client,
        client.chat.completions.create(model="m", messages=ASKED, stream=True) as stream,
    ):
        seen = []
        with pytest.raises(openai.APIConnectionError):
            seen.extend(stream)
        assert len(seen) == 3
    assert server.disconnects == 0


@pytest.mark.parametrize("cut", [0, 1])
def test_a_connection_that_breaks_before_or_in_the_midst_of_an_answer(cut):
    with (
        scripted_provider([Reply(TEXT, cut_after_chunks=cut)]) as server,
        client_of(server) as client,
        pytest.raises(openai.APIConnectionError),
    ):
        client.chat.completions.create(model="m", messages=ASKED)


def test_the_list_of_models():
    with (
        scripted_provider([], models=("small", "large"), window_tokens=9000) as server,
        client_of(server) as client,
    ):
        models = list(client.models.list())
    assert [(model.id, model.context_length) for model in models] == [("small", 9000), ("large", 9000)]
