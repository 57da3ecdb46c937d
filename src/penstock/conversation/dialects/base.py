"""`Dialect`: reads, writes and changes single wire messages, without touching anything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock.conversation.wire import json_text, parse_json, to_plain
from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from penstock.conversation.message import Message, Part, Role, ToolResult
    from penstock.conversation.pairing import Pairing
    from penstock.conversation.rules import Rule

__all__ = [
    "WAY_OUT",
    "Dialect",
    "describe_value",
    "holds_block",
    "is_one_of",
    "require_list",
    "require_object",
    "text_beside",
    "unknown_role",
    "wire_of",
]

WAY_OUT = (
    "give dicts as the provider's API takes them, or its SDK's own objects (any with a method model_dump); "
    "convert those of another library first, LangChain's with convert_to_openai_messages"
)
_LIST_WAY_OUT = "put a single message into a list of its own, and read JSON with json.loads first"
# Fields that mean nothing to the model, in any object: no provider charges for them.
_UNCOUNTED = frozenset(
    (
        "annotations",
        "cache_control",
        "citations",
        "id",
        "internal_chat_message_metadata_passthrough",
        "logprobs",
        "metadata",
        "phase",
        "prompt_cache_breakpoint",
        "role",
        "status",
        "type",
    )
)


class Dialect(Protocol):
    """A wire format. Stateless: one instance each.

    Every method that returns a wire object returns a new one that shares its unchanged parts with the old one.
    Arguments are never mutated.
    """

    @property
    def name(self) -> str:
        """`chat`, `responses`, `anthropic`, `sharegpt`, or the name of an installed package's dialect."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that its provider enforces."""

    @property
    def pairing(self) -> Pairing:
        """The place of results after their calls."""

    @property
    def results_share(self) -> Role | None:
        """The role of the one message that holds all results of a batch; None if each has its own."""

    def recognises(self, wire: Mapping[str, Any]) -> bool:
        """Returns True if the object could be a message of this dialect."""

    def decode(self, wire: Any, origin: Any = None) -> Message:
        """Returns one wire object as a Message; `origin` is the wire object unless given.

        Raises InputError, without a position, for an object that cannot be a message of this dialect. A call or
        result without an id of its own gets `""`: see `link_calls`.
        """

    def build(self, message: Message) -> dict[str, Any]:
        """Returns a wire object from the parts alone."""

    def rewrite(self, message: Message, parts: Mapping[int, Part]) -> dict[str, Any]:
        """Returns the wire object with part i replaced by parts[i], and everything else unchanged.

        A result may get another text and fewer images, a call other arguments; an image may become text. If a
        place cannot hold its new part (text for a computer's screenshot, say), it stays unchanged.
        """

    def keep(self, message: Message, parts: Sequence[int]) -> dict[str, Any]:
        """Returns the wire object with only these parts, in this order."""

    def add_results(self, message: Message, results: Sequence[ToolResult]) -> dict[str, Any]:
        """Returns the wire object with these results after its own. Only for dialects whose results share a message."""

    def prepend_text(self, message: Message, text: str) -> dict[str, Any]:
        """Returns the wire object with the text before its own content, as far in front as the provider allows.

        Raises ValueError if the message cannot carry text (a call or a reasoning item of Responses).
        """

    def append_text(self, message: Message, text: str) -> dict[str, Any]:
        """Returns the wire object with the text after its own content; otherwise like `prepend_text`."""

    def text_message(self, role: Role, text: str) -> dict[str, Any]:
        """Returns a new plain message. Raises ValueError for TOOL, which needs a call."""

    def can_follow(self, previous: Role | None, role: Role) -> bool:
        """Returns True if a plain text of `role` may follow one of `previous`, or may come first, for None."""


