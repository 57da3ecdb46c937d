"""The journal of a run, beside its output: a folder of parts, and a file that says which of them are whole.

    out.jsonl.parts/
      journal.jsonl        the command, then a line for each shard and each file that is done
      00000000.part        the rows of a shard
      00000000.rows        their metrics
      00000000.samples     excerpts of some of them, for a report
      summaries-4711.jsonl what models wrote, as soon as they wrote it

A part counts when its line is in the journal. Whatever a kill leaves half done is done again.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Self

import msgspec

from penstock.errors import SettingsError
from penstock.trajectories.files import PARTS
from penstock.trajectories.metrics import Totals
from penstock.trajectories.samples import RowSample
from penstock.trajectories.shards import SUMMARIES, KeptSummary, ShardResult, part_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Journal", "SummariesSeen", "parts_folder"]

_NAME = "journal.jsonl"
_NOTHING = Totals()
_LINE = msgspec.json.Decoder(dict[str, ShardResult])
_SAMPLES = msgspec.json.Decoder(tuple[RowSample, ...])
_KEPT = msgspec.json.Decoder(tuple[int, KeptSummary])


def parts_folder(output: Path) -> Path:
    """Returns the folder for the parts of an output."""
    return output.with_name(f"{output.name}{PARTS}")


class Journal:
    """The journal of one run. `command` is what must be the same for a run that goes on with it.

    `on_known` is told what was done before. What is held of a shard is small: where its part is, and its checksum.
    """

    def __init__(
        self, folder: Path, command: dict[str, Any], on_known: Callable[[ShardResult], None], *, resume: bool
    ) -> None:
        """Raises SettingsError if parts stand there that this run may not go on with, OSError."""
        self.folder = folder
        self._on_known = on_known
        self.done: dict[int, ShardResult] = {}
        self.files: set[int] = set()
        self._of_file: dict[int, set[int]] = {}
        path = folder / _NAME
        known = path.is_file() and _first_line(path).endswith(b"\n")
        if known and not resume:
            raise SettingsError(
                f"{folder} holds the finished work of an earlier run; add --resume to continue it, or remove the folder"
            )
        if not known and folder.exists() and any(one.name != _NAME for one in folder.iterdir()):
            raise SettingsError(
                f"{folder} is in the way: parts are put there; move it, or name another output"
            )
        folder.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        with ExitStack() as unless_opened:
            unless_opened.callback(self._file.close)
            _lock(self._file, folder)
            if known:
                self._read(path, command)
            else:
                self._file.truncate(0)
                self._append({"command": command})
            unless_opened.pop_all()

    def add(self, done: ShardResult) -> None:
        """Records that a shard is done. Its part is written already; its metrics are now.

        The shard counts here before its line is written: an interruption in between must not end in `close` finding
        nothing worth keeping. Without its line the part is done again, nothing more.
        """
        self._note(done)
        rows = self.folder / _rows_name(done.shard)
        rows.write_bytes(done.rows)
        if done.samples:
            (self.folder / _samples_name(done.shard)).write_bytes(msgspec.json.encode(done.samples))
        self._append({"done": msgspec.to_builtins(msgspec.structs.replace(done, rows=b"", samples=()))})

    def finish_file(self, file: int) -> None:
        """Records that a file stands under its name. Its parts are no longer needed."""
        self._append({"file": file})
        self.files.add(file)
        for done in self.of_file(file):
            (self.folder / part_name(done.shard)).unlink(missing_ok=True)

    def of_file(self, file: int) -> list[ShardResult]:
        """Returns the shards of a file that are done, in order."""
        return [self.done[number] for number in sorted(self._of_file.get(file, ()))]

    def part(self, done: ShardResult) -> bytes:
        """Returns the rows of a shard."""
        return (self.folder / part_name(done.shard)).read_bytes()

    def rows(self) -> Iterator[tuple[ShardResult, bytes]]:
        """Yields every shard with its samples, and the metrics of its rows as lines of JSON."""
        for number in sorted(self.done):
            done = self.done[number]
            path, samples = self.folder / _rows_name(number), self.folder / _samples_name(number)
            if samples.is_file():
                done = msgspec.structs.replace(done, samples=_SAMPLES.decode(samples.read_bytes()))
            yield done, path.read_bytes() if path.is_file() else b""

    def read_summaries(self) -> dict[int, tuple[KeptSummary, ...]]:
        """Returns what models wrote for rows of shards that are not done, by shard."""
        found: dict[int, list[KeptSummary]] = {}
        for path in sorted(self.folder.glob(SUMMARIES)):
            with path.open("rb") as file:
                for line in file:
                    try:
                        shard, kept = _KEPT.decode(line)
                    except (msgspec.DecodeError, msgspec.ValidationError):
                        continue  # the last line of a process that was killed
                    if shard not in self.done:
                        found.setdefault(shard, []).append(kept)
        return {shard: tuple(written) for shard, written in found.items()}

    def close(self) -> None:
        """Leaves what was done for a later run; where that is nothing, leaves nothing."""
        if self.done or any(self.folder.glob(SUMMARIES)):
            self._file.close()
        else:
            self.remove()

    def remove(self) -> None:
        """Removes the parts when all is done, the journal last."""
        self._file.close()
        for path in self.folder.iterdir():
            if path.name != _NAME:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.folder)

    def _read(self, path: Path, command: dict[str, Any]) -> None:
        """Reads the journal. An unfinished last line was cut off by a kill, and is removed."""
        with path.open("rb") as file:
            _require_same(msgspec.json.decode(file.readline() or b"{}").get("command"), command, self.folder)
            self.files |= {msgspec.json.decode(line)["file"] for line in file if line.startswith(b'{"file"')}
            file.seek(0)
            whole = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                if line.startswith(b'{"done"'):
                    done = _LINE.decode(line)["done"]
                    if done.shard not in self.done and self._is_whole(
                        done
                    ):  # one that was lost has two lines
                        self._note(done)
                        self._on_known(done)
        os.truncate(path, whole)

    def _is_whole(self, done: ShardResult) -> bool:
        """Tells whether the part is there in its full size, or already in its file. Its checksum is tested when it is put in place."""
        part = self.folder / part_name(done.shard)
        return part.stat().st_size == done.size if part.exists() else done.file in self.files

    def _note(self, done: ShardResult) -> None:
        self.done[done.shard] = _slim(done)
        self._of_file.setdefault(done.file, set()).add(done.shard)

    def _append(self, entry: dict[str, Any]) -> None:
        self._file.write(msgspec.json.encode(entry) + b"\n")


class SummariesSeen:
    """Counts the summaries that models have written, and their cost, while a run goes on: for a display.

    Every look reads what has come since the one before.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.count = 0
        self.cost = 0.0
        self.cost_unknown = 0

    def look(self) -> Self:
        """Looks again."""
        for path in self._folder.glob(SUMMARIES):
            try:
                with path.open("rb") as file:
                    file.seek(self._read.get(path, 0))
                    whole, end, _ = file.read().rpartition(b"\n")
            except OSError:  # the run has ended, and it is gone
                continue
            self._read[path] = self._read.get(path, 0) + len(whole + end)
            for line in whole.splitlines():
                self._add(line)
        return self

    def _add(self, line: bytes) -> None:
        try:
            cost = _KEPT.decode(line)[1].figures.get("cost")
        except (msgspec.DecodeError, msgspec.ValidationError):
            return  # cut off by a kill
        self.count += 1
        self.cost += cost or 0.0
        self.cost_unknown += cost is None


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline()


def _lock(file: IO[bytes], folder: Path) -> None:
    """Allows one run at a time. The lock goes with the process that holds it, however that ends."""
    try:
        fcntl = import_module("fcntl")
    except ImportError:  # not on this system: two runs at once are then the user's own affair
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SettingsError(
            f"another run is using {folder}; wait until it ends, or name another output"
        ) from None


def _slim(done: ShardResult) -> ShardResult:
    return msgspec.structs.replace(done, rows=b"", samples=(), totals=_NOTHING, bad=(), over=())


def _samples_name(shard: int) -> str:
    return f"{shard:08d}.samples"


def _rows_name(shard: int) -> str:
    return f"{shard:08d}.rows"


def _require_same(before: Any, now: dict[str, Any], folder: Path) -> None:
    if before == now:
        return
    names = sorted(name for name in now if not isinstance(before, dict) or before.get(name) != now[name])
    first = names[0] if names else "another version"
    raise SettingsError(
        f"{folder} holds parts of another command ({', '.join(names[:4])} differ: {first} was "
        f"{str(before.get(first) if isinstance(before, dict) else None)[:80]!r} and is {str(now.get(first))[:80]!r}); "
        "repeat the earlier command, or remove the folder"
    )
