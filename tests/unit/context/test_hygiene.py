"""The safety net of any host."""

from __future__ import annotations

import json

import pytest

import penstock
from penstock.context.hygiene import tidy
from penstock.conversation.dialects import CHAT, decode_all
from penstock.conversation.rules import check
from penstock.engine.registry import engine_named
from penstock.errors import EngineFailure
from penstock.settings import settings_from
from penstock.stores.store import open_store


@pytest.fixture
def session():
    store = open_store("memory:")
    settings = settings_from({"model.context_length": 16_000})
    made = penstock.Session.create(store, model="gpt-4.1", settings=settings)
    yield made
    store.close()


def filled(session, messages, words=160):
    session.append(
        [
            {
                "role": ("user", "assistant")[n % 2],
                "content": f"note {n}: " + f"item_{n} stands here. " * words,
            }
            for n in range(messages)
        ]
    )


def test_a_session_that_nearly_fills_the_window_is_compacted(session):
    filled(session, 16)
    before = session.estimate()
    assert before >= 0.85 * 16_000
    result = tidy(session)
    assert result is not None
    assert session.estimate() < before
    assert tidy(session) is None


def test_one_with_room_is_left_alone(session):
    filled(session, 6)
    assert tidy(session) is None
    assert session.store.newest_compaction(session.id) is None


def test_what_the_provider_reported_counts_more_than_an_estimate(session):
    filled(session, 10)
    assert tidy(session, reported_tokens=1_000) is None
    assert tidy(session, reported_tokens=15_000) is not None


def test_fewer_than_four_messages_are_left_alone(session):
    filled(session, 3, words=900)
    assert session.estimate() >= 0.85 * 16_000
    assert tidy(session) is None


def test_off_means_off(session):
    filled(session, 16)
    session.settings = settings_from({"model.context_length": 16_000, "compression.enabled": False})
    assert tidy(session) is None


class OwnEngine(penstock.ContextEngine):
    """An engine of a third party: the four members that are required, and no more."""

    def __init__(self, keep=2):
        self.keep = keep
        self.given_tokens = []

    @property
    def name(self):
        return "own"

    def update_from_response(self, usage):
        pass

    def should_compress(self, prompt_tokens=None):
        return False

    def compress(self, messages, current_tokens=None, focus_topic=None):
        self.given_tokens.append(current_tokens)
        left_out = {"role": "user", "content": f"[{len(messages) - self.keep} messages left out]"}
        return [left_out, *messages[len(messages) - self.keep :]] if len(messages) > self.keep else messages


class BrokenEngine(OwnEngine):
    def compress(self, messages, current_tokens=None, focus_topic=None):
        raise KeyError("nothing here")


def engine_of(session, name):
    session.settings = settings_from({"model.context_length": 16_000, "context.engine": name})
    engine = OwnEngine() if name == "own" else engine_named(name, session.settings, context_length=16_000)
    engine.update_model("gpt-4.1", 16_000)
    return engine


@pytest.mark.parametrize("name", ["compressor", "lossless", "own"])
def test_every_engine_tidies(session, name):
    filled(session, 16)
    engine, first = engine_of(session, name), session.id
    before = session.estimate()
    receipt = tidy(session, engine)
    assert receipt.tokens_after < receipt.tokens_before
    assert session.estimate() < before
    assert session.id != first  # a compaction opens a continuation, whichever engine made it
    assert check(decode_all(CHAT, session.view()), CHAT.rules) == []
    assert tidy(session, engine) is None
    assert len(session) == 16
    session.undo()
    assert len(session.view()) == 16


def test_an_engine_that_knows_lists_only_is_told_the_tokens_and_keeps_to_pins(session):
    filled(session, 16)
    session.pin("m3")
    engine = engine_of(session, "own")
    receipt = tidy(session, engine, reported_tokens=15_432)
    assert engine.given_tokens == [15_432]
    assert "note 2:" in json.dumps(session.view())
    assert "note 4:" not in json.dumps(session.view())
    assert receipt.reason == "by the engine own"
    assert "15,432 of the 16,000" in session.store.newest_compaction(session.id).receipt["decision"]["reason"]


def test_an_engine_that_fails_leaves_the_conversation_as_it_is(session):
    filled(session, 16)
    before = session.view()
    engine_of(session, "own")
    with pytest.raises(EngineFailure, match="KeyError"):
        tidy(session, BrokenEngine())
    assert session.view() == before


def test_nothing_is_committed_where_an_engine_finds_nothing_to_do(session):
    filled(session, 16)
    engine_of(session, "own")
    assert tidy(session, OwnEngine(keep=100)) is None
    assert session.store.newest_compaction(session.id) is None
