"""The most telling lines of a long tool result that nobody has answered yet.

The agent is about to read this result, so it is not a matter of values that may be needed some day: it wants what
a reader looks for first. Those are errors with the lines around them, what the request names, the beginning and
the end; in a file, where the word "error" is no error, its definitions; after that, the text from the top as far as
the room goes. What is left out is marked where it was.
"""

from __future__ import annotations

import re
from textwrap import dedent
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.writing.excerpts import decode_exactly, excerpts, lay_out, write_scalar
from penstock.writing.values import sub_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["share_out", "tell"]

_GAP = "…"
_ENDS = 4  # lines at the beginning and at the end
_AROUND = 1  # lines before and after an error
_MOST_ERRORS = 12
_GAP_TOKENS = 2
_LONG_LINE = 280  # characters: a longer line is told in pieces
_LEAST_ROWS = 3  # fewer things that are alike make no table
_MOST_COLUMNS = 24
_LONGEST_LIST = 12
_DEEPEST = 24
_KEY = ""  # the column for the keys of an object whose values are the rows
_LEAST_WORD = 4  # characters: shorter words of a request name nothing
_MOST_LINES = 4_000  # of a longer text the middle is not looked at

_ERROR = re.compile(
    r"\b(?:error|errors|exception|traceback|failed|failure|fatal|panic(?:ked)?|assert(?:ion)?error|denied|"
    r"cannot|undefined|unresolved|no such file|not found|segfault|abort(?:ed)?)\b|\w(?:Error|Exception)\b|^E {2,}|✗|✘",
    re.IGNORECASE,
)
_DEFINITION = re.compile(
    r"\s*(?:export |default |pub(?:\([a-z]+\))? |public |private |protected |static |abstract |async |final )*"
    r"(?:def|class|func|fn|function|type|interface|struct|enum|trait|impl|module|namespace|const|CREATE TABLE)\b|#{1,4} "
)
_NO_ERROR = re.compile(r"\b(?:0|no) (?:error|failure|failed)s?\b", re.IGNORECASE)


class _Line(NamedTuple):
    """A line that may be told, and the place of the line above without which it says nothing: a table's head."""

    text: str
    head: int = -1


