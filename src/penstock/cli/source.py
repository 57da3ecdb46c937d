"""The input of a command: the bytes, the conversation in them, the settings, and the request that follows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.cli.options import Share
from penstock.cli.progress import ProgressLine
from penstock.config import load_settings
from penstock.conversation.document import Document, read_document
from penstock.conversation.opening import open_list
from penstock.conversation.wire import json_text
from penstock.errors import InputError
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import system_tokens, tools_tokens, weigh

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from penstock.measure.tokens import Tokenizer
    from penstock.settings import Settings

__all__ = [
    "Given",
    "RequestOverhead",
    "beside_tokens",
    "read_bytes",
    "read_input",
    "settings_of",
    "target_tokens",
]


class Given(msgspec.Struct, frozen=True, eq=False):
    """The input of a command. `system` and `tools` are what stands beside the messages."""

    data: bytes
    document: Document
    settings: Settings
    model: str | None
    system: str
    tools: list[Any]


def read_input(args: argparse.Namespace) -> Given:
    """Reads the file, or standard input for `-`. Raises InputError if it cannot be read, and SettingsError."""
    settings = settings_of(args)
    with ProgressLine("reading"):
        data = read_bytes(args.file)
        document = read_document(data, args.dialect)
    envelope = document.envelope
    named = envelope.get("model")
    return Given(
        data=data,
        document=document,
        settings=settings,
        model=_model(args, named if isinstance(named, str) else None),
        system=_system(envelope),
        tools=_tools(envelope.get("tools")),
    )


def _model(args: argparse.Namespace, named: str | None) -> str | None:
    """Returns the model that the conversation is for.

    One that writes the handoff counts only if no other is known.
    """
    return args.model or named or getattr(args, "summary_model", None)


class RequestOverhead(NamedTuple):
    """Tokens of a request that are not in the list of messages."""

    system: int
    tools: int


def beside_tokens(given: Given, tokenizer: Tokenizer) -> RequestOverhead:
    """Returns the tokens beside the messages, weighed as the engine weighs them.

    Raises InputError for a schema that is not JSON.
    """
    return RequestOverhead(system_tokens(given.system, tokenizer), tools_tokens(given.tools, tokenizer))


def settings_of(args: argparse.Namespace) -> Settings:
    """Returns the settings, with `--config` and `--set` applied."""
    return load_settings(Path(args.config) if args.config else None, flags=dict(args.settings))


def read_bytes(name: str) -> bytes:
    """Returns the bytes of a file, or of standard input for `-`. Raises InputError."""
    if name == "-":
        return _read_stdin()
    if not name:
        raise InputError("the path is empty: give a file, or - for standard input")
    path = Path(name)
    try:
        if path.is_dir():
            raise InputError("this is a folder: give one file of it, or - for standard input")
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError("there is no such file: check the path, or give - for standard input") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"the file cannot be read: {reason}; check its name and permissions") from None


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise InputError("it is closed: give a file, or pipe a conversation into the command")
    if sys.stdin.isatty() and sys.stderr is not None:
        print("penstock: reading the terminal; end with Ctrl-D, leave with Ctrl-C", file=sys.stderr)
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise InputError(f"it cannot be read: {error.strerror}; give a file instead") from None


def _system(envelope: Mapping[str, Any]) -> str:
    """Returns the system prompt beside the messages, as the text that is weighed."""
    for name in ("system", "instructions"):
        value = envelope.get(name)
        if value and isinstance(value, (str, list)):
            return value if isinstance(value, str) else json_text(value)
    return ""


def _tools(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError("the field 'tools' must be a list of tool schemas: correct or remove it")
    return value


def target_tokens(wanted: int | Share | None, given: Given) -> int | None:
    """Returns the typed target in tokens.

    A share is one of what a compaction counts: the opened list, without the other parts of a request.
    """
    if not isinstance(wanted, Share):
        return wanted
    document = given.document
    opened = open_list(document.messages, document.wires, document.dialect, origins=document.raws)
    total = sum(weigh(opened.messages, tokenizer_for(given.model)))
    return max(1, int(total * wanted.of_tokens))
