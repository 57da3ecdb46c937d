"""What can be typed for `penstock chat`. As light as `penstock.cli.parser`, which uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.store_parser import add_store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["CHAT_COMMANDS", "add_chat"]

CHAT_COMMANDS = {"chat": "work with an agent at the terminal, for as long as you like"}

_ABOUT = """\
At a terminal it is a conversation; /help lists its commands. With -p, or with a prompt in a pipe, it answers once:
the answer goes to standard output, everything else to standard error.
"""
_LAST = ""  # --resume without an id: the conversation that was used last


def add_chat(
    parser: argparse.ArgumentParser,
    token_count: Callable[[str], int],
    add_shared: Callable[[argparse.ArgumentParser], None],
) -> None:
    """The options of `penstock chat`."""
    parser.epilog = _ABOUT
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="answer this and leave; for scripts")
    parser.add_argument(
        "--resume",
        metavar="ID",
        nargs="?",
        const=_LAST,
        help="go on with a conversation: its id or the beginning of it; without one, that of last time",
    )
    parser.add_argument("--yes", action="store_true", help="allow every command and every write unasked")
    model = parser.add_argument_group(
        "the model",
        "Without any of these: model.name of the settings, else the provider whose key is set, else the model on this "
        "machine.",
    )
    model.add_argument("--model", metavar="NAME", help="as the provider calls it")
    model.add_argument(
        "--provider",
        metavar="NAME",
        help="openai, responses, anthropic, openrouter, ollama and others, or local; default: by the model's name",
    )
    model.add_argument("--base-url", metavar="URL", help="any server that speaks like the provider")
    model.add_argument(
        "--api-key-env",
        metavar="VARIABLE",
        help="the variable that holds the key; default: the provider's own",
    )
    model.add_argument(
        "--context-length",
        metavar="N",
        type=token_count,
        help="tokens of the model's window; default: what is known of the model",
    )
    add_store(parser)
    add_shared(parser)
