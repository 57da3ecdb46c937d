import subprocess
import sys

import pytest

from penstock.config import SecretText
from penstock.errors import SettingsError
from penstock.providers.address import read_address
from penstock.providers.connect import ConnectOptions, connect
from penstock.providers.presets import PRESETS

KEY = "made-up-key-of-a-test-0123456789"
KEYS = {preset.key_variable: KEY for preset in PRESETS.values() if preset.key_variable}


def with_environ(provider, environ, **given):
    options = ConnectOptions(environ=environ, allow_plain_http=given.pop("allow_plain_http", False))
    return connect(provider, "some-model", options=options, **given)


def key_of(model):
    key = model._endpoint.key
    return key.reveal() if key is not None else None


@pytest.mark.parametrize("provider", sorted(PRESETS))
def test_every_provider_connects_with_its_key_and_its_address(provider):
    preset = PRESETS[provider]
    given = {} if preset.base_url else {"base_url": "https://resource.example/openai/v1"}
    model = with_environ(provider, KEYS, **given)
    assert model.dialect == preset.dialect
    assert model.name == "some-model"
    assert model.base_url == (preset.base_url or given["base_url"])
    assert key_of(model) == (KEY if preset.key_variable else None)


@pytest.mark.parametrize("provider", sorted(PRESETS))
def test_addresses_of_the_table_are_complete_and_keys_travel_encrypted(provider):
    preset = PRESETS[provider]
    if preset.base_url:
        address = read_address(preset.base_url)
        assert address.base_url == preset.base_url
        assert address.encrypted or address.loopback


@pytest.mark.parametrize("provider", ["openai", "responses", "anthropic", "openrouter", "groq", "gemini"])
def test_a_missing_key_names_its_variable_and_the_next_step(provider):
    with pytest.raises(SettingsError) as caught:
        with_environ(provider, {})
    assert PRESETS[provider].key_variable in str(caught.value)
    assert "api_key_env" in str(caught.value)


@pytest.mark.parametrize("provider", ["ollama", "lmstudio", "vllm", "llamacpp"])
def test_local_servers_need_no_key(provider):
    assert key_of(with_environ(provider, {})) is None


def test_a_named_variable_must_be_set():
    with pytest.raises(SettingsError, match=r"MY_KEY is not set; .* api\.openai\.com"):
        with_environ("openai", KEYS, api_key_env="MY_KEY")


def test_a_named_variable_wins():
    model = with_environ("openai", {**KEYS, "MY_KEY": "another-made-up-key"}, api_key_env="MY_KEY")
    assert key_of(model) == "another-made-up-key"


def test_a_key_that_is_passed_wins_over_every_variable():
    other = "a-key-that-was-passed"
    assert key_of(with_environ("openai", KEYS, api_key=other)) == other
    assert key_of(with_environ("openai", {}, api_key=f" {other}\n")) == other
    assert key_of(with_environ("openai", {}, api_key=SecretText(other), api_key_env="MY_KEY")) == other
    assert key_of(with_environ("openai", KEYS, base_url="https://other.example/v1", api_key=other)) == other
    model = with_environ("openai", {}, api_key=other)
    assert other not in f"{model!r}{model._endpoint!r}{model._caller._headers!r}{vars(model)!r}"


@pytest.mark.parametrize("key", ["", "  ", "with\nline", "schlüssel", 5, b"bytes"])
def test_what_cannot_be_a_key_is_refused_without_being_shown(key):
    with pytest.raises(SettingsError, match="api_key is not a key") as caught:
        with_environ("openai", KEYS, api_key=key)
    assert "schl" not in str(caught.value)


def test_a_passed_key_is_not_sent_in_plain_text_to_another_machine():
    with pytest.raises(SettingsError, match="allow_plain_http"):
        with_environ("openai", {}, base_url="http://192.168.1.20:8000", api_key=KEY)


@pytest.mark.parametrize(
    "base_url", ["http://localhost:8000", "https://other.example/v1", "http://127.0.0.1:1"]
)
def test_a_key_is_not_sent_to_another_address_than_its_own(base_url):
    assert key_of(with_environ("openai", KEYS, base_url=base_url)) is None
    assert key_of(with_environ("openai", KEYS, base_url=base_url, api_key_env="OPENAI_API_KEY")) == KEY


def test_nor_to_its_own_host_without_encryption():
    assert key_of(with_environ("openai", KEYS, base_url="http://api.openai.com/v1")) is None


def test_a_key_is_not_sent_in_plain_text_to_another_machine_unless_asked():
    given = {"base_url": "http://192.168.1.20:8000", "api_key_env": "OPENAI_API_KEY"}
    with pytest.raises(SettingsError, match="allow_plain_http") as caught:
        with_environ("openai", KEYS, **given)
    assert KEY not in str(caught.value)
    assert key_of(with_environ("openai", KEYS, **given, allow_plain_http=True)) == KEY
    assert key_of(with_environ("vllm", {}, base_url="http://192.168.1.20:8000")) is None


@pytest.mark.parametrize(
    ("provider", "hint"), [("opnai", "did you mean openai"), ("zzz", "known are anthropic, azure")]
)
def test_an_unknown_provider_is_told_what_there_is(provider, hint):
    with pytest.raises(SettingsError, match=hint):
        connect(provider, "m")


@pytest.mark.parametrize("provider", ["azure", "bedrock"])
def test_a_provider_without_an_address_of_its_own_asks_for_one(provider):
    with pytest.raises(SettingsError, match="base_url"):
        with_environ(provider, KEYS)


def test_a_model_and_a_time_are_needed():
    with pytest.raises(SettingsError, match="no model"):
        connect("ollama", " ")
    with pytest.raises(SettingsError, match="timeout_seconds is 0"):
        connect("ollama", "m", timeout_seconds=0)


def test_a_model_does_not_show_its_key():
    model = with_environ("openai", KEYS)
    shown = f"{model!r}{model}{model._endpoint!r}{model._caller._headers!r}{vars(model)!r}"
    assert KEY not in shown
    assert "some-model" in repr(model)


def test_azure_takes_its_key_in_its_own_header():
    model = with_environ("azure", KEYS, base_url="https://r.openai.azure.com/openai/v1")
    assert model._caller._headers["api-key"].reveal() == KEY
    assert "authorization" not in model._caller._headers


@pytest.mark.outside
def test_connecting_does_not_import_the_http_client():
    code = (
        "import sys; from penstock.providers.connect import connect; connect('ollama', 'm'); "
        "sys.exit('aiohttp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
