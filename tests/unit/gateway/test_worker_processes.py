"""Worker processes: orders over a pipe, a worker that is killed, a parent that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from tests.processes import is_alive

from penstock.gateway.orders import (
    Append,
    Appended,
    Failed,
    NotOpen,
    Open,
    OpenedConversation,
    Outside,
    TakeUsage,
)
from penstock.gateway.running import run_in_loop
from penstock.gateway.workers import Workers
from penstock.measure.usage import Usage
from penstock.settings import settings_from
from penstock.stores.store import open_store

pytestmark = [pytest.mark.outside, pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")]


def message(text, role="user"):
    return json.dumps({"role": role, "content": text}).encode()


def opening(*messages, owner="ann"):
    return Open(
        owner=owner,
        dialect="chat",
        endpoint="https://api.example/v1",
        store="full",
        messages=messages,
        outside=Outside(model="gpt-4.1"),
    )


async def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_a_worker_that_is_killed_is_started_again_and_nothing_acknowledged_is_lost_or_doubled(tmp_path):
    url = f"sqlite:///{tmp_path}/log.db"
    settings = settings_from({"store.url": url})
    acknowledged: dict[str, int] = {}
    answers: list[object] = []

    async def talk(workers, owner):
        """Sends a growing conversation as a client does that tries again until it is answered."""
        said, conversation, known = [message(f"{owner} begins")], None, 0
        while len(said) < 40:
            order = (
                opening(*said, owner=owner)
                if conversation is None
                else Append(
                    conversation=conversation, length=known, messages=tuple(said[known:]), outside=None
                )
            )
            answer = await workers.give(order)
            answers.append(answer)
            match answer:
                case OpenedConversation():
                    conversation = answer.conversation
                case Appended():
                    pass
                case NotOpen() | Failed():
                    conversation = None
                    await asyncio.sleep(0.01)
                    continue
            known = acknowledged[owner] = len(said)
            said += [message(f"answer {known}", "assistant"), message(f"and {known}?")]
        return said[:known]

    async def whole():
        workers = Workers(settings)
        await workers.start()
        talks = [asyncio.create_task(talk(workers, owner)) for owner in ("ann", "bob", "cid")]
        await until(lambda: len(answers) > 15)
        killed = workers.pids
        os.kill(killed[0], signal.SIGKILL)
        late = message("dan begins while there is none")
        assert isinstance(await workers.give(opening(late, owner="dan")), OpenedConversation)
        said = [*await asyncio.gather(*talks), [late]]
        last = workers.pids
        await workers.aclose()
        return said, killed, last

    said, killed, last = asyncio.run(whole())
    assert any(isinstance(answer, (NotOpen, Failed)) for answer in answers)
    assert not set(killed) & set(last)
    assert not any(map(is_alive, [pid for pid in last if pid]))
    store = open_store(url)
    found = {tuple(entry.raw for entry in store.read_from(row.tip.id, 0)) for row in store.list(limit=999)}
    assert found == set(map(tuple, said))
    assert store.faults() == []


def test_orders_of_many_conversations_that_go_out_together_keep_their_order(tmp_path):
    """Each append brings what the next one builds on, and usage is told in between: nothing may overtake."""
    url = f"sqlite:///{tmp_path}/log.db"
    settings = settings_from({"store.url": url})
    owners = [f"owner {number}" for number in range(12)]
    turns = 6

    async def whole():
        workers = Workers(settings)
        await workers.start()
        opened = await asyncio.gather(
            *(workers.give(opening(message(f"{owner} begins"), owner=owner)) for owner in owners)
        )
        orders = []
        for turn in range(turns):
            for owner, one in zip(owners, opened, strict=True):
                said = (message(f"{owner} {turn}", "assistant"), message(f"{owner} and {turn}"))
                at = 1 + 2 * turn
                orders.append(Append(conversation=one.conversation, length=at, messages=said, outside=None))
                orders.append(
                    TakeUsage(conversation=one.conversation, usages=(Usage(input_tokens=50),), sent_tokens=50)
                )
        tasks = [asyncio.ensure_future(workers.give(order)) for order in orders]
        await asyncio.sleep(0)  # all of them were given
        workers.hurry()
        answers = await asyncio.wait_for(asyncio.gather(*tasks), 60)
        late = await asyncio.wait_for(
            workers.give(
                Append(
                    conversation=opened[0].conversation,
                    length=1 + 2 * turns,
                    messages=(message("late"),),
                    outside=None,
                )
            ),
            60,
        )  # nobody hurries it
        await workers.aclose()
        return answers, late

    answers, late = asyncio.run(whole())
    assert {type(answer) for answer in (*answers, late)} == {Appended}
    store = open_store(url)
    lengths = [store.log_tip(row.tip.id).length for row in store.list(limit=99)]
    assert sorted(lengths) == [1 + 2 * turns] * (len(owners) - 1) + [2 + 2 * turns]
    assert len(store.usage()) == turns * len(owners)
    assert store.faults() == []
    store.close()


def test_orders_that_come_while_a_worker_dies_are_answered_in_every_event_loop(tmp_path):
    """uvloop raises what is no OSError where a pipe is closed, and its process is not known to have ended yet."""
    settings = settings_from({"store.url": f"sqlite:///{tmp_path}/log.db"})
    faults = []

    async def whole():
        asyncio.get_running_loop().set_exception_handler(lambda _, told: faults.append(told["message"]))
        workers = Workers(settings)
        await workers.start()
        opened = await workers.give(opening(message("a")))
        order = Append(conversation=opened.conversation, length=1, messages=(), outside=None)
        given = []
        for _ in range(6):
            await until(lambda: workers.pids[0] is not None)
            os.kill(workers.pids[0], signal.SIGKILL)
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                given += [asyncio.ensure_future(one) for one in (workers.give(order), workers.answer())]
                await asyncio.sleep(0)
                workers.hurry()
        done = await asyncio.gather(*given, return_exceptions=True)
        faults.extend(repr(one) for one in done if isinstance(one, Exception))
        await workers.aclose()

    run_in_loop(whole())
    assert faults == []


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    program = f"""
        import asyncio
        from penstock.gateway.workers import Workers
        from penstock.settings import settings_from

        async def main():
            workers = Workers(settings_from({{"store.url": "sqlite:///{tmp_path}/log.db", "gateway.workers": 1}}))
            await workers.start()
            print(*workers.pids, flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
    finally:
        parent.kill()
        parent.communicate()
    asyncio.run(until(lambda: not is_alive(pid)))


def test_a_worker_that_cannot_run_is_answered_for(tmp_path):
    settings = settings_from({"store.url": f"sqlite:///{tmp_path}/log.db"})

    async def whole():
        workers = Workers(settings, command=(sys.executable, "-c", "pass"))
        await workers.start()
        opened = await workers.give(opening(message("a")))
        unknown = await workers.give(Append(conversation="x", length=0, messages=(), outside=None))
        await workers.aclose()
        return opened, unknown

    opened, unknown = asyncio.run(whole())
    assert isinstance(opened, Failed)
    assert unknown == NotOpen()
