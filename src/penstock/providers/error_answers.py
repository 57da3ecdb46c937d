"""Errors in the shape and words of each provider's API.

A server of ours that has to refuse a request answers as the provider would, so that the caller's client
understands the refusal and does what it does for the real one. The tables quote what the APIs say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.errors import ErrorKind

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ErrorAnswer", "ErrorCase", "write_error"]


class ErrorCase(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of an error, and the numbers that its text names. `message` replaces that text."""

    kind: ErrorKind = ErrorKind.BAD_REQUEST
    message: str = ""
    window_tokens: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    output_cap_tokens: int = 0


class ErrorAnswer(NamedTuple):
    """An error as it goes out: a body that is an object is sent as JSON, one that is a string as it stands."""

    status: int
    body: Any
    headers: Mapping[str, str]


class _Words(NamedTuple):
    """The words of an API for one case; `code` is Anthropic's `type`. Braces take the numbers of the case."""

    status: int
    code: str | None
    text: str
    kind: str = "invalid_request_error"
    param: str | None = None


_SERVER_ERROR = "server error"
_OVER_WINDOW = "output over window"
_FORBIDDEN = "forbidden"
_SPENT = "budget spent"

_ANTHROPIC: Mapping[str, _Words] = {
    ErrorKind.PROMPT_TOO_LONG: _Words(
        400, "invalid_request_error", "prompt is too long: {prompt_tokens} tokens > {window_tokens} maximum"
    ),
    _OVER_WINDOW: _Words(
        400,
        "invalid_request_error",
        "input length and `max_tokens` exceed context limit: {prompt_tokens} + {output_tokens} > {window_tokens}, "
        "decrease input length or `max_tokens` and try again",
    ),
    ErrorKind.OUTPUT_CAP_TOO_LARGE: _Words(
        400,
        "invalid_request_error",
        "max_tokens: {output_tokens} > {output_cap_tokens}, which is the maximum allowed number of output tokens "
        "for this model",
    ),
    ErrorKind.PAYLOAD_TOO_LARGE: _Words(413, "request_too_large", "Request exceeds the maximum size"),
    ErrorKind.RATE_LIMIT: _Words(
        429, "rate_limit_error", "This request would exceed your organization's rate limit."
    ),
    _SERVER_ERROR: _Words(500, "api_error", "Internal server error"),
    ErrorKind.OVERLOAD: _Words(529, "overloaded_error", "Overloaded"),
    ErrorKind.AUTH: _Words(401, "authentication_error", "invalid x-api-key"),
    _FORBIDDEN: _Words(
        403, "permission_error", "Your API key does not have permission to use the specified resource."
    ),
    ErrorKind.QUOTA: _Words(
        400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."
    ),
    _SPENT: _Words(
        429, "rate_limit_error", "This request would exceed your organization's daily usage limit."
    ),
    ErrorKind.TIMEOUT: _Words(504, "timeout_error", "Request timed out"),
    ErrorKind.BAD_REQUEST: _Words(400, "invalid_request_error", "Bad request"),
}

