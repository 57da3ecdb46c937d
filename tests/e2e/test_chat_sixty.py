"""Sixty things that a person does in a chat, one after the other, in a large window and in a small one.

After each, the screen is looked at: what should show shows, nothing is left over from what was redrawn, and the status line
is where it belongs. With PENSTOCK_SCREENS=FOLDER, each screen is written there to be read.
"""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.e2e.chat_screen import ALT_ENTER, CTRL_C, CTRL_D, ENTER, ESCAPE, TAB
from tests.e2e.chat_stage import calling, stage

from penstock.testing import Reply

SCREENS = os.environ.get("PENSTOCK_SCREENS")
UP, DOWN, CTRL_L, CTRL_O, CTRL_R, CTRL_V = "\x1b[A", "\x1b[B", "\x0c", "\x0f", "\x12", "\x16"
GIF = base64.b64decode("R0lGODlhAQABAAAAACw=")
MARKDOWN = """\
# Why it fails

The test reads `config.py` **before** it is written:

1. The fixture runs late.
2. The path is *relative*, as `/srv/a/very/long/path/that/does/not/fit/into/sixty/columns/at/all.py` shows.

```python
def path(name: str) -> str:
    return f"conf/{name}"
```

| file | lines |
|---|---|
| config.py | 12 |"""
LONG = "\n".join(f"- worker {i * 7} of order {48_000 + i * 13} wrote file_{i}.csv" for i in range(60))


def answer(received):
    """Answers by what the last message asks for."""
    last = received.messages[-1]
    content = last["content"]
    said = content if isinstance(content, str) else content[-1]["text"]
    if last["role"] == "tool":
        return f"It printed {len(said)} characters."
    for word, reply in (
        ("run: ", lambda rest: calling("Let me see.", "terminal", f'{{"command": "{rest}"}}')),
        (
            "write: ",
            lambda rest: calling("", "write_file", f'{{"path": "{rest}", "content": "one\\ntwo\\n"}}'),
        ),
        ("slowly", lambda _: Reply("slow " * 60, chunk_delay_seconds=0.1)),
        ("at length", lambda _: f"{LONG}\n\nThat was long."),
        ("in colours", lambda _: MARKDOWN),
        (
            "refuse",
            lambda _: Reply.failing(
                400, {"error": {"message": "no such thing", "type": "invalid_request_error"}}
            ),
        ),
        ("nothing", lambda _: ""),
    ):
        if word in said:
            return reply(said.partition(word)[2].partition("\n")[0])
    return f"Heard {len(said)} characters."


class Action(NamedTuple):
    """Keys, and what the screen shows then. `idle`: the prompt is empty and waits again."""

    what: str
    keys: tuple[Any, ...]
    shows: str
    idle: bool = True


def say(line, shows, what=""):
    return Action(what or line, (line, ENTER), shows)


