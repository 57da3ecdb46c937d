"""kill -9 of `penstock serve`, of its worker and of its compactor while clients work: they try again and go on.

Nothing forks or is lost.

`PENSTOCK_KILLS` says how many; those of `make soak` are more.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import aiohttp
from cli_process import COMMAND, environment
from tests.gateway.stateless_agent import LISTS, StatelessAgent
from tests.processes import list_children

from penstock.providers.cache_marks import strip_marks
from penstock.sessions.session import Session
from penstock.stores.store import open_store
from penstock.testing.provider_server import ScriptedProvider
from penstock.testing.scripted import Reply

KILLS = int(os.environ.get("PENSTOCK_KILLS", "3"))
TURNS = 14 + 7 * max(0, KILLS - 3)
WINDOW = 16_000
LINES = 110


class ServedGateway:
    """`penstock serve` as a process that is killed and started again at the same address."""

    def __init__(self, upstream, store):
        self._options = (
            "--upstream",
            upstream,
            "--store",
            store,
            "--set",
            f"model.context_length={WINDOW}",
        )
        self._port = 0
        self.address = ""
        self.killed_compactors = 0

    async def __aenter__(self):
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_):
        self.process.kill()
        await asyncio.to_thread(self.process.communicate)

    def start(self):
        self.process = subprocess.Popen(
            [COMMAND, "serve", "--port", str(self._port), *self._options],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self.process.stdout.readline().strip()
        self._port = int(self.address.rpartition(":")[2])

    def kill_worker(self):
        for worker in list_children(self.process.pid):
            os.kill(worker, signal.SIGKILL)

    def kill_compactor(self):
        """Kills what compacts, while it works or still starts where that is so within a second."""
        end = time.monotonic() + 20
        while not (before := self._list_compactors()) and time.monotonic() < end:
            time.sleep(0.01)
        end, at_work = time.monotonic() + 1, []
        while not at_work and time.monotonic() < end:
            time.sleep(0.002)
            now = self._list_compactors()
            at_work = [pid for pid, ticks in now.items() if before.get(pid, ticks) < ticks]
        for compactor in at_work or before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(compactor, signal.SIGKILL)
                self.killed_compactors += 1

    def _list_compactors(self):
        """Returns the processor time of each."""
        workers = list_children(self.process.pid)
        return {pid: _read_ticks(pid) for worker in workers for pid in list_children(worker)}

    def kill_gateway(self):
        """The gateway alone is killed: its worker has to end by itself."""
        self.process.kill()
        self.process.communicate()
        self.start()


def _read_ticks(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


async def insist(agent):
    """Asks until there is an answer; returns how often it took."""
    for tried in range(1, 200):
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            status, _, body = await agent.ask()
            if status == 200:
                return tried
            assert status in {502, 503}, body
        await asyncio.sleep(0.1)
    raise AssertionError("nobody answers any more")


def test_killed_at_random_it_goes_on_with_the_same_conversations_and_the_same_bytes(tmp_path):
    chance = random.Random(int(os.environ.get("PENSTOCK_SEED", "7")))
    url = f"sqlite:///{tmp_path}/gateway.db"
    answered = asyncio.Queue()

    async def work(agent):
        agent.say("Never push to the branch release-7. Run everything.")
        retries = 0
        for turn in range(TURNS):
            text = "\n".join(f"line {line} of run {turn}: value-{turn}-{line} ok" for line in range(LINES))
            agent.use_tool("terminal", {"command": f"run {turn}"}, text)
            retries += await insist(agent) - 1
            answered.put_nowait(agent.dialect)
        return retries

    async def kill(gateway):
        for number in range(KILLS):
            for _ in range(3 * TURNS // (KILLS + 1)):
                await answered.get()
            await asyncio.sleep(chance.uniform(0, 0.1))
            victims = (gateway.kill_worker, gateway.kill_gateway, gateway.kill_compactor)
            await asyncio.to_thread(victims[number % len(victims)])

    async def go():
        reply = Reply("Go on with it, please.", chunk_chars=4, chunk_delay_seconds=0.005, delay_seconds=0.01)
        async with (
            ScriptedProvider([reply], repeat_last=True, window_tokens=WINDOW) as provider,
            ServedGateway(provider.base_url, url) as gateway,
        ):
            agents = {
                dialect: StatelessAgent(gateway, dialect, stream=dialect != "responses") for dialect in LISTS
            }
            killing = asyncio.create_task(kill(gateway))
            retries = await asyncio.gather(*(work(agent) for agent in agents.values()))
            await killing
            assert provider.violations == ()
            assert max(one.prompt_tokens for one in provider.received) <= WINDOW
            return agents, provider.received, sum(retries), gateway.killed_compactors

    agents, received, retries, killed_compactors = asyncio.run(go())
    assert killed_compactors >= KILLS // 3  # one of three: each time, there is one by then
    assert KILLS < 2 or retries  # a gateway that is away is noticed
    with contextlib.closing(open_store(url)) as store:
        sessions = [Session.resume(store, row.id) for row in store.list()]
        assert sorted(session.row.dialect for session in sessions) == sorted(agents)  # one for each client
        for session in sessions:
            dialect = session.row.dialect
            agent = agents[dialect]
            assert [_strip(entry.raw, dialect) for entry in store.read_from(session.id, 0)] == [
                _strip(json.dumps(wire), dialect) for wire in agent.history
            ]
            sent = [
                [_strip(json.dumps(message), dialect) for message in one.body[LISTS[dialect]]]
                for one in received
                if one.dialect == dialect
            ]
            made = len(store.compactions(session.id))
            assert made >= 2
            assert (
                _count_rewrites(sent) <= made
            )  # whatever was killed, only a compaction changes what was sent


def _strip(raw, dialect):
    """A message without cache marks, spelled in one way."""
    bare = strip_marks(raw.encode() if isinstance(raw, str) else raw, dialect)
    message = json.loads(bare)
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and content[0].get("type") == "text":
        message["content"] = content[0]["text"]
    return json.dumps(message)


def _count_rewrites(sent):
    return sum(now[: len(before)] != before for before, now in pairwise(sent))
