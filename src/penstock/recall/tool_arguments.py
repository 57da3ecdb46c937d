"""The arguments of recall tools, as models write them.

Reading them is forgiving if the meaning is plain, and otherwise says what to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from penstock._structs import read_early
from penstock.conversation.handles import HandleKind, parse_handle
from penstock.conversation.wire import parse_json
from penstock.errors import InputError
from penstock.writing.stubs import shorten

__all__ = [
    "AskEntity",
    "DescribeHistory",
    "ExpandHistory",
    "SearchHistory",
    "read_arguments",
    "read_object",
    "require_handle",
]

_Natural = Annotated[int, msgspec.Meta(ge=0)]
_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Arguments = TypeVar("_Arguments", bound=msgspec.Struct)

_WHERE = re.compile(r" - at `\$\.?(\w*)`")
_SHOWN = 60  # characters of what a model sent that go back to it


class SearchHistory(msgspec.Struct, frozen=True):
    """Arguments of `history_search`."""

    query: str | int | float
    limit: _Positive | None = None


class DescribeHistory(msgspec.Struct, frozen=True):
    """Arguments of `history_describe`."""

    handle: str | int


class ExpandHistory(msgspec.Struct, frozen=True):
    """Arguments of `history_expand`: offset and limit count characters."""

    handle: str | int
    offset: _Natural | None = None
    limit: _Positive | None = None


class AskEntity(msgspec.Struct, frozen=True):
    """Arguments of `history_entity`."""

    name: str | int


read_early(SearchHistory, DescribeHistory, ExpandHistory, AskEntity)


def read_arguments(args: Any, kind: type[_Arguments]) -> _Arguments:
    """Returns the arguments, given as an object or as its JSON.

    Raises InputError that says what is wrong with them.
    """
    given = read_object(args)
    unknown = [key for key in given if key not in kind.__struct_fields__]
    if unknown:
        raise InputError(f"there is no argument {quote_argument(unknown[0])}")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(_put_in_words(str(error))) from None


def read_object(args: Any) -> dict[str, Any]:
    """Returns the object that a model wrote, given as such or as its JSON.

    Raises InputError if it wrote none.
    """
    if isinstance(args, (str, bytes)):
        try:
            args = parse_json(args)
        except ValueError:
            raise InputError("the arguments are not JSON") from None
    if not isinstance(args, Mapping):
        raise InputError("the arguments must be one JSON object")
    return dict(args)


def require_handle(given: str | int) -> str:
    """Returns the handle that was meant, as we write it. Raises InputError if several are named.

    A model may leave the letter out: 12 is m12.
    """
    found = parse_handle(str(given))
    if found.text.isdecimal():
        found = parse_handle(f"m{found.text}")
    if found.kind is HandleKind.SEVERAL:
        raise InputError(f"{quote_argument(given)} names several: give one handle at a time")
    return found.text


def quote_argument(given: object) -> str:
    """Returns what a model sent, short enough to go back to it."""
    return repr(shorten(str(given), _SHOWN))


def _put_in_words(said: str) -> str:
    """Returns what msgspec says, with the argument's name in front: "limit: expected `int` >= 1"."""
    where = _WHERE.search(said)
    if where is None:
        return said[:1].lower() + said[1:]
    rest = said[: where.start()].replace(" | null", "")
    return f"{where[1]}: {rest[:1].lower()}{rest[1:]}"
