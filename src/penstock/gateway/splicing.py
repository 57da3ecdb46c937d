"""The body of a request as bytes: its messages one by one, and the same body with others in their place. Pure.

Nothing is read beyond where each message begins and ends; all that a caller wrote beside the messages goes on as it came.
Where the beginning of the list is known, byte for byte, only what stands behind it is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.slicing import slice_array, slice_object
from penstock.conversation.wire import encode_wire, parse_json
from penstock.errors import InputError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.gateway.exchange import WireDialect

__all__ = [
    "RequestBody",
    "TooManyMessages",
    "join_body",
    "locate",
    "put_messages",
    "read_body",
    "slice_messages",
    "write_body",
]

_MESSAGES = {"chat": "messages", "responses": "input", "anthropic": "messages"}
# The provider holds what came before.
_ELSEWHERE = frozenset({"previous_response_id", "conversation", "prompt"})
_SYSTEM = {"chat": "", "responses": "instructions", "anthropic": "system"}
_SPACE = b" \t\r\n"
_BETWEEN = frozenset(_SPACE + b"[,")  # and before the first message of a list
_MOST_MESSAGES = 100_000  # the limit of Anthropic, the only one that is stated
_LONGEST_MODEL = 256  # characters of a name
_NO_CAP = 1 << 40  # tokens: a field that allows more limits nothing
_OUTPUT_CAPS = ("max_output_tokens", "max_completion_tokens", "max_tokens")


class TooManyMessages(PenstockError):
    """A request has so many messages that reading it would keep all others waiting."""


class RequestBody(msgspec.Struct, frozen=True):
    """A body with a list of messages. `fields` holds the JSON of every field, in the order of the body."""

    dialect: WireDialect
    fields: dict[str, bytes]

    @property
    def listed(self) -> bytes:
        """The JSON of the list of messages."""
        return self.fields[_MESSAGES[self.dialect]]

    def put_list(self, listed: bytes) -> RequestBody:
        """Returns the body with another list of messages."""
        return RequestBody(self.dialect, {**self.fields, _MESSAGES[self.dialect]: listed})

    @property
    def model(self) -> str:
        """The model that the caller asks for; empty where the body names none, or one that is too long for any.

        What is learned of a model is kept by its name, and callers name what they like.
        """
        name = _text(self.fields.get("model"))
        return name if len(name) <= _LONGEST_MODEL else ""

    @property
    def system(self) -> bytes:
        """The JSON of the system prompt that stands beside the messages."""
        return self.fields.get(_SYSTEM[self.dialect], b"")

    @property
    def tools(self) -> bytes:
        """The JSON of the tools."""
        return self.fields.get("tools", b"")

    @property
    def streams(self) -> bool:
        """True where the caller wants the answer as it is written."""
        return self.fields.get("stream") == b"true"

    @property
    def output_cap(self) -> tuple[str, int] | None:
        """The field that limits the answer, and its tokens; None where the body has none."""
        for name in _OUTPUT_CAPS:
            value = _value(self.fields[name]) if name in self.fields else None
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _NO_CAP:
                return name, value
        return None


def read_body(data: bytes, dialect: WireDialect) -> RequestBody | None:
    """Returns the body; None where it has no list of messages that we could work on.

    That is so for what is no JSON object, for one text in place of a list, and where the provider itself holds the
    earlier messages: such a request goes on as it came, and what is wrong with it is the provider's to say.
    """
    try:
        fields = slice_object(data)
    except InputError:
        return None
    listed = fields.get(_MESSAGES[dialect], b"")
    if not listed.startswith(b"["):
        return None
    if not _ELSEWHERE.isdisjoint(fields) and any(_holds(fields.get(name)) for name in _ELSEWHERE):
        return None
    return RequestBody(dialect, fields)


def slice_messages(listed: bytes, end: int = 0) -> list[bytes] | None:
    """Returns the messages of a list that begin behind `end`, where one of them ends; None where that is no list of messages.

    Raises TooManyMessages.
    """
    rest = listed
    if end:
        rest = listed[end:].lstrip(_SPACE)
        if rest.startswith(b","):
            rest = b"[" + rest[1:]
        elif rest.startswith(b"]"):
            return []
    try:
        messages = slice_array(rest)
    except InputError:
        return None
    if len(messages) > _MOST_MESSAGES:
        raise TooManyMessages(f"more than {_MOST_MESSAGES:,} messages")
    fine = messages and b"".join([message[:1] for message in messages]) == b"{" * len(messages)
    return messages if fine else None


def locate(listed: bytes, end: int, messages: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """Returns where each of these messages, which stand in the list behind `end`, begins and ends."""
    starts, ends = [], []
    for message in messages:
        while listed[end] in _BETWEEN:
            end += 1
        starts.append(end)
        end += len(message)
        ends.append(end)
    return starts, ends


def join_body(body: RequestBody, messages: Sequence[bytes], changes: Mapping[str, bytes] = {}) -> bytes:
    """Returns the body with other messages, and with `changes` in place of the fields of these names."""
    return write_body(put_messages(body, messages, changes))


def put_messages(
    body: RequestBody, messages: Sequence[bytes], changes: Mapping[str, bytes] = {}
) -> RequestBody:
    """Returns the same, read and not written."""
    listed = b"[" + b",".join(messages) + b"]"
    return RequestBody(body.dialect, {**body.fields, **changes, _MESSAGES[body.dialect]: listed})


def write_body(body: RequestBody) -> bytes:
    """Returns the bytes of a body."""
    return b"{" + b",".join([encode_wire(name) + b":" + value for name, value in body.fields.items()]) + b"}"


def _holds(value: bytes | None) -> bool:
    return value is not None and value != b"null"


def _text(raw: bytes | None) -> str:
    value = _value(raw)
    return value if isinstance(value, str) else ""


def _value(raw: bytes | None) -> Any:
    try:
        return None if raw is None else parse_json(raw)
    except ValueError:
        return None
