"""The commands of `penstock` and their options.

Nothing of the engine is imported here, so that help and mistakes are answered at once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.cli.command_parser import CommandParser, HelpFormatter
from penstock.cli.options import (
    DIALECT_NAMES,
    add_context_length,
    add_counted_model,
    add_dialect,
    add_model_access,
    add_shared,
    add_store,
    excerpt_size,
    past_moment,
    percentage,
    port_number,
    seconds,
    seed,
    target,
    token_count,
    whole_number,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

__all__ = ["build_parser"]

_EXAMPLES = """\
examples:
  penstock compress session.json --target-tokens 20000 -o smaller.json
  penstock compress session.json --target-tokens 20% --summary-model gpt-5-mini
  cat session.jsonl | penstock compress - --context-length 200k > smaller.jsonl
  penstock explain session.json --target-tokens 20%
  penstock explain session.json --handle m14
  penstock tokens session.json --model gpt-4.1
  penstock sessions import ~/.claude/projects
  penstock sessions list
  penstock chat --resume
  git diff | penstock chat -p "Review this change."
  penstock serve --upstream https://api.openai.com/v1
  penstock wrap claude
  penstock trajectories runs.jsonl.gz runs.15k.jsonl.gz --report runs.html
"""

_EXITS = """\
exit codes:
  0 done, or nothing to do                    3 the target is too small
  1 a fault in Penstock, or found by doctor   130 interrupted
  2 bad input, bad usage, or cannot write     141 the output pipe was closed
  4 the model gave no answer (chat)           any other: the client's own (wrap)
"""


@cache
def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command, made once in a process."""
    parser = CommandParser(
        prog="penstock",
        description="Keep an LLM agent's conversation inside its window without losing what matters.",
        epilog=f"{_EXAMPLES}\n{_EXITS}",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    _add_parsers(commands, _COMMANDS)
    return parser


def _add_parsers(
    group: Any, commands: Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]]
) -> None:
    """Adds a parser for each name, with its text and its options."""
    for name, (text, add_options) in commands.items():
        add_options(
            group.add_parser(
                name,
                help=text,
                description=f"{text[0].upper()}{text[1:]}.",
                formatter_class=HelpFormatter,
                allow_abbrev=False,
            )
        )


# Commands on a file: compress, explain, tokens.

_REPORT = """\
Without -o the compressed conversation goes to standard output and the report to standard error. With -o the
report goes to standard output. The result has the shape of the input; messages that are kept have the same bytes.
"""
_WRITER = """\
A model's words say what excerpts cannot; facts are copied and checked by Penstock. Secrets are removed before turns
are sent.
"""
_PROVIDERS = "openai, responses, anthropic, openrouter, ollama and others"


def _add_compress(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _REPORT
    _add_input(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to write the result, all of it or nothing; missing folders are created",
    )
    writer = parser.add_argument_group("a model for the handoff", _WRITER)
    add_model_access(
        writer,
        "the model that writes the prose; default: no model is called",
        f"{_PROVIDERS}; default: by the model's name",
        "summary-",
    )
    _add_goal(parser)
    add_shared(parser)


def _add_explain(parser: argparse.ArgumentParser) -> None:
    _add_input(parser)
    parser.add_argument(
        "--all", action="store_true", help="one line per message, even if many have the same fate"
    )
    parser.add_argument(
        "--handle",
        metavar="HANDLE",
        help="show only the original with this handle, such as m14; with --json its exact bytes",
    )
    _add_goal(parser)
    add_shared(parser)


def _add_tokens(parser: argparse.ArgumentParser) -> None:
    _add_input(parser)
    add_context_length(parser)
    add_shared(parser)


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        help="an array of messages, a request body, or one message per line; - for standard input",
    )
    add_dialect(parser)
    add_counted_model(
        parser, "the model whose tokenizer and window apply; default: the one named in the input"
    )


def _add_goal(parser: argparse.ArgumentParser) -> None:
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument(
        "--target-tokens",
        metavar="N",
        type=target,
        help="maximum tokens in the result, including system messages (20000, 20_000, 20k), "
        "or a share of the conversation's tokens (20%%)",
    )
    add_context_length(goal)
    parser.add_argument("--focus", metavar="TOPIC", help="a topic to keep in more detail")


# chat

_CHAT = """\
At a terminal it is a conversation; /help lists its commands. With -p, or with a prompt in a pipe, it answers once:
the answer goes to standard output, everything else to standard error.
"""
_LAST = ""  # --resume without an id: the most recent conversation


