"""What a chat shows: answers block by block, the status line, lines about tools, compactions and permissions."""

from __future__ import annotations

import io

import msgspec
import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from penstock.accounts.display import shorten_count
from penstock.accounts.spending import Spending
from penstock.accounts.status import Status
from penstock.cli.chat.approval import permission_lines
from penstock.cli.chat.lines import (
    StatusFragment,
    compaction_lines,
    status_line,
    strip_controls,
    tool_line,
    turn_end_line,
)
from penstock.cli.chat.markdown import AnswerMarkdown, markdown
from penstock.cli.chat.view import TurnView
from penstock.cli.screen import Screen, width_of
from penstock.loop.approvals import Access, Permission
from penstock.loop.events import (
    Asked,
    Compacted,
    Compacting,
    Noticed,
    Recovering,
    Said,
    Thought,
    ToolEnded,
    ToolLine,
    ToolStarted,
    TurnEnded,
)
from penstock.measure.usage import Usage
from penstock.planning.receipt import Receipt

STATUS = Status(
    session_id="s",
    model="claude-sonnet-4-5",
    prompt_tokens=62_000,
    window_tokens=200_000,
    threshold_tokens=100_000,
    spending=Spending(9, Usage(input_tokens=13, cache_read_tokens=87), 0.1234),
    compactions=2,
    caching="",
)
RECEIPT = Receipt(
    outcome="compacted",
    tokens_before=9_000,
    tokens_after=4_500,
    messages_before=40,
    messages_after=12,
    target_tokens=5_000,
    kept=11,
    elided=3,
    summarised=26,
)


def text_of(fragments):
    return "".join(one.text for one in fragments)


TEXT = """\
# Title
Paragraph one
goes on.

- a

- b
  more of b

```sh
echo one

echo two
```
| a | b |
|---|---|
| 1 | 2 |

Last."""


@given(st.lists(st.integers(1, 20), max_size=60))
def test_an_answer_in_any_pieces_gives_the_same_blocks(sizes):
    answer, at, blocks = AnswerMarkdown(), 0, []
    for size in sizes:
        answer.add(TEXT[at : at + size])
        at += size
        blocks += answer.take_final()
    answer.add(TEXT[at:])
    blocks += answer.take_all()
    whole = AnswerMarkdown()
    whole.add(TEXT)
    assert blocks == whole.take_all()
    assert "\n".join(blocks) == TEXT
    assert answer.show_waiting(100) == ""


def test_a_fence_that_is_not_closed_waits():
    answer = AnswerMarkdown()
    answer.add("Before.\n\n```python\nx = 1\n\ny = 2\n")
    assert answer.take_final() == ["Before.\n"]
    assert answer.show_waiting(100).startswith("```python")
    assert answer.show_waiting(3) == "```python\n\ny = 2\n"


def test_what_drives_a_terminal_is_dropped():
    assert strip_controls("a\x1b[2Jb\x07\r\x9bc\n\td") == "a[2Jbc\n\td"


def test_code_can_be_copied_and_headings_stand_left():
    console = Console(file=io.StringIO(), width=40, color_system=None)
    console.print(markdown("# Head\n\n```\nmake test\n```\n\nUse `x`."))
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines == ["Head", "", "  make test", "", "Use x."]


def test_the_status_line():
    line = status_line(STATUS, 100)
    assert text_of(line) == (
        "claude-sonnet-4-5  ·  ━━━━━───┼─────── 31% of 200k  ·  $0.1234  ·  cache 87%  ·  2 compactions"
    )
    near = msgspec.structs.replace(STATUS, prompt_tokens=90_000)
    assert StatusFragment("warn", "━━━━━━━") in status_line(near, 100)
    assert text_of(status_line(STATUS, 100, unicode=False)).isascii()
    unknown = msgspec.structs.replace(STATUS, spending=Spending(9, Usage(), None), compactions=0)
    assert text_of(status_line(unknown, 100)).endswith("200k  ·  cost unknown")


@pytest.mark.parametrize("columns", [8, 20, 40, 60, 80, 200])
def test_the_status_line_fits_any_terminal(columns):
    assert width_of(text_of(status_line(STATUS, columns))) <= columns


