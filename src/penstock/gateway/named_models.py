"""Finds every model that a body names, for callers that may use some only.

JSON may have a key twice, in capitals or with escapes, and servers differ in which of them they take; a body may be a form, or hold
other requests. Each model that a server could take must be allowed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["list_models_named", "names_several"]

_KEY: Final = b'"model"'
_ESCAPED: Final = b"\\u006"  # `d`, `e`, `l`, `m` and `o`; no program writes them so without a reason
_BOUNDARY: Final = re.compile(r'boundary="?([^";,]+)', re.IGNORECASE)
_BLANK_LINE: Final = re.compile(rb"\r?\n\r?\n")


def names_several(body: bytes) -> bool:
    """Returns False for nearly all bodies, after a look at their bytes: they say `model` once."""
    return body.lower().count(_KEY) > 1 or _ESCAPED in body or b"\\u004" in body


def list_models_named(body: bytes, content_type: str = "", *, nested: bool = True) -> list[str] | None:
    """Returns the models that a body names, at any depth where `nested` says so; None for one that cannot be read."""
    if content_type.lower().startswith("multipart/"):
        return _list_in_form(body, content_type)
    found: list[str] = []
    outermost: list[tuple[str, Any]] = []

    def take(pairs: list[tuple[str, Any]]) -> None:
        outermost[:] = pairs  # objects end from the inside out: the last one is the body
        if nested:
            found.extend(_pick(pairs))

    try:
        json.loads(body, object_pairs_hook=take)
    except (ValueError, RecursionError):
        return None
    return found if nested else list(_pick(outermost))


def _pick(pairs: list[tuple[str, Any]]) -> Iterator[str]:
    return (value for name, value in pairs if name.casefold() == "model" and isinstance(value, str))


def _list_in_form(body: bytes, content_type: str) -> list[str] | None:
    """Returns the values of the fields that are named so; those of files are no values."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        return None
    found: list[str] = []
    for part in body.split(b"--" + boundary[1].encode()):
        head, *rest = _BLANK_LINE.split(part, maxsplit=1)
        name = head.lower()
        if b"name*" in name:
            return None  # in a coding of its own
        if b"model" in name and b"filename" not in name:
            found.append(b"".join(rest).strip().decode("utf-8", "replace"))
    return found