def _add_chat(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _CHAT
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="answer this and exit; for scripts")
    parser.add_argument(
        "--resume",
        metavar="ID",
        nargs="?",
        const=_LAST,
        help="continue a conversation: its id or the beginning of it; without one, the most recent",
    )
    parser.add_argument(
        "--yes", action="store_true", help="allow every command and every write without asking"
    )
    parser.add_argument(
        "--log", metavar="FILE", help="append what happens to the context to a file: pressure, compactions"
    )
    model = parser.add_argument_group(
        "the model",
        "Without any of these: model.name from the settings, else the provider whose key is set, else the model on this "
        "machine.",
    )
    add_model_access(
        model, "the provider's name for it", f"{_PROVIDERS}, or local; default: by the model's name"
    )
    add_context_length(model)
    add_store(parser)
    add_shared(parser)


# serve

_SERVE = """\
Prints the address on standard output once it answers on /health; a client then needs one variable:
OPENAI_BASE_URL=http://HOST:PORT/v1 or ANTHROPIC_BASE_URL=http://HOST:PORT. On Ctrl-C or SIGTERM it finishes the
requests that are running, then exits.
"""


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _SERVE
    parser.add_argument(
        "--upstream",
        metavar="URL",
        help="the API to send requests to, such as https://api.openai.com/v1; default: gateway.upstreams",
    )
    parser.add_argument(
        "--local",
        action="store_true",
        help="without an upstream, use the bundled model on this machine, as penstock chat does",
    )
    parser.add_argument(
        "--host", metavar="HOST", help="address to listen on; default: gateway.host, 127.0.0.1"
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=port_number,
        help="port to listen on, 0 for any free one; default: gateway.port, 8787",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=whole_number,
        help="gateway processes that share the address, such as one per core; default: gateway.processes, 1",
    )
    parser.add_argument(
        "--summarise",
        metavar="HOW",
        help="what writes handoffs: extractive (default, no model), same (the request's own model, with the caller's "
        "key), or the URL of a model",
    )
    _add_abilities(parser)
    add_store(parser)
    add_shared(parser)


def _add_abilities(parser: argparse.ArgumentParser) -> None:
    """Adds the switches of the gateway's abilities beside compacting."""
    parser.add_argument(
        "--answer-client-compactions",
        action="store_true",
        default=None,
        help="if Claude Code, Codex or opencode asks a model for a summary of the conversation, answer with a handoff, without a model",
    )
    parser.add_argument(
        "--recall",
        action="store_true",
        default=None,
        help="give the model tools that find what was compacted; their calls are answered here and never reach the client",
    )


# dashboard

_DASHBOARD = """\
Prints an address for a browser on this machine; the token in it lets only you in. The pages show every conversation with its
pressure, transcript and compactions, a search, and usage. penstock serve has the same pages at its own address.
"""


