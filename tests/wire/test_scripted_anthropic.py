"""The official Anthropic client against the scripted provider: what it understands is what the API sends."""

from __future__ import annotations

import anthropic
import pytest

from penstock.measure.usage import Usage, normalise_usage
from penstock.providers.exchange import Called, Finish
from penstock.testing.prompt_cache import PromptCache
from penstock.testing.provider_server import scripted_provider
from penstock.testing.scripted import Reply

ASKED = [{"role": "user", "content": "What is in a.py?"}]
USAGE = Usage(
    input_tokens=70,
    output_tokens=20,
    cache_read_tokens=4096,
    cache_write_tokens=300,
    cache_write_1h_tokens=100,
    reasoning_tokens=9,
)
CALLS = (
    Called("toolu_a", "read_file", '{"path": "a.py", "from": 1}'),
    Called("toolu_b", "terminal", '{"command": "ls é"}'),
)
TEXT = "The file holds one function, größer than it looks.\n"


def client_of(server, retries=0):
    return anthropic.Anthropic(base_url=server.base_url, api_key="no-real-key", max_retries=retries)


def ask(client, messages=ASKED, **fields):
    return client.messages.create(model="claude-x", max_tokens=100, messages=messages, **fields)


def test_a_whole_answer():
    with scripted_provider([Reply(TEXT, reasoning="Let me see.", calls=CALLS, usage=USAGE)]) as server:
        with client_of(server) as client:
            answer = ask(client, system="Be brief.")
        thinking, text, *calls = answer.content
        assert (thinking.thinking, bool(thinking.signature)) == ("Let me see.", True)
        assert text.text == TEXT
        assert [(c.id, c.name, c.input) for c in calls] == [
            ("toolu_a", "read_file", {"path": "a.py", "from": 1}),
            ("toolu_b", "terminal", {"command": "ls é"}),
        ]
        assert answer.stop_reason == "tool_use"
        assert answer.usage.cache_creation.ephemeral_5m_input_tokens == 200
        assert answer.usage.cache_creation.ephemeral_1h_input_tokens == 100
        assert normalise_usage(answer.usage, "anthropic") == USAGE
        assert answer._request_id
        assert server.violations == ()
        assert server.received[0].path == "/v1/messages"
        assert server.received[0].system == "Be brief."
        assert server.received[0].max_output_tokens == 100


def test_a_stream_is_put_together_by_the_helper():
    reply = Reply(TEXT, reasoning="Let me see.", calls=CALLS, usage=USAGE, chunk_chars=6)
    with (
        scripted_provider([reply]) as server,
        client_of(server) as client,
        client.messages.stream(model="claude-x", max_tokens=100, messages=ASKED) as stream,
    ):
        kinds = [event.type for event in stream]
        whole = stream.get_final_message()
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4
    thinking, text, *calls = whole.content
    assert (thinking.thinking, bool(thinking.signature)) == ("Let me see.", True)
    assert text.text == TEXT
    assert [c.input for c in calls] == [{"path": "a.py", "from": 1}, {"command": "ls é"}]
    assert whole.stop_reason == "tool_use"
    assert normalise_usage(whole.usage, "anthropic") == USAGE


@pytest.mark.parametrize(
    ("finish", "reason"), [(Finish.LENGTH, "max_tokens"), (Finish.REFUSED, "refusal"), (None, "end_turn")]
)
def test_reasons_to_stop(finish, reason):
    with scripted_provider([Reply("So", finish=finish)]) as server, client_of(server) as client:
        assert ask(client).stop_reason == reason


def test_answers_can_be_sent_back():
    with scripted_provider([Reply(reasoning="Look first.", calls=CALLS), "Done."]) as server:
        with client_of(server) as client:
            first = ask(client)
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": "ok"} for call in CALLS]
            said = [block.model_dump(exclude_none=True) for block in first.content]
            history = [*ASKED, {"role": "assistant", "content": said}, {"role": "user", "content": results}]
            second = ask(client, history)
        assert second.content[0].text == "Done."
        assert server.violations == ()


def test_tokens_are_counted_without_a_reply():
    tools = [{"name": "read_file", "description": "Reads.", "input_schema": {"type": "object"}}]
    with scripted_provider(["Here."]) as server, client_of(server) as client:
        bare = client.messages.count_tokens(model="m", messages=ASKED).input_tokens
        full = client.messages.count_tokens(model="m", messages=ASKED, system="Be brief.", tools=tools)
        answer = ask(client, system="Be brief.", tools=tools)
    assert 0 < bare < full.input_tokens == answer.usage.input_tokens