def sixty(at):  # noqa: PLR0915 - sixty things are sixty lines
    """The actions. A function among the keys is called with the terminal; a tuple is a text to wait for."""
    shot = at.home / "my shot.gif"
    yield say("hello", r"Heard 5 characters\.")
    yield say("tell me in colours", r"config\.py +12")
    yield Action("a question", ("run: echo one; echo two", ENTER), r"allow this\?", idle=False)
    yield Action("yes", ("y",), r"It printed \d+")
    yield Action("Ctrl-O", (CTRL_O,), r"\n  one\n  two")
    yield Action("a question for the project", ("run: echo kept", ENTER), r"\[p\]roject", idle=False)
    yield Action("in this project", ("p",), r"allowed in this project")
    yield Action("the same again", ("run: echo kept", ENTER), r"✓ terminal echo kept.*\n+It printed \d+")
    yield say("/approvals", r"1  terminal\(echo kept\)")
    yield say("/approvals forget 1", r"will ask again before terminal")
    yield Action("a diff", ("write: a.txt", ENTER), r"\+two[^›]*allow this", idle=False)
    yield Action("no", (ESCAPE,), r"✗ write_file a\.txt")
    yield Action("half a word of a command", ("/se",), r"/search QUERY", idle=False)
    yield Action("Tab", (TAB, CTRL_C), r"")
    yield Action("a path", ("see @ord",), r"orders\.txt", idle=False)
    yield Action("Tab takes it", (TAB, " please", ENTER), r"✓ read_file orders\.txt → lines 1 to 1 of 1")
    yield Action(
        "a file elsewhere", ("read @/etc/hostname", ENTER), r"outside the working folder", idle=False
    )
    yield Action("which comes back to be changed", ("\x01", CTRL_C), r"")
    yield Action("a paste", ((lambda chat: chat.paste("one\n/help\nthree")), ENTER), r"Heard 15 characters")
    yield Action("lines", ("a", ALT_ENTER, "b\\", ENTER, "c", ENTER), r"Heard 5 characters")
    yield Action("slow", ("slowly now", ENTER, ("slow slow",)), r"writing +\d+ s, Ctrl-C stops", idle=False)
    yield Action("typed meanwhile", ("and this",), r"› and this\n", idle=False)
    yield Action("stopped", (CTRL_C,), r"stopped; the conversation is kept\n+› and this\n", idle=False)
    yield Action("sent after all", (ENTER,), r"Heard 8 characters")
    yield say("/context", r"compaction starts at")
    yield say("/usage", r"^model .*requests")
    yield say("/insights 7", r"the last 7 days")
    yield say("/insights never", r"is not a number of days")
    yield say("/history 3", r"assistant m\d+")
    yield say("/show m1", r"^m1 · user")
    yield say("/show m999", r"no original")
    yield say("/show", r"show what\?")
    yield say("/pin m1", r"m1 will be kept in full")
    yield say("/pin", r"pinned: m1")
    yield say("/unpin m1", r"m1 is no longer pinned")
    yield say("/unpin m1", r"m1 was not pinned", "/unpin of what is not pinned")
    yield say("tell me at length", r"That was long\.")
    yield say("and at length again", r"That was long\.")
    yield say("/compress the orders", r"compressed \d+ messages")
    yield say("/undo", r"undid the last")
    yield say("/search hello", r" m1( m\d+)*  20")
    yield say("/search", r"search for what\?")
    yield say("/modle", r"did you mean /model")
    yield say("/clear", r"did you mean /new")
    yield say("/model", r"gpt-4\.1 \(")
    yield say("/model gpt-4o", r"now gpt-4o")
    yield say("/new", r"new conversation; the previous one is kept")
    yield say("where are the pears?", r"Heard 20 characters")
    yield Action("/resume", ("/resume", ENTER), r"\(this one\) where are", idle=False)
    yield Action("filtered", ("hell",), r"filter: hell\n.*\n› .*hello", idle=False)
    yield Action("Esc leaves", (ESCAPE,), r"still in this conversation")
    yield Action("/sessions", ("/sessions", ENTER), r"[12] of 2 ·", idle=False)
    yield Action("the other one", (DOWN, DOWN, UP, DOWN, ENTER), r"you:    |answer:")
    yield Action("Up", (UP,), r"› /sessions", idle=False)
    yield Action("Ctrl-C clears it", (CTRL_C,), r"")
    yield Action("Ctrl-R", (CTRL_R, "pears"), r"where are the pears", idle=False)
    yield Action("given up", (CTRL_C,), r"")
    yield Action(
        "a dragged picture",
        ((lambda chat: chat.paste(str(shot).replace(" ", "\\ "))), "what?", ENTER),
        r"Heard \d+",
    )
    yield Action("no clipboard", (CTRL_V,), r"no picture in the clipboard")
    yield say("please refuse", r"no such thing")
    yield say("say nothing", r"say nothing\n+[^\n›]+")
    yield Action("narrow", ((lambda chat: chat.resize(44, 20)), "narrow", ENTER), r"Heard 6 characters")
    yield Action(
        "wide again", ((lambda chat: chat.resize(*at.size)), "as before", ENTER), r"Heard 9 characters"
    )
    yield Action("Ctrl-L", (CTRL_L, "a clear screen", ENTER), r"Heard 14 characters")
    yield say("/help", r"Ctrl-D exits")


@pytest.mark.parametrize(("columns", "rows"), [(60, 20), (100, 30)])
def test_sixty_actions_and_no_surprise(tmp_path, columns, rows):
    home = tmp_path / "home"
    for folder in (home, tmp_path / "work"):
        folder.mkdir()
    (tmp_path / "work" / "orders.txt").write_text("nineteen orders\n")
    (tmp_path / "my shot.gif").write_bytes(GIF)
    with stage(tmp_path, answer) as at:
        at.size = (columns, rows)
        with at.screen(columns=columns, rows=rows, HOME=str(home)) as chat:
            chat.wait_idle()
            done = 0
            for done, action in enumerate(sixty(at), start=1):
                perform(action, chat, done)
            assert done >= 60
            chat.type(CTRL_C, CTRL_D)
            assert chat.wait_end() == 0
            assert "to continue: penstock chat" in " ".join(chat.text.split())


def perform(action, chat, number):
    pattern = re.compile(action.shows, re.MULTILINE)
    before = len(pattern.findall(chat.everything))
    for key in action.keys:
        if callable(key):
            key(chat)
        elif isinstance(key, tuple):
            chat.wait(*key)
        else:
            chat.type(key)
    chat.wait_for(lambda: len(pattern.findall(chat.everything)) > before or not action.shows, f"{action}")
    if action.idle:
        chat.wait_idle()
    look_at(chat, action, number)


def look_at(chat, action, number):
    text = chat.text
    if SCREENS:
        file = Path(SCREENS) / f"{chat.screen.columns}x{chat.screen.lines}_{number:02}.txt"
        file.write_text(f"{action.what}\n{'=' * chat.screen.columns}\n{text}\n", encoding="utf-8")
    for wrong in ("Traceback", "Exception", "\\x1b", "[0m", "^C", "^["):
        assert wrong not in text, text
    gauges = re.findall(r"\d% of (?:1M|128k|1.05M)", text)
    assert len(gauges) <= 1, text  # nothing is left of a status line that was redrawn
    if action.idle:
        assert gauges, text
        assert re.search(r"\d% of [^\n]*\Z", text), text
        assert chat.screen.cursor.x == 2, text  # behind the mark of the prompt
