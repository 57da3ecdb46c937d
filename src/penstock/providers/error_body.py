"""Reads error bodies of any shape: JSON, an event stream, a proxy's page, or plain text.

Only fields in which providers put their own words are read. An error can hold the caller's text as well (a
request that is echoed, an answer that had begun): that is never taken for what the provider said.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.conversation.wire import parse_json

__all__ = ["ErrorBody", "read_body"]

_JSON_BYTES: Final = 1 << 18  # no provider writes a longer error; what is longer is only looked at in part
_PART: Final = 1 << 15  # of a longer body: as much of its start and of its end
_TEXT_CHARS: Final = 4_000
_DEPTH: Final = 8
_NODES: Final = 200
_ITEMS: Final = 16
_EVENTS: Final = 64

_TEXTS: Final = (
    "message",
    "Message",
    "msg",
    "errorMessage",
    "error_description",
    "detail",
    "raw",
    "error",
    "param",
)
_CODES: Final = ("code", "Code", "type", "errorType", "error_type", "__type", "status", "reason", "quotaId")
_INSIDE: Final = (
    "error",
    "errors",
    "detail",
    "details",
    "metadata",
    "raw",
    "response",
    "violations",
    "data",
    "innererror",
)
_WAITS: Final = ("retryDelay", "retry_after", "retry_after_seconds", "estimated_time", "resets_in_seconds")
_HOLLOW: Final = {
    "error",
    "failed",
    "response.failed",
    "none",
    "null",
}  # words that say no more than an error does

_EVENT_LINE: Final = re.compile(r"^(?:event|data):", re.MULTILINE)
_FIELD: Final = re.compile(r'"(message|code|type)"\s*:\s*"((?:[^"\\]|\\.){1,2000})"')
_TITLE: Final = re.compile(r"<(title|h1)[^<>]{0,200}>([^<]{1,300})", re.IGNORECASE)
_TAG: Final = re.compile(r"<[^<>]{0,500}>")
_PAGE_STATUS: Final = re.compile(r"\b([45]\d\d)\b")


class ErrorBody(msgspec.Struct, frozen=True):
    """The content of an error body: the provider's own words and codes, outermost first, and the numbers it gives apart.

    `status` is a status written into the body, `waits` are what it states of waiting, `headers` those that a
    relay passed on inside the body.
    """

    texts: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    status: int | None = None
    window_tokens: int | None = None
    prompt_tokens: int | None = None
    waits: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


def read_body(body: bytes | str | Mapping[Any, Any] | Sequence[Any] | None) -> ErrorBody:
    """Reads an error body. Never raises: a body that cannot be understood comes back empty, or as text."""
    found = _Found()
    if isinstance(body, bytes | bytearray | memoryview):
        _read_text(_decode(bytes(body)), found)
    elif isinstance(body, str):
        _read_text(_decode(body.encode("utf-8", "replace")) if len(body) > _JSON_BYTES else body, found)
    elif body is not None:
        _walk(body, found, 0)
    return found.said()


class _Found:
    """Collects findings while a body is read; the only mutable value here."""

    def __init__(self) -> None:
        self.texts: dict[str, None] = {}
        self.codes: dict[str, None] = {}
        self.numbers: dict[str, int] = {}
        self.waits: list[str] = []
        self.headers: list[tuple[str, str]] = []
        self.nodes = 0

    def add_text(self, text: str) -> None:
        text = text.strip()
        if len(text) > _TEXT_CHARS:
            text = f"{text[: _TEXT_CHARS - 1_000]} {text[-1_000:]}"
        if text and len(self.texts) < _ITEMS:
            self.texts.setdefault(text)

    def add_code(self, code: str) -> None:
        code = code.strip()[:200]
        if code and code.lower() not in _HOLLOW and len(self.codes) < _ITEMS:
            self.codes.setdefault(code)

    def add_number(self, name: str, value: int) -> None:
        self.numbers.setdefault(name, value)

    def said(self) -> ErrorBody:
        return ErrorBody(
            texts=tuple(self.texts),
            codes=tuple(self.codes),
            status=self.numbers.get("status"),
            window_tokens=self.numbers.get("n_ctx"),
            prompt_tokens=self.numbers.get("n_prompt_tokens"),
            waits=tuple(self.waits),
            headers=tuple(self.headers),
        )


def _decode(body: bytes) -> str:
    if len(body) > _JSON_BYTES:
        body = body[:_PART] + b"\n" + body[-_PART:]
    return body.decode("utf-8", "replace").removeprefix("\ufeff")


def _read_text(text: str, found: _Found) -> None:
    stripped = text.strip()
    if stripped.startswith(("{", "[", '"')):
        try:
            value = parse_json(stripped)
        except ValueError:
            _read_fields(stripped, found)
        else:
            _walk(value, found, 0)
    elif stripped.startswith("<"):
        _read_page(stripped, found)
    elif _EVENT_LINE.search(stripped[:_PART]):
        _read_events(stripped, found)
    elif stripped.lower() not in _HOLLOW:
        found.add_text(stripped)


def _read_fields(text: str, found: _Found) -> None:
    """JSON that was cut or is broken: its fields, as far as they can be seen; else it is just a text."""
    fields = [match.groups() for match in list(_FIELD.finditer(text))[:_ITEMS]]
    for name, value in fields:
        (found.add_text if name == "message" else found.add_code)(value)
    if not found.texts:
        found.add_text(text)


def _read_page(text: str, found: _Found) -> None:
    """A proxy's page: its headings. The prose below is about causes in general and would mislead."""
    headings = dict.fromkeys(html.unescape(match[2]).strip() for match in _TITLE.finditer(text[:_PART]))
    if not headings:
        found.add_text(" ".join(html.unescape(_TAG.sub(" ", text[:_TEXT_CHARS])).split()))
    for heading in list(headings)[:2]:
        found.add_text(heading)
    status = _PAGE_STATUS.search(next(iter(headings), ""))
    if status:
        found.add_number("status", int(status[1]))