def wire_of(message: Message, dialect: Dialect) -> Mapping[str, Any]:
    """Returns the wire object of the message: from its bytes, the caller's own as JSON, or built from its parts."""
    origin = message.origin
    if origin is None:
        return dialect.build(message)
    plain = to_plain(origin)
    if isinstance(plain, Mapping):
        return plain
    data = bytes(origin) if isinstance(origin, msgspec.Raw) else origin
    decoded = parse_json(data)
    if not isinstance(decoded, dict):
        raise TypeError(f"the origin of a message is JSON of an object, not of {describe_value(decoded)}")
    return decoded


def text_beside(wire: Mapping[str, Any], known: frozenset[str]) -> str:
    """Returns the JSON of the fields that are in no part: a name, and unknown fields; empty if there are none.

    `known` are the fields from which the parts are read. For a block in the content, every field except its content counts.
    """
    beside: list[Any] = []
    if not wire.keys() <= known:
        beside.append(_unknown_fields(wire, known))
    content = wire.get("content")
    if type(content) is list:
        beside += [
            _unknown_fields(block, _READ_BLOCKS[block["type"]])
            for block in content
            if type(block) is dict and is_one_of(block.get("type"), _READ_BLOCKS)
        ]
    told = [fields for fields in beside if fields]
    if not told:
        return ""
    try:
        return json_text(told[0] if len(told) == 1 else told)
    except InputError:  # a caller's own object, which we cannot write as JSON
        return ""


# The blocks that become texts, calls and results, and the fields from which those are read.
_READ_BLOCKS = {
    "text": frozenset(("text",)),
    "input_text": frozenset(("text",)),
    "output_text": frozenset(("text",)),
    "tool_use": frozenset(("name", "input")),
    "tool_result": frozenset(("tool_use_id", "content", "is_error")),
}


def _unknown_fields(wire: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {
        name: value
        for name, value in wire.items()
        if name not in known and name not in _UNCOUNTED and value is not None
    }


def require_object(wire: Any) -> Mapping[str, Any]:
    """Returns the wire object. Raises InputError if it is anything else."""
    if type(wire) is dict or isinstance(wire, Mapping):  # the first test is faster, and nearly always true
        return wire
    raise InputError(f"a message must be a JSON object, not {describe_value(wire)}: {WAY_OUT}")


def require_list(messages: Any) -> Sequence[Any]:
    """Returns the messages as a list. Raises InputError for anything else, including a single message and text."""
    if isinstance(messages, (list, tuple)):
        return messages
    single = isinstance(messages, (str, bytes, bytearray, Mapping)) or hasattr(messages, "model_dump")
    if isinstance(messages, Iterable) and not single:
        return list(messages)
    raise InputError(f"messages must be a list, not {describe_value(messages)}: {_LIST_WAY_OUT}")


def holds_block(content: Any, types: Container[str]) -> bool:
    """Returns True if the content is a list with a block of one of the types."""
    return isinstance(content, list) and any(
        isinstance(block, Mapping) and is_one_of(block.get("type"), types) for block in content
    )


def is_one_of(value: Any, names: Container[str]) -> bool:
    """Returns True if the value is a string and one of the names. A wire may hold anything, even unhashable values."""
    return isinstance(value, str) and value in names


def unknown_role(field: str, role: Any, allowed: Sequence[str]) -> InputError:
    """Returns the error for an unknown role."""
    names = ", ".join(allowed)
    if role is None:
        return InputError(f"the message has no {field}: give one of {names}")
    return InputError(f"{field} {_short(role)} is not known: use one of {names}")


def describe_value(value: Any) -> str:
    """Returns a JSON value in words, without its content."""
    if isinstance(value, Mapping):
        keys = ", ".join(_short(key) for key in list(value)[:6])
        return f"an object with the keys {keys}" if keys else "an empty object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return "a string"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "a number" if isinstance(value, int | float) else f"a Python {type(value).__name__}"


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else f"({describe_value(value)})"
    return text if len(text) <= 40 else f"{text[:36]}…'"
