"""JSON by its exact bytes: the slices of an array or object, and where and why something is not JSON.

`msgspec` slices fast. It takes neither lone surrogates nor NaN and Infinity, which Python writes where a
reward is missing, and gives no position that a person can use. If it fails, the standard library's scanner
goes over the text once more.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import msgspec

from penstock.errors import InputError, MalformedJSON

__all__ = ["JsonSource", "decode_utf8", "parse_value", "slice_array", "slice_object"]

_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_CONSTANTS = re.compile(
    r'"(?:[^"\\]|\\.)*+"|NaN|-?Infinity', re.DOTALL
)  # and strings, which may hold their names
_SAFE_DEPTH = 500
_BRACKETS_AND_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_STEPS = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}


class JsonSource(NamedTuple):
    """The source of a piece of JSON: its name and place for errors, and what counts as JSON there."""

    name: str = "the input"
    lines_before: int = 0
    bytes_before: int = 0
    constants: bool = False  # whether NaN, Infinity and -Infinity count as JSON, as Python writes them
    counts_lines: bool = (
        True  # whether positions name the line: not where the source is a line, which its reader names
    )

    def position(self, offset: int, line: int) -> str:
        """Returns a place in words: an offset in bytes from 0, or the number of the byte within a line."""
        if not self.counts_lines:
            return f"byte {offset + 1}"
        return f"byte {self.bytes_before + offset}, line {self.lines_before + line}"


_INPUT = JsonSource()


def slice_array(data: bytes, source: JsonSource = _INPUT) -> list[bytes]:
    """Returns the exact bytes of each element. Raises MalformedJSON, and InputError if the JSON is not an array."""
    try:
        return [bytes(raw) for raw in _ARRAY.decode(data)]
    except msgspec.ValidationError:
        raise InputError(f"{source.name} is JSON, but not an array") from None
    except RecursionError:
        raise _too_deep(data, source) from None
    except (msgspec.DecodeError, UnicodeError):
        return _Scan(decode_utf8(data, source), source).array()


def slice_object(data: bytes, source: JsonSource = _INPUT) -> dict[str, bytes]:
    """Returns the exact bytes of each value by its key; the last one if a key occurs twice.

    Raises MalformedJSON, and InputError if the JSON is not an object.
    """
    try:
        return {key: bytes(raw) for key, raw in _OBJECT.decode(data).items()}
    except msgspec.ValidationError:
        raise InputError(f"{source.name} is JSON, but not an object") from None
    except RecursionError:
        raise _too_deep(data, source) from None
    except (msgspec.DecodeError, UnicodeError):
        return _Scan(decode_utf8(data, source), source).object()


def parse_value(data: bytes | str, source: JsonSource = _INPUT) -> Any:
    """Returns the value of the JSON. Raises MalformedJSON, and InputError if it is nested too deeply."""
    try:
        return _ANY.decode(data)
    except RecursionError:
        raise _too_deep(data if isinstance(data, bytes) else _encode(data), source) from None
    except (msgspec.DecodeError, UnicodeError):
        return _Scan(data if isinstance(data, str) else decode_utf8(data, source), source).whole()


def decode_utf8(data: bytes, source: JsonSource = _INPUT) -> str:
    """Returns the text. Raises InputError with the place of the first byte that is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source.name} is not UTF-8: byte 0x{data[error.start]:02x} is not valid here; "
            "save the file as UTF-8",
            position=source.position(error.start, data.count(b"\n", 0, error.start) + 1),
        ) from None


