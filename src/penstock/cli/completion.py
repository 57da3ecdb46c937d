"""`penstock completion`: a shell script that completes commands and options; and the man page, from the same parser."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.cli.output import write_stdout
from penstock.cli.parser import build_parser
from penstock.errors import SettingsError, name_install

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["run", "write_manual"]

_FILES = frozenset({"FILE", "INPUT", "OUTPUT"})  # what is completed with names of files


def run(args: argparse.Namespace) -> int:
    """Prints the completion script for a shell. Raises SettingsError if the package that writes it is not installed."""
    try:
        shtab: Any = import_module("shtab")  # an extra
    except ImportError:
        raise SettingsError(f"completion needs the package shtab: {name_install('completion')}") from None
    parser = build_parser()
    for one in _parsers(parser):
        for action in one._actions:  # noqa: SLF001 - the only way to ask a parser what it knows
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
    script: str = shtab.complete(parser, shell=args.shell)
    write_stdout(script.encode())
    return 0


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields the parser and those of its commands, in their order."""
    yield parser
    for action in parser._actions:  # noqa: SLF001 - as above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no other name for it
            for inner in action.choices.values():
                yield from _parsers(inner)


def write_manual() -> str:
    """Returns the man page: every command with its options, the examples and the exit codes."""
    parser = build_parser()
    examples, _, exits = (parser.epilog or "").partition("exit codes:\n")
    lines = [
        f'.TH PENSTOCK 1 "" "penstock {__version__}" "User Commands"',
        ".SH NAME",
        f"penstock \\- {_escape((parser.description or '').rstrip('.'))}",
        ".SH SYNOPSIS",
        ".B penstock",
        ".I COMMAND",
        "[options]",
        ".SH COMMANDS",
    ]
    for one in _parsers(parser):
        if one is not parser and not _has_commands(one):
            lines += _command_lines(one)
    lines += [".SH EXAMPLES", *_verbatim(examples.removeprefix("examples:\n"))]
    lines += [".SH EXIT STATUS", *_verbatim(exits)]
    return "\n".join(lines) + "\n"


def _has_commands(parser: argparse.ArgumentParser) -> bool:
    return any(isinstance(one, argparse._SubParsersAction) for one in parser._actions)  # noqa: SLF001 - as above


def _command_lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f'.SS "{parser.prog}"'
    yield _escape(parser.description or "")
    for action in parser._actions:  # noqa: SLF001 - as above
        if action.help in (None, argparse.SUPPRESS) or action.dest == "help":
            continue
        names = ", ".join(action.option_strings) or str(action.metavar)
        value = f" \\fI{_escape(str(action.metavar))}\\fR" if action.option_strings and action.metavar else ""
        yield ".TP"
        yield f"\\fB{_escape(names)}\\fR{value}"
        yield _escape(parser._get_formatter()._expand_help(action))  # noqa: SLF001 - as above
    if parser.epilog:
        yield ".PP"
        yield from map(_escape, parser.epilog.strip().splitlines())


def _verbatim(text: str) -> list[str]:
    return [".nf", *map(_escape, text.strip("\n").splitlines()), ".fi"]


def _escape(line: str) -> str:
    """Returns the line for troff: hyphens that can be copied, and no line that is taken for a request."""
    text = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
