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

from penstock.writing.excerpts import excerpts, flatten_json, lay_out, write_scalar
from penstock.writing.importance import live_of, score_values
from penstock.writing.reading import spoken_text
from penstock.writing.values import sub_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.measure.tokens import Tokenizer
    from penstock.writing.transcript import Transcript
    from penstock.writing.writer import Importance

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
    """Tells results in the light of the request at one position of a conversation.

    `importance` says how likely each value is needed; it is asked only where a text is too long.
    """

    def __init__(
        self,
        transcript: Transcript,
        request: int | None,
        focus: str,
        tokenizer: Tokenizer,
        importance: Importance | None,
    ) -> None:
        asked = "" if request is None else spoken_text(transcript.messages[request])
        self._transcript = transcript
        self._request = request
        self._focus = focus
        self._tokenizer = tokenizer
        self._importance = importance or score_values
        self._about = {word for word in sub_words(f"{asked}\n{focus}") if len(word) >= _LEAST_WORD}

    def tell(self, text: str, limit: int, *, is_file: bool = False) -> str:
        """Returns lines of the text that take at most `limit` tokens, in their order; empty where not one fits.

        JSON is laid out first, what is alike in it as a table. `is_file` where the text is what stands in a file or
        was found in files, not what a program reported.
        """
        lines, is_data = _lines(text)
        texts = [line.text for line in lines]
        costs = [tokens + 1 for tokens in self._tokenizer.count_many(texts)]
        # Lines take fewer tokens together than one by one, so what fits is known only by counting them together.
        if sum(costs) <= 2 * limit and self._tokenizer.count(whole := "\n".join(texts)) <= limit:
            return whole
        values = self._weigh(texts)
        chosen: set[int] = set()
        told, left = "", limit - _GAP_TOKENS
        for _ in range(_ROUNDS):  # for the same reason something is left over, which is spent again
            first = self._find_first_of_data(texts) if is_data else self._find_looked_for(texts, is_file)
            ranked = chain(first, _rank(values, costs, chosen), range(len(texts)))
            _choose(ranked, lines, costs, chosen, left)
            fuller = "\n".join(_with_gaps(lines, sorted(chosen)))
            tokens = self._tokenizer.count(fuller)
            if tokens > limit:
                break
            told, left = fuller, limit - tokens
            if left < _LEAST_LEFT:
                break
        return told

    def _find_looked_for(self, lines: Sequence[str], is_file: bool) -> Iterator[int]:
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
        yield from self._find_named(lines)
        yield from range(min(_ENDS, end))
        yield from range(end - 1, max(end - 1 - _ENDS, -1), -1)

    def _find_first_of_data(self, lines: Sequence[str]) -> Iterator[int]:
        """Yields the places of what a record says of itself, on its first line, and of what the request names.

        In data the last lines are no more telling than others.
        """
        yield from range(min(1, len(lines)))
        yield from self._find_named(lines)

    def _find_named(self, lines: Sequence[str]) -> Iterator[int]:
        """Yields the places of the lines that hold most of what the request names."""
        if self._about:
            named = [len(self._about & sub_words(line)) for line in lines]
            ranked = sorted(range(len(lines)), key=lambda at: -named[at])
            yield from (at for at in ranked[:_MOST_NAMED] if named[at] > 1)

    def _weigh(self, lines: Sequence[str]) -> list[dict[int, float]]:
        """Returns for each line its values, each with how likely it is needed."""
        transcript = self._transcript
        live = live_of(transcript, self._request, self._focus)
        weights = self._importance(transcript.index, live, transcript.tokens_after())
        found = transcript.index.vocabulary.find(lines)
        return [
            {value: float(weights[value]) for value in found.ids[start:end].tolist() if value < len(weights)}
            for start, end in pairwise(found.starts.tolist())
        ]


def _choose(
    ranked: Iterable[int], lines: Sequence[_Line], costs: Sequence[int], chosen: set[int], left: int
) -> None:
    """Adds places of lines to those that are chosen, in the order given, as many as fit."""
    for place in ranked:
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


def _rank(values: Sequence[dict[int, float]], costs: Sequence[int], chosen: set[int]) -> Iterator[int]:
    """Yields the places of lines with values that are likely needed: what adds most per token first.

    `chosen` grows meanwhile: what a chosen line holds is told, and a line beside it is cheaper, since no gap is to be marked.
    """
    told = {value for place in chosen for value in values[place]}

    def density(place: int) -> float:
        gap = 0 if place - 1 in chosen or place + 1 in chosen else _GAP_TOKENS
        open_weight = sum(weight for value, weight in values[place].items() if value not in told)
        return open_weight / (costs[place] + gap)

    heap = [(-density(place), place) for place in range(len(values)) if values[place]]
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
            told.update(values[place])
            for beside in (place - 1, place + 1):
                if 0 <= beside < len(values) and values[beside]:
                    heappush(heap, (-density(beside), beside))


