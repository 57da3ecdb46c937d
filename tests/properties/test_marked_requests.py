"""What holds for cache marks on every request, and what a provider's cache makes of them."""

from __future__ import annotations

import copy
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
from tests.strategies.conversations import broken_conversations, conversations, texts
from typing_extensions import is_typeddict

from penstock.measure.usage import normalise_usage
from penstock.providers.cache_marks import MOST_MARKS, mark_cache, marks_of, restore_marks
from penstock.testing import PromptCache, Reply, scripted_provider

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TTLS = st.sampled_from(["5m", "1h"])


@st.composite
def requests(draw, dialect):
    some = draw(st.sampled_from([conversations, broken_conversations]))
    request = {"model": "claude-x", "messages": draw(some(dialect))}
    if dialect == "anthropic":
        request["system"] = draw(
            st.one_of(
                st.just(""),
                texts(),
                st.lists(st.builds(lambda t: {"type": "text", "text": t}, texts()), max_size=3),
            )
        )
        request["tools"] = draw(st.lists(st.builds(tool, st.booleans()), max_size=3))
    return request


def tool(deferred):
    whole = {"name": "terminal", "description": "Runs.", "input_schema": {"type": "object", "properties": {}}}
    return {**whole, "defer_loading": True} if deferred else whole


def without_marks(value):
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


def as_parts(message):
    content = message.get("content") if isinstance(message, dict) else None
    return (
        {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message
    )


@pytest.mark.parametrize("dialect", ["anthropic", "chat"])
@FEW
@given(data=st.data(), ttl=TTLS, end=st.one_of(st.none(), st.integers(0, 20)))
def test_marks_are_few_add_nothing_else_and_touch_nothing_else(dialect, data, ttl, end):
    request = data.draw(requests(dialect))
    before = copy.deepcopy(request)
    done = mark_cache(request, dialect=dialect, ttl=ttl, prefix_end=end)
    assert request == before
    if marks_of(request, dialect=dialect):
        assert done is request
        return
    marks = marks_of(done, dialect=dialect)
    assert len(marks) <= MOST_MARKS
    assert set(marks) <= {ttl}
    assert mark_cache(done, dialect=dialect, ttl=ttl, prefix_end=end) is done
    changed = 0
    for was, now in zip(request["messages"], done["messages"], strict=True):
        if now is was:
            continue
        changed += 1
        assert without_marks(now) == without_marks(as_parts(was))
        if isinstance(was["content"], list):
            fresh = [a for a, b in zip(now["content"], was["content"], strict=True) if a is not b]
            assert len(fresh) == 1
    outside = [name for name in request if done[name] is not request[name] and name != "messages"]
    assert changed + len(outside) == len(marks)
    assert list(done) == list(request)


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


@FEW
@given(data=st.data(), first=TTLS, rest=TTLS)
def test_marks_come_back_after_a_compaction_in_a_legal_order(data, first, rest):
    """Callers mark as they like, the longer life first; any run of messages goes."""
    plain = data.draw(requests("anthropic"))
    before = mark_cache(plain, dialect="anthropic", ttl=first)
    if (first, rest) == ("1h", "5m"):
        last = mark_cache({"messages": plain["messages"][-1:]}, dialect="anthropic", ttl="5m")
        before = {**before, "messages": [*before["messages"][:-1], *last["messages"]]}
    start = data.draw(st.integers(0, len(before["messages"])))
    stop = data.draw(st.integers(start, len(before["messages"])))
    handoff = {"role": "user", "content": "What happened so far."}
    messages = [*before["messages"][:start], handoff, *before["messages"][stop:]]
    after = {**before, "messages": messages}
    frozen = copy.deepcopy(after)
    done = restore_marks(before, after, dialect="anthropic", prefix_end=start + 1)
    marks = marks_of(done, dialect="anthropic")
    assert after == frozen
    assert len(marks) <= len(marks_of(before, dialect="anthropic"))
    assert list(marks) == sorted(marks)  # "1h" before "5m"
    assert without_marks(as_all_parts(done)) == without_marks(as_all_parts(after))
    if len(marks_of(after, dialect="anthropic")) < len(marks_of(before, dialect="anthropic")):
        assert len(marks) > len(marks_of(after, dialect="anthropic"))


def as_all_parts(request):
    return {**request, "messages": [as_parts(message) for message in request["messages"]]}


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


@pytest.mark.outside
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


@pytest.mark.outside
def test_without_marks_the_same_turns_read_nothing():
    with (
        scripted_provider(lambda _: Reply("Done."), prompt_cache=PromptCache()) as server,
        anthropic.Anthropic(base_url=server.base_url, api_key="no-real-key", max_retries=0) as client,
    ):
        for messages in conversation(2):
            answer = client.messages.create(model="claude-x", max_tokens=100, messages=messages)
            assert normalise_usage(answer.usage, "anthropic").cache_read_tokens == 0
