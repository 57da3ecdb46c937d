"""Reads what a request asks for: its route, the wishes in its `x-penstock-` headers, and what it says of its conversation.

Pure: paths and headers in, values out. The body is not looked at, but for the two fields of `Envelope`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from penstock.errors import InputError
from penstock.gateway.exchange import StoreMode, WireDialect  # noqa: TC001 - a struct's field types are read at run time

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CallerWishes",
    "Envelope",
    "Route",
    "RouteKind",
    "read_credential",
    "read_envelope",
    "read_hints",
    "read_route",
    "read_wishes",
    "stricter_store",
    "tells_compaction",
]


class RouteKind(Enum):
    """The kinds of routes, by what the gateway does with them."""

    CONVERSATION = "conversation"
    """Messages, which may be compacted."""
    COUNT = "count"
    """Messages, which are only counted."""
    COMPACTION = "compaction"
    """Messages, of which a compaction is wanted and no answer."""
    MODELS = "models"
    """The list of models."""
    OTHER = "other"
    """Anything else under `/v1`: passed on as it came."""


class Route(msgspec.Struct, frozen=True):
    """The destination of a request. `path` is the part after `/v1`, as the request has it."""

    kind: RouteKind
    path: str
    dialect: WireDialect | None = None


_KNOWN: Final = {
    route.path: route
    for route in (
        Route(RouteKind.CONVERSATION, "/chat/completions", "chat"),
        Route(RouteKind.CONVERSATION, "/responses", "responses"),
        Route(RouteKind.CONVERSATION, "/messages", "anthropic"),
        Route(RouteKind.COUNT, "/messages/count_tokens", "anthropic"),
        Route(RouteKind.COMPACTION, "/responses/compact", "responses"),
        Route(RouteKind.MODELS, "/models"),
    )
}
_PLAIN: Final = {f"/v1{path}": route for path, route in _KNOWN.items()}
_PROBES: Final = "/api/"  # where programs look for Ollama and others; no API of ours is there
_VERSION: Final = "/v1/"
_ODD: Final = ("%", "\\", "//", "/.")  # in paths that can be spelled otherwise


def read_route(path: str) -> Route | None:
    """Returns the route of a path, whatever stands in front of `/v1`; None for a path that leads nowhere.

    Clients that take `/v1` for a part of their base URL send the routes that we know without it, if it was left out.
    A route that we know is found in any spelling: an upstream may understand it, and limits hold for it.
    """
    known = _PLAIN.get(path)
    if known is not None:
        return known
    if any(odd in path for odd in _ODD):
        plain = _spell_plainly(path)
        if "/.." in plain:
            return None  # nobody needs it, and it would lead out of the upstream's base path
        route = _find_route(plain)
        if route is None or route.kind is not RouteKind.OTHER:
            return route
    return _find_route(path)


def _spell_plainly(path: str) -> str:
    """Returns a path as servers read it: decoded, with one slash between segments, and without `.` for the same place."""
    segments = unquote(path).replace("\\", "/").split("/")
    return "/" + "/".join(segment for segment in segments if segment not in {"", "."})


def _find_route(path: str) -> Route | None:
    known = _KNOWN.get(path.removesuffix("/") if path.endswith("/") else path)
    if known is not None:
        return known
    first = path.find(_VERSION)
    if first < 0:
        return _KNOWN["/chat/completions"] if path.endswith("/chat/completions") else None
    last = path.rfind(_VERSION) + len(_VERSION) - 1  # its slash belongs to the rest
    known = _KNOWN.get(path[last:].rstrip("/"))
    if path.startswith(_PROBES) and (known is None or known.kind is RouteKind.MODELS):
        return None
    return known or Route(RouteKind.OTHER, path[first + len(_VERSION) - 1 :])


class CallerWishes(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's wishes for one request, from its `x-penstock-` headers."""

    session: str = ""
    bypass: bool = False
    target_tokens: int | None = None
    focus: str | None = None
    store: StoreMode | None = None
    open: bool = False


_NO_WISHES: Final = CallerWishes()
_PREFIX: Final = "x-penstock-"
_YES_AND_NO: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_MOST_TOKENS: Final = 100_000_000
_SESSION_CHARS: Final = 200
_FOCUS_CHARS: Final = 1_000
_STORE_MODES: Final[tuple[StoreMode, ...]] = ("full", "digests", "off")  # from the loosest to the strictest


