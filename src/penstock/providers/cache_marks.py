"""Prompt-cache marks (`cache_control`) on a request, placed where they are worth most. Pure.

A provider that caches by marks keeps the prompt up to each of them, in the order tools, system prompt, messages, and
takes at most four. A later request reads the longest kept prefix for a tenth of the price. So marks belong where
the prompt will stay as it is, and where the one before ended.

Only what is marked is copied; everything else in the result is the caller's own object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, Literal, TypeAlias

import msgspec

from penstock.conversation.wire import encode_wire, parse_json, to_plain
from penstock.errors import InputError, SettingsError
from penstock.providers.address import read_address
from penstock.providers.presets import PRESETS

__all__ = [
    "MOST_MARKS",
    "CachePlan",
    "Ttl",
    "caching_for",
    "mark_cache",
    "marks_of",
    "restore_marks",
    "strip_marks",
]


MOST_MARKS = 4
"""More are refused by the API."""

Ttl: TypeAlias = Literal["5m", "1h", "off"]
Request: TypeAlias = Mapping[str, Any]

_WIRE: dict[str, dict[str, str]] = {
    "5m": {"type": "ephemeral"},  # five minutes are what a mark means by itself
    "1h": {"type": "ephemeral", "ttl": "1h"},
}
_TAIL_MARKS = 3
_SYSTEM_ROLES = ("system", "developer")

# Blocks of Anthropic Messages that may carry a mark beside text. Thinking and what we do not know may not.
_CARRYING = frozenset(
    (
        "image",
        "document",
        "search_result",
        "tool_use",
        "tool_result",
        "server_tool_use",
        "container_upload",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
    )
)


class _Spot(msgspec.Struct, frozen=True, order=True):
    """A place where a mark can stand. Spots sort in the order in which the provider reads a prompt.

    `section` is 0 for tools, 1 for the system prompt beside the messages, 2 for messages; `part` is the place in a
    list of parts.
    """

    section: int
    index: int = 0
    part: int = 0


_TOOLS, _SYSTEM, _MESSAGES, _BEHIND = 0, 1, 2, 3  # behind all of it: the mark that the provider places
_FIELDS = {_TOOLS: "tools", _MESSAGES: "messages"}


def mark_cache(request: Request, *, dialect: str, ttl: Ttl = "5m", prefix_end: int | None = None) -> Request:
    """Returns the request with marks for the provider's prompt cache; the request itself if there is nothing to mark.

    `dialect` is `anthropic`, or `chat` as OpenRouter and similar APIs take it; other dialects have no marks. The system
    prompt and the last three messages are marked. With `prefix_end`, the number of messages that a compaction has
    settled, it is the system prompt, the end of that prefix, and the ends of the last two transactions (a
    transaction ends where the model is to answer). A request that has its caller's own marks gets none. `ttl` is how
    long the cache holds: `5m`, `1h`, or `off` for no marks. Raises SettingsError for any other value.
    """
    if ttl not in ("5m", "1h", "off"):
        raise SettingsError(f"the cache ttl is {ttl!r}; allowed: 5m, 1h, off")
    given: Any = request
    if not isinstance(given, Mapping):
        raise InputError(f"the request is a {type(given).__name__}; give the dict with its messages")
    if ttl == "off" or dialect not in ("anthropic", "chat"):
        return request
    plain = to_plain(request)  # an SDK's objects, too, have places for marks
    if _is_marked(plain, dialect):
        return request
    spots = [*_find_opening(plain, dialect), *_tail(plain, dialect, prefix_end)]
    return _place(request, dict.fromkeys(spots[:MOST_MARKS], ttl))


def restore_marks(before: Request, after: Request, *, dialect: str, prefix_end: int | None = None) -> Request:
    """Returns the compacted request `after` with the marks that its compaction removed; itself if none were removed.

    `before` is the request as its caller sent it. A mark on a removed message moves to the end of the
    compacted prefix (`prefix_end` messages), further ones to the ends of the last transactions. There are never more
    marks than before, and an hour never follows five minutes, which the API refuses.
    """
    if dialect not in ("anthropic", "chat"):
        return after
    kept = list(_own_spots(after, dialect))
    lost = [ttl for _, ttl in _own_spots(before, dialect)]
    for _, ttl in kept:
        if ttl in lost:
            lost.remove(ttl)
    taken = {spot.index for spot, _ in kept if spot.section == _MESSAGES}
    places = [spot for spot in _prefer_ends(after, dialect, prefix_end) if spot.index not in taken]
    room = max(0, MOST_MARKS - len(marks_of(after, dialect=dialect)))
    kept += [(_Spot(_BEHIND), ttl) for ttl in _ttl_of(after)]
    added: dict[_Spot, str] = {}
    for spot, ttl in zip(places[:room], lost, strict=False):
        added[spot] = _in_order(spot, ttl, [*kept, *added.items()])
    return _place(after, added)


def marks_of(request: Request, *, dialect: str) -> tuple[str, ...]:
    """Returns the lives of all marks in a request, `5m` or `1h`, in the order in which the provider reads them.

    A mark on the request as a whole asks the provider to place one by itself; it comes last.
    """
    own = tuple(ttl for _, ttl in _own_spots(request, dialect))
    return own + tuple(_ttl_of(request))


def read_marks(message: bytes, dialect: str) -> tuple[str, ...]:
    """Returns the lives of the marks in one message, as `marks_of`, from its JSON."""
    return marks_of({"messages": [parse_json(message)]}, dialect=dialect)


def mark_message(message: bytes, dialect: str, ttl: str) -> bytes:
    """Returns the JSON of one message with a mark at its end; unchanged if nothing in it can carry one."""
    wire = parse_json(message)
    spot = _spot_in(wire, 0, dialect)
    if spot is None:
        return message
    return encode_wire({**wire, "content": _with_mark(wire["content"], spot.part, dict(_WIRE[ttl]))})


def _is_marked(request: Request, dialect: str) -> bool:
    return bool(_ttl_of(request)) or any(True for _ in _own_spots(request, dialect))


# What a request holds, and where a mark can stand in it.


def _find_opening(request: Request, dialect: str) -> list[_Spot]:
    """Returns the spot behind the system prompt, which covers the tools too; behind the tools if there is no prompt."""
    if dialect == "chat":
        messages = _as_list(request, "messages")
        leading = takewhile(lambda at: _role(messages[at]) in _SYSTEM_ROLES, range(len(messages)))
        return list(_spots(request, leading, dialect))[-1:]
    if (part := _last_part(request.get("system"), dialect)) is not None:
        return [_Spot(_SYSTEM, 0, part)]
    tools = _as_list(request, "tools")
    cacheable = [
        at for at, tool in enumerate(tools) if isinstance(tool, Mapping) and not tool.get("defer_loading")
    ]
    return [_Spot(_TOOLS, cacheable[-1])] if cacheable else []


def _tail(request: Request, dialect: str, prefix_end: int | None) -> list[_Spot]:
    """Up to three spots in the messages: by the cut if it is known, else the last three that can carry one."""
    if prefix_end:
        return _prefer_ends(request, dialect, prefix_end)[:_TAIL_MARKS]
    messages = _as_list(request, "messages")
    said = (at for at in range(len(messages) - 1, -1, -1) if _role(messages[at]) not in _SYSTEM_ROLES)
    return list(islice(_spots(request, said, dialect), _TAIL_MARKS))


def _prefer_ends(request: Request, dialect: str, prefix_end: int | None) -> list[_Spot]:
    """Returns the end of the compacted prefix, then the ends of transactions, the last one first; no message twice."""
    messages = _as_list(request, "messages")
    backwards = range(len(messages) - 1, -1, -1)
    settled = range(min(prefix_end or 0, len(messages)) - 1, -1, -1)
    prompts = (at for at in settled if _role(messages[at]) not in _SYSTEM_ROLES)
    ends = (at for at in backwards if _ends_transaction(messages, at))
    found = dict.fromkeys(
        [*islice(_spots(request, prompts, dialect), 1), *islice(_spots(request, ends, dialect), MOST_MARKS)]
    )
    return list(found)[:MOST_MARKS]


def _spots(request: Request, indices: Iterable[int], dialect: str) -> Iterator[_Spot]:
    """Yields the spots of those of these messages that can carry a mark."""
    for index in indices:
        spot = _spot_in(_as_list(request, "messages")[index], index, dialect)
        if spot is not None:
            yield spot


def _ends_transaction(messages: Sequence[Any], index: int) -> bool:
    """Returns True if the model answers after this message: it is the last one of a user or of a batch of tool results."""
    following = messages[index + 1] if index + 1 < len(messages) else None
    return _role(messages[index]) in ("user", "tool") and (
        following is None or _role(following) == "assistant"
    )


def _spot_in(message: Any, index: int, dialect: str) -> _Spot | None:
    """Returns the spot at the end of a message, or None if nothing of it can carry a mark."""
    if not isinstance(message, Mapping):
        return None
    part = _last_part(message.get("content"), dialect)
    return None if part is None else _Spot(_MESSAGES, index, part)


def _last_part(content: Any, dialect: str) -> int | None:
    """Returns the last part that can carry a mark; a text that is no list becomes one, and is its part 0."""
    if isinstance(content, str):
        return 0 if content.strip() else None
    if not isinstance(content, list | tuple):
        return None
    return next((at for at in range(len(content) - 1, -1, -1) if _carries(content[at], dialect)), None)


def _carries(part: Any, dialect: str) -> bool:
    if not isinstance(part, Mapping):
        return False
    kind = part.get("type")
    if kind == "text":
        text = part.get("text")
        return isinstance(text, str) and bool(text.strip())
    return dialect == "anthropic" and kind in _CARRYING


def _own_spots(request: Request, dialect: str) -> Iterator[tuple[_Spot, str]]:
    """Yields the marks in a request, with their lives, in the provider's order.

    Looks only where a provider would: an argument of a call that happens to have this name is not a mark.
    """
    for index, tool in enumerate(_as_list(request, "tools")):
        inner = tool.get("function") if isinstance(tool, Mapping) else None
        yield from ((_Spot(_TOOLS, index), ttl) for owner in (tool, inner) for ttl in _ttl_of(owner))
    if dialect == "anthropic":
        yield from ((_Spot(_SYSTEM, 0, part), ttl) for part, ttl in _find_marked_parts(request.get("system")))
    for index, message in enumerate(_as_list(request, "messages")):
        if isinstance(message, Mapping):
            for part, ttl in _find_marked_parts(message.get("content")):
                yield _Spot(_MESSAGES, index, part), ttl
            yield from ((_Spot(_MESSAGES, index), ttl) for ttl in _ttl_of(message))


def _find_marked_parts(content: Any) -> Iterator[tuple[int, str]]:
    for at, part in enumerate(content if isinstance(content, list | tuple) else ()):
        inner = part.get("content") if isinstance(part, Mapping) else None
        for _, ttl in _find_marked_parts(inner):  # a result holds parts of its own
            yield at, ttl
        for ttl in _ttl_of(part):
            yield at, ttl


def _ttl_of(value: Any) -> list[str]:
    """Returns the life of the mark that stands on this very object, in a list of none or one."""
    mark = value.get("cache_control") if isinstance(value, Mapping) else None
    if not isinstance(mark, Mapping):
        return []
    return ["1h" if mark.get("ttl") == "1h" else "5m"]


def _as_list(request: Request, field: str) -> Sequence[Any]:
    value = request.get(field)
    return value if isinstance(value, list | tuple) else ()


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


# Placing.


def _in_order(spot: _Spot, ttl: str, others: Sequence[tuple[_Spot, str]]) -> str:
    """Returns the life that a mark may have here: an hour where an hour follows, five minutes where these came before."""
    if any(other == "1h" for place, other in others if place > spot):
        return "1h"
    if any(other == "5m" for place, other in others if place < spot):
        return "5m"
    return ttl


def _place(request: Request, marks: Mapping[_Spot, str]) -> Request:
    """Returns the request with these marks: copies of what leads to them, and the caller's own objects beside it."""
    if not marks:
        return request
    changed = dict(request)
    for spot, ttl in marks.items():
        mark = dict(_WIRE[ttl])
        if spot.section == _SYSTEM:
            changed["system"] = _with_mark(to_plain(request["system"]), spot.part, mark)
            continue
        field = _FIELDS[spot.section]
        if changed[field] is request[field]:
            changed[field] = list(request[field])
        owner = to_plain(request[field][spot.index])
        changed[field][spot.index] = (
            {**owner, "cache_control": mark}
            if spot.section == _TOOLS
            else {**owner, "content": _with_mark(owner["content"], spot.part, mark)}
        )
    return changed


