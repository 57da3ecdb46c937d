"""Running the real command, in a process of its own, with an environment that holds nothing of the machine's."""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import __file__ as _package

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = str(Path(sys.executable).parent / "penstock")
SOURCE = str(Path(_package).parents[1])
_SECONDS = 120
_READ_AT_START = ("PYTHON", "LANG", "LC_")  # Python reads these before anything runs


class Ran(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


def environment(**more: str) -> dict[str, str]:
    """Nothing of the caller's, but a command runs the code that the tests import, wherever it was installed from."""
    return {
        "PATH": os.defpath,
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "PYTHONPATH": SOURCE,
        **more,
    }


@contextmanager
def listening(*args: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs a command that prints an address once it listens there; gives the process and the address, and ends it."""
    with subprocess.Popen(
        [COMMAND, *args],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            address = child.stdout.readline().strip()
            assert address.startswith("http://127.0.0."), child.stderr.read()
            yield child, address
        finally:
            child.kill()


def penstock(*args: str | Path, stdin: bytes = b"", cwd: Path | None = None, **env: str) -> Ran:
    """Runs the command in a new process of `command_server`, which spares it the second that imports and tokens take."""
    if any(name.startswith(_READ_AT_START) for name in env):
        return start_penstock(*args, stdin=stdin, cwd=cwd, **env)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as out, ThreadPoolExecutor(2) as threads:
        ended = threads.submit(penstock_to, writing, *args, stdin=stdin, cwd=cwd, closes=True, **env)
        said = out.read()
        return ended.result()._replace(out=said)


def penstock_to(
    stdout: int,
    *args: str | Path,
    stdin: bytes = b"",
    cwd: Path | None = None,
    closes: bool = False,
    **env: str,
) -> Ran:
    """Runs the command with this descriptor as its standard output, as `penstock` does; `closes` it here."""
    request = {
        "args": [str(argument) for argument in args],
        "cwd": str(cwd or Path.cwd()),
        "env": environment(**env),
        "seconds": _SECONDS,
    }
    ours, theirs = socket.socketpair()
    (fed, feeding), (hearing, told) = os.pipe(), os.pipe()
    with ours, os.fdopen(hearing, "rb") as err:
        try:
            with theirs:
                socket.send_fds(_command_server(), [b"!"], [fed, stdout, told, theirs.fileno()])
        finally:
            for descriptor in (fed, told, *([stdout] if closes else [])):
                os.close(descriptor)
        ours.sendall(json.dumps(request).encode() + b"\n")
        thread = Thread(target=_feed, args=(feeding, stdin))
        thread.start()
        said = err.read().decode()
        thread.join()
        return Ran(int(ours.recv(16)), b"", said)


def _feed(descriptor: int, data: bytes) -> None:
    with (
        suppress(BrokenPipeError),
        os.fdopen(descriptor, "wb", buffering=0) as pipe,
    ):  # it may end without reading
        while data:
            data = data[pipe.write(data) :]


@functools.cache
def _command_server() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("command_server.py"), str(theirs.fileno()), COMMAND],
            env=environment(),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.PIPE,  # what a command gets later is of that kind too
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def end() -> None:
        ours.close()
        server.communicate(timeout=60)

    atexit.register(end)
    return ours


def start_penstock(*args: str | Path, stdin: bytes = b"", cwd: Path | None = None, **env: str) -> Ran:
    """Runs the command as a shell does, from the start of Python on."""
    done = subprocess.run(
        [COMMAND, *map(str, args)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=environment(**env),
        timeout=_SECONDS,
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
