"""Values that can be typed, and options that several commands share. As light as `penstock.cli.parser`, which uses it."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from typing import NamedTuple

__all__ = [
    "DIALECT_NAMES",
    "Share",
    "add_context_length",
    "add_counted_model",
    "add_dialect",
    "add_model_access",
    "add_shared",
    "add_store",
    "carry_store",
    "excerpt_size",
    "key_and_value",
    "past_moment",
    "percentage",
    "port_number",
    "seconds",
    "seed",
    "target",
    "tell_of_model",
    "token_count",
    "whole_number",
]

DIALECT_NAMES = ("chat", "responses", "anthropic", "sharegpt")

_TOKENS = re.compile(
    r"(\d{1,3}(?:[,_]\d{3})+|\d{1,12})(?:([km]?)|\.(\d{1,6})([km]))", re.IGNORECASE | re.ASCII
)
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
_PERCENT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?%", re.ASCII)
_WHOLE_PERCENT = 100
_AGO = re.compile(r"(\d{1,5}) ?([hdw])", re.IGNORECASE | re.ASCII).fullmatch
_AGO_SECONDS = {"h": 3_600, "d": 86_400, "w": 7 * 86_400}
_MOST = 1_000_000


class Share(NamedTuple):
    """A share of the conversation's tokens, above 0 and at most 1."""

    of_tokens: float


_ON_STORES = re.compile(
    r"\bpenstock (?:sessions (?:list|show|export|import|delete|expire|undo|pin|unpin)|bench (?:recall|replay)|search|usage|"
    r"insights|doctor|chat|keys (?:create|list|revoke|delete-data|rotate-seal))\b(?! --store)"
)
_PASSWORD = re.compile(r"(://[^/@:]*):[^@]*@")


def carry_store(text: str, args: argparse.Namespace | None) -> str:
    """Returns the text with `--store` and its like added to every command in it that works on a store.

    So a suggested command finds the same store. If the settings name the store, no option is needed. Passwords are not shown.
    """
    found = [("--store", store)] if (store := getattr(args, "store", None)) else []
    if config := getattr(args, "config", None):
        found.append(("--config", config))
    found += [
        ("--set", f"{key}={value}") for key, value in getattr(args, "settings", ()) if key == "store.url"
    ]
    shown = [(option, _PASSWORD.sub(r"\1:PASSWORD@", value)) for option, value in found]
    options = "".join(f" {option} {shlex.quote(value)}" for option, value in shown)
    return _ON_STORES.sub(lambda command: command[0] + options, text) if options else text


# Values. Each raises ArgumentTypeError with a text that names the value and gives an example.


def token_count(text: str) -> int:
    """Reads a number of tokens, at least 1: `20000`, `20_000`, `20,000`, `20k`, `6.5k`, `1m`."""
    found = _TOKENS.fullmatch(text.strip())
    number = rest = 0
    if found:
        whole, unit, decimals = re.sub("[,_]", "", found[1]), found[2] or found[4] or "", found[3] or ""
        number, rest = divmod(int(whole + decimals) * _UNITS[unit.lower()], 10 ** len(decimals))
    if number < 1 or rest:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of tokens: give a whole number of at least 1, such as 20000 or 20k"
        )
    return number


def target(text: str) -> int | Share:
    """Reads a target: a number of tokens as in `token_count`, or a share such as `20%` or `12.5%`."""
    if not text.strip().endswith("%"):
        try:
            return token_count(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}, or a share such as 20%") from None
    found = _PERCENT.fullmatch(text.strip())
    percent = float(found[1]) if found else 0.0
    if not 0 < percent <= _WHOLE_PERCENT:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a share of the conversation: give more than 0% and at most 100%, such as 20%"
        )
    return Share(percent / _WHOLE_PERCENT)