def _with_mark(content: Any, part: int, mark: dict[str, str]) -> list[Any]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    parts[part] = {**parts[part], "cache_control": mark}
    return parts


# Stripping.

_MARK = re.compile(rb'(,\s*)?"cache_control"\s*:\s*\{[^{}]*\}(\s*,)?')


def strip_marks(raw: bytes, dialect: str) -> bytes:
    """Returns the JSON of one message without its cache marks; all other bytes are as they were.

    Marks go only where a provider reads one: an argument of a call that happens to have this name stays. If the bytes
    of a mark cannot be told from such a name, the message is encoded anew. Raises ValueError if it is not JSON.
    """
    if dialect not in ("anthropic", "chat") or (b"cache_control" not in raw and rb"\u00" not in raw):
        return raw  # a name may be spelled with escapes, and is the same name
    message = parse_json(raw)
    bare = _without_marks(message)
    if bare is message:
        return raw
    stripped = _MARK.sub(_cut_mark, raw)
    try:
        same = parse_json(stripped) == bare
    except ValueError:
        same = False
    return stripped if same else encode_wire(bare)


def _cut_mark(found: re.Match[bytes]) -> bytes:
    """Returns the replacement of a mark: the comma behind it, if there was one on either side."""
    return found[2] if found[1] and found[2] else b""


