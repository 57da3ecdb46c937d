"""Cancelling a compaction, or killing its process, while a model is asked: the request ends and nothing has changed."""

import asyncio
import copy
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from client_talk import model_of
from summary_cases import ONCE, PROVIDERS, good_handoff, is_notes, notes, planted

import penstock
from penstock.engine.summariser import Summariser
from penstock.stores.shelf import MemoryShelf
from penstock.testing.provider_server import ScriptedProvider, scripted_provider
from penstock.testing.scripted import Reply
from penstock.writing.work import WorkMaker

SLOW = Reply(good_handoff(), delay_seconds=30)


async def until_received(server, count=1):
    for _ in range(4_000):
        if len(server.received) >= count:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the server was not asked")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_cancelling_ends_the_request_and_leaves_the_input_as_it_was(provider):
    talk = planted(PROVIDERS[provider])
    before = copy.deepcopy(talk.wires)
    objects = [id(wire) for wire in talk.wires]

    async def run():
        async with ScriptedProvider([SLOW]) as server, model_of(server, provider, policy=ONCE) as model:
            task = asyncio.create_task(
                penstock.acompress(
                    talk.wires, target_tokens=talk.target, dialect=talk.dialect, summariser=Summariser(model)
                )
            )
            await until_received(server)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await server.wait_for_disconnects(1)
            assert len(server.received) == 1, "no further rung is tried"

    asyncio.run(run())
    assert talk.wires == before
    assert [id(wire) for wire in talk.wires] == objects


def test_cancelling_while_parts_are_asked_for_ends_all_of_them_and_keeps_what_is_done():
    talk = planted("chat")
    answered = []

    def script(received):
        if not answered:
            answered.append(received.number)
            return notes(received)
        return SLOW if is_notes(received) else notes(received)

    async def run():
        async with (
            ScriptedProvider(script, window_tokens=7_000) as server,
            model_of(server, "openai", policy=ONCE) as model,
        ):
            shelf = MemoryShelf()
            summariser = Summariser(model, notes=shelf)
            task = asyncio.create_task(
                penstock.acompress(talk.wires, target_tokens=talk.target, summariser=summariser)
            )
            await until_received(server, 3)
            await asyncio.sleep(0.05)
            waiting = len(server.received) - 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await server.wait_for_disconnects(waiting)
            return shelf, server, waiting

    shelf, server, waiting = asyncio.run(run())
    assert waiting >= 2
    assert len(shelf._kept) == 1, "a retry resumes"
    assert server.disconnects == waiting


def test_cancelling_waits_for_the_thread_that_chooses_lines_of_results(monkeypatch):
    """It reads the notebook of the conversation, in which the next compaction would read as well."""
    talk = planted("chat", lines=60)
    begun, may_end, ended = threading.Event(), threading.Event(), []
    trim = WorkMaker.trim

    def wait_and_trim(maker, work, room_tokens):
        begun.set()
        may_end.wait(10)
        trimmed = trim(maker, work, room_tokens)
        ended.append(True)
        return trimmed

    monkeypatch.setattr(WorkMaker, "trim", wait_and_trim)

    async def run():
        async with (
            ScriptedProvider(notes, window_tokens=4_096) as server,
            model_of(server, "openai", policy=ONCE) as model,
        ):
            summariser = Summariser(model, window_tokens=4_096)
            task = asyncio.create_task(
                penstock.acompress(talk.wires, target_tokens=talk.target, summariser=summariser)
            )
            assert await asyncio.to_thread(begun.wait, 20)
            task.cancel()
            await asyncio.sleep(0.05)
            waits = not task.done()
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            return waits

    assert asyncio.run(run())
    assert ended == [True]


def test_a_timeout_of_the_caller_is_a_cancellation_like_any_other():
    talk = planted("chat")

    async def run():
        async with ScriptedProvider([SLOW]) as server, model_of(server, "openai", policy=ONCE) as model:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await penstock.acompress(
                        talk.wires, target_tokens=talk.target, summariser=Summariser(model)
                    )
            assert await server.wait_for_disconnects(1)

    asyncio.run(run())


def test_a_cancelled_model_does_not_rest():
    talk = planted("chat")

    async def run():
        async with (
            ScriptedProvider([SLOW, good_handoff()]) as server,
            model_of(server, "openai", policy=ONCE) as model,
        ):
            summariser = Summariser(model)
            task = asyncio.create_task(
                penstock.acompress(talk.wires, target_tokens=talk.target, summariser=summariser)
            )
            await until_received(server)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return await penstock.acompress(talk.wires, target_tokens=talk.target, summariser=summariser)

    assert asyncio.run(run()).receipt.outcome == "compacted"


_HOST = """
import json, sys
import penstock
from penstock.providers.connect import connect

messages = json.load(open(sys.argv[1]))
before = json.dumps(messages)
try:
    penstock.compress(messages, target_tokens=2_000, summariser=connect("openai", "m", base_url=sys.argv[2]))
except KeyboardInterrupt:
    print("unchanged" if json.dumps(messages) == before else "changed", flush=True)
    raise SystemExit(130)
print("finished")
"""


_FUNCTION_HOST = """
import json, sys, time
import penstock

def slow(prompt):
    print("asked", flush=True)
    time.sleep(30)
    return ""

try:
    penstock.compress(json.load(open(sys.argv[1])), target_tokens=2_000, summariser=slow)
except KeyboardInterrupt:
    raise SystemExit(130)
"""


@pytest.mark.alone
@pytest.mark.skipif(os.name != "posix", reason="signals are sent as posix does")
def test_a_signal_does_not_wait_for_a_function_that_sleeps(tmp_path):
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(planted("chat").wires))
    host = subprocess.Popen(
        [sys.executable, "-c", _FUNCTION_HOST, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert host.stdout.readline() == "asked\n"
        started = time.monotonic()
        host.send_signal(signal.SIGINT)
        _, complaints = host.communicate(timeout=10)
    finally:
        host.kill()
        host.wait()
    assert time.monotonic() - started < 3
    assert (host.returncode, complaints) == (130, "")


@pytest.mark.alone
@pytest.mark.skipif(os.name != "posix", reason="signals are sent as posix does")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_a_sync_call_at_once(tmp_path, sent):
    talk = planted("chat")
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(talk.wires))
    before = path.read_bytes()
    with scripted_provider([SLOW]) as server:
        host = subprocess.Popen(
            [sys.executable, "-c", _HOST, str(path), server.base_url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            asyncio.run(until_received(server))
            started = time.monotonic()
            host.send_signal(sent)
            out, complaints = host.communicate(timeout=10)
        finally:
            host.kill()
            host.wait()
        assert time.monotonic() - started < 3
        assert asyncio.run(server.wait_for_disconnects(1))
        assert len(server.received) == 1
    assert path.read_bytes() == before
    if sent == signal.SIGINT:
        assert (host.returncode, out.strip(), complaints) == (130, "unchanged", "")
