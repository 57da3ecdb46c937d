"""Runs the gateway as a process, or as several at one address: listens, says where, and ends in order on SIGTERM or Ctrl-C.

With several (`run_processes`), the system hands each new connection to one of them. Each is a whole gateway, over the same
store. One that ends is started again; a signal to the first ends all, each after the requests that it serves. Limits of
requests and the figures of `/metrics` are those of single processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock._log import log
from penstock.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from penstock.settings import Settings

__all__ = [
    "LARGE_BYTES",
    "give_memory_back",
    "run_in_loop",
    "run_processes",
    "serve_until_signal",
    "watch_parent",
]

LARGE_BYTES = 16 << 20
"""The size of a request after which memory is given back."""

_START_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_PAUSE_SECONDS = 1.0  # before one that ended is started again
_LATE_SECONDS = 10.0  # beyond `gateway.drain_seconds`, until one that does not end is killed


def run_in_loop(work: Coroutine[Any, Any, None]) -> None:
    """Runs the coroutine in the fastest event loop that is installed. Raises KeyboardInterrupt where it was cancelled."""
    factory = None
    if find_spec("uvloop") is not None:
        import uvloop  # noqa: PLC0415 - it is an extra

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        try:
            runner.run(work)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


def give_memory_back() -> None:
    """Gives freed memory back to the system. Takes some 10 ms, so call it in a thread, after something large.

    The allocator of glibc keeps what is freed in small pieces: some hundred megabytes after a few bodies of 64 MB.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)


class Listener(AbstractAsyncContextManager[Any], Protocol):
    """A server that listens inside of its context: a gateway, or one for pages alone."""

    @property
    def address(self) -> str:
        """The address that it listens at."""


async def serve_until_signal(server: Listener, announce: Callable[[str], None]) -> None:
    """Listens, tells the address, and serves until a signal; then drains. A second signal ends it at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    task = asyncio.current_task()

    def end() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, end)
        except NotImplementedError:  # Windows: Ctrl-C raises KeyboardInterrupt instead
            break
    async with server:
        gc.collect()
        gc.freeze()  # modules stay until the end: no collection of garbage has to look through them
        announce(server.address)
        await stop.wait()


def run_processes(
    settings: Settings, serve: Callable[[Settings, Connection], None], announce: Callable[[str], None]
) -> None:
    """Runs `gateway.processes` of them until a signal; `announce` hears the address once all listen.

    `serve` runs in each, and sends the address over the connection. Raises SettingsError where the system cannot share a
    port, or where one does not start; OSError for an address that cannot be used.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise SettingsError("gateway.processes needs a system that can share a port; leave it at 1 here")
    gateway = settings.gateway
    with _reserve_port(gateway.host, gateway.port) as port:
        shared = msgspec.structs.replace(settings, gateway=msgspec.structs.replace(gateway, port=port))
        stopping = threading.Event()
        children = [_Child(shared, serve) for _ in range(gateway.processes)]
        try:
            with _obey_signals(children, stopping):
                addresses = [child.wait_until_it_listens() for child in children]
                announce(addresses[0])
                while not stopping.is_set():
                    for child in children:
                        child.start_again_if_it_ended(stopping)
                    wait([child.process.sentinel for child in children], timeout=_LOOK_SECONDS)
        finally:
            if not stopping.is_set():  # something failed here
                _stop_all(children)
            for child in children:
                child.end(gateway.drain_seconds + _LATE_SECONDS)


@contextlib.contextmanager
def _obey_signals(children: list[_Child], stopping: threading.Event) -> Iterator[None]:
    """Passes each signal on; a second one ends a process at once."""

    def stop(_number: int, _frame: Any) -> None:
        stopping.set()
        _stop_all(children)

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_all(children: list[_Child]) -> None:
    for child in children:
        child.stop()


def watch_parent() -> None:
    """In one of the processes: ends it where the first one has gone, and lets Ctrl-C be that one's affair."""
    os.setpgrp()
    parent = multiprocessing.parent_process()

    def end_with_it() -> None:
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_it, daemon=True).start()


class _Child:
    """One process, and the next one in its place."""

    def __init__(self, settings: Settings, serve: Callable[[Settings, Connection], None]) -> None:
        self._settings = settings
        self._serve = serve
        self.process: SpawnProcess
        self._told: Connection
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._told, telling = context.Pipe(duplex=False)
        self.process = context.Process(target=self._serve, args=(self._settings, telling))
        self.process.start()
        telling.close()

    def wait_until_it_listens(self) -> str:
        """Returns its address. Raises SettingsError where it does not start."""
        try:
            if self._told.poll(_START_SECONDS):
                return str(self._told.recv())
        except EOFError:
            pass
        raise SettingsError("a process of the gateway did not start; what it said is above")

    def start_again_if_it_ended(self, stopping: threading.Event) -> None:
        """Starts another one in its place, after a pause, unless all are to end."""
        if self.process.is_alive() or stopping.wait(_PAUSE_SECONDS):
            return
        log.warning("a process of the gateway ended with %s and is started again", self.process.exitcode)
        self._told.close()
        self._start()
        if stopping.is_set():
            self.stop()

    def stop(self) -> None:
        """Asks it to end."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def end(self, seconds: float) -> None:
        """Waits for its end, and kills it where that takes too long."""
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._told.close()


@contextlib.contextmanager
def _reserve_port(host: str, port: int) -> Iterator[int]:
    """Holds a port that processes can share, without listening at it."""
    family, kind, _, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(address)
        yield held.getsockname()[1]
