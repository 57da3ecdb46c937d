"""Tools of hosted conversations: none but those that the settings name, calls that wait for a yes, and memory by owner."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from aiohttp import web
from hosted_stage import WAIT, hosted_gateway, run
from test_hosted_sessions import script
from test_hosted_turns import two_instances

from penstock.gateway.keys import delete_data_of, find_key
from penstock.recall.tools import TOOL_NAMES
from penstock.testing import Reply

TICKETS = str(Path(__file__).parents[1] / "unit" / "agent" / "mcp_tickets.py")
MCP = {"tickets": {"mcp": {"command": sys.executable, "args": [TICKETS]}}}


class Weather:
    """A tool behind HTTP that remembers what it was asked."""

    def __init__(self):
        self.asked = []

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/weather", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _answer(self, request):
        self.asked.append((dict(request.headers), await request.json()))
        if self.asked[-1][1].get("town") == "Atlantis":
            return web.Response(text="no such town", status=404)
        return web.json_response({"sky": "clear"})

    def tools(self, **more):
        endpoint = {
            "url": f"http://127.0.0.1:{self.port}/weather",
            "description": "Tells the weather of a town.",
            "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
            **more,
        }
        return {"weather": {"http": endpoint}}


def names_of(received):
    return {tool["function"]["name"] for tool in received.tools}


def results_in(received):
    return [one["content"] for one in received.messages if one["role"] == "tool"]


def test_without_settings_there_is_no_tool_of_the_machine():
    async def talk():
        async with hosted_gateway(script(Reply.calling("terminal", command="id"), "I cannot.")) as hosted:
            session = await hosted.client.open()
            assert (await hosted.client.say(session, "Who am I?"))["text"] == "I cannot."
            assert names_of(hosted.provider.received[0]) == set(TOOL_NAMES)
            assert "there is no tool 'terminal'" in results_in(hosted.provider.received[-1])[0]

    run(talk())


def test_a_tool_behind_http_is_called_with_its_headers(monkeypatch):
    monkeypatch.setenv("WEATHER_TOKEN", "made-up-token-of-a-test")

    async def talk():
        async with Weather() as weather:
            tools = weather.tools(reads_only=True, headers={"x-token": "WEATHER_TOKEN"})
            replies = script(
                Reply.calling("weather", town="Oslo"), Reply.calling("weather", town="Atlantis"), "Clear."
            )
            async with hosted_gateway(replies, tools=tools) as hosted:
                session = await hosted.client.open()
                assert (await hosted.client.say(session, "The weather in Oslo?"))["text"] == "Clear."
                assert [body for _, body in weather.asked] == [{"town": "Oslo"}, {"town": "Atlantis"}]
                assert weather.asked[0][0]["x-token"] == "made-up-token-of-a-test"
                found, failed = results_in(hosted.provider.received[-1])
                assert json.loads(found) == {"sky": "clear"}
                assert "404" in failed
                assert "made-up-token" not in json.dumps(hosted.provider.received[-1].body)

    run(talk())


def test_tools_of_an_mcp_server_are_offered_and_allowed_by_a_rule():
    async def talk():
        replies = script(Reply.calling("tickets__find", words="berth", limit=2), "Two tickets.")
        async with hosted_gateway(replies, tools=MCP, allow=["tickets__find"]) as hosted:
            session = await hosted.client.open()
            assert (await hosted.client.say(session, "Any tickets?"))["text"] == "Two tickets."
            assert "tickets__find" in names_of(hosted.provider.received[0])
            assert results_in(hosted.provider.received[-1]) == ["T-1: berth\nT-2: berth"]

    run(talk())


def test_a_call_that_needs_a_yes_is_an_event_answered_on_any_instance(tmp_path):
    async def talk():
        call = Reply.calling("weather", town="Oslo")
        replies = script(
            call, "Clear.", call, "Clear again.", Reply.calling("weather", town="Bergen"), "No Bergen."
        )
        async with (
            Weather() as weather,
            two_instances(tmp_path, replies, tools=weather.tools()) as (first, second, provider),
        ):
            session = await first.client.open()

            async def ask(text, reply, client):
                events = []
                async for name, data in first.client.stream(session, text):
                    events.append((name, data))
                    if name == "approval":
                        assert (data["tool"], json.loads(data["subject"])["town"]) == ("weather", reply[1])
                        _, shown = await client.get(f"/sessions/{session}")
                        assert [one["id"] for one in shown["approvals"]] == [data["id"]]
                        status, _ = await client.post(
                            f"/sessions/{session}/approvals", {"id": data["id"], "reply": reply[0]}
                        )
                        assert status == 200
                        status, error = await client.post(
                            f"/sessions/{session}/approvals", {"id": data["id"], "reply": reply[0]}
                        )
                        assert (status, error["error"]["type"]) == (404, "unknown_approval")
                return events

            events = await ask("The weather in Oslo?", ("session", "Oslo"), second.client)
            assert events[-1][1]["text"] == "Clear."
            assert [name for name, _ in events].count("approval") == 1
            # For the session: the other instance does not ask again.
            assert (await second.client.say(session, "And now?"))["text"] == "Clear again."
            events = await ask("In Bergen?", ("no", "Bergen"), first.client)
            assert events[-1][1]["text"] == "No Bergen."
            assert "the user said no" in results_in(provider.received[-1])[-1]
            assert [body["town"] for _, body in weather.asked] == ["Oslo", "Oslo"]
            assert (await first.client.get(f"/sessions/{session}"))[1]["approvals"] == []

    run(talk())


def test_a_call_that_nobody_answers_is_refused_in_time():
    async def talk():
        async with Weather() as weather:
            replies = script(Reply.calling("weather", town="Oslo"), "Then not.")
            async with hosted_gateway(replies, tools=weather.tools(), approval_seconds=0.2) as hosted:
                session = await hosted.client.open()
                assert (await hosted.client.say(session, "The weather?"))["text"] == "Then not."
                assert weather.asked == []

    run(talk())


def test_approvals_of_one_owner_cannot_be_given_by_another():
    async def talk():
        async with Weather() as weather:
            replies = script(Reply.calling("weather", town="Oslo"), "Done.")
            async with hosted_gateway(replies, tools=weather.tools(), require_keys=True) as hosted:
                ann, ben = hosted.client_with_key("ann"), hosted.client_with_key("ben")
                session = await ann.open()
                async for name, data in ann.stream(session, "The weather?"):
                    if name == "approval":
                        answer = {"id": data["id"], "reply": "once"}
                        status, _ = await ben.post(f"/sessions/{session}/approvals", answer)
                        assert status == 404
                        assert weather.asked == []
                        await ann.post(f"/sessions/{session}/approvals", answer)
                assert len(weather.asked) == 1

    run(talk())


def test_memory_is_each_owners_and_each_users_own():
    async def talk():
        note = Reply.calling("memory", action="add", file="user", text="Likes short answers.")
        replies = script(note, "Noted.", "Hello.")
        async with hosted_gateway(replies, memory=True, allow=["memory"], require_keys=True) as hosted:
            ann, ben = hosted.client_with_key("ann"), hosted.client_with_key("ben")
            first = await ann.open(user="u-1")
            await ann.say(first, "Keep it short.")
            for client, user, knows in (
                (ann, "u-1", True), (ann, "u-2", False), (ann, "", False), (ben, "u-1", False), (ben, "", False),
            ):  # fmt: skip
                session = await client.open(user=user)
                await client.say(session, "Hello?")
                sent = json.dumps(hosted.provider.received[-1].body)
                assert ("Likes short answers." in sent) is knows, (client.key[:6], user)
            owner = hosted.store.session(first).owner
            delete_data_of(hosted.store, find_key(hosted.store, owner.removeprefix("key-")))
            session = await ann.open(user="u-1")
            await ann.say(session, "Hello?")
            assert "Likes short answers." not in json.dumps(hosted.provider.received[-1].body)

    run(talk())


def test_what_people_ask_to_remember_outlives_a_compaction_and_the_conversation():
    async def talk():
        long = "A long tale of the harbour and its berths, told again and again. " * 60
        async with hosted_gateway(script(long), memory=True) as hosted:
            client = hosted.client
            session = await client.open()
            await client.say(session, "Remember that I always want prices in euros.")
            for number in range(9):
                await client.say(session, f"Tell me of berth {number}.")
            assert (await client.post(f"/sessions/{session}/compact"))[1]["compacted"]
            other = await client.open()
            await asyncio.wait_for(client.say(other, "Hello?"), WAIT)
            assert "prices in euros" in json.dumps(hosted.provider.received[-1].body)

    run(talk())