_CHAT: Mapping[str, _Words] = {
    ErrorKind.PROMPT_TOO_LONG: _Words(
        400,
        "context_length_exceeded",
        "This model's maximum context length is {window_tokens} tokens. However, your messages resulted in "
        "{prompt_tokens} tokens. Please reduce the length of the messages.",
        param="messages",
    ),
    _OVER_WINDOW: _Words(
        400,
        "context_length_exceeded",
        "This model's maximum context length is {window_tokens} tokens. However, you requested {asked_tokens} tokens "
        "({prompt_tokens} in the messages, {output_tokens} in the completion). Please reduce the length of the "
        "messages or completion.",
        param="messages",
    ),
    ErrorKind.OUTPUT_CAP_TOO_LARGE: _Words(
        400,
        "invalid_value",
        "max_tokens is too large: {output_tokens}. This model supports at most {output_cap_tokens} completion "
        "tokens, whereas you provided {output_tokens}.",
        param="max_tokens",
    ),
    ErrorKind.PAYLOAD_TOO_LARGE: _Words(413, None, "Request too large"),
    ErrorKind.RATE_LIMIT: _Words(
        429,
        "rate_limit_exceeded",
        "Rate limit reached for requests. Please slow down and try again.",
        "requests",
    ),
    _SERVER_ERROR: _Words(
        500, None, "The server had an error while processing your request. Sorry about that!", "server_error"
    ),
    ErrorKind.OVERLOAD: _Words(
        503, None, "The engine is currently overloaded, please try again later", "server_error"
    ),
    ErrorKind.AUTH: _Words(401, "invalid_api_key", "Incorrect API key provided."),
    _FORBIDDEN: _Words(403, "model_not_found", "You do not have access to this model."),
    ErrorKind.QUOTA: _Words(
        429,
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
    ),
    _SPENT: _Words(429, "insufficient_quota", "You exceeded your current quota.", "insufficient_quota"),
    ErrorKind.TIMEOUT: _Words(504, None, "The request timed out", "server_error"),
    ErrorKind.BAD_REQUEST: _Words(400, None, "Bad request"),
}

_CAP_OF_RESPONSES = _Words(
    400,
    "integer_above_max_value",
    "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= {cap_tokens}, but got "
    "{output_tokens} instead.",
    param="max_output_tokens",
)
_RESPONSES: Mapping[str, _Words] = {
    **_CHAT,
    ErrorKind.PROMPT_TOO_LONG: _Words(
        400,
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        param="input",
    ),
    _OVER_WINDOW: _CAP_OF_RESPONSES,
    ErrorKind.OUTPUT_CAP_TOO_LARGE: _CAP_OF_RESPONSES,
}

_WORDS = {"chat": _CHAT, "responses": _RESPONSES, "anthropic": _ANTHROPIC}


def write_error(case: ErrorCase, dialect: str, *, request_id: str, status: int | None = None) -> ErrorAnswer:
    """Returns the error that the API of the dialect gives in this case.

    `status` replaces the API's own status; an overload with status 500 or 502 is worded as a fault of the server, a
    missing right with 403 as a model that this key may not use, an empty account with 429 as a limit.
    """
    tables = _WORDS[dialect]
    words = tables.get(_row_of(case, status)) or tables[ErrorKind.BAD_REQUEST]
    text = case.message or words.text.format(**_numbers(case))
    if dialect == "anthropic":
        body: Any = {
            "type": "error",
            "error": {"type": words.code, "message": text},
            "request_id": request_id,
        }
        return ErrorAnswer(status or words.status, body, {"request-id": request_id})
    body = {"error": {"message": text, "type": words.kind, "param": words.param, "code": words.code}}
    return ErrorAnswer(status or words.status, body, {"x-request-id": request_id})


def _row_of(case: ErrorCase, status: int | None) -> str:
    """Returns the key of the tables: the kind, or one of the kinds that APIs word in two ways."""
    if case.kind is ErrorKind.OVERLOAD and status in {500, 502}:
        return _SERVER_ERROR
    if case.kind is ErrorKind.AUTH and status == 403:
        return _FORBIDDEN
    if case.kind is ErrorKind.QUOTA and status == 429:
        return _SPENT
    if case.kind is ErrorKind.OUTPUT_CAP_TOO_LARGE and case.window_tokens:
        return _OVER_WINDOW
    return case.kind


def _numbers(case: ErrorCase) -> dict[str, int]:
    left = max(0, case.window_tokens - case.prompt_tokens)
    return {
        "window_tokens": case.window_tokens,
        "prompt_tokens": case.prompt_tokens,
        "output_tokens": case.output_tokens,
        "output_cap_tokens": case.output_cap_tokens,
        "asked_tokens": case.prompt_tokens + case.output_tokens,
        "cap_tokens": case.output_cap_tokens or left,
    }
