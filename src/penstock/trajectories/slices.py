"""The exact bytes of the columns of a row and of the items of a list, for JSON as people's programs write it.

`msgspec` slices fast. It takes neither lone surrogates nor NaN and Infinity, which Python writes where a reward is
missing; for such a row the standard library's scanner goes over the text once more.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from penstock.errors import InputError, MalformedJSON

__all__ = ["columns_of", "items_of", "parsed", "require_text"]

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_SCANNER = json.JSONDecoder()


def require_text(data: bytes) -> None:
    """Raises MalformedJSON for what is not UTF-8, of which nothing else here would take notice in every place."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise MalformedJSON(f"the line is not UTF-8 (byte {error.start + 1})") from None


def columns_of(data: bytes) -> dict[str, bytes]:
    """The bytes of each column. Raises MalformedJSON, and InputError where the row is JSON but no object."""
    try:
        return {name: bytes(value) for name, value in _OBJECT.decode(data).items()}
    except msgspec.ValidationError:
        raise InputError("the line is JSON, but no object with columns and no list of turns") from None
    except msgspec.DecodeError:
        return _Scan(data).columns()


def items_of(data: bytes) -> list[bytes]:
    """The bytes of each item of a list. Raises MalformedJSON, and InputError where it is no list."""
    try:
        return [bytes(value) for value in _LIST.decode(data)]
    except msgspec.ValidationError:
        raise InputError("this is JSON, but no list") from None
    except msgspec.DecodeError:
        return _Scan(data).items()


def parsed(data: bytes | str) -> Any:
    """The value that the JSON says. Raises MalformedJSON."""
    try:
        return _ANY.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        pass
    except RecursionError:
        raise MalformedJSON("the line is nested too deeply to be read") from None
    try:
        return json.loads(data)
    except RecursionError:
        raise MalformedJSON("the line is nested too deeply to be read") from None
    except ValueError as error:
        raise _malformed(error) from None


class _Scan:
    """A walk over the text of a row."""

    def __init__(self, data: bytes) -> None:
        require_text(data)
        self._text = data.decode()
        self._at = 0

    def columns(self) -> dict[str, bytes]:
        self._expect("{")
        found: dict[str, bytes] = {}
        while not self._accept("}"):
            if found:
                self._expect(",")
            self._space()
            key, self._at = self._decoded()
            self._expect(":")
            found[str(key)] = self._slice()
        self._end()
        return found

    def items(self) -> list[bytes]:
        self._expect("[")
        found: list[bytes] = []
        while not self._accept("]"):
            if found:
                self._expect(",")
            found.append(self._slice())
        self._end()
        return found

    def _slice(self) -> bytes:
        self._space()
        start = self._at
        _, self._at = self._decoded()
        return self._text[start : self._at].encode()

    def _decoded(self) -> tuple[Any, int]:
        try:
            return _SCANNER.raw_decode(self._text, self._at)
        except RecursionError:
            raise MalformedJSON("the line is nested too deeply to be read") from None
        except ValueError as error:
            raise _malformed(error) from None

    def _space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _accept(self, mark: str) -> bool:
        self._space()
        found = self._text.startswith(mark, self._at)
        self._at += found
        return found

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            raise MalformedJSON(f"the line is no JSON: {mark!r} expected (character {self._at + 1})")

    def _end(self) -> None:
        self._space()
        if self._at < len(self._text):
            raise MalformedJSON(f"the line is no JSON: something follows it (character {self._at + 1})")


def _malformed(error: ValueError) -> MalformedJSON:
    if isinstance(error, json.JSONDecodeError):
        return MalformedJSON(f"the line is no JSON: {error.msg} (character {error.pos + 1})")
    return MalformedJSON(f"the line is no JSON: {str(error).splitlines()[0][:120]}")