def _too_deep(data: bytes, source: JsonSource) -> InputError:
    """Returns the error for JSON that is nested too deeply, with the place where it passes the limit."""
    depth = offset = 0
    for token in _BRACKETS_AND_STRINGS.finditer(data):
        depth += _STEPS.get(token[0], 0)
        offset = token.start()
        if depth > _SAFE_DEPTH:
            break
    return InputError(
        f"the JSON is nested more than {_SAFE_DEPTH} levels deep, too deep to be read: flatten it",
        position=source.position(offset, data.count(b"\n", 0, offset) + 1),
    )


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class _Scan:
    """A walk over the text. Positions in its errors count from the start of the whole input."""

    def __init__(self, text: str, source: JsonSource) -> None:
        self.text = text
        self.at = 0
        self.source = source
        self.decoder = json.JSONDecoder(parse_constant=None if source.constants else self._refuse_constant)

    def array(self) -> list[bytes]:
        self._expect("[")
        slices: list[bytes] = []
        if not self._accept("]"):
            slices.append(self._slice())
            while not self._accept("]"):
                self._expect(",")
                slices.append(self._slice())
        self._end()
        return slices

    def object(self) -> dict[str, bytes]:
        self._expect("{")
        slices: dict[str, bytes] = {}
        if not self._accept("}"):
            self._field(slices)
            while not self._accept("}"):
                self._expect(",")
                self._field(slices)
        self._end()
        return slices

    def whole(self) -> Any:
        value = self._value()
        self._end()
        return value

    def _field(self, slices: dict[str, bytes]) -> None:
        self._skip_space()
        if not self.text.startswith('"', self.at):
            raise self._error(self._found("expected a key in double quotes"), self.at)
        key = str(self._value())
        self._expect(":")
        slices[key] = self._slice()

    def _slice(self) -> bytes:
        self._skip_space()
        start = self.at
        self._value()
        return _encode(self.text[start : self.at])

    def _value(self) -> Any:
        self._skip_space()
        start = self.at
        try:
            value, self.at = self.decoder.raw_decode(self.text, start)
        except RecursionError:
            raise _too_deep(_encode(self.text), self.source) from None
        except json.JSONDecodeError as error:
            self.at = error.pos
            raise self._error(self._explain(error), error.pos) from None
        except ValueError:  # all that is left: the interpreter's limit on integers
            raise self._error("an integer has more than 4,300 digits", start) from None
        return value

    def _refuse_constant(self, name: str) -> None:
        at = next(
            (found.start() for found in _CONSTANTS.finditer(self.text, self.at) if found[0] == name), self.at
        )
        raise self._error(f"{name} is not JSON", at)

    def _error(self, reason: str, at: int) -> MalformedJSON:
        before = self.text[:at]
        position = self.source.position(len(_encode(before)), before.count("\n") + 1)
        return MalformedJSON(f"{self.source.name} is not JSON: {reason}", position=position)

    def _skip_space(self) -> None:
        matched = _SPACE.match(self.text, self.at)
        self.at = matched.end() if matched else self.at

    def _accept(self, char: str) -> bool:
        self._skip_space()
        found = self.text.startswith(char, self.at)
        self.at += found
        return found

    def _expect(self, char: str) -> None:
        if not self._accept(char):
            raise self._error(self._found(f"expected {char!r}"), self.at)

    def _explain(self, error: json.JSONDecodeError) -> str:
        if error.msg == "Unterminated string starting at":
            return "a string that begins here has no end (is it cut off?)"
        if error.msg == "Invalid control character at":
            char = self.text[error.pos : error.pos + 1]
            return f"{'a NUL byte' if char == chr(0) else repr(char)} in a string must be escaped"
        return self._found(_reason(error))

    def _found(self, wanted: str) -> str:
        char = self.text[self.at : self.at + 1]
        if not char:
            return f"{wanted}, but {self.source.name} ends here (is it cut off?)"
        return f"{wanted}, but a NUL byte stands here" if char == "\0" else f"{wanted}, not {char!r}"

    def _end(self) -> None:
        self._skip_space()
        if self.at < len(self.text):
            raise self._error(self._found("expected nothing more"), self.at)


def _reason(error: json.JSONDecodeError) -> str:
    reasons = {
        "Expecting value": "expected a value",
        "Expecting ',' delimiter": "expected ',' or the end of the list or object",
        "Expecting ':' delimiter": "expected ':'",
        "Expecting property name enclosed in double quotes": "expected a key in double quotes",
    }
    return reasons.get(error.msg, error.msg)
