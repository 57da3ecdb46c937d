"""A chat at a terminal: read, show the turn, repeat. Ctrl-C stops a turn; Ctrl-C twice, or Ctrl-D, exits.

A new conversation gets its prompt first. The agent is loaded behind it, in a thread, while the person types.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import time
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.utils import is_dumb_terminal

from penstock.agent.attachments import list_matches
from penstock.cli.chat import begin_collecting
from penstock.cli.chat.approval import make_key_asker
from penstock.cli.chat.input import CtrlC, LineReader
from penstock.cli.chat.lines import status_line
from penstock.cli.screen import printable, screen_of, width_of, wrap, wrap_painted
from penstock.errors import InputError, PenstockError, UnknownSession
from penstock.loop.approvals import ApprovalReply
from penstock.loop.workspace import Workspace
from penstock.measure.tokens import tokenizer_for

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from penstock.cli.chat.commands import TypedCommand
    from penstock.cli.chat.lines import StatusFragment
    from penstock.cli.chat.model import ModelChoice
    from penstock.cli.chat.setup import ChatSetup
    from penstock.cli.chat.state import Chat
    from penstock.cli.chat.view import TurnView
    from penstock.cli.screen import Screen
    from penstock.loop.approvals import Permission

__all__ = ["TerminalChat"]

_TICK_SECONDS = 0.1
_TWICE_SECONDS = 2.0
_COMPLETED = 20
_PICKED_FROM = 500  # of the most recent conversations
_ROWS_BESIDE_A_QUESTION = 8


class TerminalChat:
    """A chat with a person at a terminal."""

    def __init__(self, setup: ChatSetup, choice: ModelChoice, *, yes: bool) -> None:
        self._unicode = screen_of(sys.stdout).unicode
        self._setup, self._choice, self._yes = setup, choice, yes
        self._opened = asyncio.Event()  # the agent is there
        self._failure: BaseException | None = None  # why it is not
        self._heard: list[Any] | None = None  # what it tells while it is opened behind the prompt
        workspace = Workspace.at(setup.folder)
        self._reader = LineReader(
            self._status,
            self._ids,
            self._unfold,
            paths=lambda begun: list_matches(workspace, begun),
            is_ready=self._opened.is_set,
            unicode=self._unicode,
        )
        self._ask_with_keys = make_key_asker(
            lambda question, keys: self._reader.read_key(question, keys, self._interrupt),
            lambda: self._chat.agent.approvals.project is not None,
        )
        self._pressed = 0.0  # when Ctrl-C was last pressed at the prompt
        self._leaving = asyncio.Event()
        self._task: asyncio.Future[Any] | None = None  # the work that is being shown
        self._stop_work: Callable[[], object]  # what Ctrl-C does to it
        self._presses = 0  # of Ctrl-C during that work
        self._reading: asyncio.Future[str] = asyncio.Future()  # the input that is being read

    # What needs the agent, or shows its work, is loaded where it is first used: behind the prompt, or for a conversation
    # that is resumed, before it.

    @cached_property
    def _chat(self) -> Chat:
        from penstock.cli.chat.state import Chat, ChatHost  # noqa: PLC0415 - as said above

        return Chat(self._setup, self._choice, ChatHost(tell=self._hear, ask=self._ask, yes=self._yes))

    @cached_property
    def _view(self) -> TurnView:
        from penstock.cli.chat.view import TurnView, make_console  # noqa: PLC0415 - as said above

        return TurnView(
            make_console(sys.stdout, unicode=self._unicode),
            self._status,
            lambda: self._reader.ahead.text,
            unicode=self._unicode,
        )

    async def run(self, session_id: str | None) -> int:
        """Talks until the person exits. Raises UnknownSession or SettingsError if it cannot start."""
        if session_id is not None:
            self._chat.open(session_id)
            self._opened.set()
        for line in self._greet():
            self._screen.say(line)
        ready = asyncio.ensure_future(self._get_ready())
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            with _silent_keyboard():
                while not self._leaving.is_set() and (typed := await self._read()) is not None:
                    await self._opened.wait()
                    if self._failure is None and not self._leaving.is_set():
                        await self._answer(typed)
        finally:
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)
            self._reader.ahead.close()
            if self._opened.is_set() and self._failure is None:
                await self._chat.close()
            loop.remove_signal_handler(signal.SIGINT)
        if self._failure is not None:
            raise self._failure
        if not self._opened.is_set():  # the terminal went away before the prompt was on it
            return 0
        below = screen_of(sys.stderr)
        for line in self._chat.summary():
            for part in wrap(line, below.columns):
                below.say(part)
        return 0

    async def _get_ready(self) -> None:
        """Loads what the first turn needs while the person types, and asks the server for the size of its window."""
        await self._reader.painted.wait()
        if not self._opened.is_set():
            await self._open_behind_prompt()
        begin_collecting()
        if self._failure is not None:
            self._leaving.set()
            self._reading.cancel()
            return
        self._reader.redraw()
        self._reader.complete()
        await asyncio.to_thread(tokenizer_for(self._choice.model.name).count, "ready")
        await self._chat.agent.asking.learn_window()
        self._chat.refresh()
        self._reader.redraw()

    async def _open_behind_prompt(self) -> None:
        """Starts the conversation in a thread, and shows above the prompt what it has to say."""
        heard = self._heard = []
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            await asyncio.wait([opening])
        finally:  # the person may have left, but a thread cannot be stopped
            await asyncio.wait([opening])
            self._failure, self._heard = opening.exception(), None
            self._opened.set()
        if heard:
            await run_in_terminal(lambda: [self._view(event) for event in heard])

    def _open(self) -> None:
        """Opens the conversation, and loads what its first turn needs."""
        self._chat.open(behind_prompt=True)
        self._chat.refresh()
        for name in ("commands", "view"):
            import_module(f"penstock.cli.chat.{name}")

    @property
    def _screen(self) -> Screen:
        """Returns the screen, as wide as the terminal is now."""
        return screen_of(sys.stdout)

    def _hear(self, event: Any) -> None:
        if self._heard is None:
            self._view(event)
        else:
            self._heard.append(event)

    def _status(self, columns: int) -> list[StatusFragment]:
        if not self._opened.is_set():
            return []
        return status_line(self._chat.status, columns, unicode=self._unicode)

    def _unfold(self) -> None:
        head, *lines = self._view.unfold()
        for line in (self._screen.paint(head, "bold"), *lines, ""):
            self._screen.say(line)

    def _ids(self) -> Sequence[tuple[str, str]]:
        """Returns conversations for completion: the beginning of the id, and the title."""
        from penstock.accounts.conversations import list_conversations  # noqa: PLC0415 - as said above
        from penstock.accounts.display import SHORT_ID_CHARS  # noqa: PLC0415

        found = list_conversations(self._setup.store, _COMPLETED, with_empty=False)
        return [(one.row.id[:SHORT_ID_CHARS], one.title) for one in found]

    def _greet(self) -> Iterator[str]:
        screen, choice = self._screen, self._choice
        yield printable(choice.model.name)
        folder, room = str(self._setup.folder), screen.columns - 4
        for line in (
            choice.note,
            self._setup.describe_caching(choice),
            f"in {folder}" if width_of(folder) <= room + 1 else f"in …{folder[-room:]}",
            "/help lists commands, Alt-Enter adds a line, Ctrl-D exits",
        ):
            if line:
                yield from (screen.paint(part, "dim") for part in wrap(printable(line), screen.columns))
        if self._opened.is_set():
            from penstock.cli.chat.commands import recap  # noqa: PLC0415 - as said above

            yield ""
            yield from recap(self._chat, screen)
        yield ""

    async def _read(self) -> str | None:
        """Returns the next input; None where the person exits."""
        while not self._leaving.is_set():
            self._reading = asyncio.ensure_future(self._reader.read())
            try:
                line = await self._reading
            except EOFError:
                return None
            except asyncio.CancelledError:
                if not self._leaving.is_set():
                    raise
                return None
            except CtrlC:
                if self._is_second_press():
                    return None
                self._screen.say(self._screen.paint("press Ctrl-C again, or Ctrl-D, to exit", "dim"))
                self._screen.say("")
                continue
            if line.strip():
                return line.strip()
        return None

    async def _answer(self, line: str) -> None:
        """Runs a command, or lets the agent answer."""
        from penstock.cli.chat.commands import parse_command  # noqa: PLC0415 - as said above

        parsed = parse_command(line)
        try:
            if parsed is None:
                self._screen.say("")
                await self._work(
                    self._chat.ask(line, dragged=self._reader.dragged),
                    "waiting for the model",
                    self._chat.agent.interrupt,
                )
            else:
                await self._command(parsed)
        except EOFError:
            self._leaving.set()
        except PenstockError as error:
            if parsed is None and isinstance(error, InputError):  # nothing was sent: it can be mended
                self._reader.draft = line
            for part in wrap(printable(str(error)), self._screen.columns):
                self._screen.say(self._screen.paint(part, "yellow"))
        if not self._leaving.is_set():
            self._screen.say("")

    async def _command(self, parsed: TypedCommand) -> None:
        from penstock.cli.chat.commands import STOPPED, run_command  # noqa: PLC0415 - as said above

        if parsed.command is not None and parsed.command.picks and not is_dumb_terminal():
            picked = await self._pick(parsed)
            if picked is None:
                self._screen.say(self._screen.paint("still in this conversation", "dim"))
                return
            parsed = picked
        work = run_command(parsed, self._chat, self._screen)
        long = parsed.command is not None and parsed.command.is_long
        lines = await (self._work(work, "working") if long else work)
        for line in [STOPPED] if lines is None else lines:
            for part in wrap_painted(line, self._screen.columns):
                self._screen.say(part)

    async def _pick(self, parsed: TypedCommand) -> TypedCommand | None:
        """Returns the command to run. For `/resume` and its like without an id, the person picks a conversation; None if they leave.

        An argument that is not an id narrows the list down. If nothing matches, the command says so itself.
        """
        from penstock.accounts.conversations import find_conversation, list_conversations  # noqa: PLC0415
        from penstock.cli.chat.commands import COMMANDS, TypedCommand  # noqa: PLC0415 - as said above
        from penstock.cli.chat.picker import ConversationList  # noqa: PLC0415

        chat, query = self._chat, parsed.argument
        if query and parsed.command is COMMANDS["resume"]:
            with suppress(UnknownSession):
                find_conversation(chat.store, query)
                return parsed
        found = list_conversations(chat.store, _PICKED_FROM, with_empty=False)
        choice = ConversationList(found, chat.conversation)
        choice.narrow(query)
        if all(one.row.id == chat.conversation for one in choice.left):
            return parsed
        picked = await self._reader.pick(choice, query)
        if picked is None or picked == chat.agent.session.id:
            return None
        return TypedCommand("resume", picked, COMMANDS["resume"])

    async def _work(
        self, work: Coroutine[Any, Any, Any], doing: str, interrupt: Callable[[], None] | None = None
    ) -> Any:
        """Shows the progress of long work and returns its result; None if it was cancelled.

        Ctrl-C calls `interrupt`, or cancels the work if there is none; a second one also ends the chat.
        """
        self._reader.ahead.start()
        self._view.start(doing)
        self._task, self._presses = asyncio.ensure_future(work), 0
        self._stop_work = interrupt or self._task.cancel
        ticker = asyncio.ensure_future(self._tick())
        try:
            return await self._task
        except asyncio.CancelledError:
            if not self._presses:
                raise
            return None
        finally:
            self._task = None
            ticker.cancel()
            self._view.stop()
            if self._presses:
                self._reader.draft = self._reader.ahead.take_text()
            else:
                self._reader.ahead.hand_over()
            self._chat.refresh()

    def _interrupt(self) -> None:
        """Handles Ctrl-C while no input is read: during a turn, or between two prompts."""
        if self._task is None:
            if self._is_second_press():
                self._leaving.set()
                self._reading.cancel()
            return
        self._presses += 1
        self._stop_work()
        if self._presses > 1:
            self._leaving.set()
            self._task.cancel()

    def _is_second_press(self) -> bool:
        before, self._pressed = self._pressed, time.monotonic()
        return self._pressed - before < _TWICE_SECONDS

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._view.tick()

    async def _ask(self, asked: Permission) -> ApprovalReply:
        """Asks the person; meanwhile the view pauses, and keys are answers."""
        self._reader.ahead.pause()
        self._view.pause()
        rows = max(3, shutil.get_terminal_size().lines - _ROWS_BESIDE_A_QUESTION)
        try:
            return await self._ask_with_keys(asked, self._screen, rows)
        except EOFError:
            return ApprovalReply.NO
        finally:
            self._reader.ahead.start()
            self._view.start()


@contextmanager
def _silent_keyboard() -> Iterator[None]:
    """Turns the terminal's echo off until the end of the block: the prompt and the view of a turn show what is typed."""
    try:
        import termios  # noqa: PLC0415 - not on every system
    except ImportError:
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    silent = termios.tcgetattr(descriptor)
    silent[0] &= ~termios.ICRNL  # so that the prompt recognises Enter
    silent[3] &= ~(termios.ECHO | termios.ICANON)
    silent[3] |= termios.NOFLSH  # so that Ctrl-C does not discard what was typed
    termios.tcsetattr(descriptor, termios.TCSANOW, silent)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal went away
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
