"""Reads what is typed in a chat: inputs of one or more lines, with history and completion."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, run_in_terminal
from prompt_toolkit.completion import Completer, Completion, ConditionalCompleter
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Always, Condition, has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead, get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from penstock.agent.attachments import find_dragged, name_mention
from penstock.cli.chat.clipboard import NO_PICTURE, save_clipboard_picture
from penstock.cli.chat.resize import redraw_cleanly
from penstock.config import data_folder, wants_colour

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import AnyFormattedText
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.key_binding.key_processor import KeyPress
    from prompt_toolkit.output import Output

    from penstock.cli.chat.lines import StatusFragment
    from penstock.cli.chat.picker import ConversationList

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
_MARK = "› "
_ENTERS = (Keys.ControlM, Keys.ControlJ)
_FIRST_WORD = re.compile(r"/(\w*)")
_MENTIONED = re.compile(r"""(?<![^\s(\[{"'`])@"?((?<=")[^"\n]*|[^\s"]*)$""")


class CtrlC(Exception):
    """Ctrl-C was pressed at an empty prompt. Not a KeyboardInterrupt, which would end the event loop."""


class SlashCompleter(Completer):
    """Completes commands, after `/resume` the ids of conversations, and after `@` paths.

    `ids` returns ids and titles, `paths` the completions of a path.
    """

    def __init__(
        self,
        ids: Callable[[], Sequence[tuple[str, str]]],
        paths: Callable[[str], Sequence[str]] = lambda _begun: (),
    ) -> None:
        self._ids = ids
        self._paths = paths

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yields the completions at the cursor."""
        del complete_event
        text = document.text_before_cursor
        if mention := _MENTIONED.search(document.current_line_before_cursor):
            yield from self._complete_mention(mention)
            return
        word = _FIRST_WORD.fullmatch(text)
        if word:
            from penstock.cli.chat.commands import COMMANDS  # noqa: PLC0415 - loaded behind the prompt

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

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yields the same. Paths are searched in a thread, so that a large folder does not delay typing."""
        mention = _MENTIONED.search(document.current_line_before_cursor)
        found: Iterable[Completion] = (
            self.get_completions(document, complete_event)
            if mention is None
            else await asyncio.to_thread(self._complete_mention, mention)
        )
        for one in found:
            yield one

    def _complete_mention(self, mention: re.Match[str]) -> list[Completion]:
        return [
            Completion(_name_begun(path), -len(mention[0]), display=path) for path in self._paths(mention[1])
        ]


def _name_begun(path: str) -> str:
    """Returns the mention of a path; one of a folder can be continued."""
    name = name_mention(path)
    return name.removesuffix('"') if path.endswith("/") else name


class TypeAhead:
    """Collects the keys that are pressed while a turn goes on, for the prompt after it.

    Meanwhile the terminal marks pastes, as it does at a prompt, so that line breaks in them are not taken for Enter.
    """

    def __init__(self, source: Input, terminal: Output) -> None:
        self._source = source
        self._terminal = terminal
        self._keys: list[KeyPress] = []
        self._attached: AbstractContextManager[None] | None = None

    @property
    def text(self) -> str:
        """The text typed so far; Enter ends a line."""
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
        """Starts collecting, beginning with the keys that the last prompt left over."""
        if self._attached is None:
            self._keys += get_typeahead(self._source)
            self._attached = self._source.attach(self._collect)
            self._attached.__enter__()
            self._terminal.enable_bracketed_paste()
            self._terminal.flush()

    def pause(self) -> None:
        """Leaves the keys to others until `start`."""
        if self._attached is not None:
            self._attached.__exit__(None, None, None)
            self._attached = None

    def hand_over(self) -> None:
        """Stops collecting, and passes the keys to the next prompt as if they were pressed there."""
        self.pause()
        store_typeahead(self._source, [*self._keys, *self._source.flush_keys()])
        self._keys.clear()

    def take_text(self) -> str:
        """Stops collecting, and returns the text to be edited: the person has interrupted, so it is not sent."""
        if self._attached is not None:
            self._collect()  # the keys right before Ctrl-C
        self.pause()
        text = self.text.strip("\n")
        self._keys.clear()
        return text

    def close(self) -> None:
        """Restores how the terminal passes on pastes."""
        self.pause()
        self._terminal.disable_bracketed_paste()
        self._terminal.flush()

    def _collect(self) -> None:
        self._keys += self._source.read_keys()
        if self._source.closed:
            self.pause()


class LineReader:
    """Reads inputs at a terminal. `status` returns the status line for a number of columns, `unfold` prints for Ctrl-O.

    Signals are left to the chat: while something is read, Ctrl-C is a key. Nothing is completed before `is_ready` says so: what is
    needed for that is still being loaded, by another thread.
    """

    def __init__(
        self,
        status: Callable[[int], list[StatusFragment]],
        ids: Callable[[], Sequence[tuple[str, str]]],
        unfold: Callable[[], None],
        *,
        paths: Callable[[str], Sequence[str]] = lambda _begun: (),
        is_ready: Callable[[], bool] = lambda: True,
        unicode: bool = True,
    ) -> None:
        self._status = status
        self.is_ready = is_ready
        ready = Condition(is_ready)
        self.dragged: set[str] = set()  # pictures that were put here by hand, wherever they are
        self._mark = _MARK if unicode else "> "
        self._session: PromptSession[str] = PromptSession(
            history=_open_history(),
            completer=ConditionalCompleter(SlashCompleter(ids, paths), ready),
            complete_while_typing=ready & Condition(_may_complete),
            complete_in_thread=True,
            reserve_space_for_menu=_MENU_ROWS,
            multiline=True,
            prompt_continuation=lambda _width, _line, _wrapped: "  ",
            key_bindings=_bind_keys(unfold, self._take_paste, self._take_clipboard),
            bottom_toolbar=self._toolbar,
            style=_STYLE,
            color_depth=None if wants_colour() else ColorDepth.DEPTH_1_BIT,
            enable_open_in_editor=True,
        )
        redraw_cleanly(self._session.app)
        self.painted = asyncio.Event()  # the first prompt is on the screen
        self._session.app.after_render += lambda _app: self.painted.set()
        self.ahead = TypeAhead(self._session.input, self._session.output)
        self.draft = ""  # stands in the next prompt
        for window in self._session.layout.find_all_windows():
            window.dont_extend_height = Always()  # the status line stands right below the input

    async def read(self) -> str:
        """Returns the next input. Raises EOFError for Ctrl-D, CtrlC for that key where nothing was typed."""
        if is_dumb_terminal():  # its prompts are printed by another application, which paints nothing
            self.painted.set()
        draft, self.draft = self.draft, ""
        return await self._session.prompt_async(
            [("class:prompt", self._mark)], default=draft, handle_sigint=False
        )

    @property
    def typed(self) -> str:
        """The text in the prompt now."""
        return self._session.default_buffer.text

    def redraw(self) -> None:
        """Redraws the status line; does nothing while nothing is read."""
        self._session.app.invalidate()

    def complete(self) -> None:
        """Opens the menu for what was typed before there was one."""
        buffer = self._session.default_buffer
        if self._session.app.is_running and buffer.text and buffer.complete_while_typing():
            buffer.start_completion()

    async def read_key(self, question: str, keys: str, interrupt: Callable[[], None]) -> str:
        """Waits for one of these keys and returns it. Esc and Ctrl-D mean the last one; so does Ctrl-C, which also calls `interrupt`.

        Keys pressed before the question do not count.
        """
        bindings = KeyBindings()
        refusals = (Keys.Escape, Keys.ControlD)

        def bind(pressed: Keys | str, meant: str) -> None:
            @bindings.add(pressed, eager=True)
            def _(event: KeyPressEvent) -> None:
                event.app.exit(result=meant)

        def ignore(event: KeyPressEvent) -> None:
            del event

        for key in keys:
            bind(key, key)
        for refusal in refusals:
            bind(refusal, keys[-1])

        @bindings.add(Keys.ControlC, eager=True)
        def _(event: KeyPressEvent) -> None:
            interrupt()  # may end the question itself, by cancelling what has asked it
            if not event.app.is_done:
                event.app.exit(result=keys[-1])

        bindings.add(Keys.Any)(ignore)
        # Keys that edit a line elsewhere, Ctrl-O among those that send it; the report of the cursor is no key.
        for other in set(Keys) - {*refusals, Keys.ControlC, Keys.Any, Keys.CPRResponse}:
            bindings.add(other, eager=True)(ignore)

        asking: PromptSession[str] = PromptSession(
            key_bindings=bindings,
            style=_STYLE,
            color_depth=self._session.color_depth,
            erase_when_done=True,
        )
        redraw_cleanly(asking.app)
        clear_typeahead(asking.input)
        _discard_typed(asking.input.fileno())
        return await asking.prompt_async([("class:prompt", question)], handle_sigint=False)

    async def pick(self, choice: ConversationList, query: str = "") -> str | None:
        """Returns the id of the conversation that the person picks from a list; None if they leave it."""
        from penstock.cli.chat.picker import pick_conversation  # noqa: PLC0415 - as above

        return await pick_conversation(
            choice,
            query,
            style=_STYLE,
            color_depth=self._session.color_depth,
            unicode=self._mark == _MARK,
        )

    def _take_paste(self, pasted: str) -> str:
        """Returns what a paste inserts: the mention of a picture that was dragged here, else the text."""
        path = find_dragged(pasted)
        if not path:
            return pasted.replace("\r\n", "\n").replace("\r", "\n")
        self.dragged.add(path)
        return f"{name_mention(path)} "

    async def _take_clipboard(self) -> str:
        """Returns the mention of the picture in the clipboard; if there is none, says so and returns an empty text."""
        path = await save_clipboard_picture(data_folder() / "pasted")
        if path is None:
            await run_in_terminal(lambda: print(f"{NO_PICTURE}\n"))
            return ""
        self.dragged.add(str(path))
        return f"{name_mention(str(path))} "

    def _toolbar(self) -> AnyFormattedText:
        columns = get_app().output.get_size().columns
        return [(f"class:{one.look}", one.text) for one in self._status(columns - 1)]


def make_history_file(folder: Path) -> Path:
    """Returns the history file, readable only by its owner. Raises OSError if it cannot be created."""
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


def _may_complete() -> bool:
    """Returns True if a menu may open by itself: for a command or its argument, or a path after `@`.

    A menu reserves rows below the input, so a complete command has none.
    """
    document = get_app().current_buffer.document
    if word := _FIRST_WORD.fullmatch(document.text):
        from penstock.cli.chat.commands import COMMANDS  # noqa: PLC0415 - as above

        typed = word[1].lower()
        return any(name != typed and name.startswith(typed) for name in COMMANDS)
    name, blank, rest = document.text.partition(" ")
    if blank and name == "/compress":
        return bool(rest) and "here".startswith(rest)
    mention = _MENTIONED.search(document.current_line_before_cursor)
    return (blank != "" and name == "/resume") or mention is not None


def _send_or_break(event: KeyPressEvent) -> None:
    """Enter sends, if there is something to send; after a backslash it adds a line."""
    buffer: Any = event.current_buffer
    if buffer.document.text_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
        buffer.delete_before_cursor(1)
        buffer.insert_text("\n")
    elif buffer.text.strip():
        buffer.validate_and_handle()


def _bind_keys(
    unfold: Callable[[], None],
    take_paste: Callable[[str], str],
    take_clipboard: Callable[[], Coroutine[None, None, str]],
) -> KeyBindings:
    """Returns the key bindings of the input. During a search of the history, prompt_toolkit's own apply."""
    bindings = KeyBindings()
    typing = has_focus(DEFAULT_BUFFER)

    @bindings.add(Keys.BracketedPaste, filter=typing)
    def _(event: KeyPressEvent) -> None:
        """A paste is one input; the path of a picture, as dragging a file pastes it, is attached."""
        event.current_buffer.insert_text(take_paste(event.data))

    @bindings.add("c-v", filter=typing)
    def _(event: KeyPressEvent) -> None:
        """Ctrl-V attaches the picture in the clipboard."""
        buffer = event.current_buffer

        async def insert() -> None:
            buffer.insert_text(await take_clipboard())

        event.app.create_background_task(insert())

    bindings.add("enter", filter=typing)(_send_or_break)

    @bindings.add("escape", "enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        """Alt-Enter adds a line."""
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c", filter=typing)
    def _(event: KeyPressEvent) -> None:
        """Ctrl-C clears what was typed; with nothing typed, it goes to the chat."""
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=CtrlC)

    @bindings.add("c-o", filter=typing)
    def _(_event: KeyPressEvent) -> None:
        """Ctrl-O shows everything that a command has printed, above the prompt."""
        run_in_terminal(unfold)

    return bindings
