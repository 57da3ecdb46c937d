"""The most telling lines of a long tool result that nobody has answered yet.

The agent is about to read this result, so it is not a matter of values that may be needed some day: it wants what
a reader looks for first. Those are errors with the lines around them, the beginning and the end (none of them in a file,
where they are lines as any other) and what the request names; then the lines whose values are most likely needed. What
is left out is marked where it was.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from textwrap import dedent
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.writing.excerpts import excerpts, flatten_json, lay_out, write_scalar
from penstock.writing.importance import live_of, score_values
from penstock.writing.reading import spoken_text
from penstock.writing.values import sub_words

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Sequence

    from penstock.measure.tokens import Tokenizer
    from penstock.writing.transcript import Transcript
    from penstock.writing.writer import Importance

__all__ = ["Teller", "share_out"]

_GAP = "…"
_ENDS = 4  # lines at the beginning and at the end
_AROUND = 1  # lines before and after an error
_BESIDE = 2  # lines before and after one that the call names
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
_MOST_SAID = 6_000  # characters of what people said, to look for what they named
_MOST_LINES = 4_000  # of a longer text the middle is not looked at

_ERROR = re.compile(
    r"\b(?:error|errors|exception|traceback|failed|failure|fatal|panic(?:ked)?|assert(?:ion)?error|denied|"
    r"cannot|undefined|unresolved|no such file|not found|segfault|abort(?:ed)?)\b|\w(?:Error|Exception)\b|^E {2,}|✗|✘",
    re.IGNORECASE,
)
_IN_ALL = "; in all: "
_LONGEST_WRAPPER = 8  # lines
_WRAPPER_SHARE = 0.3  # of what may be told: where it would take more, it is left out
_ABOVE_OUTPUT = re.compile(
    r"(?:[A-Z]\w*(?: \w+){0,3}: ?\S|Process (?:exited|running|ended)\b|Exit(?:ed)?\b|Warning\b)"
)
_RUNS = re.compile(r"\brunning\b", re.IGNORECASE)
_NUMBERED = re.compile(r"\s{0,8}(\d{1,6})(?:[→|\t]|:(?!\d))")  # a line of a file, as it is shown
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

    def tell(
        self,
        text: str,
        limit: int,
        *,
        is_file: bool = False,
        near: Collection[int] = frozenset(),
        told_beside: Container[str] = frozenset(),
    ) -> str:
        """Returns lines of the text that take at most `limit` tokens, in their order; empty where not one fits.

        JSON is laid out first, what is alike in it as a table. `is_file` where the text is what stands in a file or
        was found in files, not what a program reported. Lines with a number that is `near` are looked for, since the call
        named them. Lines of data that are `told_beside` it, in another result, are
        not told again.
        """
        lines, is_data = _lines(text)
        texts = [line.text for line in lines]
        if not is_data and (above := _find_wrapper(texts)):
            wrapper = self._tokenizer.count("\n".join(texts[place] for place in sorted(above)))
            if wrapper > _WRAPPER_SHARE * limit and self._tokenizer.count("\n".join(texts)) > limit:
                lines = [line for place, line in enumerate(lines) if place not in above]
                texts = [line.text for line in lines]
        costs = [tokens + 1 for tokens in self._tokenizer.count_many(texts)]
        # Lines take fewer tokens together than one by one, so what fits is known only by counting them together.
        if sum(costs) <= 2 * limit and self._tokenizer.count(whole := "\n".join(texts)) <= limit:
            return whole
        values = self._weigh(texts)
        chosen: set[int] = set()
        told, left = "", limit - _GAP_TOKENS
        for _ in range(_ROUNDS):  # for the same reason something is left over, which is spent again
            first = (
                self._find_first_of_data(lines) if is_data else self._find_looked_for(texts, is_file, near)
            )
            ranked: Iterable[int] = chain(first, _rank(values, costs, chosen), range(len(texts)))
            if is_data:
                ranked = (place for place in ranked if texts[place] not in told_beside)
            _choose(ranked, lines, costs, chosen, left)
            fuller = "\n".join(_with_gaps(lines, sorted(chosen)))
            tokens = self._tokenizer.count(fuller)
            if tokens > limit:
                break
            told, left = fuller, limit - tokens
            if left < _LEAST_LEFT:
                break
        return told

    def _find_looked_for(self, lines: Sequence[str], is_file: bool, near: Collection[int]) -> Iterator[int]:
        """Yields the places of the lines that a reader looks for first; some come more than once.

        A file begins with imports and ends with braces: there both ends are no more telling than the rest.
        """
        end = len(lines)
        if not is_file:
            yield from range(min(2, end))
            yield from range(end - 1, max(end - 3, -1), -1)
            errors = [
                at
                for at, line in enumerate(lines)
                if _ERROR.search(line) and not _NO_ERROR.search(line) and not _NUMBERED.match(line)
            ]
            told = [*errors[: _MOST_ERRORS // 2], *errors[-_MOST_ERRORS // 2 :]]
            yield from told
            for at in told:
                yield from range(max(0, at - _AROUND), min(end, at + _AROUND + 1))
        for at in self._find_near(lines, near):
            yield at
            yield from range(max(0, at - _BESIDE), min(end, at + _BESIDE + 1))
        yield from self._find_named(lines)
        if not is_file:
            yield from range(min(_ENDS, end))
            yield from range(end - 1, max(end - 1 - _ENDS, -1), -1)

    def _find_near(self, lines: Sequence[str], near: Collection[int]) -> Iterator[int]:
        """Yields the places of the lines with these numbers."""
        if near:
            for at, line in enumerate(lines):
                if (found := _NUMBERED.match(line)) and int(found[1]) in near:
                    yield at

    def _find_first_of_data(self, lines: Sequence[_Line]) -> Iterator[int]:
        """Yields the places of what a record says of itself, on its first line, and of what people named.

        In data the last lines are no more telling than others.
        """
        yield from range(min(1, len(lines)))
        yield from self._find_singled_out(lines)
        yield from self._find_named([line.text for line in lines])

    def _find_singled_out(self, lines: Sequence[_Line]) -> Iterator[int]:
        """Yields the places of the rows that alone hold a word that a person used, in this request or before it.

        "Show me my orders" asks for all of them; which thing in them was meant, a person has often said long before.
        """
        said, words = self._said_by_people
        held: dict[str, list[int]] = {}
        for at, line in enumerate(lines):
            for word in sub_words(line.text):
                # Words of scripts without spaces stand within a run of others.
                if word in words or (not word.isascii() and len(word) > 1 and word in said):
                    held.setdefault(word, []).append(at)
        alone = Counter(at for at, *others in held.values() if not others and lines[at].head >= 0)
        yield from sorted(alone, key=lambda at: (-alone[at], at))[:_MOST_NAMED]

    @cached_property
    def _said_by_people(self) -> tuple[str, set[str]]:
        """The last words of people, up to a length, in lower case; and those of them that may name something."""
        texts: list[str] = []
        room = _MOST_SAID
        for place in reversed(self._transcript.people):
            texts.append(spoken_text(self._transcript.messages[place])[:room])
            room -= len(texts[-1])
            if room <= 0:
                break
        said = "\n".join(texts)
        return said.lower(), {word for word in sub_words(said) if len(word) >= _LEAST_WORD}

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
    heads = {line.head for line in lines if line.head >= 0 and _IN_ALL not in lines[line.head].text}
    for place in ranked:
        if place in chosen or place in heads:  # the names of columns come with the first of the rows
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


def _find_wrapper(lines: Sequence[str]) -> set[int]:
    """Returns the places of the lines that a client has written above the output of a command: ids, times, counts.

    How the command ended stands beside the result, and what it was in its call. That it still runs is no such line.
    """
    end = next((place for place, line in enumerate(lines[:_LONGEST_WRAPPER]) if line.strip() == "Output:"), 0)
    if not end or not all(map(_ABOVE_OUTPUT.match, lines[:end])):
        return set()
    return {place for place in range(end + 1) if _RUNS.search(lines[place]) is None}


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
    shared = _IN_ALL + ", ".join(f"{column} {cell}" for column, cell in alike.items()) if alike else ""
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
