"""Turns of hosted conversations: tidied up for in time, one after the other, and never a fork, from whichever instance."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os

import msgspec
import pytest
from aiohttp import web
from hosted_stage import WAIT, hosted_gateway, hosted_settings, instance, run
from test_hosted_sessions import script

from penstock.measure.usage import Usage
from penstock.stores.store import open_store
from penstock.testing import Reply
from penstock.testing.provider_server import ScriptedProvider

SOAK = "PENSTOCK_SOAK" in os.environ
WINDOW = 32_000
LATE = {"threshold": 0.99}  # of the window: so that nothing but hygiene compacts


def agent_of(hosted, session):
    kept = hosted.sessions._turns._agents._kept
    (found,) = [one for (_, name), one in kept.items() if name == session]
    return found.agent


class Gate:
    """A tool behind HTTP that holds a turn until it is told to go on."""

    def __init__(self):
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/gate", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/gate"
        return self

    async def __aexit__(self, *_):
        self.open.set()
        await self._runner.cleanup()

    async def _answer(self, _request):
        self.reached.set()
        await self.open.wait()
        return web.Response(text="the gate is open")

    @property
    def tools(self):
        return {"gate": {"http": {"url": self.url, "description": "Waits.", "reads_only": True}}}


# Hygiene.


@pytest.mark.parametrize(("share", "fires"), [(0.84, False), (0.85, True)])
def test_hygiene_goes_by_the_prompt_that_was_reported_last(share, fires):
    async def talk():
        text = "The ledger of the harbour says this of the berth, line by line. " * 130
        # Output and reasoning are large, and do not count.
        used = Usage(int(share * WINDOW), 9_000, reasoning_tokens=8_000)
        answers = script(*["Noted."] * 7, Reply("Noted.", usage=used), "And on.")
        async with hosted_gateway(answers, window=WINDOW, compression=LATE) as hosted:
            client = hosted.client
            session = await client.open()
            for number in range(8):
                await client.say(session, f"{number}: {text}")
            reply = await client.say(session, "What now?")
            assert bool(reply["compactions"]) is fires
            told = [text for text in reply["notices"] if "nearly filled its window" in text]
            assert len(told) == fires
            if fires:
                # The agent saw nothing of the message before: it stands behind what was compacted.
                assert "What now?" in json.dumps(hosted.provider.received[-1].messages[-1])
            later = await client.say(session, "And now?")
            assert later["compactions"] == []
            assert not any("nearly filled" in text for text in later["notices"])  # told once

    run(talk())


def test_fewer_than_four_messages_are_left_alone():
    async def talk():
        answers = script(Reply("Yes.", usage=Usage(int(0.93 * WINDOW), 1)))
        async with hosted_gateway(answers, window=WINDOW, compression=LATE) as hosted:
            session = await hosted.client.open()
            await hosted.client.say(session, "The ledger, line by line. " * 3_000)
            reply = await hosted.client.say(session, "And?")
            assert reply["compactions"] == []

    run(talk())


def test_hygiene_by_estimate_fires_at_its_share_of_the_window_and_not_before():
    """Messages pile up over night that nobody answers, one by one."""

    async def talk():
        count = 10_000 if SOAK else 260
        async with hosted_gateway(
            script("Good morning."),
            window=WINDOW,
            compression=LATE,
            hygiene_notice="Tidied: {before}, {after}.",
        ) as hosted:
            client = hosted.client
            session = await client.open()
            due, fired = int(0.85 * WINDOW), 0
            for number in range(count):
                before = agent_of(hosted, session).context.tokens() if number else 0
                reply = await client.say(
                    session, f"Ship {number} asks for berth {number * 7}. " * 20, answer=False
                )
                assert bool(reply["compactions"]) == (number >= 4 and before >= due), (number, before)
                if reply["compactions"]:
                    fired += 1
                    after = reply["compactions"][0]["tokens_after"]
                    assert after < due
                    assert reply["notices"][0].startswith(f"Tidied: {before:,}, ")
            assert fired >= 1
            assert hosted.store.log_tip(session).length == count
            assert (await client.say(session))["text"] == "Good morning."
            assert f"Ship {count - 1} " in hosted.provider.received[-1].text

    asyncio.run(talk())


# One turn at a time.


@contextlib.asynccontextmanager
async def two_instances(tmp_path, replies, **gateway):
    """Two gateways over one store, as two processes would be: they share nothing else."""
    settings = hosted_settings(**gateway)
    url = f"sqlite:///{tmp_path}/shared.db"
    with contextlib.closing(open_store(url)) as one, contextlib.closing(open_store(url)) as two:
        async with (
            ScriptedProvider(replies) as provider,
            instance(provider, one, settings) as first,
            instance(provider, two, settings) as second,
        ):
            yield first, second, provider
            assert provider.violations == ()


def answer_by_what_was_asked(received):
    last = received.messages[-1]
    content = last["content"] if isinstance(last, dict) else ""
    return f"You said: {content if isinstance(content, str) else content[0]['text']}"


def test_two_devices_never_fork_a_conversation(tmp_path):
    async def talk():
        async with two_instances(tmp_path, answer_by_what_was_asked) as (first, second, provider):
            session = await first.client.open()
            texts = [f"message {number}" for number in range(12)]
            replies = await asyncio.gather(
                *((first, second)[number % 2].client.say(session, text) for number, text in enumerate(texts))
            )
            assert [reply["text"] for reply in replies] == [f"You said: {text}" for text in texts]
            exported = (await first.client.get(f"/sessions/{session}/export"))[1]
            log = [json.loads(line)["content"] for line in exported.splitlines()]
            assert sorted(log[::2]) == sorted(texts)
            assert log[1::2] == [f"You said: {text}" for text in log[::2]]  # each answered before the next
            for sent in provider.received:
                assert [one["content"] for one in sent.messages if one["role"] != "system"] == log[
                    : len(sent.messages) - 1
                ]
            assert not first.store.faults()

    run(talk())


def test_what_one_instance_compacts_or_takes_back_the_other_knows(tmp_path):
    async def talk():
        long = "A long tale of the harbour, told again and again. " * 60
        async with two_instances(tmp_path, script(long)) as (first, second, provider):
            session = await first.client.open()
            for number in range(10):
                await (first, second)[number % 2].client.say(session, f"part {number}?")
            assert (await second.client.post(f"/sessions/{session}/compact"))[1]["compacted"]
            await first.client.say(session, "after the compaction")
            assert len(provider.received[-1].messages) < 20
            assert (await first.client.post(f"/sessions/{session}/undo"))[1]["undone"]
            await second.client.say(session, "after the undo")
            assert len(provider.received[-1].messages) > 22

    run(talk())


def test_a_session_that_is_deleted_and_opened_again_elsewhere_begins_anew_here(tmp_path):
    """The same idempotency key opens it under the same id; the instance that still remembers the old one must not send it."""

    async def talk():
        async with two_instances(tmp_path, script("Noted.")) as (first, second, provider):

            async def open_again():
                _, opened = await second.client.post("/sessions", {"model": "gpt-5"}, idempotency_key="o")
                return opened["id"]

            session = await open_again()
            await first.client.say(session, "The code of the safe is 4711.")
            for said in ("A first word.", "A second one.", "A third."):
                assert (await second.client.ask("DELETE", f"/sessions/{session}"))[0] == 204
                assert await open_again() == session
                for number in range(2):  # so that the new log grows as long as the old one
                    await second.client.say(session, f"{said} {number}")
                await first.client.say(session, said)
                assert "4711" not in provider.received[-1].text
                sent = [one["content"] for one in provider.received[-1].messages if one["role"] == "user"]
                assert sent == [f"{said} 0", f"{said} 1", said]

    run(talk())


def test_many_who_compact_one_view_make_one_compaction(tmp_path):
    async def talk():
        long = "A long tale of the harbour, told again and again. " * 60
        async with two_instances(tmp_path, script(long)) as (first, second, _):
            session = await first.client.open()
            for number in range(10):
                await first.client.say(session, f"part {number}?")
            many = 100 if SOAK else 10
            outcomes = await asyncio.gather(
                *(
                    one.client.post(f"/sessions/{session}/compact")
                    for one in (first, second)
                    for _ in range(many)
                )
            )
            assert {status for status, _ in outcomes} == {200}
            made = [told for _, told in outcomes if told["compacted"]]
            rows = first.store.compactions(session)
            assert len(made) == len(rows) >= 1
            assert len({row.over for row in rows}) == len(rows)  # one for each base
            assert not first.store.faults()

    run(talk())


def test_a_message_during_a_turn_waits_for_its_end(tmp_path):
    async def talk():
        replies = script(Reply.calling("gate"), "Done with the first.", "Done with the second.")
        async with (
            Gate() as gate,
            two_instances(tmp_path, replies, tools=gate.tools) as (first, second, provider),
        ):
            session = await first.client.open()
            one = asyncio.create_task(first.client.say(session, "first"))
            await asyncio.wait_for(gate.reached.wait(), WAIT)
            two = asyncio.create_task(second.client.say(session, "second"))
            assert (await second.client.get(f"/sessions/{session}"))[1]["busy"] is True
            gate.open.set()
            assert (await one)["text"] == "Done with the first."
            assert (await two)["text"] == "Done with the second."
            roles = [one["role"] for one in provider.received[-1].messages if one["role"] != "system"]
            assert roles == ["user", "assistant", "tool", "assistant", "user"]

    run(talk())


def test_a_message_that_waits_too_long_is_told_so(tmp_path):
    async def talk():
        replies = script(Reply.calling("gate"), "Done.")
        async with (
            Gate() as gate,
            two_instances(tmp_path, replies, tools=gate.tools) as (first, second, _),
        ):
            session = await first.client.open()
            one = asyncio.create_task(first.client.say(session, "first"))
            await asyncio.wait_for(gate.reached.wait(), WAIT)
            for busy in (first, second):
                turns = busy.sessions._turns
                turns._settings = msgspec.structs.replace(turns._settings, turn_wait_seconds=0.05)
                status, error = await busy.client.post(f"/sessions/{session}/messages", {"text": "second"})
                assert (status, error["error"]["type"]) == (409, "busy")
            gate.open.set()
            assert (await one)["text"] == "Done."
            assert first.store.log_tip(session).length == 4  # nothing of the others

    run(talk())


@pytest.mark.parametrize("other", [False, True], ids=["same-instance", "other-instance"])
def test_a_message_during_a_turn_steers_it(tmp_path, other):
    async def talk():
        replies = script(Reply.calling("gate"), "I take the left one then.")
        async with (
            Gate() as gate,
            two_instances(tmp_path, replies, tools=gate.tools, while_busy="steer") as (
                first,
                second,
                provider,
            ),
        ):
            session = await first.client.open()
            one = asyncio.create_task(first.client.say(session, "Go right."))
            await asyncio.wait_for(gate.reached.wait(), WAIT)
            there = second if other else first
            for _ in range(2):  # the same delivery twice
                reply = await there.client.say(session, "No, go left!", h_idempotency_key="k")
                assert reply["status"] == "steered"
            gate.open.set()
            assert (await one)["text"] == "I take the left one then."
            sent = [one for one in provider.received[-1].messages if one["role"] != "system"]
            assert [one["role"] for one in sent] == ["user", "assistant", "tool", "user"]
            assert sent[-1]["content"] == "No, go left!"
            # Without a turn, a message begins one.
            assert (await there.client.say(session, "And?"))["status"] == "answered"

    run(talk())


def test_a_message_that_comes_as_a_turn_ends_is_answered_by_it(tmp_path):
    """The window between the last request of a turn and its end is closed: what was taken is never left behind."""

    async def talk():
        async with two_instances(tmp_path, answer_by_what_was_asked, while_busy="steer") as (
            first,
            second,
            _,
        ):
            session = await first.client.open()
            rounds, said = 40 if SOAK else 8, []
            for number in range(rounds):
                texts = [f"{number}-{place}" for place in range(4)]
                replies = await asyncio.gather(
                    *(
                        (first, second)[place % 2].client.say(session, text)
                        for place, text in enumerate(texts)
                    )
                )
                said += texts
                assert {reply["status"] for reply in replies} <= {"answered", "steered"}
            exported = (await first.client.get(f"/sessions/{session}/export"))[1]
            log = [json.loads(line) for line in exported.splitlines()]
            assert sorted(one["content"] for one in log if one["role"] == "user") == sorted(said)
            assert log[-1]["role"] == "assistant"
            assert not first.store.queued_messages(session)

    run(talk())


def test_a_client_that_goes_away_misses_only_the_answer(tmp_path):
    async def talk():
        replies = script(Reply.calling("gate"), "It was the butler.")
        async with Gate() as gate, two_instances(tmp_path, replies, tools=gate.tools) as (first, second, _):
            session = await first.client.open()
            asking = asyncio.create_task(first.client.say(session, "Who?", h_idempotency_key="who"))
            await asyncio.wait_for(gate.reached.wait(), WAIT)
            asking.cancel()
            await asyncio.wait([asking])
            gate.open.set()
            reply = await second.client.say(session, "Who?", h_idempotency_key="who")
            assert reply["text"] == "It was the butler."
            assert first.store.log_tip(session).length == 4

    run(talk())


def test_what_one_instance_deletes_is_no_trouble_to_another(tmp_path, monkeypatch):
    """The other still keeps an agent of it, which it ends to make room, or when it is stopped."""
    monkeypatch.setattr("penstock.gateway.hosted_agents._KEPT", 1)

    async def talk():
        long = "A long tale of the harbour, told again and again. " * 60
        async with two_instances(tmp_path, script(long)) as (first, second, _):
            gone = await first.client.open()
            for number in range(10):
                await first.client.say(gone, f"part {number}?")
            assert (await first.client.post(f"/sessions/{gone}/compact"))[1]["compacted"]
            assert (await second.client.ask("DELETE", f"/sessions/{gone}"))[0] == 204
            other = await first.client.open()
            assert (await first.client.say(other, "And this one?"))["status"] == "answered"
            assert (await second.client.ask("DELETE", f"/sessions/{other}"))[0] == 204
            transport = first.sessions._turns._agents._transport
        assert not transport._sessions  # all that was open is closed

    run(talk())
