"""Scripts for models and providers: the answers, written down in advance, and a record of the requests.

A script is a list of replies, given in their order, or a function from the request to a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from penstock.conversation.wire import json_text
from penstock.errors import ErrorKind
from penstock.measure.usage import Usage  # noqa: TC001  # tools that build replies read the types of their fields
from penstock.providers.error_answers import ErrorAnswer, ErrorCase, write_error
from penstock.providers.exchange import Called, Finish

__all__ = ["Breach", "Failure", "Headers", "RawBody", "Received", "Replies", "Reply", "Script"]

_SECRET_HEADERS = frozenset(("authorization", "x-api-key", "api-key", "cookie", "proxy-authorization"))


class Failure(ErrorCase, frozen=True, kw_only=True):
    """An error to answer with.

    Written in the shape and words of the requested dialect, from `kind` and the numbers, unless `body`
    is given, which is sent as it is, an object as JSON. `status` is the dialect's own if it is None.
    """

    status: int | None = None
    body: Any = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)

    def answer(self, dialect: str, number: int) -> ErrorAnswer:
        """Returns the error that the dialect's API answers request `number` with."""
        answer = write_error(self, dialect, request_id=f"req_scripted{number:04}", status=self.status)
        if self.body is not None:
            return ErrorAnswer(answer.status, self.body, self.headers)
        return ErrorAnswer(answer.status, answer.body, {**answer.headers, **self.headers})


