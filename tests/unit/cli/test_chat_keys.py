"""The chat at a terminal in this process: keys come through a pipe, and everything behind them is real."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import signal
import sys
from contextlib import ExitStack, asynccontextmanager

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from penstock.cli.chat.model import ModelChooser, ModelWish
from penstock.cli.chat.state import ChatSetup
from penstock.cli.chat.terminal import TerminalChat
from penstock.settings import ModelSettings, Settings
from penstock.stores.store import open_store
from penstock.testing import Reply, ScriptedProvider

pytestmark = pytest.mark.outside

ENTER, CTRL_C, CTRL_D, CTRL_E, CTRL_O, CTRL_R = "\r", "\x03", "\x04", "\x05", "\x0f", "\x12"
BACKSPACE = "\x7f"
PATIENCE_SECONDS = 20


class Typist:
    """Types, presses Ctrl-C while nothing is read, and waits for what is printed."""

    def __init__(self, keys, printed, server, ahead):
        self.keys = keys
        self.printed = printed
        self.server = server
        self.ahead = ahead

    def type(self, *keys):
        for key in keys:
            self.keys.send_text(key)

    async def say(self, line, pattern):
        self.type(line, ENTER)
        await self.see(pattern)

    @staticmethod
    def interrupt():
        """As a terminal does for Ctrl-C while a turn goes on."""
        os.kill(os.getpid(), signal.SIGINT)

    async def see(self, pattern):
        await self.until(lambda: re.search(pattern, self.printed.getvalue()), repr(pattern))

    async def requests(self, count):
        await self.until(lambda: len(self.server.received) >= count, f"{count} requests")

    async def until(self, reached, what):
        clock = asyncio.get_running_loop().time
        limit = clock() + PATIENCE_SECONDS
        while not reached():
            assert clock() < limit, f"waited for {what}; printed:\n{self.printed.getvalue()}"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def a_terminal(script, tmp_path, monkeypatch, window=32_000):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    printed = io.StringIO()
    master, slave = pty.openpty()
    with ExitStack() as stack:
        stack.callback(os.close, master)
        stdin = stack.enter_context(os.fdopen(slave, encoding="utf-8"))
        stack.enter_context(monkeypatch.context()).setattr(sys, "stdin", stdin)
        stack.enter_context(monkeypatch.context()).setattr(sys, "stdout", printed)
        keys = stack.enter_context(create_pipe_input())
        stack.enter_context(create_app_session(input=keys, output=DummyOutput()))
        async with ScriptedProvider(script, repeat_last=True) as server:
            store = open_store(f"sqlite:///{tmp_path}/s.db")
            stack.callback(store.close)
            chooser = ModelChooser(stack, ModelWish(model="gpt-4.1", base_url=f"{server.base_url}/v1"))
            settings = Settings(model=ModelSettings(name="gpt-4.1", context_length=window))
            setup = ChatSetup(settings=settings, store=store, chooser=chooser, folder=tmp_path)
            chat = TerminalChat(setup, chooser.choose_first(), yes=True)
            running = asyncio.ensure_future(chat.run(None))
            typist = Typist(keys, printed, server, chat._reader.ahead)
            try:
                await typist.see("Ctrl-D exits")
                yield typist
                if not running.done():
                    typist.type(CTRL_D)
                assert await asyncio.wait_for(running, PATIENCE_SECONDS) == 0
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await chooser.aclose()
            assert server.violations == ()


def played(script, tmp_path, monkeypatch, act, **options):
    async def play():
        async with a_terminal(script, tmp_path, monkeypatch, **options) as typist:
            await act(typist)

    asyncio.run(play())


def paragraphs(number):
    return "\n".join(
        f"Line {number}.{i}: worker {i * 7} of order {48_000 + i * 13} wrote /srv/data/file_{number}_{i}.csv."
        for i in range(60)
    )


@pytest.mark.parametrize("command", ["/compress", "/model gpt-4"])
def test_ctrl_c_stops_a_compaction_and_the_chat_goes_on(tmp_path, monkeypatch, command):
    answers = [f"{paragraphs(n)}\n\nEnd of part {n}." for n in range(4)]
    script = [*answers, Reply("a summary that nobody waits for", delay_seconds=60.0), "Yes, still here."]

    async def act(typist):
        for n in range(4):
            await typist.say(f"Tell me about part {n}.", f"End of part {n}")
        typist.type(command, ENTER)
        await typist.requests(5)  # the one for the summary
        typist.interrupt()
        await typist.see("stopped; nothing has changed")
        await typist.say("Are you there?", "Yes, still here")
        sent = typist.server.received[-1].body
        assert sent["model"] == "gpt-4.1"
        assert [one["content"] for one in sent["messages"] if one["role"] == "user"][:2] == [
            "Tell me about part 0.",
            "Tell me about part 1.",
        ]

    played(script, tmp_path, monkeypatch, act)


def test_ctrl_r_finds_an_earlier_input_enter_takes_it_and_ctrl_c_gives_up(tmp_path, monkeypatch):
    async def act(typist):
        await typist.say("count the red apples", "One")
        await typist.say("something else", "Two")
        typist.type(CTRL_R, "red", CTRL_C, "typed instead", ENTER)
        await typist.see("Three")
        typist.type(CTRL_R, "apples", ENTER, CTRL_E, " again", ENTER)
        await typist.see("Four")
        said = [one.body["messages"][-1]["content"] for one in typist.server.received]
        assert said[2:] == ["typed instead", "count the red apples again"]

    played(["One.", "Two.", "Three.", "Four."], tmp_path, monkeypatch, act)


def test_what_is_typed_during_a_turn_is_sent_after_it_line_by_line(tmp_path, monkeypatch):
    script = [Reply("slow " * 8, chunk_delay_seconds=0.1), "Second.", "Third.", "Fourth."]

    async def act(typist):
        typist.type("first", ENTER)
        await typist.requests(1)
        typist.type("two", ENTER, "threx", BACKSPACE, "e", ENTER, "and ")
        await typist.see("Third")
        typist.type("four", ENTER)
        await typist.see("Fourth")
        said = [one.body["messages"][-1]["content"] for one in typist.server.received]
        assert said == ["first", "two", "three", "and four"]

    played(script, tmp_path, monkeypatch, act)


def test_what_is_typed_survives_ctrl_c_and_is_not_sent_by_it(tmp_path, monkeypatch):
    script = [Reply("slow " * 400, chunk_delay_seconds=0.1), "Second."]

    async def act(typist):
        typist.type("first", ENTER)
        await typist.requests(1)
        typist.type("a thought", ENTER, "and half of another")
        await typist.until(lambda: "half of another" in typist.ahead.text, "the keys to be read")
        typist.interrupt()
        await typist.see("stopped; the conversation is kept")
        typist.type(" one", ENTER)
        await typist.see("Second")
        said = [one.body["messages"][-1]["content"] for one in typist.server.received]
        assert said == ["first", "a thought\nand half of another one"]

    played(script, tmp_path, monkeypatch, act)


def test_ctrl_o_unfolds_the_last_command(tmp_path, monkeypatch):
    async def act(typist):
        await typist.say("Count.", "Counted")
        assert "line 3" not in typist.printed.getvalue()
        typist.type("half a thought", CTRL_O)
        await typist.see(r"terminal seq.*\n  line 1\n  line 2\n  line 3\n")
        await typist.say(" and more", "Fine")
        assert typist.server.received[-1].body["messages"][-1]["content"] == "half a thought and more"

    script = [Reply.calling("terminal", command="seq -f 'line %g' 8"), "Counted.", "Fine."]
    played(script, tmp_path, monkeypatch, act)
