"""The files of a data set: which there are, where each goes, and how lines and Parquet tables are read and written.

Of a Parquet file the columns, types, metadata and row groups stay. Its library is an extra, loaded when it is needed.
"""

from __future__ import annotations

import gzip
import io
import zlib
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import msgspec

from penstock.errors import InputError, SettingsError, name_install
from penstock.trajectories.rows import per_turn_columns, turns_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "PARTS",
    "Compression",
    "DataFile",
    "Table",
    "compression_of",
    "create_lines",
    "create_table",
    "damage_errors",
    "data_files",
    "is_parquet",
    "load_arrow",
    "open_lines",
    "output_of",
    "pack_rows",
]


PARTS = ".parts"
"""The ending of the name of the folder, beside an output, that holds the parts that are done."""

_LINES = (".jsonl", ".ndjson", ".json", ".jsonlines")
_PARQUET = (".parquet", ".pq")
_GZIP_LEVEL, _ZSTD_LEVEL = 6, 3
_ROW_GROUP_BYTES = 32 << 20


class Compression(StrEnum):
    """The packing of a file of lines."""

    NONE = ""
    GZIP = ".gz"
    ZSTD = ".zst"


class DataFile(msgspec.Struct, frozen=True):
    """A file of the input and where its rows go. `name` is how the file is told in reports."""

    name: str
    source: Path
    target: Path

    def absolute(self) -> DataFile:
        """Returns the same file, for a process that works in another folder."""
        return DataFile(self.name, self.source.absolute(), self.target.absolute())

    @property
    def parquet(self) -> bool:
        """True for Parquet; any other file holds lines of JSON."""
        return is_parquet(self.source)

    @property
    def packed(self) -> bool:
        """True if the file takes less room than its rows do."""
        return self.parquet or compression_of(self.source) is not Compression.NONE


def is_parquet(path: Path) -> bool:
    """Tells by its name whether a file is Parquet."""
    return path.suffix.lower() in _PARQUET


def compression_of(path: Path) -> Compression:
    """Returns the packing of a file of that name."""
    suffix = path.suffix.lower()
    if suffix in {".zst", ".zstd"}:
        return Compression.ZSTD
    return Compression.GZIP if suffix in {".gz", ".gzip"} else Compression.NONE


def output_of(source: Path, target: Path) -> Path:
    """Returns the file or folder that a run makes: a file that goes into a folder keeps its name. Raises SettingsError."""
    if source.is_file() and target.is_dir():
        return target / source.name
    if target.name in ("", ".."):
        target = target.resolve()
    if not target.name:
        raise SettingsError(f"{target}: not a place for the output; name a folder in it")
    return target


def data_files(source: Path, target: Path | None) -> list[DataFile]:
    """Returns the files of the input, in the order of their names, each with its place in the output.

    `target` is what `output_of` says. Without one they are only looked at. Raises InputError if there are none,
    SettingsError if the output cannot be what the input is.
    """
    if str(source) == "-":
        raise InputError("-: rows are read from a file or a folder, so that a run can be resumed; name one")
    if not source.exists():
        raise InputError(f"{source}: no such file or folder")
    if not source.is_file() and not source.is_dir():
        raise InputError(f"{source}: neither a file nor a folder; save the rows in a file first")
    if target is None:
        names = _find_data_files(source) if source.is_dir() else [Path(source.name)]
        folder = source if source.is_dir() else source.parent
        return [DataFile(name.as_posix(), folder / name, folder / name) for name in names]
    if source.is_file():
        files = [DataFile(source.name, source, target)]
    else:
        if target.is_file():
            raise SettingsError(f"{target}: the input is a folder, so the output must be one; it is a file")
        files = [DataFile(name.as_posix(), source / name, target / name) for name in _find_data_files(source)]
    _require_room(files, source, target)
    return files


def _require_room(files: list[DataFile], source: Path, target: Path) -> None:
    """Raises SettingsError if the output would take the place of something else."""
    if str(target) == "-":
        raise SettingsError("-: the output gets its name when it is complete, so it must be a file; name one")
    sources = {file.source.resolve() for file in files}
    if source.resolve() == target.resolve() or any(file.target.resolve() in sources for file in files):
        raise SettingsError(f"{target}: the output would take the place of the input; name another")
    if source.is_dir() and target.resolve().is_relative_to(source.resolve()):
        raise SettingsError(f"{target}: the output is inside the input; give a folder outside it")
    for file in files:
        if file.target.exists() and not file.target.is_file():
            raise SettingsError(f"{file.target}: not a file, so it cannot be replaced by one; name another")
        if file.parquet != is_parquet(file.target):
            raise SettingsError(
                f"{file.target}: the output has the format of the input; name it as {file.source.name} is"
            )


def _find_data_files(folder: Path) -> list[Path]:
    """Returns the data files in a folder, by their names in it."""
    inside = sorted(
        path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and _is_data(path)
    )
    found = [path for path in inside if not any(part.endswith(PARTS) for part in path.parent.parts)]
    if not found:
        raise InputError(f"{folder}: no .jsonl, .jsonl.gz, .jsonl.zst or .parquet file is in this folder")
    return found


def _is_data(path: Path) -> bool:
    if path.name.startswith("."):
        return False
    bare = path.with_suffix("") if compression_of(path) is not Compression.NONE else path
    return bare.suffix.lower() in _LINES or is_parquet(path)


