"""The versioned mark around a handoff on the wire.

    <penstock-handoff v="1" after="12 32+">
    …text…
    </penstock-handoff>

In log and store a handoff is known by its type; on the wire, where a stateless caller hands one back, by this
mark. Whatever the text, `find(wrap(text, attributes))` gives both back.

In version 2 the attributes stand in the closing tag, so that a handoff that goes on where the last one ended
begins with the same bytes, and a provider's cache of them holds:

    <penstock-handoff v="2">
    …text…
    </penstock-handoff after="12 32+">
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OPENING", "STEADY_VERSION", "VERSION", "Marked", "find", "wrap"]

VERSION = 1
STEADY_VERSION = 2
OPENING = "<penstock-handoff"
CLOSING = "\n</penstock-handoff"

_ATTRIBUTES = r'((?: [A-Za-z_][A-Za-z0-9_-]*="[^"<>\r\n]*")*)'
_OPEN_TAG = re.compile(rf'<penstock-handoff v="(\d{{1,9}})"{_ATTRIBUTES}>\n')
_CLOSING_TAG = re.compile(rf"\n</penstock-handoff{_ATTRIBUTES}>")
_ATTRIBUTE = re.compile(r' ([A-Za-z_][A-Za-z0-9_-]*)="([^"]*)"')
_ATTRIBUTE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
# A closing tag inside the text gets a backslash before its slash; one that already has some gets one more.
_CLOSES = "/penstock-handoff"  # stands in both, and is found much sooner
_PLAIN_CLOSING = re.compile(r"<(\\*)/penstock-handoff")
_ESCAPED_CLOSING = re.compile(r"<\\(\\*)/penstock-handoff")
# "&" first, so that what the other replacements write is not escaped again.
_ESCAPES = (
    ("&", "&amp;"),
    ('"', "&quot;"),
    ("<", "&lt;"),
    (">", "&gt;"),
    ("\n", "&#10;"),
    ("\r", "&#13;"),
)


class Marked(NamedTuple):
    """A whole mark: `text[start:end]` of the searched text is the mark with its tags."""

    start: int
    end: int
    version: int
    attributes: dict[str, str]
    text: str


def wrap(text: str, attributes: Mapping[str, str], version: int = VERSION) -> str:
    """Returns the text inside a mark of this version, or of version 1 for a version that we do not write.

    Raises ValueError for an attribute name that is `v` or is not a plain identifier.
    """
    for name in attributes:
        if name == "v" or not _ATTRIBUTE_NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be the name of a mark's attribute: use letters, digits, - and _"
            )
    written = "".join(f' {name}="{_escape(value)}"' for name, value in attributes.items())
    body = _PLAIN_CLOSING.sub(r"<\1\\/penstock-handoff", text) if _CLOSES in text else text
    if version == STEADY_VERSION:
        return f'{OPENING} v="{STEADY_VERSION}">\n{body}{CLOSING}{written}>'
    return f'{OPENING} v="{VERSION}"{written}>\n{body}{CLOSING}>'


def find(text: str, start: int = 0) -> Marked | None:
    """Returns the first complete mark at or after `start`, or None. Without one it costs a single substring search."""
    at = text.find(OPENING, start)
    while at >= 0:
        opened = _OPEN_TAG.match(text, at)
        if opened is None:
            at = text.find(OPENING, at + len(OPENING))
            continue
        closed = _CLOSING_TAG.search(text, opened.end())
        if closed is None:
            return None
        attributes = {name: _unescape(value) for name, value in _ATTRIBUTE.findall(opened[2] + closed[1])}
        body = text[opened.end() : closed.start()]
        if _CLOSES in body:
            body = _ESCAPED_CLOSING.sub(r"<\1/penstock-handoff", body)
        return Marked(at, closed.end(), int(opened[1]), attributes, body)
    return None


def _escape(value: str) -> str:
    for plain, escaped in _ESCAPES:
        value = value.replace(plain, escaped)
    return value


def _unescape(value: str) -> str:
    for plain, escaped in reversed(_ESCAPES):
        value = value.replace(escaped, plain)
    return value
