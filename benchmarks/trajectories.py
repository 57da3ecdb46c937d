"""Trajectories: how fast rows are compressed on one core, what is lost, and how much memory a large file takes."""

import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.clock import note
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table, share
from benchmarks.trajectory_rows import rows_of, write_rows
from penstock.conversation.dialects import decode_all
from penstock.conversation.dialects.sharegpt import SHAREGPT
from penstock.conversation.rules import Pairs
from penstock.trajectories.compress import CompressedTrajectory, Compressor, TrajectoryDraft
from penstock.trajectories.options import TrajectoryOptions
from penstock.trajectories.rows import read_line
from penstock.trajectories.summary import LiteralFinder, texts_of
from penstock.trajectories.turns import format_of, turn_tokens, weigh_turns

__all__ = ["run"]

SPEED = Limit(15, 25, at_least=True)
NONE_LOST = Limit(0)
ALL_LEGAL = Limit(100, at_least=True)
MEMORY = Limit(400)
COMMAND = (sys.executable, "-m", "penstock", "trajectories")


class Seen(NamedTuple):
    """What came of some rows. `unmarked` are rows over the target that nothing forces to be."""

    rows: int = 0
    bytes: int = 0
    cpu_seconds: float = 0.0
    lost: int = 0
    legal: int = 0
    compressed: int = 0
    marked: int = 0
    unmarked: int = 0
    needed: int = 0
    told: int = 0


def run(options: Options) -> list[Table]:
    small = [json.dumps(row).encode() for row in rows_of(16 if options.quick else 64)]
    note("trajectories: generated rows on one core")
    kinds = {"generated": _measured(small)}
    if options.corpora is not None and (found := sorted(options.corpora.glob("sharegpt/*.jsonl.gz"))):
        note("trajectories: recorded rows on one core")
        lines = list(_lines(found))
        kinds["recorded"] = _measured(lines[:: 8 if options.quick else 1])
    return [_speed(kinds), _small_rows(small), _memory(options)]


def _lines(files: Iterable[Path]) -> Iterator[bytes]:
    for file in files:
        yield from gzip.decompress(file.read_bytes()).splitlines()


def _measured(lines: Sequence[bytes]) -> Seen:
    """Every row read, counted, compressed and written again; what is judged is outside the clock."""
    compressor = Compressor(TrajectoryOptions())
    compressor.compress([{"from": "human", "value": "loads the tokenizer"}])
    seen = Seen(rows=len(lines), bytes=sum(map(len, lines)))
    for data in lines:
        started = time.process_time()
        line = read_line(data)
        done = compressor.compress(line.turns)
        written = line.with_result(done)
        seen = seen._replace(cpu_seconds=seen.cpu_seconds + time.process_time() - started)
        seen = _judged(seen, line.turns, json.loads(written)[line.column], done, compressor)
    return seen


def _judged(
    seen: Seen, before: list, after: list, done: CompressedTrajectory, compressor: Compressor
) -> Seen:
    kept = [turn for turn in after if turn in before]
    broken = len(Pairs(SHAREGPT.pairing).violations(decode_all(SHAREGPT, after)))
    had = len(Pairs(SHAREGPT.pairing).violations(decode_all(SHAREGPT, before)))
    tokens = sum(turn_tokens(turn, SHAREGPT, compressor.tokenizer) for turn in after)
    over = tokens > compressor.options.target_tokens
    seen = seen._replace(
        lost=seen.lost + (not after or len(kept) < len(after) - 1),
        legal=seen.legal + (broken <= had),
        compressed=seen.compressed + (done.summary is not None),
        marked=seen.marked + done.metrics.still_over_limit,
        unmarked=seen.unmarked + (over and _could_be_smaller(before, compressor)),
    )
    planned = compressor.plan(before)
    if not isinstance(planned, TrajectoryDraft) or done.summary is None:
        return seen
    finder = LiteralFinder(planned.writer.needed or ["\x00"])
    gone = [text for place in planned.writer.gone for text in texts_of(planned.messages[place])]
    known = {which for text in gone for which, _, _ in finder.find(text)}
    told = {which for which, _, _ in finder.find(done.summary["value"])}
    return seen._replace(needed=seen.needed + len(known), told=seen.told + len(known & told))


