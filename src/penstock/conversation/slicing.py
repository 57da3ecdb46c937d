"""The exact byte slices of a JSON array or object, and where and why text is not JSON.

`msgspec` slices fast but takes neither lone surrogates nor gives a position that a person can use. Here the
standard library's scanner goes over the text once more, for input on which `msgspec` failed.
"""

from __future__ import annotations

import json
import re

from penstock.errors import InputError, MalformedJSON

__all__ = ["decode_utf8", "slice_array", "slice_object", "too_deep"]

_SPACE = re.compile(r"[ \t\r\n]*")
_SAFE_DEPTH = 500
_BRACKETS_AND_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_STEPS = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}


def decode_utf8(data: bytes, lines_before: int = 0, bytes_before: int = 0) -> str:
    """The text. Raises InputError with the offset and line of the first byte that is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = lines_before + data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"the input is not UTF-8: byte 0x{data[error.start]:02x} cannot stand here; save the file as UTF-8",
            position=f"byte {bytes_before + error.start}, line {line}",
        ) from None


def slice_array(text: str, lines_before: int = 0, bytes_before: int = 0) -> list[bytes]:
    """The slice of each element. Raises MalformedJSON where the text is not an array and nothing more."""
    scan = _Scan(text, lines_before, bytes_before)
    scan.expect("[")
    slices: list[bytes] = []
    if scan.accept("]"):
        scan.end()
        return slices
    while True:
        slices.append(scan.value())
        if scan.accept("]"):
            scan.end()
            return slices
        scan.expect(",")


def slice_object(text: str, lines_before: int = 0, bytes_before: int = 0) -> dict[str, bytes]:
    """The slice of each value by its key. Raises MalformedJSON where the text is not one object."""
    scan = _Scan(text, lines_before, bytes_before)
    scan.expect("{")
    slices: dict[str, bytes] = {}
    if scan.accept("}"):
        scan.end()
        return slices
    while True:
        key = scan.key()
        scan.expect(":")
        slices[key] = scan.value()
        if scan.accept("}"):
            scan.end()
            return slices
        scan.expect(",")


def too_deep(data: bytes, lines_before: int = 0, bytes_before: int = 0) -> InputError:
    """The error for nesting that no reader here can follow, with the place where it passes the limit."""
    depth = offset = 0
    for token in _BRACKETS_AND_STRINGS.finditer(data):
        depth += _STEPS.get(token[0], 0)
        offset = token.start()
        if depth > _SAFE_DEPTH:
            break
    line = lines_before + data.count(b"\n", 0, offset) + 1
    return InputError(
        f"the JSON is nested more than {_SAFE_DEPTH} levels deep, too deep to be read: flatten it",
        position=f"byte {bytes_before + offset}, line {line}",
    )


class _Scan:
    """A walk over the text. Positions in its errors count from the start of the whole input."""

    def __init__(self, text: str, lines_before: int, bytes_before: int) -> None:
        self.text = text
        self.at = 0
        self.lines_before = lines_before
        self.bytes_before = bytes_before
        self.decoder = json.JSONDecoder(parse_constant=self._refuse_constant)

    def _refuse_constant(self, name: str) -> None:
        raise self.error(f"{name} is not JSON", self.at)

    def error(self, reason: str, at: int) -> MalformedJSON:
        before = self.text[:at]
        offset = self.bytes_before + len(before.encode("utf-8", "surrogatepass"))
        line = self.lines_before + before.count("\n") + 1
        return MalformedJSON(f"the input is not JSON: {reason}", position=f"byte {offset}, line {line}")

    def skip_space(self) -> None:
        matched = _SPACE.match(self.text, self.at)
        self.at = matched.end() if matched else self.at

    def accept(self, char: str) -> bool:
        self.skip_space()
        found = self.text.startswith(char, self.at)
        self.at += found
        return found

    def expect(self, char: str) -> None:
        if not self.accept(char):
            raise self.error(self._found(f"{char!r} expected"), self.at)

    def _found(self, wanted: str) -> str:
        char = self.text[self.at : self.at + 1]
        if not char:
            return f"{wanted}, but the input ends here (is it cut off?)"
        return f"{wanted}, but a NUL byte stands here" if char == "\0" else f"{wanted}, not {char!r}"

    def value(self) -> bytes:
        self.skip_space()
        start = self.at
        try:
            _, self.at = self.decoder.raw_decode(self.text, start)
        except RecursionError:
            raise too_deep(self.text.encode(), self.lines_before, self.bytes_before) from None
        except json.JSONDecodeError as error:
            self.at = error.pos
            raise self.error(self._found(_reason(error)), error.pos) from None
        except ValueError:  # all that is left: the interpreter's limit on integers
            raise self.error("an integer has more than 4,300 digits", start) from None
        return self.text[start : self.at].encode()

    def key(self) -> str:
        self.skip_space()
        if not self.text.startswith('"', self.at):
            raise self.error(self._found("a key in double quotes expected"), self.at)
        return str(json.loads(self.value()))

    def end(self) -> None:
        self.skip_space()
        if self.at < len(self.text):
            raise self.error(self._found("nothing more expected"), self.at)


def _reason(error: json.JSONDecodeError) -> str:
    reasons = {
        "Expecting value": "a value expected",
        "Expecting ',' delimiter": "',' or the end of the list or object expected",
        "Expecting ':' delimiter": "':' expected",
        "Expecting property name enclosed in double quotes": "a key in double quotes expected",
        "Unterminated string starting at": "this string has no end",
        "Invalid control character at": "a character that must be escaped in a string",
    }
    return reasons.get(error.msg, error.msg)
