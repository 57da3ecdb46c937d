"""`penstock wrap` with a client of a few lines, which asks its base URL once and ends as it is told."""

from __future__ import annotations

import json
import os
import sys

import pytest

from penstock.gateway.callers import ServedRequest
from penstock.gateway.joining import RunTally
from penstock.stores.store import open_store
from penstock.testing.provider_server import scripted_provider

KEY = "made-up-key-of-the-client"
CLIENT = f"""#!{sys.executable}
import json, os, sys, urllib.request
turns = [
    {{"role": role, "content": f"{{role}} says {{turn}}: " + "some words of work. " * 40}}
    for turn in range(20) for role in ("user", "assistant")
]
body = {{"model": os.environ["MODEL"], "max_tokens": 100, "messages": [*turns, {{"role": "user", "content": "Well?"}}]}}
headers = {{"content-type": "application/json", "x-api-key": "{KEY}", "x-penstock-target-tokens": "2000"}}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
with urllib.request.urlopen(asked) as answer:
    print(json.load(answer)["content"][0]["text"], sys.argv[1:], flush=True)
sys.exit(7)
"""


@pytest.fixture
def wrap(penstock, tmp_path):
    """Runs the command with a `claude` on the PATH that is the client above, and a data folder of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "claude"
    program.write_text(CLIENT)
    program.chmod(0o755)

    def run(*args, **variables):
        own = {"PATH": f"{folder}:{os.defpath}", "XDG_DATA_HOME": str(tmp_path), "MODEL": "claude-sonnet-4-5"}
        return penstock("wrap", *args, **{**own, **variables})

    run.folder, run.log = folder, tmp_path / "penstock" / "wrap.log"
    return run


@pytest.mark.outside
def test_a_client_runs_through_a_gateway_and_its_exit_code_is_ours(wrap, tmp_path):
    url = f"sqlite:///{tmp_path}/w.db"
    with scripted_provider(["It is done."]) as provider:
        options = ("--store", url, "--set", "gateway.require_keys=true")  # which the client has none of
        ran = wrap("claude", *options, "--", "-p", "--store", "--", "x", ANTHROPIC_BASE_URL=provider.base_url)
        (received,) = provider.received
    assert ran.code == 7, ran.err
    assert ran.text == "It is done. ['-p', '--store', '--', 'x']\n"
    assert received.headers["x-api-key"] == KEY
    assert len(json.dumps(received.body)) < 20_000
    (line,) = ran.err.splitlines()
    assert line.startswith("penstock: 1 request, ")
    before, after = read_sizes(line)
    assert f"saved {before - after:,} tokens, $" in line
    assert line.endswith(" at the price of cached tokens")
    store = open_store(url)
    assert len(store.list()) == 1
    store.close()
    logged = wrap.log.read_text()
    assert '"route":"/messages"' in logged
    assert KEY not in logged
    assert wrap.log.stat().st_mode & 0o077 == 0


@pytest.mark.outside
def test_the_switches_of_the_gateway_reach_it(wrap, tmp_path):
    tool = {"name": "terminal", "input_schema": {"type": "object"}}
    program = wrap.folder / "claude"
    program.write_text(
        CLIENT.replace('"max_tokens": 100,', f'"max_tokens": 100, "tools": [{json.dumps(tool)}],')
    )
    with scripted_provider(["It is done."]) as provider:
        options = ("--store", f"sqlite:///{tmp_path}/w.db", "--recall", "--answer-client-compactions")
        ran = wrap("claude", *options, ANTHROPIC_BASE_URL=provider.base_url)
        (received,) = provider.received
    assert ran.code == 7, ran.err
    assert [one["name"] for one in received.body["tools"]][:2] == ["terminal", "history_search"]


def read_sizes(line):
    words = line.split()
    place = next(place for place, word in enumerate(words) if word in {"→", "->"})
    return int(words[place - 1].replace(",", "")), int(words[place + 1].replace(",", ""))


def served(model, before, after, route="/messages", **headers):
    one = ServedRequest("id", "POST", 0.0)
    one.route, one.model = route, model
    one.headers = {
        "x-penstock-tokens-before": str(before),
        "x-penstock-tokens-after": str(after),
        **{f"x-penstock-{name.replace('_', '-')}": value for name, value in headers.items()},
    }
    return one


@pytest.mark.parametrize(
    ("requests", "line"),
    [
        ([], "no requests came through the gateway"),
        ([("gpt-4.1", 50, 50, "/models")], "no requests came through the gateway"),
        ([("gpt-4.1", 1_500, 1_500)], "1 request, 1,500 -> 1,500 tokens, nothing had to be compacted"),
        (
            [("claude-sonnet-4-5", 2_000_000, 1_000_000), ("claude-sonnet-4-5", 10, 10)],
            "2 requests, 2,000,010 -> 1,000,010 tokens, saved 1,000,000 tokens, ",
        ),
        (
            [("claude-sonnet-4-5", 2_000, 1_000), ("of-our-own", 2_000, 1_000)],
            "2 requests, 4,000 -> 2,000 tokens, saved 2,000 tokens, at least $",
        ),
        ([("of-our-own", 9, 8)], "1 request, 9 -> 8 tokens, saved 1 token of unknown price"),
    ],
)
def test_the_line_at_the_end(requests, line):
    tally = RunTally()
    for request in requests:
        tally.add(served(*request))
    assert tally.describe("->").startswith(line)
    assert tally.problems == 0


def test_a_websocket_that_was_refused_is_no_request():
    tally, tried = RunTally(), ServedRequest("id", "GET", 0.0)
    tried.route, tried.status = "/responses", 426
    tally.add(tried)
    assert tally.requests == 0


def test_requests_that_went_as_they_came_because_something_failed_are_problems():
    tally = RunTally()
    tally.add(served("m", 1, 1, passed_through="bypass"))
    assert tally.problems == 0
    tally.add(served("m", 1, 1, passed_through="error"))
    assert (tally.requests, tally.problems) == (2, 1)


def test_print_shows_a_line_for_a_shell_and_starts_nothing(wrap):
    ran = wrap("claude", "--print", "--", "-p", "two words")
    assert ran.text.splitlines() == [
        "ANTHROPIC_BASE_URL=http://127.0.0.1:PORT claude -p 'two words'",
        "# upstream anthropic: https://api.anthropic.com/v1",
    ]
    shown = json.loads(wrap("aider", "--print", "--json", "--upstream", "http://localhost:1/v1").out)
    assert shown["command"] == ["aider"]  # which is not installed here
    assert shown["variables"]["OPENAI_API_BASE"] == "http://127.0.0.1:PORT/v1"
    assert shown["upstreams"] == {"upstream": "http://localhost:1/v1"}
    assert not wrap.log.parent.exists()


def test_a_key_in_the_users_own_document_is_not_printed(wrap):
    secret = "sk-ant-api03-" + "a1B2c3D4" * 11
    options = {"provider": {"anthropic": {"options": {"apiKey": secret}}}}
    ran = wrap(
        "opencode",
        "--print",
        "--provider",
        "anthropic",
        OPENCODE_CONFIG_CONTENT=json.dumps(options),
    )
    assert ran.code == 0
    assert "baseURL" in ran.text
    assert secret not in ran.text


def test_upstreams_of_the_settings_are_taken_where_they_speak_the_clients_api(wrap, tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        "gateway:\n  upstreams:\n    team:\n      base_url: https://team.example/v1\n      dialects: [anthropic]\n"
    )
    assert "# upstream team: https://team.example/v1" in wrap("claude", "--print", "--config", settings).text
    assert "team" not in wrap("codex", "--print", "--config", settings).text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("codex",), ("codex is not installed", "--program PATH")),
        (("claude", "--program", "/nonexistent/claude"), ("/nonexistent/claude cannot be run",)),
        (("claude", "-p", "hi"), ("belong behind --", "penstock wrap … -- -p")),
        (("clade",), ("did you mean claude?",)),
        (("claude", "--upstream", "nowhere"), ("base URL",)),
    ],
)
def test_mistakes_are_one_line_and_start_nothing(wrap, args, words):
    ran = wrap(*args)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    for word in words:
        assert word in ran.err
    assert not wrap.log.exists()
