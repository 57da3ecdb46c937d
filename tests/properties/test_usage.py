"""Whatever a provider sends as usage, the record is sound."""

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.measure.usage import Usage, normalise_usage

FIELDS = [
    "input_tokens",
    "output_tokens",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "cache_creation_tokens",
    "thinking_tokens",
    "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens",
]
NESTS = [
    "prompt_tokens_details",
    "completion_tokens_details",
    "input_tokens_details",
    "output_tokens_details",
    "cache_creation",
]
DIALECTS = st.sampled_from([None, "chat", "responses", "anthropic", "sharegpt", "?"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
COUNTS = st.integers(0, 10**6) | JSON
FLAT = st.dictionaries(st.sampled_from(FIELDS), COUNTS, max_size=6)
USAGES = st.builds(
    lambda flat, nested: {**flat, **nested},
    FLAT,
    st.dictionaries(st.sampled_from(NESTS), FLAT | JSON, max_size=3),
)


def sound(usage):
    numbers = [getattr(usage, name) for name in usage.__struct_fields__]
    assert all(type(number) is int and number >= 0 for number in numbers)
    assert usage.cache_write_1h_tokens <= usage.cache_write_tokens
    assert usage.prompt_tokens == usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.output_tokens


@settings(max_examples=150, deadline=None)
@given(JSON, DIALECTS)
def test_any_json_gives_a_sound_record(value, dialect):
    sound(normalise_usage(value, dialect))


@settings(max_examples=300, deadline=None)
@given(USAGES, DIALECTS)
def test_any_values_in_the_known_fields_give_a_sound_record(usage, dialect):
    sound(normalise_usage(usage, dialect))


@settings(max_examples=150, deadline=None)
@given(USAGES, DIALECTS)
def test_an_object_reads_like_a_dict(usage, dialect):
    as_object = SimpleNamespace(
        **{name: SimpleNamespace(**value) if name in NESTS and isinstance(value, dict) else value
           for name, value in usage.items()}
    )  # fmt: skip
    assert normalise_usage(as_object, dialect) == normalise_usage(usage, dialect)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_three_shapes_of_one_request_agree(fresh, read, written, output):
    prompt = fresh + read + written
    chat = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
    }
    responses = {
        "input_tokens": prompt,
        "output_tokens": output,
        "input_tokens_details": {"cached_tokens": read, "cache_creation_tokens": written},
    }
    anthropic = {
        "input_tokens": fresh,
        "output_tokens": output,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }
    expected = Usage(fresh, output, read, written)
    assert normalise_usage(chat) == normalise_usage(responses) == normalise_usage(anthropic) == expected


@settings(max_examples=100, deadline=None)
@given(USAGES, USAGES)
def test_adding_keeps_every_token(one, other):
    left, right = normalise_usage(one), normalise_usage(other)
    both = left + right
    sound(both)
    assert both.total_tokens == left.total_tokens + right.total_tokens
    assert both == right + left
