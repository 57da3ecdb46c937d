"""`LocalServer`: a model of one's own behind an address, for as long as a `with` block lasts."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Self

import msgspec

from penstock.errors import ErrorClass, ErrorKind, ProviderError, SettingsError
from penstock.local.installed import bundled_model, missing
from penstock.local.order import Order, Serving

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["LocalServer"]

_CHILD = ("-P", "-m", "penstock.local.child")
"""`-P`: a file in the working directory must not take the place of a module."""

_STOP_SECONDS = 2.0
_HEALTH_PAUSE_SECONDS = 0.05


class LocalServer:
    """Serves a GGUF file on 127.0.0.1 from a child process while its `with` block lasts.

    `model` is the file (None: the bundled model), `context_tokens` the window that is served, `answer_tokens`
    the end of an answer to a request that names none: a small model may go on for ever, and fill its window for
    minutes. `threads` is how many work on an answer (None: half of the cores), `port` 0 any free one. It answers requests in the Chat, Responses and
    Anthropic dialects, one at a time, and takes no key.

    SettingsError, before anything is started, for a part that is not installed or a file that is not there.
    ProviderError from `start` for a model that could not be loaded or took longer than `start_seconds`. The child
    ends with the block, and with this process however that ends.
    """

    def __init__(
        self,
        model: Path | None = None,
        *,
        context_tokens: int = 8_192,
        answer_tokens: int = 1_024,
        threads: int | None = None,
        port: int = 0,
        start_seconds: float = 60.0,
    ) -> None:
        if lacking := missing(model):
            raise SettingsError(lacking)
        if min(context_tokens, answer_tokens) < 1 or (threads is not None and threads < 1):
            raise SettingsError(
                "a local model needs a window and answers of 1 token or more, and 1 thread or more"
            )
        path = model or bundled_model()
        if path is None or not path.is_file():
            raise SettingsError(f"no model file at {path}")
        self.model = path.stem
        self.context_tokens = context_tokens
        self.address = ""
        self._start_seconds = start_seconds
        self._order = Order(
            path=str(path),
            name=self.model,
            context_tokens=context_tokens,
            answer_tokens=answer_tokens,
            threads=threads or max(1, (os.cpu_count() or 1) // 2),
            port=port,
        )
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """For a client of the Chat or Responses dialect; one of the Anthropic dialect takes `address`."""
        return f"{self.address}/v1"

    @property
    def pid(self) -> int | None:
        """The process that holds the model, or None while there is none."""
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Loads the model and waits until it answers."""
        if self._child is not None:
            return
        # Complaints go to a file, as a pipe would have to be read.
        with tempfile.TemporaryFile() as complaints, ExitStack() as undo:
            child = self._child = subprocess.Popen(  # noqa: S603 - our own module, by the same interpreter
                [sys.executable, *_CHILD],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
            )
            undo.callback(self.stop)
            self.address = self._wait_until_serving(child, complaints)
            undo.pop_all()

    def stop(self) -> None:
        """Ends the child. Safe to call twice; when it returns, the port is closed."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.stdin:
            child.stdin.close()
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout:
            child.stdout.close()

    def wait(self) -> int:
        """Waits until the child ends by itself; returns its exit code."""
        return self._child.wait() if self._child else 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_serving(self, child: subprocess.Popen[bytes], complaints: IO[bytes]) -> str:
        deadline = time.monotonic() + self._start_seconds
        line = _exchange(child, msgspec.json.encode(self._order), self._start_seconds)
        if not line:
            raise self._failure(child, deadline, complaints)
        address = msgspec.json.decode(line, type=Serving).address
        while not _is_healthy(address):
            if time.monotonic() > deadline or child.poll() is not None:
                raise self._failure(child, deadline, complaints)
            time.sleep(_HEALTH_PAUSE_SECONDS)
        return address

    def _failure(
        self, child: subprocess.Popen[bytes], deadline: float, complaints: IO[bytes]
    ) -> ProviderError:
        """Returns the error for a server that did not start: too late, or the child's own words and exit code."""
        if time.monotonic() > deadline:
            said = f"the local model {self.model} did not answer within {self._start_seconds:g} seconds"
            return ProviderError(said, failure=ErrorClass(kind=ErrorKind.TIMEOUT, message=said))
        code = child.wait()
        complaints.seek(0)
        words = complaints.readline().decode(errors="replace").strip()  # the first complaint is the cause
        said = f"the local model {self.model} could not be started (exit code {code}): {words}".rstrip(": ")
        return ProviderError(said, failure=ErrorClass(kind=ErrorKind.BAD_REQUEST, message=said))


def _exchange(child: subprocess.Popen[bytes], order: bytes, limit_seconds: float) -> bytes:
    """Gives the order and reads the answer; empty if the child ended first or had to be ended."""
    if child.stdin is None or child.stdout is None:
        return b""
    too_late = threading.Timer(limit_seconds, child.kill)  # which ends the read below, on every system
    too_late.start()
    try:
        child.stdin.write(order + b"\n")
        return child.stdout.readline()
    except BrokenPipeError:
        return b""
    finally:
        too_late.cancel()


def _is_healthy(address: str) -> bool:
    # http.client, as it heeds no proxy settings: this address is our own machine's.
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()
