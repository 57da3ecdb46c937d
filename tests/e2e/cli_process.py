"""Running the real command, in a process of its own, with an environment that holds nothing of the machine's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

COMMAND = str(Path(sys.executable).parent / "penstock")


class Ran(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": "/nonexistent", "LANG": "C.UTF-8", **more}


def penstock(*args: str | Path, stdin: bytes = b"", cwd: Path | None = None, **env: str) -> Ran:
    done = subprocess.run(
        [COMMAND, *map(str, args)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=environment(**env),
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr.decode())


def assert_one_clear_error(ran: Ran, *words: str, code: int = 2) -> None:
    """One line that begins with our name and holds these words; nothing else was written anywhere."""
    assert ran.code == code, ran.err
    assert ran.out == b""
    assert ran.err.startswith("penstock: ")
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def call(call_id: str, name: str = "terminal", arguments: str = '{"command": "make"}') -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def result(call_id: str, text: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def work(turns: int = 30) -> list[dict[str, Any]]:
    """A conversation with something to compress: about 65 tokens a turn."""
    messages = [user("Never touch the migrations folder. Rename the report module to summary.")]
    for turn in range(turns):
        messages += [
            call(f"call_{turn}", "read_file", json.dumps({"path": f"src/report/part_{turn}.py"})),
            result(f"call_{turn}", f"def part_{turn}(rows):\n    return total(rows, {turn * 7919})\n" * 2),
        ]
    return [*messages, assistant("All parts are read; the totals agree."), user("Good. Now rename it.")]


def encoded(messages: Any) -> bytes:
    return json.dumps(messages).encode()
