"""The tools by which an agent finds and reads again what has left its view.

    history_search(query, limit?)            excerpts that have to do with the query, with handles
    history_describe(handle)                 what a handle stands for, and what is inside it
    history_expand(handle, offset?, limit?)  the original, page by page
    history_entity(name)                     the present state of a file, a command, an order, a person

`answer` always gives JSON within a token budget, counted as a whole, whatever the history holds and whatever
arguments a model sends. If something is left out, the answer says how to get it; if something is
wrong, it has an `error` that says what to do.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from penstock.conversation.handles import parse_handle
from penstock.conversation.wire import encode_wire
from penstock.errors import InputError, PenstockError, SettingsError, UnknownHandle
from penstock.recall.ranking import Wish
from penstock.recall.tool_arguments import (
    AskEntity,
    DescribeHistory,
    ExpandHistory,
    SearchHistory,
    quote_argument,
    read_arguments,
    require_handle,
)
from penstock.writing.entities import match_entities
from penstock.writing.stubs import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.recall.history import Finding, History, HistoryPlace
    from penstock.writing.entities import EntityState

__all__ = [
    "DESCRIBE",
    "ENTITY",
    "EXPAND",
    "SEARCH",
    "TOOL_NAMES",
    "Budget",
    "answer",
    "limit_answer",
    "tool_schemas",
]

SEARCH, DESCRIBE, EXPAND, ENTITY = "history_search", "history_describe", "history_expand", "history_entity"
TOOL_NAMES = frozenset({SEARCH, DESCRIBE, EXPAND, ENTITY})

_HITS = 8
_MOST_HITS = 20
_EXCERPT = (200, 1_200)  # characters: the least and the most
_PER_TOKEN = 3  # characters of an excerpt for a token of the budget: mostly all excerpts fit then
_LEAST_TOKENS = 200
_MOST_TITLED = 40  # of what is inside a summary: each is looked up
_MOST_PER_TOKEN = 4  # characters of a page for a token of the budget, at first
_LONGEST_NAME = 120  # characters of a title
_LAST_TIME = 253_402_300_799  # the end of the year 9999

_STILL_INDEXING = "Nothing so far: earlier messages are still being indexed. Search again in a moment."
_NOTHING_FOUND = "Nothing earlier has these words. Try others, or a name, path or number that stood there."
_LEAST_SHOWN = 12  # characters of a name or a state
_TOLD_IN_FULL = 3  # entities: of more, only how they are now
_NOTHING_KNOWN = (
    "Nothing of that name. Try its file name, id or command, a kind such as file, or history_search."
)
_MORE_ENTITIES = "a longer name finds fewer; history_expand reads what a handle names"
_LEFT_OUT = "history_expand reads what a handle names; a narrower query or a smaller limit leaves less out"
_TOO_LARGE = {"error": "the answer does not fit; read it with history_expand and a small limit"}
_LEAST_SHARE, _MOST_SHARE = 400, 4_000  # tokens that an answer takes of a window


def limit_answer(window_tokens: int) -> int:
    """Returns the most tokens that one answer may take of a window: an eighth of it, within bounds."""
    return max(_LEAST_SHARE, min(_MOST_SHARE, window_tokens // 8))


class Budget(msgspec.Struct, frozen=True):
    """The tokens that an answer may take, and how they are counted.

    Raises SettingsError for less than 200.
    """

    count: Callable[[str], int]
    tokens: int = 4_000

    def __post_init__(self) -> None:
        if self.tokens < _LEAST_TOKENS:
            raise SettingsError(
                f"a budget of {self.tokens} tokens is too small for an answer; give at least {_LEAST_TOKENS}"
            )


def tool_schemas() -> list[dict[str, Any]]:
    """Returns the four tools, in the format of OpenAI's function tools.

    They are sent with every request, so they are short.
    """
    handle = {"type": "string", "description": "such as m12"}
    return [
        _schema(
            SEARCH,
            "Search earlier messages that are no longer shown. Gives excerpts with handles.",
            query={"type": "string", "description": "words, names or values that stood there"},
            limit={"type": "integer", "minimum": 1, "maximum": _MOST_HITS},
        ),
        _schema(DESCRIBE, "What a handle stands for: who, when, size, what is inside.", handle=handle),
        _schema(
            EXPAND,
            "Read the original behind a handle. If it is long, go on with offset = next_offset.",
            handle=handle,
            offset={"type": "integer", "minimum": 0, "description": "characters to skip"},
            limit={"type": "integer", "minimum": 1, "description": "characters at most"},
        ),
        _schema(
            ENTITY,
            "Last known state of a file, command, order or person, with handles.",
            name={"type": "string", "description": "path, command, id or name"},
        ),
    ]


def answer(
    history: History, name: str, args: Any, budget: Budget, *, redact: Callable[[str], str] = str
) -> str:
    """Returns the answer of a tool, as JSON text within the budget. Never raises because of a model's arguments.

    `args` is the object that the model wrote, or its JSON. Excerpts and titles go through `redact`, since they are
    quotes; `history_expand` gives the original.
    """
    desk = _Desk(history, budget, redact)
    tool = _TOOLS.get(str(name))
    if tool is None:
        return desk.refuse(f"there is no tool {quote_argument(name)}", f"use one of: {', '.join(_TOOLS)}")
    try:
        return tool.run(desk, read_arguments(args, tool.arguments))
    except InputError as error:
        return desk.refuse(str(error), tool.usage)
    except UnknownHandle as error:
        return desk.refuse(str(error), f"{SEARCH} gives valid handles")
    except PenstockError as error:
        return desk.refuse(str(error), "try again later, or go on without it")


class _Desk(msgspec.Struct, frozen=True):
    """Writes the answers of the tools."""

    history: History
    budget: Budget
    redact: Callable[[str], str]

    def search(self, wanted: SearchHistory) -> str:
        hits = min(wanted.limit or _HITS, _MOST_HITS)
        least, most = _EXCERPT
        characters = max(least, min(most, self.budget.tokens * _PER_TOKEN // hits))
        found = self.history.search(str(wanted.query), Wish(hits=hits, characters=characters))
        several = len({finding.session for finding in found}) > 1
        entries = [self._write_entry(finding, named=several) for finding in found]
        unsearched = self.history.count_unsearched()
        missing = {"not_searched_yet": unsearched} if unsearched else {}
        if not entries:
            hint = _STILL_INDEXING if missing else _NOTHING_FOUND
            return self._choose_fitting([{"found": [], **missing, "hint": hint}])
        return self._choose_fitting({**one, **missing} for one in _list_fewer(entries))

    def describe(self, wanted: DescribeHistory) -> str:
        place = self.history.describe(require_handle(wanted.handle))
        about = {
            "handle": place.handle,
            "kind": place.kind,
            **self._describe_place(place),
            "title": self._write_line(place.title),
            "characters": place.characters,
            "tokens": place.tokens,
            "in_view": place.in_view,
        }
        if not place.inside:
            return self._choose_fitting([about, {**about, "title": ""}])
        titled = [self._describe_inside(handle) for handle in place.inside[:_MOST_TITLED]]
        return self._choose_fitting(_list_inside(about, titled, place.inside))

    def expand(self, wanted: ExpandHistory) -> str:
        handle, start = require_handle(wanted.handle), wanted.offset or 0
        place, text = self.history.describe(handle), self.history.text(handle)
        if start >= len(text) > 0:
            return self.refuse(
                f"offset {quote_argument(start)} is past the end",
                f"{quote_argument(handle)} has {len(text):,} characters: give a smaller offset",
            )
        most = max(1, min(wanted.limit or len(text), self.budget.tokens * _MOST_PER_TOKEN))
        about = {"handle": place.handle, **self._describe_place(place)}
        while (
            used := self.budget.count(page := _json(_write_page(about, text, start, most)))
        ) > self.budget.tokens:
            if most == 1:
                return self._choose_fitting([_write_page({}, text, start, 1)])
            most = max(1, min(most - 1, int(most * self.budget.tokens / used * 0.97)))
        return page

    def entity(self, wanted: AskEntity) -> str:
        found = match_entities(self.history.entities(), str(wanted.name))
        if not found:
            return self._choose_fitting([{"found": [], "hint": _NOTHING_KNOWN}])
        entries = [
            self._write_entity(one, with_changes=len(found) <= _TOLD_IN_FULL) for one in found[:_MOST_HITS]
        ]
        return self._choose_fitting(_list_fewer_entities(entries, len(found)))

    def _write_entity(self, one: EntityState, *, with_changes: bool) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "kind": one.kind,
            "name": self.redact(one.name),
            "state": self.redact(one.state),
            "handle": one.handle,
        }
        if time := _utc(one.at):
            entry["time"] = time
        if one.tried is not None:
            entry["tried"] = {"what": self.redact(one.tried.what), "handle": one.tried.handle}
        entry["times"] = one.times
        if with_changes and len(one.changes) > 1:
            entry["changes"] = [f"{change.handle} {self.redact(change.what)}" for change in one.changes]
        return entry

    def refuse(self, what: str, instead: str) -> str:
        """Returns an error that says what is wrong and what to do."""
        said = (shorten(what, 400), shorten(what, 100), "this cannot be answered")
        return self._choose_fitting({"error": f"{text}; {instead}"} for text in said)

    def _choose_fitting(self, answers: Iterable[Any]) -> str:
        for one in answers:
            text = _json(one)
            if self.budget.count(text) <= self.budget.tokens:
                return text
        return _json(_TOO_LARGE)

    def _write_entry(self, finding: Finding, *, named: bool) -> dict[str, Any]:
        """Writes a finding as an entry; with the name of its conversation, if there is more than one."""
        entry: dict[str, Any] = {"handles": list(finding.handles), "turn": finding.turn}
        if named:
            entry |= {"session": finding.session, "title": self._write_line(finding.title)}
        time = _utc(finding.at)
        return {**entry, **({"time": time} if time else {}), "excerpt": self.redact(finding.excerpt)}

    def _describe_place(self, place: HistoryPlace) -> dict[str, Any]:
        known = {"time": _utc(place.at), "role": shorten(place.role, 20)}
        return {"turn": place.turn, **{key: value for key, value in known.items() if value}}

    def _describe_inside(self, handle: str) -> dict[str, str]:
        try:
            place = self.history.describe(handle)
        except UnknownHandle:
            return {"handle": handle}
        return {"handle": handle, "role": place.role, "title": self._write_line(place.title)}

    def _write_line(self, title: str) -> str:
        return shorten(" ".join(self.redact(title).split()), _LONGEST_NAME)


class _Tool(NamedTuple):
    arguments: type[Any]
    run: Callable[[_Desk, Any], str]
    usage: str


_TOOLS = {
    SEARCH: _Tool(SearchHistory, _Desk.search, f"{SEARCH} takes query (text), and limit (1 to {_MOST_HITS})"),
    DESCRIBE: _Tool(DescribeHistory, _Desk.describe, f'{DESCRIBE} takes handle (such as "m12")'),
    EXPAND: _Tool(
        ExpandHistory,
        _Desk.expand,
        f'{EXPAND} takes handle (such as "m12"), and offset (from 0) and limit (from 1), in characters',
    ),
    ENTITY: _Tool(AskEntity, _Desk.entity, f"{ENTITY} takes name (a path, a command, an id or a name)"),
}


def _schema(tool: str, description: str, /, **properties: dict[str, Any]) -> dict[str, Any]:
    required = [key for key in properties if key in {"query", "handle", "name"}]
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": tool, "description": description, "parameters": parameters},
    }


def _json(value: Any) -> str:
    """Returns JSON that every client can send on: a lone surrogate is escaped."""
    return encode_wire(value).decode()


def _utc(at: float | None) -> str:
    """Returns the time as ISO 8601, to the second; nothing if it is not known."""
    if at is None or not math.isfinite(at) or not 0 <= at <= _LAST_TIME:
        return ""
    return f"{np.datetime64(int(at), 's')}Z"


def _list_fewer(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields answers with all entries, then with ever fewer and the handles of the others.

    The last ones have the first entry alone, shortened.
    """
    for kept in range(len(entries), 0, -1):
        yield _write_findings(entries[:kept], entries[kept:])
    first = entries[0]
    excerpt = first["excerpt"]
    while len(excerpt) > 20:
        excerpt = excerpt[: len(excerpt) // 2]
        yield _write_first({**first, "excerpt": f"{excerpt}…"}, len(entries))
    yield _write_first({"handles": first["handles"][:1], "turn": first["turn"]}, len(entries))


def _list_fewer_entities(entries: list[dict[str, Any]], total: int) -> Iterator[dict[str, Any]]:
    """Yields answers with all entries, then without what happened before, then with ever fewer, in the end shortened."""
    yield _write_entities(entries, total)
    bare = [{key: value for key, value in entry.items() if key != "changes"} for entry in entries]
    for kept in range(len(bare), 0, -1):
        yield _write_entities(bare[:kept], total)
    first = {key: bare[0][key] for key in ("kind", "name", "state", "handle")}
    while max(map(len, first.values())) > _LEAST_SHOWN:
        first = {key: _halve(value) for key, value in first.items()}
        yield _write_entities([first], total)


def _halve(text: str) -> str:
    return f"{text[: len(text) // 2]}…" if len(text) > _LEAST_SHOWN else text


def _write_entities(entries: Sequence[dict[str, Any]], total: int) -> dict[str, Any]:
    if len(entries) == total:
        return {"found": entries}
    return {"found": entries, "left_out": total - len(entries), "hint": _MORE_ENTITIES}


def _write_first(entry: dict[str, Any], total: int) -> dict[str, Any]:
    return {"found": [entry], "left_out": total - 1, "hint": _LEFT_OUT}


def _write_findings(entries: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not others:
        return {"found": entries}
    handles = dict.fromkeys(chain.from_iterable(entry["handles"] for entry in others))
    return {"found": entries, "left_out": len(others), "their_handles": list(handles), "hint": _LEFT_OUT}


def _list_inside(
    about: dict[str, Any], titled: list[dict[str, str]], inside: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yields answers with a line for each handle inside, then for ever fewer.

    The others are named by their handles or, in the end, counted.
    """
    kept = len(titled)
    while kept:
        yield _write_inside(about, titled[:kept], _join_runs(inside[kept:]), len(inside))
        kept //= 2
    runs = _join_runs(inside)
    while runs:
        yield _write_inside(about, [], runs, len(inside))
        half = len(runs) // 2
        runs = [*runs[:half], "…"] if half > 1 else []
    yield _write_inside({**about, "title": ""}, [], [], len(inside))


def _write_inside(
    about: dict[str, Any], titled: Sequence[dict[str, str]], runs: Sequence[str], total: int
) -> dict[str, Any]:
    listed = {**about, "inside_count": total, "inside": titled}
    return {**listed, "also_inside": " ".join(runs)} if runs else listed


def _join_runs(handles: Sequence[str]) -> list[str]:
    """Returns the handles with runs of neighbours in one word: m2-m7."""
    runs: list[list[str]] = []
    for handle in handles:
        if runs and handle == _follow_handle(runs[-1][-1]):
            runs[-1][1:] = [handle]
        else:
            runs.append([handle])
    return ["-".join(run) for run in runs]


def _follow_handle(handle: str) -> str:
    found = parse_handle(handle)
    return f"{found.kind}{found.number + 1}" if found.number else ""


def _write_page(about: dict[str, Any], text: str, start: int, most: int) -> dict[str, Any]:
    """Returns a page of at most `most` characters, with the place where the next one begins."""
    end = _find_page_end(text, start, most)
    page = {**about, "offset": start, "text": text[start:end], "characters": len(text)}
    return {**page, "next_offset": end} if end < len(text) else page


def _find_page_end(text: str, start: int, most: int) -> int:
    """Returns where a page ends.

    That is after a line or, inside a line that is too long, between words if it has any.
    """
    end = start + most
    if end >= len(text):
        return len(text)
    for border in ("\n", " "):
        at = text.rfind(border, start + most // 2, end)
        if at >= 0:
            return at + 1
    return end
