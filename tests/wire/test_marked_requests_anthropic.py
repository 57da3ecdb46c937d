"""Cache marks as Anthropic's own types take them, and what a provider's cache makes of them."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args, get_type_hints

import anthropic
import pytest
from anthropic.types import (
    CacheControlEphemeralParam,
    ContentBlockParam,
    MessageParam,
    TextBlockParam,
    ToolParam,
    ToolUnionParam,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError  # comes with the Anthropic client
from tests.strategies.requests import TTLS, requests
from typing_extensions import is_typeddict

from penstock.measure.usage import normalise_usage
from penstock.providers.cache_marks import mark_cache
from penstock.testing import PromptCache, Reply, scripted_provider

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(data=st.data(), ttl=TTLS, end=st.one_of(st.none(), st.integers(0, 20)))
def test_what_anthropic_s_own_types_take_they_take_with_marks(data, ttl, end):
    request = data.draw(requests("anthropic").filter(valid))
    assert valid(mark_cache(request, dialect="anthropic", ttl=ttl, prefix_end=end))


CHECKS = {
    "messages": TypeAdapter(list[MessageParam]),
    "system": TypeAdapter(str | list[TextBlockParam]),
    "tools": TypeAdapter(list[ToolUnionParam]),
}
BLOCKS = {
    get_args(get_type_hints(block)["type"])[0]: get_type_hints(block)
    for block in get_args(ContentBlockParam)
    if is_typeddict(block)
}
LIVES = get_args(get_type_hints(CacheControlEphemeralParam)["ttl"])


def valid(request):
    """Whether the SDK's types take it, and know a mark of this form on every part that has one."""
    try:
        for field, check in CHECKS.items():
            list(all_of(check.validate_python(request.get(field, []))))
    except ValidationError:
        return False
    marked = [part for field in CHECKS for part in all_of(request.get(field, [])) if "cache_control" in part]
    return all(may_carry(part) and well_formed(part["cache_control"]) for part in marked)


def may_carry(part):
    return "cache_control" in (BLOCKS.get(part["type"], {}) if "type" in part else get_type_hints(ToolParam))


def well_formed(mark):
    return mark["type"] == "ephemeral" and set(mark) <= {"type", "ttl"} and mark.get("ttl", "5m") in LIVES


def all_of(value):
    """Every object in a value; reading the SDK's lazy iterables is what checks them."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from all_of(item)
    elif not isinstance(value, str | bytes) and hasattr(value, "__iter__"):
        for item in value:
            yield from all_of(item)


def test_the_check_can_fail():
    good = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}
    assert valid(good)
    assert not valid({"messages": [{"role": "user", "content": [{"type": "text"}]}]})
    for bad in (
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "2h"}},
        {"type": "thinking", "thinking": "a", "signature": "b", "cache_control": {"type": "ephemeral"}},
    ):
        assert not valid({"messages": [{"role": "user", "content": [bad]}]})


def conversation(turns):
    """A loop of calls and results; each result is long enough to be worth caching."""
    messages = [{"role": "user", "content": "Fix the tests. " * 200}]
    yield list(messages)
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"toolu_{turn}", "name": "terminal", "input": {"command": "make"}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "I run it."}, call]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": f"line {turn}\n" * 300}
        messages.append({"role": "user", "content": [result]})
        yield list(messages)


@pytest.mark.parametrize("prefix_end", [None, 1])
@pytest.mark.parametrize("ttl", ["5m", "1h"])
def test_a_provider_s_cache_reads_more_every_turn(ttl, prefix_end):
    with scripted_provider(lambda _: Reply("Done."), prompt_cache=PromptCache()) as server:
        client = anthropic.Anthropic(base_url=server.base_url, api_key="no-real-key", max_retries=0)
        usages = []
        with client:
            for messages in conversation(6):
                request = {
                    "model": "claude-x",
                    "max_tokens": 100,
                    "system": "Be brief. " * 600,
                    "messages": messages,
                }
                answer = client.messages.create(
                    **mark_cache(request, dialect="anthropic", ttl=ttl, prefix_end=prefix_end)
                )
                usages.append(normalise_usage(answer.usage, "anthropic"))
        assert server.violations == ()
    reads = [usage.cache_read_tokens for usage in usages]
    assert reads[0] == 0
    assert reads == sorted(set(reads)), "each turn reads more than the one before"
    for before, now in pairwise(usages):
        assert now.cache_read_tokens == before.prompt_tokens  # all that was sent, and nothing is sent twice
        assert now.input_tokens == 0
    hour = [usage.cache_write_1h_tokens for usage in usages]
    assert hour == ([usage.cache_write_tokens for usage in usages] if ttl == "1h" else [0] * len(usages))


def test_without_marks_the_same_turns_read_nothing():
    with (
        scripted_provider(lambda _: Reply("Done."), prompt_cache=PromptCache()) as server,
        anthropic.Anthropic(base_url=server.base_url, api_key="no-real-key", max_retries=0) as client,
    ):
        for messages in conversation(2):
            answer = client.messages.create(model="claude-x", max_tokens=100, messages=messages)
            assert normalise_usage(answer.usage, "anthropic").cache_read_tokens == 0
