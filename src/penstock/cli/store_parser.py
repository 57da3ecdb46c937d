"""What can be typed for the commands on stored conversations. As light as `penstock.cli.parser`, which uses it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["ACTIONS", "STORE_COMMANDS", "add_sessions", "add_store", "add_stored", "whole_number"]

STORE_COMMANDS = {
    "sessions": "list, show, export, import and delete stored conversations",
    "search": "search everything that was ever said in stored conversations",
    "usage": "show what requests used and cost",
    "insights": "show the last days by model and by day, and what compaction saved",
    "doctor": "check a store, and mend it",
}
ACTIONS = {
    "list": "list conversations, the one that was used last first",
    "show": "show a conversation, its sessions and its compactions",
    "export": "write a conversation to a file",
    "import": "bring conversations from files of Claude Code, Codex, or any dialect",
    "delete": "delete a conversation for good",
    "expire": "delete what nobody has used for long",
    "undo": "take back the last compaction",
    "pin": "keep a message whole in later compactions",
    "unpin": "let a message go again",
}
_IMPORT = """\
Recognised by content: sessions of Claude Code (all: ~/.claude/projects), rollouts of Codex (all: ~/.codex/sessions),
and conversations as an array, a request body or lines. Of a folder, all *.jsonl files in it and below it are imported.
Importing a file again adds only what is new.
"""
_MOST = 1_000_000


def add_store(parser: argparse.ArgumentParser) -> None:
    """The option that says where conversations are."""
    parser.add_argument(
        "--store",
        metavar="URL",
        help="sqlite:///FILE or postgresql://HOST/NAME; default: store.url, else the user's data folder",
    )


def add_stored(parsers: Mapping[str, argparse.ArgumentParser]) -> None:
    """The options of the commands that have no actions."""
    parsers["usage"].add_argument("id", metavar="ID", nargs="?", help="one conversation; default: all")
    search = parsers["search"]
    search.add_argument(
        "query", metavar="QUERY", nargs="+", help="words, names, paths or values; any of them"
    )
    search.add_argument("--session", metavar="ID", help="one conversation; default: all")
    search.add_argument("--limit", metavar="N", type=whole_number, default=5, help="how many (default 5)")
    search.add_argument(
        "--characters",
        metavar="N",
        type=whole_number,
        default=480,
        help="of an excerpt, at most (default 480)",
    )
    parsers["insights"].add_argument(
        "--days", metavar="N", type=whole_number, default=30, help="how many days back (default 30)"
    )
    parsers["doctor"].add_argument("--repair", action="store_true", help="mend what can be mended")


def add_sessions(
    parser: argparse.ArgumentParser,
    dialects: Sequence[str],
    add_shared: Callable[[argparse.ArgumentParser], None],
) -> None:
    """The actions of `penstock sessions` and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", title="actions")
    shape: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    for name, text in ACTIONS.items():
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", **shape)
        if name not in ("list", "import", "expire"):
            action.add_argument("id", metavar="ID", help="a conversation's id, or the beginning of it")
        _ADD.get(name, _nothing)(action, dialects)
        add_store(action)
        add_shared(action)


def _nothing(parser: argparse.ArgumentParser, dialects: Sequence[str]) -> None:
    """An action that takes an id alone."""


def _add_list(parser: argparse.ArgumentParser, _dialects: Sequence[str]) -> None:
    parser.add_argument("--limit", metavar="N", type=whole_number, default=20, help="how many (default 20)")


def _add_show(parser: argparse.ArgumentParser, _dialects: Sequence[str]) -> None:
    parser.add_argument(
        "--facts", action="store_true", help="with what was noted of messages that left the view"
    )
    parser.add_argument(
        "--handle",
        metavar="M",
        help="read one message (m12), summary (s1), node (n3) or stored result instead, whole",
    )


def _add_export(parser: argparse.ArgumentParser, dialects: Sequence[str]) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write it; default: standard output")
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        choices=dialects,
        help=f"convert to {', '.join(dialects)}; what is lost is told",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--log", action="store_true", help="every message ever said, exactly (default)")
    which.add_argument("--view", action="store_true", help="what the model is to be sent")
    parser.add_argument(
        "--format",
        metavar="NAME",
        choices=("json", "jsonl"),
        default="json",
        help="json, an array (default), or jsonl",
    )


def _add_import(parser: argparse.ArgumentParser, dialects: Sequence[str]) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="files or folders to import; - for standard input"
    )
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        choices=("auto", *dialects),
        default="auto",
        help=f"of a plain conversation: auto (default), {', '.join(dialects)}",
    )
    parser.epilog = _IMPORT


def _add_delete(parser: argparse.ArgumentParser, _dialects: Sequence[str]) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _add_expire(parser: argparse.ArgumentParser, _dialects: Sequence[str]) -> None:
    parser.add_argument(
        "--days",
        metavar="N",
        type=whole_number,
        help="not used for so many days; default: store.retention_days",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would go, and delete nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _add_handle(parser: argparse.ArgumentParser, _dialects: Sequence[str]) -> None:
    parser.add_argument("handle", metavar="HANDLE", help="the message, such as m14")


_ADD: dict[str, Callable[[argparse.ArgumentParser, Sequence[str]], None]] = {
    "list": _add_list,
    "show": _add_show,
    "export": _add_export,
    "import": _add_import,
    "delete": _add_delete,
    "expire": _add_expire,
    "pin": _add_handle,
    "unpin": _add_handle,
}


def whole_number(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0
    if not 1 <= number <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {_MOST:,}")
    return number
