"""What providers really sent, and what it means. The bodies are quoted as they were documented or reported."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import ErrorClass, ErrorKind
from penstock.providers.classify import classify_error
from penstock.redaction import Redactor

FOLDER = Path(__file__).parent / "provider_errors"
FIXTURES = [
    case for path in sorted(FOLDER.glob("*.json")) for case in json.loads(path.read_text(encoding="utf-8"))
]
NAMED = {  # the providers of the specification
    "openai",
    "anthropic",
    "openrouter",
    "vllm",
    "llama.cpp",
    "ollama",
    "lmstudio",
    "groq",
    "mistral",
    "deepseek",
    "gemini",
    "bedrock",
    "azure",
    "dashscope",
}
# Of these no text about an output cap is known: the first three cut the answer down themselves.
WITHOUT_AN_OUTPUT_CAP = {"llama.cpp", "ollama", "lmstudio", "mistral"}
SIZES = {"prompt too long", "output cap too large"}
FACTS = ("window_tokens", "prompt_tokens", "output_cap_tokens", "retry_after_seconds")


def name_of(case):
    return f"{case['provider']}: {case['name']}"


def as_sent(case):
    body = case["body"]
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def facts(result):
    return {name: getattr(result, name) for name in FACTS}


@pytest.mark.parametrize("case", FIXTURES, ids=name_of)
def test_every_reported_error_is_understood(case):
    result = classify_error(case["status"], as_sent(case), case["headers"])
    assert result.kind == case["kind"]
    assert facts(result) == {name: case[name] for name in FACTS}
    assert result.status == case["status"]


@pytest.mark.parametrize("case", FIXTURES, ids=name_of)
def test_bytes_text_and_objects_give_the_same(case):
    body = as_sent(case)
    expected = classify_error(case["status"], body, case["headers"])
    assert classify_error(case["status"], body.decode(), case["headers"]) == expected
    if isinstance(case["body"], dict):
        assert classify_error(case["status"], case["body"], case["headers"]) == expected


@pytest.mark.parametrize("case", [case for case in FIXTURES if case["kind"] in SIZES], ids=name_of)
def test_what_is_about_size_does_not_depend_on_the_status(case):
    for status in (None, 200, 400, 413, 422, 500, 503):
        result = classify_error(status, as_sent(case), case["headers"])
        assert result.kind == case["kind"]
        assert result.window_tokens == case["window_tokens"]


def test_there_are_enough_of_them_and_each_has_a_source():
    assert len(FIXTURES) >= 150
    assert sum(case.get("held_out", False) for case in FIXTURES) >= 15
    assert len({name_of(case) for case in FIXTURES}) == len(FIXTURES)
    assert all(len(case["source"]) > 20 for case in FIXTURES)


def test_every_named_provider_is_there_with_both_kinds_where_it_has_both():
    kinds = defaultdict(set)
    for case in FIXTURES:
        kinds[case["provider"]].add(case["kind"])
    assert set(kinds) >= NAMED
    for provider in NAMED:
        assert ErrorKind.PROMPT_TOO_LONG in kinds[provider]
        assert (ErrorKind.OUTPUT_CAP_TOO_LARGE in kinds[provider]) == (provider not in WITHOUT_AN_OUTPUT_CAP)


def test_every_kind_is_among_them():
    assert {case["kind"] for case in FIXTURES} == set(ErrorKind)


def test_fixtures_hold_no_secret_and_no_identity():
    for case in FIXTURES:
        text = json.dumps(case)
        assert not re.search(r"\borg[-_](?!example)[A-Za-z0-9]{8,}", text)
        assert not re.search(r"\breq_(?!example)[A-Za-z0-9]{8,}", text)
        assert not re.search(r"\bsk-[A-Za-z0-9_-]{16,}", text)


# -- Statuses without words


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad request"),
        (401, "auth"),
        (402, "quota"),
        (403, "auth"),
        (404, "bad request"),
        (408, "timeout"),
        (409, "overload"),
        (413, "payload too large"),
        (422, "bad request"),
        (429, "rate limit"),
        (500, "overload"),
        (502, "overload"),
        (503, "overload"),
        (504, "timeout"),
        (520, "network"),
        (521, "network"),
        (522, "timeout"),
        (524, "timeout"),
        (529, "overload"),
        (302, "bad request"),
        (None, "network"),
        (200, "overload"),
        (0, "overload"),
        (-1, "overload"),
        (999, "overload"),
    ],
)
@pytest.mark.parametrize("body", [None, b"", "", {}, b"\xff\xfe\x00", "<html></html>", b"null", "[]"])
def test_a_status_without_words(status, kind, body):
    result = classify_error(status, body)
    if status is None and body == b"\xff\xfe\x00":
        kind = "overload"  # something came, and says nothing
    assert result.kind == kind
    assert facts(result) == dict.fromkeys(FACTS)


# -- Pairs that are easily taken for each other


def message(text, **fields):
    return {"error": {"message": text, **fields}}


def test_the_figures_decide_between_prompt_and_answer():
    text = "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the messages, {} in the completion)."
    fits = classify_error(400, message(text.format(1000000, 1008191, 999999, 8192)))
    just_not = classify_error(400, message(text.format(1000000, 1008192, 1000000, 8192)))
    assert fits.kind == ErrorKind.OUTPUT_CAP_TOO_LARGE
    assert just_not.kind == ErrorKind.PROMPT_TOO_LONG
    assert fits.window_tokens == just_not.window_tokens == 1_000_000


def test_a_lower_bound_is_no_prompt_size():
    text = (
        "This model's maximum context length is {} tokens. However, you requested {} output tokens and your prompt"
        " contains at least {} input tokens, for a total of at least {} tokens."
    )
    large = classify_error(400, message(text.format(131072, 32768, 98305, 131073)))
    small = classify_error(400, message(text.format(131072, 4096, 126977, 131073)))
    assert (large.kind, small.kind) == (ErrorKind.OUTPUT_CAP_TOO_LARGE, ErrorKind.PROMPT_TOO_LONG)
    assert (large.prompt_tokens, small.prompt_tokens) == (None, None)
    assert large.window_tokens == small.window_tokens == 131072


@pytest.mark.parametrize(
    ("written", "tokens"),
    [
        ("131072", 131_072),
        ("1,048,576", 1_048_576),
        ("200_000", 200_000),
        ("128k", 128_000),
        ("128K", 128_000),
        ("1M", 1_000_000),
        ("32.5k", 32_500),
        ("1024", 1_024),
        ("10000000", 10_000_000),
        ("1023", None),
        ("10000001", None),
        ("0", None),
        ("99999999999999", None),
    ],
)
def test_a_window_is_read_as_written_and_only_within_limits(written, tokens):
    body = message(
        f"This model's maximum context length is {written} tokens. Please reduce the length of the prompt"
    )
    result = classify_error(400, body)
    assert result.kind == ErrorKind.PROMPT_TOO_LONG
    assert result.window_tokens == tokens


def test_limits_of_accounts_and_characters_are_no_windows():
    per_minute = message(
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 36278."
    )
    characters = message("Invalid 'input': string too long. Expected a string with maximum length 1048576")
    for body in (per_minute, characters):
        result = classify_error(429, body)
        assert (result.kind, result.window_tokens) == (ErrorKind.PAYLOAD_TOO_LARGE, None)


def test_an_answer_that_had_begun_is_not_taken_for_an_error():
    stream = (
        'data: {"choices":[{"delta":{"content":"prompt is too long: 210000 tokens > 200000 maximum, error"}}]}\n\n'
        "event: error\n"
        'data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    )
    assert classify_error(200, stream).kind == ErrorKind.OVERLOAD


def test_a_request_that_is_echoed_is_not_taken_for_an_error():
    body = {
        "detail": [{"msg": "Field required", "input": {"prompt": "insufficient_quota, prompt is too long"}}]
    }
    assert classify_error(422, body).kind == ErrorKind.BAD_REQUEST


def test_an_error_event_with_plain_text():
    assert classify_error(200, "event: error\ndata: too many requests\n\n").kind == ErrorKind.RATE_LIMIT


@pytest.mark.parametrize(
    "text",
    [
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens.",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
        "messages.2.content.0.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes",
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        "messages: roles must alternate between user and assistant",
        "max_tokens: Field required",
        "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 201 instead.",
    ],
)
def test_what_no_compaction_mends_is_a_bad_request(text):
    result = classify_error(400, message(text, type="invalid_request_error"))
    assert result.kind == ErrorKind.BAD_REQUEST
    assert result.output_cap_tokens is None


def test_response_failed_as_an_object():
    failed = {
        "type": "response.failed",
        "response": {"error": {"code": "rate_limit_exceeded", "message": "Slow down"}},
    }
    assert classify_error(None, failed).kind == ErrorKind.RATE_LIMIT


def test_an_error_inside_a_choice():
    body = {"choices": [{"error": {"code": 429, "message": "Provider returned error"}}]}
    assert classify_error(200, body).kind == ErrorKind.RATE_LIMIT


def test_amazons_type_in_a_header():
    result = classify_error(
        400, {"message": "Try later"}, {"x-amzn-ErrorType": "ThrottlingException:http://x/"}
    )
    assert result.kind == ErrorKind.RATE_LIMIT


def test_the_providers_own_code_is_kept():
    assert (
        classify_error(400, message("No", code="context_length_exceeded")).code == "context_length_exceeded"
    )
    assert (
        classify_error(400, {"__type": "com.amazon#ValidationException", "message": "No"}).code
        == "ValidationException"
    )
    assert classify_error(400, message("No", code=400)).code == ""


# -- Waiting

DATE = "Tue, 17 Jun 2025 05:21:48 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "20"}, 20.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "494", "retry-after": "1"}, 0.494),
        ({"retry-after": "Tue, 17 Jun 2025 05:22:48 GMT", "date": DATE}, 60.0),
        ({"retry-after": "Tue, 17 Jun 2025 05:20:48 GMT", "date": DATE}, 0.0),
        ({"retry-after": "Tue, 17 Jun 2025 05:22:48 GMT"}, None),  # against what clock?
        ({"x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-requests": "1.5s", "x-ratelimit-reset-tokens": "6ms"}, 1.5),
        ({"x-ratelimit-reset-requests": "8h", "x-ratelimit-remaining-requests": "9"}, None),  # not that one
        ({"x-ratelimit-reset": "1750137768", "date": DATE}, 60.0),
        ({"x-ratelimit-reset": "1750137768000", "date": DATE}, 60.0),
        ({"x-ratelimit-reset": "1750137768"}, None),
        ({"anthropic-ratelimit-tokens-reset": "2025-06-17T05:22:48Z", "date": DATE}, 60.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "99999999"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_by_headers(headers, seconds):
    assert classify_error(429, None, headers).retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Rate limit reached. Please try again in 20s.", 20.0),
        ("Please try again in 644ms.", 0.644),
        ("Please try again in 1h2m3.5s", 3723.5),
        ("Please retry after 7 seconds.", 7.0),
        ("Please retry in 25.465784708s.", 25.466),
        ("try again in 2 minutes", 120.0),
        ("Please try again later.", None),
        ("Please try again in a few minutes", None),
        ("Please try again in 5", None),
    ],
)
def test_how_long_to_wait_by_text(text, seconds):
    assert classify_error(429, message(text)).retry_after_seconds == seconds


def test_how_long_to_wait_by_fields():
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.074824224s"}
    body = [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota", "details": [info]}}]
    assert classify_error(429, json.dumps(body)).retry_after_seconds == 34.075
    passed_on = {
        "error": {
            "message": "Rate limit exceeded",
            "metadata": {"headers": {"X-RateLimit-Reset": "1750137768000"}},
        }
    }
    assert classify_error(429, passed_on, {"date": DATE}).retry_after_seconds == 60.0


def test_reset_times_count_only_for_a_rate_limit():
    headers = {"x-ratelimit-reset-tokens": "6m0s"}
    assert (
        classify_error(
            400, message("prompt is too long: 9000 tokens > 8192 maximum"), headers
        ).retry_after_seconds
        is None
    )


# -- Whatever comes

SECRET = "sk-proj-Q3xV7mZp1LwT9rYb5NcK2dHf8JgS4aEu6oXiWqPn0B"


def test_a_secret_does_not_reach_message_or_code():
    result = classify_error(401, message(f"Incorrect API key provided: {SECRET}.", code=SECRET))
    assert SECRET not in result.message
    assert SECRET not in result.code
    assert SECRET[-8:] not in repr(result)


def test_a_secret_at_the_border_of_the_message_is_not_cut_and_left():
    for padding in range(240, 310):
        result = classify_error(401, message("x " * (padding // 2) + SECRET))
        assert "Q3xV7mZp" not in result.message


def test_a_caller_may_bring_its_own_redactor():
    result = classify_error(
        401, message("key hunter2hunter2 is wrong"), redactor=Redactor(["hunter2hunter2"])
    )
    assert "hunter2" not in result.message


def seconds_for(body):
    started = time.thread_time()
    classify_error(500, body)
    return time.thread_time() - started


@pytest.mark.alone
def test_a_huge_body_is_looked_at_in_part_and_quickly():
    error = '"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}'
    bodies = [
        b"x" * 1_000_000,
        ("{" + error + ',"echo":"' + "y" * 1_000_000 + '"}').encode(),
        ('{"echo":"' + "y" * 1_000_000 + '",' + error + "}").encode(),
        b"<" * 1_000_000,
        b"[" * 1_000_000,
        (b"data: {error\n" * 80_000),
        b"max_tokens 1" * 80_000,
        "maximum context length is 1 tokens " * 30_000,
    ]
    for body in bodies:
        assert min(seconds_for(body) for _ in range(3)) < 0.05, body[:30]
        assert len(classify_error(500, body).message) <= 300
    assert classify_error(500, bodies[1]).window_tokens == 200_000
    assert classify_error(500, bodies[2]).window_tokens == 200_000


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "details", "raw", "x"]) | st.text(), inner
        )
    ),
    max_leaves=20,
)
_WORDS = st.lists(
    st.sampled_from(
        [*re.findall(r"[\w'`(\[]+|\W+", " ".join(str(case["body"]) for case in FIXTURES))[:4_000]]
    )
    | st.integers(min_value=0).map(str)
    | st.text(max_size=5),
    max_size=60,
).map("".join)
_BODIES = (
    st.binary() | st.text() | _WORDS | st.dictionaries(st.text(), _JSON) | _JSON.map(json.dumps) | st.none()
)
_HEADERS = st.dictionaries(
    st.sampled_from(
        ["retry-after", "Retry-After-MS", "date", "x-ratelimit-reset-tokens", "x-ratelimit-reset"]
    )
    | st.text(),
    st.text() | st.integers().map(str) | st.floats().map(str) | st.just(DATE),
)


@settings(max_examples=400, deadline=None)
@given(status=st.none() | st.integers(), body=_BODIES, headers=_HEADERS)
@example(status=400, body={1: 2, "error": {3: "x"}}, headers={})
@example(status=400, body='{"error":{"message":"\\ud800 prompt is too long"}}', headers={})
def test_whatever_comes_it_is_classified_within_bounds(status, body, headers):
    result = classify_error(status, body, headers)
    assert isinstance(result, ErrorClass)
    assert len(result.message) <= 300
    assert "\n" not in result.message
    assert len(result.code) <= 100
    assert result.window_tokens is None or 1_024 <= result.window_tokens <= 10_000_000
    assert result.retry_after_seconds is None or 0 <= result.retry_after_seconds <= 31 * 86_400
    for tokens in (result.prompt_tokens, result.output_cap_tokens):
        assert tokens is None or tokens >= 0
    assert result == classify_error(status, body, headers)


def test_the_example_in_the_documents_runs():
    text = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        exec(block, {})


def test_public_names():
    import penstock

    assert penstock.classify_error is classify_error
    assert penstock.ErrorClass is ErrorClass
