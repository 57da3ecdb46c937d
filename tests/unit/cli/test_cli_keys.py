"""`penstock keys`, as a person runs it."""

from __future__ import annotations

import json

import pytest

from penstock.gateway.keys import KeyRing
from penstock.gateway.sealing import StoreKeys
from penstock.stores.store import open_store
from penstock.stores.values import NewSession


@pytest.fixture
def keys(penstock, tmp_path):
    url = f"sqlite:///{tmp_path / 'keys.db'}"

    def run(*args):
        return penstock("keys", *args, "--store", url)

    run.url = url
    return run


def test_a_key_is_shown_once_works_and_is_revoked(keys):
    made = keys(
        "create", "build server", "--requests-per-minute", "60", "--tokens-per-day", "5m", "--models", "gpt-*"
    )
    text = made.text.strip()
    assert made.code == 0
    assert text.startswith("pk-")
    key_id = text.split("-")[1]
    assert f"penstock keys revoke --store {keys.url} {key_id}" in made.err
    assert text not in made.err
    listed = keys("list")
    assert all(
        word in listed.text for word in (key_id, "works", "60/min", "5M tokens/day", "gpt-*", "build server")
    )
    revoked = keys("revoke", key_id[:5])
    assert revoked.text == f"key {key_id} (build server) is revoked and no longer works\n"
    assert "had been revoked before" in keys("revoke", text).text
    assert "revoked" in keys("list").text
    for ran in (listed, revoked, keys("list", "--json"), keys("list")):
        assert text.split("-", 2)[2] not in ran.text + ran.err
    store = open_store(keys.url)
    assert KeyRing(store).authorise({"x-api-key": text}).status == 401
    store.close()


def test_as_json(keys):
    made = json.loads(
        keys("create", "ci", "--keep", "off", "--retention-days", "7", "--days", "30", "--json").out
    )
    (listed,) = json.loads(keys("list", "--json").out)
    assert listed == {name: value for name, value in made.items() if name != "key"}
    assert (listed["store"], listed["retention_days"], listed["state"]) == ("off", 7, "works")
    assert listed["expires"] - listed["created"] == 30 * 86_400
    assert json.loads(keys("revoke", made["id"], "--json").out)["state"] == "revoked"


def test_mistakes_are_one_line_that_shows_no_key(keys):
    assert "penstock keys create" in keys("list").text
    for ran in (keys("revoke", "pk-abc-secret"), keys("create", "two\nlines"), keys("create", " ")):
        assert ran.code == 2
        assert ran.err.count("\n") == 1
        assert "secret" not in ran.err


def test_the_conversations_of_a_key_are_deleted_and_no_others(keys):
    made = [json.loads(keys("create", name, "--json").out) for name in ("one", "two")]
    store = open_store(keys.url)
    for key in made:
        store.for_owner(f"key-{key['id']}").create(NewSession(id=key["name"], at=1.0))
    store.close()
    assert keys("delete-data", made[0]["id"]).code == 2  # no terminal to ask at
    assert json.loads(keys("delete-data", made[0]["id"], "--yes", "--json").out) == {
        "id": made[0]["id"],
        "deleted_messages": 0,
    }
    store = open_store(keys.url)
    assert [one.id for one in store.list()] == ["two"]
    store.close()


def test_another_key_for_seals_is_made_and_the_older_ones_still_open(keys, penstock, tmp_path):
    first = json.loads(keys("rotate-seal", "--json").out)["id"]
    assert f"sealed with key {first}" not in (said := keys("rotate-seal").text)
    store = open_store(keys.url)
    seals = StoreKeys(store)
    assert f"sealed with key {seals.current().id} from now on" in said
    assert seals.find(first) is not None
    store.close()
    path = tmp_path / "seal.keys"
    made = penstock("keys", "rotate-seal", "--store", keys.url, "--set", f"gateway.seal_key_file={path}")
    assert path.read_text().split()[0] in made.text
    assert path.read_text().split()[1] not in made.text


def test_a_key_for_no_model_is_refused(keys):
    ran = keys("create", "bot", "--models", "")
    assert ran.code == 2
    assert "--models: a pattern is empty" in ran.err
    assert json.loads(keys("list", "--json").text) == []
