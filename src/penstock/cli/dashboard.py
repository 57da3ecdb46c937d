"""`penstock dashboard`: serves the pages of a store on this machine, until Ctrl-C."""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import TYPE_CHECKING

from penstock.cli.screen import print_address
from penstock.cli.source import settings_of
from penstock.cli.stored import open_store_of
from penstock.errors import SettingsError
from penstock.gateway.running import run_in_loop, serve_until_signal
from penstock.web.door import LinkDoor
from penstock.web.serving import Dashboard
from penstock.web.site import Site

if TYPE_CHECKING:
    import argparse

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Serves until a signal. Raises SettingsError if the port is taken."""
    settings = settings_of(args)
    with open_store_of(args, must_exist=True) as store:
        dashboard = Dashboard(Site(store, settings), LinkDoor(), args.port)

        def announce(address: str) -> None:
            print_address(address, json_too=args.json)
            if not args.no_open and _has_screen():
                webbrowser.open(address)

        try:
            run_in_loop(serve_until_signal(dashboard, announce))
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise SettingsError(
                f"cannot listen on port {args.port}: {why}; choose another one (--port 0 takes any free one)"
            ) from None
    return 0


def _has_screen() -> bool:
    """Returns True if a browser would open a window instead of taking over this terminal."""
    if sys.stdout is None or not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in {"darwin", "win32"} or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
