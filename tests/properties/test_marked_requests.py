"""What holds for cache marks on every request."""

from __future__ import annotations

import copy
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.strategies.requests import TTLS, requests

from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest
from penstock.providers.cache_marks import MOST_MARKS, mark_cache, marks_of, restore_marks, strip_marks

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


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


@pytest.mark.parametrize("dialect", ["anthropic", "chat"])
@FEW
@given(data=st.data(), ttl=TTLS, compact=st.booleans(), named=st.booleans())
def test_a_stripped_message_lacks_its_marks_and_nothing_else(dialect, data, ttl, compact, named):
    plain = data.draw(requests(dialect))["messages"]
    if named:  # an argument that is called so, and a text that looks like a mark
        looks = [
            {"type": "tool_use", "id": "c", "name": "t", "input": {"cache_control": {"type": "ephemeral"}}},
            {"type": "text", "text": ', "cache_control": {"type": "ephemeral"}'},
        ]
        plain = [*plain, {"role": "assistant", "content": looks}]
    marked = mark_cache({"messages": plain}, dialect=dialect, ttl=ttl)["messages"]
    separators, read = (",", ":") if compact else (", ", ": "), dialect_named(dialect).decode
    for message in marked:
        raw = json.dumps(message, separators=separators, ensure_ascii=data.draw(st.booleans())).encode()
        bare = strip_marks(raw, dialect)
        assert not marks_of({"messages": [json.loads(bare)]}, dialect=dialect)
        assert without_marks(json.loads(bare)) == without_marks(message)
        assert strip_marks(bare, dialect) == bare
        assert content_digest(read(json.loads(bare))) == content_digest(read(message))
        if not marks_of({"messages": [message]}, dialect=dialect):
            assert bare == raw
        elif "tool_use" not in str(message):  # nothing in it but marks has that name: only they are cut out
            assert bare == re.sub(rb', ?"cache_control": ?{[^}]*}', b"", raw)


@pytest.mark.parametrize(
    ("raw", "bare"),
    [
        (
            b'{"cache_control":{"type":"ephemeral"},"role":"user","content":"a"}',
            b'{"role":"user","content":"a"}',
        ),
        (
            b'{"role":"user","content":"a" , "cache_control" : {"type":"ephemeral"} }',
            b'{"role":"user","content":"a"  }',
        ),
        (b'{"role":"user","content":"a","cach\\u0065_control":{}}', b'{"role":"user","content":"a"}'),
        (
            (
                b'{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"a","cache_control":'
                b'{"type":"ephemeral","ttl":"1h"}}],"tool_use_id":"c"}]}'
            ),
            b'{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"a"}],"tool_use_id":"c"}]}',
        ),
        (
            b'{"role":"user","content":"a","cache_control":{},"cache_control":{}}',
            b'{"role":"user","content":"a"}',
        ),
        (
            b'{"role":"user", "content":"a", "cache_control":null}',
            b'{"role":"user", "content":"a", "cache_control":null}',
        ),
    ],
)
def test_marks_are_stripped_wherever_they_stand_and_however_they_are_spelled(raw, bare):
    assert strip_marks(raw, "anthropic") == bare
    assert strip_marks(raw, "responses") == raw
