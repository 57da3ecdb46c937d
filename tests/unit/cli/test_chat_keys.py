"""The chat at a terminal in this process: keys come through a pipe, and everything behind them is real."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import shlex
import signal
import sys
from base64 import b64encode
from contextlib import ExitStack, asynccontextmanager

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from penstock.cli.chat.model import ModelChooser, ModelWish
from penstock.cli.chat.setup import ChatSetup
from penstock.cli.chat.terminal import TerminalChat
from penstock.settings import ModelSettings, Settings
from penstock.stores.store import open_store
from penstock.testing import Reply, ScriptedProvider

pytestmark = pytest.mark.outside

ENTER, CTRL_C, CTRL_D, CTRL_E, CTRL_O, CTRL_R = "\r", "\x03", "\x04", "\x05", "\x0f", "\x12"
BACKSPACE, TAB, CTRL_V = "\x7f", "\t", "\x16"
PATIENCE_SECONDS = 20


class Typist:
    """Types, presses Ctrl-C while nothing is read, and waits for what is printed."""

    def __init__(self, keys, printed, server, reader):
        self.keys = keys
        self.printed = printed
        self.server = server
        self.reader = reader
        self.ahead = reader.ahead

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

    async def prompted(self):
        """Waits for the prompt, and for the agent behind it: keys before are typed ahead, where no key has a meaning."""
        await self.until(lambda: self.reader._session.app.is_running, "a prompt")
        await self.until(self.reader.is_ready, "the agent")

    async def requests(self, count):
        await self.until(lambda: len(self.server.received) >= count, f"{count} requests")

    async def until(self, reached, what):
        clock = asyncio.get_running_loop().time
        limit = clock() + PATIENCE_SECONDS
        while not reached():
            assert clock() < limit, f"waited for {what}; printed:\n{self.printed.getvalue()}"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def a_terminal(script, tmp_path, monkeypatch, window=32_000, folder=None):
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
            setup = ChatSetup(settings=settings, store=store, chooser=chooser, folder=folder or tmp_path)
            chat = TerminalChat(setup, chooser.choose_first(), yes=True)
            running = asyncio.ensure_future(chat.run(None))
            typist = Typist(keys, printed, server, chat._reader)
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
        await typist.prompted()
        typist.type(CTRL_R, "red", CTRL_C, "typed instead", ENTER)
        await typist.see("Three")
        await typist.prompted()
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


def test_enter_without_words_leaves_no_trace(tmp_path, monkeypatch):
    async def act(typist):
        await typist.prompted()
        before = typist.reader._session.app.render_counter
        typist.type(ENTER, "  ", ENTER)
        await typist.until(lambda: typist.reader.typed == "  ", "the blanks to be read")
        await typist.until(lambda: typist.reader._session.app.render_counter > before, "a redraw")
        assert typist.reader.typed == "  "  # the same prompt is still there
        await typist.say("hello", "One")
        assert typist.server.received[0].body["messages"][-1]["content"] == "hello"

    played(["One."], tmp_path, monkeypatch, act)


def test_a_menu_for_what_was_typed_before_the_agent_was_there_opens_with_it(tmp_path, monkeypatch):
    async def act(typist):
        typist.type("/se")
        buffer = typist.reader._session.default_buffer
        await typist.until(lambda: buffer.complete_state is not None, "the menu")
        assert [one.text for one in buffer.complete_state.completions] == ["/sessions", "/search"]
        typist.type(CTRL_C)

    played(["One."], tmp_path, monkeypatch, act)


@pytest.mark.parametrize(
    ("typed", "opens"),
    [
        ("/", True),
        ("/se", True),
        ("/sessions", False),  # nothing is left to complete, so no rows are kept for a menu
        ("/compress the orders", False),
        ("/compress h", True),
        ("/resume ", True),
        ("see @sr", True),
        ("plain words", False),
    ],
)
def test_rows_for_a_menu_are_kept_only_where_there_may_be_one(tmp_path, monkeypatch, typed, opens):
    async def act(typist):
        await typist.prompted()
        typist.type(typed)
        await typist.until(lambda: typist.reader.typed == typed, "the keys to be read")
        assert typist.reader._session.default_buffer.complete_while_typing() is opens
        typist.type(CTRL_C)

    played(["One."], tmp_path, monkeypatch, act)


def test_a_conversation_is_picked_from_a_list_and_ctrl_c_leaves_it(tmp_path, monkeypatch):
    async def act(typist):
        await typist.say("count the red apples", "One")
        await typist.say("/new", "new conversation")
        await typist.say("where are the pears", "Two")
        await typist.say("/new", "new conversation; the previous")
        typist.type("/resume", ENTER, "zzz", ENTER, CTRL_C)  # nothing is left to take, so Enter takes nothing
        await typist.see("still in this conversation")
        typist.type("/sessions", ENTER, "red", ENTER)
        await typist.see("you:    count the red apples")
        await typist.say("and now?", "Three")
        typist.type("/resume pears", ENTER)  # no id: what the list is narrowed down to
        typist.type(ENTER)
        await typist.see("you:    where are the pears")
        await typist.say(
            "/resume nonsense", "no conversation has the id or the words 'nonsense'; /sessions lists"
        )
        said = [one.body["messages"][-1]["content"] for one in typist.server.received]
        assert said == ["count the red apples", "where are the pears", "and now?"]
        assert "count the red apples" in str(typist.server.received[2].body["messages"])

    played(["One.", "Two.", "Three."], tmp_path, monkeypatch, act)


def test_files_are_completed_attached_dragged_and_taken_from_the_clipboard(tmp_path, monkeypatch):
    shot = b"GIF89a\1\0\1\0\0\0\0,"
    (tmp_path / "notes.txt").write_text("nineteen orders\n")
    (tmp_path / "outside").mkdir()
    work, bin_folder = tmp_path / "work", tmp_path / "bin"
    for folder in (work, bin_folder):
        folder.mkdir()
    (work / "orders.txt").write_text("nineteen orders\n")
    (tmp_path / "my shot.gif").write_bytes(shot)
    reader = bin_folder / "wl-paste"
    reader.write_text(f"#!/bin/sh\ncat {shlex.quote(str(tmp_path / 'my shot.gif'))}\n")
    reader.chmod(0o700)

    async def act(typist):
        typist.type("count @ord")
        menu = typist.reader._session.default_buffer
        await typist.until(lambda: menu.complete_state and menu.complete_state.completions, "the menu")
        typist.type(TAB)
        await typist.until(lambda: "orders.txt" in typist.reader.typed, "the completion")
        typist.type(ENTER)
        await typist.see("One")
        typist.type(
            f"\x1b[200~{str(tmp_path / 'my shot.gif').replace(' ', chr(92) + ' ')}\x1b[201~",
            "what is it?",
            ENTER,
        )
        await typist.see("Two")
        monkeypatch.setenv("PATH", str(bin_folder) + os.pathsep + os.environ["PATH"])
        typist.type("look ", CTRL_V)
        await typist.until(lambda: "pasted" in typist.reader.typed, "the picture of the clipboard")
        typist.type(ENTER)
        await typist.see("Three")
        typist.type("read @../notes.txt", ENTER)
        await typist.see("outside the working folder")
        await typist.until(lambda: typist.reader.typed == "read @../notes.txt", "the input to come back")
        typist.type(CTRL_C)
        first, second, third = (one.body["messages"][-1]["content"] for one in typist.server.received)
        assert first.startswith("count @orders.txt\n\n<attached_file")
        assert "nineteen orders" in first
        picture = {
            "type": "image_url",
            "image_url": {"url": f"data:image/gif;base64,{b64encode(shot).decode()}"},
        }
        assert second[0] == third[0] == picture
        assert second[1]["text"].endswith('my shot.gif" what is it?')

    played(["One.", "Two.", "Three."], tmp_path, monkeypatch, act, folder=work)
