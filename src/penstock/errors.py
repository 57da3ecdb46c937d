"""Every exception that Penstock raises, and the kinds of providers' errors.

    PenstockError
    ├── InputError            the input cannot be read as a conversation
    │   ├── MalformedJSON     the bytes are not JSON
    │   └── UnknownDialect    JSON, but in no known dialect
    ├── UnknownHandle         no original is kept under that handle
    ├── StoreError            a store failed; nothing was changed
    │   ├── StoreConflict     another process wrote first: read again, then retry
    │   ├── StoreUnavailable  the file is locked, full, read-only or gone; the server does not answer
    │   ├── SchemaTooNew      a later version of Penstock wrote it
    │   ├── SchemaTooOld      a development version before the first release wrote it
    │   └── UnknownSession    there is no session with that id
    ├── SettingsError         a setting has an unknown name or a value out of range
    ├── EngineFailure         a third-party engine cannot be loaded, or failed
    ├── NotWritten            a model's answer is not a handoff (internal: callers get a `degraded` receipt)
    ├── ProviderError         a provider did not answer; `failure` classifies the error
    ├── RunBroken             a run over a data set stopped in the middle; finished work is kept
    ├── TargetTooSmall        the parts that may not be dropped do not fit the target
    ├── ToolFailure           a tool of the agent cannot do its work; the text is for the model
    └── IllegalResult         a result broke a rule of its dialect (a bug of ours, never sent)

A message names the value, the limit and the next step. It never holds conversation text beyond a short,
redacted quote.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

__all__ = [
    "EngineFailure",
    "ErrorClass",
    "ErrorKind",
    "IllegalResult",
    "InputError",
    "MalformedJSON",
    "NotWritten",
    "PenstockError",
    "ProviderError",
    "RunBroken",
    "SchemaTooNew",
    "SchemaTooOld",
    "SettingsError",
    "StoreConflict",
    "StoreError",
    "StoreUnavailable",
    "TargetTooSmall",
    "ToolFailure",
    "UnknownDialect",
    "UnknownHandle",
    "UnknownSession",
    "name_install",
]

_DISTRIBUTION = "penstock-context"
"""What to install: `penstock` is another project's name on PyPI."""


def name_install(extra: str, then: str = "") -> str:
    """Returns the commands that install an extra, from PyPI and in a clone; `then` follows them on the line."""
    return f"pip install '{_DISTRIBUTION}[{extra}]'{then} (in a clone: pip install '.[{extra}]'{then})"


class PenstockError(Exception):
    """The root of the tree: catch it to catch every error of Penstock."""


class InputError(PenstockError):
    """The input cannot be read as a conversation.

    `position` says where: a byte offset, a line, or a message number, in words.
    """

    def __init__(self, message: str, *, position: str = "") -> None:
        super().__init__(f"{message} ({position})" if position else message)
        self.position = position


class MalformedJSON(InputError):
    """The bytes are not JSON."""


class UnknownDialect(InputError):
    """JSON, but not a conversation in a known dialect."""


class UnknownHandle(PenstockError):
    """No original is kept here under that handle."""


class StoreError(PenstockError):
    """A store failed. Nothing was changed."""


class StoreConflict(StoreError):
    """Another process wrote first. Read the current state, then retry."""


class StoreUnavailable(StoreError):
    """The file is locked, full, read-only or gone, or the server does not answer. It may work again later."""


class SchemaTooNew(StoreError):
    """A later version of Penstock wrote the store; this one does not touch it."""


class SchemaTooOld(StoreError):
    """A development version before the first release wrote the store; this one cannot read it."""


class UnknownSession(StoreError):
    """There is no session with that id."""


class SettingsError(PenstockError):
    """A setting has an unknown name or a value that is not allowed."""


class EngineFailure(PenstockError):
    """A third-party engine cannot be loaded, or failed. The conversation is unchanged."""


class ErrorKind(StrEnum):
    """The kind of a provider's error, by what the caller can do about it."""

    PROMPT_TOO_LONG = "prompt too long"
    OUTPUT_CAP_TOO_LARGE = "output cap too large"
    PAYLOAD_TOO_LARGE = "payload too large"
    RATE_LIMIT = "rate limit"
    OVERLOAD = "overload"
    AUTH = "auth"
    QUOTA = "quota"
    BAD_REQUEST = "bad request"
    NETWORK = "network"
    TIMEOUT = "timeout"

    @property
    def transient(self) -> bool:
        """True if the same request may succeed a little later."""
        return self in {ErrorKind.RATE_LIMIT, ErrorKind.OVERLOAD, ErrorKind.NETWORK, ErrorKind.TIMEOUT}


class ErrorClass(NamedTuple):
    """A classified error of a provider. Numbers are None if the provider did not state them.

    `window_tokens` is the limit of prompt and answer together, `prompt_tokens` what was sent,
    `output_cap_tokens` the most that may be asked for as an answer. `message` is the provider's own text,
    shortened and free of secrets.
    """

    kind: ErrorKind
    status: int | None = None
    code: str = ""
    message: str = ""
    window_tokens: int | None = None
    prompt_tokens: int | None = None
    output_cap_tokens: int | None = None
    retry_after_seconds: float | None = None

    @property
    def may_be_billed(self) -> bool:
        """True if the request reached the provider, as far as we know, and the answer did not reach us."""
        return self.code in {"timeout", "cut_off", "connection", "malformed_answer"}


class NotWritten(PenstockError):
    """A model's answer is not a handoff. The next model or the excerpts take over; callers get a receipt."""


class ProviderError(PenstockError):
    """A provider did not answer. `failure` classifies the error, `requests` counts the attempts."""

    def __init__(self, message: str, *, failure: ErrorClass, requests: int = 1) -> None:
        super().__init__(message)
        self.failure = failure
        self.requests = requests

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_provider_error, (str(self), self.failure, self.requests)


def _rebuild_provider_error(message: str, failure: ErrorClass, requests: int) -> ProviderError:
    """For pickling: workers raise it in other processes."""
    return ProviderError(message, failure=failure, requests=requests)


class RunBroken(PenstockError):
    """A run over a data set stopped in the middle. Finished work is kept, and the same run can be resumed."""


class TargetTooSmall(PenstockError):
    """The parts that may not be dropped take more tokens than the target allows.

    `parts` maps each part that cannot give way to the tokens it takes.
    """

    def __init__(self, message: str, *, target_tokens: int, parts: dict[str, int]) -> None:
        super().__init__(message)
        self.target_tokens = target_tokens
        self.parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_target_too_small, (str(self), self.target_tokens, self.parts)


def _rebuild_target_too_small(message: str, target_tokens: int, parts: dict[str, int]) -> TargetTooSmall:
    """For pickling: workers raise it in other processes."""
    return TargetTooSmall(message, target_tokens=target_tokens, parts=parts)


class ToolFailure(PenstockError):
    """A tool of the agent cannot do its work. The text tells the model why, and what to do instead."""


class IllegalResult(PenstockError):
    """A result broke a rule of its dialect. It was not returned, stored or sent."""
