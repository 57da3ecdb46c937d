"""The compactor as a process: it is killed, hangs, dies at its start, is cancelled, and ends with its worker."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc

import pytest
from tests.gateway.near_compactor import NearCompactor
from tests.processes import is_alive, list_children

from penstock.engine.handoff import handoff
from penstock.errors import EngineFailure, TargetTooSmall
from penstock.gateway.compacting import Compactor
from penstock.gateway.compactor import HandoffOrder
from penstock.gateway.conversations import Conversations
from penstock.gateway.orders import Append, Appended, Fit, Fitted, Forget, NotOpen, Open, Outside, write_frame
from penstock.settings import GatewaySettings, Settings, settings_from
from penstock.stores.store import open_store

pytestmark = [pytest.mark.outside, pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")]

GATEWAY = GatewaySettings()
TARGET = 2_000


def talk(name, turns=40):
    said = "line 17 of src/main.py: timeout_seconds = 30\n" * 12
    wires = [
        {"role": ("user", "assistant")[turn % 2], "content": f"{name} {turn}: crane_{turn * 7919} {said}"}
        for turn in range(turns + 1)
    ]
    return tuple(json.dumps(wire).encode() for wire in wires)


def order(name, tokens=TARGET):
    return HandoffOrder(messages=talk(name), dialect="chat", tokens=tokens, settings=Settings())


def written(name):
    return handoff([json.loads(raw) for raw in talk(name)], tokens=TARGET, dialect="chat")


def opening(name, turns=40, owner="ann", store="full"):
    return Open(
        owner=owner,
        dialect="chat",
        endpoint="https://api.example/v1",
        store=store,
        messages=talk(name, turns),
        outside=Outside(model="claude-sonnet-4-5"),
    )


def fitting(conversation, length=41, target=TARGET):
    return Fit(conversation=conversation, length=length, messages=(), outside=None, target_tokens=target)


def run(work, **options):
    async def whole():
        compactor = Compactor(GATEWAY, **options)
        try:
            return await work(compactor)
        finally:
            await compactor.aclose()
            assert compactor.pid is None or not is_alive(compactor.pid)

    return asyncio.run(whole())


async def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
    return found


def test_killed_at_random_each_order_is_answered_right_or_told_to_have_failed():
    chance = random.Random(int(os.environ.get("PENSTOCK_SEED", "11")))
    names = [f"talk {number}" for number in range(24)]
    results = {}

    async def work(compactor):
        async def ask(name):
            try:
                results[name] = await compactor.write(order(name))
            except EngineFailure as error:
                results[name] = error

        async def kill():
            killed = set()
            while len(results) < len(names):
                await asyncio.sleep(chance.uniform(0.05, 0.6))
                if compactor.pid is not None and is_alive(compactor.pid):
                    os.kill(compactor.pid, signal.SIGKILL)
                    killed.add(compactor.pid)
                await asyncio.sleep(1.0)
            return killed

        killing = asyncio.create_task(kill())
        for start in range(0, len(names), 4):
            await asyncio.gather(*map(ask, names[start : start + 4]))
        killed = await killing
        for name in names:  # a process that is let alone carries all of them out
            if isinstance(results[name], EngineFailure):
                await ask(name)
        return killed

    assert run(work)
    assert results == {name: written(name) for name in names}


def test_one_that_is_killed_once_is_not_noticed():
    async def work(compactor):
        asked = asyncio.create_task(compactor.write(order("a")))
        pid = await until(lambda: compactor.pid)
        os.kill(pid, signal.SIGKILL)
        text = await asked
        assert compactor.pid != pid
        return text

    assert run(work) == written("a")


@pytest.mark.parametrize("program", ["import time; time.sleep(600)", "import sys; sys.stdin.buffer.read()"])
def test_one_that_hangs_is_killed_and_the_order_fails_in_time(program):
    async def work(compactor):
        start = time.monotonic()
        asked = [asyncio.create_task(compactor.write(order(name))) for name in ("a", "b")]
        pid = await until(lambda: compactor.pid)
        for one in asked:
            with pytest.raises(EngineFailure, match=r"did not answer in time|ended"):
                await one
        assert time.monotonic() - start < 30
        await until(lambda: not is_alive(pid))

    run(work, command=(sys.executable, "-c", program), least_seconds=0.5)


def test_a_true_one_that_is_stopped_is_killed_and_the_next_order_is_carried_out():
    async def work(compactor):
        assert await compactor.write(order("a")) == written("a")
        pid = compactor.pid
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineFailure, match="did not answer in time"):
            await compactor.write(order("b"))
        await until(lambda: not is_alive(pid))
        return await compactor.write(order("b"))

    assert run(work, least_seconds=5.0) == written("b")


def test_one_that_dies_at_its_start_fails_orders_at_once_and_is_not_started_over_and_over(tmp_path):
    started = tmp_path / "started"
    program = f"open({str(started)!r}, 'a').write('x')"

    async def work(compactor):
        start, failed = time.monotonic(), 0
        while time.monotonic() - start < 3:
            with pytest.raises(EngineFailure, match="ended"):
                await compactor.write(order("a"))
            failed += 1
            await asyncio.sleep(0.01)
        return failed

    assert run(work, command=(sys.executable, "-c", program)) > 30
    assert 2 <= len(started.read_text()) <= 8


def test_one_that_cannot_be_started_fails_orders(tmp_path):
    async def work(compactor):
        with pytest.raises(EngineFailure, match="ended"):
            await compactor.write(order("a"))

    run(work, command=(str(tmp_path / "there is none"),))


def test_one_that_may_not_lower_its_priority_works_all_the_same():
    program = """
