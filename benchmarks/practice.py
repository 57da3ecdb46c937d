"""CompactBench's practice templates: how many of the values that its checks ask for stand in a compacted chat.

CompactBench (Apache-2.0) makes short chats, in which a rule, a decision or a split of tasks is buried under small talk,
and asks a model about them. No model is asked here. Its templates are filled in with fixed seeds, each chat is
compressed to a share of its tokens, and every value that an answer must contain is looked for in the view, as its own
check does: in lower case, with runs of white space as one blank. A value that is not in the view cannot be answered.

The templates are in the source package only. `make bench` fetches it into the virtual environment and leaves it packed.
"""

import re
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import penstock
from benchmarks.clock import note
from benchmarks.generate import message_tokens
from benchmarks.options import Options
from benchmarks.pairs import newest_that_fit
from benchmarks.recorded import NONE, mean
from benchmarks.report import Cell, Figure, Limit, Table, share
from benchmarks.summary_checks import text_of
from penstock.conversation import mark
from penstock.writing.handoff import HandoffSection, parse_handoff

__all__ = ["Asked", "Case", "Judged", "judge", "load_cases", "run"]

Chat = list[dict[str, Any]]

SOURCE = Path(sys.prefix) / "compactbench"
SUITE, DIFFICULTY = "elite_practice", "elite"
LIMITS = {2: Limit(85, at_least=True), 4: Limit(75, at_least=True), 8: None}
"""One part in so many of the tokens, and the least share of the values that must stand in the view."""

KINDS = {
    "forbidden_behavior_retention": "rules",
    "locked_decision_retention": "decisions",
    "immutable_fact_recall": "facts",
    "entity_integrity": "people and tasks",
}
ABSENT, SENTENCE, CUT = "message not quoted", "message quoted without its sentence", "cut inside the value"
UNSET = (
    "Not run: CompactBench is not installed here, or the source package with its templates was not fetched. `make bench` "
    "does both where a registry of Python packages can be reached. It would add the share of asked-for values that "
    "stand in views at 1/2, 1/4 and 1/8 of the tokens, and why the others are lost."
)
_RUN_WORDS = 4
"""So many words of a message in a row, and the message is taken for quoted."""


class Asked(NamedTuple):
    """A value that a check of CompactBench looks for in an answer, and what kind of thing it is."""

    value: str
    kind: str


class Case(NamedTuple):
    """A chat, the values asked for, and the numbers (from 1) of its messages that are small talk."""

    name: str
    messages: Chat
    asked: tuple[Asked, ...]
    filler: frozenset[int]


class Loss(NamedTuple):
    """A value that does not stand in the view: how it was lost, who said it, whether its message would have fitted."""

    asked: Asked
    how: str
    in_first_request: bool
    fits: bool


class Judged(NamedTuple):
    """A view of one case, held against what is asked."""

    asked: tuple[Asked, ...]
    losses: tuple[Loss, ...]
    used: float
    """Of the target, as a share."""
    filler_as_constraint: bool
    newest: int
    """Values that stand in the newest messages that fit."""
    seconds: float = 0.0


def run(options: Options) -> list[Table]:
    title = "CompactBench's practice templates"
    cases = load_cases(SOURCE, range(1, 4 if options.quick else 11))
    if not cases:
        return [Table("compactbench", title, (), (), UNSET)]
    note(f"compactbench: {len(cases)} chats")
    done = {part: [_compress_and_judge(case, part) for case in cases] for part in LIMITS}
    kinds = [kind for kind in KINDS.values() if any(one.kind == kind for case in cases for one in case.asked)]
    columns = ("share of tokens", "chats", "values", "in the view (floor)", *kinds)
    rest = ("newest that fit", "target used", "over budget", "small talk as a constraint", "s / chat")
    remark = (
        f"Chats of {mean(message_tokens(case.messages) for case in cases):,.0f} tokens from the "
        f"{len({case.name for case in cases})} templates of `{SUITE}` at the difficulty `{DIFFICULTY}`, with seeds 1 to "
        f"{len(cases) // len({case.name for case in cases})}; o200k, 4 tokens a message. The table counts the "
        "values that an answer must contain; a check that a value is absent from the answer asks "
        "nothing of a view. *Small talk as a "
        "constraint* counts views that list some under Constraints & Preferences."
    )
    rows = tuple(_row(part, judged, kinds) for part, judged in done.items())
    return [Table("compactbench", title, columns + rest, rows, remark), _lost(done)]


def load_cases(source: Path, seeds: Iterable[int]) -> list[Case]:
    """Every template of the packed source package with every seed; nothing where it or CompactBench is missing."""
    packages = sorted(source.glob("compactbench-*.tar.gz"))
    try:
        from compactbench.dsl import DifficultyLevel, parse_template_string  # noqa: PLC0415 - optional
        from compactbench.engine import generate_case  # noqa: PLC0415 - optional
    except ImportError:
        return []
    if not packages:
        return []
    with tarfile.open(packages[-1]) as package:
        names = sorted(name for name in package.getnames() if f"/{SUITE}/" in name and name.endswith(".yaml"))
        templates = [parse_template_string(_text(package, name)) for name in names]
    return [
        _case(generate_case(template, seed, DifficultyLevel(DIFFICULTY)))
        for template in templates
        for seed in seeds
    ]