def _add_dashboard(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _DASHBOARD
    parser.add_argument(
        "--port", metavar="N", type=port_number, default=0, help="port to listen on; default: any free one"
    )
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    _add_stored(parser)


# wrap

_WRAP = """\
Runs the client through the gateway at gateway.port of this machine, if that gateway proves that it uses your store, your
settings and the client's usual API; otherwise through one on a free port, which is started for this run and ends with it. The
client has the terminal, and the command exits with its exit code. Its configuration is not changed, and its own
credentials pass through. At the end, one line on standard error says what was saved.

examples:
  penstock wrap claude
  penstock wrap claude -- -p "Why does the build fail?" --model opus
  penstock wrap codex --print
  penstock wrap opencode --provider anthropic
  penstock wrap aider --upstream http://localhost:11434/v1 -- --model qwen3
"""
_WRAPPED = ("claude", "codex", "opencode", "aider")


def _add_wrap(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s CLIENT [options] [-- ARGUMENTS ...]"
    parser.epilog = _WRAP
    parser.set_defaults(arguments=[])
    parser.add_argument(
        "client",
        metavar="CLIENT",
        choices=_WRAPPED,
        help=f"{', '.join(_WRAPPED)}; its arguments follow --",
    )
    parser.add_argument(
        "--print",
        dest="show",
        action="store_true",
        help="show the variables and the command, and start nothing",
    )
    parser.add_argument(
        "--own",
        dest="join",
        action="store_false",
        help="start a gateway for this run, even if one like it is already running",
    )
    parser.add_argument(
        "--upstream",
        metavar="URL",
        help="the API to send requests to; default: gateway.upstreams, else the API that the client normally uses",
    )
    parser.add_argument(
        "--provider",
        metavar="NAME",
        help="codex and opencode: its provider to route through the gateway; default: its usual one",
    )
    parser.add_argument(
        "--program", metavar="PATH", help="the client's program; default: CLIENT, found on the PATH"
    )
    parser.add_argument(
        "--summarise", metavar="HOW", help="what writes handoffs: extractive, same, or the URL of a model"
    )
    _add_abilities(parser)
    add_store(parser)
    add_shared(parser)


# mcp

_MCP = """\
examples:
  claude mcp add penstock -- penstock mcp
  codex mcp add penstock -- penstock mcp
  penstock mcp --everywhere --http 8790
"""


def _add_mcp(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _MCP
    parser.add_argument(
        "--folder", metavar="PATH", help="conversations about this folder; default: the current one"
    )
    parser.add_argument("--everywhere", action="store_true", help="conversations about any folder")
    parser.add_argument(
        "--client",
        choices=("claude-code", "codex"),
        help="only what this program has recorded; default: both",
    )
    parser.add_argument("--session", metavar="ID", help="one conversation of the store")
    parser.add_argument(
        "--no-import", action="store_true", help="leave the sessions of Claude Code and Codex alone"
    )
    parser.add_argument(
        "--http",
        metavar="PORT",
        help="serve on http://127.0.0.1:PORT/mcp instead of standard input and output",
    )
    add_store(parser)
    add_shared(parser)


# trajectories. Options that a file may give have no default here: what was typed wins, then the file, then the
# default that the help names.

_TRAJECTORIES = """\
INPUT is a file or a folder of ShareGPT or chat rows: .jsonl, .jsonl.gz, .jsonl.zst or .parquet. OUTPUT has the same
files, rows, order and columns. Rows that are small enough, and lines that cannot be read, are copied byte for byte.
Finished work is kept in OUTPUT.parts until the output is complete: if the run is killed, the same command with --resume continues it.
"""
_SUMMARY_MODEL = """\
Without a model, summaries are made of excerpts. If a model fails or is late, excerpts take its place, and the row is
marked with the reason.
"""


def _add_trajectories(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _TRAJECTORIES
    parser.add_argument("file", metavar="INPUT", help="a file or a folder")
    parser.add_argument("output", metavar="OUTPUT", nargs="?", help="a file or a folder; not with --dry-run")
    _add_trajectory_limits(parser)
    writer = parser.add_argument_group("a model for the summaries", _SUMMARY_MODEL)
    add_model_access(
        writer,
        "the model that writes summaries",
        "openai, anthropic, openrouter, ollama and others",
        "summary-",
    )
    writer.add_argument(
        "--concurrency", metavar="N", type=whole_number, help="rows sent to it at the same time (default 16)"
    )
    writer.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, help="maximum seconds per row (default 120)"
    )
    parser.add_argument("--workers", metavar="N", type=whole_number, help="processes (default: all cores)")
    parser.add_argument(
        "--sample-percent",
        metavar="P",
        type=percentage,
        help="process only a random share of the rows",
    )
    parser.add_argument("--seed", metavar="N", type=seed, help="seed of the random choice (default 0)")
    parser.add_argument(
        "--dry-run", action="store_true", default=None, help="compute all figures, write nothing"
    )
    parser.add_argument("--config", metavar="FILE", help="a YAML file with any of these options")
    parser.add_argument(
        "--engine", choices=("local", "ray"), help="local (default), or ray for several machines"
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="a running Ray cluster: auto, or HOST:PORT (default: one is started on this machine)",
    )
    parser.add_argument(
        "--metrics", metavar="FILE", help="write the figures of every row and the totals, as JSON"
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write an HTML page about the run: distributions, worst rows, samples",
    )
    parser.add_argument("--resume", action="store_true", help="continue an earlier run")
    parser.add_argument("--overwrite", action="store_true", help="replace an output that exists")
    parser.add_argument(
        "--strict", action="store_true", default=None, help="exit code 3 if a row is still over the target"
    )
    parser.add_argument("--json", action="store_true", help="report as JSON")
    parser.add_argument("--debug", action="store_true", help="show a traceback when something fails")


def _add_trajectory_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target-tokens", metavar="N", type=token_count, help="maximum tokens per row (default 15250)"
    )
    parser.add_argument(
        "--summary-tokens", metavar="N", type=token_count, help="maximum tokens per summary (default 750)"
    )
    parser.add_argument(
        "--keep-last", metavar="N", type=whole_number, help="turns at the end that are kept (default 4)"
    )
    parser.add_argument(
        "--passes",
        metavar="N",
        type=whole_number,
        help="further passes keep fewer turns at the end of rows that are still too large (default 1)",
    )
    parser.add_argument(
        "--shorten-protected",
        action="store_true",
        default=None,
        help="cut the middle out of turns that must stay but are too large by themselves",
    )
    parser.add_argument(
        "--system-note",
        action="store_true",
        default=None,
        help="add a note to the system turn that some turns may be summaries",
    )
    parser.add_argument(
        "--note-text", metavar="TEXT", help="the text of that note, instead of the built-in one"
    )
    add_counted_model(parser, "the model whose tokenizer counts; default: o200k")
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="instead of --model: o200k, cl100k, or the path of a tokenizer.json",
    )
    parser.add_argument(
        "--column", metavar="NAME", help="the column with the turns (default: conversations, messages)"
    )
    parser.add_argument(
        "--per-turn",
        metavar="NAME",
        action="append",
        help="a column with one entry per turn, cut as the turns are; can be repeated",
    )


# sessions

_IMPORT = """\
The format is recognised from the content: sessions of Claude Code (all: ~/.claude/projects), rollouts of Codex (all: ~/.codex/sessions),
and conversations as an array, a request body or lines, one or many in a file. From a folder, all *.jsonl files are
imported, those in its subfolders too. Importing a file again adds only what is new.
"""


def _add_sessions(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Without an action, conversations are listed."
    parser.set_defaults(usual_action="list")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", title="actions")
    _add_parsers(actions, _SESSION_ACTIONS)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit", metavar="N", type=whole_number, default=20, help="number of conversations (default 20)"
    )
    _add_stored(parser)


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_id(parser)
    parser.add_argument(
        "--facts",
        action="store_true",
        help="show what was noted about messages that left the view, instead of the messages",
    )
    parser.add_argument(
        "--entity",
        metavar="NAME",
        help="show what is known now about a file (its path, or the end of it), a command, an order, a person or anything with an id; a kind such as file lists all of it, '*' everything",
    )
    parser.add_argument(
        "--handle",
        metavar="M",
        help="show one message (m12), summary (s1), node (n3) or stored result in full, or all messages that the handoff stands for (handoff)",
    )
    _add_stored(parser)


def _add_export(parser: argparse.ArgumentParser) -> None:
    _add_id(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write it; default: standard output")
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        choices=DIALECT_NAMES,
        help=f"convert to {', '.join(DIALECT_NAMES)}; losses are reported",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--log", action="store_true", help="every message of the conversation, byte for byte (default)"
    )
    which.add_argument(
        "--view", action="store_true", help="the messages that the next request would send to the model"
    )
    parser.add_argument(
        "--format",
        metavar="NAME",
        choices=("json", "jsonl", "md", "html"),
        default="json",
        help="json, an array (default); jsonl; or, to be read by people, the whole log with secrets redacted: md, or html in one file",
    )
    _add_stored(parser)


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _IMPORT
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="files or folders to import; - for standard input"
    )
    add_dialect(parser, "dialect of a plain conversation: ")
    _add_stored(parser)


