"""Columns of secrets: CSV with a head, Markdown and what database shells print.

The name stands once, at the top, and the values stand below it, far from any name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.redaction.secret import RedactionRule, Secret
from penstock.redaction.value import is_literal, looks_chosen, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TABLE_RULES"]

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
_ESCAPED_BREAK = re.compile(r"\\{1,63}n")
_OPENED = re.compile(r'.*:[ ]?\\{0,63}"')  # the value of a JSON object, up to its quote
_CLOSED = re.compile(r"""\\{0,63}"\s*[}\],]""")
_RULE_LINE = re.compile(r"[ \t]*\|?[ \t]*:?-{2,}[-|+: \t]*\r?")
_TRIMMED = " \t\r\"'`*\\"
_LONGEST_HEAD = 300
_LONGEST_ROW = 4_000
_MOST_ROWS = 10_000


def _find(text: str, start: int, end: int) -> Iterator[Secret]:
    if _CELL_END.match(text, end) is None:
        return
    brk = "\n" if text.find("\n", end, end + _LONGEST_HEAD) >= 0 else None
    if brk is None:
        escaped = _ESCAPED_BREAK.search(text, end, end + _LONGEST_HEAD)
        if escaped is None:
            return
        brk = escaped[0]
    head, in_json = _head_of(text, start, brk)
    if head < 0:
        return
    foot = text.find(brk, end, end + _LONGEST_HEAD)
    if foot < 0 or foot - head > _LONGEST_HEAD:
        return
    line = text[head:foot]
    mark = next((mark for mark in ("|", "\t", ";", ",") if mark in line), None)
    if mark is None or not _is_first_line(text, head, brk, mark, line.count(mark)):
        return
    columns = _columns_of(line.split(mark))
    # The first column of secrets finds them all.
    if columns and line.count(mark, 0, start - head) == min(columns):
        rows = _Rows(foot + len(brk), brk, mark, line.count(mark), in_json or brk != "\n")
        yield from _cells(text, rows, columns)


def _head_of(text: str, start: int, brk: str) -> tuple[int, bool]:
    """Returns where the line of the name begins, -1 if that is too far away, and whether a JSON string begins there."""
    floor = max(0, start - _LONGEST_HEAD)
    before = text.rfind(brk, floor, start)
    head = before + len(brk) if before >= 0 else floor
    if opened := _OPENED.match(text, head, start):
        return opened.end(), True
    return (head, False) if before >= 0 or floor == 0 else (-1, False)


def _is_first_line(text: str, head: int, brk: str, mark: str, count: int) -> bool:
    """Returns True if the line is the head of its table: the line above is of another kind."""
    if not text.startswith(brk, head - len(brk)):
        return True
    above = text[max(0, head - len(brk) - _LONGEST_HEAD) : head - len(brk)].rpartition(brk)[2]
    return above.count(mark) != count


def _columns_of(cells: list[str]) -> dict[int, bool]:
    """Returns the columns of secrets, and which of them hold passwords; none if this is no head of a table."""
    columns: dict[int, bool] = {}
    for place, cell in enumerate(cells):
        name = _HEAD_CELL.fullmatch(cell)
        if name is None:
            return {}
        if name["name"] and (column := _COLUMN.fullmatch(name["name"])):
            columns[place] = column["password"] is not None
    return columns


class _Rows(NamedTuple):
    """What stands below the head of a table: where, how rows and cells are parted, and how often in a row."""

    at: int
    brk: str
    mark: str
    marks: int
    in_json: bool


def _cells(text: str, rows: _Rows, columns: dict[int, bool]) -> Iterator[Secret]:
    at, brk, mark, count, _ = rows
    for _ in range(_MOST_ROWS):
        stop = text.find(brk, at, at + _LONGEST_ROW)
        last = stop < 0
        line = text[at : min(len(text), at + _LONGEST_ROW) if last else stop]
        if rows.in_json and last:
            line = _CLOSED.split(line, 1)[0]
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


TABLE_RULES = (
    RedactionRule(
        tuple(
            form
            for name in (*_PASSWORDS, *_KEYS)
            for form in {name, name.upper(), name.capitalize(), name.title()}
        ),
        _find,
    ),
)
