"""JSON of one wire object: how we read and write it, and how an SDK's object becomes one.

`msgspec` does the work. It refuses lone surrogates, which Python strings may hold and other clients may
send as escapes, so both directions fall back to the standard library for those.
"""

from __future__ import annotations

import json
from operator import is_
from typing import Any

import msgspec

from penstock.errors import InputError

__all__ = [
    "canonical_json",
    "encode_wire",
    "json_text",
    "parse_arguments",
    "parse_json",
    "read_text",
    "to_plain",
]

_NAMING = frozenset({"role", "type", "from"})  # one of these says what kind of message or part it is
_ATOMS = (str, int, float, bytes)
_SORTED = msgspec.json.Encoder(order="sorted")
_PLAIN = "give plain dicts, lists, strings and numbers"
_TOO_DEEP = "the JSON is nested too deeply to be read: flatten it to fewer than 500 levels"


def encode_wire(wire: Any) -> bytes:
    """Returns compact JSON as bytes. Raises InputError for a value that JSON cannot express."""
    try:
        return msgspec.json.encode(wire, enc_hook=_encode_object)
    except UnicodeEncodeError:
        return json.dumps(to_plain(wire), separators=(",", ":")).encode()
    except RecursionError:
        raise InputError(_TOO_DEEP) from None
    except TypeError as error:
        raise InputError(f"the value is not JSON: {error}; {_PLAIN}") from None


def json_text(value: Any) -> str:
    """Returns compact JSON as text. A lone surrogate stays as it is."""
    try:
        return msgspec.json.encode(value, enc_hook=_encode_object).decode()
    except UnicodeEncodeError:
        return json.dumps(to_plain(value), separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        raise InputError(_TOO_DEEP) from None
    except TypeError as error:
        raise InputError(f"the value is not JSON: {error}; {_PLAIN}") from None


def to_plain(value: Any) -> Any:
    """Returns the value as plain JSON: objects of an SDK, at any depth, become what their SDK would send.

    An SDK's object is one with a method `model_dump`, like Pydantic's. A value without any is returned as it is;
    otherwise only what holds one is copied.
    """
    if isinstance(value, dict):
        others = [
            key for key, item in value.items() if type(item) is not str
        ]  # mostly there are none: be quick
        changed = {key: plain for key in others if (plain := to_plain(value[key])) is not value[key]}
        return {**value, **changed} if changed else value
    if isinstance(value, (list, tuple)):
        items = [item if type(item) is str else to_plain(item) for item in value]
        return value if all(map(is_, items, value)) else items
    if value is None or isinstance(value, _ATOMS):
        return value
    return _dump(value) if hasattr(value, "model_dump") and not isinstance(value, type) else value


def _dump(value: Any) -> Any:
    """Returns the object as its SDK sends it, without fields that were never set or are never sent."""
    hidden = getattr(value, "__api_exclude__", None)  # what the client itself worked out, as `parsed`
    try:
        dumped = value.model_dump(
            mode="json", by_alias=True, exclude_unset=True, exclude=hidden, warnings=False
        )
        if (
            isinstance(dumped, dict) and not dumped.keys() & _NAMING
        ):  # a role that is the default of its class
            dumped = value.model_dump(mode="json", by_alias=True, exclude=hidden, warnings=False)
    except TypeError:  # a method of that name that is not Pydantic's
        dumped = value.model_dump()
    return dumped if dumped is value else to_plain(dumped)


def _encode_object(value: Any) -> Any:
    plain = to_plain(value)
    if plain is value:
        raise TypeError(f"it holds an object of type {type(value).__name__}")
    return plain


def canonical_json(value: Any) -> bytes:
    """Returns JSON bytes that are equal for equal values, whatever the order of their keys."""
    try:
        return _SORTED.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def parse_json(text: str | bytes) -> Any:
    """Returns the value of the JSON. Raises ValueError if it is not JSON or is nested too deeply."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return _parse_leniently(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def read_text(value: Any) -> str:
    """Returns the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def parse_arguments(text: str) -> dict[str, Any]:
    """Returns the arguments of a call as an object. Anything else, JSON or not, is wrapped in one."""
    try:
        value = parse_json(text) if text else {}
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"arguments": value}


def _parse_leniently(text: str | bytes) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (json.JSONDecodeError, UnicodeError):
        raise
    except ValueError as error:
        # The interpreter's own text tells how to lift its limit, which is not for users.
        if "digits" in str(error):
            raise ValueError("an integer has more than 4,300 digits: send it as a string") from None
        raise


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
