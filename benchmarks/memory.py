"""How much memory a compaction takes, measured in a fresh process that does nothing else."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.clock import note
from benchmarks.generate import many_messages
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table

__all__ = ["run"]

PEAK = Limit(3, 2)
ROOT = Path(__file__).parents[1]


def run(options: Options) -> list[Table]:
    count = 4_000 if options.quick else 20_000
    note(f"memory: {count:,} messages in a fresh process")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "messages.json"
        file.write_text(json.dumps(many_messages(count, 1_500 * count)), encoding="utf-8")
        size = file.stat().st_size
        resident = _probe(file)
        note("memory: the same, with Python's own allocations traced")
        traced = _probe(file, "--trace")
    limit = None if options.quick else PEAK
    parts = (
        ("added by compressing, at its peak: Python allocations", traced["peak"] - traced["loaded"], limit),
        ("added by compressing, at its peak: resident", resident["peak"] - resident["loaded"], None),
        ("the parsed input", resident["loaded"] - resident["ready"], None),
        ("interpreter, modules and tokenizer", resident["ready"], None),
        ("whole process at its peak", resident["peak"], None),
        ("whole process after it, engine alive", resident["after"], None),
    )
    rows = tuple(
        (what, Figure(taken / 1e6, "MB"), Figure(taken / size, "×", limit)) for what, taken, limit in parts
    )
    remark = (
        f"{count:,} messages, {size / 1e6:.1f} MB of JSON, one `ContextCompressor(200_000).compress`. The first row "
        f"is `tracemalloc` in a separate run, and the floor applies to it; the others are resident memory "
        f"({resident['source']}), which includes memory that was freed."
    )
    return [
        Table("memory", "Memory", ("what", "taken", "against the input's bytes (floor · goal)"), rows, remark)
    ]


def _probe(file: Path, *flags: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory_probe", str(file), *flags]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told
