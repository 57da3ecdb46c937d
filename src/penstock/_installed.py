"""Finds what installed packages offer: their entry points in a group of ours, such as `penstock.engines`."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint

__all__ = ["list_points"]

_OURS = "penstock."


def list_points(group: str) -> list[EntryPoint]:
    """Returns the entry points of a group, by name.

    The packages are looked through once for all groups, which takes tens of milliseconds where many are installed. One
    that is installed later is found by the next process.
    """
    return _read_points(tuple(sys.path)).get(group, [])


@lru_cache(maxsize=1)
def _read_points(_path: tuple[str, ...]) -> Mapping[str, list[EntryPoint]]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - help and mistakes need not wait for it

    every = entry_points()
    return {
        group: sorted(every.select(group=group), key=lambda one: (one.name, one.value))
        for group in every.groups
        if group.startswith(_OURS)
    }
