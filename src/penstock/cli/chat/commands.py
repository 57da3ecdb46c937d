"""The commands of a chat: `/compress`, `/context` and the others."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.accounts.conversations import list_conversations, make_title, read_handle
from penstock.accounts.display import SHORT_ID_CHARS, redact
from penstock.accounts.talk import read_talk
from penstock.accounts.usage import report_insights, report_usage
from penstock.cli.chat.lines import strip_controls
from penstock.cli.chat.model import read_route
from penstock.cli.screen import align, printable, wrap
from penstock.cli.search import reading_hint, search_lines, search_store
from penstock.cli.session_changes import pin_text, undo_text, unpin_text
from penstock.cli.sessions import handle_lines, list_lines
from penstock.cli.spending import insight_lines, savings_lines, spending_table
from penstock.cli.talk import talk_lines
from penstock.cli.tokens import bar_rows, percent
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.handles import name_message
from penstock.conversation.message import Role, Text
from penstock.errors import SettingsError
from penstock.loop.asking import require_dialect
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

_COMMAND = re.compile(r"/([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)
_NOTHING_TO_COMPRESS = "nothing to compress: too little could be removed to be worth it"
_ALIASES = {"quit": "exit"}
_ELSEWHERE = {
    "clear": "new",
    "reset": "new",
    "compact": "compress",
    "cost": "usage",
}  # as other programs call them
_HERE = re.compile(r"here(?:\s+(\d{1,4}))?")
_LISTED = 15
_FOUND, _EXCERPT_CHARS = 5, 320
_DAYS = 30
_MOST_DAYS = 36_500
_RECAP_CHARS = 300
_RECAP_ANSWER_CHARS, _RECAP_LINES = 900, 14
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


class TypedCommand(NamedTuple):
    """A line that is a command; `command` is None for an unknown one."""

    word: str
    argument: str
    command: SlashCommand | None


def parse_command(line: str) -> TypedCommand | None:
    """Returns the command in a line; None for a message to the model, such as a path that begins with `/`."""
    found = _COMMAND.fullmatch(line.strip())
    if found is None:
        return None
    word = found[1].lower()
    return TypedCommand(word, (found[2] or "").strip(), COMMANDS.get(_ALIASES.get(word, word)))


def explain_unknown(word: str) -> str:
    """Returns what to say to a command that does not exist."""
    if word in _ELSEWHERE:
        meant = COMMANDS[_ELSEWHERE[word]]
        return f"unknown command /{word}; did you mean /{meant.name}? ({meant.about})"
    near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
    return f"unknown command /{word}; {f'did you mean /{near[0]}?' if near else 'see /help'}"


async def run_command(parsed: TypedCommand, chat: Chat, screen: Screen) -> list[str]:
    """Carries out the command and returns what to print. Raises PenstockError."""
    if parsed.command is None:
        return [explain_unknown(parsed.word)]
    return await parsed.command.act(chat, parsed.argument, screen)


async def _compress(chat: Chat, argument: str, _screen: Screen) -> list[str]:
    here = _HERE.fullmatch(argument)
    if here:
        keep = max(1, int(here[1] or 1))
        result = await chat.agent.compact(keep_exchanges=keep)
    else:
        result = await chat.agent.compact(argument or None)
    return (
        [] if result is not None else [_NOTHING_TO_COMPRESS]
    )  # a compaction that was made has been reported


async def _undo(chat: Chat, _argument: str, _screen: Screen) -> list[str]:
    before = chat.status.prompt_tokens
    undone = chat.agent.context.undo()
    chat.refresh()
    return [undo_text(chat.conversation, before, chat.status.prompt_tokens, undone=undone)]


async def _pin(chat: Chat, argument: str, _screen: Screen) -> list[str]:
    if not argument:
        return [_pins(chat)]
    return [pin_text(argument, in_view=chat.agent.session.pin(argument))]


async def _unpin(chat: Chat, argument: str, _screen: Screen) -> list[str]:
    if not argument:
        return [_pins(chat)]
    session = chat.agent.session
    before = session.store.pins(session.id)
    session.unpin(argument)
    return [unpin_text(argument, was_pinned=session.store.pins(session.id) != before)]


def _pins(chat: Chat) -> str:
    session = chat.agent.session
    pins = ", ".join(name_message(place + 1) for place in sorted(session.store.pins(session.id)))
    return f"pinned: {pins or 'nothing'}; messages are m1 to {name_message(len(session))}, /search shows their handles"


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
    session_id = chat.find(argument)
    row = chat.store.session(session_id)
    own, why = _choose_own_model(chat, row)
    require_dialect(own.model, row)
    chat.choice = own
    await chat.agent.aclose()
    chat.open(session_id)
    note = why and f"continuing with {printable(own.model.name)}: its own model cannot be used: {why}"
    return [*recap(chat, screen), *wrap(note, screen.columns)] if note else recap(chat, screen)


def _choose_own_model(chat: Chat, row: SessionRow) -> tuple[ModelChoice, str]:
    """Returns the model that a conversation had, or the present one and why. Raises SettingsError."""
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
    """Returns where a resumed conversation stands: its title, its model, and what was said last."""
    session = chat.agent.session
    title = make_title(chat.store, session.row, session.row.title)
    head = f"{chat.conversation[:SHORT_ID_CHARS]}  {printable(title)}"
    lines = [
        screen.paint(screen.clip(head, 0), "bold"),
        screen.paint(
            f"{pluralise(len(session), 'message')}, {chat.status.prompt_tokens:,} tokens in the view, "
            f"with {printable(chat.status.model)}",
            "dim",
        ),
        *(wrap(chat.opening_note, screen.columns) if chat.opening_note else ()),
    ]
    last: dict[Role, str] = {}
    for message in decode_all(dialect_named(session.row.dialect), chat.agent.context.view):
        text = "\n\n".join(part.text for part in message.parts if isinstance(part, Text)).strip()
        if text and message.role in (Role.USER, Role.ASSISTANT):
            last[message.role] = text
    if Role.USER in last:
        text = " ".join(redact(last[Role.USER]).split())
        short = text if len(text) <= _RECAP_CHARS else f"{text[:_RECAP_CHARS]}…"
        lines += wrap(f"you:    {printable(short)}", screen.columns, 8)
    if Role.ASSISTANT in last:
        answer = _shorten_markdown(redact(last[Role.ASSISTANT]))
        shown = _render_markdown(answer, screen)
        lines += [f"answer: {shown[0]}"] if len(shown) == 1 else ["answer:", *shown]
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
    """Returns the text as lines: as it looks where answers are shown on a terminal, else as it was written."""
    if not screen.bars:
        return [printable(line) for line in text.splitlines()]
    from penstock.cli.chat.view import draw_markdown, make_console  # noqa: PLC0415 - needs what scripts do without

    console = make_console(screen.stream, unicode=screen.unicode)
    with console.capture() as drawn:
        console.print(draw_markdown(strip_controls(text)))
    return [line.rstrip() for line in drawn.get().splitlines()]


async def _sessions(chat: Chat, _argument: str, screen: Screen) -> list[str]:
    found = list_conversations(chat.store, _LISTED, with_empty=False)
    return list(list_lines(found, screen)) if found else ["no conversations yet"]


async def _search(chat: Chat, argument: str, screen: Screen) -> list[str]:
    if not argument:
        return ["search for what? /search QUERY finds words, names, paths and values in every conversation"]
    wish = Wish(hits=_FOUND, characters=_EXCERPT_CHARS)
    found = search_store(chat.store, argument, wish, embedder=embedder_for(chat.setup.settings))
    lines = list(search_lines(found, argument, screen))
    return [*lines, "", screen.paint(chat.setup.carry(reading_hint(found)), "dim")] if found.hits else lines


async def _history(chat: Chat, argument: str, screen: Screen) -> list[str]:
    if argument and not (argument.isascii() and argument.isdigit() and 0 < int(argument) <= _MOST_SHOWN):
        return [f"how many messages? /history N, from 1 to {_MOST_SHOWN:,}"]
    entries = read_talk(chat.store, chat.agent.session.id)[-int(argument or _SHOWN) :]
    return list(talk_lines(entries, screen, "/show"))[1:] if entries else ["nothing was said yet"]


async def _show(chat: Chat, argument: str, screen: Screen) -> list[str]:
    if not argument:
        return ["show what? /show m12 shows a message in full; /history lists them"]
    return list(handle_lines(*read_handle(chat.store, chat.agent.session.row, argument.lower()), screen))


async def _help(_chat: Chat, _argument: str, screen: Screen) -> list[str]:
    rows = [[f"/{one.name} {one.takes}".rstrip(), one.about] for one in COMMANDS.values()]
    lines = [
        f"{screen.paint(left, 'cyan')}  {screen.clip(right, len(left) + 2)}" for left, right in align(rows)
    ]
    keys = "Alt-Enter, or a final \\, adds a line · Ctrl-C stops a turn · Ctrl-O shows what a command printed · Ctrl-D exits"
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
        SlashCommand("unpin", "HANDLE", "no longer keep it in full", _unpin, is_of_talk=True),
        SlashCommand("context", "", "what fills the window", _context),
        SlashCommand("usage", "", "usage and cost, and what compaction saved", _usage, is_of_talk=True),
        SlashCommand("insights", "[DAYS]", "recent usage, by model and by day", _insights),
        SlashCommand("new", "", "start a new conversation; this one is kept", _new),
        SlashCommand("model", "[NAME]", "switch to another model", _model, is_long=True),
        SlashCommand("resume", "[ID]", "return to another conversation, or to the previous one", _resume),
        SlashCommand("sessions", "", "list conversations", _sessions),
        SlashCommand("search", "QUERY", "search all conversations", _search),
        SlashCommand("history", "[N]", "the last N messages of this conversation", _history, is_of_talk=True),
        SlashCommand("show", "HANDLE", "a message in full", _show, is_of_talk=True),
        SlashCommand("help", "", "this list", _help),
        SlashCommand("exit", "", "leave the chat; so does /quit", _exit),
    )
}
