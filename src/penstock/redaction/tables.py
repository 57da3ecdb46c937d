"""Columns of secrets: CSV with a head, Markdown, tables of database shells, and the rows of an INSERT.

The name stands once, at the top, and the values stand below it, far from any name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.redaction.secret import RedactionRule, Secret, is_literal, looks_chosen, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["RULES", "find_head"]

_PASSWORDS = (
    "password",
    "passwd",
    "passwort",
    "kennwort",
    "passphrase",
    "contraseña",
    "senha",
    "пароль",
    "密码",
)
_KEYS = (
    "secret",
    "api_key",
    "apikey",
    "api key",
    "access_key",
    "private_key",
    "auth_token",
    "access_token",
    "token",
)
_COLUMN = re.compile(
    rf"(?:[\w -]{{1,24}}[_ -])?(?:(?P<password>{'|'.join(_PASSWORDS)})|{'|'.join(_KEYS)})"
    r"(?:[_ -]?(?:[0-9]|key|value|plain|plaintext|id|hash))?",
    re.IGNORECASE,
)
_CELL_END = re.compile(r"""[\w-]{0,16}+\\{0,63}["'`]?[ \t]{0,40}(?:[,;|]|\t|\r?\n|\\{1,63}[nt])""")
_HEAD_CELL = re.compile(r"""[ \t"'`\\*]{0,40}(?P<name>[^\W\d][\w ()./#-]{0,40}?)?[ \t"'`\\*]{0,40}\r?""")
_BREAK = re.compile(r"\n|\\{1,63}n")
_BEFORE_NAME = frozenset(" \t\n\"'`\\*|;,_-n")  # `n`: of an escaped line break
# A value in JSON, up to its quote: of an object, of a list, or by itself; but no cell in quotes of its own.
_OPENED = re.compile(
    r'(?:.*(?::|\[(?:[^\["\]]{0,40},)?)[ ]?|[ ]?(?!\\{0,7}"[\w -]{0,40}\\{0,7}"[ ]?[,;|\t]))(?:(?P<slashes>\\{0,7})"){1,4}'
)
_CLOSED = re.compile(r"""\\{0,63}"\s*[}\],]""")
_RULE_LINE = re.compile(r"[ \t]*+[|+]?[ \t]*+:?-{2,}+[-|+: \t]*+\r?")
_TRIMMED = " \t\r\"'`*\\"
_LONGEST_HEAD = 300
_LONGEST_ROW = 4_000
_MOST_ROWS = 10_000


def _find(text: str, start: int, end: int) -> Iterable[Secret]:
    # A name that stands behind anything else is the rest of another word, and no head: the cheapest look comes first.
    if (start and text[start - 1] not in _BEFORE_NAME) or _CELL_END.match(text, end) is None:
        return ()
    return _find_in_column(text, start, end)


def _find_in_column(text: str, start: int, end: int) -> Iterable[Secret]:
    ending = _BREAK.search(text, end, end + _LONGEST_HEAD)
    if ending is None:
        return ()
    brk, foot = ending[0], ending.start()
    head, slashes = find_head(text, start, brk)
    if head < 0 or foot - head > _LONGEST_HEAD:
        return ()
    line = text[head:foot]
    mark = "|" if "|" in line else "\t" if "\t" in line else ";" if ";" in line else ","
    count = line.count(mark)
    if not count or not _is_first_line(text, head, brk, mark, count):
        return ()
    columns = _columns_of(line.split(mark))
    # The first column of secrets finds them all.
    if not columns or line.count(mark, 0, start - head) != min(columns):
        return ()
    return _cells(text, _Rows(foot + len(brk), brk, mark, count, slashes), columns)


def find_head(text: str, start: int, brk: str) -> tuple[int, int]:
    """Returns where the line of the name begins, -1 if that is too far away, and how JSON writes a quote there.

    That is the number of backslashes before the quote that opens the string around the line, -1 if it is in none.
    """
    floor = max(0, start - _LONGEST_HEAD)
    before = text.rfind(brk, floor, start)
    head = before + len(brk) if before >= 0 else floor
    if text.find('"', head, start) >= 0 and (opened := _OPENED.match(text, head, start)):
        return opened.end(), len(opened["slashes"])
    # One level deeper, a line break has twice as many backslashes, a quote twice as many and one.
    return (head, len(brk) - 2) if before >= 0 or floor == 0 else (-1, -1)


