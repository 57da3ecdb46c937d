"""A chat of one turn, for scripts and pipes: the answer goes to standard output, all else to standard error."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import stat
import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.cli.chat.approval import ask_on_lines
from penstock.cli.chat.commands import COMMANDS, explain_unknown, parse_command, run_command
from penstock.cli.chat.lines import compaction_lines, strip_controls, tool_line, turn_end_line
from penstock.cli.chat.state import Chat, ChatHost
from penstock.cli.output import write_stdout
from penstock.cli.screen import printable, screen_of
from penstock.cli.source import read_bytes
from penstock.errors import InputError
from penstock.loop.events import (
    Asked,
    Compacted,
    Compacting,
    Noticed,
    Recovering,
    Said,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from penstock.planning.pressure import Level

if TYPE_CHECKING:
    from penstock.cli.chat.commands import TypedCommand
    from penstock.cli.chat.model import ModelChoice
    from penstock.cli.chat.setup import ChatSetup
    from penstock.loop.events import AgentEvent

__all__ = ["UNANSWERED", "ScriptChat", "read_prompt"]

UNANSWERED = 4
_CODES = {"done": 0, "interrupted": 130}
_PLAIN_COLUMNS = 200
_PATIENCE_SECONDS = 3.0  # for the first byte of a pipe, where a prompt was given besides


def read_prompt(given: str | None) -> str:
    """Returns the prompt of -p followed by piped text. Raises InputError if there is neither."""
    piped = ""
    if given is None or _has_piped_input():
        piped = read_bytes("-").decode(errors="replace").strip()
    prompt = "\n\n".join(filter(None, ((given or "").strip(), piped)))
    if not prompt:
        raise InputError("the prompt is empty: give it with -p, or in a pipe")
    return prompt


def _has_piped_input() -> bool:
    """Returns True if standard input is a file, or a pipe with something in it, beside the prompt of -p."""
    if sys.stdin is None or sys.stdin.isatty():
        return False
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # closed, or no real stream
        return False
    if stat.S_ISREG(mode):
        return True
    if not stat.S_ISFIFO(mode):
        return False
    ready, _, _ = select.select([sys.stdin], [], [], _PATIENCE_SECONDS)
    return bool(ready)  # a pipe that nothing writes to must not keep a script waiting for ever


class ScriptChat:
    """Answers one prompt, or carries out one command."""

    def __init__(self, setup: ChatSetup, choice: ModelChoice, *, yes: bool, as_json: bool) -> None:
        reachable = (
            sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()
        )
        ask = ask_on_lines if reachable else None
        self._chat = Chat(setup, choice, ChatHost(tell=self._hear, ask=ask, yes=yes, one_turn=True))
        self._as_json = as_json
        self._said: list[str] = []
        self._about: dict[str, str] = {}
        self._waited = False  # a compaction was waited for
        self._is_command = False

    async def run(self, prompt: str, session_id: str | None, typed: str | None = None) -> int:
        """Answers the prompt and returns the exit code. Raises UnknownSession, SettingsError, InputError.

        `typed` is the part of the prompt in which `@` attaches files: in piped text it does not.
        """
        chat = self._chat
        parsed = None if "\n" in prompt else parse_command(prompt)
        if parsed is not None:
            return await self._run_command(parsed, session_id)
        chat.open(session_id)
        for line in (chat.choice.note, chat.setup.describe_caching(chat.choice), chat.opening_note):
            self._note(line)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, chat.agent.interrupt)
        try:
            ended = await chat.ask(prompt, typed=typed)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await chat.close()
        self._print_answer(ended)
        for line in chat.summary():
            self._note(line)
        return _CODES.get(ended.reason, UNANSWERED)

    async def _run_command(self, parsed: TypedCommand, session_id: str | None) -> int:
        """Runs a command; its reply, and the report on a compaction, go to standard output."""
        command = parsed.command
        if command is None:
            raise InputError(explain_unknown(parsed.word))
        if command.picks and not parsed.argument:  # nobody is there to pick one: a list shows them
            parsed = parsed._replace(command=COMMANDS["sessions"])
        self._is_command = True
        chat, started = self._chat, time.monotonic()
        chat.open(session_id)
        self._note(chat.opening_note)
        if session_id is None and command.is_of_talk:
            self._note("this is a new conversation: --resume goes on with the last one")
        work = asyncio.ensure_future(run_command(parsed, chat, screen_of(sys.stdout)))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, work.cancel)
        reason = "done"
        try:
            try:
                self._said += [f"{line}\n" for line in await work]
            except asyncio.CancelledError:
                reason = "interrupted"
            except EOFError:  # /exit
                pass
            self._print_answer(TurnEnded(reason, 0, time.monotonic() - started))
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await chat.close()
        return _CODES[reason]

    def _print_answer(self, ended: TurnEnded) -> None:
        text = "".join(self._said)
        if self._as_json:
            write_stdout(f"{json.dumps(self._report(text, ended), ensure_ascii=False)}\n".encode())
        elif text.strip():
            shown = strip_controls(text) if sys.stdout is not None and sys.stdout.isatty() else text
            write_stdout(f"{shown.rstrip()}\n".encode(errors="replace"))
        self._note(turn_end_line(ended, self._chat.resume_command))

    def _report(self, text: str, ended: TurnEnded) -> dict[str, Any]:
        spending, made = self._chat.sum_spending()
        return {
            "text": text,
            "ended": ended.reason,
            "why": ended.what,
            "session": self._chat.conversation
            if len(self._chat.agent.session)
            else "",  # an empty one is dropped
            "model": self._chat.status.model,
            "usage": spending.to_dict(),
            "cost": spending.cost,
            "compactions": made.count,
            "compaction_cost": made.cost,
            "steps": ended.steps,
            "seconds": round(ended.seconds, 3),
        }

    def _hear(self, event: AgentEvent) -> None:
        match event:
            case Said(text=text):
                self._said.append(text)
            case Asked():
                self._flush_remarks()
            case ToolStarted(call_id=call, about=about):
                self._flush_remarks()
                self._about[call] = about
            case ToolEnded(call_id=call):
                self._note(_tool_text(event, self._about.pop(call, "")))
            case Compacting():
                self._waited = True
            case Compacted():
                self._report_compaction(event)
            case Recovering(what=what, step=step):
                self._note(f"{what}: {step}")
            case Noticed(level=level, text=text) if level != Level.LOG:
                self._note(text)

    def _report_compaction(self, made: Compacted) -> None:
        """Reports a compaction: beside an answer, or as the answer to a command."""
        lines = compaction_lines(made, waited=self._waited)
        self._waited = False
        if self._is_command:
            self._said += [f"{line}\n" for line in lines]
            return
        for line in lines:
            self._note(line)

    def _flush_remarks(self) -> None:
        """Writes the text so far to standard error: it was not the answer yet."""
        for line in "".join(self._said).strip().splitlines():
            self._note(line)
        self._said.clear()

    @staticmethod
    def _note(line: str) -> None:
        if line and sys.stderr is not None:
            screen = screen_of(sys.stderr)
            screen.say(screen.paint(printable(line), "dim"))


def _tool_text(event: ToolEnded, about: str) -> str:
    screen = screen_of(sys.stderr)
    line = tool_line(event, about, screen.columns or _PLAIN_COLUMNS, unicode=screen.unicode)
    return "".join(one.text for one in line)
