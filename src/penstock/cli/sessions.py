"""`penstock sessions`: conversations in a store. Each action has its own module, loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["run"]

_HOMES = {
    "list": "session_list:run_list",
    "show": "session_show:run_show",
    "export": "session_export:run_export",
    "import": "session_import:run_import",
    "delete": "session_change:run_delete",
    "expire": "session_expire:run_expire",
    "undo": "session_change:run_undo",
    "pin": "session_change:run_pin",
    "unpin": "session_change:run_pin",
}


def run(args: argparse.Namespace) -> int:
    """Carry out the action. Raises UnknownSession, StoreError and what the action raises."""
    module, _, name = _HOMES[args.action].partition(":")
    code: int = getattr(import_module(f"penstock.cli.{module}"), name)(args)
    return code
