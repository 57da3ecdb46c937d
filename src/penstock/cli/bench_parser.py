"""What can be typed for `penstock bench`. As light as `penstock.cli.parser`, which uses it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.store_parser import add_store, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BENCHES", "BENCH_COMMANDS", "add_bench"]

BENCH_COMMANDS = {"bench": "measure on your own sessions"}
BENCHES = {
    "recall": "show how often a search brings back what a small view leaves out",
    "replay": "show what past sessions would have cost with compactions at other moments",
}
_RECALL = """\
Each conversation is cut where just over half of it has passed. Values (paths, names, ids, numbers) that the assistant uses
after the cut, that nobody told again, and that a view of 10 % lacks, are searched for by the 300 characters before their
use and the 500 before those, without the value. Found is what stands in an excerpt of at most 1,200 characters.
"""
_REPLAY = """\
Without --traces, the conversations of the store are replayed, by what their requests used. A trace file holds a JSON
object a line, plain or gzipped: "id" and "requests", each a list of tool result tokens appended, other tokens
appended, output tokens, seconds since the previous request, and 1 if a user message came in.

Every policy compacts in the same way; only the moment differs. What counts is the price, not the quality of the work.
"""


def add_bench(
    parser: argparse.ArgumentParser,
    tokens: Callable[[str], int],
    add_shared: Callable[[argparse.ArgumentParser], None],
) -> None:
    """The benchmarks of `penstock bench` and their options. `tokens` reads a number of tokens."""
    benches = parser.add_subparsers(dest="bench", required=True, metavar="BENCHMARK", title="benchmarks")
    add = {"recall": _add_recall, "replay": _add_replay}
    for name, text in BENCHES.items():
        bench = benches.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add[name](bench, tokens)
        add_store(bench)
        add_shared(bench)


def _add_recall(parser: argparse.ArgumentParser, _tokens: Callable[[str], int]) -> None:
    parser.epilog = _RECALL
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="files of conversations in place of the store"
    )
    parser.add_argument("--session", metavar="ID", help="one conversation of the store; default: all")
    parser.add_argument(
        "--limit", metavar="N", type=whole_number, help="the N conversations used last; default: all"
    )


def _add_replay(parser: argparse.ArgumentParser, tokens: Callable[[str], int]) -> None:
    parser.epilog = _REPLAY
    parser.add_argument(
        "--traces",
        metavar="FILE",
        nargs="+",
        help="trace files or folders of them in place of the store; - for standard input",
    )
    parser.add_argument("--session", metavar="ID", help="one conversation of the store; default: all")
    parser.add_argument(
        "--limit", metavar="N", type=whole_number, help="the N conversations used last; default: all"
    )
    parser.add_argument(
        "--recall",
        action="store_true",
        help="also compact the conversations of the store at those moments, and show how much of what the agent used "
        "later was kept; takes one window and one kind of cache, and a while",
    )
    parser.add_argument(
        "--window",
        metavar="N",
        nargs="+",
        type=tokens,
        default=[128_000, 200_000, 1_000_000],
        help="windows in tokens (default 128k 200k 1m)",
    )
    parser.add_argument(
        "--cache",
        metavar="NAME",
        nargs="+",
        choices=("5m", "1h", "automatic", "none"),
        default=["5m", "1h", "automatic", "none"],
        help="how prompts are cached: 5m and 1h by marks, automatic as at OpenAI, none (default: all four)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="whose prices hold; default: the model used most, else claude-opus-4-8",
    )
    parser.add_argument(
        "--handoff-tokens", metavar="N", type=tokens, default=10_000, help="tokens of a handoff (default 10k)"
    )
    parser.add_argument(
        "--tail-tokens",
        metavar="N",
        type=tokens,
        default=20_000,
        help="tokens that stay behind it (default 20k)",
    )
    parser.add_argument(
        "--static-tokens",
        metavar="N",
        type=tokens,
        default=18_000,
        help="system prompt and tools, for traces, which do not hold them (default 18k)",
    )
    parser.add_argument(
        "--summary-tokens",
        metavar="N",
        type=tokens,
        default=0,
        help="tokens of the handoff that a model writes; default: none is asked",
    )
