import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SettingsError
from penstock.providers.address import read_address

CHAT = "/chat/completions"


@pytest.mark.parametrize(
    ("given_url", "expected"),
    [
        ("https://api.openai.com", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com//v1//", "https://api.openai.com/v1/chat/completions"),
        (" https://API.OpenAI.com/v1 ", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("http://localhost:11434", "http://localhost:11434/v1/chat/completions"),
        ("http://[::1]:8080/", "http://[::1]:8080/v1/chat/completions"),
        ("https://openrouter.ai/api", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://api.groq.com/openai/v1", "https://api.groq.com/openai/v1/chat/completions"),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai/",
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        ),
        ("https://host.example/api/paas/v4", "https://host.example/api/paas/v4/chat/completions"),
        (
            "https://host.example/inference/chat/completions",
            "https://host.example/inference/chat/completions",
        ),
        (
            "https://r.openai.azure.com/openai/v1?api-version=preview",
            "https://r.openai.azure.com/openai/v1/chat/completions?api-version=preview",
        ),
        ("https://vllm.example/v1", "https://vllm.example/v1/chat/completions"),
        ("https://v2ray.example", "https://v2ray.example/v1/chat/completions"),
    ],
)
def test_base_urls_as_people_write_them(given_url, expected):
    assert read_address(given_url).url(CHAT) == expected


def test_the_address_of_one_route_serves_the_others_too():
    address = read_address("https://api.anthropic.com/v1/messages")
    assert address.url("/messages/count_tokens") == "https://api.anthropic.com/v1/messages/count_tokens"
    assert address.url("/models?limit=1000") == "https://api.anthropic.com/v1/models?limit=1000"


def test_a_query_is_put_behind_one_that_is_there():
    address = read_address("https://h.example/v1?api-version=1")
    assert address.url("/models?limit=9") == "https://h.example/v1/models?limit=9&api-version=1"


def test_routes_of_the_server_itself_stand_outside_the_version():
    assert read_address("http://localhost:8080/v1").server_url("/props") == "http://localhost:8080/props"
    assert read_address("http://h/llm/v1/").server_url("/api/ps") == "http://h/llm/api/ps"


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "localhost:8000",
        "ftp://host",
        "https://",
        "/v1",
        "https://host:port/v1",
        "http://[::1",
        "file:///x",
    ],
)
def test_what_is_no_address_is_refused(bad):
    with pytest.raises(SettingsError, match="must look like"):
        read_address(bad)


@pytest.mark.parametrize(
    "bad", ["https://user:hunter-2-pass@h.example/v1", "https://hunter-2-pass@h.example"]
)
def test_a_password_in_the_address_is_refused_and_not_shown(bad):
    with pytest.raises(SettingsError, match="api_key_env") as caught:
        read_address(bad)
    assert "hunter-2-pass" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.1", True),
        ("http://127.8.8.8:1", True),
        ("http://[::1]:1", True),
        ("http://ollama.localhost", True),
        ("http://192.168.1.5", False),
        ("http://localhost.example.com", False),
        ("http://127.0.0.1.example.com", False),
        ("http://0.0.0.0", False),
    ],
)
def test_what_stays_on_this_machine(url, loopback):
    assert read_address(url).loopback is loopback


@given(
    st.sampled_from(["http://h.example", "https://h.example:8443/api", "http://127.0.0.1:9"]),
    st.sampled_from(["", "/", "/v1", "/v1/", "//v1", "/v1/chat/completions", "/v1/chat/completions/"]),
)
def test_reading_an_address_again_changes_nothing(host, path):
    once = read_address(host + path)
    assert read_address(once.base_url) == once
    assert "//" not in once.base_url.removeprefix("http://").removeprefix("https://")
