"""Settings that are lists and mappings, and what commands of the agent see of the environment."""

from __future__ import annotations

import json

import pytest

from penstock.config import command_environment, load_settings, read_named_variables
from penstock.errors import SettingsError
from penstock.settings import McpServer, settings_from

FILE = """
agent:
  allow:
    - terminal(git status*)
    - patch
  pass_env: [GH_TOKEN]
  mcp_servers:
    tickets:
      command: tickets-server
      args: [--read-only, "off"]
      env: [TICKETS_TOKEN]
    weather:
      url: https://weather.example/mcp
      headers: {Authorization: WEATHER_AUTH}
"""


def load(tmp_path, text, **environ):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return load_settings(file, environ).agent


def test_lists_and_mappings_in_a_file(tmp_path):
    agent = load(tmp_path, FILE)
    assert agent.allow == ("terminal(git status*)", "patch")
    assert agent.pass_env == ("GH_TOKEN",)
    assert agent.mcp_servers == {
        "tickets": McpServer(command="tickets-server", args=("--read-only", "off"), env=("TICKETS_TOKEN",)),
        "weather": McpServer(url="https://weather.example/mcp", headers={"Authorization": "WEATHER_AUTH"}),
    }


def test_as_json_in_a_variable(tmp_path):
    servers = json.dumps({"one": {"command": "x"}})
    agent = load(tmp_path, FILE, PENSTOCK_AGENT_ALLOW='["terminal"]', PENSTOCK_AGENT_MCP_SERVERS=servers)
    assert agent.allow == ("terminal",)
    assert agent.mcp_servers == {"one": McpServer(command="x")}
    assert load(tmp_path, FILE, PENSTOCK_AGENT_MCP_SERVERS="null").mcp_servers is None


def test_left_empty(tmp_path):
    agent = load(tmp_path, "agent:\n  allow:\n  mcp_servers:\n")
    assert (agent.allow, agent.mcp_servers) == (None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agent: {allow: terminal}", "agent.allow is 'terminal'"),
        ("agent: {allow: ['']}", "agent.allow"),
        ("agent: {pass_env: [sk-made-up-lower-case]}", "agent.pass_env has a value"),
        ("agent: {mcp_servers: {a: {}}}", "a command or a url, and not both"),
        ("agent: {mcp_servers: {a: {command: x, url: 'http://h'}}}", "a command or a url, and not both"),
        ("agent: {mcp_servers: {a: {comand: x}}}", "unknown field `comand`"),
        ("agent: {mcp_servers: {'a b': {command: x}}}", "agent.mcp_servers"),
        ("agent: {mcp_servers: {a: {command: x, env: [made-up-secret]}}}", "agent.mcp_servers"),
        ("agent: {mcp_servers: {a: {command: x}, a: {command: y}}}", "a is given twice"),
        ("agent: {mcp_servers: {a: &a {command: *a}}}", "nested too deeply"),
        ("compression: {threshold: [0.5]}", "threshold"),
    ],
)
def test_what_is_not_allowed_is_told_without_values_that_may_be_secret(tmp_path, text, said):
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert "made-up" not in str(caught.value)


def test_a_server_does_not_show_its_arguments():
    server = McpServer(command="x", args=("--token", "made-up-token"))
    settings = settings_from({"agent.mcp_servers": {"a": {"command": "x", "args": ["made-up-token"]}}})
    assert "made-up" not in repr(server) + repr(settings)


def test_commands_do_not_see_our_secrets():
    environ = {
        "PATH": "/bin",
        "SAMPLE_API_KEY": "zq7-sample-not-a-real-key-31415",
        "CONFIG": '{"key": "zq7-sample-not-a-real-key-31415"}',
        "DATABASE_URL": "postgresql://user:zq9-made-up-word@host/base",
        "GH_TOKEN": "zq8-another-made-up-value-27182",
    }
    assert command_environment(environ=environ) == {"PATH": "/bin"}
    assert set(command_environment(keep=["GH_TOKEN"], environ=environ)) == {"PATH", "GH_TOKEN"}


def test_variables_by_name():
    assert read_named_variables(["A", "B"], environ={"A": "1", "C": "3"}) == {"A": "1"}


def test_commands_do_not_see_what_is_secret_by_its_value_or_by_a_short_value_under_a_telling_name():
    token = "gh" + "p_" + "a1B2c3D4e5F6" * 3
    environ = {
        "PATH": "/bin",
        "CI_NOTES": f"deploys with {token}",
        "UPSTREAM": "postgres://app:tr0ub4dor@db/app",
        "EXTRA_HEADERS": f"Authorization: Bearer {token[4:]}",
        "DB_PASSWORD": "hunter2",
        "LS_COLORS": "rs=0:di=01;34:ln=01;36",
        "SSH_AUTH_SOCK": "/run/user/1000/keyring/ssh",
    }
    assert set(command_environment(environ=environ)) == {"PATH", "LS_COLORS", "SSH_AUTH_SOCK"}
    assert "CI_NOTES" in command_environment(keep=["CI_NOTES"], environ=environ)


def test_an_http_tool_of_a_file_has_booleans_numbers_and_a_whole_schema(tmp_path):
    text = """
gateway:
  tools:
    weather:
      http:
        url: https://weather.example/now
        description: "1"
        timeout: 2.5
        reads_only: true
        parameters:
          type: object
          properties: {days: {type: integer, minimum: 1, enum: [1, 2], nullable: false, title: "3"}}
"""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    http = load_settings(file, {}).gateway.tools["weather"].http
    assert (http.description, http.timeout, http.reads_only) == ("1", 2.5, True)
    days = {"type": "integer", "minimum": 1, "enum": [1, 2], "nullable": False, "title": "3"}
    assert http.parameters == {"type": "object", "properties": {"days": days}}
