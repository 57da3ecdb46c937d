"""Slash commands as functions for every host: parses them, and runs those that any chat has.

A terminal draws its own output. `CHAT_COMMANDS` are those of a chat app: each answers in a few lines of plain text.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.accounts.changes import UndoneCompaction
from penstock.accounts.conversations import count_view_tokens, search_conversations
from penstock.accounts.display import format_sum
from penstock.accounts.usage import report_usage
from penstock.measure.wording import pluralise
from penstock.recall.ranking import Wish
from penstock.recall.semantic import embedder_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from penstock.context.compactions import PreparedCompaction
    from penstock.loop.agent import Agent

__all__ = ["CHAT_COMMANDS", "ChatCommand", "compress", "explain_unknown", "split_command", "undo"]

_COMMAND = re.compile(r"/([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)
_HERE = re.compile(r"here(?:\s+(\d{1,4}))?")
_ELSEWHERE = {
    "clear": "new",
    "reset": "new",
    "compact": "compress",
    "cost": "usage",
}  # as other programs call them
_FOUND, _EXCERPT_CHARS = 3, 240


def split_command(line: str) -> tuple[str, str] | None:
    """Returns the word and the argument of a command; None for a message to the model, such as a path that begins with `/`."""
    found = _COMMAND.fullmatch(line.strip())
    return None if found is None else (found[1].lower(), (found[2] or "").strip())


def explain_unknown(word: str, known: Mapping[str, str]) -> str:
    """Returns the reply to an unknown command. `known` maps commands to their descriptions."""
    meant = _ELSEWHERE.get(word, "")
    if meant in known:
        return f"unknown command /{word}; did you mean /{meant}? ({known[meant]})"
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"unknown command /{word}; {f'did you mean /{near[0]}?' if near else 'see /help'}"


def explain_count(argument: str) -> str:
    """Returns the reply to `/compress here` with one word that is not a number; empty for any other argument."""
    words = argument.lower().split()
    if len(words) != 2 or words[0] != "here" or _HERE.fullmatch(argument):
        return ""
    return "how many exchanges? /compress here N compacts all but the last N; /compress TOPIC keeps a topic in more detail"


async def compress(agent: Agent, argument: str) -> PreparedCompaction | None:
    """Compacts: with a topic in focus, or with `here N` all but the last N exchanges. None if there is nothing to do."""
    here = _HERE.fullmatch(argument)
    if here:
        return await agent.compact(keep_exchanges=max(1, int(here[1] or 1)))
    return await agent.compact(argument or None)


def undo(agent: Agent) -> UndoneCompaction:
    """Undoes the last compaction. The tokens are those of the messages alone, as in the receipt of the compaction."""
    session = agent.session
    before = count_view_tokens(session.store, session.id)
    undone = agent.context.undo()
    after = count_view_tokens(session.store, agent.session.id)
    return UndoneCompaction(session.row.conversation, undone, before, after)


# The commands of a chat app.


class ChatCommand(NamedTuple):
    """A command that can be sent as a message. `takes` are its arguments and `about` what it does, as help shows them."""

    takes: str
    about: str
    act: Callable[[Agent, str], Awaitable[str]]


async def _compress(agent: Agent, argument: str) -> str:
    if why := explain_count(argument):
        return f"{why[0].upper()}{why[1:]}."
    before = agent.context.tokens()
    made = await compress(agent, argument)
    if made is None:
        return "Nothing to compress yet."
    return f"Compressed: {before:,} → {agent.context.tokens():,} tokens. /undo reverts it."


async def _undo(agent: Agent, _argument: str) -> str:
    newest, before = agent.session.store.newest_compaction(agent.session.id), agent.context.tokens()
    if newest is None or not agent.context.undo():
        return "Nothing to undo yet."
    what = "Brought back what was left behind" if newest.is_rewind else "Undid the last compaction"
    return f"{what}: {before:,} → {agent.context.tokens():,} tokens."


async def _new(agent: Agent, _argument: str) -> str:
    if not agent.context.messages:
        return "This is already a new conversation."
    agent.context.leave()
    agent.session.clear()
    agent.context.reload()
    return "A new conversation. /undo goes back to the one before; /search still finds what was said."


async def _usage(agent: Agent, _argument: str) -> str:
    total = report_usage(agent.session.store, agent.session.id).total
    if not total.requests:
        return "No requests yet."
    status = agent.status()
    share = round(100 * status.prompt_tokens / max(1, status.window_tokens))
    used = total.usage
    return (
        f"{pluralise(total.requests, 'request')}, {used.prompt_tokens:,} tokens in, {used.output_tokens:,} out, "
        f"cost {format_sum(total.cost, total.known_cost)}. The window is {share} % full "
        f"({status.prompt_tokens:,} of {status.window_tokens:,} tokens)."
    )


async def _search(agent: Agent, argument: str) -> str:
    if not argument:
        return "Search for what? /search WORDS finds words, names and numbers in this conversation."
    session = agent.session
    wish = Wish(hits=_FOUND, characters=_EXCERPT_CHARS)
    embedder = embedder_for(session.settings)
    found = await asyncio.to_thread(search_conversations, session.store, argument, wish, session.id, embedder)
    if not found.hits:
        return "Nothing found: try other words, or a name or a number."
    return "\n".join(f"{' '.join(hit.handles)}: {' '.join(hit.excerpt.split())}" for hit in found.hits)


async def _help(_agent: Agent, _argument: str) -> str:
    return "\n".join(
        f"/{name}{f' {command.takes}' if command.takes else ''}: {command.about}"
        for name, command in CHAT_COMMANDS.items()
    )


CHAT_COMMANDS: dict[str, ChatCommand] = {
    "compress": ChatCommand(
        "[TOPIC]", "makes the conversation smaller, with most room for a topic", _compress
    ),
    "usage": ChatCommand("", "shows what this conversation has used", _usage),
    "new": ChatCommand("", "starts a new conversation", _new),
    "undo": ChatCommand("", "undoes the last compression or /new", _undo),
    "search": ChatCommand("WORDS", "finds what was said", _search),
    "help": ChatCommand("", "lists the commands", _help),
}
