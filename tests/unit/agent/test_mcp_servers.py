import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from agent_stage import refuse

from penstock.loop.approvals import ApprovalReply
from penstock.loop.mcp import McpServers
from penstock.loop.tools import Toolbox
from penstock.settings import McpServer

pytestmark = pytest.mark.outside

SERVER = str(Path(__file__).with_name("mcp_tickets.py"))


TICKETS = McpServer(command=sys.executable, args=(SERVER,), env=("TICKETS_TOKEN",))


class Desk:
    """Servers that stay connected over several calls, in an event loop of their own."""

    def __init__(self, servers, folder, **variables) -> None:
        self.runner = asyncio.Runner()
        self.servers = McpServers(servers, folder=folder, variables=variables)
        self.found = self.runner.run(self.servers.tools())
        self.box = Toolbox.of(self.found.tools)

    def run(self, stage, name, **given):
        return self.runner.run(self.box.run(name, given, stage.context))

    def close(self):
        self.runner.run(self.servers.aclose())
        self.runner.close()


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    opened = Desk({"tickets": TICKETS}, tmp_path_factory.mktemp("folder"), TICKETS_TOKEN="made-up-value")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A server over HTTP that runs already."""
    told = tmp_path_factory.mktemp("mcp") / "port"
    with subprocess.Popen(
        [sys.executable, SERVER, str(told)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        until = time.monotonic() + 20
        while not answers(told):
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.05)
        yield f"http://127.0.0.1:{told.read_text()}/mcp"
        process.kill()


def answers(told):
    if not (told.exists() and told.read_text()):
        return False
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(told.read_text()))) == 0


class TestOverStdio:
    def test_its_tools_are_offered_under_names_that_providers_take(self, desk):
        assert desk.found.failures == {}
        find = desk.box.tools["tickets__find"]
        assert find.description.startswith("Find tickets.")
        assert find.parameters["required"] == ["words"]
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in desk.box.tools)

    def test_they_answer(self, stage, desk):
        outcome = desk.run(stage, "tickets__find", words="crane", limit=2)
        assert (outcome.text, outcome.is_error) == ("T-1: crane\nT-2: crane", False)
        odd = next(name for name in desk.box.tools if name.startswith("tickets__a_name"))
        assert desk.run(stage, odd).text == "odd"

    def test_failures_are_outcomes(self, stage, desk):
        outcome = desk.run(stage, "tickets__fail")
        assert outcome.is_error
        assert "the ticket desk is closed" in outcome.text
        assert desk.run(stage, "tickets__find").is_error
        assert desk.run(stage, "tickets__find", words=["no", "text"]).is_error
        assert desk.runner.run(desk.box.run("tickets__find", "[1]", stage.context)).is_error
        assert "T-1" in desk.run(stage, "tickets__find", words="still there").text

    def test_what_is_no_text_is_named(self, stage, desk):
        assert desk.run(stage, "tickets__picture").text == "[image/png, 2.0 KB: not shown]"

    def test_floods_are_capped(self, stage, desk):
        flood = desk.run(stage, "tickets__flood").text
        assert len(flood) < 51_000
        assert "450,000 characters" in flood

    def test_a_call_can_be_cancelled_and_the_next_one_works(self, stage, desk):
        async def cancelled():
            task = asyncio.create_task(desk.box.run("tickets__wait", {}, stage.context))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        desk.runner.run(cancelled())
        assert "T-1" in desk.run(stage, "tickets__find", words="on").text

    def test_calls_at_once(self, stage, desk):
        async def many():
            calls = ({"words": f"w{number}", "limit": 1} for number in range(8))
            return await asyncio.gather(
                *(desk.box.run("tickets__find", call, stage.context) for call in calls)
            )

        assert [outcome.text for outcome in desk.runner.run(many())] == [f"T-1: w{n}" for n in range(8)]

    def test_every_call_asks_and_a_session_remembers_the_call_with_its_arguments(self, stage, desk):
        stage.person.reply = ApprovalReply.SESSION
        for words in ("one", "one", "two"):
            desk.run(stage, "tickets__find", words=words)
        desk.run(stage, "tickets__surroundings")
        assert [(asked.tool, asked.subject) for asked in stage.person.asked] == [
            ("tickets__find", '{"words":"one"}'),
            ("tickets__find", '{"words":"two"}'),
            ("tickets__surroundings", "{}"),
        ]

    def test_a_refused_call_never_reaches_the_server(self, stage, desk):
        before = json.loads(desk.run(stage, "tickets__surroundings").text)["pid"]
        stage.context = msgspec.structs.replace(stage.context, approve=refuse)
        assert desk.run(stage, "tickets__leave").summary == "refused: the user said no"
        assert alive(before)

    def test_a_server_that_has_gone_is_started_again(self, stage, desk):
        before = json.loads(desk.run(stage, "tickets__surroundings").text)["pid"]
        outcome = desk.run(stage, "tickets__leave")
        assert outcome.is_error
        assert "tickets" in outcome.text
        assert json.loads(desk.run(stage, "tickets__surroundings").text)["pid"] != before
        assert not alive(before)


def test_a_file_in_the_working_folder_is_not_taken_for_the_server(stage):
    (stage.root / "tickets_server.py").write_text("open('shadowed', 'w').close()")
    server = McpServer(command=sys.executable, args=("-m", "tickets_server"))
    desk = Desk({"tickets": server}, stage.root)
    assert "No module named" in desk.found.failures["tickets"]
    assert not (stage.root / "shadowed").exists()
    desk.close()


def test_it_gets_the_variables_that_are_named_starts_in_a_folder_of_its_own_and_ends(stage, monkeypatch):
    monkeypatch.setenv("OTHER_TOKEN", "made-up-other")
    desk = Desk({"tickets": TICKETS}, stage.root, TICKETS_TOKEN="made-up-value")
    seen = json.loads(desk.run(stage, "tickets__surroundings").text)
    assert (seen["TICKETS_TOKEN"], seen["OTHER_TOKEN"]) == ("made-up-value", "")
    assert seen["folder"] != str(stage.root)
    assert list(Path(seen["folder"]).iterdir()) == []
    assert seen["PENSTOCK_FOLDER"] == str(stage.root)
    assert alive(seen["pid"])
    desk.close()
    assert not alive(seen["pid"])


def test_over_http_with_a_header_from_a_variable(stage, address):
    server = McpServer(url=address, headers={"Authorization": "DESK_AUTH"})
    desk = Desk({"desk": server}, stage.root, DESK_AUTH="Bearer made-up")
    assert desk.run(stage, "desk__find", words="crane", limit=1).text == "T-1: crane"
    desk.close()


def test_servers_that_cannot_be_used_are_named_and_the_others_work(stage, address):
    servers = {
        "absent": McpServer(command="no-such-program-here"),
        "ended": McpServer(command=sys.executable, args=("-c", "raise SystemExit(3)")),
        "chatty": McpServer(command=sys.executable, args=("-c", "print('no JSON')")),
        "unset": McpServer(command=sys.executable, args=(SERVER,), env=("NOT_SET_ANYWHERE",)),
        "silent": McpServer(url="http://127.0.0.1:9/mcp"),
        "desk": McpServer(url=address),
    }
    desk = Desk(servers, stage.root)
    assert sorted(desk.found.failures) == ["absent", "chatty", "ended", "silent", "unset"]
    assert all(name in said for name, said in desk.found.failures.items())
    assert "NOT_SET_ANYWHERE" in desk.found.failures["unset"]
    assert desk.run(stage, "desk__find", words="x", limit=1).text == "T-1: x"
    desk.close()


def test_nothing_is_started_before_it_is_needed(stage, tmp_path):
    ran = tmp_path / "ran"
    server = McpServer(command="touch", args=(str(ran),))

    async def whole(*, needed):
        async with McpServers({"one": server}, folder=stage.root) as servers:
            if needed:
                await servers.tools()

    asyncio.run(whole(needed=False))
    assert not ran.exists()
    asyncio.run(whole(needed=True))
    assert ran.exists()


def alive(pid):
    return Path(f"/proc/{pid}").exists()


def test_a_server_that_dies_at_once_is_quoted(stage):
    complaint = "import sys; print('loading'*2_000, file=sys.stderr); sys.exit('tickets: no licence found')"
    server = McpServer(command=sys.executable, args=("-c", complaint))

    async def listed():
        async with McpServers({"tickets": server}, folder=stage.root) as servers:
            return (await servers.tools()).failures["tickets"]

    said = asyncio.run(listed())
    assert said == "the MCP server tickets ended before it answered (tickets: no licence found)"