def _add_delete(parser: argparse.ArgumentParser) -> None:
    _add_id(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    _add_stored(parser)


def _add_expire(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        metavar="N",
        type=whole_number,
        help="delete conversations not used for this many days; default: store.retention_days",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted, delete nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    _add_stored(parser)


def _add_undo(parser: argparse.ArgumentParser) -> None:
    _add_id(parser)
    _add_stored(parser)


def _add_pin(parser: argparse.ArgumentParser) -> None:
    _add_id(parser)
    parser.add_argument("handle", metavar="HANDLE", help="the message, such as m14")
    _add_stored(parser)


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a conversation's id, or the beginning of it")


def _add_stored(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_shared(parser)


_SESSION_ACTIONS = {
    "list": ("list conversations, the most recently used first", _add_list),
    "show": ("show a conversation with its sessions and compactions", _add_show),
    "export": ("write a conversation to a file", _add_export),
    "import": ("import conversations from files of Claude Code, Codex, or any dialect", _add_import),
    "delete": ("delete a conversation for good", _add_delete),
    "expire": ("delete conversations that have not been used for a long time", _add_expire),
    "undo": ("undo the last compaction", _add_undo),
    "pin": ("keep a message in full in later compactions", _add_pin),
    "unpin": ("stop keeping a message in full", _add_pin),
}


# Other commands on a store: search, usage, insights, doctor.


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "query", metavar="QUERY", nargs="+", help="words, names, paths or values; any of them may match"
    )
    parser.add_argument("--session", metavar="ID", help="one conversation; default: all")
    parser.add_argument(
        "--since",
        metavar="WHEN",
        type=past_moment,
        help="only what came later than a date such as 2026-03-01, or than 12h, 7d or 2w ago",
    )
    parser.add_argument("--role", choices=("user", "assistant", "tool"), help="only what this role said")
    parser.add_argument("--tool", metavar="NAME", help="only calls of this tool and their results")
    parser.add_argument(
        "--path",
        metavar="PATH",
        help="only what names this file, and results of calls that do; the end of the path is enough",
    )
    parser.add_argument(
        "--limit", metavar="N", type=whole_number, default=5, help="number of results (default 5)"
    )
    parser.add_argument(
        "--characters",
        metavar="N",
        type=excerpt_size,
        default=480,
        help="maximum characters per excerpt, at least 100 (default 480)",
    )
    _add_stored(parser)


def _add_usage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", help="one conversation; default: all")
    _add_stored(parser)


def _add_insights(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days", metavar="N", type=whole_number, default=30, help="how many days back (default 30)"
    )
    _add_stored(parser)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repair", action="store_true", help="repair what can be repaired")
    _add_stored(parser)


# keys

_KEYS = """\
The key is printed to standard output, once; the store has only a digest of it. Limits that are not given here are those
of the gateway's settings.
"""


def _add_keys(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", title="actions")
    _add_parsers(actions, _KEY_ACTIONS)


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _KEYS
    parser.add_argument("name", metavar="NAME", help="the person or program it is for, shown in lists")
    parser.add_argument(
        "--days", metavar="N", type=whole_number, help="it expires after this many days; default: never"
    )
    parser.add_argument(
        "--requests-per-minute", metavar="N", type=whole_number, help="maximum requests per minute"
    )
    parser.add_argument(
        "--tokens-per-day", metavar="N", type=token_count, help="maximum tokens per day (UTC), such as 5m"
    )
    parser.add_argument(
        "--requests-at-once", metavar="N", type=whole_number, help="maximum requests under way at once"
    )
    parser.add_argument(
        "--models", metavar="PATTERN", nargs="+", help="models that it may ask for, such as 'gpt-*'"
    )
    parser.add_argument(
        "--keep",
        choices=("full", "digests", "off"),
        help="what is kept of its conversations; never more than gateway.store allows",
    )
    parser.add_argument(
        "--retention-days",
        metavar="N",
        type=whole_number,
        help="its conversations are deleted when not used for this many days",
    )
    _add_stored(parser)


def _add_revoke(parser: argparse.ArgumentParser) -> None:
    _add_key_id(parser)
    _add_stored(parser)


def _add_key_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the key's id, or the beginning of it")


def _add_delete_data(parser: argparse.ArgumentParser) -> None:
    _add_key_id(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    _add_stored(parser)


_KEY_ACTIONS = {
    "create": ("make a key for callers of the gateway", _add_create),
    "list": ("list the keys by id, with their limits", _add_stored),
    "revoke": ("revoke a key; a running gateway refuses it within a second", _add_revoke),
    "delete-data": ("delete all conversations that came with a key, for good", _add_delete_data),
    "rotate-seal": (
        "make a new key to seal the handoffs that clients carry; older handoffs can still be opened",
        _add_stored,
    ),
}


# bench

_RECALL = """\
Each conversation is cut just after its middle. The benchmark takes the values (paths, names, ids, numbers) that the
assistant uses after the cut, that nobody has mentioned again by then, and that a view of 10 % lacks. It searches for each
with the 300 characters before its use and the 500 before those, without the value itself. A value counts as found if it
is in an excerpt of at most 1,200 characters.
"""
_REPLAY = """\
Without --traces, the conversations of the store are replayed, with the recorded usage of their requests. A trace file holds one JSON
object per line, plain or gzipped: "id" and "requests", each a list of tool result tokens appended, other tokens
appended, output tokens, seconds since the previous request, and 1 if a user message came in.

Every policy compacts in the same way; only the moment differs. The price is compared, not the quality of the work.
"""


def _add_engines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "step",
        nargs="?",
        metavar="ACTION",
        choices=("list", "enable"),
        default="list",
        help="list (default), or enable NAME",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the engine to use from now on")
    add_shared(parser)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    benches = parser.add_subparsers(dest="action", required=True, metavar="BENCHMARK", title="benchmarks")
    _add_parsers(benches, _BENCHES)


def _add_recall(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _RECALL
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="files of conversations instead of the store"
    )
    _add_selection(parser)
    _add_stored(parser)


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _REPLAY
    parser.add_argument(
        "--traces",
        metavar="FILE",
        nargs="+",
        help="trace files or folders of them instead of the store; - for standard input",
    )
    _add_selection(parser)
    parser.add_argument(
        "--recall",
        action="store_true",
        help="also compact the conversations of the store at those moments, and show how much of what the agent used "
        "later was kept; needs one window and one kind of cache, and takes a while",
    )
    parser.add_argument(
        "--window",
        metavar="N",
        nargs="+",
        type=token_count,
        default=[128_000, 200_000, 1_000_000],
        help="windows in tokens (default 128k 200k 1m)",
    )
    parser.add_argument(
        "--cache",
        metavar="NAME",
        nargs="+",
        choices=("5m", "1h", "automatic", "none"),
        default=["5m", "1h", "automatic", "none"],
        help="how prompts are cached: 5m and 1h with cache marks, automatic as OpenAI does, or none (default: all four)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="the model whose prices are used; default: the model used most, else claude-opus-4-8",
    )
    for option, default, text in (
        ("--handoff-tokens", 10_000, "tokens of a handoff (default 10k)"),
        ("--tail-tokens", 20_000, "tokens kept after it (default 20k)"),
        ("--static-tokens", 18_000, "system prompt and tools, which traces do not contain (default 18k)"),
        ("--summary-tokens", 0, "tokens of the handoff that a model writes; default: no model is called"),
    ):
        parser.add_argument(option, metavar="N", type=token_count, default=default, help=text)
    _add_stored(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--session", metavar="ID", help="one conversation of the store; default: all")
    parser.add_argument(
        "--limit", metavar="N", type=whole_number, help="the N most recently used conversations; default: all"
    )


_BENCHES = {
    "recall": ("show how often a search brings back what a small view leaves out", _add_recall),
    "replay": ("show what past sessions would have cost with compactions at other moments", _add_replay),
}


# completion

_COMPLETION = """\
bash:
  penstock completion bash > \\
    ~/.local/share/bash-completion/completions/penstock
zsh, with ~/.zfunc in $fpath:
  penstock completion zsh > ~/.zfunc/_penstock
"""


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _COMPLETION
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")
    parser.add_argument("--debug", action="store_true", help="show a traceback when something fails")


_COMMANDS = {
    "compress": ("make a conversation smaller", _add_compress),
    "explain": ("show what would happen to each message, and why", _add_explain),
    "tokens": ("show what fills the window", _add_tokens),
    "chat": ("work with an agent at the terminal, for as long as you like", _add_chat),
    "serve": ("run a gateway in front of any compatible API", _add_serve),
    "dashboard": ("show conversations and compactions in a browser", _add_dashboard),
    "wrap": ("run Claude Code, Codex, opencode or aider through a gateway", _add_wrap),
    "mcp": ("let any agent search and read past conversations, as an MCP server", _add_mcp),
    "trajectories": ("fit training trajectories into a token budget without losing a row", _add_trajectories),
    "sessions": ("list, show, export, import and delete stored conversations", _add_sessions),
    "search": ("search all messages of stored conversations", _add_search),
    "usage": ("show what requests used and cost", _add_usage),
    "insights": ("show recent usage by model and by day, and what compaction saved", _add_insights),
    "doctor": ("check a store and repair it", _add_doctor),
    "keys": ("create, list and revoke keys for callers of the gateway", _add_keys),
    "bench": ("run benchmarks on your own sessions", _add_bench),
    "engines": ("list the engines, show which one is active, or choose another", _add_engines),
    "config": ("show the settings and where each comes from", add_shared),
    "completion": ("print a script that completes commands and options in your shell", _add_completion),
}
