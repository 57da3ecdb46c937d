"""The commands of a chat: `/compress`, `/context` and the others."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.accounts.changes import change_pin
from penstock.accounts.conversations import (
    filter_conversations,
    list_conversations,
    make_title,
    read_handle,
)
from penstock.accounts.display import SHORT_ID_CHARS, redact
from penstock.accounts.talk import read_talk
from penstock.accounts.usage import report_insights, report_usage
from penstock.cli.chat.approval import approval_lines, list_given
from penstock.cli.chat.lines import strip_controls
from penstock.cli.chat.model import read_route
from penstock.cli.screen import align, printable, wrap
from penstock.cli.search import reading_hint, search_lines, search_store
from penstock.cli.sessions import handle_lines, list_lines
from penstock.cli.spending import insight_lines, savings_lines, spending_table
from penstock.cli.talk import talk_lines
from penstock.cli.tokens import bar_rows, percent
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.handles import name_message
from penstock.conversation.message import Role, Text
from penstock.errors import SettingsError, UnknownSession
from penstock.loop import commands
from penstock.loop.asking import require_dialect
from penstock.loop.commands import split_command
from penstock.measure.wording import pluralise
from penstock.recall.ranking import Wish
from penstock.recall.semantic import embedder_for

if TYPE_CHECKING:
    from penstock.cli.chat.model import ModelChoice
    from penstock.cli.chat.state import Chat
    from penstock.cli.screen import Screen
    from penstock.stores.values import SessionRow

__all__ = [
    "COMMANDS",
    "STOPPED",
    "SlashCommand",
    "TypedCommand",
    "explain_unknown",
    "parse_command",
    "recap",
    "run_command",
]

STOPPED = "stopped; nothing has changed"

_NOTHING_TO_COMPRESS = "nothing to compress: too little could be removed to be worth it"
_ALIASES = {"quit": "exit"}
_FORGET = re.compile(r"forget\s+(\d{1,4}|all)", re.ASCII)
_LISTED = 15
_FOUND, _EXCERPT_CHARS = 5, 320
_DAYS = 30
_MOST_DAYS = 36_500
_RECAP_CHARS = 300
_RECAP_ANSWER_CHARS, _RECAP_LINES = 900, 14
_LEAST_HELP_COLUMNS = 24
_SHOWN, _MOST_SHOWN = 10, 1_000  # messages of a history

Act = Callable[["Chat", str, "Screen"], Awaitable[list[str]]]


class SlashCommand(NamedTuple):
    """A command that can be typed."""

    name: str
    takes: str
    """The arguments, as help shows them."""
    about: str
    """A few words on what it does."""
    act: Act
    is_long: bool = False
    """It may take long and is reported by events, so it is shown as a turn is."""
    is_of_talk: bool = False
    """It is about what was said in this conversation: in a new one there is nothing for it."""
    picks: bool = False
    """Without an argument, a person at a terminal picks a conversation from a list, which is then resumed."""


class TypedCommand(NamedTuple):
    """A line that is a command; `command` is None for an unknown one."""

    word: str
    argument: str
    command: SlashCommand | None


def parse_command(line: str) -> TypedCommand | None:
    """Returns the command in a line; None for a message to the model, such as a path that begins with `/`."""
    found = split_command(line)
    if found is None:
        return None
    word, argument = found
    return TypedCommand(word, argument, COMMANDS.get(_ALIASES.get(word, word)))


def explain_unknown(word: str) -> str:
    """Returns the reply to an unknown command."""
    return commands.explain_unknown(word, {name: command.about for name, command in COMMANDS.items()})


async def run_command(parsed: TypedCommand, chat: Chat, screen: Screen) -> list[str]:
    """Carries out the command and returns what to print. Raises PenstockError."""
    if parsed.command is None:
        return [explain_unknown(parsed.word)]
    if parsed.argument and not parsed.command.takes:
        return [f"/{parsed.word} takes nothing after it; nothing was done"]
    return await parsed.command.act(chat, parsed.argument, screen)


async def _compress(chat: Chat, argument: str, _screen: Screen) -> list[str]:
    if why := commands.explain_count(argument):
        return [why]
    result = await commands.compress(chat.agent, argument)
    return (
        [] if result is not None else [_NOTHING_TO_COMPRESS]
    )  # a compaction that was made has been reported


async def _undo(chat: Chat, _argument: str, _screen: Screen) -> list[str]:
    undone = commands.undo(chat.agent)
    chat.refresh()
    return [str(undone)]


async def _pin(chat: Chat, argument: str, _screen: Screen) -> list[str]:
    if not argument:
        return [_pins(chat)]
    return [str(change_pin(chat.store, chat.agent.session.id, argument, pinned=True))]


async def _unpin(chat: Chat, argument: str, _screen: Screen) -> list[str]:
    if not argument:
        return [_pins(chat)]
    return [str(change_pin(chat.store, chat.agent.session.id, argument, pinned=False))]


def _pins(chat: Chat) -> str:
    session = chat.agent.session
    if not len(session):
        return "nothing is pinned: this conversation has no messages yet"
    pins = ", ".join(name_message(place + 1) for place in sorted(session.store.pins(session.id)))
    return (
        f"pinned: {pins or 'nothing'}; messages are m1 to {name_message(len(session))}; /history lists them"
    )


async def _context(chat: Chat, _argument: str, screen: Screen) -> list[str]:
    status, fill = chat.status, chat.agent.fill()
    window = status.window_tokens
    head = f"{status.prompt_tokens:,} of {window:,} tokens, {percent(status.prompt_tokens / window)} of the window"
    kinds = dict(fill.kinds)
    more = status.prompt_tokens - fill.total_tokens  # the kinds are our own count, the head is the provider's
    if more:
        kinds[f"the provider counts {'more' if more > 0 else 'less'}"] = more
    if window > status.prompt_tokens:
        kinds["free"] = window - status.prompt_tokens
    rows = [[kind, f"{tokens:,}"] for kind, tokens in kinds.items()]
    return [
        screen.paint(head, "bold"),
        screen.paint(f"compaction starts at {status.threshold_tokens:,}; /compress starts it now", "dim"),
        *bar_rows(rows, list(kinds.values()), window, screen),
    ]


async def _usage(chat: Chat, _argument: str, screen: Screen) -> list[str]:
    found = report_usage(chat.store, chat.agent.session.id)
    if not found.total.requests:
        return ["no requests yet"]
    table = spending_table("model", found.models, screen, found.total)
    return [*table, "", *savings_lines(found.compactions, screen)]


async def _insights(chat: Chat, argument: str, screen: Screen) -> list[str]:
    days = int(argument) if argument.isascii() and argument.isdigit() and len(argument) < 6 else 0
    if argument and not 1 <= days <= _MOST_DAYS:
        return [f"{printable(argument)!r} is not a number of days; /insights 7 shows the last week"]
    return list(insight_lines(report_insights(chat.store, days or _DAYS, time.time()), screen))


async def _new(chat: Chat, _argument: str, _screen: Screen) -> list[str]:
    before, said = chat.conversation, len(chat.agent.session)
    await chat.agent.aclose()
    chat.open()
    kept = f"; the previous one is kept: /resume {before[:SHORT_ID_CHARS]}" if said else ""
    return [f"new conversation{kept}"]


async def _model(chat: Chat, argument: str, screen: Screen) -> list[str]:
    if argument:
        await chat.switch_model(chat.setup.chooser.choose_other(argument, chat.choice))
    status = chat.status
    now = (
        f"{printable(status.model)} ({printable(chat.choice.where)}), window {status.window_tokens:,} tokens"
    )
    return [f"{'now ' if argument else ''}{now}", *wrap(printable(status.caching), screen.columns)]


async def _resume(chat: Chat, argument: str, screen: Screen) -> list[str]:
    try:
        session_id = chat.find(argument)
    except UnknownSession:
        if not argument:
            raise
        raise UnknownSession(
            f"no conversation has the id or the words {printable(argument)!r}; /sessions lists them"
        ) from None
    row = chat.store.session(session_id)
    own, why = _choose_own_model(chat, row)
    require_dialect(own.model, row)
    chat.choice = own
    await chat.agent.aclose()
    chat.open(session_id)
    note = why and f"continuing with {printable(own.model.name)}: its own model cannot be used: {why}"
    return [*recap(chat, screen), *wrap(note, screen.columns)] if note else recap(chat, screen)


def _choose_own_model(chat: Chat, row: SessionRow) -> tuple[ModelChoice, str]:
    """Returns the conversation's own model, or the current one and why. Raises SettingsError."""
    now, route = chat.choice, read_route(chat.store, row)
    if (row.model, row.dialect) == (now.model.name, now.model.dialect):
        return now.keep_length(row, route), ""
    try:
        return chat.setup.chooser.choose_own(row, route), ""
    except SettingsError as error:
        if row.dialect != now.model.dialect:
            raise
        return now, str(error)


