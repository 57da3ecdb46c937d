"""`penstock mcp`: recall as an MCP server, on standard input and output, or on HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.accounts.conversations import find_conversation
from penstock.cli.screen import print_address
from penstock.cli.source import settings_of
from penstock.cli.stored import open_store_of
from penstock.config import client_history_folders
from penstock.errors import PenstockError, SettingsError, name_install

if TYPE_CHECKING:
    import argparse

    from penstock.integrations.client_history import ClientHistory
    from penstock.integrations.mcp_server import RecallServer

__all__ = ["run"]

_INTERRUPTED = 130
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def run(args: argparse.Namespace) -> int:
    """Serves until the client leaves, or until Ctrl-C. Raises SettingsError, also if the package `mcp` is missing."""
    try:
        from penstock.integrations.mcp_server import RecallServer  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise SettingsError(f"penstock mcp needs the package mcp: {name_install('mcp')}") from error
    from penstock.integrations.client_history import ClientHistory  # noqa: PLC0415 - as above
    from penstock.integrations.library import Library, LibraryScope  # noqa: PLC0415 - as above

    settings = settings_of(args)
    scope = LibraryScope(folder=_choose_folder(args), client=args.client or "")
    address = None if args.http is None else _read_address(args.http)
    with open_store_of(args) as store:
        if args.session:
            scope = LibraryScope(session=find_conversation(store, args.session).conversation)
        history = None
        if not args.no_import and not args.session:
            history = ClientHistory(store, settings, client_history_folders(), scope)
            Thread(target=_catch_up, args=(history,), daemon=True).start()
        server = RecallServer(Library(store, settings, scope), history, __version__)
        if address is None:
            _serve_stdio(server)
        else:
            _serve_http(server, *address, json_too=args.json)
    return 0


def _choose_folder(args: argparse.Namespace) -> str:
    """Returns the folder whose conversations are served: the current one, unless the options say otherwise."""
    if args.everywhere or args.session:
        return ""
    folder = Path(args.folder or ".").resolve()
    # Clients without a project start their servers in the root or the home folder.
    nowhere = args.folder is None and folder in (Path(folder.anchor), Path.home())
    return "" if nowhere else str(folder)


def _read_address(given: str) -> tuple[str, int]:
    host, _, port = given.rpartition(":")
    host = host.strip("[]") or _LOOPBACK[0]
    if host not in _LOOPBACK:
        raise SettingsError(
            f"--http {given} would show your conversations to the network; give a port, and put a proxy that "
            "authenticates in front of it"
        )
    if not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise SettingsError(
            f"--http: '{given}' is not a port: give a whole number from 0 to 65535, such as 8790"
        )
    return host, int(port)


def _serve_stdio(server: RecallServer) -> None:
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None:
        print(
            "penstock: waiting for an MCP client on standard input; to add the server to one: "
            "claude mcp add penstock -- penstock mcp; leave with Ctrl-C",
            file=sys.stderr,
        )
    signal.signal(signal.SIGINT, _leave)
    asyncio.run(server.serve_stdio())


def _leave(_number: int, _frame: object) -> None:
    """Ends the process at once: a thread waits for the next line of standard input, which nothing can interrupt.

    The store loses nothing: all that it took is committed.
    """
    os._exit(_INTERRUPTED)


def _serve_http(server: RecallServer, host: str, port: int, *, json_too: bool) -> None:
    import uvicorn  # noqa: PLC0415 - comes with `mcp`

    shown = f"[{host}]" if ":" in host else host
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise SettingsError(
                f"cannot listen on {shown}:{port}: {why}; choose another port (0 takes any free one)"
            ) from None
        listening.listen()
        address = f"http://{shown}:{listening.getsockname()[1]}/mcp"
        print_address(address, json_too=json_too)
        uvicorn.Server(uvicorn.Config(server.make_app(host), log_level="warning")).run([listening])


def _catch_up(history: ClientHistory) -> None:
    """Imports in the background. A failure is retried by the next call, which reports it."""
    with suppress(PenstockError, OSError):
        history.catch_up()
