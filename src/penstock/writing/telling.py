"""The most telling lines of a long tool result that nobody has answered yet.

The agent is about to read this result, so it is not a matter of values that may be needed some day: it wants what
a reader looks for first. Those are errors with the lines around them (not in a file, where the word is no error), what
the request names, the beginning and the end; then the lines whose values are most likely needed. What is left out is
marked where it was.
"""

from __future__ import annotations

import re
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from textwrap import dedent
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.writing.excerpts import decode_exactly, excerpts, lay_out, write_scalar
from penstock.writing.values import sub_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.measure.tokens import Tokenizer
    from penstock.writing.vocabulary import Vocabulary

__all__ = ["Teller", "share_out"]

_GAP = "…"
_ENDS = 4  # lines at the beginning and at the end
_AROUND = 1  # lines before and after an error
_MOST_ERRORS = 12
_GAP_TOKENS = 2
_LEAST_LEFT = 6  # tokens: nothing useful fits in less
_MOST_NAMED = 12
_ROUNDS = 3
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


class Teller:
    """Tells results in the light of one request.

    `weigh` gives for each value of the vocabulary how likely it is needed; it is asked only where a text is too long.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        about: str,
        vocabulary: Vocabulary,
        weigh: Callable[[], NDArray[np.float32]],
    ) -> None:
        self._tokenizer = tokenizer
        self._about = {word for word in sub_words(about) if len(word) >= _LEAST_WORD}
        self._vocabulary = vocabulary
        self._weigh = weigh

    def tell(self, text: str, limit: int, *, is_file: bool = False) -> str:
        """Returns lines of the text that take at most `limit` tokens, in their order; empty where not one fits.

        JSON is laid out first, what is alike in it as a table. `is_file` where the text is what stands in a file or
        was found in files, not what a program reported.
        """
        lines = _lines(text)
        texts = [line.text for line in lines]
        costs = [tokens + 1 for tokens in self._tokenizer.count_many(texts)]
        # Lines take fewer tokens together than one by one, so what fits is known only by counting them together.
        if sum(costs) <= 2 * limit and self._tokenizer.count(whole := "\n".join(texts)) <= limit:
            return whole
        chosen: set[int] = set()
        told, left = "", limit - _GAP_TOKENS
        for _ in range(_ROUNDS):  # for the same reason something is left over, which is spent again
            self._choose(lines, costs, chosen, left, is_file)
            fuller = "\n".join(_with_gaps(lines, sorted(chosen)))
            tokens = self._tokenizer.count(fuller)
            if tokens > limit:
                break
            told, left = fuller, limit - tokens
            if left < _LEAST_LEFT:
                break
        return told

    def _choose(
        self, lines: Sequence[_Line], costs: Sequence[int], chosen: set[int], left: int, is_file: bool
    ) -> None:
        """Adds the places of the most telling lines to those that are chosen, as many as fit."""
        texts = [line.text for line in lines]
        for place in chain(
            self._looked_for(texts, is_file), self._needed(texts, costs, chosen), range(len(texts))
        ):
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
            elif left < _LEAST_LEFT:
                return

    def _looked_for(self, lines: Sequence[str], is_file: bool) -> Iterator[int]:
        """Yields the places of the lines that a reader looks for first; some come more than once."""
        end = len(lines)
        yield from range(min(2, end))
        yield from range(end - 1, max(end - 3, -1), -1)
        if not is_file:
            errors = [
                at for at, line in enumerate(lines) if _ERROR.search(line) and not _NO_ERROR.search(line)
            ]
            told = [*errors[: _MOST_ERRORS // 2], *errors[-_MOST_ERRORS // 2 :]]
            yield from told
            for at in told:
                yield from range(max(0, at - _AROUND), min(end, at + _AROUND + 1))
        if self._about:
            named = [len(self._about & sub_words(line)) for line in lines]
            ranked = sorted(range(end), key=lambda at: -named[at])
            yield from (at for at in ranked[:_MOST_NAMED] if named[at] > 1)
        yield from range(min(_ENDS, end))
        yield from range(end - 1, max(end - 1 - _ENDS, -1), -1)

    def _needed(self, lines: Sequence[str], costs: Sequence[int], chosen: set[int]) -> Iterator[int]:
        """Yields the places of lines with values that are likely needed: what adds most per token first.

        `chosen` grows meanwhile: a line beside one that is chosen is cheaper, since no gap is to be marked.
        """
        weights = self._weigh()
        found = self._vocabulary.find(lines)
        values = [
            [value for value in found.ids[start:end].tolist() if value < len(weights)]
            for start, end in pairwise(found.starts.tolist())
        ]
        open_weight = {value: float(weights[value]) for some in values for value in some}

        def density(place: int) -> float:
            gap = 0 if place - 1 in chosen or place + 1 in chosen else _GAP_TOKENS
            return sum(map(open_weight.__getitem__, values[place])) / (costs[place] + gap)

        heap = [(-density(place), place) for place in range(len(lines)) if values[place]]
        heapify(heap)
        while heap:
            _, place = heappop(heap)
            now = density(place)
            if place in chosen or now <= 0:
                continue
            if heap and -now > heap[0][0]:
                heappush(heap, (-now, place))
                continue
            yield place
            if place in chosen:
                open_weight.update(dict.fromkeys(values[place], 0.0))
                for beside in (place - 1, place + 1):
                    if 0 <= beside < len(lines) and values[beside]:
                        heappush(heap, (-density(beside), beside))


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


def _with_gaps(lines: Sequence[_Line], chosen: Sequence[int]) -> Iterator[str]:
    last = -1
    for place in chosen:
        if place != last + 1:
            yield _GAP
        yield lines[place].text
        last = place
    if chosen and last != len(lines) - 1:
        yield _GAP
