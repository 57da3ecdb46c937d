"""Errors in the shape and words of each API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.errors import ErrorKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.testing.scripted import Failure

__all__ = ["Refusal", "refusal"]


class Refusal(NamedTuple):
    """An error answer: an object is sent as JSON, a text as it is."""

    status: int
    body: Any
    headers: Mapping[str, str]


class _Words(NamedTuple):
    """What an API says in one case; `code` is the type at Anthropic. Braces take the numbers of the failure."""

    status: int
    code: str | None
    text: str
    kind: str = "invalid_request_error"
    param: str | None = None


_SERVER_ERROR = "server error"
_OVER_WINDOW = "output over window"

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
    ErrorKind.QUOTA: _Words(
        400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."
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
    ErrorKind.QUOTA: _Words(
        429,
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
    ),
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

_SPOKEN = {"chat": _CHAT, "responses": _RESPONSES, "anthropic": _ANTHROPIC}


def refusal(failure: Failure, dialect: str, number: int) -> Refusal:
    """The error that the dialect's API answers request `number` with."""
    spoken = _SPOKEN[dialect]
    words = spoken.get(_case(failure)) or spoken[ErrorKind.BAD_REQUEST]
    status = failure.status or words.status
    if failure.body is not None:
        return Refusal(status, failure.body, failure.headers)
    text = failure.message or words.text.format(**_numbers(failure))
    request_id = f"req_scripted{number:04}"
    if dialect == "anthropic":
        told: Any = {
            "type": "error",
            "error": {"type": words.code, "message": text},
            "request_id": request_id,
        }
        return Refusal(status, told, {"request-id": request_id, **failure.headers})
    told = {"error": {"message": text, "type": words.kind, "param": words.param, "code": words.code}}
    return Refusal(status, told, {"x-request-id": request_id, **failure.headers})


def _case(failure: Failure) -> str:
    """The key of the tables: the kind, or one of the two kinds that APIs speak of in two ways."""
    if failure.kind is ErrorKind.OVERLOAD and failure.status == 500:
        return _SERVER_ERROR
    if failure.kind is ErrorKind.OUTPUT_CAP_TOO_LARGE and failure.window_tokens:
        return _OVER_WINDOW
    return failure.kind


def _numbers(failure: Failure) -> dict[str, int]:
    numbers = {
        name: value for name, value in msgspec.structs.asdict(failure).items() if name.endswith("_tokens")
    }
    left = max(0, failure.window_tokens - failure.prompt_tokens)
    return numbers | {
        "asked_tokens": failure.prompt_tokens + failure.output_tokens,
        "cap_tokens": failure.output_cap_tokens or left,
    }
