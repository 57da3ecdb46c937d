"""`penstock wrap`: runs a client through the gateway that runs here already, or through one of its own until it ends.

The client has the terminal and its signals: Ctrl-C goes to it, and signals sent to us are passed on. The gateway logs to
a file.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock import __version__
from penstock.accounts.display import redact
from penstock.cli.screen import printable, screen_of
from penstock.cli.source import settings_of
from penstock.cli.stored import open_store_of
from penstock.config import client_environment, data_folder
from penstock.errors import SettingsError, StoreUnavailable
from penstock.gateway.clients import ClientStart, Invocation, WrappedClient, read_client
from penstock.gateway.fitting import ConversationFitter
from penstock.gateway.joining import RunTally, find_gateway, name_run, read_tally
from penstock.gateway.keys import read_store_secret
from penstock.gateway.operations import GatewayOperations
from penstock.gateway.running import run_in_loop
from penstock.gateway.server import Gateway
from penstock.gateway.upstreams import Upstreams, read_upstreams
from penstock.gateway.workers import Workers

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import TextIO

    from penstock.gateway.callers import ServedRequest
    from penstock.settings import Settings
    from penstock.stores.store import Store

__all__ = ["run"]

_SIGNALLED = 128  # as shells count: a program that a signal ended
_LOG_BYTES = 5_000_000
_SETTLE_SECONDS = 0.1  # in which a stop that was meant for both of us has reached both
_PLACE = "http://127.0.0.1:PORT"


def run(args: argparse.Namespace) -> int:
    """Runs the client and returns its exit code. Raises SettingsError if it is not installed, or its API is unknown."""
    own = {}
    for name in ("summarise", "answer_client_compactions", "recall"):
        if (value := getattr(args, name)) is not None:
            own[f"gateway.{name}"] = str(value)
    if args.store is not None:
        own["store.url"] = args.store
    args.settings = [*args.settings, *own.items()]
    settings = settings_of(args)
    environ = client_environment()
    program = _find_program(args, environ.get("PATH"))
    invocation = Invocation(program, tuple(args.arguments), environ, Path.cwd(), args.provider)
    client = read_client(args.client, invocation, args.upstream)
    upstreams = _choose_upstreams(settings, client, args.upstream)
    if args.show:
        running = _find_running(args, settings, upstreams, client)
        _show(args, client.point_at(running or _PLACE), upstreams, running)
        return 0
    log_path = data_folder() / "wrap.log"
    with ExitStack() as stack:
        log_file = stack.enter_context(_open_log(log_path))
        store = stack.enter_context(open_store_of(args))
        wrapping = _Wrapping(_fit_own(settings, upstreams), upstreams, client, invocation, log_file)
        running = _find_running(args, settings, upstreams, client, store)
        run_in_loop(wrapping.run(store) if running is None else wrapping.run_joined(running))
    _report(args, wrapping.tally, log_path)
    return wrapping.code


def _find_running(
    args: argparse.Namespace,
    settings: Settings,
    upstreams: Upstreams,
    client: WrappedClient,
    store: Store | None = None,
) -> str | None:
    """Returns the base URL for this run at a gateway that runs already; None if one of its own is to be started."""
    if not args.join:
        return None
    with ExitStack() as stack:
        if store is None:  # only shown: nothing is to be created
            if settings.store.url is None and not (data_folder() / "sessions.db").exists():
                return None
            try:
                store = stack.enter_context(open_store_of(args, keep_expired=True, must_exist=True))
            except StoreUnavailable:  # no gateway has it
                return None
        running = find_gateway(settings, upstreams, client.dialects, read_store_secret(store), __version__)
    return None if running is None else name_run(running)


def _fit_own(settings: Settings, upstreams: Upstreams) -> Settings:
    """Returns the settings for a gateway of the client's own: on this machine, at any free port."""
    own = msgspec.structs.replace(settings.gateway, host="127.0.0.1", port=0, processes=1)
    if not any(one.key for one in upstreams):  # with keys of ours to lend, callers need one of the gateway's
        own = msgspec.structs.replace(own, require_keys=False)
    return msgspec.structs.replace(settings, gateway=own)


def _find_program(args: argparse.Namespace, path: str | None) -> str:
    name: str = args.program or args.client
    found = shutil.which(name, path=path)
    if found is None and not args.show:
        why = "cannot be run" if args.program else "is not installed, or not on the PATH"
        raise SettingsError(f"{name} {why}: install it, or name its program with --program PATH")
    return found or name


def _choose_upstreams(settings: Settings, client: WrappedClient, url: str | None) -> Upstreams:
    """Returns the upstreams: as typed, else those of the settings that speak the client's API, else the client's usual ones."""
    if url is not None:
        return read_upstreams(settings.gateway, url)
    if settings.gateway.upstreams:
        given = read_upstreams(settings.gateway)
        if any(client.dialects & set(one.dialects) for one in given):
            return given
    return Upstreams(client.upstreams)


