"""How long a person waits before anything happens: fresh processes, by the wall clock, with bytecode as after `pip install`."""

import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.clock import Times, note, timed
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table

__all__ = ["run"]

HELP_MS = Limit(150)
FIRST_MS = Limit(350, 200)
CHAT_MS = Limit(400, 250)  # of CPU time
PROMPT = "›".encode()
LONGEST_START = 60  # seconds
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
        rows += (("CPU time of `penstock chat` to its prompt", *_time_chat(repeat, environment, folder)),)
    columns = ("what", "best (floor · goal)", "median")
    remark = f"{repeat} processes each; the chat at a terminal of its own, in an empty store."
    return [Table("startup", "Start", columns, rows, remark)]


def _time_chat(repeat: int, environment: dict[str, str], folder: str) -> tuple[str | Figure, str | Figure]:
    """Returns the best and the median CPU time of a chat that is ended when its prompt stands on the screen."""
    command = Path(sys.executable).with_name("penstock")
    if not command.exists() or os.name != "posix":
        return f"not installed: {command.name}", ""
    environment = environment | {"HOME": folder, "TERM": "xterm-256color"}
    seconds = [_start_chat(command, environment, folder) for _ in range(repeat + 1)]
    times = Times(tuple(seconds[1:]), tuple(seconds[1:]))  # the first one writes the bytecode
    return Figure(1_000 * times.best, "ms", CHAT_MS), Figure(1_000 * times.median, "ms")


def _start_chat(command: Path, environment: dict[str, str], folder: str) -> float:
    """Returns the CPU time, in seconds, that a new chat has used when its prompt is there."""
    terminal, slave = os.openpty()
    process = subprocess.Popen(
        [command, "chat", "--model", "gpt-4.1", "--base-url", "http://127.0.0.1:9/v1", "--store", f"sqlite:///{folder}/chat.db"],
        stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    shown = b""
    until = time.monotonic() + LONGEST_START
    while PROMPT not in shown and process.poll() is None and time.monotonic() < until:
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65_536)
    process.kill()
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0  # it was waited for here, where its use of the processor is told
    os.close(terminal)
    if PROMPT not in shown:
        raise RuntimeError(f"the chat showed no prompt: {shown[-500:].decode(errors='replace')}")
    return used.ru_utime + used.ru_stime


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
