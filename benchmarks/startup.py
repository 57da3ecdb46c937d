"""How long a person waits before anything happens: fresh processes, by the wall clock, with bytecode as after `pip install`."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.clock import note, timed
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table

__all__ = ["run"]

HELP_MS = Limit(150)
FIRST_MS = Limit(350, 200)
ROOT = Path(__file__).parents[1]
FIRST = """\
import penstock
talk = [{"role": "user", "content": f"step {n}: " + "word " * 60} for n in range(100)]
penstock.compress(talk, target_tokens=4_000)
"""


def run(options: Options) -> list[Table]:
    note("startup: fresh processes")
    repeat = 3 if options.quick else 11
    python = sys.executable
    commands: dict[str, tuple[list[str], Limit | None]] = {
        "`penstock --help`": ([str(Path(python).with_name("penstock")), "--help"], HELP_MS),
        "`python -c pass`, the least that is possible": ([python, "-c", "pass"], None),
        "`import penstock`": ([python, "-c", "import penstock"], None),
        "import, tokenizer, and a first `penstock.compress` of 100 messages": (
            [python, "-c", FIRST],
            FIRST_MS,
        ),
    }
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder
        rows = tuple(
            (what, *_times(command, repeat, limit, environment))
            for what, (command, limit) in commands.items()
        )
    columns = ("what", "best (floor · goal)", "median")
    return [Table("startup", "Start", columns, rows, f"{repeat} processes each.")]


def _times(
    command: list[str], repeat: int, limit: Limit | None, environment: dict[str, str]
) -> tuple[str | Figure, str | Figure]:
    if not Path(command[0]).exists():
        return f"not installed: {Path(command[0]).name}", ""
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        return f"failed with {done.returncode}: {said}", ""

    def work(_: None) -> None:
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)

    times = timed(work, lambda: None, repeat)
    return Figure(1_000 * times.best, "ms", limit), Figure(1_000 * times.median, "ms")
