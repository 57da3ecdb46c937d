"""How each client is led to a gateway, and which API it usually asks: from its own settings, which stay as they are."""

from __future__ import annotations

import json
import os
import stat

import pytest

from penstock.errors import SettingsError
from penstock.gateway.clients import CLIENTS, Invocation, read_client

GATEWAY = "http://127.0.0.1:4711"


@pytest.fixture
def read(tmp_path):
    """Reads a client with these arguments and variables, in a home and a project of its own."""
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    project.mkdir(parents=True)

    def run(name, *arguments, upstream=None, provider=None, program="/nonexistent", **environ):
        invocation = Invocation(
            str(program), arguments, {"HOME": str(home), **environ}, project, provider=provider
        )
        return read_client(name, invocation, upstream)

    run.home, run.project = home, project
    return run


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text if isinstance(text, str) else json.dumps(text))


def urls(client):
    return {one.name: one.address.base_url for one in client.upstreams}


def test_claude_asks_anthropic_and_is_led_by_a_variable(read):
    client = read("claude")
    assert urls(client) == {"anthropic": "https://api.anthropic.com/v1"}
    assert client.dialects == {"anthropic"}
    assert client.point_at(GATEWAY) == ({"ANTHROPIC_BASE_URL": GATEWAY}, ())


def test_claude_with_an_address_of_its_own_keeps_it_as_the_upstream(read):
    client = read("claude", ANTHROPIC_BASE_URL="https://relay.example/a")
    assert urls(client) == {"anthropic": "https://relay.example/a/v1"}
    assert urls(
        read("claude", upstream="http://localhost:1", ANTHROPIC_BASE_URL="https://relay.example")
    ) == {"anthropic": "http://localhost:1/v1"}


def test_an_address_in_claudes_settings_files_wins_over_a_variable_and_so_an_option_is_added(read):
    write(read.home / ".claude" / "settings.json", {"env": {"ANTHROPIC_BASE_URL": "https://user.example"}})
    assert urls(read("claude"))["anthropic"] == "https://user.example/v1"
    local = read.project / ".claude" / "settings.local.json"
    write(local, {"env": {"ANTHROPIC_BASE_URL": "https://local.example"}})
    client = read("claude")
    assert urls(client)["anthropic"] == "https://local.example/v1"
    option, settings = client.point_at(GATEWAY).arguments
    assert option == "--settings"
    assert json.loads(settings) == {"env": {"ANTHROPIC_BASE_URL": GATEWAY}}


@pytest.mark.parametrize("how", ["variable", "settings"])
def test_claude_on_a_cloud_that_the_gateway_does_not_speak_to_is_refused(read, how):
    name = "CLAUDE_CODE_USE_BEDROCK"
    if how == "settings":
        write(read.home / ".claude" / "settings.json", {"env": {name: "1"}})
    with pytest.raises(SettingsError, match=name):
        read("claude", **({name: "1"} if how == "variable" else {}))
    write(read.home / ".claude" / "settings.json", {})
    assert read("claude", CLAUDE_CODE_USE_VERTEX="0")


def test_codex_is_led_by_an_option_for_the_provider_that_it_uses(read):
    client = read("codex", "exec", "hi")
    assert urls(client) == {"openai": "https://api.openai.com/v1"}
    assert client.dialects == {"responses"}
    assert client.point_at(GATEWAY) == ({}, ("-c", f'openai_base_url="{GATEWAY}/v1"'))


CODEX = """
model_provider = "mine"
profile = "daily"
[model_providers.mine]
base_url = "https://mine.example/v1"
[model_providers.other]
base_url = "https://other.example/v1"
[profiles.night]
model_provider = "other"
"""


@pytest.mark.parametrize(
    ("arguments", "provider", "name"),
    [
        ((), None, "mine"),
        (("-p", "night"), None, "other"),
        (("exec", "--profile=night"), None, "other"),
        (("-p", "night", "-c", 'model_provider="mine"'), None, "mine"),
        ((), "other", "other"),
    ],
)
def test_codex_keeps_the_provider_that_its_settings_or_arguments_choose(read, arguments, provider, name):
    write(read.home / "codex" / "config.toml", CODEX)
    client = read("codex", *arguments, provider=provider, CODEX_HOME=str(read.home / "codex"))
    assert urls(client) == {name: f"https://{name}.example/v1"}
    assert client.point_at(GATEWAY).arguments == ("-c", f'model_providers.{name}.base_url="{GATEWAY}/v1"')