def _is_first_line(text: str, head: int, brk: str, mark: str, count: int) -> bool:
    """Returns True if the line is the head of its table: the line above is of another kind."""
    if head < len(brk) or not text.startswith(brk, head - len(brk)):
        return True
    above = text[max(0, head - len(brk) - _LONGEST_HEAD) : head - len(brk)].rpartition(brk)[2]
    return above.count(mark) != count


def _columns_of(cells: list[str]) -> dict[int, bool]:
    """Returns the columns of secrets, and which of them hold passwords; empty if this is not the head of a table."""
    columns: dict[int, bool] = {}
    for place, cell in enumerate(cells):
        name = _HEAD_CELL.fullmatch(cell)
        if name is None:
            return {}
        if name["name"] and (column := _COLUMN.fullmatch(name["name"])):
            columns[place] = column["password"] is not None
    return columns


class _Rows(NamedTuple):
    """The rows below the head of a table: where they stand, how rows and cells are parted, and how often in a row."""

    at: int
    brk: str
    mark: str
    marks: int
    slashes: int
    """The backslashes before the quotes of the JSON string around them; -1 if there is none."""


def _cells(text: str, rows: _Rows, columns: dict[int, bool]) -> Iterator[Secret]:
    at, brk, mark, count, _ = rows
    for _ in range(_MOST_ROWS):
        stop = text.find(brk, at, at + _LONGEST_ROW)
        last = stop < 0
        line = text[at : min(len(text), at + _LONGEST_ROW) if last else stop]
        if rows.slashes >= 0:
            # A row that opens a string stands in another one, which is looked at from there.
            if (opened := _OPENED.match(line)) and len(opened["slashes"]) <= rows.slashes:
                return
            line = _CLOSED.split(line, 1)[0] if last else line
        if line.count(mark) != count and not _RULE_LINE.fullmatch(line):
            return
        begin = at
        for place, cell in enumerate(line.split(mark)):
            if place in columns:
                value = cell.strip(_TRIMMED)
                if value and _accepts(value, is_password=columns[place]):
                    first = begin + cell.index(value)
                    yield Secret(first, first + len(value), "column")
            begin += len(cell) + len(mark)
        if last:
            return
        at = stop + len(brk)


def _accepts(value: str, *, is_password: bool) -> bool:
    if not is_literal(value[:256]) or any(map(str.isspace, value)):
        return False
    return looks_random(value[:256]) or (
        looks_chosen(value[:256]) and (is_password or len(value) >= 8) and not value.isdigit()
    )


# INSERT INTO users (email, password) VALUES ('…', '…'), (…)
_LISTED_COLUMNS = re.compile(r"""\([ ]?(?P<names>[\w\\"'`., ]{1,400})\)(?:\s|\\{1,63}n){0,8}\Z""")
_LISTED_VALUES = re.compile(
    r"""(?:\s|\\{1,63}[nt]|,){0,12}\((?P<values>(?:[^()'"\n]|'[^'\n]{0,400}'|"[^"\n]{0,400}"){1,2000}+)\)"""
)
_LISTED_VALUE = re.compile(
    r"""\s*(?:\w?\\{0,63}'(?P<single>[^'\\]*)\\{0,63}'|\\{0,63}"(?P<double>[^"\\]*)\\{0,63}"|[^,'"]*)\s*(?:,|\Z)"""
)


def _find_inserted(text: str, start: int, end: int) -> Iterator[Secret]:
    head = _LISTED_COLUMNS.search(text, max(0, start - 500), start)
    if head is None:
        return
    columns = _columns_of(head["names"].split(","))
    at = end
    while columns and (row := _LISTED_VALUES.match(text, at)):
        place, first, last = 0, row.start("values"), row.end("values")
        while first < last and (value := _LISTED_VALUE.match(text, first, last)) and value.end() > first:
            inside = value.lastgroup
            if inside and place in columns and _accepts(value[inside], is_password=columns[place]):
                yield Secret(*value.span(inside), "column")
            place, first = place + 1, value.end()
        at = row.end()


RULES = (
    RedactionRule((" VALUES", ")VALUES", " values", "\nVALUES", "\nvalues", "\\nVALUES"), _find_inserted),
    RedactionRule(
        tuple(
            form
            for name in (*_PASSWORDS, *_KEYS)
            for form in {name, name.upper(), name.capitalize(), name.title()}
        ),
        _find,
        ends_word=True,
    ),
)