def _could_be_smaller(turns: list, compressor: Compressor) -> bool:
    """Whether the turns that must stay leave room: the first of each role, the last four, and calls of results."""
    tokens = weigh_turns(turns, format_of(turns), compressor.tokenizer)
    first = {turn["from"]: at for at, turn in reversed(list(enumerate(turns)))}
    stays = {*first.values(), *range(len(turns))[-4:]}
    stays |= {at - 1 for at in stays if turns[at]["from"] == "tool"}
    return sum(tokens[at] for at in stays) + 150 <= compressor.options.target_tokens


def _speed(kinds: dict[str, Seen]) -> Table:
    columns = (
        *("rows", "count", "MB", "MB/s per core (floor · goal)", "rows lost", "legal", "compressed"),
        *("over, and marked", "over, not forced to be", "values that later turns need, in the summary"),
    )
    rows = tuple(
        (
            name,
            Figure(seen.rows),
            Figure(seen.bytes / 1e6, "MB"),
            Figure(seen.bytes / 1e6 / seen.cpu_seconds, "MB/s", SPEED),
            Figure(seen.lost, "", NONE_LOST),
            share(seen.legal / seen.rows, ALL_LEGAL),
            Figure(seen.compressed),
            Figure(seen.marked),
            Figure(seen.unmarked, "", NONE_LOST),
            share(seen.told / max(1, seen.needed)),
        )
        for name, seen in kinds.items()
    )
    remark = (
        "Target 15,250 tokens, summaries of 750, o200k. The clock (CPU) covers reading the line, counting every turn, "
        "planning, writing the summary and the line again. A value is needed if the assistant uses it in a kept "
        "turn and only replaced turns mentioned it."
    )
    return Table("trajectories", "Trajectories on one core", columns, rows, remark)


def _small_rows(lines: Sequence[bytes]) -> Table:
    """Rows under the target, against parsing and counting alone."""
    compressor = Compressor(TrajectoryOptions())
    small = [data for data in lines if compressor.compress(read_line(data).turns).summary is None]
    count = compressor.tokenizer.count

    def bare(data: bytes) -> int:
        return sum(count(turn["value"]) for turn in msgspec.json.decode(data)["conversations"])

    def whole(data: bytes) -> object:
        line = read_line(data)
        return line.with_result(compressor.compress(line.turns))

    best = {"bare": 1e9, "whole": 1e9}
    for _ in range(7):
        for name, work in (("bare", bare), ("whole", whole)):
            started = time.process_time()
            for data in small:
                work(data)
            best[name] = min(best[name], time.process_time() - started)
    size = sum(map(len, small)) / 1e6
    rows = (
        ("parsed and counted alone", Figure(size / best["bare"], "MB/s"), ""),
        (
            "as a row under the target",
            Figure(size / best["whole"], "MB/s"),
            Figure(best["whole"] / best["bare"], "×"),
        ),
    )
    return Table("trajectories-small", "Rows that are small enough", ("what", "on one core", "time"), rows)


def _memory(options: Options) -> Table:
    wished = min(20, options.trajectory_mb) if options.quick else options.trajectory_mb
    note(f"trajectories: a file of {wished:,} MB by the real command")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.jsonl"
        rows = write_rows(source, wished * 1_000_000)
        size = source.stat().st_size
        started = time.perf_counter()
        process = subprocess.Popen(
            [*COMMAND, str(source), str(Path(folder) / "out.jsonl"), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        peak = _watched(process)
        told = json.loads(process.communicate()[0])
        seconds = time.perf_counter() - started
    figures = (
        (
            f"{rows:,} rows",
            Figure(size / 1e6, "MB"),
            Figure(peak / 1e6, "MB", MEMORY),
            Figure(size / 1e6 / seconds, "MB/s"),
            Figure(rows - told["totals"]["rows"], "", NONE_LOST),
        ),
    )
    remark = "Resident memory of the command and all its workers together, sampled ten times a second."
    columns = ("file", "size", "memory at its peak (floor)", "by the wall clock, all cores", "rows lost")
    return Table("trajectories-memory", "A large file", columns, figures, remark)


def _watched(process: subprocess.Popen) -> int:
    """The largest sum of the resident memory of the processes of a session."""
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(_resident(process.pid)))
        time.sleep(0.1)
        if process.stdout is not None and process.stdout.closed:
            break
    return peak


def _resident(session: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            yield int(fields[21]) * 4096
