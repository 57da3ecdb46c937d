"""What commands look like on a terminal, line for line."""

from __future__ import annotations

import re

from tests.e2e.chat_stage import golden, stage

LONG = [
    "\n".join(f"- worker {i * 7} of order {48_000 + i * 13} wrote file_{n}_{i}.csv" for i in range(60))
    for n in range(3)
]


def counts_masked(text):
    """How long a system prompt is depends on the folder; bars and shares follow from it."""
    shown = re.sub(r", waited [\d.]+\ss", "", re.sub(r"[█▏▎▍▌▋▊▉]+", "█", text))
    shown = re.sub(r"(?<=compressed 6 messages: )[^;]+", "SO MANY", shown)
    shown = re.sub(r"\d[\d,.]*%", "N%", shown)
    shown = shown.replace(
        "at least $", "$"
    )  # where a preparation was broken off, as the machine's speed decides
    shown = re.sub(r"\b\d[\d,]*(?= +N%| tokens| of 32|\b(?= *→))", "N", shown)
    shown = re.sub(r"[━─]+┼[━─]*", "━━┼──", shown)
    return re.sub(r" {2,}(?=N)", "  ", shown)


def typed(chat, line, answer):
    chat.say(line)
    chat.wait(answer)
    chat.wait_idle()


def test_commands_on_a_terminal(tmp_path):
    with (
        stage(tmp_path, [*LONG, "no handoff"], repeat_last=True) as at,
        at.screen("--context-length", "32k", columns=80, rows=60) as chat,
    ):
        chat.wait_idle()
        for number in range(3):
            typed(chat, f"Part {number}?", f"file_{number}_59")
        chat.type("\x0c")  # Ctrl-L: a clear screen
        chat.wait_idle()
        typed(chat, "/help", "Ctrl-D exits")
        typed(chat, "/context", "assistant text")
        typed(chat, "/pin m1", "m1 will be kept in full")
        typed(chat, "/compress file_1_7.csv", "compressed 6 messages: ")
        typed(chat, "/undo", "undid the last compaction")
        typed(chat, "/modle", "did you mean /model")
        golden("commands", counts_masked(chat.text))