@pytest.mark.parametrize(
    ("reply", "raised", "text"),
    [
        (Reply.rate_limited(), anthropic.RateLimitError, "rate limit"),
        (Reply.overloaded(), anthropic.InternalServerError, "Overloaded"),
        (Reply.server_error(), anthropic.InternalServerError, "Internal server error"),
        (Reply.unauthorised(), anthropic.AuthenticationError, "invalid x-api-key"),
        (Reply.payload_too_large(), anthropic.APIStatusError, "maximum size"),
        (
            Reply.too_long(window=200_000, prompt=200_251),
            anthropic.BadRequestError,
            "prompt is too long: 200251 tokens > 200000 maximum",
        ),
        (
            Reply.output_over_window(window=200_000, prompt=188_240, asked=21_333),
            anthropic.BadRequestError,
            r"188240 \+ 21333 > 200000",
        ),
        (Reply.output_cap(cap=64_000, asked=99_999), anthropic.BadRequestError, "max_tokens: 99999 > 64000"),
        (Reply.quota_exceeded(), anthropic.BadRequestError, "credit balance"),
        (Reply.page(), anthropic.InternalServerError, "Bad Gateway"),
    ],
)
def test_errors_become_the_clients_own(reply, raised, text):
    with (
        scripted_provider([reply]) as server,
        client_of(server) as client,
        pytest.raises(raised, match=text) as caught,
    ):
        ask(client)
    assert caught.value.request_id or reply.raw


def test_the_client_waits_as_long_as_it_is_told():
    with scripted_provider([Reply.rate_limited(retry_after=0.2), "Here."]) as server:
        with client_of(server, retries=1) as client:
            assert ask(client).content[0].text == "Here."
        assert len(server.received) == 2


def test_an_error_inside_a_stream():
    reply = Reply(TEXT, stream_failure=Reply.overloaded().failure, cut_after_chunks=4)
    with scripted_provider([reply]) as server, client_of(server) as client:
        with (
            client.messages.stream(model="m", max_tokens=9, messages=ASKED) as stream,
            pytest.raises(anthropic.APIStatusError, match="Overloaded"),
        ):
            stream.until_done()
        # message_start and the first text came through; the ping is the client's own business.
        assert stream.current_message_snapshot.content[0].text == TEXT[:16]


def test_the_list_of_models():
    with (
        scripted_provider([], models=("small", "large"), window_tokens=9000) as server,
        client_of(server) as client,
    ):
        models = list(client.models.list())
    assert [(model.id, model.max_input_tokens) for model in models] == [("small", 9000), ("large", 9000)]


def marked(text, ttl=None):
    mark = {"type": "ephemeral"} | ({"ttl": ttl} if ttl else {})
    return [{"type": "text", "text": text, "cache_control": mark}]


def test_what_is_marked_is_cached_and_read_again():
    long, more = "alpha beta gamma " * 100, "delta epsilon " * 100
    first = [{"role": "user", "content": marked(long)}]
    # The second request moves the mark and turns the marked text into a plain one: the prefix is the same.
    second = [
        {"role": "user", "content": long},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": marked(more)},
    ]
    now = [1000.0]
    cache = PromptCache(min_tokens=100, clock=lambda: now[0])
    with (
        scripted_provider(["a"], repeat_last=True, prompt_cache=cache) as server,
        client_of(server) as client,
    ):
        system = marked("You are careful. " * 50, ttl="1h")
        one = ask(client, first, system=system).usage
        two = ask(client, second, system=system).usage
        now[0] += 200
        again = ask(client, second, system=system).usage
        now[0] += 301
        three = ask(client, second, system=system).usage
        now[0] += 3601
        four = ask(client, second, system=system).usage
    assert (one.cache_read_input_tokens, one.input_tokens) == (0, 0)
    hour = one.cache_creation.ephemeral_1h_input_tokens
    assert 0 < hour < one.cache_creation_input_tokens
    assert two.cache_read_input_tokens == one.cache_creation_input_tokens
    assert two.cache_creation_input_tokens > 0
    assert two.cache_creation.ephemeral_1h_input_tokens == 0
    # Reading begins the five minutes anew.
    assert again.cache_read_input_tokens == two.cache_read_input_tokens + two.cache_creation_input_tokens
    # After five minutes only what was written for an hour is left, then nothing.
    assert three.cache_read_input_tokens == hour
    assert four.cache_read_input_tokens == 0
    assert four.cache_creation_input_tokens == two.cache_read_input_tokens + two.cache_creation_input_tokens


def test_what_is_not_marked_is_not_cached():
    messages = [{"role": "user", "content": "alpha beta gamma " * 1000}]
    with (
        scripted_provider(["a"], repeat_last=True, prompt_cache=PromptCache()) as server,
        client_of(server) as client,
    ):
        usages = [ask(client, messages).usage for _ in range(2)]
    assert [usage.cache_read_input_tokens for usage in usages] == [0, 0]
    assert usages[0].input_tokens == usages[1].input_tokens > 1024
