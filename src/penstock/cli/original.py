"""One message of the input, by its handle: as text for people, as its exact bytes for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli.labels import Label, NumberedInput, label_messages, number_input
from penstock.cli.screen import printable
from penstock.conversation.handles import HandleKind, name_message, parse_handle, runs_of
from penstock.conversation.message import (
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)
from penstock.conversation.opening import holds_handoff, without_handoff
from penstock.conversation.wire import encode_wire, json_text, parse_json
from penstock.errors import UnknownHandle
from penstock.measure.wording import pluralise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cli.screen import Screen
    from penstock.cli.source import Given

__all__ = ["Original", "find_original", "lines"]

_LONGEST_HANDLE = 40  # characters of a wrong handle that are shown


class Original:
    """A message of the input with its original bytes, without a handoff that was put in front of it."""

    def __init__(self, given: Given, place: int, label: Label) -> None:
        document = given.document
        self.label = label
        self.message: Message = document.messages[place]
        self.raw: bytes = bytes(document.raws[place])
        if holds_handoff(self.message):
            wire: Any = without_handoff(document.wires[place])
            self.message, self.raw = document.dialect.decode(wire), encode_wire(wire)


def find_original(given: Given, handle: str) -> Original:
    """Returns the message that stubs and handoffs made from this input call by this handle. Raises UnknownHandle."""
    document = given.document
    numbered = number_input(document)
    labels = label_messages(document.messages, numbered.numbers)
    asked = parse_handle(handle)
    number = asked.number if asked.kind is HandleKind.MESSAGE else 0
    if number and number in numbered.numbers:
        place = numbered.numbers.index(number)
        return Original(given, place, labels[place])
    raise UnknownHandle(_explain_unknown(handle, number, numbered, labels))


def lines(original: Original, screen: Screen) -> Iterator[str]:
    """Yields the speaker, then each part under a line that names its kind."""
    label = original.label
    about = " · ".join(filter(None, (label.handle, label.role, label.tools_text)))
    yield screen.paint(about, "bold")
    shown = [_describe_part(part) for part in original.message.parts]
    if not any(kind or text for kind, text in shown):
        yield screen.paint("(empty)", "dim")
    for kind, text in shown:
        if kind:
            yield screen.paint(kind, "dim")
        yield from map(_visible, text.removesuffix("\n").split("\n") if text else ())


def _explain_unknown(handle: str, number: int, numbered: NumberedInput, labels: list[Label]) -> str:
    """Returns why there is no such message, and which there are."""
    shown = handle if len(handle) <= _LONGEST_HANDLE else f"{handle[:_LONGEST_HANDLE]}…"
    if not any(numbered.numbers):
        return f"there is no original {shown!r}: the conversation has no messages"
    have = _runs(numbered)
    if number in numbered.added:
        return f"{shown} was added to repair the conversation and has no original; there are {have}"
    if any(label.role == "handoff" for label in labels) and number and number < _find_newest(numbered):
        return (
            f"{shown} is not in this file, only in the one that it was compressed from: give that file "
            f"(here: {have})"
        )
    if not number:
        return f"{shown!r} is not the handle of a message: give one of {have}"
    return f"there is no original {shown!r} in this file; it has {have}"


def _find_newest(numbered: NumberedInput) -> int:
    return max(filter(None, numbered.numbers), default=0)


def _runs(numbered: NumberedInput) -> str:
    """Returns the numbers as ranges: `m1, m58 to m63`."""
    runs = runs_of(sorted(filter(None, numbered.numbers)))
    return ", ".join(_run(first, last) for first, last in runs)


def _run(first: int, last: int) -> str:
    if first == last:
        return name_message(first)
    between = ", " if last == first + 1 else " to "
    return name_message(first) + between + name_message(last)


def _describe_part(part: Part) -> tuple[str, str]:
    """Returns the kind of a part, empty for plain text, and its text."""
    match part:
        case Text():
            return "", part.text
        case Reasoning():
            return "reasoning, sealed" if part.sealed else "reasoning", part.text
        case ToolCall():
            return f"call {_visible(part.name)} ({_visible(part.call_id)})", _indent(part.arguments)
        case ToolResult():
            failed = ", an error" if part.is_error else ""
            pictures = "".join(f"\n[{_picture(image)}]" for image in part.images)
            return f"result of {_visible(part.call_id)}{failed}", part.text + pictures
        case Image():
            return _picture(part), ""
        case Summary():
            return "handoff", part.text
        case Opaque():
            return _visible(part.kind) or "unknown", part.text


def _picture(image: Image) -> str:
    size = f", {image.width} × {image.height}" if image.width and image.height else ""
    return f"image {_visible(image.media_type)}{size}, {pluralise(image.size_bytes, 'byte')}"


def _indent(arguments: str) -> str:
    """Returns JSON arguments with one per line, so that long ones can be read; anything else unchanged."""
    try:
        value = parse_json(arguments)
    except ValueError:
        return arguments
    if not isinstance(value, dict) or not value:
        return arguments
    return "\n".join(
        f"{key}: {one if isinstance(one, str) else json_text(one)}" for key, one in value.items()
    )


def _visible(line: str) -> str:
    """Returns the line with escapes for what would move the cursor; a tab stays."""
    return "\t".join(map(printable, line.removesuffix("\r").split("\t")))