def _without_marks(value: Any) -> Any:
    """Returns a message or part without the marks that `_own_spots` finds; the same object if it has none."""
    if not isinstance(value, dict):
        return value
    bare = {key: item for key, item in value.items() if key != "cache_control"} if _ttl_of(value) else value
    content = value.get("content")
    if isinstance(content, list):
        parts = [_without_marks(part) for part in content]
        if any(now is not part for now, part in zip(parts, content, strict=True)):
            bare = {**bare, "content": parts}
    return bare


# Which models at which endpoints get cache marks, and what people are told about it. Pure.

_ANTHROPIC_HOSTS = ("api.anthropic.com",)
_OPENROUTER_HOSTS = ("openrouter.ai",)


class CachePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Says if prompts are marked for the provider's cache, and how. `str()` gives a sentence for people.

    `dialect` and `ttl` are what `mark_cache` takes; with `ttl` "off" it leaves a request as it is. `why` says what
    speaks against marks, and is empty if they are on.
    """

    model: str
    route: str
    dialect: str
    ttl: Ttl
    why: str = ""

    @property
    def on(self) -> bool:
        """True if marks are placed."""
        return self.ttl != "off"

    def __str__(self) -> str:
        if not self.on:
            return f"prompt caching: no marks for {self.model} by {self.route}, because {self.why}"
        life = {"5m": "5 minutes", "1h": "1 hour"}[self.ttl]
        return f"prompt caching: on for {self.model} by {self.route}, held for {life}"


def caching_for(model: str, base_url: str = "", provider: str = "", *, ttl: Ttl = "5m") -> CachePlan:
    """Returns the plan for a model. `provider` is a name as `connect` takes it, `base_url` the address where one is given.

    Marks are for Claude models, on Anthropic's API and on endpoints that take them as OpenRouter does. `ttl` is the
    setting `model.cache_ttl`. An address that cannot be read belongs to no known provider.
    """
    preset = PRESETS.get(provider)
    host = _host(base_url or (preset.base_url if preset else ""))
    if _is_at(host, _ANTHROPIC_HOSTS) or provider == "anthropic":
        route, dialect = "Anthropic's API", "anthropic"
    elif _is_at(host, _OPENROUTER_HOSTS) or provider == "openrouter":
        route, dialect = "OpenRouter", "chat"
    else:
        where = provider or host or "an unknown endpoint"
        why = "it takes none (many providers cache by themselves)"
        return CachePlan(
            model=model, route=where, dialect=preset.dialect if preset else "", ttl="off", why=why
        )
    if base_url and not _is_at(host, (*_ANTHROPIC_HOSTS, *_OPENROUTER_HOSTS)):
        route = f"{route} at {host or 'an address of your own'}"
    why = _objection(model, ttl)
    return CachePlan(model=model, route=route, dialect=dialect, ttl="off" if why else ttl, why=why)


def _objection(model: str, ttl: str) -> str:
    if ttl == "off":
        return "model.cache_ttl is off"
    return "" if "claude" in model.lower() else "it is not a Claude model"


def _host(base_url: str) -> str:
    if not base_url:
        return ""
    try:
        return read_address(base_url).hostname
    except SettingsError:
        return ""


def _is_at(host: str, known: tuple[str, ...]) -> bool:
    return any(host == name or host.endswith(f".{name}") for name in known)
