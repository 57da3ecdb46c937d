"""How fast every path of text is on text that was made to slow it down: megabytes a second, the worst unit of each path."""

import time
from collections.abc import Callable
from functools import partial

import penstock
from benchmarks.clock import note
from benchmarks.options import Options
from benchmarks.report import Cell, Figure, Limit, Table
from penstock.agent.tools.readable import readable
from penstock.conversation.message import Message, Role, Text
from penstock.conversation.speakers import part_voices
from penstock.loop.globs import compile_glob
from penstock.measure.tokens import tokenizer_for
from penstock.recall.passages import cut_passages
from penstock.recall.terms import index_terms
from penstock.redaction import Redactor
from penstock.writing.constraints import find_constraints
from penstock.writing.excerpts import excerpts, lay_out_redacted
from penstock.writing.ledger import facts_in
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
    *("http://a.b/c ", "a@b.c ", "0x1f ", "1e9 ", "2024-01-01 ", "a::b ", "/a/b.c:1 ", "C:\\a ", "\u200b", "\U0001f600", "\ud800"),
)  # fmt: skip
_SUM = "a whole compaction"
Path = Callable[[str], object]


def paths() -> dict[str, Path]:
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

    glob = compile_glob("*a*1*=*.*-*b")
    return {
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
        "a page as text": readable,
        "patterns of .gitignore": glob.matches,
        _SUM: compact,
    }


def _cpu_seconds(path: Path, text: str) -> float:
    fresh = text.encode("utf-8", "surrogatepass").decode(
        "utf-8", "surrogatepass"
    )  # nothing is remembered of it
    start = time.process_time()
    path(fresh)
    return max(time.process_time() - start, 1e-9)


def slowest(path: Path, characters: int) -> tuple[float, str]:
    """Returns the fewest megabytes a second of CPU time that a path does, and the unit that its text repeats."""
    worst = float("inf"), ""
    for unit in UNITS:
        text = (unit * (characters // len(unit) + 1))[:characters]
        megabytes = len(text.encode(errors="replace")) / 1e6
        seconds = _cpu_seconds(path, text)
        if (
            megabytes / seconds < 2 * LEAST.floor
        ):  # near the floor: the best of three, since a busy machine is slower
            seconds = min(seconds, *(_cpu_seconds(path, text) for _ in range(2)))
        worst = min(worst, (megabytes / seconds, unit))
    return worst


def run(options: Options) -> list[Table]:
    note("hostile text: the slowest of each path")
    characters = 20_000 if options.quick else 200_000
    rows: list[tuple[Cell, ...]] = []
    for name, path in paths().items():
        path("warm")
        speed, unit = slowest(path, characters)
        rows.append((name, Figure(speed, "MB/s", None if name == _SUM else LEAST), ascii(unit)))
    remark = (
        f"Each text repeats one of {len(UNITS)} short units for {characters:,} characters; CPU time. "
        "A compaction has no floor of its own: it takes a text through most of the other paths, some of them twice."
    )
    return [Table("hostile", "Hostile text", ("path", "slowest (floor)", "on repeated"), tuple(rows), remark)]
