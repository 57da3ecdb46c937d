"""Keys of the gateway in every store: the key is shown once, a digest is kept, a change is seen by a running gateway."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.errors import SettingsError, StoreError
from penstock.gateway.keys import (
    KeyRing,
    KeyRules,
    Refusal,
    create_key,
    find_key,
    list_keys,
    revoke_key,
)
from penstock.sessions.retention import DAY_SECONDS
from penstock.stores.values import NewSession

NOW = 1_800_000_000.0


def bearer(text):
    return {"authorization": f"Bearer {text}"}


def test_a_key_is_found_again_by_what_it_is_and_never_stored(store):
    rules = KeyRules(requests_per_minute=60, models=("gpt-*",), store="digests", retention_days=7)
    new = create_key(store, "ci", rules=rules, expires=NOW + 9, now=NOW)
    assert len(new.text) >= 3 + 12 + 1 + 43
    assert list_keys(store) == [new.key]
    assert (new.key.name, new.key.rules, new.key.expires) == ("ci", rules, NOW + 9)
    with store.database.reading() as do:
        kept = do.one("SELECT * FROM gateway_keys")
    assert new.text.encode() not in b" ".join(
        bytes(one) for one in kept if isinstance(one, bytes | memoryview)
    )
    assert new.text not in repr(kept)
    assert new.text not in repr(new)
    ring = KeyRing(store)
    for headers in (bearer(new.text), {"x-api-key": new.text}, {"x-penstock-key": new.text}):
        caller = ring.authorise(headers, NOW)
        assert (caller.owner, caller.key_id, caller.store) == (new.key.owner, new.key.id, "digests")


def test_a_running_gateway_sees_what_another_process_did_to_a_key(store):
    ring = KeyRing(store)
    new = create_key(store, "late", now=NOW)
    assert ring.authorise(bearer(new.text), NOW).status == 401
    ring.refresh()
    assert ring.authorise(bearer(new.text), NOW).key_id == new.key.id
    assert revoke_key(store, new.key.id[:6], NOW + 1).revoked == NOW + 1
    assert revoke_key(store, new.key.id, NOW + 2).revoked == NOW + 1
    ring.refresh()
    assert isinstance(ring.authorise(bearer(new.text), NOW), Refusal)


def test_keys_are_looked_after_again_after_any_fault_which_is_told_once(store, caplog):
    ring, called, enough = KeyRing(store), [], threading.Event()

    def fail_at_first(now):
        called.append(now)
        if len(called) == 7:
            enough.set()
        if len(called) <= 2:
            raise StoreError("it is away")
        if len(called) <= 4:
            raise RuntimeError("secret words")

    async def go():
        tending = asyncio.create_task(ring._repeat(fail_at_first, 0.01))
        assert await asyncio.to_thread(enough.wait, 30)
        tending.cancel()

    asyncio.run(go())
    assert [record.getMessage() for record in caplog.records] == [
        "the gateway's keys could not be refreshed: it is away"
    ]


def test_a_clock_that_was_ahead_for_a_moment_leaves_no_budget_spent_for_ever(store):
    new = create_key(store, "budget", now=NOW)
    ring = KeyRing(store)
    ring.spend(new.key.owner, 70, NOW)
    ring.flush(NOW)
    assert ring.spent_today(new.key.owner, NOW + 900 * DAY_SECONDS) == 0
    ring.spend(new.key.owner, 5_000, NOW + 900 * DAY_SECONDS)
    ring.flush(NOW)
    assert ring.spent_today(new.key.owner, NOW) == 70
    ring.spend(new.key.owner, 10, NOW + DAY_SECONDS)
    assert (
        ring.spent_today(new.key.owner, NOW + DAY_SECONDS - 1) == 10
    )  # a thread that read the clock before midnight


def test_what_was_used_outlives_a_gateway_and_is_added_up_over_several(store):
    new = create_key(store, "budget", now=NOW)
    one, other = KeyRing(store), KeyRing(store)
    one.spend(new.key.owner, 100, NOW)
    one.authorise(bearer(new.text), NOW)
    assert one.spent_today(new.key.owner, NOW) == 100
    one.flush(NOW)
    other.spend(new.key.owner, 11, NOW)
    other.flush(NOW + 1)
    assert other.spent_today(new.key.owner, NOW) == 111
    one.flush(NOW + 1)
    assert one.spent_today(new.key.owner, NOW) == 111
    again = KeyRing(store)
    again.flush(NOW + 2)
    assert again.spent_today(new.key.owner, NOW) == 111
    assert again.spent_today(new.key.owner, NOW + DAY_SECONDS) == 0
    assert find_key(store, new.key.id).last_used == NOW


def test_a_key_is_named_by_its_id_the_beginning_of_it_or_itself_and_an_error_never_shows_what_was_given(
    store,
):
    new = create_key(store, "a", now=NOW)
    for name in (new.key.id, new.key.id[:4], new.text, new.key.owner):
        assert find_key(store, name) == new.key
    for name in ("", "pk-nothing-like-it", "zz" * 9):
        with pytest.raises(SettingsError, match="penstock keys list") as raised:
            find_key(store, name)
        assert not name or name not in str(raised.value)


def test_conversations_stay_as_long_as_their_key_allows(store):
    short = create_key(store, "short", rules=KeyRules(retention_days=2), now=NOW)
    long = create_key(store, "long", now=NOW)
    for key in (short.key, long.key):
        for age in (1, 3):
            session = NewSession(id=f"{key.name} {age}", at=NOW - age * DAY_SECONDS)
            store.for_owner(key.owner).create(session)
    KeyRing(store).expire_data(NOW)
    assert {one.id for one in store.list()} == {"short 1", "long 1", "long 3"}
    KeyRing(store, retention_days=2).expire_data(NOW)
    assert {one.id for one in store.list()} == {"short 1", "long 1"}