def share_out(sizes: Sequence[int], allowed: int) -> list[int]:
    """Returns how much of `allowed` each may take: equal parts, but what the small ones do not need is for the large."""
    shares = [0] * len(sizes)
    for left, place in zip(
        range(len(sizes), 0, -1), sorted(range(len(sizes)), key=sizes.__getitem__), strict=True
    ):
        shares[place] = min(sizes[place], allowed // left)
        allowed -= shares[place]
    return shares


def tell(
    text: str,
    limit: int,
    count_many: Callable[[Sequence[str]], list[int]],
    about: str,
    *,
    is_file: bool = False,
) -> str:
    """Returns lines of the text that take at most `limit` tokens, in their order; empty where not one fits.

    `about` is the request that the result serves. JSON is laid out first, what is alike in it as a table.
    `is_file` where the text is what stands in a file or was found in files, not what a program reported.
    """
    lines = _lines(text)
    costs = [tokens + 1 for tokens in count_many([line.text for line in lines])]
    if sum(costs) <= limit:
        return "\n".join(line.text for line in lines)
    chosen: set[int] = set()
    left = limit - _GAP_TOKENS
    for place in _ranked([line.text for line in lines], about, _DEFINITION if is_file else _ERROR):
        if place in chosen:
            continue
        head = lines[place].head
        needed = [place] if head < 0 or head in chosen else [head, place]
        # A line beside one that is chosen closes a gap; any other opens one more.
        gaps = 0 if {place - 1, place + 1} & chosen else len(needed)
        price = sum(costs[at] for at in needed) + gaps * _GAP_TOKENS
        if price <= left:
            chosen.update(needed)
            left -= price
    return "\n".join(_with_gaps(lines, sorted(chosen)))


def _lines(text: str) -> list[_Line]:
    """Returns the lines of the text as they are, but for long ones, which come in pieces, and for JSON."""
    lines: list[_Line] = []
    if text.lstrip()[:1] in {"{", "["}:
        try:
            _lay_out_data(decode_exactly(text), "", lines, 0)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            lines = []
    if lines:
        return lines[:_MOST_LINES]
    plain = [line for line in dedent(lay_out(text).text).split("\n") if line.strip()]
    if len(plain) > _MOST_LINES:
        plain[_MOST_LINES // 2 : -_MOST_LINES // 2] = []
    for line in plain:
        _add(line, lines)
    return lines


def _add(line: str, lines: list[_Line]) -> None:
    """Adds a line, a long one in pieces that can be told one by one."""
    pieces = excerpts(line) if len(line) > _LONG_LINE else []
    lines.extend(map(_Line, pieces or [line.rstrip()]))


def _lay_out_data(data: Any, name: str, lines: list[_Line], depth: int) -> None:
    """Adds lines for JSON data: scalars as "key value, key value", rows that are alike under one head."""
    rows = _rows(data)
    if rows is not None:
        _lay_out_table(rows, name, lines)
    elif isinstance(data, dict) and depth < _DEEPEST:
        inline = [f"{key} {_flat(value)}" for key, value in data.items() if _is_flat(value)]
        if inline:
            _add((f"{name}: " if name else "") + ", ".join(inline), lines)
        for key, value in data.items():
            if not _is_flat(value):
                _lay_out_data(value, key if inline or not name else f"{name} {key}", lines, depth + 1)
    elif isinstance(data, list) and depth < _DEEPEST:
        for item in data:
            _lay_out_data(item, name, lines, depth + 1)
    else:
        text = f"{name} {_flat(data)}" if name else _flat(data)
        for line in filter(str.strip, text.split("\n")):
            _add(line, lines)


def _rows(data: Any) -> list[dict[str, str]] | None:
    """Returns what is alike in the data as rows of texts by column, or None where it makes no table."""
    if isinstance(data, dict):
        items = [({_KEY: key} if key not in map(str, _values(row)) else {}, row) for key, row in data.items()]
    elif isinstance(data, list):
        items = [({}, row) for row in data]
    else:
        return None
    if len(items) < _LEAST_ROWS or not all(isinstance(row, dict) and row for _, row in items):
        return None
    rows: list[dict[str, str]] = []
    for first, row in items:
        cells = dict(first)
        for key, value in row.items():
            if isinstance(value, dict) and value and all(_is_flat(inner) for inner in value.values()):
                cells.update((f"{key} {inner}", _flat(cell)) for inner, cell in value.items())
            elif _is_flat(value):
                cells[key] = _flat(value)
            else:
                return None
        rows.append(cells)
    columns = {column for cells in rows for column in cells}
    filled = sum(map(len, rows))
    return rows if len(columns) <= _MOST_COLUMNS and 2 * filled >= len(rows) * len(columns) else None


def _lay_out_table(rows: list[dict[str, str]], name: str, lines: list[_Line]) -> None:
    """Adds a head that names the columns, and the columns that are the same in all rows, then the rows."""
    columns = list(dict.fromkeys(column for cells in rows for column in cells))
    alike = {column: rows[0].get(column) for column in columns}
    alike = {
        column: cell
        for column, cell in alike.items()
        if cell is not None and all(row.get(column) == cell for row in rows)
    }
    differ = [column for column in columns if column not in alike]
    if not differ:
        differ, alike = columns, {}
    head = ", ".join(column if column != _KEY else "key" for column in differ)
    shared = "; in all: " + ", ".join(f"{column} {cell}" for column, cell in alike.items()) if alike else ""
    at = len(lines)
    lines.append(_Line(f"{name or 'rows'} ({head}){shared}:"))
    lines.extend(_Line(", ".join(row.get(column) or "-" for column in differ), at) for row in rows)


def _values(row: Any) -> list[Any]:
    return list(row.values()) if isinstance(row, dict) else []


def _is_flat(value: Any) -> bool:
    """Returns whether the value is a scalar without line breaks, or a short list of such."""
    if isinstance(value, list):
        return len(value) <= _LONGEST_LIST and all(not isinstance(item, (dict, list)) for item in value)
    return not isinstance(value, dict) and not (isinstance(value, str) and "\n" in value)


def _flat(value: Any) -> str:
    return " ".join(map(write_scalar, value)) if isinstance(value, list) else write_scalar(value)


def _ranked(lines: Sequence[str], about: str, telling: re.Pattern[str]) -> Iterator[int]:
    """Yields the places of the lines, the most telling first; some come more than once."""
    end = len(lines)
    yield from range(min(2, end))
    yield from range(end - 1, max(end - 3, -1), -1)
    if telling is _ERROR:
        errors = [at for at, line in enumerate(lines) if _ERROR.search(line) and not _NO_ERROR.search(line)]
        told = [*errors[: _MOST_ERRORS // 2], *errors[-_MOST_ERRORS // 2 :]]
        yield from told
        for at in told:
            yield from range(max(0, at - _AROUND), min(end, at + _AROUND + 1))
    words = {word for word in sub_words(about) if len(word) >= _LEAST_WORD}
    named = [len(words & sub_words(line)) for line in lines] if words else [0] * end
    yield from (at for at in sorted(range(end), key=lambda at: -named[at]) if named[at] > 1)
    if telling is _DEFINITION:
        yield from (at for at, line in enumerate(lines) if _DEFINITION.match(line))
    yield from range(min(_ENDS, end))
    yield from range(end - 1, max(end - 1 - _ENDS, -1), -1)
    yield from range(end)


def _with_gaps(lines: Sequence[_Line], chosen: Sequence[int]) -> Iterator[str]:
    last = -1
    for place in chosen:
        if place != last + 1:
            yield _GAP
        yield lines[place].text
        last = place
    if chosen and last != len(lines) - 1:
        yield _GAP
