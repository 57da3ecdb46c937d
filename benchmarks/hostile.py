"""How fast every path of text is on text that was made to slow it down: megabytes a second, the worst unit of each path."""

import json
import random
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import penstock
from benchmarks.clock import note
from benchmarks.options import Options
from benchmarks.report import Cell, Figure, Limit, Table
from penstock.agent.tools.readable import extract_text
from penstock.conversation.message import Message, Role, Text, ToolCall
from penstock.conversation.speakers import part_voices
from penstock.loop.globs import compile_glob
from penstock.measure.tokens import tokenizer_for
from penstock.recall.passages import cut_passages
from penstock.recall.terms import index_terms
from penstock.redaction import Redactor
from penstock.transfer.reading import read_recorded
from penstock.web.transcript import render_text
from penstock.writing.constraints import find_constraints
from penstock.writing.excerpts import excerpts, lay_out_redacted
from penstock.writing.ledger import facts_in
from penstock.writing.prose import read_prose
from penstock.writing.sightings import sightings_in
from penstock.writing.state import signs_in
from penstock.writing.vocabulary import Vocabulary

__all__ = ["UNITS", "paths", "run", "slowest"]

LEAST = Limit(1.0, at_least=True)
UNITS = (
    *("a", "A1", " ", "\n", "\t", "\r", "é", "密", "1", "-", "=", "#", "*", "`", "|", "/", "\\", '"', "'", ".", "(", "[", "{", "<", "_"),
    *("a ", "a\n", "a.", "a. ", "a/", "../", "a-", "a_", "1.", "- ", "# ", "> ", "| a ", "```\n", '{"a":', "[[", "((", "<a ", "</a>"),
    *("密码是", "密码", "password=", "pwd=", "token:", "password is ", "password for a ", "secret=\\", "password,", "a,password\n"),
    *("password:\\n", "\\u003d", "\\\\u003d", "\\/", "otpauth://", "://a:b@", "://a:b/", "Bearer ", "Cookie: a=", "curl -u a:", " -p"),
    *("-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----\n", "eyJ", "sk-1a1-", "$6$a$", "MTA", "pw ", "| password |\n|---|\n"),
    *("password=1x1x1x1x1x1x1x1x1x ", "Bearer 1x1x1x1x1x1x1x1x1x1x1x1x ", "never ", "You must not. ", "don't ", "always use a. "),
    *("<system-reminder>", "</system-reminder>", "<penstock-handoff", "TODO ", "- [ ] a\n", "Error: a\n", "1\ta\n", "\x1b[0m", "\x1b["),
    *('\\"| password |\n|---|\n', ':"| password |\n|---|\n', "passwort otter-otter12 ", "2024-01-01 passphrase ", "pw always use a. 1. a\n"),
    *("secret=\\_Saltsk-1a1-eyJ", "SETUP key\\\\u003d", "password  \n\\\\u003d", "(a,password) VALUES ('a','b'),", "Mot de passe Aa1!Aa1! "),
    *("uv  ", "git -c a ", "sed -i ", "cat > a ", "thank you, ", "<think>", "<command-name>a</command-name>", "~", "~~~\n", "a   ", "$("),
    *("[a](", "![", "**a", "|a|b|\n|-|-|\n", "> > ", "\t\n", " \n", '\\"', "&amp;", "密a", "עa", "QUJD", '{"a":[', "a-a. ", "all "),
    *("http://a.b/c ", "a@b.c ", "0x1f ", "1e9 ", "2024-01-01 ", "a::b ", "/a/b.c:1 ", "C:\\a ", "\u200b", "\U0001f600", "\ud800"),
)  # fmt: skip
_SUM = "a whole compaction"
_PLAIN_PASS = re.compile(r"(?s).").findall


class TextPath(NamedTuple):
    """A path that text of strangers takes: what reads it, and how the text stands on the wire."""

    read: Callable[[str], object]
    wrap: Callable[[str], str] = str

    def __call__(self, text: str) -> object:
        return self.read(self.wrap(text))


