"""The safety net of any host."""

from __future__ import annotations

import pytest

import penstock
from penstock.context.live import tidy
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
