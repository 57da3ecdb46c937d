"""The metrics of a run as one JSON document, written row by row: it never stands in memory as a whole."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.trajectories.shards import Done

__all__ = ["MetricsFile"]


class MetricsFile:
    """Takes the rows of shards in any order and writes them in the order of the input."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
        self._file: IO[bytes] = self._temporary.open("wb")
        self._file.write(b'{"rows": [')
        self._next = 0
        self._waiting: dict[int, bytes] = {}
        self._before = b"\n"

    def add(self, file: str, done: Done, rows: bytes) -> None:
        """The rows of a shard, as lines of JSON. Few shards are ever ahead of the one that is next."""
        named = b'{"file": ' + msgspec.json.encode(file) + b", "
        self._waiting[done.shard] = b",\n".join(named + line[1:] for line in rows.splitlines())
        while (text := self._waiting.pop(self._next, None)) is not None:
            self._next += 1
            if text:
                self._file.write(self._before + text)
                self._before = b",\n"

    def finish(self, rest: dict[str, Any]) -> None:
        """Close the list, add the other fields, and give the file its name."""
        fields = [
            msgspec.json.encode(name) + b": " + msgspec.json.encode(value) for name, value in rest.items()
        ]
        self._file.write(b"\n],\n" + b",\n".join(fields) + b"}\n")
        self._file.close()
        self._temporary.replace(self._path)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)