def test_codex_with_a_provider_whose_address_is_not_known_asks_for_it(read):
    with pytest.raises(SettingsError, match="--upstream URL"):
        read("codex", provider="azure")
    with pytest.raises(SettingsError, match="unknown Codex provider"):
        read("codex", provider='x"\n')
    assert urls(read("codex", provider="azure", upstream="https://a.example/openai/v1")) == {
        "azure": "https://a.example/openai/v1"
    }


@pytest.mark.outside
def test_codex_that_is_signed_in_with_chatgpt_asks_there_and_with_a_key_it_asks_the_api(read, tmp_path):
    program = tmp_path / "codex"
    program.write_text('#!/bin/sh\n[ "$1 $2" = "login status" ] && echo "Logged in using ChatGPT" >&2\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = {"PATH": os.defpath}
    assert urls(read("codex", program=program, **path)) == {"openai": "https://chatgpt.com/backend-api/codex"}
    assert urls(read("codex", program=program, CODEX_API_KEY="k", **path)) == {
        "openai": "https://api.openai.com/v1"
    }


def read_content(client):
    return json.loads(client.point_at(GATEWAY).variables["OPENCODE_CONFIG_CONTENT"])


def test_opencode_is_led_by_a_document_over_its_settings_for_the_provider_of_its_model(read):
    settings = """{
      // which one
      "model": "mine/big", /* with an address of its own: */
      "provider": {"mine": {"npm": "@ai-sdk/anthropic", "options": {"baseURL": "https://mine.example/v1",}}},
    }"""
    write(read.home / ".config" / "opencode" / "opencode.jsonc", settings)
    client = read("opencode")
    assert urls(client) == {"mine": "https://mine.example/v1"}
    assert client.dialects == {"anthropic"}
    assert read_content(client) == {"provider": {"mine": {"options": {"baseURL": f"{GATEWAY}/v1"}}}}
    write(read.home / "opencode.json", {"model": "openai/gpt"})
    assert urls(read("opencode")) == {"openai": "https://api.openai.com/v1"}
    assert urls(read("opencode", "run", "-m", "groq/fast")) == {"groq": "https://api.groq.com/openai/v1"}


def test_a_document_that_the_user_lays_over_opencodes_settings_stays(read):
    content = {
        "model": "anthropic/a",
        "provider": {"anthropic": {"options": {"timeout": 9}}},
        "share": "auto",
    }
    client = read("opencode", OPENCODE_CONFIG_CONTENT=json.dumps(content))
    found = read_content(client)
    assert found["provider"]["anthropic"]["options"] == {"timeout": 9, "baseURL": f"{GATEWAY}/v1"}
    assert (found["share"], found["model"]) == ("auto", "anthropic/a")


def test_opencode_without_a_model_goes_by_the_keys_and_else_asks(read):
    assert set(urls(read("opencode", OPENAI_API_KEY="k", ANTHROPIC_API_KEY="k"))) == {"openai", "anthropic"}
    with pytest.raises(SettingsError, match="--provider"):
        read("opencode")
    with pytest.raises(SettingsError, match="--upstream URL"):
        read("opencode", "-m", "unheard/of")


def test_aider_is_led_for_both_apis(read):
    client = read("aider")
    assert urls(client) == {
        "openai": "https://api.openai.com/v1",
        "anthropic": "https://api.anthropic.com/v1",
    }
    variables = client.point_at(GATEWAY).variables
    assert variables["OPENAI_API_BASE"] == variables["AIDER_OPENAI_API_BASE"] == f"{GATEWAY}/v1"
    assert variables["ANTHROPIC_API_BASE"] == GATEWAY
    assert (
        urls(read("aider", OPENAI_API_BASE="http://localhost:11434/v1"))["openai"]
        == "http://localhost:11434/v1"
    )


@pytest.mark.parametrize("name", CLIENTS)
def test_settings_that_cannot_be_read_are_left_to_the_client_and_no_file_is_changed(read, name):
    files = (
        ".claude/settings.json",
        ".codex/config.toml",
        ".config/opencode/opencode.json",
        "project/.claude/settings.json",
        "project/opencode.json",
    )
    for file in files:
        write(read.home / file, '["neither", an object')
    client = read(name, ANTHROPIC_API_KEY="k")
    assert client.point_at(GATEWAY)
    found = {str(file.relative_to(read.home)) for file in read.home.rglob("*") if file.is_file()}
    assert found == set(files)
    assert {(read.home / file).read_text() for file in files} == {'["neither", an object'}
