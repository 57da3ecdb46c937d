"""What can be typed: the commands of `penstock` and their options.

Nothing of the engine is imported here, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from penstock import __version__
from penstock.cli.layout import printable
from penstock.cli.store_parser import STORE_COMMANDS, add_sessions, add_store, add_stored, whole_number
from penstock.cli.trajectory_parser import TRAJECTORIES, add_trajectories

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "BENCHES",
    "BENCH_COMMANDS",
    "CHAT_COMMANDS",
    "COMMANDS",
    "DIALECT_NAMES",
    "Share",
    "add_bench",
    "add_chat",
    "build_parser",
    "key_and_value",
    "target",
    "token_count",
]


# What can be typed for `penstock chat`. As light as `penstock.cli.parser`, which uses it.

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


# What can be typed for `penstock bench`. As light as `penstock.cli.parser`, which uses it.

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
    benches = parser.add_subparsers(dest="action", required=True, metavar="BENCHMARK", title="benchmarks")
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


DIALECT_NAMES = ("chat", "responses", "anthropic", "sharegpt")

COMMANDS = {
    "compress": "make a conversation smaller",
    "explain": "say what would become of each message, and why",
    "tokens": "show what fills the window",
    **CHAT_COMMANDS,
    **TRAJECTORIES,
    **STORE_COMMANDS,
    **BENCH_COMMANDS,
    "engines": "show the engines there are and which one is active",
    "config": "show the settings and where each comes from",
}

_EXAMPLES = """\
examples:
  penstock compress session.json --target-tokens 20000 -o smaller.json
  penstock compress session.json --target-tokens 20% --model claude-haiku-4-5 -o smaller.json
  cat session.jsonl | penstock compress - --context-length 200k > smaller.jsonl
  penstock explain session.json --target-tokens 20%
  penstock explain session.json --handle m14
  penstock tokens session.json --model gpt-4.1
  penstock sessions import ~/.claude/projects
  penstock sessions list
  penstock chat --resume
  git diff | penstock chat -p "Review this change."
  penstock trajectories runs.jsonl.gz runs.15k.jsonl.gz --metrics runs.metrics.json
"""

_EXITS = """\
exit codes:
  0 done, also when there was nothing to do     3 the target is too small
  1 a fault in Penstock, or found by doctor     130 interrupted
  2 bad input, bad usage, or no way to write    141 the reader of a pipe went away
  4 the model gave no answer (chat)
"""

_REPORT = """\
Without -o the compressed conversation goes to standard output and the report to standard error. With -o the
report goes to standard output. The result has the shape of the input; messages that are kept have the same bytes.
"""

_WRITER = """\
A model's words say what excerpts cannot; facts are copied and checked by Penstock. Turns are sent without secrets.
"""

_TOKENS = re.compile(r"(\d{1,3}(?:[,_]\d{3})+|\d{1,12})([km]?)", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
_PERCENT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?%", re.ASCII)
_WHOLE_PERCENT = 100


class Share(NamedTuple):
    """A share of the conversation's tokens, above 0 and at most 1."""

    of_tokens: float