@contextmanager
def open_lines(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Opens a file of lines: gives its unpacked bytes, and the file below them, whose position shows the progress."""
    with path.open("rb") as file:
        match compression_of(path):
            case Compression.GZIP:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield cast("IO[bytes]", unpacked), file
            case Compression.ZSTD:
                with (
                    _zstandard()
                    .ZstdDecompressor()
                    .stream_reader(file, read_across_frames=True, closefd=False) as stream
                ):
                    yield stream, file
            case _:
                yield file, file


@contextmanager
def create_lines(path: Path, compression: Compression) -> Iterator[IO[bytes]]:
    """Creates a file of lines, packed as asked for: the same bytes for the same rows."""
    with path.open("wb") as file:
        match compression:
            case Compression.GZIP:
                with gzip.GzipFile("", "wb", compresslevel=_GZIP_LEVEL, fileobj=file, mtime=0) as packed:
                    yield cast("IO[bytes]", packed)
            case Compression.ZSTD:
                packer = _zstandard().ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
                with packer.stream_writer(file, closefd=False) as stream:
                    yield stream
            case _:
                yield file


def damage_errors(path: Path) -> tuple[type[Exception], ...]:
    """Returns the errors that reading the lines of a damaged file raises, by its packing."""
    match compression_of(path):
        case Compression.GZIP:
            return (EOFError, zlib.error, gzip.BadGzipFile)
        case Compression.ZSTD:
            return (EOFError, _zstandard().ZstdError)
        case _:
            return ()


def _zstandard() -> Any:
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError:
        raise SettingsError(
            f"a .zst file needs the package zstandard: {name_install('trajectories')}"
        ) from None
    return zstandard


def load_arrow() -> Any:
    """Returns the package `pyarrow` with its Parquet part. Raises SettingsError if it is not installed."""
    try:
        import_module("pyarrow.parquet")  # an attribute of the package from now on
        return import_module("pyarrow")  # an extra, slow to load, and without a word about its types
    except ImportError:
        raise SettingsError(f"Parquet needs the package pyarrow: {name_install('trajectories')}") from None


class Table:
    """A batch of rows, as a shard holds it."""

    def __init__(self, data: bytes, wished: str | None) -> None:
        self._pa = load_arrow()
        with self._pa.ipc.open_stream(self._pa.BufferReader(data)) as stream:
            self._table = stream.read_all()
        self._wished = wished
        self._changed: dict[str, dict[int, Any]] = {}

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return list(self._table.column_names)

    @property
    def column(self) -> str:
        """The column with the turns. Raises InputError if there is none."""
        return turns_column(self._table.column_names, self._wished)

    def cell(self, row: int) -> Any:
        """Returns the turns of a row, as the file holds them. Raises InputError."""
        return self._table.column(self.column)[row].as_py()

    def read_others(self, row: int, turns: int, named: Iterable[str]) -> dict[str, list[Any]]:
        """Returns the columns of a row with one entry for each turn."""
        lists = [
            name
            for name, kind in zip(self._table.column_names, self._table.schema.types, strict=True)
            if self._pa.types.is_list(kind) or self._pa.types.is_large_list(kind)
        ]
        cells = {name: self._table.column(name)[row].as_py() for name in lists if name != self.column}
        return {name: cells[name] for name in per_turn_columns(cells, self.column, turns, named)}

    def put(self, row: int, column: str, value: Any) -> None:
        """Sets another value for a cell."""
        self._changed.setdefault(column, {})[row] = value

    def pack(self, taken: Sequence[int] | None = None) -> bytes:
        """Returns the rows with what was put into them; only those `taken`, if that is given."""
        table = self._table
        for column, cells in self._changed.items():
            place = table.column_names.index(column)
            table = table.set_column(place, table.schema.field(place), self._with(table.column(place), cells))
        if taken is not None:
            table = table.take(self._pa.array(taken, self._pa.int64()))
        return pack_rows(self._pa, table)

    def _with(self, old: Any, cells: dict[int, Any]) -> Any:
        """Returns the column with other values in some rows: those of all others are the same Arrow values."""
        new = self._pa.chunked_array([*old.chunks, self._pa.array(list(cells.values()), old.type)], old.type)
        order = list(range(len(old)))
        for at, row in enumerate(cells):
            order[row] = len(old) + at
        return new.take(self._pa.array(order, self._pa.int64()))


def pack_rows(pa: Any, rows: Any) -> bytes:
    """Rows as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    return sink.getvalue()


class TableWriter:
    """Writes shards into one Parquet file. The row groups of the input stay, if they are not very large."""

    def __init__(self, pa: Any, writer: Any) -> None:
        self._pa = pa
        self._writer = writer
        self._group = 0
        self._held: list[Any] = []

    def add(self, data: bytes, group: int) -> None:
        """Adds the rows of a shard."""
        with self._pa.ipc.open_stream(self._pa.BufferReader(data)) as stream:
            table = stream.read_all()
        if self._held and (group != self._group or sum(one.nbytes for one in self._held) >= _ROW_GROUP_BYTES):
            self.flush()
        self._group = group
        if table.num_rows:
            self._held.append(table)

    def flush(self) -> None:
        """Writes what is held as one row group."""
        if self._held:
            table = self._pa.concat_tables(self._held).combine_chunks()
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._held.clear()


@contextmanager
def create_table(path: Path, source: Path) -> Iterator[TableWriter]:
    """Creates a Parquet file with the schema and the compression of another."""
    pa = load_arrow()
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
