"""Reads what is typed in a chat: inputs of one or more lines, with history and completion."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, run_in_terminal
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Always, Condition, has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead, get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.styles import Style

from penstock.cli.chat.commands import COMMANDS
from penstock.config import data_folder, wants_colour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import AnyFormattedText
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.key_binding.key_processor import KeyPress

    from penstock.cli.chat.lines import StatusFragment

__all__ = ["CtrlC", "LineReader", "SlashCompleter", "TypeAhead", "make_history_file"]

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
_ENTERS = (Keys.ControlM, Keys.ControlJ)
_FIRST_WORD = re.compile(r"/(\w*)")


class CtrlC(Exception):
    """Ctrl-C was pressed at an empty prompt. Not a KeyboardInterrupt, which would end the event loop."""


class SlashCompleter(Completer):
    """Completes commands, and after `/resume` the ids of conversations. `ids` returns ids and titles."""

    def __init__(self, ids: Callable[[], Sequence[tuple[str, str]]]) -> None:
        self._ids = ids

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yields what may stand at the cursor."""
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
                "here", -len(rest), display_meta="all but the last exchange; here 3: all but the last three"
            )


class TypeAhead:
    """Collects the keys that are pressed while a turn goes on, for the prompt after it."""

    def __init__(self, source: Input) -> None:
        self._source = source
        self._keys: list[KeyPress] = []
        self._attached: AbstractContextManager[None] | None = None

    @property
    def text(self) -> str:
        """The text that the keys make; an Enter ends a line."""
        text = ""
        for press in self._keys:
            if press.key in _ENTERS:
                text += "\n"
            elif press.key == Keys.ControlH:
                text = text[:-1]
            elif press.key == Keys.ControlU:
                text = text[: text.rfind("\n") + 1]
            elif press.key == Keys.BracketedPaste or not isinstance(press.key, Keys):
                text += press.data.replace("\r", "\n")
        return text

    def start(self) -> None:
        """Begins to collect, with the keys that the last prompt has left over."""
        if self._attached is None:
            self._keys += get_typeahead(self._source)
            self._attached = self._source.attach(self._collect)
            self._attached.__enter__()

    def pause(self) -> None:
        """Leaves the keys to others, until `start`."""
        if self._attached is not None:
            self._attached.__exit__(None, None, None)
            self._attached = None

    def hand_over(self) -> None:
        """Ends, and has the next prompt take the keys as if they were pressed there."""
        self.pause()
        store_typeahead(self._source, [*self._keys, *self._source.flush_keys()])
        self._keys.clear()

    def take_text(self) -> str:
        """Ends, and returns the text for a person to look at, who has stopped what went on: it is not sent."""
        if self._attached is not None:
            self._collect()  # the keys right before Ctrl-C
        self.pause()
        text = self.text.strip("\n")
        self._keys.clear()
        return text

    def _collect(self) -> None:
        self._keys += self._source.read_keys()
        if self._source.closed:
            self.pause()


class LineReader:
    """Reads inputs at a terminal. `status` returns the status line for a number of columns, `unfold` prints for Ctrl-O.

    Signals are left to the chat: while something is read, Ctrl-C is a key.
    """

    def __init__(
        self,
        status: Callable[[int], list[StatusFragment]],
        ids: Callable[[], Sequence[tuple[str, str]]],
        unfold: Callable[[], None],
        *,
        unicode: bool = True,
    ) -> None:
        self._status = status
        self._mark = "› " if unicode else "> "
        self._session: PromptSession[str] = PromptSession(
            history=_open_history(),
            completer=SlashCompleter(ids),
            complete_while_typing=Condition(lambda: get_app().current_buffer.text.startswith("/")),
            complete_in_thread=True,
            reserve_space_for_menu=_MENU_ROWS,
            multiline=True,
            prompt_continuation=lambda _width, _line, _wrapped: "  ",
            key_bindings=_bind_keys(unfold),
            bottom_toolbar=self._toolbar,
            style=_STYLE,
            color_depth=None if wants_colour() else ColorDepth.DEPTH_1_BIT,
            enable_open_in_editor=True,
        )
        self.ahead = TypeAhead(self._session.input)
        self.draft = ""  # stands in the next prompt
        for window in self._session.layout.find_all_windows():
            window.dont_extend_height = Always()  # the status line stands right below the input

    async def read(self) -> str:
        """Returns the next input. Raises EOFError for Ctrl-D, CtrlC for that key where nothing was typed."""
        draft, self.draft = self.draft, ""
        return await self._session.prompt_async(
            [("class:prompt", self._mark)], default=draft, handle_sigint=False
        )

    def redraw(self) -> None:
        """Redraws the status line; does nothing while nothing is read."""
        self._session.app.invalidate()

    async def read_key(self, question: str, keys: str) -> str:
        """Returns one of these keys; Esc and Ctrl-C mean the last of them. Keys pressed before the question do not count."""
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
            """Ignores any other key."""

        asking: PromptSession[str] = PromptSession(
            key_bindings=bindings,
            style=_STYLE,
            color_depth=self._session.color_depth,
            erase_when_done=True,
        )
        clear_typeahead(asking.input)
        _discard_typed(asking.input.fileno())
        return await asking.prompt_async([("class:prompt", question)], handle_sigint=False)

    def _toolbar(self) -> AnyFormattedText:
        columns = get_app().output.get_size().columns
        return [(f"class:{one.look}", one.text) for one in self._status(columns - 1)]


def make_history_file(folder: Path) -> Path:
    """Returns the history file, created for its owner alone. Raises OSError where it cannot be created."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "chat_history"
    os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    path.chmod(0o600)
    return path


def _open_history() -> History:
    try:
        return FileHistory(str(make_history_file(data_folder())))
    except OSError:
        return InMemoryHistory()  # the home folder is read-only: inputs are kept for this chat


def _discard_typed(descriptor: int) -> None:
    """Discards keys that were pressed before the question was shown."""
    import termios  # noqa: PLC0415 - not on every system

    termios.tcflush(descriptor, termios.TCIFLUSH)


def _bind_keys(unfold: Callable[[], None]) -> KeyBindings:
    """Returns the keys of the input itself. While the history is searched, prompt_toolkit's own hold."""
    bindings = KeyBindings()
    typing = has_focus(DEFAULT_BUFFER)

    @bindings.add("enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        """Enter sends; after a backslash it adds a line."""
        buffer: Any = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor(1)
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        """Alt-Enter adds a line."""
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c", filter=typing)
    def _(event: KeyPressEvent) -> None:
        """Ctrl-C clears what was typed; where nothing was, it goes to the chat."""
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=CtrlC)

    @bindings.add("c-o", filter=typing)
    def _(_event: KeyPressEvent) -> None:
        """Ctrl-O shows all that a command has printed, above the prompt."""
        run_in_terminal(unfold)

    return bindings