def whole_number(text: str, least: int = 1) -> int:
    """Reads a whole number of at least 1, or `least`."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0
    if not least <= number <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {_MOST:,}")
    return number


def excerpt_size(text: str) -> int:
    """Reads the length of an excerpt in characters: in fewer than 100, hardly any line fits."""
    return whole_number(text, least=100)


def past_moment(text: str) -> float:
    """Reads a date in local time, or how long ago: hours, days or weeks. Returns seconds since 1970."""
    import datetime as dt  # noqa: PLC0415 - only where it is asked for
    import time  # noqa: PLC0415

    if found := _AGO(text.strip()):
        return time.time() - int(found[1]) * _AGO_SECONDS[found[2].lower()]
    try:
        return dt.datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: give a date such as 2026-03-01, or 12h, 7d, 2w"
        ) from None


def port_number(text: str) -> int:
    """Reads a port number; 0 means any free port."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else -1
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a whole number from 0 to 65535")
    return number


def percentage(text: str) -> float:
    """Reads a percentage above 0, with or without its sign."""
    value = _read_number(text)
    if not 0 < value <= _WHOLE_PERCENT:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a percentage: give more than 0 and at most 100, such as 5"
        )
    return value


def seconds(text: str) -> float:
    """Reads a number of seconds above 0."""
    value = _read_number(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0, such as 60")
    return value


def seed(text: str) -> int:
    """Reads the seed of a random choice."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _read_number(text: str) -> float:
    try:
        return float(text.strip().removesuffix("%"))
    except ValueError:
        return -1.0


def key_and_value(text: str) -> tuple[str, str]:
    """Reads the two sides of KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        # The text may hold a secret where the key was forgotten, so it is not shown.
        raise argparse.ArgumentTypeError("give KEY=VALUE, such as compression.threshold=0.6")
    return key.strip(), value


# Options.


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Adds the options of every command except `trajectories`."""
    parser.add_argument("--json", action="store_true", help="report as JSON")
    parser.add_argument("--config", metavar="FILE", help="settings file to use instead of the default")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="settings",
        action="append",
        type=key_and_value,
        default=[],
        help="change one setting, such as compression.protect_last_n=8; can be repeated",
    )
    parser.add_argument("--debug", action="store_true", help="show a traceback when something fails")


def add_store(parser: argparse.ArgumentParser) -> None:
    """Adds the option that says where conversations are stored."""
    parser.add_argument(
        "--store",
        metavar="URL",
        help="sqlite:///FILE or postgresql://HOST/NAME; default: store.url, else the user's data folder",
    )


def add_context_length(parser: argparse._ActionsContainer) -> None:
    """Adds the option for the size of the model's window."""
    parser.add_argument(
        "--context-length",
        metavar="N",
        type=token_count,
        help="size of the model's window in tokens; default: looked up by the model's name",
    )


def add_dialect(parser: argparse._ActionsContainer, about: str = "") -> None:
    """Adds the option for the dialect of the input."""
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        choices=("auto", *DIALECT_NAMES),
        default="auto",
        help=f"{about}auto (default), {', '.join(DIALECT_NAMES)}",
    )


def add_counted_model(parser: argparse._ActionsContainer, text: str) -> None:
    """Adds `--model`: the model that the conversation is for, by whose tokenizer and window it is counted."""
    parser.add_argument("--model", metavar="NAME", help=text)


def tell_of_model(model: str | None, summary_model: str | None) -> None:
    """Explains on standard error, if only `--model` was given, that it no longer names the model that writes."""
    if model and not summary_model and sys.stderr is not None:
        print(
            "penstock: --model names the model whose tokenizer and window apply; to have a model write the summary, use "
            "--summary-model",
            file=sys.stderr,
        )


def add_model_access(
    group: argparse._ActionsContainer, about_model: str, provider: str, prefix: str = ""
) -> None:
    """Adds the options that name a model and say how to reach it; `prefix` begins the name of each."""
    group.add_argument(f"--{prefix}model", metavar="NAME", help=about_model)
    group.add_argument(f"--{prefix}provider", metavar="NAME", help=provider)
    group.add_argument(f"--{prefix}base-url", metavar="URL", help="any server with the provider's API")
    group.add_argument(
        f"--{prefix}api-key-env",
        metavar="VARIABLE",
        help="the environment variable that holds the key; default: the provider's own",
    )