def paths() -> dict[str, TextPath]:
    """Returns every path that text of strangers takes, by its name."""
    redactor = Redactor()
    count = tokenizer_for("gpt-4.1").count

    def read_facts(role: Role, text: str) -> None:
        message = Message(role, (Text(text),))
        facts_in(message, redactor)
        signs_in(message, redactor)

    def compact(text: str) -> None:
        message = {"role": "user", "content": text}
        others = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Go on."}]
        penstock.compress([message, *others], target_tokens=2_000)

    def command(text: str) -> str:
        return json.dumps({"command": text})

    def call(arguments: str) -> Message:
        return Message(Role.ASSISTANT, (ToolCall("call_1", "bash", arguments),))

    def talk(text: str) -> str:
        return json.dumps([{"role": "user", "content": text}, {"role": "assistant", "content": text}])

    def json_object(text: str) -> str:
        half = len(text) // 2
        return json.dumps([{text[:half]: text[half:]}])

    glob = compile_glob("*a*1*=*.*-*b")
    readers = {
        "redaction": redactor.redact,
        "laying out and cutting": lambda text: excerpts(lay_out_redacted(text, redactor.redact).text),
        "values": lambda text: Vocabulary().find([text]),
        "constraints": find_constraints,
        "facts of a person": partial(read_facts, Role.USER),
        "facts of an agent": partial(read_facts, Role.ASSISTANT),
        "voices in a user message": part_voices,
        "passages for search": lambda text: cut_passages(Message(Role.USER, (Text(text),))),
        "terms for search": index_terms,
        "tokens": count,
        "keys and values of JSON": lambda text: lay_out_redacted(text, redactor.redact),
        "facts of a command": lambda text: facts_in(call(text), redactor),
        "entities of a command": lambda text: sightings_in(call(text), redactor.redact),
        "a model's summary": lambda text: read_prose("## Goal\n" + text),
        "an imported session": lambda text: read_recorded(text.encode()),
        "a text on the page": render_text,
        "a page as text": extract_text,
        "patterns of .gitignore": glob.matches,
        _SUM: compact,
    }
    wraps = {
        "keys and values of JSON": json_object,
        "facts of a command": command,
        "entities of a command": command,
        "an imported session": talk,
    }
    return {name: TextPath(read, wraps.get(name, str)) for name, read in readers.items()}


def mix_units(count: int, seed: int = 1) -> list[str]:
    """Returns texts of two to six units each, to be repeated: what slows one rule down may bring another to it."""
    draw = random.Random(seed)
    return ["".join(draw.choice(UNITS) for _ in range(draw.choice((2, 3, 4, 6)))) for _ in range(count)]


def _cpu_seconds(read: Callable[[str], object], text: str) -> float:
    fresh = text.encode("utf-8", "surrogatepass").decode(
        "utf-8", "surrogatepass"
    )  # nothing is remembered of it
    start = time.process_time()
    read(fresh)
    return max(time.process_time() - start, 1e-9)


def slowest(path: TextPath, sizes: Sequence[int], mixes: int = 0) -> tuple[float, str, float]:
    """Returns the fewest megabytes a second of CPU time that a path does, the unit that its text repeats, and a ratio.

    The ratio is to the time of a plain regular expression on the same text, right after it: a busy machine changes it less.
    """
    worst = float("inf"), "", 0.0
    for unit, characters in product((*UNITS, *mix_units(mixes)), sizes):
        text = path.wrap((unit * (characters // len(unit) + 1))[:characters])
        megabytes = len(text.encode(errors="replace")) / 1e6
        seconds = _cpu_seconds(path.read, text)
        if (
            megabytes / seconds < 2 * LEAST.floor
        ):  # near the floor: the best of three, since a busy machine is slower
            seconds = min(seconds, *(_cpu_seconds(path.read, text) for _ in range(4)))
        if megabytes / seconds < worst[0]:
            plain = min(_cpu_seconds(_PLAIN_PASS, text) for _ in range(3))
            worst = megabytes / seconds, unit, seconds / plain
    return worst


def run(options: Options) -> list[Table]:
    note("hostile text: the slowest of each path")
    sizes, mixes = ((4_000,), 20) if options.quick else ((4_000, 60_000), 60)
    rows: list[tuple[Cell, ...]] = []
    for name, path in paths().items():
        path("warm")
        speed, unit, ratio = slowest(path, sizes, mixes)
        rows.append(
            (
                name,
                Figure(speed, "MB/s", None if name == _SUM else LEAST),
                Figure(ratio, "×"),
                ascii(unit),
            )
        )
    remark = (
        f"Each text repeats one of {len(UNITS)} short units, or one of {mixes:,} mixes of two to six of them, for "
        f"{' and '.join(f'{size:,}' for size in sizes)} characters, in JSON where the path reads JSON; CPU time, the best of five near "
        "the floor. A plain pass finds every character of the same text with a regular expression. "
        "A compaction has no floor of its own: it takes a text through most of the other paths, some of them twice."
    )
    return [
        Table(
            "hostile",
            "Hostile text",
            ("path", "slowest (floor)", "to a plain pass", "on repeated"),
            tuple(rows),
            remark,
        )
    ]