def recap(chat: Chat, screen: Screen) -> list[str]:
    """Returns the state of a resumed conversation: its title, its model, and what was said last."""
    session = chat.agent.session
    title = make_title(chat.store, session.row, session.row.title)
    head = f"{chat.conversation[:SHORT_ID_CHARS]}  {printable(title)}"
    lines = [
        screen.paint(screen.clip(head, 0), "bold"),
        screen.paint(
            f"{pluralise(len(session), 'message')}, {chat.status.prompt_tokens:,} tokens in the next request, "
            f"with {printable(chat.status.model)}",
            "dim",
        ),
        *(wrap(chat.opening_note, screen.columns) if chat.opening_note else ()),
    ]
    last: dict[Role, str] = {}  # in the order in which they were said
    for message in decode_all(dialect_named(session.row.dialect), chat.agent.context.view):
        text = "\n\n".join(part.text for part in message.parts if isinstance(part, Text)).strip()
        if text and message.role in (Role.USER, Role.ASSISTANT):
            last.pop(message.role, None)
            last[message.role] = text
    for role, said in last.items():
        if role is Role.USER:
            text = " ".join(redact(said).split())
            short = text if len(text) <= _RECAP_CHARS else f"{text[:_RECAP_CHARS]}…"
            lines += wrap(f"you:    {printable(short)}", screen.columns, 8)
        else:
            shown = _render_markdown(_shorten_markdown(redact(said)), screen)
            lines += [f"answer: {shown[0]}"] if len(shown) == 1 else ["answer:", *shown]
    if [*last][-1:] == [Role.USER]:
        note = "no answer to that yet; type 'continue' to ask for it"
        lines += [screen.paint(line, "dim") for line in wrap(note, screen.columns)]
    return lines