class RawBody(msgspec.Struct, frozen=True):
    """A body that is sent as it stands, in place of an answer: broken JSON, a page of a proxy, nothing at all."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200


class Reply(msgspec.Struct, frozen=True):
    """One answer of a script, or one way of failing to give one.

    `finish` follows from the calls and `usage` from the request if they are None. In a stream, texts come
    in pieces of `chunk_chars` with `chunk_delay_seconds` between two events. After `cut_after_chunks` events
    the connection is dropped (0: before the headers; without a stream: in the middle of the body). With
    `stream_failure` the stream ends with that error instead: at the cut, or else where the answer would close.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[Called, ...] = ()
    finish: Finish | None = None
    usage: Usage | None = None
    failure: Failure | None = None
    raw: RawBody | None = None
    stream_failure: Failure | None = None
    delay_seconds: float = 0.0
    chunk_delay_seconds: float = 0.0
    chunk_chars: int = 16
    cut_after_chunks: int | None = None

    @property
    def finished(self) -> Finish:
        """The reason to stop: the script's own, else the one that follows from the calls."""
        return self.finish or (Finish.TOOL_CALLS if self.calls else Finish.STOP)

    @classmethod
    def calling(cls, name: str, /, **arguments: Any) -> Reply:
        """An answer that calls one tool. The call's id is made when it is sent."""
        return cls(calls=(Called("", name, json_text(arguments)),))

    @classmethod
    def failing(cls, status: int, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """An error with this status. An object is sent as JSON, a text as it is."""
        return cls(failure=Failure(status=status, body=body, headers=headers or {}))

    @classmethod
    def rate_limited(cls, retry_after: float | None = None) -> Reply:
        """429, with the seconds to wait in the header if they are given."""
        headers = {} if retry_after is None else _retry_headers(retry_after)
        return cls(failure=Failure(kind=ErrorKind.RATE_LIMIT, headers=headers))

    @classmethod
    def overloaded(cls) -> Reply:
        """503, or 529 at Anthropic."""
        return cls(failure=Failure(kind=ErrorKind.OVERLOAD))

    @classmethod
    def server_error(cls) -> Reply:
        """500: something broke at the provider."""
        return cls(failure=Failure(kind=ErrorKind.OVERLOAD, status=500))

    @classmethod
    def too_long(cls, *, window: int, prompt: int) -> Reply:
        """The prompt does not fit the window."""
        return cls(
            failure=Failure(kind=ErrorKind.PROMPT_TOO_LONG, window_tokens=window, prompt_tokens=prompt)
        )

    @classmethod
    def output_cap(cls, *, cap: int, asked: int) -> Reply:
        """More output was asked for than the model can give. The prompt is not to blame."""
        return cls(
            failure=Failure(kind=ErrorKind.OUTPUT_CAP_TOO_LARGE, output_cap_tokens=cap, output_tokens=asked)
        )

    @classmethod
    def output_over_window(cls, *, window: int, prompt: int, asked: int) -> Reply:
        """The prompt fits, but not together with the output that was asked for."""
        return cls(failure=_over_window(window, prompt, asked))

    @classmethod
    def payload_too_large(cls) -> Reply:
        """413."""
        return cls(failure=Failure(kind=ErrorKind.PAYLOAD_TOO_LARGE))

    @classmethod
    def unauthorised(cls) -> Reply:
        """401: the key is wrong."""
        return cls(failure=Failure(kind=ErrorKind.AUTH))

    @classmethod
    def quota_exceeded(cls) -> Reply:
        """The account has nothing left."""
        return cls(failure=Failure(kind=ErrorKind.QUOTA))

    @classmethod
    def page(cls, html: str = "<html><body>502 Bad Gateway</body></html>", status: int = 502) -> Reply:
        """A page of a proxy in place of an answer."""
        return cls(raw=RawBody(html.encode(), "text/html", status))

    @classmethod
    def malformed(cls, body: bytes = b'{"id": "cut o') -> Reply:
        """200, and a body that is not JSON."""
        return cls(raw=RawBody(body))


def _over_window(window: int, prompt: int, asked: int) -> Failure:
    return Failure(
        kind=ErrorKind.OUTPUT_CAP_TOO_LARGE, window_tokens=window, prompt_tokens=prompt, output_tokens=asked
    )


def _retry_headers(seconds: float) -> dict[str, str]:
    if seconds == int(seconds):
        return {"retry-after": str(int(seconds))}
    return {"retry-after": str(seconds), "retry-after-ms": str(round(seconds * 1000))}


class Headers(dict[str, str]):
    """Headers by their names in lower case. Those that hold a key are there, but not in the repr."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__({name.lower(): value for name, value in (headers or {}).items()})

    def __repr__(self) -> str:
        return repr({k: "[REDACTED]" if k in _SECRET_HEADERS else v for k, v in self.items()})


class Breach(msgspec.Struct, frozen=True):
    """A request that a provider would have refused, or that the script has no reply for.

    `request` is its number, from 1. `rule` is a rule of the dialect, or "body", "route" or "script".
    """

    request: int
    rule: str
    text: str


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as it came. `disconnected` says that the client went away before the answer ended."""

    number: int
    dialect: str
    path: str
    body: Mapping[str, Any]
    raw: bytes
    headers: Headers = msgspec.field(default_factory=Headers)
    streaming: bool = False
    prompt_tokens: int = 0
    disconnected: bool = False

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return str(self.body.get("model") or "")

    @property
    def messages(self) -> Sequence[Any]:
        """The messages or items, in the dialect; a bare text of Responses as the user's message."""
        found = self.body.get("input" if self.dialect == "responses" else "messages")
        if isinstance(found, str):
            return [{"role": "user", "content": found}]
        return found if isinstance(found, list) else []

    @property
    def system(self) -> Any:
        """The system prompt if it stands beside the messages, else None."""
        return self.body.get({"responses": "instructions", "anthropic": "system"}.get(self.dialect, ""))

    @property
    def tools(self) -> Sequence[Any]:
        """The tools that were offered."""
        found = self.body.get("tools")
        return found if isinstance(found, list) else []

    @property
    def max_output_tokens(self) -> int | None:
        """The most tokens that the answer may take, if the request says so."""
        for name in ("max_output_tokens", "max_completion_tokens", "max_tokens"):
            value = self.body.get(name)
            if isinstance(value, int):
                return value
        return None

    @property
    def text(self) -> str:
        """The body as text: what a test looks into for what the model was shown."""
        return json_text(self.body)

    def __repr__(self) -> str:
        return (
            f"Received(number={self.number}, dialect={self.dialect!r}, path={self.path!r}, model={self.model!r}, "
            f"messages={len(self.messages)}, prompt_tokens={self.prompt_tokens}, streaming={self.streaming}, "
            f"disconnected={self.disconnected}, headers={self.headers!r})"
        )


Replies: TypeAlias = Sequence[Reply | str] | Callable[[Received], Reply | str]


class Script:
    """Gives out replies. A text stands for a reply of that text.

    After the last reply of a list it fails with AssertionError, or gives the last one again and again.
    """

    def __init__(self, replies: Replies, *, repeat_last: bool = False) -> None:
        self._replies = replies if callable(replies) else tuple(replies)
        self._repeat_last = repeat_last
        self._given = 0

    def next(self, received: Received) -> Reply:
        """The reply to this request."""
        given = self._given
        self._given += 1
        if callable(self._replies):
            return _as_reply(self._replies(received))
        if given < len(self._replies):
            return _as_reply(self._replies[given])
        if self._repeat_last and self._replies:
            return _as_reply(self._replies[-1])
        raise AssertionError(
            f"the script has {len(self._replies)} replies and was asked for one more: "
            "add a reply, or pass repeat_last=True"
        )


def _as_reply(reply: Reply | str) -> Reply:
    return Reply(reply) if isinstance(reply, str) else reply
