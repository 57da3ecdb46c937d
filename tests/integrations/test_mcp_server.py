"""`penstock mcp` with the client of the `mcp` package: as a process on stdio and on HTTP, over recorded sessions."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from penstock import Session, open_store
from penstock.cli.main import main
from penstock.integrations.client_history import ClientHistory
from penstock.integrations.library import Library, LibraryScope
from penstock.settings import Settings
from tests.e2e.cli_process import environment
from tests.integrations.recorded_sessions import (
    append_claude_turns,
    write_claude_session,
    write_codex_session,
)

KEY = "sk-" + "live" + "4f9Q" * 8
SHOP = [
    ("Why do orders stay pending?", "The webhook of the paylane queue drops them; the retry limit is 5."),
    ("Note the key", f"The key is OPENAI_API_KEY={KEY} and it stays secret."),
]
BOAT = [("Plan the harbour tour", "The lighthouse at Skagen opens at nine; the paylane toll is 40.")]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "boat").mkdir()
    write_claude_session(tmp_path, tmp_path / "shop", "session-shop", SHOP)
    write_codex_session(tmp_path, tmp_path / "boat", "session-boat", BOAT)
    return tmp_path


def make_parameters(home, folder, *options):
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "penstock", "mcp", *options],
        env=environment(HOME=str(home)),
        cwd=str(home / folder),
    )


async def ask(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    return json.loads(result.content[0].text), bool(result.is_error)


def test_a_project_is_asked_about_its_own_past_and_follows_it_as_it_grows(home):
    async def go():
        async with Client(make_parameters(home, "shop")) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == [
                "history_search",
                "history_describe",
                "history_expand",
                "history_entity",
            ]
            found, failed = await ask(client, "history_search", query="paylane")
            assert not failed
            assert not any("lighthouse" in one["excerpt"] for one in found["found"])
            assert "retry limit is 5" in found["found"][0]["excerpt"]
            handle = found["found"][0]["handles"][0]
            page, _ = await ask(client, "history_expand", handle=handle)
            assert "webhook of the paylane queue" in page["text"]
            place, _ = await ask(client, "history_describe", handle=handle)
            assert place["kind"] == "message"

            file = home / ".claude" / "projects" / str(home / "shop").replace("/", "-") / "session-shop.jsonl"
            append_claude_turns(
                file, home / "shop", "session-shop", [("And the port?", "Staging listens on 5433.")]
            )
            found, _ = await ask(client, "history_search", query="staging port 5433")
            assert "5433" in found["found"][0]["excerpt"]

    asyncio.run(go())


def test_everywhere_both_clients_are_found_and_named(home):
    async def go(*options):
        async with Client(make_parameters(home, "shop", *options)) as client:
            found, _ = await ask(client, "history_search", query="paylane")
            return {
                word for one in found["found"] for word in ("webhook", "lighthouse") if word in one["excerpt"]
            }

    assert asyncio.run(go("--everywhere")) == {"webhook", "lighthouse"}
    assert asyncio.run(go("--everywhere", "--client", "codex")) == {"lighthouse"}
    assert asyncio.run(go("--folder", str(home / "boat"))) == {"lighthouse"}


def test_messages_are_resources_and_secrets_stay(home):
    async def go():
        async with Client(make_parameters(home, "shop")) as client:
            (listed,) = (await client.list_resources()).resources
            assert listed.name == "Why do orders stay pending?"
            whole = (await client.read_resource(str(listed.uri))).contents[0].text
            assert "(m2)" in whole
            one = (await client.read_resource(f"{listed.uri}/m4")).contents[0].text
            assert "stays secret" in one
            page, _ = await ask(client, "history_expand", handle=f"{str(listed.uri).rpartition('/')[2]}/m4")
            for text in (whole, one, json.dumps(page)):
                assert KEY not in text
            with pytest.raises(MCPError, match="m99"):
                await client.read_resource(f"{listed.uri}/m99")

    asyncio.run(go())


def test_rubbish_is_answered_with_what_to_do(home):
    async def go():
        async with Client(make_parameters(home, "shop")) as client:
            for tool, arguments, said in (
                ("history_expand", {"handle": "m2"}, "does not name its conversation"),
                ("history_expand", {"handle": "ffffffff/m2"}, "no conversation"),
                ("history_search", {}, "query"),
                ("history_nothing", {}, "no tool"),
                ("history_describe", {"handle": 5}, "does not name"),
            ):
                told, failed = await ask(client, tool, **arguments)
                assert failed
                assert said in told["error"]

    asyncio.run(go())


@contextmanager
def served_on_http(home, *options):
    command = [sys.executable, "-m", "penstock", "mcp", "--http", "0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(HOME=str(home)), cwd=home / "shop"
    ) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(20)


def test_http(home):
    async def go(address):
        async with Client(address) as client:
            found, _ = await ask(client, "history_search", query="lighthouse")
            assert "Skagen" in found["found"][0]["excerpt"]

    with served_on_http(home, "--everywhere") as address:
        assert address.startswith("http://127.0.0.1:")
        asyncio.run(go(address))


def test_one_conversation_by_its_id(home, tmp_path):
    url = f"sqlite:///{tmp_path}/own.db"
    store = open_store(url)
    session = Session.create(store)
    session.append(
        [{"role": "user", "content": "The code word is osprey."}, {"role": "assistant", "content": "Noted."}]
    )
    store.close()

    async def go():
        async with Client(
            make_parameters(home, "shop", "--session", session.id[:6], "--store", url)
        ) as client:
            found, _ = await ask(client, "history_search", query="code word")
            assert found["found"][0]["handles"][0] == "m1"
            page, _ = await ask(client, "history_expand", handle="m1")
            assert "osprey" in page["text"]

    asyncio.run(go())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--http", "0.0.0.0:8790"], "authenticates"),
        (["--http", "many"], "'many' is not a port"),
        (["--session", "nothing-like-it"], "nothing-like-it"),
    ],
)
def test_options_that_cannot_be_meant(tmp_path, monkeypatch, capsys, options, said):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["mcp", *options]) in (2, 3)
    assert said in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_at_a_terminal_it_says_what_it_waits_for_and_ctrl_c_ends_it(tmp_path):
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", "mcp"],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(HOME=str(tmp_path)),
    ) as process:
        os.close(theirs)
        try:
            assert "waiting for an MCP client" in process.stderr.readline()
            time.sleep(0.5)  # until the thread that reads standard input waits
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=10) == 130
        finally:
            process.kill()
    os.close(ours)


def test_files_are_read_once_and_again_when_they_change(home):
    store = open_store("memory:")
    folders = {"claude-code": home / ".claude" / "projects", "codex": home / ".codex" / "sessions"}
    (home / ".claude" / "projects" / "broken.jsonl").write_text("{nothing")
    history = ClientHistory(store, Settings(), folders, LibraryScope())
    assert history.catch_up() == 0
    assert {one.messages for one in Library(store, Settings(), LibraryScope()).list_conversations()} == {4, 2}
    before = store.list()
    assert ClientHistory(store, Settings(), folders, LibraryScope()).catch_up() == 0
    assert store.list() == before
    assert ClientHistory(store, Settings(), {"codex": home / "none"}, LibraryScope()).catch_up() == 0


def test_entities_of_several_conversations(home):
    store = open_store("memory:")
    session = Session.create(store, dialect="chat")
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "read_file", "arguments": '{"path": "src/tide.py"}'},
    }
    session.append(
        [
            {"role": "user", "content": "Look at it."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "TIDE = 3"},
        ]
    )
    told = json.loads(
        Library(store, Settings(), LibraryScope()).answer("history_entity", {"name": "tide.py"}, 4_000)
    )
    assert told["found"][0]["handle"].startswith(f"{session.row.conversation[:8]}/m")
