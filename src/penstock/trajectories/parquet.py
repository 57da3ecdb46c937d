"""Parquet: rows in batches, and batches as rows with other turns in them. Columns, types and metadata stay."""

from __future__ import annotations

import io
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError, SettingsError
from penstock.trajectories.rows import per_turn_columns, turns_column
from penstock.trajectories.shards import Shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.trajectories.formats import DataFile

__all__ = ["Table", "cut_table", "writing_table"]

_ROW_GROUP_BYTES = 32 << 20


def _arrow() -> Any:
    try:
        import_module("pyarrow.parquet")  # an attribute of the package from now on
        return import_module("pyarrow")  # an extra, slow to load, and without a word about its types
    except ImportError:
        raise SettingsError(
            "Parquet needs the package pyarrow: pip install 'penstock[trajectories]'"
        ) from None


def cut_table(file: DataFile, place: int, first_number: int, shard_bytes: int) -> Iterator[Shard]:
    """The rows of a Parquet file in batches of about `shard_bytes`, none over the border of a row group."""
    pa = _arrow()
    number, row = first_number, 1
    try:
        with pa.parquet.ParquetFile(file.source, pre_buffer=False) as source:
            size = file.source.stat().st_size
            total = max(1, source.metadata.num_rows)
            if not source.metadata.num_rows:
                yield Shard(
                    number, place, row, 0, _packed(pa, source.schema_arrow.empty_table()), parquet=True
                )
                return
            for group in range(source.metadata.num_row_groups):
                meta = source.metadata.row_group(group)
                rows = max(1, shard_bytes * meta.num_rows // max(1, meta.total_byte_size))
                for batch in source.iter_batches(rows, row_groups=[group], use_threads=False):
                    read = size * (row + batch.num_rows - 1) // total - size * (row - 1) // total
                    yield Shard(
                        number,
                        place,
                        row,
                        batch.num_rows,
                        _packed(pa, batch),
                        parquet=True,
                        group=group,
                        read_bytes=read,
                    )
                    number, row = number + 1, row + batch.num_rows
    except (pa.ArrowException, OSError) as error:
        said = str(error).splitlines()[0][:200]
        raise InputError(f"{file.name} cannot be read further than row {row - 1:,}: {said}") from error


class Table:
    """A batch of rows, as a shard holds it."""

    def __init__(self, data: bytes, wished: str | None) -> None:
        self._pa = _arrow()
        with self._pa.ipc.open_stream(self._pa.BufferReader(data)) as stream:
            self._table = stream.read_all()
        self._wished = wished
        self._changed: dict[str, dict[int, Any]] = {}

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @property
    def column(self) -> str:
        """The column with the turns. Raises InputError where there is none."""
        return turns_column(self._table.column_names, self._wished)

    def cell(self, row: int) -> Any:
        """The turns of a row, as the file holds them. Raises InputError."""
        return self._table.column(self.column)[row].as_py()

    def others(self, row: int, turns: int, named: Iterable[str]) -> dict[str, list[Any]]:
        """The columns of a row with one entry for each turn."""
        lists = [
            name
            for name, kind in zip(self._table.column_names, self._table.schema.types, strict=True)
            if self._pa.types.is_list(kind) or self._pa.types.is_large_list(kind)
        ]
        cells = {name: self._table.column(name)[row].as_py() for name in lists if name != self.column}
        return {name: cells[name] for name in per_turn_columns(cells, self.column, turns, named)}

    def put(self, row: int, column: str, value: Any) -> None:
        """Another value for a cell."""
        self._changed.setdefault(column, {})[row] = value

    def packed(self, taken: Sequence[int] | None = None) -> bytes:
        """The rows with what was put into them; only those `taken`, where that is given."""
        table = self._table
        for column, cells in self._changed.items():
            place = table.column_names.index(column)
            table = table.set_column(place, table.schema.field(place), self._with(table.column(place), cells))
        if taken is not None:
            table = table.take(self._pa.array(taken, self._pa.int64()))
        return _packed(self._pa, table)

    def _with(self, old: Any, cells: dict[int, Any]) -> Any:
        """The column with other values in some rows: those of all others are the same Arrow values."""
        new = self._pa.chunked_array([*old.chunks, self._pa.array(list(cells.values()), old.type)], old.type)
        order = list(range(len(old)))
        for at, row in enumerate(cells):
            order[row] = len(old) + at
        return new.take(self._pa.array(order, self._pa.int64()))


def _packed(pa: Any, rows: Any) -> bytes:
    """Rows as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    return sink.getvalue()


class TableWriter:
    """Writes shards into one Parquet file. The row groups of the input stay, where they are not very large."""

    def __init__(self, pa: Any, writer: Any) -> None:
        self._pa = pa
        self._writer = writer
        self._group = 0
        self._held: list[Any] = []

    def add(self, data: bytes, group: int) -> None:
        """The rows of a shard."""
        with self._pa.ipc.open_stream(self._pa.BufferReader(data)) as stream:
            table = stream.read_all()
        if self._held and (group != self._group or sum(one.nbytes for one in self._held) >= _ROW_GROUP_BYTES):
            self.flush()
        self._group = group
        if table.num_rows:
            self._held.append(table)

    def flush(self) -> None:
        """Write what is held as one row group."""
        if self._held:
            table = self._pa.concat_tables(self._held).combine_chunks()
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._held.clear()


@contextmanager
def writing_table(path: Path, source: Path) -> Iterator[TableWriter]:
    """A new Parquet file with the schema and the compression of another."""
    pa = _arrow()
    with pa.parquet.ParquetFile(source, pre_buffer=False) as given:
        schema, compression = given.schema_arrow, _codec(given.metadata)
    with pa.parquet.ParquetWriter(path, schema, compression=compression) as writer:
        table = TableWriter(pa, writer)
        yield table
        table.flush()


def _codec(metadata: Any) -> str:
    if not metadata.num_row_groups or not metadata.num_columns:
        return "snappy"
    codec: str = metadata.row_group(0).column(0).compression.lower()
    return "none" if codec == "uncompressed" else codec
