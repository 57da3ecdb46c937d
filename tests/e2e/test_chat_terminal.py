"""The chat at a real pseudo-terminal, with a provider over real HTTP."""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path

from tests.e2e.chat_screen import ALT_ENTER, CTRL_C, CTRL_D, ENTER, ESCAPE, TAB
from tests.e2e.chat_stage import stage

from penstock.providers.exchange import Called
from penstock.testing import Reply

GOLDEN = Path(__file__).parent / "golden"

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


def golden(name, text):
    """Times, sums and folders differ from run to run; the rest may not."""
    shown = re.sub(r"\$0\.\d{4}", "$0.NNNN", text)
    shown = re.sub(r"\b\d+(\.\d)? s\b", "N s", shown)
    shown = re.sub(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋", shown)
    shown = re.sub(r"^in /.*$", "in FOLDER", shown, flags=re.MULTILINE)
    shown = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "YYYY-MM-DD HH:MM", shown)
    shown = re.sub(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{8}\b", "IDIDIDID", shown)
    shown = re.sub(r"penstock \d+\.\d+\.\S+", "penstock V", shown)
    path = GOLDEN / f"chat_{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(shown + "\n", encoding="utf-8")
    assert shown + "\n" == path.read_text(encoding="utf-8")


def calling(text, name, arguments):
    return Reply(text, calls=(Called("call_1", name, arguments),))


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
        chat.wait("allow it")
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
            r"\$\d\.\d+ · 0 compactions go on with: penstock chat --resume [0-9a-f]{8}",
            " ".join(chat.text.split()),
        )


def test_ctrl_c_stops_the_turn_keeps_the_conversation_and_twice_leaves(tmp_path):
    script = [Reply("word " * 400, chunk_delay_seconds=0.1), "I was interrupted, and go on."]
    with stage(tmp_path, script) as at, at.screen() as chat:
        chat.wait_idle()
        chat.say("Count.")
        chat.wait("word word")
        chat.type(CTRL_C)
        chat.wait("stopped; the conversation is kept")
        chat.wait_idle()
        chat.say("Go on.")
        chat.wait("and go on")
        chat.wait_idle()
        said = at.server.received[-1].body["messages"]
        assert [one["role"] for one in said[-3:]] == ["user", "assistant", "user"]
        assert "[interrupted by the user]" in said[-2]["content"]
        chat.type("half a thought", CTRL_C)  # clears what was typed
        chat.wait_idle()
        chat.type(CTRL_C)
        chat.wait("Ctrl-C again, or Ctrl-D, leaves")
        assert chat.process.poll() is None
        chat.type(CTRL_C)
        assert chat.wait_end() == 0


def test_ctrl_c_ends_a_running_command_and_every_call_has_its_result(tmp_path):
    script = [calling("", "terminal", '{"command": "echo begun; sleep 60"}'), "Fine."]
    with stage(tmp_path, script) as at, at.screen("--yes") as chat:
        chat.wait_idle()
        chat.say("Wait a minute.")
        chat.wait("begun")
        started = time.monotonic()
        chat.type(CTRL_C)
        chat.wait("stopped; the conversation")
        assert time.monotonic() - started < 5
        assert "✗ terminal" in chat.text
        chat.wait_idle()
        chat.say("And now?")
        chat.wait("Fine.")  # the provider checks that the call has a result


def test_paste_stays_one_input_and_lines_can_be_broken(tmp_path):
    with stage(tmp_path, ["One.", "Two."]) as at, at.screen() as chat:
        chat.wait_idle()
        chat.paste("first line\n/help\nthird line")
        chat.wait("third line")
        chat.type(ENTER)
        chat.wait("One.")
        chat.wait_idle()
        assert at.server.received[0].body["messages"][-1]["content"] == "first line\n/help\nthird line"
        chat.type("a", ALT_ENTER, "b\\", ENTER, "c", ENTER)
        chat.wait("Two.")
        assert at.server.received[1].body["messages"][-1]["content"] == "a\nb\nc"


def test_what_is_typed_during_a_turn_waits_for_its_end(tmp_path):
    with (
        stage(tmp_path, [Reply("slow " * 20, chunk_delay_seconds=0.1), "Second."]) as at,
        at.screen() as chat,
    ):
        chat.wait_idle()
        chat.say("first")
        chat.wait("slow slow")
        chat.say("typed ahead")
        chat.wait("Second.")
        assert at.server.received[1].body["messages"][-1]["content"] == "typed ahead"
        assert chat.everything.count("typed ahead") == 1  # it did not show while the answer was written


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


def test_a_difference_is_shown_before_it_is_written_and_no_means_no(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("one\ntwo\nthree\n")
    patch = '{"path": "a.txt", "old": "two", "new": "TWO\\u202e\\u001b[2J"}'
    script = [
        calling("", "patch", patch),
        calling("", "terminal", '{"command": "echo again"}'),
        calling("", "terminal", '{"command": "echo again"}'),
        "Done.",
    ]
    with stage(tmp_path, script) as at, at.screen() as chat:
        chat.wait_idle()
        chat.say("Change it.")
        chat.wait("allow it")
        assert "patch wants to write:" in chat.text
        assert "│ -two" in chat.text
        assert "│ +TWO\\u202e\\x1b[2J" in chat.text  # nothing that moves the cursor or turns the text around
        chat.type("x", ENTER)  # neither is an answer
        chat.type(ESCAPE)
        chat.wait("✗ patch a.txt → refused: the user said no")
        chat.wait("echo again\nallow it")
        chat.type("a")
        chat.wait("Done.")
        chat.wait_idle()
        assert chat.everything.count("wants to run") == 1  # the second time it is the same
        assert chat.everything.count("✓ terminal echo again") == 2
        assert (tmp_path / "work" / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_typed_before_the_question_is_no_answer(tmp_path):
    script = [
        Reply("", calls=(Called("c", "terminal", '{"command": "touch made"}'),), delay_seconds=1.0),
        "Ok.",
    ]
    with stage(tmp_path, script) as at, at.screen() as chat:
        chat.wait_idle()
        chat.say("Go.")
        chat.wait("waiting for the model")
        chat.type("yyyy")
        chat.wait("allow it")
        time.sleep(0.3)
        assert not (at.work / "made").exists()
        chat.type("n")
        chat.wait("Ok.")


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


def test_history_is_private_and_comes_back(tmp_path):
    with stage(tmp_path, ["One."]) as at:
        with at.screen() as chat:
            chat.wait_idle()
            chat.say("remember these words")
            chat.wait("One.")
            chat.wait_idle()
            chat.type(CTRL_D)
            chat.wait_end()
        history = tmp_path / ".local" / "share" / "penstock" / "chat_history"
        assert stat.S_IMODE(history.stat().st_mode) == 0o600
        with at.screen() as chat:
            chat.wait_idle()
            chat.type("\x1b[A")
            chat.wait("› remember these words")
            chat.type(CTRL_C)
            chat.type("/se", TAB)
            chat.wait(r"/search QUERY +search everything")
            chat.wait(r"/sessions +list conversations")