def test_the_gauge_is_the_last_to_go():
    texts = [text_of(status_line(STATUS, columns)) for columns in range(4, 120)]
    assert all("31%" in text for text in texts)
    assert all("31% of 200k" in text for text in texts[8:])
    whole = [text for text in texts if "claude-sonnet-4-5" in text]
    assert all("━" in text for text in whole)  # the name of the model goes before the bar does
    assert "━" in text_of(status_line(STATUS, 30))


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (9_999, "9,999"), (32_000, "32k"), (1_000_000, "1M"), (1_048_576, "1.05M")]
)
def test_tokens_in_few_characters(count, text):
    assert shorten_count(count) == text


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_a_tool_in_one_line(columns):
    ended = ToolEnded("c", "terminal", "exit code 1, 47 lines", is_error=True, seconds=3.21)
    line = text_of(tool_line(ended, "npm test -- --watch=false --reporter " + "x" * 80, columns))
    assert line.startswith("✗ terminal")
    assert line.endswith("  3.2 s")
    assert width_of(line) <= columns
    quick = ToolEnded("c", "read_file", "12 lines", is_error=False, seconds=0.001)
    assert text_of(tool_line(quick, "a\n.py", 80)) == "✓ read_file a\\n.py → 12 lines"
    why = "link.txt is outside the working folder; file tools work in it"
    short = ToolEnded("c", "read_file", why, is_error=True, seconds=0.001)
    assert why in text_of(tool_line(short, "link.txt", 100))  # half the line is not left empty
    timed = ToolEnded("c", "terminal", "exit code 0, 1.2 s", is_error=False, seconds=1.4)
    assert text_of(tool_line(timed, "make", 80)) == "✓ terminal make → exit code 0, 1.2 s"


def test_what_is_said_of_a_compaction():
    by_hand = Compacted(RECEIPT, "asked for by hand", 1.26)
    assert compaction_lines(by_hand, waited=True) == [
        "compressed 40 messages: 26 summarised, 3 shortened, 11 kept; 9,000 → 4,500 tokens (50% of before), waited 1.3 s"
    ]
    prepared = Compacted(RECEIPT, "27,300 tokens have reached the threshold of 27,200", 0.0)
    assert compaction_lines(prepared, waited=False) == [
        (
            "compressed 40 messages: 26 summarised, 3 shortened, 11 kept; 9,000 → 4,500 tokens (50% of before), "
            "prepared in the background"
        ),
        "  why now: 27,300 tokens have reached the threshold of 27,200",
    ]
    in_place = msgspec.structs.replace(RECEIPT, messages_after=40, kept=31, elided=9, summarised=0)
    assert compaction_lines(Compacted(in_place, "asked for by hand", 0.0), waited=True) == [
        "compressed 40 messages: 9 shortened, 31 kept; 9,000 → 4,500 tokens (50% of before)"
    ]
    worse = msgspec.structs.replace(RECEIPT, outcome="degraded", reason="no model answered")
    assert compaction_lines(Compacted(worse, "asked for by hand", 0.0), waited=True)[1:] == [
        "  degraded: no model answered"
    ]
    odd = msgspec.structs.replace(RECEIPT, tokens_after=9_900)
    assert compaction_lines(Compacted(odd, "asked for by hand", 0.0), waited=True)[1:] == [
        "  fewer messages but more tokens: the handoff is longer than what it replaced"
    ]


def test_how_turns_end():
    assert turn_end_line(TurnEnded("done", 1, 1.0)) == ""
    assert "kept" in turn_end_line(TurnEnded("interrupted", 1, 1.0))
    assert turn_end_line(TurnEnded("steps", 1, 1.0, "the limit")) == "the limit; type 'continue' to go on"
    assert turn_end_line(TurnEnded("failed", 1, 1.0, "429\x1b[2J")) == "429\\x1b[2J"
    passing = TurnEnded("failed", 1, 1.0, "overloaded", may_pass=True)
    assert turn_end_line(passing) == "overloaded; type 'continue' to try again"
    resume = "penstock chat --resume 5930795f"
    assert turn_end_line(passing, resume) == f"overloaded; to try again: {resume} -p continue"


def test_what_is_asked_shows_all_of_it_and_nothing_else():
    screen = Screen(io.StringIO())
    run = Permission(
        tool="terminal", access=Access.RUN, subject="echo a\nrm -r b\x1b[1A", why="it is far away"
    )
    assert permission_lines(run, screen, 10) == [
        "terminal wants to run, it is far away:",
        "  │ echo a",
        "  │ rm -r b\\x1b[1A",
    ]
    detail = "\n".join(["--- a", "+++ b", "@@ -1 +1 @@", *(f"+{n}" for n in range(50))])
    write = Permission(tool="patch", access=Access.WRITE, subject="a.txt", detail=detail)
    lines = permission_lines(write, screen, 10)
    assert lines[0] == "patch wants to write:"
    assert len(lines) == 13
    assert lines[-1] == "  │ … 43 more lines"
    assert "\x1b[32m+0" in "".join(permission_lines(write, screen._replace(colour=True), 10))


