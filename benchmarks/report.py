"""What a benchmark says: tables of figures, each with its floor and its goal where it has them."""

import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["LEGEND", "Figure", "Limit", "Table", "as_json", "markdown", "missed", "share"]

LEGEND = "In brackets: floor · goal. ✗ misses the floor, ✓ meets it, ★ meets the goal."


@dataclass(frozen=True)
class Limit:
    """The floor and the goal of a figure. `at_least` for shares that should be high, else less is better."""

    floor: float
    goal: float | None = None
    at_least: bool = False

    def met(self, value: float, bound: float) -> bool:
        return value >= bound if self.at_least else value <= bound


@dataclass(frozen=True)
class Figure:
    """A number with its unit: `%` (of 0–100), `×`, `ms`, `s`, `MB`, `MB/s` or none (a count)."""

    value: float
    unit: str = ""
    limit: Limit | None = None

    @property
    def reached(self) -> str:
        """`goal`, `floor`, `missed`, or nothing where there is no limit."""
        if self.limit is None:
            return ""
        if not self.limit.met(self.value, self.limit.floor):
            return "missed"
        goal = self.limit.goal
        return "goal" if goal is not None and self.limit.met(self.value, goal) else "floor"

    def __str__(self) -> str:
        shown = _number(self.value, self.unit)
        if self.limit is None:
            return shown
        mark = {"missed": "✗", "floor": "✓", "goal": "★"}[self.reached]
        bounds = [bound for bound in (self.limit.floor, self.limit.goal) if bound is not None]
        return f"{shown} {mark} ({' · '.join(f'{bound:,.4g}' for bound in bounds)})"


Cell = str | Figure


@dataclass(frozen=True)
class Table:
    """Rows under columns. `key` names its place in the written report; `note` stands below it."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


def share(value: float, limit: Limit | None = None) -> Figure:
    """A share between 0 and 1 as per cent."""
    return Figure(100 * value, "%", limit)


def markdown(table: Table) -> str:
    """The table as Markdown whose columns also line up on a terminal."""
    cells = [list(table.columns), *([str(cell) for cell in row] for row in table.rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(table.columns))]
    lines = [_line(cells[0], widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
    lines += [_line(row, widths) for row in cells[1:]] if table.rows else []
    body = "\n".join(lines) if table.columns else ""
    note = textwrap.fill(table.note, 110, break_on_hyphens=False, break_long_words=False)
    return "\n\n".join(part for part in (f"### {table.title}", body, note) if part)


def missed(tables: Sequence[Table]) -> list[str]:
    """One line for each figure under its floor."""
    return [
        f"{table.title}: {row[0]}: {column.partition(' (')[0]} {figure}"
        for table, row, column, figure in _figures(tables)
        if figure.reached == "missed"
    ]


def as_json(tables: Sequence[Table], machine: dict[str, Any]) -> str:
    """Everything that the tables say, for programs."""
    told = [
        {
            "key": table.key,
            "title": table.title,
            "columns": table.columns,
            "rows": [[_plain(cell) for cell in row] for row in table.rows],
            "note": table.note,
        }
        for table in tables
    ]
    return json.dumps(
        {"machine": machine, "tables": told, "missed": missed(tables)}, indent=2, ensure_ascii=False
    )


def _figures(tables: Sequence[Table]) -> Iterator[tuple[Table, tuple[Cell, ...], str, Figure]]:
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row, strict=True):
                if isinstance(cell, Figure):
                    yield table, row, column, cell


def _plain(cell: Cell) -> str | dict[str, Any]:
    if isinstance(cell, str):
        return cell
    value = None if math.isnan(cell.value) else cell.value  # JSON has no such number
    told: dict[str, Any] = {"value": value, "unit": cell.unit}
    if cell.limit is not None:
        told |= {"floor": cell.limit.floor, "goal": cell.limit.goal, "reached": cell.reached}
    return told


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _number(value: float, unit: str) -> str:
    match unit:
        case "":
            return f"{value:,.0f}"
        case "%":
            return f"{value:.1f} %"
        case "×":
            return f"{value:.1f}×"
        case "s":
            return f"{value:.3f} s" if value < 0.1 else f"{value:.2f} s"
        case "ms" | "MB/s" if abs(value) < 10:
            return f"{value:.2f} {unit}"
        case _:
            return f"{value:,.0f} {unit}"