class _Wrapping:
    """One run of a client with its gateway. `code` and `tally` are complete when it has ended."""

    def __init__(
        self,
        settings: Settings,
        upstreams: Upstreams,
        client: WrappedClient,
        invocation: Invocation,
        log_file: TextIO,
    ) -> None:
        self._settings = settings
        self._upstreams = upstreams
        self._client = client
        self._invocation = invocation
        self._log_file = log_file
        self.tally: RunTally | None = RunTally()
        self.code = 0

    async def run(self, store: Store) -> None:
        """Runs the client through a gateway that ends with it."""
        settings, tally = self._settings, RunTally()
        self.tally = tally
        workers = Workers(settings, log_file=self._log_file)
        await workers.start()
        fitter = ConversationFitter(settings.gateway, workers)
        try:
            async with _CountingOperations(
                settings, store, log_stream=self._log_file, version=__version__
            ) as operations:
                operations.tally = tally
                operations.watch_workers(workers)
                async with Gateway(
                    self._upstreams, settings, fitter=fitter, operations=operations
                ) as gateway:
                    await self._run_client(gateway.address)
        finally:
            await fitter.aclose()

    async def run_joined(self, base_url: str) -> None:
        """Runs the client through a gateway that runs already, and asks that what it has counted."""
        await self._run_client(base_url)
        self.tally = await asyncio.to_thread(read_tally, base_url)

    async def _run_client(self, address: str) -> None:
        start = self._client.point_at(address)
        command = [self._invocation.program, *start.arguments, *self._invocation.arguments]
        try:
            process = _ClientProcess(command, {**self._invocation.environ, **start.variables})
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise SettingsError(f"{self._invocation.program} cannot be run: {why}") from None
        with _passing_signals(process):
            self.code = await asyncio.to_thread(process.wait)


class _ClientProcess:
    """The client, in our own process group: keys at the terminal signal both of us."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(command, env=environ)  # noqa: S603 - the user's own program
        self._alive = True
        self._lock = threading.Lock()

    def send(self, number: int) -> None:
        """Passes a signal on, if the client still runs."""
        with self._lock:
            if self._alive:
                os.kill(self._process.pid, number)

    def wait(self) -> int:
        """Returns the exit code once it has ended. If it suspends itself, so do we, and the shell has the terminal."""
        if not hasattr(os, "WUNTRACED"):  # Windows
            return self._process.wait()
        pid = self._process.pid
        while True:
            # It is left in the table of processes until the lock is held: nobody else can have its number before.
            os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
            with self._lock:
                found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
                if found and not os.WIFSTOPPED(status):
                    self._alive = False
                    code = self._process.returncode = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else _SIGNALLED - code
            if found:
                self._stop_too(pid)

    def _stop_too(self, pid: int) -> None:
        time.sleep(_SETTLE_SECONDS)
        if os.waitpid(pid, os.WNOHANG | os.WCONTINUED)[0]:
            return  # it goes on already: we were stopped together, and continued together
        os.kill(os.getpid(), signal.SIGSTOP)
        self.send(signal.SIGCONT)


@contextmanager
def _passing_signals(process: _ClientProcess) -> Iterator[None]:
    """Ignores the terminal's signals, which the client gets itself, and passes on signals sent to us alone."""
    loop = asyncio.get_running_loop()
    numbers = [
        (getattr(signal, name), passed)
        for name, passed in (("SIGINT", False), ("SIGQUIT", False), ("SIGTERM", True), ("SIGHUP", True))
        if hasattr(signal, name)
    ]
    kept = {}
    try:
        for number, passed in numbers:
            kept[number] = signal.getsignal(number)
            if passed:
                loop.add_signal_handler(number, process.send, number)
            else:
                loop.add_signal_handler(number, _leave_to_client)
    except (NotImplementedError, ValueError):  # Windows, or not in the main thread
        kept.clear()
    try:
        yield
    finally:
        for number, handler in kept.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _leave_to_client() -> None:
    """Does nothing: a handler, unlike SIG_IGN, is not inherited by the programs that we start."""


# What it was good for.


class _CountingOperations(GatewayOperations):
    """Operations that also count for the line at the end."""

    tally: RunTally

    def observe(self, served: ServedRequest) -> None:
        super().observe(served)
        self.tally.add(served)


def _report(args: argparse.Namespace, tally: RunTally | None, log_path: Path) -> None:
    if sys.stderr is None:
        return
    if tally is None:
        told = (
            json.dumps({"requests": None})
            if args.json
            else "penstock: the gateway has ended before the client"
        )
        print(told, file=sys.stderr)
        return
    if args.json:
        print(json.dumps({**tally.to_dict(), "log": str(log_path)}), file=sys.stderr)
        return
    text = tally.describe(screen_of(sys.stderr).arrow)
    if tally.problems:
        text += f"; {tally.problems} with problems: see {log_path}"
    print(f"penstock: {printable(text)}", file=sys.stderr)


def _show(args: argparse.Namespace, start: ClientStart, upstreams: Upstreams, running: str | None) -> None:
    """Prints the variables and the command as a shell line, without secrets, and where requests would go."""
    command = [args.program or args.client, *start.arguments, *args.arguments]
    addresses = {one.name: one.address.base_url for one in upstreams}
    screen = screen_of(sys.stdout)
    if args.json:
        variables = {name: redact(value) for name, value in start.variables.items()}
        told = {"variables": variables, "command": command, "upstreams": addresses, "joins": running}
        screen.say(json.dumps(told))
        return
    settings = [f"{name}={shlex.quote(redact(value))}" for name, value in start.variables.items()]
    screen.say(" ".join((*settings, shlex.join(command))))
    for name, address in addresses.items():
        screen.say(f"# upstream {name}: {address}")
    if running is not None:
        screen.say("# through the gateway that runs at this address")


# The gateway's log.


@contextmanager
def _open_log(path: Path) -> Iterator[TextIO]:
    """Opens the log file of this process: nothing that is logged reaches the terminal."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_name("wrap.log.1"))
    own, root = logging.getLogger("penstock"), logging.getLogger()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        silenced = [one for one in own.handlers if one is logging.lastResort]
        for one in silenced:
            own.removeHandler(one)
        root.addHandler(handler)
        logging.captureWarnings(capture=True)
        try:
            yield file
        finally:
            logging.captureWarnings(capture=False)
            root.removeHandler(handler)
            for one in silenced:
                own.addHandler(one)
