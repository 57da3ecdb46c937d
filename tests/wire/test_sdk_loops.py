"""The usual loops of the official clients (`examples`), with compactions in the middle, against the scripted provider."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import anthropic
import openai
import pytest
from examples import anthropic_messages, openai_chat, openai_responses

import penstock
from penstock.conversation.wire import to_plain
from penstock.engine.compressor import ContextCompressor
from penstock.providers.exchange import Called
from penstock.testing.provider_server import scripted_provider
from penstock.testing.scripted import Reply

WINDOW = 8_000
ASKED = "Read the twelve parts of the parser. Never change src/part_9.py."
LOOPS = [openai_chat, openai_responses, anthropic_messages]
DIALECTS = {openai_chat: "chat", openai_responses: "responses", anthropic_messages: "anthropic"}


def name_of(loop):
    return loop.__name__.rpartition(".")[2]


def read_file(path):
    return "\n".join(f"LIMIT_{n} = {n * 37}  # used by {path}" for n in range(60))


def script(first=0, parts=12):
    """Each answer speaks, thinks and calls once or twice; the last one is done."""
    calls = [
        Reply(
            f"Part {n} next.",
            reasoning=f"Part {n} may hold it.",
            calls=tuple(
                Called(f"call_{n}_{k}", "read_file", json.dumps({"path": f"src/part_{n}_{k}.py"}))
                for k in range(1 + n % 2)
            ),
        )
        for n in range(first, first + parts)
    ]
    return [*calls, "All parts are read."]


def client_of(loop, server, *, is_async=False):
    module = anthropic if loop is anthropic_messages else openai
    name = ("Async" if is_async else "") + ("Anthropic" if module is anthropic else "OpenAI")
    return getattr(module, name)(base_url=server.base_url, api_key="no-real-key", max_retries=0)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("loop", LOOPS, ids=name_of)
def test_the_usual_loop_goes_through_compactions(loop, is_async, streaming, capsys):
    engine = ContextCompressor(WINDOW)

    async def work(client):
        async with client:
            run = loop.stream_async if streaming else loop.run_async
            return await run(client, engine, ASKED, read_file)

    with scripted_provider(script()) as server:
        if is_async:
            messages = asyncio.run(work(client_of(loop, server, is_async=True)))
        else:
            with client_of(loop, server) as client:
                run = loop.stream if streaming else loop.run
                messages = run(client, engine, ASKED, read_file)
    assert server.violations == ()
    assert len(server.received) == 13
    assert engine.compression_count >= 2
    assert max(one.prompt_tokens for one in server.received) <= WINDOW
    assert all(one.streaming is streaming for one in server.received)
    # The clients' own objects are still in the list, and every original can be read.
    assert any(to_plain(message) is not message for message in messages)
    assert "All parts are read." in json.dumps(to_plain(messages[-1]), ensure_ascii=False)
    assert to_plain(engine.original("m1"))["content"] == ASKED
    assert "src/part_9.py" in json.dumps(to_plain(messages), ensure_ascii=False)
    assert ("Part 3 next." in capsys.readouterr().out) is streaming


RESUME = """
import sys

import anthropic, openai
import penstock
from examples import anthropic_messages, openai_chat, openai_responses
from tests.wire.test_sdk_loops import WINDOW, read_file

url, address, *sessions = sys.argv[1:]
store = penstock.open_store(url)
for session_id, loop in zip(sessions, (openai_chat, openai_responses, anthropic_messages)):
    make = anthropic.Anthropic if loop is anthropic_messages else openai.OpenAI
    with make(base_url=address, api_key="no-real-key", max_retries=0) as client:
        session = penstock.Session.resume(store, session_id)
        loop.run_stored(client, session, read_file, WINDOW)
"""


def test_a_stored_loop_goes_on_in_another_process(tmp_path):
    url = f"sqlite:///{tmp_path / 'work.db'}"
    store = penstock.open_store(url)
    halves = [reply for part in range(3) for reply in script(part * 100, 7)[:-1]]
    rest = [reply for part in range(3) for reply in script(part * 100 + 7, 6)]
    sessions = []
    with scripted_provider([*halves, *rest]) as server:
        for loop in LOOPS:
            session = penstock.Session.create(store, model=loop.MODEL, dialect=DIALECTS[loop])
            session.append([{"role": "user", "content": ASKED}])
            with client_of(loop, server) as client:
                loop.run_stored(client, session, read_file, WINDOW, turns=7)
            sessions.append(session.id)
        source = Path(penstock.__file__).parents[1]
        root = Path(__file__).parents[2]
        done = subprocess.run(
            [sys.executable, "-c", RESUME, url, server.base_url, *sessions],
            env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{root}"},
            cwd=root,
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert done.stderr.decode() == ""
        assert server.violations == ()
        assert len(server.received) == 3 * 14
        assert max(one.prompt_tokens for one in server.received) <= WINDOW
    for part, session_id in enumerate(sessions):
        session = penstock.Session.resume(store, session_id)
        assert len(session.receipts()) >= 2
        assert session.original("m1")["content"] == ASKED
        assert "All parts are read." in json.dumps(session.view()[-1])
        assert session.search(f"LIMIT_30 used by src/part_{100 * part + 1}_0.py")
    assert store.faults() == []


def test_an_object_that_was_kept_is_the_one_that_the_client_made():
    messages = [{"role": "system", "content": "Be brief."}]
    with (
        scripted_provider(["Short.", "Long. " * 900, "Short again."]) as server,
        client_of(openai_chat, server) as client,
    ):
        for asked in ("One?", "Two?", "Three?"):
            messages.append({"role": "user", "content": asked})
            reply = client.chat.completions.create(model="gpt-4o", messages=messages)
            messages.append(reply.choices[0].message)
    small = penstock.compress(messages, target_tokens=600)
    assert small.receipt.outcome == "compacted"
    assert small.messages[-1] is messages[-1]
    assert small.sources[-1] == len(messages) - 1
    assert small.original("m5") is messages[4]