def _read_events(text: str, found: _Found) -> None:
    """Server-sent events: those that report an error. What the model had said before is left alone."""
    name = ""
    candidates: list[tuple[str, str]] = []
    for line in text.splitlines():
        field, _, value = line.partition(":")
        if field == "event":
            name = value.strip()
        elif field == "data" and ("error" in value or "error" in name or "failed" in name):
            candidates.append((name, value.strip()))
    for event in candidates[-_EVENTS:]:  # an error ends a stream
        _read_event(*event, found)


def _read_event(name: str, data: str, found: _Found) -> None:
    try:
        value = parse_json(data)
    except ValueError:
        if name == "error":
            found.add_text(data)
        return
    if isinstance(value, Mapping) and (name == "error" or _reports_error(value)):
        _walk(value, found, 0)


def _reports_error(event: Mapping[Any, Any]) -> bool:
    response = event.get("response")
    return bool(
        event.get("error")
        or event.get("type") == "error"
        or (isinstance(response, Mapping) and response.get("error"))
        or _choice_errors(event)
    )


def _choice_errors(value: Mapping[Any, Any]) -> list[Any]:
    """Returns the errors inside the choices of an answer, as relays report what failed half-way."""
    choices = value.get("choices")
    items = choices[:_ITEMS] if isinstance(choices, list) else []
    return [item["error"] for item in items if isinstance(item, Mapping) and item.get("error")]


def _walk(value: Any, found: _Found, depth: int) -> None:
    found.nodes += 1
    if depth > _DEPTH or found.nodes > _NODES:
        return
    if isinstance(value, str):
        _read_nested(value, found, depth)
    elif isinstance(value, Mapping):
        _read_object(value, found, depth)
    elif isinstance(value, list | tuple):
        for item in value[:_ITEMS]:
            _walk(item, found, depth + 1)


def _read_nested(text: str, found: _Found, depth: int) -> None:
    """A text, which relays like to fill with the JSON that they were sent."""
    stripped = text.strip()
    if stripped.startswith(("{", "[")) and len(stripped) < _JSON_BYTES:
        try:
            _walk(parse_json(stripped), found, depth + 1)
        except ValueError:
            found.add_text(stripped)
    else:
        found.add_text(stripped)


def _read_object(value: Mapping[Any, Any], found: _Found, depth: int) -> None:
    for name in _TEXTS:
        text = value.get(name)
        if isinstance(text, str) and (name != "param" or " " in text):
            _walk(text, found, depth + 1)
    for name in _CODES:
        _read_code(name, value.get(name), found)
    _read_numbers(value, found)
    for name in _INSIDE:
        inside = value.get(name)
        if isinstance(inside, Mapping | list | tuple):
            _walk(inside, found, depth + 1)
    for error in _choice_errors(value):
        _walk(error, found, depth + 1)


def _read_numbers(value: Mapping[Any, Any], found: _Found) -> None:
    for name in ("n_ctx", "n_prompt_tokens"):
        number = value.get(name)
        if isinstance(number, int):
            found.add_number(name, number)
    for name in _WAITS:
        _read_wait(value.get(name), found)
    headers = value.get("headers")
    if isinstance(headers, Mapping):
        found.headers.extend((str(key), str(item)) for key, item in list(headers.items())[:_ITEMS])


def _read_code(name: str, code: Any, found: _Found) -> None:
    if isinstance(code, str):
        found.add_code(code.rpartition("#")[2] if name == "__type" else code)  # Amazon's has a namespace
    number = int(code) if isinstance(code, str) and code.isdecimal() and len(code) == 3 else code
    if isinstance(number, int) and 400 <= number <= 599:
        found.add_number("status", number)


def _read_wait(wait: Any, found: _Found) -> None:
    if isinstance(wait, Mapping):
        wait = wait.get("seconds")
    if isinstance(wait, str | int | float) and not isinstance(wait, bool):
        found.waits.append(f"{wait}"[:40])