def _lines(text: str) -> tuple[list[_Line], bool]:
    """Returns the lines of the text, long ones in pieces, and whether it is data: JSON is laid out, what is alike in it as tables."""
    tables = _Tables()
    flat = flatten_json(text, set(), tables.take)
    if flat is None:
        plain = [line for line in dedent(lay_out(text).text).split("\n") if line.strip()]
        if len(plain) > _MOST_LINES:
            plain[_MOST_LINES // 2 : -_MOST_LINES // 2] = []
        return [_Line(piece) for line in plain for piece in _pieces(line)], False
    lines: list[_Line] = []
    # Where the head of a table stands now: what was before it may have come in pieces.
    places: dict[int, int] = {}
    for at, entry in enumerate(flat):
        if at in tables.heads:
            places.setdefault(tables.heads[at], len(lines))
            lines.append(_Line(entry, places[tables.heads[at]] if tables.heads[at] != at else -1))
        else:
            lines += [
                _Line(piece) for line in filter(str.strip, entry.split("\n")) for piece in _pieces(line)
            ]
    return lines[:_MOST_LINES], True


def _pieces(line: str) -> list[str]:
    """Returns the line, or a long one in pieces that can be told one by one."""
    return (excerpts(line) if len(line) > _LONG_LINE else []) or [line.rstrip()]


class _Tables:
    """Lays out what is alike as tables. `heads` are the places of their lines, each with that of the table's head."""

    def __init__(self) -> None:
        self.heads: dict[int, int] = {}

    def take(self, data: dict[str, Any] | list[Any], name: str, lines: list[str]) -> bool:
        """Adds the lines of a table, where the data makes one."""
        rows = _rows(data)
        if rows is None:
            return False
        head = len(lines)
        lines += _lay_out_table(rows, name)
        self.heads.update(dict.fromkeys(range(head, len(lines)), head))
        return True


def _rows(data: dict[str, Any] | list[Any]) -> list[dict[str, str]] | None:
    """Returns what is alike in the data as rows of texts by column, or None where it makes no table."""
    keyed = data.items() if isinstance(data, dict) else (("", row) for row in data)
    items = [(key, row) for key, row in keyed if isinstance(row, dict) and row]
    if len(items) < max(_LEAST_ROWS, len(data)):
        return None
    own = _find_columns_inside([row for _, row in items])
    rows: list[dict[str, str]] = []
    for name, row in items:
        # The name of a row is a column of its own, unless the row holds it anyway.
        cells = {_KEY: name} if name and name not in map(str, row.values()) else {}
        for key, value in row.items():
            if isinstance(value, dict) and all(map(_is_flat, value.values())):
                if key in own:
                    cells.update((f"{key} {inner}", _flat(cell)) for inner, cell in value.items())
                else:
                    cells[key] = " ".join(_name_cell(inner, cell) for inner, cell in value.items())
            elif _is_flat(value):
                cells[key] = _flat(value)
            else:
                return None
        rows.append(cells)
    columns = {column for cells in rows for column in cells}
    filled = sum(map(len, rows))
    return rows if len(columns) <= _MOST_COLUMNS and 2 * filled >= len(rows) * len(columns) else None


def _find_columns_inside(rows: list[dict[str, Any]]) -> set[str]:
    """Returns the keys of objects in the rows that hold the same things in each row: those make columns of their own."""
    inside: dict[str, set[tuple[str, ...]]] = {}
    for row in rows:
        for key, value in row.items():
            if isinstance(value, dict):
                inside.setdefault(key, set()).add(tuple(value))
    return {key for key, kinds in inside.items() if len(kinds) == 1}


def _name_cell(key: str, value: Any) -> str:
    """Returns a value that stands among others in one cell: words say what they are, anything else with its name."""
    told = _flat(value)
    return told if isinstance(value, str) and any(map(str.isalpha, told)) else f"{key} {told}"


def _lay_out_table(rows: list[dict[str, str]], name: str) -> list[str]:
    """Returns a head that names the columns, and the columns that are the same in all rows, then the rows."""
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
    told = (", ".join(row.get(column) or "-" for column in differ) for row in rows)
    return [f"{name or 'rows'} ({head}){shared}:", *told]


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
