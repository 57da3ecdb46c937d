"""What a person types in a chat: one input of one or many lines, with history and completion."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application.current import get_app
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Always, Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.styles import Style

from penstock.cli.chat.commands import COMMANDS
from penstock.config import colour_is_wanted, data_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import AnyFormattedText
    from prompt_toolkit.key_binding import KeyPressEvent

    from penstock.cli.chat.lines import Fragment

__all__ = ["CtrlC", "Line", "LineReader", "SlashCompleter", "history_file"]

_STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse",
        "prompt": "bold ansicyan",
        "dim": "dim",
        "bar": "ansicyan",
        "warn": "ansiyellow",
        "strong": "bold",
    }
)
_MENU_ROWS = 7
_FIRST_WORD = re.compile(r"/(\w*)")

Line = str


class CtrlC(Exception):
    """The person pressed Ctrl-C at an empty prompt. No KeyboardInterrupt: that would end the event loop."""


class SlashCompleter(Completer):
    """Completes commands, and after `/resume` the ids of conversations. `ids` gives ids and titles."""

    def __init__(self, ids: Callable[[], Sequence[tuple[str, str]]]) -> None:
        self._ids = ids

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """What may stand at the cursor."""
        del complete_event
        text = document.text_before_cursor
        word = _FIRST_WORD.fullmatch(text)
        if word:
            for command in COMMANDS.values():
                if command.name.startswith(word[1].lower()):
                    shown = f"/{command.name} {command.takes}".rstrip()
                    yield Completion(
                        f"/{command.name}", -len(text), display=shown, display_meta=command.about
                    )
            return
        name, blank, rest = text.partition(" ")
        if blank and name == "/resume":
            for session_id, title in self._ids():
                if session_id.startswith(rest):
                    yield Completion(session_id, -len(rest), display_meta=title)
        elif blank and name == "/compress" and rest and "here".startswith(rest):
            yield Completion(
                "here", -len(rest), display_meta="all but the last exchange; here 3: but the last three"
            )


class LineReader:
    """Reads inputs at a terminal. `status` gives the status line for so many columns.

    Signals are left to the host: while something is read, Ctrl-C is a key.
    """

    def __init__(
        self,
        status: Callable[[int], list[Fragment]],
        ids: Callable[[], Sequence[tuple[str, str]]],
        *,
        unicode: bool = True,
    ) -> None:
        self._status = status
        self._mark = "› " if unicode else "> "
        self._session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=SlashCompleter(ids),
            complete_while_typing=Condition(lambda: get_app().current_buffer.text.startswith("/")),
            complete_in_thread=True,
            reserve_space_for_menu=_MENU_ROWS,
            multiline=True,
            prompt_continuation=lambda _width, _line, _wrapped: "  ",
            key_bindings=_bindings(),
            bottom_toolbar=self._toolbar,
            style=_STYLE,
            color_depth=None if colour_is_wanted() else ColorDepth.DEPTH_1_BIT,
            enable_open_in_editor=True,
        )
        for window in self._session.layout.find_all_windows():
            window.dont_extend_height = Always()  # so that the status line stands right below the input

    async def read(self) -> Line:
        """The next input. Raises EOFError for Ctrl-D, CtrlC for that key where nothing was typed."""
        return await self._session.prompt_async([("class:prompt", self._mark)], handle_sigint=False)

    def redraw(self) -> None:
        """Show the status line anew; does nothing while nothing is read."""
        self._session.app.invalidate()

    async def key(self, question: str, keys: str) -> str:
        """One of these keys; Esc and Ctrl-C are the last of them. What was typed before the question does not count."""
        bindings = KeyBindings()

        def bind(pressed: str, meant: str) -> None:
            @bindings.add(pressed, eager=True)
            def _(event: KeyPressEvent) -> None:
                event.app.exit(result=meant)

        for key in keys:
            bind(key, key)
        for key in ("escape", "c-c", "c-d"):
            bind(key, keys[-1])

        @bindings.add("<any>")
        @bindings.add("enter")
        def _(event: KeyPressEvent) -> None:
            """Anything else is no answer."""

        asking: PromptSession[str] = PromptSession(
            key_bindings=bindings,
            style=_STYLE,
            color_depth=self._session.color_depth,
            erase_when_done=True,
        )
        clear_typeahead(asking.input)
        _forget_typed(asking.input.fileno())
        return await asking.prompt_async([("class:prompt", question)], handle_sigint=False)

    def _toolbar(self) -> AnyFormattedText:
        columns = get_app().output.get_size().columns
        return [(f"class:{one.look}", one.text) for one in self._status(columns - 1)]


def history_file(folder: Path) -> Path:
    """The file of inputs, which only its owner can read. Raises OSError where there can be none."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "chat_history"
    os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    path.chmod(0o600)
    return path


def _history() -> History:
    try:
        return FileHistory(str(history_file(data_folder())))
    except OSError:
        return (
            InMemoryHistory()
        )  # a home that cannot be written to: inputs are known as long as the chat lasts


def _forget_typed(descriptor: int) -> None:
    """Drop what was typed before a question was there to be read."""
    import termios  # noqa: PLC0415 - not on every system

    termios.tcflush(descriptor, termios.TCIFLUSH)


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        """Enter sends, but after a backslash, which breaks the line."""
        buffer: Any = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor(1)
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        """Alt-Enter breaks the line."""
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c")
    def _(event: KeyPressEvent) -> None:
        """Ctrl-C clears what was typed; where nothing was, the chat hears of it."""
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=CtrlC)

    return bindings