def read_wishes(headers: Mapping[str, str]) -> CallerWishes:
    """Returns the wishes in the headers. Raises InputError for a value that cannot be meant, with what is allowed."""
    if _PREFIX not in "\n".join(headers).lower():  # as nearly always: each name by itself takes longer
        return _NO_WISHES
    names = [name for name in headers if name[: len(_PREFIX)].lower() == _PREFIX]
    found: dict[str, Any] = {}
    for name in names:
        text = headers[name].strip()
        match name[len(_PREFIX) :].lower():
            case "session":
                found["session"] = _read_session(text)
            case "bypass":
                found["bypass"] = _read_switch(name, text)
            case "open":
                found["open"] = _read_switch(name, text)
            case "target-tokens":
                found["target_tokens"] = _read_tokens(text)
            case "focus":
                found["focus"] = _read_focus(text)
            case "store":
                found["store"] = _read_store(text)
            case _:
                pass  # a later version's
    return CallerWishes(**found)


def _read_session(text: str) -> str:
    if not (0 < len(text) <= _SESSION_CHARS and text.isascii() and text.isprintable()):
        raise InputError(f"x-penstock-session must be 1 to {_SESSION_CHARS} printable ASCII characters")
    return text


def _read_switch(name: str, text: str) -> bool:
    value = _YES_AND_NO.get(text.lower())
    if value is None:
        raise InputError(f"{name.lower()} is {_quote(text)}; allowed: true or false")
    return value


def _read_tokens(text: str) -> int:
    digits = text.replace("_", "")
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 9 else 0
    if not 0 < number <= _MOST_TOKENS:
        raise InputError(
            f"x-penstock-target-tokens is {_quote(text)}; allowed: a whole number from 1 to {_MOST_TOKENS:,}, "
            "such as 20000"
        )
    return number


def _read_focus(text: str) -> str:
    if not 0 < len(text) <= _FOCUS_CHARS or any("\ud800" <= char <= "\udfff" for char in text):
        raise InputError(f"x-penstock-focus must be 1 to {_FOCUS_CHARS:,} characters of UTF-8 text")
    return text


def _read_store(text: str) -> StoreMode:
    for mode in _STORE_MODES:
        if text.lower() == mode:
            return mode
    raise InputError(f"x-penstock-store is {_quote(text)}; allowed: {', '.join(_STORE_MODES)}")


def _quote(text: str) -> str:
    return ascii(text[:40])


def stricter_store(*modes: StoreMode | None) -> StoreMode:
    """Returns the mode that keeps the least: a caller may ask for less than the settings keep, never for more."""
    return max((mode for mode in modes if mode is not None), key=_STORE_MODES.index, default="full")


_SESSION_HEADERS: Final = (
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "thread-id",
    "conversation_id",
    "x-session-id",
    "x-session-affinity",
)
_AGENT_HEADERS: Final = ("x-claude-code-agent-id", "x-penstock-agent")


def read_hints(headers: Mapping[str, str]) -> tuple[str, str]:
    """Returns the conversation and the sub-agent that the client's own headers name; empty where they name none."""
    return _first(headers, _SESSION_HEADERS), _first(headers, _AGENT_HEADERS)


def tells_compaction(headers: Mapping[str, str]) -> bool:
    """Returns True where Codex says that it wants a summary for a compaction of its own."""
    return '"request_kind":"compaction"' in headers.get("x-codex-turn-metadata", "")


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        if name in headers:
            text = headers[name][:_SESSION_CHARS]
            return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
    return ""


def read_credential(headers: Mapping[str, str]) -> str:
    """Returns the key that the caller sent, in any of the headers that APIs take it from; empty where there is none."""
    key = headers.get("x-api-key") or headers.get("api-key")
    if key:
        return key
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class Envelope(msgspec.Struct, frozen=True):
    """The fields of a body that decide how it is served."""

    model: Any = None
    stream: Any = None

    @property
    def model_name(self) -> str:
        """The model's name; empty where none is named."""
        return self.model if isinstance(self.model, str) else ""


_ENVELOPE: Final = msgspec.json.Decoder(Envelope)
_EMPTY: Final = Envelope()


def read_envelope(body: bytes) -> Envelope:
    """Returns the fields of a body that decide how it is served; empty ones where it is no JSON object."""
    try:
        return _ENVELOPE.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _EMPTY
