"""The engine `lossless` beside `compressor`: what survives at once and over many compactions, and what stays as it was.

`lossless` is also what the scorers of the recorded corpora take:

    python $PENSTOCK_CORPORA/future_recall.py --data … --compactor benchmarks.engines:lossless
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from benchmarks.clock import note
from benchmarks.fidelity import MAKERS
from benchmarks.generate import coding_session, cut_at, message_tokens, needles, recalled
from benchmarks.needles import Recall
from benchmarks.options import Options
from benchmarks.pairs import legal
from benchmarks.recorded import health, mean
from benchmarks.report import Figure, Table, share
from benchmarks.speed import warm
from penstock.conversation import mark
from penstock.engine.registry import engine_named
from penstock.errors import TargetTooSmall
from penstock.lossless.outline import Node, parse_outline

__all__ = ["lossless", "run"]

Chat = list[dict[str, Any]]
ENGINES = ("compressor", "lossless")
ROUNDS = (1, 8)
SHARE = 0.20
TOKENS = {"coding": 60_000, "service": 9_000}
WINDOW = 200_000


def lossless(messages: Chat, budget_tokens: int) -> Chat:
    """Compress to the budget with an outline; as `benchmarks.fidelity.compactor` does with a handoff."""
    engine: Any = engine_named("lossless")
    return engine.compact(messages, target_tokens=budget_tokens + _system_tokens(messages)).messages


def run(options: Options) -> list[Table]:
    note(f"engines: both on generated sessions, {options.jobs} processes")
    return [_beside(options), _long_run(options)]


class _Case(NamedTuple):
    kind: str
    seed: int
    rounds: int
    engine: str


class _Score(NamedTuple):
    case: _Case
    recall: Recall
    over: bool
    legal: bool


def _beside(options: Options) -> Table:
    seeds = range(1, 3 if options.quick else 13)
    cases = [
        _Case(kind, seed, rounds, engine)
        for kind in MAKERS
        for rounds in ROUNDS
        for engine in ENGINES
        for seed in seeds
    ]
    with ProcessPoolExecutor(options.jobs, initializer=warm) as pool:
        scores = list(pool.map(_scored, cases))
    rows = tuple(
        _row(kind, rounds, engine, scores) for kind in MAKERS for rounds in ROUNDS for engine in ENGINES
    )
    remark = (
        f"The sessions of the table before, to {100 * SHARE:.0f} % of their tokens: at once, and in eight portions with a "
        "compaction after each, to the same size. In the second case, what the handoff says of the first portions "
        "was chosen before it was known what would be asked in the end."
    )
    columns = ("session, compactions, engine", "cases", "recall", "ctx", "far", "over budget", "legal")
    return Table("engines", "Both engines on generated sessions", columns, rows, remark)


def _scored(case: _Case) -> _Score:
    messages = MAKERS[case.kind](TOKENS[case.kind], case.seed)
    cut = cut_at(messages)
    prefix = messages[:cut]
    system = _system_tokens(prefix)
    budget = int(SHARE * (message_tokens(prefix) - system))
    view = _last_view(_portions(prefix, case.rounds), budget, case.engine)
    over = message_tokens(view) - system > budget
    return _Score(case, recalled(needles(messages, cut), cut, view), over, legal(view))


def _portions(messages: Chat, count: int) -> Iterator[Chat]:
    """The messages in portions of about the same tokens; none begins with a result."""
    step = message_tokens(messages) / count
    portion: Chat = []
    passed, parts = 0.0, 1
    for message in messages:
        if passed >= parts * step and message["role"] != "tool" and portion:
            yield portion
            portion, parts = [], parts + 1
        portion.append(message)
        passed += message_tokens([message])
    yield portion


def _last_view(portions: Iterable[Chat], budget: int, name: str) -> Chat:
    """The view after the last portion, each having been appended to the view after the one before."""
    engine: Any = engine_named(name)
    view: Chat = []
    for portion in portions:
        view = view + portion
        # Where what may not be dropped is too much for now, the conversation goes on as it is.
        with suppress(TargetTooSmall):
            view = engine.compact(view, target_tokens=budget + _system_tokens(view)).messages
    return view


def _system_tokens(messages: Chat) -> int:
    return message_tokens([message for message in messages if message["role"] == "system"])


def _row(kind: str, rounds: int, engine: str, scores: list[_Score]) -> tuple[str | Figure, ...]:
    mine = [score for score in scores if score.case[::2] == (kind, rounds) and score.case.engine == engine]
    recalls = [score.recall for score in mine]
    figures: tuple[Callable[[Recall], float | None], ...] = (
        lambda one: one.recall,
        lambda one: one.context,
        lambda one: one.far,
    )
    means = [mean(value for one in recalls if (value := figure(one)) is not None) for figure in figures]
    return (
        f"{kind}, {rounds}, {engine}",
        Figure(len(mine)),
        *map(share, means),
        *health((score.over for score in mine), (score.legal for score in mine)),
    )


class _Pass(NamedTuple):
    """One compaction of the long run."""

    handoff_tokens: int
    prefix: float
    carried: float
    nodes: int
    levels: int
    seconds: float


def _long_run(options: Options) -> Table:
    passes = list(_passes(coding_session(250_000 if options.quick else 1_500_000, 1)))
    later = passes[1:] or passes
    rows = (
        (
            Figure(len(passes)),
            Figure(max(one.handoff_tokens for one in passes)),
            Figure(passes[-1].nodes),
            Figure(passes[-1].levels),
            share(mean(one.carried for one in later)),
            share(mean(one.prefix for one in later)),
            Figure(max(one.seconds for one in later), "s"),
        ),
    )
    columns = (
        "compactions",
        "handoff tokens, most",
        "nodes at the end",
        "levels",
        "nodes' text carried over",
    )
    remark = (
        f"A coding session of 1,500,000 tokens in a window of {WINDOW:,}, engine `lossless`, without a model. Carried over "
        "is the share of the last outline's text that stands in the next one letter for letter; the beginning is the "
        "share of the last handoff up to the first letter that differs, which is what a provider's cache can reuse."
    )
    columns += ("beginning kept", "slowest compaction")
    return Table("engines-long", "Outlines over many compactions", columns, rows, remark)


def _passes(messages: Chat) -> Iterator[_Pass]:
    engine: Any = engine_named("lossless", context_length=WINDOW)
    view: Chat = []
    before = ""
    tokens = 0
    for place, message in enumerate(messages):
        view.append(message)
        tokens += message_tokens([message])
        follows = messages[place + 1]["role"] if place + 1 < len(messages) else ""
        if tokens < engine.threshold_tokens or follows == "tool":
            continue
        start = time.perf_counter()
        result = engine.compact(view)
        seconds = time.perf_counter() - start
        view, tokens = list(result.messages), result.receipt.tokens_after
        after = next(str(m["content"]) for m in view if mark.OPENING in str(m.get("content")))
        status = engine.get_status()
        yield _Pass(
            result.receipt.handoff_tokens,
            _shared(before, after) / max(1, len(before)),
            _carried(parse_outline(before), parse_outline(after)),
            status["nodes"],
            status["levels"],
            seconds,
        )
        before = after


def _shared(one: str, other: str) -> int:
    """How many letters at the start are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _carried(before: tuple[Node, ...], after: tuple[Node, ...]) -> float:
    kept = {node.text for node in after}
    told = sum(len(node.text) for node in before)
    return sum(len(node.text) for node in before if node.text in kept) / max(1, told)
