"""Every exception Penstock raises.

    PenstockError
    ├── InputError            what was given cannot be read as a conversation
    │   ├── MalformedJSON     the bytes are not JSON
    │   └── UnknownDialect    JSON, but no dialect that we know
    ├── UnknownHandle         no original is kept under that handle
    ├── SettingsError         a setting has an unknown name or a value out of range
    ├── TargetTooSmall        what may not be dropped does not fit the target
    └── IllegalResult         a result broke a rule of its dialect (a bug of ours, never sent)

A message names the value, the limit and the next step. It never holds conversation text beyond a short,
redacted quote.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "IllegalResult",
    "InputError",
    "MalformedJSON",
    "PenstockError",
    "SettingsError",
    "TargetTooSmall",
    "UnknownDialect",
    "UnknownHandle",
]


class PenstockError(Exception):
    """Root of the tree: catching it catches every failure that is ours."""


class InputError(PenstockError):
    """What was given cannot be read as a conversation.

    `position` says where: a byte offset, a line, or a message number, in words.
    """

    def __init__(self, message: str, *, position: str = "") -> None:
        super().__init__(f"{message} ({position})" if position else message)
        self.position = position


class MalformedJSON(InputError):
    """The bytes are not JSON."""


class UnknownDialect(InputError):
    """JSON, but not a conversation in a dialect that we know."""


class UnknownHandle(PenstockError):
    """No original is kept here under that handle."""


class SettingsError(PenstockError):
    """A setting has an unknown name or a value that is not allowed."""


class TargetTooSmall(PenstockError):
    """What may not be dropped takes more tokens than the target allows.

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


class IllegalResult(PenstockError):
    """A result broke a rule of its dialect. It was not returned, stored or sent."""
