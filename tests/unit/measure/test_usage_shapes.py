from types import SimpleNamespace

import msgspec
import pytest

from penstock.measure.usage import Usage, normalise_usage

OPENAI_CHAT = {
    "prompt_tokens": 2006,
    "completion_tokens": 300,
    "total_tokens": 2306,
    "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 128,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
RESPONSES = {
    "input_tokens": 8120,
    "input_tokens_details": {"cached_tokens": 6144, "cache_creation_tokens": 1024},
    "output_tokens": 510,
    "output_tokens_details": {"reasoning_tokens": 448},
    "total_tokens": 8630,
}
ANTHROPIC = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 5300,
    "cache_read_input_tokens": 41200,
    "cache_creation": {"ephemeral_5m_input_tokens": 1300, "ephemeral_1h_input_tokens": 4000},
    "output_tokens": 733,
    "service_tier": "standard",
}
DEEPSEEK = {
    "prompt_tokens": 1500,
    "completion_tokens": 90,
    "total_tokens": 1590,
    "prompt_tokens_details": {"cached_tokens": 1408},
    "prompt_cache_hit_tokens": 1408,
    "prompt_cache_miss_tokens": 92,
}
OPENROUTER = {
    "prompt_tokens": 10_339,
    "completion_tokens": 60,
    "total_tokens": 10_399,
    "cost": 0.0124,
    "is_byok": False,
    "prompt_tokens_details": {"cached_tokens": 10_000, "cache_write_tokens": 318, "audio_tokens": 0},
    "cost_details": {"upstream_inference_cost": None},
    "completion_tokens_details": {"reasoning_tokens": 31, "image_tokens": 0},
}
LANGCHAIN = {
    "input_tokens": 8120,
    "output_tokens": 510,
    "total_tokens": 8630,
    "input_token_details": {"cache_read": 6144, "cache_creation": 1024},
}
CONVERSE = {
    "inputTokens": 12,
    "outputTokens": 733,
    "totalTokens": 47_245,
    "cacheReadInputTokens": 41_200,
    "cacheWriteInputTokens": 5_300,
}
CONVERSE_WITH_CACHE_IN_THE_INPUT = {**CONVERSE, "inputTokens": 46_512}
SHAPES = [
    ("chat", OPENAI_CHAT, Usage(86, 300, 1920, 0, 0, 128)),
    ("responses", RESPONSES, Usage(952, 510, 6144, 1024, 0, 448)),
    ("anthropic", ANTHROPIC, Usage(12, 733, 41_200, 5300, 4000, 0)),
    ("responses", LANGCHAIN, Usage(952, 510, 6144, 1024, 0, 0)),
    ("anthropic", CONVERSE, Usage(12, 733, 41_200, 5_300)),
    ("anthropic", CONVERSE_WITH_CACHE_IN_THE_INPUT, Usage(12, 733, 41_200, 5_300)),
    ("chat", DEEPSEEK, Usage(92, 90, 1408, 0, 0, 0)),
    ("chat", OPENROUTER, Usage(21, 60, 10_000, 318, 0, 31)),
]


def as_object(value):
    if isinstance(value, dict):
        return SimpleNamespace(**{name: as_object(inner) for name, inner in value.items()})
    return value


@pytest.mark.parametrize(("dialect", "body", "expected"), SHAPES)
def test_each_shape_with_its_dialect_named_and_recognised(dialect, body, expected):
    assert normalise_usage(body, dialect) == expected
    assert normalise_usage(body) == expected


@pytest.mark.parametrize(("dialect", "body", "expected"), SHAPES)
def test_sdk_objects_read_like_dicts(dialect, body, expected):
    assert normalise_usage(as_object(body), dialect) == expected
    assert normalise_usage(as_object(body)) == expected


@pytest.mark.parametrize(("dialect", "body", "expected"), SHAPES)
def test_prompt_tokens_are_what_the_provider_means_by_the_whole_prompt(dialect, body, expected):
    whole = {
        "chat": body.get("prompt_tokens"),
        "responses": body.get("input_tokens"),
        "anthropic": 12 + 5300 + 41_200,
    }[dialect]
    assert expected.prompt_tokens == whole
    assert expected.total_tokens == whole + expected.output_tokens


def test_deepseek_without_details_has_its_cache_hits():
    body = {"prompt_tokens": 1500, "completion_tokens": 9, "prompt_cache_hit_tokens": 1408}
    assert normalise_usage(body) == Usage(92, 9, 1408)


def test_chat_through_a_proxy_to_anthropic():
    body = {
        "prompt_tokens": 1000,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": None},
        "cache_read_input_tokens": 700,
        "cache_creation_input_tokens": 200,
    }
    assert normalise_usage(body) == Usage(100, 5, 700, 200)


def test_anthropic_without_the_split_has_no_hour_and_with_only_the_split_has_its_sum():
    assert normalise_usage({**ANTHROPIC, "cache_creation": None}).cache_write_1h_tokens == 0
    split_only = {"input_tokens": 1, "output_tokens": 2, "cache_creation": ANTHROPIC["cache_creation"]}
    assert normalise_usage(split_only) == Usage(1, 2, 0, 5300, 4000)


def test_anthropic_thinking_is_reasoning():
    body = {**ANTHROPIC, "output_tokens_details": {"thinking_tokens": 500}}
    assert normalise_usage(body).reasoning_tokens == 500


def test_more_cache_than_prompt_leaves_no_input_and_keeps_the_cache():
    body = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9000}}
    assert normalise_usage(body) == Usage(0, 1, 9000)


@pytest.mark.parametrize(
    "bad", [None, -5, "many", "", float("nan"), float("inf"), True, [], {}, 10**400, "-3"]
)
def test_what_is_no_count_is_nothing(bad):
    assert normalise_usage({"prompt_tokens": bad, "completion_tokens": 7}, "chat") == Usage(0, 7)
    details = {"prompt_tokens": 10, "prompt_tokens_details": bad, "completion_tokens": 7}
    assert normalise_usage(details) == Usage(10, 7)


def test_numbers_in_other_clothes_are_read():
    assert normalise_usage({"input_tokens": "120", "output_tokens": 7.0}) == Usage(120, 7)


@pytest.mark.parametrize("nothing", [None, {}, [], "usage", 7, float("nan"), object()])
@pytest.mark.parametrize("dialect", [None, "chat", "responses", "anthropic", "sharegpt", "no such dialect"])
def test_no_usage_is_an_empty_record(nothing, dialect):
    assert normalise_usage(nothing, dialect) == Usage()


def test_a_dialect_gives_way_where_none_of_its_fields_is_there():
    assert normalise_usage(OPENAI_CHAT, "anthropic") == normalise_usage(OPENAI_CHAT, "chat")
    assert normalise_usage(ANTHROPIC, "chat") == normalise_usage(ANTHROPIC, "anthropic")


def test_a_named_dialect_decides_where_the_fields_leave_it_open():
    body = {**RESPONSES, "cache_read_input_tokens": 6144}
    assert normalise_usage(body, "responses").input_tokens == 952
    assert normalise_usage(body, "anthropic").input_tokens == 8120


def test_a_record_of_ours_comes_back_as_it_was():
    usage = normalise_usage(ANTHROPIC)
    assert normalise_usage(usage) is usage
    assert normalise_usage(msgspec.to_builtins(usage)) == usage


def test_records_add_up():
    total = sum((expected for _, _, expected in SHAPES), Usage())
    assert total.prompt_tokens == sum(expected.prompt_tokens for _, _, expected in SHAPES)
    assert total.cache_write_1h_tokens == 4000
    assert total.reasoning_tokens == 128 + 448 + 31