import os

def refuse(_by):
    raise PermissionError

os.nice = refuse
from penstock.gateway.compactor import main
main()
"""

    async def work(compactor):
        return await compactor.write(order("a"))

    assert run(work, command=(sys.executable, "-c", program)) == written("a")


def test_one_that_answers_rubbish_is_ended():
    program = "import os, sys; os.read(0, 100); os.write(1, b'\\xff' * 4_000); sys.stdin.buffer.read()"

    async def work(compactor):
        with pytest.raises(EngineFailure):
            await compactor.write(order("a"))

    run(work, command=(sys.executable, "-c", program), least_seconds=2.0)


def test_an_order_that_cannot_be_met_or_read_is_told_as_where_it_was_made():
    async def work(compactor):
        with pytest.raises(TargetTooSmall) as small:
            await compactor.write(order("a", tokens=20))
        assert small.value.target_tokens == 20
        broken = HandoffOrder(messages=(b'{"role": 7}',), dialect="chat", tokens=400, settings=Settings())
        with pytest.raises(EngineFailure, match="cannot be read"):
            await compactor.write(broken)
        return await compactor.write(order("a"))  # and goes on

    assert run(work) == written("a")


def test_one_that_has_nothing_to_do_is_ended_and_comes_back():
    async def work(compactor):
        await compactor.write(order("a"))
        pid = compactor.pid
        await until(lambda: not is_alive(pid))
        assert compactor.pid is None
        return await compactor.write(order("b"))

    assert run(work, idle_seconds=0.3) == written("b")


def test_it_is_there_before_it_is_needed(tmp_path):
    """It is started when half of what a request may take is there, and not before."""
    settings = settings_from({"store.url": f"sqlite:///{tmp_path}/log.db", "model.context_length": 24_000})

    async def whole():
        compactor = Compactor(settings.gateway)
        conversations = Conversations(settings, compactor=compactor)
        await conversations.warm_up()
        await conversations.carry_out(opening("a", turns=8))
        assert compactor.pid is None
        await conversations.carry_out(opening("b", turns=60))
        await until(lambda: compactor.pid)
        await conversations.aclose()

    asyncio.run(whole())


def test_a_compaction_that_is_cancelled_leaves_nothing_and_the_next_one_is_made(tmp_path):
    url = f"sqlite:///{tmp_path}/log.db"
    settings = settings_from({"store.url": url})

    async def whole():
        compactor = Compactor(settings.gateway)
        conversations = Conversations(settings, compactor=compactor)
        opened = await conversations.carry_out(opening("a", turns=80))
        fit = asyncio.create_task(conversations.carry_out(fitting(opened.conversation, length=81)))
        await until(lambda: compactor.pid)
        fit.cancel()
        await asyncio.wait([fit])
        assert fit.cancelled()
        store = open_store(url)
        assert store.compactions(store.list()[0].tip.id) == []
        made = await conversations.carry_out(fitting(opened.conversation, length=81))
        assert len(store.compactions(store.list()[0].tip.id)) == 1
        store.close()
        await conversations.aclose()
        return made

    made = asyncio.run(whole())
    assert isinstance(made, Fitted)
    assert made.compacted


def test_a_conversation_whose_compaction_fails_goes_on_as_it_is_and_is_told_why(tmp_path):
    settings = settings_from({"store.url": f"sqlite:///{tmp_path}/log.db"})

    async def whole():
        compactor = Compactor(settings.gateway, command=(sys.executable, "-c", "pass"))
        conversations = Conversations(settings, compactor=compactor)
        opened = await conversations.carry_out(opening("a"))
        fitted = await conversations.carry_out(fitting(opened.conversation))
        more = talk("a", 42)[41:]
        appended = await conversations.carry_out(
            Append(conversation=opened.conversation, length=41, messages=more, outside=None)
        )
        await conversations.aclose()
        return fitted, appended

    fitted, appended = asyncio.run(whole())
    assert isinstance(fitted, Fitted)
    assert not fitted.compacted
    assert fitted.prefix.covers == 0
    assert "the process that compacts ended" in fitted.notice
    assert isinstance(appended, Appended)


@pytest.mark.parametrize("mode", ["full", "digests", "off"])
def test_it_compacts_whatever_is_kept(tmp_path, mode):
    settings = settings_from({"store.url": f"sqlite:///{tmp_path}/log.db"})

    async def whole():
        compactor = NearCompactor()
        conversations = Conversations(settings, compactor=compactor)
        opened = await conversations.carry_out(opening("a", store=mode))
        fitted = await conversations.carry_out(fitting(opened.conversation))
        assert await conversations.carry_out(Forget(conversation=opened.conversation)) == NotOpen()
        again = await conversations.carry_out(opening("a", store=mode))
        await conversations.aclose()
        return fitted, again, compactor.carried_out

    fitted, again, carried_out = asyncio.run(whole())
    assert fitted.compacted
    assert set(carried_out) == {"DraftOrder"}
    if mode != "off":
        assert again.prefix == fitted.prefix


def test_many_short_conversations_are_bounded_in_memory_as_well(tmp_path):
    settings = settings_from({"store.url": f"sqlite:///{tmp_path}/log.db"})

    async def whole():
        conversations = Conversations(settings, compactor=NearCompactor(8_000_000))
        for number in range(45):
            opened = await conversations.carry_out(opening(f"talk {number}", turns=6))
            fitted = await conversations.carry_out(fitting(opened.conversation, length=7, target=500))
            assert fitted.compacted
            await conversations.carry_out(Forget(conversation=opened.conversation))
            if number == 4:  # all tables are loaded
                tracemalloc.start()
        held = tracemalloc.get_traced_memory()[0]
        await conversations.aclose()
        return held

    try:
        assert asyncio.run(whole()) < 12_000_000
    finally:
        tracemalloc.stop()


def _program(tmp_path):
    return textwrap.dedent(f"""
        import asyncio

        from penstock.gateway.workers import Workers
        from penstock.settings import settings_from
        from tests.unit.gateway.test_compactor import fitting, opening

        async def main():
            workers = Workers(settings_from({{"store.url": "sqlite:///{tmp_path}/log.db"}}))
            await workers.start()
            opened = await workers.give(opening("a"))
            made = await workers.give(fitting(opened.conversation))
            print(*workers.pids, made.compacted, flush=True)
            while True:  # it compacts while it is killed
                opened = await workers.give(opening("b", turns=4_000))
                await workers.give(fitting(opened.conversation, length=4_001))
                opened = None

        asyncio.run(main())
    """)


@pytest.mark.parametrize("killed", ["gateway", "worker"])
def test_it_ends_with_its_worker_and_with_the_gateway_also_while_it_compacts(tmp_path, killed):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path])}
    parent = subprocess.Popen(
        [sys.executable, "-c", _program(tmp_path)], stdout=subprocess.PIPE, env=environ, text=True
    )
    try:
        worker, compacted = parent.stdout.readline().split()
        assert compacted == "True"
        (compactor,) = list_children(int(worker))
        assert is_alive(compactor)
        time.sleep(0.3)
        os.kill(parent.pid if killed == "gateway" else int(worker), signal.SIGKILL)
        asyncio.run(until(lambda: not is_alive(compactor), 20))
        if killed == "gateway":
            asyncio.run(until(lambda: not is_alive(int(worker)), 20))
    finally:
        parent.kill()
        parent.communicate()


def test_a_worker_counts_with_tables_that_it_has_loaded_before_it_serves():
    """Loading them takes 0.2 s and more, in which nothing else of the process runs: all requests would wait."""
    program = """
        import os, sys
        from penstock.gateway import worker
        from penstock.gateway.orders import write_frame
        from penstock.measure import tokens
        from penstock.settings import Settings

        async def run(self):
            await self._warm_up()
            os.write(2, b"loaded" if "toktok" in sys.modules and not tokens._FIRST_COUNTS else b"not loaded")

        worker._Service.run = run
        worker.main()
    """
    settings = settings_from({"store.url": "memory:"})
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        input=write_frame(0, settings),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert ran.stderr == b"loaded"
