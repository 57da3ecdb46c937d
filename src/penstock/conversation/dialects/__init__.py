"""The dialects by name: our four, and others that a higher room finds. Also detects the dialect of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.conversation.dialects.anthropic import ANTHROPIC
from penstock.conversation.dialects.base import WAY_OUT, Dialect, describe_value, wire_of
from penstock.conversation.dialects.chat import CHAT
from penstock.conversation.dialects.responses import RESPONSES
from penstock.conversation.dialects.sharegpt import SHAREGPT
from penstock.conversation.pairing import Pairing, link_calls
from penstock.errors import InputError, UnknownDialect

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.conversation.message import Message

__all__ = [
    "DIALECTS",
    "Dialect",
    "ask_for_others",
    "candidates",
    "decode_all",
    "decode_each",
    "detect",
    "dialect_named",
    "wire_of",
]

# In the order of preference where a conversation fits several.
DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {dialect.name: dialect for dialect in (CHAT, ANTHROPIC, RESPONSES, SHAREGPT)}
)
_NAMES = ", ".join(DIALECTS)
_others: dict[str, Dialect] = {}  # those that were asked for, and found
_finders: list[Callable[[str], Dialect | None]] = []


def ask_for_others(find: Callable[[str], Dialect | None]) -> None:
    """Makes `find` the source of dialects that are not ours; each name is asked for once.

    It returns None for a name that it does not know.
    """
    _finders.append(find)


def dialect_named(name: str) -> Dialect:
    """Returns the dialect of that name; ours come first. Raises UnknownDialect with the names that exist."""
    known = DIALECTS.get(name) or _others.get(name)
    if known is not None:
        return known
    for find in _finders:
        if (found := find(name)) is not None:
            return _others.setdefault(name, found)
    raise UnknownDialect(
        f"there is no dialect {name!r}: use one of {_NAMES}, or install the package that adds it"
    )


def candidates(wires: Sequence[Any]) -> list[Dialect]:
    """Returns the dialects that all messages fit, in order of preference. Stops reading once only one is left.

    Raises UnknownDialect at the first message that leaves none.
    """
    left: list[Dialect] = list(DIALECTS.values())
    for number, wire in enumerate(wires, start=1):
        fitting = [dialect for dialect in left if isinstance(wire, Mapping) and dialect.recognises(wire)]
        if not fitting:
            raise _unknown_dialect(wire, number, left)
        left = fitting
        if len(left) == 1:
            break
    return left


def detect(wires: Sequence[Any]) -> Dialect:
    """Returns the dialect of a list of messages; chat if nothing in it tells.

    Gives the same as the first of `candidates`, but asks the other dialects only about a list that is not clearly chat.
    """
    for wire in wires:
        if not isinstance(wire, Mapping) or not CHAT.recognises(wire):
            return candidates(wires)[0]
        if CHAT.is_alone_with(wire):
            break
    return CHAT


def decode_all(
    dialect: Dialect,
    wires: Sequence[Any],
    origins: Sequence[Any] | None = None,
    *,
    before: Sequence[Message] = (),
) -> list[Message]:
    """Returns every message, with ids for calls and results that have none of their own.

    `before` is the whole conversation that they continue. An error names the message by its number, counted from 1 and
    from the start of that conversation.
    """
    messages = decode_each(dialect, wires, origins, number_from=len(before) + 1)
    return messages if dialect.pairing is Pairing.ANYWHERE else link_calls(messages, before)


def decode_each(
    dialect: Dialect, wires: Sequence[Any], origins: Sequence[Any] | None = None, *, number_from: int = 1
) -> list[Message]:
    """Returns every message by itself, regardless of what comes before it. Raises InputError as `decode_all` does."""
    messages: list[Message] = []
    decode = dialect.decode
    try:
        if origins is None:
            for wire in wires:
                messages.append(decode(wire))  # noqa: PERF401  # the length says where an error was
        else:
            for wire, origin in zip(wires, origins, strict=True):
                messages.append(decode(wire, origin))
    except InputError as error:
        raise type(error)(str(error), position=f"message {number_from + len(messages)}") from None
    return messages


def _unknown_dialect(wire: Any, number: int, left: Sequence[Dialect]) -> UnknownDialect:
    seen = describe_value(wire)
    if isinstance(wire, Mapping) and any(dialect.recognises(wire) for dialect in DIALECTS.values()):
        before = " or ".join(dialect.name for dialect in left)
        text = f"{seen} does not fit the messages before it, which are {before}; name the dialect yourself: {_NAMES}"
    else:
        text = (
            f"{seen} is not a message of a dialect known here ({_NAMES}): a message is an object with a role, "
            f"a type, or from and value; {WAY_OUT}"
        )
    return UnknownDialect(text, position=f"message {number}")