def shown(events):
    """What stays on the screen of a turn with these events."""
    console = Console(file=io.StringIO(), width=60, color_system=None, force_terminal=False)
    view = TurnView(console, lambda columns: status_line(STATUS, columns))
    view.start("waiting for the model")
    for event in events:
        view(event)
        view.tick()
    view.stop()
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_command_that_failed_shows_its_last_lines_and_any_can_be_unfolded():
    console = Console(file=io.StringIO(), width=60, color_system=None, force_terminal=False)
    view = TurnView(console, lambda columns: status_line(STATUS, columns))
    assert view.unfold() == ["no command has run yet"]
    for call, failed in (("a", False), ("b", True)):
        view(ToolStarted(call, "terminal", f"make {call}"))
        for n in range(30):
            view(ToolLine(call, f"{call} line {n}\x1b[2J"))
        view(ToolEnded(call, "terminal", "exit code 0", is_error=failed, seconds=0.0))
    view(ToolStarted("c", "read_file", "a.py"))  # has no lines to unfold
    view(ToolEnded("c", "read_file", "12 lines", is_error=False, seconds=0.0))
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines == [
        "✓ terminal make a → exit code 0",
        "✗ terminal make b → exit code 0",
        *(f"  b line {n}[2J" for n in range(25, 30)),
        "✓ read_file a.py → 12 lines",
    ]
    assert view.unfold() == ["terminal make b", *(f"  b line {n}[2J" for n in range(30))]
    assert view.unfold()[0] == "terminal make a"
    assert view.unfold() == ["no earlier command; Ctrl-O starts again with the last one"]
    assert view.unfold()[0] == "terminal make b"


@given(st.lists(st.booleans(), max_size=8))
def test_notices_never_fall_into_the_middle_of_an_answer(noticed):
    answer = "".join(f"Paragraph {n} of the answer.\n\n" for n in range(8))
    pieces = [answer[at : at + 30] for at in range(0, len(answer), 30)]
    told = []
    for at, piece in enumerate(pieces):
        told.append(Said(piece))
        if at < len(noticed) and noticed[at]:
            told.append(Noticed("warn", f"notice {at}"))
    lines = [line for line in shown([*told, TurnEnded("done", 1, 1.0)]) if line]
    assert lines == [
        *(f"Paragraph {n} of the answer." for n in range(8)),
        *(f"notice {at}" for at, one in enumerate(noticed) if one),
    ]


def test_what_is_typed_during_a_turn_is_shown_below_it():
    console = Console(file=io.StringIO(), width=30, height=20, color_system=None, force_terminal=True)
    typed = "one\ntwo\nthree\n" + "x" * 40 + "the end\x1b[2J"
    view = TurnView(console, lambda columns: status_line(STATUS, columns), lambda: typed)
    view.start("waiting for the model")
    lines = console.file.getvalue().splitlines()
    view.stop()
    assert [line.rstrip() for line in lines if line.startswith("› ")] == [
        "› two",
        "› three",
        "› xxxxxxxxxxxxxthe end\\x1b[2J",
    ]


def test_a_turn_that_needs_everything():
    lines = shown(
        [
            Asked(1, 100, 1_000),
            Thought("Hm."),
            Said("I look."),
            ToolStarted("c", "terminal", "make"),
            ToolLine("c", "building"),
            ToolEnded("c", "terminal", "exit code 0", is_error=False, seconds=0.0),
            Recovering("prompt too long", "compacting to 500 tokens, then asking again"),
            Compacting("it was refused"),
            Compacted(RECEIPT, "it was refused", 0.0),
            Noticed("log", "never shown"),
            Noticed("warn", "42,500 of 50,000 tokens"),
            Asked(2, 100, 1_000),
            Said("Done: *it*\n\nwas late."),
            TurnEnded("done", 2, 1.0),
        ]
    )
    assert [line for line in lines if line] == [
        "I look.",
        "✓ terminal make → exit code 0",
        "prompt too long: compacting to 500 tokens, then asking again",
        "compressed 40 messages: 26 summarised, 3 shortened, 11 kept;",
        "  9,000 → 4,500 tokens (50% of before)",
        "  why now: it was refused",
        "42,500 of 50,000 tokens",
        "Done: it",
        "was late.",
    ]


def test_a_tool_that_was_running_when_the_turn_was_stopped():
    lines = shown([ToolStarted("c", "terminal", "sleep 60"), TurnEnded("interrupted", 1, 1.0)])
    assert [line for line in lines if line] == [
        "✗ terminal sleep 60 → stopped",
        "stopped; the conversation is kept",
    ]


@pytest.mark.parametrize("words", [40, 400, 1_500])
def test_the_end_of_an_answer_stays_on_the_screen_when_the_turn_is_over(words):
    """What was drawn while it was written must not be scrolled away with it: a person was left with a blank screen."""
    out = io.StringIO()
    console = Console(file=out, width=100, height=30, force_terminal=True, legacy_windows=False)
    view = TurnView(console, lambda columns: status_line(STATUS, columns))
    view.start("waiting for the model")
    for at in range(words):
        view(Said(text=f"word{at} "))
        if at % 20 == 0:
            view.tick()
    view(TurnEnded("done", 1, 1.0))
    screen = pyte.Screen(100, 30)
    pyte.Stream(screen).feed(out.getvalue().replace("\n", "\r\n"))
    shown = [line.rstrip() for line in screen.display]
    last = max(at for at, line in enumerate(shown) if line)
    assert shown[last].endswith(f"word{words - 1}")
    # The lines below an answer take their rows with them: what goes on, a blank one, the status.
    assert last >= min(24, words // 14), "rows above the prompt are empty though the answer would fill them"
    assert all(shown[at] for at in range(last)), "the answer has gaps"
