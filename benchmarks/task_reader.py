"""A scripted model for the agent tasks: it knows nothing but what it is shown, and does what the last request asks.

`Shown` is a request to a model as the model sees it: the person's last request, the calls of this turn with their
results, and all the words in the prompt. A skill of `benchmarks.task_list` looks for a value with `need`; a value that a
compaction has lost is not there, so the task fails as it would with a real model. A reader that may recall first
searches the conversation with `history_search`, where the agent offers it.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import (
    Message,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)
from penstock.conversation.speakers import last_request
from penstock.testing import Received, Reply

__all__ = ["Call", "Reader", "Shown", "Skill", "see_this_turn"]

_ESCAPES = str.maketrans({"n": "\n", "t": "\t"})
_ESCAPED = re.compile(r"\\([nt\"\\])")
_ENDING = r"end every answer with the word '(\w+)'"
SEARCH = "history_search"


class Call(NamedTuple):
    """A call of this turn, with its result."""

    name: str
    arguments: dict[str, Any]
    result: str
    is_error: bool


class MustRecall(Exception):
    """A value is not in the prompt, and the conversation can still be searched for it."""

    def __init__(self, query: str) -> None:
        super().__init__(query)
        self.query = query


class Shown:
    """A request, as the model that gets it sees it."""

    def __init__(self, messages: list[Message], tools: Iterable[str], *, recalls: bool) -> None:
        start = last_request(messages) or 0
        self.request = _words(messages[start]) if messages else ""
        self.calls = _calls(messages[start + 1 :])
        self.text = "\n".join(map(_words, messages))
        unescaped = _ESCAPED.sub(lambda found: found[1].translate(_ESCAPES), self.text)
        self._texts = (self.text, unescaped)  # what stands inside JSON is found too
        self._recalls = recalls and SEARCH in set(tools)

    def find(self, pattern: str) -> str | None:
        """The last place in the prompt where the pattern matches; its group, where it has one."""
        for text in self._texts:
            if found := list(re.finditer(pattern, text)):
                return found[-1][found[-1].re.groups and 1]
        return None

    def find_all(self, pattern: str) -> list[tuple[str, ...]]:
        """The groups of every different match, in the order of their first places."""
        found = [match.groups() for text in self._texts for match in re.finditer(pattern, text)]
        return list(dict.fromkeys(found))

    def need(self, pattern: str, query: str) -> str | None:
        """As `find`; raises MustRecall where there is nothing and the query has not been searched for in this turn."""
        found = self.find(pattern)
        if found is None:
            self.recall(query)
        return found

    def recall(self, query: str) -> None:
        """Raises MustRecall where the conversation can be searched for these words and was not yet."""
        searched = [call.arguments.get("query") for call in self.calls if call.name == SEARCH]
        if self._recalls and query not in searched:
            raise MustRecall(query)

    def called(self, name: str, **arguments: Any) -> Call | None:
        """The last call of this turn to that tool with these arguments, among others."""
        for call in reversed(self.calls):
            if call.name == name and arguments.items() <= call.arguments.items():
                return call
        return None


Skill = Callable[[re.Match[str], Shown], Reply | str]
"""How a request is answered: given where it matched, and what the model is shown."""


class Reader:
    """A model: the first skill whose pattern the last request has decides. It says so where none fits.

    `sees` narrows what it is shown; a model that forgets is one that sees less.
    """

    def __init__(
        self,
        skills: Iterable[tuple[str, Skill]],
        *,
        recalls: bool = False,
        sees: Callable[[list[Message]], list[Message]] = list,
    ) -> None:
        self._skills = [(re.compile(pattern), skill) for pattern, skill in skills]
        self._recalls = recalls
        self._sees = sees

    def __call__(self, received: Received) -> Reply:
        """The reply to a request."""
        messages = self._sees(decode_all(dialect_named(received.dialect), received.messages))
        if not received.tools:
            return Reply("Nothing to add.")  # a summary was asked for
        shown = Shown(messages, _tool_names(received.tools), recalls=self._recalls)
        for pattern, skill in self._skills:
            if match := pattern.search(shown.request):
                try:
                    reply = skill(match, shown)
                except MustRecall as wanted:
                    return Reply.calling(SEARCH, query=wanted.query)
                return _finish(reply, shown) if isinstance(reply, str) else reply
        return Reply(f"I do not know how to do this: {shown.request[:200]}")


def see_this_turn(messages: list[Message]) -> list[Message]:
    """For a model that forgets everything before the person's last request."""
    return messages[last_request(messages) or 0 :]


def _finish(text: str, shown: Shown) -> Reply:
    ending = shown.find(_ENDING)
    return Reply(f"{text}\n{ending}" if ending else text)


def _words(message: Message) -> str:
    said = []
    for part in message.parts:
        match part:
            case Text(text) | Summary(text) | ToolResult(_, text):
                said.append(text)
            case ToolCall(_, name, arguments) if name != SEARCH:  # what it looks for is no evidence of it
                said.append(f"{name} {arguments}")
            case _:
                pass
    return "\n".join(said)


def _calls(messages: list[Message]) -> list[Call]:
    results = {
        part.call_id: part for message in messages for part in message.parts if isinstance(part, ToolResult)
    }
    made = [part for message in messages for part in message.parts if isinstance(part, ToolCall)]
    return [
        Call(call.name, json.loads(call.arguments or "{}"), result.text, result.is_error)
        for call in made
        if (result := results.get(call.call_id))
    ]


def _tool_names(tools: Iterable[Any]) -> Iterable[str]:
    return [str((tool.get("function") or tool).get("name")) for tool in tools]
