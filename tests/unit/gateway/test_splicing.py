"""Request bodies: what is found in them, and that the same body comes out with other messages in it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import json_values

from penstock.gateway.splicing import TooManyMessages, join_body, locate, read_body, slice_messages

LIST = {"chat": "messages", "responses": "input", "anthropic": "messages"}
MESSAGE = {"role": "user", "content": "hi"}
each_dialect = pytest.mark.parametrize("dialect", list(LIST))


def body_of(dialect, **fields):
    return json.dumps({"model": "m", LIST[dialect]: [MESSAGE], **fields}).encode()


@each_dialect
@given(
    before=st.dictionaries(st.text(max_size=5), json_values(), max_size=3),
    after=st.dictionaries(st.text(max_size=5), json_values(), max_size=3),
    messages=st.lists(
        st.dictionaries(st.text(max_size=3), json_values(), min_size=1, max_size=3), min_size=1, max_size=4
    ),
)
def test_all_but_the_messages_is_as_it_was(dialect, before, after, messages):
    taken = (*LIST.values(), "previous_response_id", "conversation", "prompt")
    outside = {name: value for name, value in {**before, **after}.items() if name not in taken}
    whole = {**outside, LIST[dialect]: messages}
    data = json.dumps(whole).encode()
    body = read_body(data, dialect)
    raws = slice_messages(body.listed)
    assert [json.loads(raw) for raw in raws] == messages
    starts, ends = locate(body.listed, 0, raws)
    assert [body.listed[start:end] for start, end in zip(starts, ends, strict=True)] == raws
    assert all(slice_messages(body.listed, end) == raws[at + 1 :] for at, end in enumerate(ends))
    spliced = json.loads(join_body(body, [b'{"a":1}', *raws[1:]]))
    assert spliced == {**whole, LIST[dialect]: [{"a": 1}, *messages[1:]]}
    assert list(spliced) == list(whole)


@each_dialect
@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'"text"', b"\xff\xfe{}", b"{}", b'{"messages": "hi", "input": "hi"}',
     b'{"messages": [], "input": []}', b'{"messages": [1], "input": ["x"]}', b'{"messages": {}, "input": {}}'],
)  # fmt: skip
def test_what_has_no_messages_is_left_alone(dialect, data):
    body = read_body(data, dialect)
    assert body is None or slice_messages(body.listed) is None


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_a_conversation_that_the_provider_holds_is_left_alone(field):
    assert read_body(body_of("responses", **{field: "resp_1"}), "responses") is None
    assert read_body(body_of("responses", **{field: None}), "responses") is not None


def test_what_stands_beside_the_messages():
    body = read_body(
        body_of("anthropic", system=[{"type": "text", "text": "Be."}], tools=[{}], max_tokens=5, stream=True),
        "anthropic",
    )
    assert (body.model, body.streams, body.output_cap) == ("m", True, ("max_tokens", 5))
    assert json.loads(body.system) == [{"type": "text", "text": "Be."}]
    assert json.loads(body.tools) == [{}]
    assert read_body(body_of("chat", model="x" * 257), "chat").model == ""  # what is learned is kept by it
    plain = read_body(b'{"model": 5, "messages": [{"role": "user"}], "max_tokens": true}', "chat")
    assert (plain.model, plain.streams, plain.output_cap, plain.system, plain.tools) == (
        "",
        False,
        None,
        b"",
        b"",
    )


def test_a_field_is_changed_in_its_place():
    body = read_body(body_of("chat", max_tokens=9, x=1), "chat")
    assert json.loads(join_body(body, slice_messages(body.listed), {"max_tokens": b"4"})) == {
        "model": "m", "messages": [MESSAGE], "max_tokens": 4, "x": 1,
    }  # fmt: skip


def test_a_list_of_far_too_many_messages_is_not_read():
    assert len(slice_messages(b"[" + b",".join([b"{}"] * 100_000) + b"]")) == 100_000
    with pytest.raises(TooManyMessages, match="more than 100,000 messages"):
        slice_messages(b"[" + b",".join([b"{}"] * 100_001) + b"]")


@pytest.mark.parametrize("cap", [0, -1, 10**20, 10**400, True, "5"])
def test_a_cap_that_limits_nothing_is_none(cap):
    """It goes to the provider as it came. No number of a caller's may be too large for an order."""
    data = json.dumps({"model": "m", "max_tokens": cap, "messages": [{"role": "user", "content": "x"}]})
    body = read_body(data.encode(), "chat")
    assert body.output_cap is None


@given(st.lists(st.sampled_from([b'{"a":1}', b'{"a": "],["}', b"{}"]), min_size=1, max_size=5), st.data())
def test_messages_are_located_whatever_stands_between_them(messages, data):
    space = st.sampled_from([b"", b" ", b"\n\t", b"  \r\n"])
    listed = b"[" + b",".join(data.draw(space) + one + data.draw(space) for one in messages) + b"]"
    starts, ends = locate(listed, 0, slice_messages(listed))
    assert [listed[start:end] for start, end in zip(starts, ends, strict=True)] == messages
    half = len(messages) // 2
    if half:
        rest = slice_messages(listed, ends[half - 1])
        assert locate(listed, ends[half - 1], rest) == (starts[half:], ends[half:])
