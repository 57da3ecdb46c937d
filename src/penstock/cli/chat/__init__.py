"""`penstock chat`: an agent at a terminal, or one turn for a script.

`run` shows at once that something has begun, and imports the rest after that. Read `command` first, where a chat begins, and `state`, which holds its agent. Two programs run it: `terminal` talks with a
person, `script` answers once. At the terminal, `input` reads what is typed, `commands` carries out `/compress` and the
others, `view` shows a turn as it happens, with `markdown` for answers that are still being written. `lines` has the
texts that both print, `approval` asks for permission, `model` says which model answers.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.cli.screen import screen_of

if TYPE_CHECKING:
    import argparse

__all__ = ["is_interactive", "run"]


def run(args: argparse.Namespace) -> int:
    """Talks with a person, or answers once; returns the exit code. Raises what `command.run` raises."""
    if is_interactive(args.prompt):
        screen = screen_of(sys.stdout)
        screen.say(screen.paint(f"penstock {__version__}", "bold"))
        screen.stream.flush()
    from penstock.cli.chat import command  # noqa: PLC0415 - takes longer than a person should look at nothing

    return command.run(args)


def is_interactive(prompt: str | None) -> bool:
    """Tells a conversation from a script: no prompt was given, and a person is at both ends."""
    return (
        prompt is None
        and sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stdout is not None
        and sys.stdout.isatty()
    )
