"""Answers that the gateway gives itself: errors in the shape of the caller's API, and in the form its client understands."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from penstock.conversation.wire import encode_wire
from penstock.errors import ErrorKind
from penstock.gateway.headers import REQUEST_ID
from penstock.providers.error_answers import ErrorCase, write_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.errors import ErrorClass
    from penstock.providers.error_answers import ErrorAnswer

__all__ = ["SIZE_KINDS", "answer_error", "answer_too_long", "is_understood", "refuse_too_long_in_stream"]

SIZE_KINDS: Final = frozenset(
    {ErrorKind.PROMPT_TOO_LONG, ErrorKind.OUTPUT_CAP_TOO_LARGE, ErrorKind.PAYLOAD_TOO_LARGE}
)
_JSON: Final = "application/json"

# What clients look for in a refusal before they compact by themselves.
_UNDERSTOOD: Final = {
    "anthropic": b"prompt is too long",
    "chat": b"context_length_exceeded",
    "responses": b"context_length_exceeded",
}
_TOO_LONG: Final = {
    "anthropic": "prompt is too long",
    "chat": "This request exceeds the model's maximum context length. Please reduce the length of the messages.",
}


def answer_error(
    message: str,
    dialect: str | None,
    *,
    status: int,
    kind: ErrorKind = ErrorKind.BAD_REQUEST,
    request_id: str = "",
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Returns an error in the shape of the dialect; OpenAI's where none is known."""
    written = write_error(
        ErrorCase(kind=kind, message=message), dialect or "chat", request_id=request_id, status=status
    )
    return _answer(written, request_id, headers or {})


def _answer(written: ErrorAnswer, request_id: str, headers: Mapping[str, str]) -> web.Response:
    """Returns an error with the headers of its dialect, and our own name of the request where the log has it."""
    named = {**written.headers, REQUEST_ID: request_id} if request_id else {}
    return web.Response(
        status=written.status,
        body=encode_wire(written.body),
        headers={"content-type": _JSON, **named, **headers},
    )


def is_understood(body: bytes, status: int, dialect: str) -> bool:
    """Returns True for a provider's refusal of a long prompt that the dialect's clients know as one."""
    return status == 400 and _UNDERSTOOD[dialect] in body


def answer_too_long(
    failure: ErrorClass, dialect: str, *, request_id: str, headers: Mapping[str, str]
) -> web.Response:
    """Returns the refusal of a prompt that cannot be made small enough, as the dialect's own API words it."""
    case = _case_of(failure, dialect)
    written = write_error(case, dialect, request_id=request_id)
    return _answer(written, request_id, {"x-should-retry": "false", **headers})


def refuse_too_long_in_stream(failure: ErrorClass, model: str, *, request_id: str) -> bytes:
    """Returns the same for a streamed request of Responses: Codex understands it only as an event of the stream."""
    written = write_error(_case_of(failure, "responses"), "responses", request_id=request_id)
    error = {"code": "context_length_exceeded", "message": written.body["error"]["message"]}
    response: dict[str, Any] = {
        "id": f"resp_{request_id}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "failed",
        "background": False,
        "error": error,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
        "metadata": {},
    }
    event = {"type": "response.failed", "sequence_number": 0, "response": response}
    return b"event: response.failed\ndata: " + encode_wire(event) + b"\n\n"


def _case_of(failure: ErrorClass, dialect: str) -> ErrorCase:
    """Returns the case with the provider's numbers; without them the words alone."""
    window, prompt = failure.window_tokens or 0, failure.prompt_tokens or 0
    known = bool(window and prompt > window)
    return ErrorCase(
        kind=ErrorKind.PROMPT_TOO_LONG,
        message="" if known else _TOO_LONG.get(dialect, ""),
        window_tokens=window,
        prompt_tokens=prompt,
    )
