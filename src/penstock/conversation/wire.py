"""JSON of one wire object: the few ways in which we read and write it.

`msgspec` does the work. It refuses lone surrogates, which Python strings may hold and other clients may
send as escapes, so both directions fall back to the standard library for those.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from penstock.errors import InputError

__all__ = ["canonical_json", "encode_wire", "json_text", "parse_json"]

_SORTED = msgspec.json.Encoder(order="sorted")
_TOO_DEEP = "the JSON is nested too deeply to be read: flatten it to fewer than 500 levels"


def encode_wire(wire: Any) -> bytes:
    """Compact JSON bytes. Raises InputError for what JSON cannot say."""
    try:
        return msgspec.json.encode(wire)
    except UnicodeEncodeError:
        return json.dumps(wire, separators=(",", ":")).encode()
    except RecursionError:
        raise InputError(_TOO_DEEP) from None
    except TypeError as error:
        raise InputError(f"the value is not JSON: {error}") from None


def json_text(value: Any) -> str:
    """Compact JSON as text; a lone surrogate stays the character that it is."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        raise InputError(_TOO_DEEP) from None
    except TypeError as error:
        raise InputError(f"the value is not JSON: {error}") from None


def canonical_json(value: Any) -> bytes:
    """Returns JSON bytes that are equal for equal values, whatever the order of their keys."""
    try:
        return _SORTED.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def parse_json(text: str | bytes) -> Any:
    """Returns the value that the JSON says. Raises ValueError where it is not JSON or nested too deeply."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return _parse_leniently(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


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
