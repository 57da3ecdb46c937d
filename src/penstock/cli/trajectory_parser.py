"""The options of `penstock trajectories`. As light as `penstock.cli.parser`, which uses it.

Options that a file may give have no default here: what was typed wins, then the file, then the default that the help
names.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.store_parser import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TRAJECTORIES", "add_trajectories"]

TRAJECTORIES = {"trajectories": "bring training trajectories within a token budget, no row lost"}

_TEXT = """\
INPUT is a file or a folder of ShareGPT or chat rows: .jsonl, .jsonl.gz, .jsonl.zst or .parquet. OUTPUT has the same
files, rows, order and columns. Rows that are small enough, and lines that cannot be read, are copied byte for byte.
What is done stands in OUTPUT.parts until the output is whole: after a kill, the same command with --resume goes on.
"""
_MODEL = """\
Without a model, summaries are made of excerpts. Where a model fails or is late, excerpts stand in its place, and the
row is marked with the reason.
"""


def add_trajectories(parser: argparse.ArgumentParser, token_count: Callable[[str], int]) -> None:
    """The arguments and options of the command."""
    parser.epilog = _TEXT
    parser.add_argument("file", metavar="INPUT", help="a file or a folder")
    parser.add_argument("output", metavar="OUTPUT", nargs="?", help="a file or a folder; not for --dry-run")
    _add_algorithm(parser, token_count)
    _add_model(parser)
    parser.add_argument("--workers", metavar="N", type=whole_number, help="processes (default: all cores)")
    parser.add_argument(
        "--sample-percent",
        metavar="P",
        type=_percent,
        help="a share of the rows, chosen by chance, and no others",
    )
    parser.add_argument("--seed", metavar="N", type=_seed, help="of that chance (default 0)")
    parser.add_argument(
        "--dry-run", action="store_true", default=None, help="all figures, and nothing is written"
    )
    parser.add_argument("--config", metavar="FILE", help="a YAML file with any of these options")
    parser.add_argument(
        "--engine", choices=("local", "ray"), help="local (default), or ray for more machines"
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="a Ray cluster that runs: auto, or HOST:PORT (default: one is started on this machine)",
    )
    parser.add_argument("--metrics", metavar="FILE", help="the figures of every row and in total, as JSON")
    parser.add_argument(
        "--report", metavar="FILE", help="a page about the run: distributions, worst rows, samples"
    )
    parser.add_argument("--resume", action="store_true", help="go on with what an earlier run had done")
    parser.add_argument("--json", action="store_true", help="report as JSON")
    parser.add_argument("--debug", action="store_true", help="show a traceback when something fails")


def _add_algorithm(parser: argparse.ArgumentParser, token_count: Callable[[str], int]) -> None:
    parser.add_argument(
        "--target-tokens", metavar="N", type=token_count, help="tokens of a row at most (default 15250)"
    )
    parser.add_argument(
        "--summary-tokens", metavar="N", type=token_count, help="tokens of a summary at most (default 750)"
    )
    parser.add_argument(
        "--keep-last", metavar="N", type=whole_number, help="turns at the end that stay (default 4)"
    )
    parser.add_argument(
        "--passes",
        metavar="N",
        type=whole_number,
        help="further passes keep fewer turns at the end of rows that are still too large (default 1)",
    )
    parser.add_argument(
        "--system-note",
        action="store_true",
        default=None,
        help="say in the system turn that turns may be summarised",
    )
    parser.add_argument(
        "--tokenizer", metavar="NAME", help="o200k (default), cl100k, or the path of a tokenizer.json"
    )
    parser.add_argument(
        "--column", metavar="NAME", help="the column with the turns (default: conversations, messages)"
    )
    parser.add_argument(
        "--per-turn",
        metavar="NAME",
        action="append",
        help="a column with one entry for each turn, cut as the turns are; may be given again",
    )


def _add_model(parser: argparse.ArgumentParser) -> None:
    writer = parser.add_argument_group("a model for the summaries", _MODEL)
    writer.add_argument("--model", metavar="NAME", help="the model that writes summaries")
    writer.add_argument("--provider", metavar="NAME", help="openai, anthropic, openrouter, ollama and others")
    writer.add_argument("--base-url", metavar="URL", help="any server that speaks like the provider")
    writer.add_argument("--api-key-env", metavar="VARIABLE", help="the variable that holds the key")
    writer.add_argument(
        "--concurrency", metavar="N", type=whole_number, help="rows that wait for it at once (default 16)"
    )
    writer.add_argument(
        "--timeout", metavar="SECONDS", type=_seconds, help="what one row may take (default 120)"
    )


def _percent(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a share: give a number above 0 and up to 100, such as 5"
        )
    return value


def _seconds(text: str) -> float:
    value = _number(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: give seconds above 0, such as 60")
    return value


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text.strip().removesuffix("%"))
    except ValueError:
        return -1.0
