"""Numbers of messages in runs, as readers see them: `3-17 21`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "Runs",
    "gaps_between",
    "handle",
    "joined_runs",
    "numbers_in",
    "read_runs",
    "runs_of",
    "write_runs",
]

Runs: TypeAlias = tuple[tuple[int, int], ...]
"""Runs of numbers, each from its first to its last."""

_RUN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def handle(number: int) -> str:
    """The name by which the original of a message can be asked for."""
    return f"m{number}"


def runs_of(numbers: Iterable[int]) -> Runs:
    """The numbers, in the order given, as runs of such that follow each other."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return tuple(runs)


def joined_runs(several: Iterable[Runs]) -> Runs:
    """All numbers of several runs, in order."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(run for runs in several for run in runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def gaps_between(runs: Runs, newest: int) -> Runs:
    """What is missing in the runs, which are in order, of the numbers from 1 up to `newest`."""
    gaps: list[tuple[int, int]] = []
    upcoming = 1
    for first, last in (*runs, (newest + 1, newest + 1)):
        if first > upcoming:
            gaps.append((upcoming, min(first - 1, newest)))
        upcoming = max(upcoming, last + 1)
        if upcoming > newest:
            break
    return tuple(gaps)


def numbers_in(runs: Runs) -> Iterator[int]:
    """Every number, in order."""
    for first, last in runs:
        yield from range(first, last + 1)


def write_runs(runs: Runs) -> str:
    """The runs as text."""
    return " ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def read_runs(text: str) -> Runs:
    """The runs that a text of ours stands for; what is no run is left out."""
    found = (_RUN.fullmatch(word) for word in text.split())
    runs = ((int(run[1]), int(run[2] or run[1])) for run in found if run is not None)
    return tuple((first, last) for first, last in runs if first <= last)
