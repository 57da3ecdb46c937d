"""A data set in shards: a few rows each, cut the same way every time, so that any of them can be done again."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InputError
from penstock.trajectories.formats import DataFile, reading
from penstock.trajectories.kept import KeptSummary  # noqa: TC001 - `Shard` and `Done` are decoded by these
from penstock.trajectories.metrics import Totals  # noqa: TC001 - as above
from penstock.trajectories.samples import RowSample  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

__all__ = ["Bad", "Done", "Remaining", "Shard", "cut_lines", "cut_shards"]

_CHUNK = 1 << 20


class Shard(msgspec.Struct, frozen=True, eq=False):
    """Rows that belong together. `first_row` is counted from 1 in their file.

    `data` holds the lines as they came or, for Parquet, the rows as an Arrow stream. `kept` is what models wrote for
    rows of this shard before.
    """

    number: int
    file: int
    first_row: int
    rows: int
    data: bytes
    parquet: bool = False
    group: int = 0
    """For Parquet, the row group of the file."""
    read_bytes: int = 0
    """How much of the file was read for it."""
    kept: tuple[KeptSummary, ...] = ()
    last_of: int = 0
    """Of the last shard of a file, how many shards the file has; else 0."""


class Bad(msgspec.Struct, frozen=True):
    """A row that could not be read."""

    row: int
    reason: str


class Done(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What came of a shard. Its rows are in a part of `size` bytes with the checksum `crc`.

    `rows` are the metrics of each, as lines of JSON; `bad` are those that could not be read; `samples` are excerpts of
    some, where they were wished.
    """

    shard: int
    file: int
    group: int = 0
    first_row: int
    row_count: int
    size: int = 0
    crc: int = 0
    read_bytes: int = 0
    totals: Totals
    bad: tuple[Bad, ...] = ()
    rows: bytes = b""
    samples: tuple[RowSample, ...] = ()
    last_of: int = 0


class Remaining(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The shards of a data set that are still to be done. It is a value: any process that can read the files can cut
    them, as often as it likes, and always into the same shards.

    `done` are the numbers of shards that are not wanted. `whole` are the files that need not even be read, by place, and
    how many shards they have. `kept` is what models wrote, by shard.
    """

    files: tuple[DataFile, ...]
    shard_bytes: int
    done: frozenset[int] = frozenset()
    whole: dict[int, int] = {}
    kept: dict[int, tuple[KeptSummary, ...]] = {}

    def __iter__(self) -> Iterator[Shard]:
        """In the order of the input. Raises InputError where a file cannot be read."""
        number = 0
        for place, file in enumerate(self.files):
            if place in self.whole:
                number += self.whole[place]
                continue
            for shard in cut_shards(file, place, number, self.shard_bytes):
                number = shard.number + 1
                if shard.number not in self.done:
                    written = self.kept.get(shard.number)
                    yield msgspec.structs.replace(shard, kept=written) if written else shard


def cut_shards(file: DataFile, place: int, first_number: int, shard_bytes: int) -> Iterator[Shard]:
    """The shards of a file: one at least, and the last says how many they are. Raises InputError where the file cannot be read."""
    if file.parquet:
        from penstock.trajectories.parquet import cut_table  # noqa: PLC0415 - its library is an extra

        shards = cut_table(file, place, first_number, shard_bytes)
    else:
        shards = _cut_text(file, place, first_number, shard_bytes)
    held: Shard | None = None
    for shard in shards:
        if held is not None:
            yield held
        held = shard
    if held is None:
        held = Shard(first_number, place, 1, 0, b"")
    yield msgspec.structs.replace(held, last_of=held.number - first_number + 1)


def _cut_text(file: DataFile, place: int, first_number: int, shard_bytes: int) -> Iterator[Shard]:
    row = 1
    try:
        with reading(file.source) as (stream, below):
            before = 0
            for number, data in enumerate(cut_lines(stream, shard_bytes), start=first_number):
                rows = data.count(b"\n") + (not data.endswith(b"\n"))
                now = below.tell()
                yield Shard(number, place, row, rows, data, read_bytes=now - before)
                row, before = row + rows, now
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(file, row, error) from error
    except Exception as error:
        if type(error).__module__.startswith("zstandard"):  # its errors have no other parent
            raise _unreadable(file, row, error) from error
        raise


def cut_lines(stream: IO[bytes], shard_bytes: int) -> Iterator[bytes]:
    """The bytes in pieces that end with the first line end after `shard_bytes`, however the stream is read."""
    held = bytearray()
    looked = 0
    while chunk := stream.read(_CHUNK):
        held += chunk
        while (end := held.find(b"\n", max(looked, shard_bytes - 1))) >= 0:
            yield bytes(held[: end + 1])
            del held[: end + 1]
            looked = 0
        looked = len(held)
    if held:
        yield bytes(held)


def _unreadable(file: DataFile, row: int, error: Any) -> InputError:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return InputError(
        f"{file.name} cannot be read further than row {row - 1:,}: {said}; mend the file or give it again"
    )
