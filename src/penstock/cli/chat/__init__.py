"""`penstock chat`: an agent at a terminal, or one turn for a script.

`run` shows at once that something has begun, and imports the rest after that. Read `command` first, where a chat begins,
and `state`, which holds its agent; `setup` is what is known before there is one. Two programs run it: `terminal` talks with a
person, `script` answers once. At the terminal, `input` reads what is typed, with `picker` for a list of conversations and
`clipboard` for pictures; `commands` carries out `/compress` and the others; `view` shows a turn as it happens, with `markdown`
for answers that are still being written; `resize` keeps all of it clean when the window changes. `lines` has the texts that
both programs print, `approval` asks for permission, `model` says which model answers.
"""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.cli.screen import screen_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["begin_collecting", "echo_typing", "is_interactive", "run"]


def run(args: argparse.Namespace) -> int:
    """Talks with a person, or answers once; returns the exit code. Raises what `command.run` raises."""
    person = is_interactive(args.prompt)
    # What is typed before the prompt is there is shown by it: the terminal itself would show it a first time.
    with echo_typing(on=False) if person else nullcontext():
        if person:
            screen = screen_of(sys.stdout)
            screen.say(screen.paint(f"penstock {__version__}", "bold"))
            screen.stream.flush()
        # Collections of garbage take a tenth of the start, and what is loaded stays: they begin when the chat does.
        gc.disable()
        try:
            from penstock.cli.chat import command  # noqa: PLC0415 - takes longer than a person should look at nothing

            return command.run(args)
        finally:
            gc.enable()


def begin_collecting() -> None:
    """Lets garbage be collected again, without a look through all that was loaded until now."""
    gc.freeze()
    gc.enable()


def is_interactive(prompt: str | None) -> bool:
    """Returns True for a conversation, False for a script: no prompt was given, and both ends are a terminal."""
    return (
        prompt is None
        and sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stdout is not None
        and sys.stdout.isatty()
    )


@contextmanager
def echo_typing(*, on: bool) -> Iterator[None]:
    """Turns the terminal's echo of typed text on or off until the end of the block."""
    try:
        import termios  # noqa: PLC0415 - not on every system

        descriptor = sys.stdin.fileno()
    except (ImportError, OSError):  # no terminals here, or none behind this stream
        yield
        return
    before, wished = termios.tcgetattr(descriptor), termios.tcgetattr(descriptor)
    wished[3] = wished[3] | termios.ECHO if on else wished[3] & ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, wished)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal went away
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