def _shorten_markdown(text: str) -> str:
    """Returns the first lines of a text; code that is cut off is closed."""
    lines: list[str] = []
    room, fence = _RECAP_ANSWER_CHARS, ""
    for line in text.splitlines():
        if len(lines) == _RECAP_LINES or len(line) > room:
            begun = "" if len(lines) == _RECAP_LINES or fence else line[:room]
            return "\n".join([*lines, f"{begun}…"] if begun else [*lines, fence, "", "…"])
        room -= len(line)
        lines.append(line)
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~"):
            fence = "" if mark == fence else fence or mark
    return text


def _render_markdown(text: str, screen: Screen) -> list[str]:
    """Returns the text as lines: rendered if the screen is a terminal, else as it was written."""
    if not screen.bars:
        return [printable(line) for line in text.splitlines()]
    from penstock.cli.chat.view import draw_markdown, make_console  # noqa: PLC0415 - needs what scripts do without

    console = make_console(screen.stream, unicode=screen.unicode)
    with console.capture() as drawn:
        console.print(draw_markdown(strip_controls(text)))
    return [line.rstrip() for line in drawn.get().splitlines()]


async def _sessions(chat: Chat, argument: str, screen: Screen) -> list[str]:
    found = list_conversations(chat.store, None if argument else _LISTED, with_empty=False)
    left = filter_conversations(found, argument)[:_LISTED]
    if found and not left:
        return [f"no conversation has the words {printable(argument)!r}; /search looks into what was said"]
    return list(list_lines(left, screen)) if found else ["no conversations yet"]


async def _search(chat: Chat, argument: str, screen: Screen) -> list[str]:
    if not argument:
        return ["search for what? /search QUERY finds words, names, paths and values in every conversation"]
    wish = Wish(hits=_FOUND, characters=_EXCERPT_CHARS)
    found = search_store(chat.store, argument, wish, embedder=embedder_for(chat.setup.settings))
    lines = list(search_lines(found, argument, screen))
    if not found.hits:
        return lines
    first = found.hits[0]
    is_here = chat.store.session(first.session).conversation == chat.conversation
    hint = (
        f"/show {first.handles[0]} shows the first one in full"
        if is_here
        else chat.setup.carry(reading_hint(found))
    )
    return [*lines, "", screen.paint(hint, "dim")]


