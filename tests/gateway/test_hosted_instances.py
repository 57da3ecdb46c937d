"""Several instances of `penstock serve` over one PostgreSQL, behind a round robin, with kills and a restart of the server.

Every message that was acknowledged is there once and in order, and answered; a conversation never forks. Many who compact
one view make one compaction of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest
from benchmarks.round_trips import Wire
from hosted_stage import hosted_settings, instance, run_for
from test_hosted_turns import answer_by_what_was_asked

from penstock import __file__ as _package
from penstock.stores.store import open_store
from penstock.testing.provider_server import ScriptedProvider

SOAK = "PENSTOCK_SOAK" in os.environ
CONVERSATIONS, MESSAGES = (200, 10) if SOAK else (5, 6)
COMPACTORS = 200 if SOAK else 12
SECONDS = 3_000 if SOAK else 150
KEY = {"authorization": "Bearer made-up-key-of-a-test"}


class Instance:
    """A gateway in a process of its own, which can be killed and started again."""

    def __init__(self, upstream, store, home):
        self._command = [
            sys.executable, "-m", "penstock", "serve", "--port", "0", "--upstream", f"{upstream}/v1", "--store", store,
            "--set", "gateway.request_log=false", "--set", "gateway.dashboard=false",
        ]  # fmt: skip
        self._env = {
            "PATH": os.defpath, "HOME": str(home), "PYTHONPATH": str(Path(_package).parents[1]), "LANG": "C.UTF-8",
        }  # fmt: skip
        self.address = ""

    async def start(self):
        await asyncio.to_thread(self._start)

    def _start(self):
        self._process = subprocess.Popen(
            self._command,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.address = self._process.stdout.readline().strip()
        assert self.address.startswith("http"), "the gateway did not start"

    def kill(self):
        """Ends it, and the workers that it has started, as a machine that goes away does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._process.stdout.close()


class Robin:
    """A client that goes to another instance with each request, and sends again what was not acknowledged."""

    def __init__(self, instances, http):
        self._turn = itertools.cycle(instances)
        self._http = http
        self.again = 0

    async def post(self, path, body, key):
        """The answer, once there is one. What is worth another try has one of few statuses, or none."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                headers = {**KEY, "idempotency-key": key}
                address = next(self._turn).address
                async with self._http.post(address + path, json=body, headers=headers) as answer:
                    told = await answer.json()
                    if answer.status in (200, 201):
                        return told
                    assert answer.status in (409, 500, 502, 503), told
            self.again += 1
            await asyncio.sleep(0.05)  # not to wait for anything: the next instance may be the same one
        raise AssertionError("no instance answered")


@contextlib.asynccontextmanager
async def three_instances(provider, url, home):
    instances = [Instance(provider.base_url, url, home) for _ in range(3)]
    try:
        for one in instances:  # one by one: the first makes the tables
            await one.start()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
            yield instances, Robin(instances, http)
    finally:
        for one in instances:
            if one.address:
                one.kill()


@pytest.mark.outside
def test_three_instances_keep_every_acknowledged_message_once_and_in_order(
    postgres_server, postgres_url, tmp_path
):
    async def talk():
        done, total = 0, CONVERSATIONS * MESSAGES
        kill, restart = asyncio.Event(), asyncio.Event()
        async with (
            ScriptedProvider(answer_by_what_was_asked) as provider,
            three_instances(provider, postgres_url, tmp_path) as (instances, robin),
        ):

            async def converse(number):
                nonlocal done
                opened = await robin.post("/sessions", {"model": "gpt-5-mini"}, f"open-{number}")
                for place in range(MESSAGES):
                    text = f"conversation {number}, message {place}"
                    reply = await robin.post(
                        f"/sessions/{opened['id']}/messages", {"text": text}, f"message-{place}"
                    )
                    assert reply["text"] == f"You said: {text}"
                    done += 1
                    if done >= total // 3:
                        kill.set()
                    if done >= 2 * total // 3:
                        restart.set()
                return opened["id"]

            async def disturb():
                await kill.wait()
                instances[0].kill()
                await instances[0].start()
                await restart.wait()
                await asyncio.to_thread(postgres_server.stop)
                await asyncio.to_thread(postgres_server.start)
                instances[1].kill()
                await instances[1].start()

            with contextlib.closing(open_store(postgres_url)) as store:
                await compact_at_once(robin, store)
            disturbing = asyncio.create_task(disturb())
            sessions = await asyncio.gather(*map(converse, range(CONVERSATIONS)))
            await disturbing
            assert robin.again  # else nothing was disturbed
            with contextlib.closing(open_store(postgres_url)) as store:
                assert len({*sessions}) == CONVERSATIONS
                for number, session in enumerate(sessions):
                    log = [json.loads(entry.raw)["content"] for entry in store.read_from(session, 0)]
                    texts = [f"conversation {number}, message {place}" for place in range(MESSAGES)]
                    assert log == [one for text in texts for one in (text, f"You said: {text}")]
                assert len(store.list(limit=CONVERSATIONS + 5)) == CONVERSATIONS  # nothing was opened twice
                assert not store.faults()

    run_for(talk(), SECONDS)


@pytest.mark.outside
def test_a_turn_takes_few_round_trips(postgres_url):
    """Each costs the distance to the database. Opening a turn is 1, each of the two messages 2, the end of the turn 1.

    Where another instance had the turn before, 2 read what it has logged, and 1 the books of the conversation.
    """

    async def talk():
        settings = hosted_settings(window=200_000)
        with (
            Wire(postgres_url) as wire,
            contextlib.closing(open_store(wire.url)) as near,
            contextlib.closing(open_store(postgres_url)) as far,
        ):
            async with (
                ScriptedProvider(answer_by_what_was_asked) as provider,
                instance(provider, near, settings) as first,
                instance(provider, far, settings) as second,
            ):
                session = await first.client.open()
                taken = {"same": [], "other": []}
                for number, (where, counts) in itertools.product(range(8), taken.items()):
                    if where == "other":
                        await second.client.say(session, f"{number}, elsewhere")
                    before = wire.count
                    await first.client.say(
                        session, f"{number}, {where}", h_idempotency_key=f"{number}-{where}"
                    )
                    counts.append(wire.count - before)
                # Now and then a connection is opened, or what was learned of a model is read anew.
                assert min(taken["same"]) <= 6
                assert min(taken["other"]) <= 9
                assert sorted(taken["same"])[4] <= 7
                assert sorted(taken["other"])[4] <= 10

    run_for(talk(), 60)


async def compact_at_once(robin, store):
    """Has many compact one conversation, through all instances."""
    opened = await robin.post("/sessions", {"model": "gpt-5-mini"}, "to-compact")
    path, long = f"/sessions/{opened['id']}", "A long tale of the harbour, told again and again. " * 60
    for number in range(10):
        await robin.post(f"{path}/messages", {"text": f"part {number}: {long}"}, f"m-{number}")
    outcomes = await asyncio.gather(
        *(robin.post(f"{path}/compact", {}, f"c-{number}") for number in range(COMPACTORS))
    )
    rows = store.compactions(opened["id"])
    assert 1 <= len(rows) <= sum(outcome["compacted"] for outcome in outcomes)
    assert len({row.over for row in rows}) == len(rows)  # one for each base
    assert store.log_tip(opened["id"]).length == 20
    store.delete(opened["id"])
