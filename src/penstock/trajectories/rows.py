"""A row of a data set: where its turns are, and the row again with other turns in it.

What is not ours is kept as it came: other columns, other fields of a turn, and every byte of a row that did not
change. A column with one entry for each turn (a loss mask, rewards) is cut as the turns are.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.conversation.slicing import JsonSource, decode_utf8, parse_value, slice_array, slice_object
from penstock.errors import IllegalResult, InputError
from penstock.trajectories.metrics import TrajectoryMetrics, TrajectoryOutcome
from penstock.trajectories.turns import PER_TURN_COLUMNS, make_neutral

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.trajectories.compress import CompressedTrajectory, Compressor

__all__ = [
    "COLUMNS",
    "CellShape",
    "RowLine",
    "compress_row",
    "per_turn_columns",
    "read_line",
    "shape_turns",
    "turns_column",
    "turns_in",
]

COLUMNS = ("conversations", "messages", "conversation", "trajectory", "turns")
"""The columns in which turns are looked for, in this order."""

METRICS_COLUMN = "penstock"
_BOM = b"\xef\xbb\xbf"
_LINE = JsonSource("the line", constants=True, counts_lines=False)
_CELL = JsonSource("the column of turns", constants=True, counts_lines=False)
_SNIFFED = 400  # bytes by which the style of a line is told


class CellShape(StrEnum):
    """The shape in which a cell holds turns."""

    LIST = "list"
    SPELLED = "spelled"
    """As JSON inside a string."""
    WIDE = "wide"
    """As one list for each field, the way `datasets` stores a sequence of objects."""


class RowLine(msgspec.Struct, frozen=True, eq=False):
    """One line of a file, read as far as its turns. `columns` is None if the line is the list of turns itself."""

    data: bytes
    columns: dict[str, bytes] | None
    column: str
    turns: list[Any]
    shape: CellShape

    def with_result(self, done: CompressedTrajectory, per_turn: Iterable[str] = ()) -> bytes:
        """Returns the line with the compressed turns in it; the same bytes if nothing changed."""
        if not done.changed:
            return self.data
        body = self.data.rstrip(b" \t\r\n")
        style = _Style.of(body)
        columns = {self.column: body.removeprefix(_BOM)} if self.columns is None else dict(self.columns)
        columns[self.column] = self._write_turns(columns[self.column], done, style)
        for name, entries in _per_turn_entries(columns, self.column, len(self.turns), per_turn).items():
            empty = style.dumps(make_neutral(parse_value(entries[0], _LINE)))
            columns[name] = style.array(done.apply(entries, empty))
        written = columns[self.column] if self.columns is None else style.object(columns)
        bom = _BOM if self.data.startswith(_BOM) else b""
        return bom + written + self.data[len(body) :]

    def _write_turns(self, raw: bytes, done: CompressedTrajectory, style: _Style) -> bytes:
        if self.shape is CellShape.WIDE:
            return style.dumps(shape_turns(done.turns(self.turns), self.shape))
        if self.shape is CellShape.SPELLED:
            raw = _encode_spelled(parse_value(raw, _LINE))
        turns = slice_array(raw, _LINE)
        for place, turn in done.rewritten.items():
            turns[place] = style.dumps(turn)
        written = style.array(done.apply(turns, style.dumps(done.summary)))
        return style.dumps(written.decode()) if self.shape is CellShape.SPELLED else written


def read_line(data: bytes, column: str | None = None) -> RowLine:
    """Reads the turns of a line. Raises InputError if it has none."""
    text = data.removeprefix(_BOM)
    if not text.isascii():
        decode_utf8(text, _LINE)  # the fast reader takes no notice of it in every place
    if text.lstrip()[:1] == b"[":
        return RowLine(data, None, "", *turns_in(parse_value(text, _LINE)))
    columns = slice_object(text, _LINE)
    name = turns_column(columns, column)
    return RowLine(data, columns, name, *turns_in(parse_value(columns[name], _LINE)))


def turns_column(columns: Iterable[str], wished: str | None = None) -> str:
    """Returns the column with the turns: the one asked for, else the first known one. Raises InputError."""
    present = list(columns)
    for name in (wished,) if wished is not None else COLUMNS:
        if name in present:
            return name
    looked_for = repr(wished) if wished is not None else f"with turns ({', '.join(COLUMNS)})"
    raise InputError(f"the row has no column {looked_for}; it has {_names(present)}")


def turns_in(value: Any) -> tuple[list[Any], CellShape]:
    """Returns the turns that a cell holds, and its shape. Raises InputError."""
    if isinstance(value, list):
        return value, CellShape.LIST
    if isinstance(value, str):
        return _require_turns(parse_value(value, _CELL)), CellShape.SPELLED
    if isinstance(value, dict) and value and all(isinstance(field, list) for field in value.values()):
        fields = list(value.values())
        if all(len(field) == len(fields[0]) for field in fields):
            return [dict(zip(value, turn, strict=True)) for turn in zip(*fields, strict=True)], CellShape.WIDE
    return _require_turns(value), CellShape.LIST


def shape_turns(turns: list[Any], shape: CellShape) -> Any:
    """Returns the turns in the shape of a cell."""
    match shape:
        case CellShape.SPELLED:
            return json.dumps(turns, ensure_ascii=False)
        case CellShape.WIDE:
            return {name: [turn.get(name) for turn in turns] for name in turns[0]}
        case _:
            return turns


def compress_row(row: Mapping[str, Any], compressor: Compressor, column: str | None) -> dict[str, Any]:
    """Returns the row with its turns compressed and its metrics in a column of their own. What changes is a list, not an array."""
    new = dict(row)
    row = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}
    try:
        name = turns_column(row, column)
        turns, shape = turns_in(row[name])
        done = compressor.compress(turns)
    except (InputError, IllegalResult) as error:
        new[METRICS_COLUMN] = TrajectoryMetrics(outcome=TrajectoryOutcome.BAD, reason=str(error)).to_dict()
        return new
    if done.changed:
        new[name] = shape_turns(done.turns(turns), shape)
        for other in per_turn_columns(row, name, len(turns), ()):
            new[other] = done.apply(row[other], make_neutral(row[other][0]))
    new[METRICS_COLUMN] = done.metrics.to_dict()
    return new


def per_turn_columns(row: Mapping[str, Any], column: str, turns: int, named: Iterable[str]) -> list[str]:
    """Returns the columns of a row that hold one entry for each turn: those named, and those known by their name."""
    wanted = {*PER_TURN_COLUMNS, *named} - {column}
    return [
        name
        for name, value in row.items()
        if name in wanted and isinstance(value, list) and len(value) == turns and turns
    ]


class _Style(msgspec.Struct, frozen=True):
    """The spacing of the JSON of a line, and whether it keeps to ASCII."""

    comma: bytes
    colon: bytes
    ascii_only: bool

    @classmethod
    def of(cls, line: bytes) -> _Style:
        spaced = b'": ' in line[:_SNIFFED]
        return cls(b", " if spaced else b",", b": " if spaced else b":", line.isascii())

    def dumps(self, value: Any) -> bytes:
        separators = (self.comma.decode(), self.colon.decode())
        written = json.dumps(value, ensure_ascii=self.ascii_only, separators=separators)
        return written.encode() if self.ascii_only else _encode(written, value, separators)

    def array(self, items: Sequence[bytes]) -> bytes:
        return b"[" + self.comma.join(items) + b"]"

    def object(self, columns: Mapping[str, bytes]) -> bytes:
        return b"{" + self.comma.join(self.dumps(k) + self.colon + v for k, v in columns.items()) + b"}"


def _encode(written: str, value: Any, separators: tuple[str, str]) -> bytes:
    try:
        return written.encode()
    except UnicodeEncodeError:  # a lone surrogate can only stand as an escape
        return json.dumps(value, separators=separators).encode()


def _per_turn_entries(
    columns: Mapping[str, bytes], column: str, turns: int, named: Iterable[str]
) -> dict[str, list[bytes]]:
    """Returns the columns with one entry for each turn, entry by entry."""
    wanted = {*PER_TURN_COLUMNS, *named} - {column}
    found = {
        name: slice_array(value, _LINE)
        for name, value in columns.items()
        if name in wanted and value[:1] == b"["
    }
    return {name: found[name] for name in per_turn_columns(found, column, turns, named)}


def _encode_spelled(text: str) -> bytes:
    """Returns JSON in a string as bytes. A lone surrogate is written as the escape that it can only be."""
    return re.sub("[\ud800-\udfff]", lambda one: f"\\u{ord(one[0]):04x}", text).encode()


def _require_turns(turns: Any) -> list[Any]:
    if isinstance(turns, list):
        return turns
    kind = "null" if turns is None else type(turns).__name__
    raise InputError(f"the turns of a row are a list of objects, not {kind}")


def _names(columns: Iterable[str]) -> str:
    names = list(columns)
    shown = ", ".join(repr(name[:40]) for name in names[:6])
    return (f"{shown} and {len(names) - 6} more" if len(names) > 6 else shown) or "none"
