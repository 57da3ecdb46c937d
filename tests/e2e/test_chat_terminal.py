"""The chat at a real pseudo-terminal, with a provider over real HTTP."""

from __future__ import annotations

import re

from tests.e2e.chat_screen import CTRL_D
from tests.e2e.chat_stage import golden, stage

from penstock.providers.exchange import Called
from penstock.testing import Reply

ANSWER = """\
# Why it fails

The test reads `config.py` **before** it is written:

1. The fixture runs late.
2. The path is *relative*.

```python
def path(name: str) -> str:
    return f"conf/{name}"
```

| file | lines |
|---|---|
| config.py | 12 |

That is **all**."""


def test_a_turn_with_tools_from_the_greeting_to_the_summary(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "config.py").write_text("x = 1\n" * 12)
    script = [
        Reply(
            "Let me look.",
            calls=(
                Called("c1", "terminal", '{"command": "echo one; sleep 0.3; echo two; sleep 0.5"}'),
                Called("c2", "read_file", '{"path": "config.py"}'),
            ),
        ),
        Reply(ANSWER, chunk_delay_seconds=0.01),
    ]
    with stage(tmp_path, script) as at, at.screen(columns=90, rows=40) as chat:
        chat.wait_idle()
        golden("greeting", chat.text)
        chat.say("Why does the test fail?")
        chat.wait("allow this")
        chat.type("y")
        chat.wait("\n  two")  # the command's own output, while it runs
        assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] terminal echo one", chat.text)
        assert "Ctrl-C stops" in chat.text
        chat.wait("That is all")
        chat.wait_idle()
        golden("turn", chat.text)
        assert b"\x1b[1" in chat.raw  # bold and colours
        chat.type(CTRL_D)
        assert chat.wait_end() == 0
        assert re.search(
            r"2 requests · [\d,]+ tokens in \(0 read from the cache\), \d+ out · cache hits 0% · "
            r"\$\d\.\d+ · 0 compactions to continue: penstock chat --store \S+( \S+)? --resume [0-9a-f]{8}",
            " ".join(chat.text.split()),
        )


def test_a_resize_in_a_turn_and_at_the_prompt_survives(tmp_path):
    text = "The quick brown fox jumps over the lazy dog again and again. " * 6
    with (
        stage(tmp_path, [Reply(text, chunk_delay_seconds=0.05), "Wide."]) as at,
        at.screen(columns=100) as chat,
    ):
        chat.wait_idle()
        chat.say("Tell me a story.")
        chat.wait("quick brown")
        chat.resize(50, 20)
        chat.wait_idle()
        after = chat.text.rpartition("story.")[2]
        assert max(map(len, after.splitlines())) <= 50
        chat.resize(120, 30)
        chat.wait_idle()
        chat.say("More.")
        chat.wait("Wide.")
        chat.wait_idle()
        assert chat.lines[[bool(line) for line in chat.lines].index(True)]


def test_no_colour_where_none_is_wanted_and_no_escapes_of_the_model(tmp_path):
    script = [f"before\x1b]0;title\x07\x1b[2J after\n\n{ANSWER}"]
    with stage(tmp_path, script) as at, at.screen(NO_COLOR="1", HOME="/nonexistent") as chat:
        chat.wait_idle()  # with a home that cannot be written to, too
        chat.say("Why?")
        chat.wait("That is all")
        chat.wait_idle()
        codes = set(re.findall(rb"\x1b\[([\d;]*)m", chat.raw))
        used = {int(code) for one in codes for code in one.split(b";") if code}
        assert not {code for code in used if 30 <= code <= 49 or 90 <= code <= 107}
        assert b"\x1b]0;" not in chat.raw
        assert "before" in chat.everything


def test_ascii_where_nothing_else_can_be_shown(tmp_path):
    with stage(tmp_path, ["Plain."]) as at, at.screen(PYTHONIOENCODING="ascii", LANG="C") as chat:
        chat.wait(r"> *\n.* of 1M")
        chat.say("Say it.")
        chat.wait("Plain.")
        chat.wait(r"Plain\.\n\n>\n.* of 1M")
        assert "#" in chat.lines[-1] + chat.text
        assert chat.text.isascii()


def test_the_window_that_a_server_lists_is_shown_before_anything_is_typed(tmp_path):
    listed = {"models": ("own-model",), "window_tokens": 24_000}
    with stage(tmp_path, ["Yes."], **listed) as at, at.screen("--model", "own-model") as chat:
        chat.wait("of 24k")
        chat.say("Are you there?")
        chat.wait("Yes.")
        chat.wait_idle()
        chat.type(CTRL_D)
        assert chat.wait_end() == 0