def _text(package: tarfile.TarFile, name: str) -> str:
    stream = package.extractfile(name)
    return stream.read().decode() if stream else ""


def _case(made: Any) -> Case:
    """Reads a chat that CompactBench made."""
    turns = made.transcript.turns
    asked = [
        Asked(value, KINDS.get(item.item_type.value, item.item_type.value))
        for item in made.evaluation_items
        if item.expected["check"] != "forbidden_absent"
        for value in item.expected.get("values") or [item.expected["value"]]
    ]
    filler = frozenset(number for number, turn in enumerate(turns, 1) if "distractor" in turn.tags)
    messages = [{"role": turn.role.value, "content": turn.content} for turn in turns]
    return Case(made.template_key, messages, tuple(asked), filler)


def _compress_and_judge(case: Case, part: int) -> Judged:
    target = message_tokens(case.messages) // part
    start = time.perf_counter()
    try:
        view = penstock.compress(case.messages, target_tokens=target, dialect="chat").messages
    except penstock.PenstockError:
        view = []  # nothing is kept, and nothing of the target is used
    seconds = time.perf_counter() - start
    return judge(case, view, target)._replace(seconds=seconds)


def judge(case: Case, view: Chat, target_tokens: int) -> Judged:
    """Looks for each value, and says of those that are lost how."""
    text, used = _shown(view), message_tokens(view)
    losses = tuple(
        _loss(case, one, text, target_tokens - used) for one in case.asked if _fold(one.value) not in text
    )
    newest = _shown(newest_that_fit(case.messages, target_tokens))
    return Judged(
        case.asked,
        losses,
        used / target_tokens,
        _lists_filler(view, case.filler),
        sum(_fold(one.value) in newest for one in case.asked),
    )


def _loss(case: Case, asked: Asked, shown: str, room: int) -> Loss:
    value = _fold(asked.value)
    holders = [message for message in case.messages if value in _fold(text_of(message))]
    first = next((message for message in case.messages if message["role"] == "user"), None)
    words = value.split()
    half = (len(words) + 1) // 2
    if len(words) > 1 and (" ".join(words[:half]) in shown or " ".join(words[-half:]) in shown):
        how = CUT
    else:
        how = SENTENCE if any(_is_quoted(message, shown) for message in holders) else ABSENT
    return Loss(
        asked,
        how,
        any(message is first for message in holders),
        any(message_tokens([message]) <= room for message in holders),
    )


def _is_quoted(message: dict[str, Any], shown: str) -> bool:
    words = re.findall(r"\S+", _fold(text_of(message)))
    runs = (words[at : at + _RUN_WORDS] for at in range(max(1, len(words) - _RUN_WORDS + 1)))
    return any(" ".join(run) in shown for run in runs)


def _lists_filler(view: Chat, filler: frozenset[int]) -> bool:
    for message in view:
        marked = mark.find(text_of(message))
        entries = parse_handoff(marked.text) if marked else ()
        if any(entry.section is HandoffSection.CONSTRAINTS and entry.number in filler for entry in entries):
            return True
    return False


def _shown(view: Chat) -> str:
    return _fold("\n".join(map(text_of, view)))


def _fold(text: str) -> str:
    return " ".join(text.lower().split())


def _row(part: int, judged: list[Judged], kinds: list[str]) -> tuple[Cell, ...]:
    values = [one for case in judged for one in case.asked]
    lost = Counter(loss.asked.kind for case in judged for loss in case.losses)
    total = Counter(one.kind for one in values)
    limit = LIMITS[part]
    return (
        f"1/{part}",
        Figure(len(judged)),
        Figure(len(values)),
        share(1 - lost.total() / len(values), limit),
        *(share(1 - lost[kind] / total[kind]) for kind in kinds),
        share(sum(case.newest for case in judged) / len(values)),
        share(mean(case.used for case in judged)),
        Figure(sum(case.used > 1 for case in judged), "", NONE),
        Figure(sum(case.filler_as_constraint for case in judged)),
        Figure(mean(case.seconds for case in judged), "s"),
    )


def _lost(done: dict[int, list[Judged]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for part, judged in done.items():
        losses = [loss for case in judged for loss in case.losses]
        for how in (ABSENT, SENTENCE, CUT):
            own = [loss for loss in losses if loss.how == how]
            first, fits = sum(loss.in_first_request for loss in own), sum(loss.fits for loss in own)
            kinds = Counter(loss.asked.kind for loss in own)
            said = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"
            rows.append((f"1/{part}, {how}", Figure(len(own)), Figure(first), Figure(fits), said))
    columns = ("how it was lost", "values", "in the first request", "would have fitted", "of which")
    remark = (
        "*Would have fitted*: the whole message that says it is no larger than what the view left unused of its target. "
        "*Cut inside the value*: the first or the last half of its words stands in the view."
    )
    return Table(
        "compactbench-lost", "CompactBench's practice templates, what is lost", columns, tuple(rows), remark
    )