class _Parser(argparse.ArgumentParser):
    """Answers a mistake with one line that ends in the next step. Options may stand anywhere, also between arguments."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        for action in self._get_positional_actions():
            # An argument that may be left out was taken to be when an option came before it.
            if action.nargs == argparse.OPTIONAL and getattr(found, action.dest, None) == action.default:
                word = next((word for word in rest if not word.startswith("-")), None)
                if word is not None:
                    rest.remove(word)
                    setattr(found, action.dest, word)
        return found, rest

    def error(self, message: str) -> NoReturn:
        text = message.removeprefix("argument ")
        self.exit(2, f"penstock: {printable(text)}; see {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    parser = _Parser(
        prog="penstock",
        description="Keep an LLM agent's conversation inside its window without losing what matters.",
        epilog=f"{_EXAMPLES}\n{_EXITS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    parsers = {
        name: commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for name, text in COMMANDS.items()
    }
    for name, option in (("compress", "--for-model"), ("explain", "--model"), ("tokens", "--model")):
        _add_input(parsers[name])
        _add_model(parsers[name], option)
    _add_output(parsers["compress"])
    _add_writer(parsers["compress"])
    _add_reading(parsers["explain"])
    for name in ("compress", "explain"):
        goal = parsers[name].add_mutually_exclusive_group()
        _add_target(goal)
        _add_window(goal)
        parsers[name].add_argument("--focus", metavar="TOPIC", help="a topic to keep in more detail")
    _add_window(parsers["tokens"])
    add_stored(parsers)
    add_sessions(parsers["sessions"], DIALECT_NAMES, _add_shared)
    add_bench(parsers["bench"], token_count, _add_shared)
    for name, each in parsers.items():
        if name in STORE_COMMANDS and name != "sessions":
            add_store(each)
        if name not in ("sessions", "bench", "trajectories", "chat"):
            _add_shared(each)
    add_trajectories(parsers["trajectories"], token_count)
    add_chat(parsers["chat"], token_count, _add_shared)
    return parser


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        help="an array of messages, a request body, or one message per line; - for standard input",
    )
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        choices=("auto", *DIALECT_NAMES),
        default="auto",
        help=f"auto (default), {', '.join(DIALECT_NAMES)}",
    )


def _add_model(parser: argparse.ArgumentParser, option: str) -> None:
    parser.add_argument(
        option, metavar="NAME", help="decides tokenizer and window; default: the one the input names"
    )


def _add_writer(parser: argparse.ArgumentParser) -> None:
    writer = parser.add_argument_group("a model for the handoff", _WRITER)
    writer.add_argument(
        "--model", metavar="NAME", help="the model that writes the prose; without it, none is asked"
    )
    writer.add_argument(
        "--provider",
        metavar="NAME",
        help="openai, responses, anthropic, openrouter, ollama and others; default: by the model's name",
    )
    writer.add_argument("--base-url", metavar="URL", help="any server that speaks like the provider")
    writer.add_argument(
        "--api-key-env",
        metavar="VARIABLE",
        help="the variable that holds the key; default: the provider's own",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to write the result: all of it or nothing; folders are made",
    )
    parser.epilog = _REPORT


def _add_reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--all", action="store_true", help="a line for each message, also where many have the same fate"
    )
    parser.add_argument(
        "--handle",
        metavar="HANDLE",
        help="show the original that has this handle, such as m14, and nothing else; with --json its exact bytes",
    )


def _add_target(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--target-tokens",
        metavar="N",
        type=target,
        help="tokens of the result at most, system messages included (20000, 20_000, 20k), "
        "or a share of the conversation's tokens (20%%)",
    )


def _add_window(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--context-length",
        metavar="N",
        type=token_count,
        help="tokens of the model's window; default: what is known of the model",
    )


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="report as JSON")
    parser.add_argument("--config", metavar="FILE", help="settings file instead of the usual one")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="settings",
        action="append",
        type=key_and_value,
        default=[],
        help="one setting, for example compression.protect_last_n=8; may be given again",
    )
    parser.add_argument("--debug", action="store_true", help="show a traceback when something fails")


def token_count(text: str) -> int:
    """A number of tokens: `20000`, `20_000`, `20,000`, `20k`, `1m`. At least 1."""
    found = _TOKENS.fullmatch(text.strip())
    number = int(re.sub("[,_]", "", found[1])) * _UNITS[found[2].lower()] if found else 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of tokens: give a whole number of at least 1, such as 20000 or 20k"
        )
    return number


def target(text: str) -> int | Share:
    """A target: a number of tokens as in `token_count`, or a share such as `20%` or `12.5%`."""
    if not text.strip().endswith("%"):
        try:
            return token_count(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}, or a share such as 20%") from None
    found = _PERCENT.fullmatch(text.strip())
    percent = float(found[1]) if found else 0.0
    if not 0 < percent <= _WHOLE_PERCENT:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no share of the conversation: give more than 0% and at most 100%, such as 20%"
        )
    return Share(percent / _WHOLE_PERCENT)


def key_and_value(text: str) -> tuple[str, str]:
    """The two sides of KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        # The text may hold a secret where the key was forgotten, so it is not shown.
        raise argparse.ArgumentTypeError("give KEY=VALUE, such as compression.threshold=0.6")
    return key.strip(), value
