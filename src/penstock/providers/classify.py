"""Classifies a provider's error: one function from status, code, type and text to one of ten kinds."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import ErrorClass, ErrorKind
from penstock.providers.error_body import ErrorBody, read_body
from penstock.providers.error_table import BY_STATUS, Figures, Row, read_rows
from penstock.providers.error_text import lower_headers, read_number, retry_after_seconds
from penstock.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["classify_error"]

_HAYSTACK_CHARS: Final = 12_000
_MESSAGE_CHARS: Final = 300
_QUOTED_CHARS: Final = 2_000  # redacted before it is shortened, so that no secret is cut in two and left
_WINDOW_TOKENS: Final = range(1_024, 10_000_001)
_LARGE_SHARE: Final = 4  # an answer of a quarter of the window and more is what is too large
_CODE: Final = re.compile(r"[\w.\-/ ]{1,80}")
_SIZE_KINDS: Final = (ErrorKind.PROMPT_TOO_LONG, ErrorKind.OUTPUT_CAP_TOO_LARGE)


def classify_error(
    status: int | None,
    body: bytes | str | Mapping[str, Any] | None,
    headers: Mapping[str, str] | None = None,
    *,
    redactor: Redactor | None = None,
) -> ErrorClass:
    """Returns what kind of error a provider answered with, and the numbers it states.

    `status` is None or 200 if the error came inside a stream. `body` is what arrived: JSON in any provider's
    shape, one or more server-sent events, a proxy's page, anything. Never raises. Only a bounded part of a large
    body is looked at. `redactor` replaces the plain one for `message`, for a caller that knows its own secrets.
    """
    said = read_body(body)
    given = lower_headers(headers)
    codes = (*said.codes, *(given[name] for name in ("x-amzn-errortype",) if name in given))
    haystack = "\n".join(" ".join(text.split()) for text in (*said.texts, *codes))[:_HAYSTACK_CHARS].lower()
    kind, figures = _decide(haystack, _effective_status(status, said))
    given.update(lower_headers(said.headers))
    redact = redactor or _plain_redactor()
    return ErrorClass(
        kind=kind,
        status=status,
        code=_code(codes, redact),
        message=_message(said, redact),
        window_tokens=_window(kind, figures, said),
        prompt_tokens=figures.get("prompt", said.prompt_tokens),
        output_cap_tokens=_output_cap(figures),
        retry_after_seconds=retry_after_seconds(
            given, waits=said.waits, text=haystack, limited=kind is ErrorKind.RATE_LIMIT
        ),
    )


def _effective_status(status: int | None, said: ErrorBody) -> int | None:
    """Returns the status that counts: the one in the body if the error came with none of its own."""
    if status is None or status < 300:
        return said.status if said.status is not None else status
    return status


def _decide(haystack: str, status: int | None) -> tuple[ErrorKind, dict[str, int]]:
    for row in read_rows():
        match = row.pattern.search(haystack)
        if match:
            figures = {name: read_number(text) for name, text in match.groupdict().items() if text}
            return _kind_of(row, figures)
    return _kind_by_status(haystack, status), {}


def _kind_of(row: Row, figures: dict[str, int]) -> tuple[ErrorKind, dict[str, int]]:
    """Returns the kind of a row, decided by its numbers if it depends on them, and the numbers that can be relied on."""
    if isinstance(row.kind, ErrorKind):
        return row.kind, figures
    if row.kind is Figures.LOWER_BOUND:
        del figures["prompt"]
        large = figures["asked"] * _LARGE_SHARE >= figures["window"]
        return (ErrorKind.OUTPUT_CAP_TOO_LARGE if large else ErrorKind.PROMPT_TOO_LONG), figures
    prompt = figures.setdefault("prompt", max(0, figures.get("total", 0) - figures["asked"]))
    fits = figures["asked"] > 0 and prompt < figures["window"]
    return (ErrorKind.OUTPUT_CAP_TOO_LARGE if fits else ErrorKind.PROMPT_TOO_LONG), figures


def _kind_by_status(haystack: str, status: int | None) -> ErrorKind:
    """Classifies by the status if the words are unknown; without a status, as a server that failed mid-answer."""
    if status is not None:
        for statuses, kind in BY_STATUS:
            if status in statuses:
                return kind
    return ErrorKind.OVERLOAD if haystack or status is not None else ErrorKind.NETWORK


def _window(kind: ErrorKind, figures: dict[str, int], said: ErrorBody) -> int | None:
    if kind not in _SIZE_KINDS:
        return None
    window = figures.get("window", said.window_tokens)
    return window if window is not None and window in _WINDOW_TOKENS else None


def _output_cap(figures: dict[str, int]) -> int | None:
    cap = figures.get("cap", figures.get("below", 0) - 1)
    return cap if cap >= 0 else None


def _code(codes: tuple[str, ...], redactor: Redactor) -> str:
    """Returns the provider's own name for the error: the first that is a name and not a number."""
    names = (code for code in codes if _CODE.fullmatch(code) and not code.isdecimal())
    return redactor.redact(next(names, ""))


def _message(said: ErrorBody, redactor: Redactor) -> str:
    """Returns the provider's own words on one line, the relay's first, free of secrets and short."""
    words = " ".join(" · ".join(said.texts)[:_QUOTED_CHARS].split())
    text = "".join(char for char in redactor.redact(words) if char.isprintable())
    return text if len(text) <= _MESSAGE_CHARS else f"{text[: _MESSAGE_CHARS - 1]}…"


@cache
def _plain_redactor() -> Redactor:
    return Redactor()