async def _history(chat: Chat, argument: str, screen: Screen) -> list[str]:
    if argument and not (argument.isascii() and argument.isdigit() and 0 < int(argument) <= _MOST_SHOWN):
        return [f"how many messages? /history N, from 1 to {_MOST_SHOWN:,}"]
    entries = read_talk(chat.store, chat.agent.session.id)[-int(argument or _SHOWN) :]
    return list(talk_lines(entries, screen, "/show"))[1:] if entries else ["nothing was said yet"]


async def _show(chat: Chat, argument: str, screen: Screen) -> list[str]:
    if not argument:
        return ["show what? /show m12 shows a message in full; /history lists them"]
    return list(handle_lines(*read_handle(chat.store, chat.agent.session.row, argument.lower()), screen))


async def _approvals(chat: Chat, argument: str, screen: Screen) -> list[str]:
    approvals, folder = chat.agent.approvals, str(chat.setup.folder)
    if not argument:
        return approval_lines(approvals, folder, screen)
    asked, given = _FORGET.fullmatch(argument), list_given(approvals)
    if asked is None:
        return [
            "/approvals lists what is allowed; /approvals forget N revokes one, /approvals forget all revokes them all"
        ]
    if not given:
        return ["there is nothing to revoke"]
    if asked[1] != "all" and not 1 <= int(asked[1]) <= len(given):
        return [f"there is no approval {asked[1]}; they are numbered 1 to {len(given)}"]
    rules = given if asked[1] == "all" else [given[int(asked[1]) - 1]]
    try:
        for rule in rules:
            approvals.forget(rule)
    except OSError as error:
        return [f"the approvals of this project cannot be changed: {error.strerror} ({error.filename})"]
    return [f"will ask again before {screen.clip(printable(str(rule)), 22)}" for rule in rules]


async def _help(_chat: Chat, _argument: str, screen: Screen) -> list[str]:
    rows = [[f"/{one.name} {one.takes}".rstrip(), one.about] for one in COMMANDS.values()]
    lines = []
    for left, right in align(rows):
        room = screen.columns - len(left) - 2
        if screen.columns and room < _LEAST_HELP_COLUMNS:  # too narrow for two columns
            lines.append(screen.paint(left.rstrip(), "cyan"))
            lines += wrap(f"    {right}", screen.columns, 4)
            continue
        first, *more = wrap(right, room if screen.columns else 0)
        lines.append(f"{screen.paint(left, 'cyan')}  {first}")
        lines += [" " * (len(left) + 2) + line for line in more]
    keys = "@FILE attaches a file · Alt-Enter, or a final \\, adds a line · Ctrl-C stops a turn · Ctrl-O shows what a command printed · Ctrl-D exits"
    return [*lines, "", *(screen.paint(line, "dim") for line in wrap(keys, screen.columns))]


async def _exit(_chat: Chat, _argument: str, _screen: Screen) -> list[str]:
    raise EOFError


COMMANDS = {
    command.name: command
    for command in (
        SlashCommand(
            "compress",
            "[FOCUS|here N]",
            "compact now; keep a topic, or the last N exchanges",
            _compress,
            is_long=True,
            is_of_talk=True,
        ),
        SlashCommand("undo", "", "undo the last compaction", _undo, is_of_talk=True),
        SlashCommand("pin", "HANDLE", "keep a message in full in every compaction", _pin, is_of_talk=True),
        SlashCommand("unpin", "HANDLE", "stop keeping it in full", _unpin, is_of_talk=True),
        SlashCommand("context", "", "what fills the window", _context),
        SlashCommand("usage", "", "usage and cost, and what compaction saved", _usage, is_of_talk=True),
        SlashCommand("insights", "[DAYS]", "recent usage, by model and by day", _insights),
        SlashCommand("new", "", "start a new conversation; this one is kept", _new),
        SlashCommand("model", "[NAME]", "switch to another model", _model, is_long=True),
        SlashCommand(
            "resume", "[ID]", "return to another conversation: pick one, or name it", _resume, picks=True
        ),
        SlashCommand(
            "sessions", "[WORDS]", "list conversations; pick one to resume it", _sessions, picks=True
        ),
        SlashCommand("search", "QUERY", "search all conversations", _search),
        SlashCommand("history", "[N]", "the last N messages of this conversation", _history, is_of_talk=True),
        SlashCommand("show", "HANDLE", "a message in full", _show, is_of_talk=True),
        SlashCommand("approvals", "[forget N|all]", "what is allowed without asking; revoke it", _approvals),
        SlashCommand("help", "", "this list", _help),
        SlashCommand("exit", "", "leave the chat; so does /quit", _exit),
    )
}
