"""The commands that are typed in a chat: `/compress`, `/context` and the others."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.accounts.conversations import list_conversations, make_title
from penstock.accounts.display import SHORT_ID_CHARS, redact
from penstock.accounts.usage import report_insights, report_usage
from penstock.cli.chat.lines import nothing_to_compress_line
from penstock.cli.chat.model import read_route
from penstock.cli.screen import align, plural, printable, wrap
from penstock.cli.search import search_lines, search_store
from penstock.cli.session_changes import pin_text, undo_text, unpin_text
from penstock.cli.sessions import list_lines
from penstock.cli.spending import compaction_lines, insight_lines, spending_table
from penstock.cli.tokens import bar_rows, percent
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Role, Text
from penstock.errors import SettingsError
from penstock.recall.ranking import Wish
from penstock.recall.semantic import embedder_for

if TYPE_CHECKING:
    from penstock.cli.chat.desk import Desk
    from penstock.cli.chat.model import ModelChoice
    from penstock.cli.screen import Screen
    from penstock.stores.values import SessionRow

__all__ = ["COMMANDS", "Parsed", "SlashCommand", "parse", "recap", "run_command"]

_COMMAND = re.compile(r"/([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)
_HERE = re.compile(r"here(?:\s+(\d{1,4}))?")
_LISTED = 15
_FOUND, _EXCERPT_CHARS = 5, 320
_DAYS = 30
_MOST_DAYS = 36_500
_RECAP_CHARS = 300

Act = Callable[["Desk", str, "Screen"], Awaitable[list[str]]]


class SlashCommand(NamedTuple):
    """A command: what may follow it, what it does in a few words, and what does it.

    `works` says that it may take long and is told by events, so that it is shown as a turn is.
    """

    name: str
    takes: str
    about: str
    act: Act
    works: bool = False


class Parsed(NamedTuple):
    """A line that is a command. Without `command`, one that nobody knows."""

    word: str
    argument: str
    command: SlashCommand | None


def parse(line: str) -> Parsed | None:
    """The command in a line; None for what is to be said to the model, such as a path that begins with `/`."""
    found = _COMMAND.fullmatch(line.strip())
    if found is None:
        return None
    word = found[1].lower()
    return Parsed(word, (found[2] or "").strip(), COMMANDS.get(word))


async def run_command(parsed: Parsed, desk: Desk, screen: Screen) -> list[str]:
    """What the command has to say. Raises PenstockError."""
    if parsed.command is None:
        near = difflib.get_close_matches(parsed.word, COMMANDS, n=1, cutoff=0.5)
        hint = f"did you mean /{near[0]}?" if near else "/help lists all"
        return [f"there is no command /{parsed.word}; {hint}"]
    return await parsed.command.act(desk, parsed.argument, screen)


async def _compress(desk: Desk, argument: str, _screen: Screen) -> list[str]:
    here = _HERE.fullmatch(argument)
    if here:
        keep = max(1, int(here[1] or 1))
        result = await desk.agent.compact(keep_exchanges=keep)
    else:
        result = await desk.agent.compact(argument or None)
    return (
        [] if result is not None else [nothing_to_compress_line()]
    )  # a compaction that was made has been told


async def _undo(desk: Desk, _argument: str, _screen: Screen) -> list[str]:
    before = desk.status.prompt_tokens
    undone = desk.agent.context.undo()
    desk.changed()
    return [undo_text(desk.conversation, before, desk.status.prompt_tokens, undone=undone)]


async def _pin(desk: Desk, argument: str, _screen: Screen) -> list[str]:
    if not argument:
        return [_pins(desk)]
    return [pin_text(argument, in_view=desk.agent.session.pin(argument))]


async def _unpin(desk: Desk, argument: str, _screen: Screen) -> list[str]:
    if not argument:
        return [_pins(desk)]
    desk.agent.session.unpin(argument)
    return [unpin_text(argument)]


def _pins(desk: Desk) -> str:
    session = desk.agent.session
    pins = ", ".join(f"m{place + 1}" for place in sorted(session.store.pins(session.id)))
    return f"pinned: {pins or 'nothing'}; messages are m1 to m{len(session)}, and /search names them"


async def _context(desk: Desk, _argument: str, screen: Screen) -> list[str]:
    status, fill = desk.status, desk.agent.fill()
    window = status.window_tokens
    head = f"{status.prompt_tokens:,} of {window:,} tokens, {percent(status.prompt_tokens / window)} of the window"
    rows = [[kind, f"{tokens:,}"] for kind, tokens in fill.kinds.items()]
    return [
        screen.paint(head, "bold"),
        screen.paint(f"compaction comes at {status.threshold_tokens:,}; /compress does it now", "dim"),
        *bar_rows(rows, list(fill.kinds.values()), fill.total_tokens, screen),
    ]


async def _usage(desk: Desk, _argument: str, screen: Screen) -> list[str]:
    found = report_usage(desk.store, desk.agent.session.id)
    if not found.total.requests:
        return ["no requests yet"]
    table = spending_table("model", found.models, screen, found.total)
    return [*table, "", *compaction_lines(found.compactions, screen)]


async def _insights(desk: Desk, argument: str, screen: Screen) -> list[str]:
    days = int(argument) if argument.isascii() and argument.isdigit() and len(argument) < 6 else 0
    if argument and not 1 <= days <= _MOST_DAYS:
        return [f"{printable(argument)!r} is no number of days; /insights 7 shows the last week"]
    return list(insight_lines(report_insights(desk.store, days or _DAYS, time.time()), screen))


async def _new(desk: Desk, _argument: str, _screen: Screen) -> list[str]:
    before, said = desk.conversation, len(desk.agent.session)
    await desk.agent.aclose()
    desk.open()
    kept = f"; the last one is kept: /resume {before[:SHORT_ID_CHARS]}" if said else ""
    return [f"a new conversation{kept}"]


async def _model(desk: Desk, argument: str, screen: Screen) -> list[str]:
    if argument:
        await desk.use(desk.office.chooser.choose_other(argument, desk.choice))
    status = desk.status
    now = f"{printable(status.model)} ({desk.choice.provider}), window {status.window_tokens:,} tokens"
    return [f"{'now ' if argument else ''}{now}", *wrap(printable(status.caching), screen.columns)]


async def _resume(desk: Desk, argument: str, screen: Screen) -> list[str]:
    session_id = desk.found(argument)
    row = desk.store.session(session_id)
    before = desk.choice
    own, why = _own_model(desk, row)
    try:
        desk.choice = own
        desk.check_dialect(row)
    except SettingsError:
        desk.choice = before
        raise
    await desk.agent.aclose()
    desk.open(session_id)
    told = why and f"it goes on with {printable(own.model.name)}, since its own model is out of reach: {why}"
    return [*recap(desk, screen), *wrap(told, screen.columns)] if told else recap(desk, screen)


def _own_model(desk: Desk, row: SessionRow) -> tuple[ModelChoice, str]:
    """The model that a conversation had; the present one where that cannot be had, and why. Raises SettingsError."""
    now = desk.choice
    if (row.model, row.dialect) == (now.model.name, now.model.dialect):
        return now, ""
    try:
        return desk.office.chooser.choose_own(row, read_route(desk.store, row)), ""
    except SettingsError as error:
        if row.dialect != now.model.dialect:
            raise
        return now, str(error)


def recap(desk: Desk, screen: Screen) -> list[str]:
    """Where a conversation that goes on stands: its title, its model, and what was said last."""
    session = desk.agent.session
    title = make_title(desk.store, session.row, session.row.title)
    head = f"{desk.conversation[:SHORT_ID_CHARS]}  {printable(title)}"
    lines = [
        screen.paint(screen.clip(head, 0), "bold"),
        screen.paint(
            f"{plural(len(session), 'message')}, {desk.status.prompt_tokens:,} tokens in the view, "
            f"with {printable(desk.status.model)}",
            "dim",
        ),
        *(wrap(desk.tidied, screen.columns) if desk.tidied else ()),
    ]
    last: dict[Role, str] = {}
    for message in decode_all(dialect_named(session.row.dialect), desk.agent.context.view):
        text = " ".join(part.text for part in message.parts if isinstance(part, Text)).strip()
        if text and message.role in (Role.USER, Role.ASSISTANT):
            last[message.role] = text
    for role, who in ((Role.USER, "you"), (Role.ASSISTANT, "answer")):
        if role in last:
            text = " ".join(redact(last[role]).split())
            short = text if len(text) <= _RECAP_CHARS else f"{text[:_RECAP_CHARS]}…"
            lines += wrap(f"{who + ':':8}{printable(short)}", screen.columns, 8)
    return lines


async def _sessions(desk: Desk, _argument: str, screen: Screen) -> list[str]:
    found = list_conversations(desk.store, _LISTED, with_empty=False)
    return list(list_lines(found, screen)) if found else ["no conversations yet"]


async def _search(desk: Desk, argument: str, screen: Screen) -> list[str]:
    if not argument:
        return ["what for? /search QUERY finds words, names, paths and values in every conversation"]
    wish = Wish(hits=_FOUND, characters=_EXCERPT_CHARS)
    found = search_store(desk.store, argument, wish, embedder=embedder_for(desk.office.settings))
    return list(search_lines(found, argument, screen))


async def _help(_desk: Desk, _argument: str, screen: Screen) -> list[str]:
    rows = [[f"/{one.name} {one.takes}".rstrip(), one.about] for one in COMMANDS.values()]
    lines = [
        f"{screen.paint(left, 'cyan')}  {screen.clip(right, len(left) + 2)}" for left, right in align(rows)
    ]
    keys = "Alt-Enter, or \\ at the end of a line, breaks a line · Ctrl-C stops a turn · Ctrl-D leaves"
    return [*lines, "", *(screen.paint(line, "dim") for line in wrap(keys, screen.columns))]


async def _exit(_desk: Desk, _argument: str, _screen: Screen) -> list[str]:
    raise EOFError


COMMANDS = {
    command.name: command
    for command in (
        SlashCommand(
            "compress",
            "[FOCUS|here N]",
            "make room now; keep a topic, or the last N exchanges",
            _compress,
            works=True,
        ),
        SlashCommand("undo", "", "take back the last compaction", _undo),
        SlashCommand("pin", "HANDLE", "keep a message whole in every compaction", _pin),
        SlashCommand("unpin", "HANDLE", "let it go with the others again", _unpin),
        SlashCommand("context", "", "what fills the window", _context),
        SlashCommand("usage", "", "what it used and cost, and what compaction saved", _usage),
        SlashCommand("insights", "[DAYS]", "the last days, by model and by day", _insights),
        SlashCommand("new", "", "begin a new conversation; this one is kept", _new),
        SlashCommand("model", "[NAME]", "go on with another model", _model, works=True),
        SlashCommand("resume", "[ID]", "go back to another conversation, or to the one before", _resume),
        SlashCommand("sessions", "", "list conversations", _sessions),
        SlashCommand("search", "QUERY", "search everything that was ever said", _search),
        SlashCommand("help", "", "this list", _help),
        SlashCommand("exit", "", "leave", _exit),
    )
}
