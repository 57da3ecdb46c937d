"""Objects of an SDK are messages, as their dicts are: the same result, and what is kept is what was given."""

from __future__ import annotations

import copy
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.long_sessions import long_conversations

import penstock
from penstock.conversation.wire import encode_wire, to_plain
from penstock.engine.compressor import ContextCompressor
from penstock.errors import PenstockError
from penstock.sessions.session import Session
from penstock.stores.store import open_store

DIALECTS = ["chat", "responses", "anthropic", "sharegpt"]


class SdkObject:
    """Anything with `model_dump`. It is equal to nothing but itself, as those of Pydantic are to no dict."""

    def __init__(self, fields):
        self._fields = fields

    def model_dump(self, **_options):
        return {
            key: copy.deepcopy(value) if not isinstance(value, SdkObject) else value
            for key, value in self._fields.items()
        }


def wrap(value, random):
    """The value with some of its objects, at any depth, in the form of an SDK."""
    if isinstance(value, dict):
        inner = {key: wrap(item, random) for key, item in value.items()}
        return SdkObject(inner) if random.random() < 0.3 else inner
    return [wrap(item, random) for item in value] if isinstance(value, list) else value


@st.composite
def conversations_and_objects(draw, dialect):
    wires = draw(long_conversations(dialect, max_turns=4))
    return wires, wrap(wires, Random(draw(st.integers(0, 99))))


def outcome(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except PenstockError as error:
        return str(error)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=10)
@given(st.data())
def test_objects_compress_as_their_dicts_do_and_kept_ones_are_those_given(dialect, data):
    wires, objects = data.draw(conversations_and_objects(dialect))
    target = data.draw(st.integers(200, 3_000))
    expected = outcome(penstock.compress, wires, target_tokens=target, dialect=dialect)
    result = outcome(penstock.compress, objects, target_tokens=target, dialect=dialect)
    if isinstance(expected, str):
        assert result == expected
        return
    assert to_plain(result.messages) == expected.messages
    assert [v.fate for v in result.verdicts] == [v.fate for v in expected.verdicts]
    assert result.sources == expected.sources
    for ours, plain, source in zip(result.messages, expected.messages, result.sources, strict=True):
        kept = any(plain is wire for wire in wires)
        assert kept == (source is not None and ours is objects[source])
        assert kept == (source is not None and plain is wires[source])
    shown = [source for source in result.sources if source is not None]
    assert shown == sorted(set(shown))
    stays = {verdict.position for verdict in result.verdicts if verdict.fate in ("kept", "elided")}
    assert set(shown) == stays


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=5)
@given(st.data())
def test_an_engine_that_sees_objects_again_estimates_and_compresses_as_with_dicts(dialect, data):
    wires, objects = data.draw(conversations_and_objects(dialect))
    one, other = ContextCompressor(8_000), ContextCompressor(8_000)
    half = len(wires) // 2
    for end in (half, len(wires), len(wires)):
        assert outcome(one.estimate, objects[:end]) == outcome(other.estimate, wires[:end])
    ours = outcome(one.compact, objects, target_tokens=800)
    theirs = outcome(other.compact, wires, target_tokens=800)
    assert isinstance(ours, str) == isinstance(theirs, str)
    if not isinstance(ours, str):
        assert to_plain(ours.messages) == theirs.messages


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=5)
@given(st.data())
def test_a_session_logs_objects_as_their_dicts(dialect, data):
    wires, objects = data.draw(conversations_and_objects(dialect))
    store = open_store("memory:")
    one, other = Session.create(store, dialect=dialect), Session.create(store, dialect=dialect)
    one.append(objects, keep_results=True)
    other.append(wires, keep_results=True)
    assert one.view_bytes() == other.view_bytes()
    store.close()


@given(st.data())
@settings(max_examples=10)
def test_plain_values_are_passed_on_as_they_are(data):
    wires, objects = data.draw(conversations_and_objects(data.draw(st.sampled_from(DIALECTS))))
    assert to_plain(wires) is wires
    assert to_plain(objects) == wires
    assert encode_wire(objects) == encode_wire(wires)
