"""Who a caller is, by its headers: one of our keys, a digest of its own credential, or nobody who may come in."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from penstock.errors import ErrorKind
from penstock.gateway import keys
from penstock.gateway.callers import Caller
from penstock.gateway.keys import (
    KeyRing,
    KeyRules,
    Refusal,
    create_key,
    find_key,
    revoke_key,
)
from penstock.gateway.upstreams import Upstream
from penstock.providers.address import read_address
from penstock.redaction.redactor import Redactor
from penstock.stores.store import open_store

NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def store():
    opened = open_store("memory:")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def new(store):
    return create_key(store, "test", now=NOW)


@pytest.fixture(scope="module")
def ring(store, new):
    return KeyRing(store)


@pytest.fixture(scope="module")
def strict(store, new):
    return KeyRing(store, required=True)


def test_a_key_beside_the_callers_own_credential(ring, new):
    beside = ring.authorise({"x-penstock-key": new.text, "authorization": "Bearer sk-mine"}, NOW)
    assert beside == Caller(owner=new.key.owner, key_id=new.key.id)
    assert beside.brings_credential
    for headers in (
        {"authorization": f"bearer  {new.text} "},
        {"authorization": f"Bearer {new.text}", "x-api-key": "sk-mine"},
        {"x-penstock-key": new.text, "Api-Key": new.text},
        CIMultiDict([("Authorization", "Bearer sk-mine"), ("Authorization", f"Bearer {new.text}")]),
    ):
        assert not ring.authorise(headers, NOW).brings_credential


def test_a_caller_without_a_key_is_known_by_a_digest_of_its_credential(ring, store):
    first, second = (ring.authorise({"x-api-key": text}, NOW) for text in ("sk-one", "sk-two"))
    assert first.owner != second.owner
    assert "sk-one" not in first.owner + repr(first)
    assert first.owner == ring.authorise({"authorization": "Bearer sk-one"}, NOW).owner
    assert KeyRing(store).authorise({"x-api-key": "sk-one"}, NOW).owner == first.owner
    elsewhere = open_store("memory:")
    assert KeyRing(elsewhere).authorise({"x-api-key": "sk-one"}, NOW).owner != first.owner
    elsewhere.close()


@given(data=st.data())
def test_no_other_text_than_the_key_opens(strict, new, data):
    cut = data.draw(st.integers(0, len(new.text) - 1))
    other = data.draw(st.characters(codec="latin-1").filter(lambda char: char != new.text[cut]))
    wrong = data.draw(
        st.sampled_from(
            [new.text[:cut], new.text[:cut] + other + new.text[cut + 1 :], new.text + other, other + new.text]
        )
    )
    if wrong.strip() == new.text:
        return
    name = data.draw(st.sampled_from(["authorization", "x-api-key", "x-penstock-key"]))
    assert isinstance(strict.authorise({name: wrong}, NOW), Refusal)


def test_where_keys_are_needed_nothing_else_opens_and_a_wrong_key_is_never_passed_on(strict, ring, new):
    for headers in ({}, {"authorization": "Bearer sk-foreign"}, {"x-penstock-key": "sk-foreign"}):
        assert strict.authorise(headers, NOW).status == 401
    assert ring.authorise({}, NOW) == Caller(owner="anonymous")
    assert ring.authorise({"authorization": f"Bearer {new.text}x"}, NOW).status == 401


def test_a_key_that_expired_or_was_revoked_is_refused_as_an_unknown_one_is(store):
    late = create_key(store, "late", expires=NOW + 5, now=NOW)
    gone = create_key(store, "gone", now=NOW)
    revoke_key(store, gone.key.id, NOW)
    ring = KeyRing(store)
    assert ring.authorise({"x-api-key": late.text}, NOW + 4).key_id == late.key.id
    refusals = [
        ring.authorise({"x-api-key": text}, NOW + 5) for text in (late.text, gone.text, late.text + "x")
    ]
    assert refusals == [refusals[0]] * 3
    assert refusals[0].kind is ErrorKind.AUTH


def test_models_are_those_that_both_the_settings_and_the_key_allow(store):
    new = create_key(store, "narrow", rules=KeyRules(models=("gpt-5*", "o3")), now=NOW)
    caller = KeyRing(store, models=["gpt-*"]).authorise({"x-api-key": new.text}, NOW)
    assert [model for model in ("gpt-5", "gpt-5-mini", "gpt-4", "o3", "") if caller.allows(model)] == [
        "gpt-5",
        "gpt-5-mini",
    ]
    assert KeyRing(store).authorise({"x-api-key": new.text}, NOW).allows("o3")
    assert not KeyRing(store, models=["gpt-*"]).authorise({}, NOW).allows("o3")


def test_a_revoked_key_works_no_more_within_a_second_on_a_running_gateway(store, monkeypatch):
    new = create_key(store, "short", now=NOW)
    ring = KeyRing(store)
    deleting = threading.Event()
    monkeypatch.setattr(ring, "expire_data", lambda _now: deleting.wait(60))  # which may take long

    async def watch():
        running = asyncio.create_task(ring.run())
        await asyncio.sleep(0)
        assert isinstance(ring.authorise({"x-api-key": new.text}), Caller)
        await asyncio.to_thread(revoke_key, store, new.key.id, time.time())
        began = time.monotonic()
        while isinstance(ring.authorise({"x-api-key": new.text}), Caller):
            assert time.monotonic() - began < 30  # a busy machine may take its time
            await asyncio.sleep(0.02)
        deleting.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(watch())
    assert keys._LOOK_SECONDS <= 0.5
    assert find_key(store, new.key.id).last_used is not None  # written down at the end, if not before


def test_a_key_that_gets_into_a_conversation_is_redacted(store):
    for _ in range(20):
        text = create_key(store, "leaked", now=NOW).text
        assert text.split("-", 2)[2] not in Redactor().redact(f"it fails with {text}, why?")


def test_a_key_whose_rules_cannot_be_read_works_no_more_and_the_others_do():
    store = open_store("memory:")
    broken, whole = (create_key(store, name, now=NOW) for name in ("broken", "whole"))
    with store.database.writing() as do:
        do.run("UPDATE gateway_keys SET rules = ? WHERE id = ?", b"{", broken.key.id)
    ring = KeyRing(store)
    assert isinstance(ring.authorise({"x-api-key": broken.text}), Refusal)
    assert ring.authorise({"x-api-key": whole.text}).key_id == whole.key.id
    store.close()


def test_no_name_of_a_model_takes_long_to_match():
    """Patterns are the operator's, names anybody's; both are matched on the event loop for every request."""
    hostile = "*a*a*a*a*a*ab", "*a" * 100 + "b", "[ab]*" * 50 + "c", "*" + "a" * 200 + "b*"
    caller = Caller(owner="me", models=(hostile,))
    upstream = Upstream(name="one", address=read_address("http://127.0.0.1:1"), models=hostile)
    spent = []
    for _ in range(5):
        start = time.process_time()
        assert not caller.allows("a" * 4_096)
        assert not upstream.serves(None, "a" * 4_096)
        spent.append(time.process_time() - start)
    assert min(spent) < 0.08  # two times four patterns, each under 10 ms
