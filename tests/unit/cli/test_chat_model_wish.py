"""Which model is meant: by options, by settings, by a conversation that goes on."""

from __future__ import annotations

import argparse

import pytest

from penstock.cli.chat.model import LOCAL, ModelRoute, ModelWish, keep_route, read_route
from penstock.errors import SettingsError
from penstock.sessions.session import Session
from penstock.settings import ModelSettings

SERVER = "http://127.0.0.1:9/v1"
OWN = ModelSettings(name="qwen", provider="ollama", base_url=SERVER, api_key_env="OWN_KEY")


def options(**given):
    names = ("model", "provider", "base_url", "api_key_env")
    return argparse.Namespace(**{name: given.get(name) for name in names})


def wanted(settings=None, **given):
    found = ModelWish.of(options(**given), settings or ModelSettings())
    return (found.model or found.usual, found.provider, found.base_url, found.api_key_env)


def row_of(store, model="qwen", dialect="chat"):
    return Session.create(store, model=model, dialect=dialect).row


def test_without_options_as_the_settings_say():
    assert wanted(OWN) == ("qwen", "ollama", SERVER, "OWN_KEY")
    assert wanted() == ("", "", None, None)


def test_a_model_that_is_named_is_one_of_the_same_server():
    assert wanted(OWN, model="llama") == ("llama", "ollama", SERVER, "OWN_KEY")
    assert wanted(OWN, model="claude-haiku-4-5") == ("claude-haiku-4-5", "ollama", SERVER, "OWN_KEY")
    assert wanted(OWN, api_key_env="OTHER_KEY") == ("qwen", "ollama", SERVER, "OTHER_KEY")
    assert wanted(OWN, provider="ollama", model="llama")[2:] == (SERVER, "OWN_KEY")


def test_a_model_of_another_maker_is_not_asked_of_the_one_in_the_settings():
    settings = ModelSettings(name="gpt-4.1", provider="openai", api_key_env="WORK_KEY")
    assert wanted(settings, model="gpt-4.1-mini") == ("gpt-4.1-mini", "openai", None, "WORK_KEY")
    assert wanted(settings, model="claude-haiku-4-5") == ("claude-haiku-4-5", "", None, None)
    assert wanted(ModelSettings(provider=LOCAL), model="gpt-4.1") == ("gpt-4.1", "", None, None)


@pytest.mark.parametrize("given", [{"provider": "anthropic"}, {"base_url": "https://elsewhere.example/v1"}])
def test_a_key_goes_only_where_it_was_set_for(given):
    _, provider, base_url, key = wanted(OWN, **given)
    assert (provider, base_url, key) == (given.get("provider", ""), given.get("base_url"), None)


def test_a_conversation_goes_on_where_it_was(store):
    row = row_of(store, "llama")
    keep_route(store, row, ModelRoute("vllm", "http://127.0.0.1:8/v1"))
    found = ModelWish.of(options(), OWN).for_resumed(row, read_route(store, row))
    assert (found.model, found.provider, found.base_url, found.api_key_env) == (
        "llama",
        "vllm",
        "http://127.0.0.1:8/v1",
        None,
    )
    again = ModelWish.of(options(), OWN).for_resumed(row, ModelRoute("ollama", "http://127.0.0.1:9"))
    assert again.api_key_env == "OWN_KEY"  # the same address, written otherwise
    told = ModelWish.of(options(model="mistral", base_url=SERVER), OWN).for_resumed(
        row, read_route(store, row)
    )
    assert (told.model, told.base_url) == ("mistral", SERVER)


def test_a_key_is_not_sent_to_an_address_that_only_the_store_has(store):
    row = row_of(store)
    elsewhere = ModelRoute("openai", "https://elsewhere.example/v1")
    with pytest.raises(
        SettingsError, match=r"was with elsewhere\.example: to send it the key in OWN_KEY, add its address"
    ):
        ModelWish.of(options(api_key_env="OWN_KEY"), OWN).for_resumed(row, elsewhere)
    assert ModelWish.of(options(), OWN).for_resumed(row, elsewhere).api_key_env is None


def test_a_conversation_of_which_nothing_was_noted(store):
    mine = ModelWish.of(options(), OWN).for_resumed(row_of(store), None)
    assert (mine.provider, mine.base_url) == ("ollama", SERVER)
    claude = ModelWish.of(options(), OWN).for_resumed(row_of(store, "claude-haiku-4-5", "anthropic"), None)
    assert (claude.model, claude.provider, claude.base_url, claude.api_key_env) == (
        "claude-haiku-4-5",
        "",
        None,
        None,
    )
    settings = ModelSettings(name="gpt-4.1")
    other = ModelWish.of(options(), settings).for_resumed(row_of(store, "gpt-4.1-mini"), None)
    assert (other.model, other.usual) == ("gpt-4.1-mini", "")


@pytest.mark.parametrize("note", [b"{", b"[]", b'{"provider": 3}'])
def test_what_another_version_noted_is_as_good_as_nothing(store, note):
    row = row_of(store)
    store.put_note("reached", row.conversation, note)
    assert read_route(store, row) is None


def test_what_was_noted_goes_with_the_conversation(store):
    row = row_of(store)
    keep_route(store, row, ModelRoute("ollama", SERVER))
    store.delete(row.id)
    assert read_route(store, row) is None
