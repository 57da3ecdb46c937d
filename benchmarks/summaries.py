"""What a model's summary may cost: the facts, whatever a summariser does, and the time that checking it takes.

Scripted summarisers take the place of a model, so every figure is about what Penstock makes of their texts.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import penstock
from benchmarks import summary_cost, summary_failures
from benchmarks.clock import note
from benchmarks.corpora import Case as Recorded
from benchmarks.corpora import budget_of, counts_exactly, load_scorer, recorded_cases
from benchmarks.generate import coding_session, cut_at, message_tokens, needles, recalled, service_session
from benchmarks.goals import METRICS, ROWS
from benchmarks.options import Options
from benchmarks.pairs import legal
from benchmarks.recorded import INEXACT, NONE, mean
from benchmarks.report import Cell, Figure, Limit, Table, share
from benchmarks.scripted_writers import WRITERS
from benchmarks.speed import warm
from benchmarks.summary_checks import Harm, Original, planted
from penstock.errors import ErrorKind
from penstock.writing.writer import PROSE_SHARE

__all__ = ["run"]

Chat = list[dict[str, Any]]
Recalls = tuple[float | None, ...]
"""Recall, ctx and far, each None where there is nothing to recall."""

WHOLE, FACTS = "no model, whole budget", "no model, the facts' share"
PART = 0.20
RECORDED = tuple(row for row in ROWS if row.share in {PART, None})
GENERATED = {"coding": (coding_session, 60_000), "service": (service_session, 9_000)}
LOSS = Limit(-1, at_least=True)
COLUMNS = (
    "summariser",
    "cases",
    "model asked",
    "degraded",
    *METRICS,
    "recall against the facts' share, points (floor)",
    "over budget",
    "illegal",
    "last request missing",
    "invented values",
    "secrets",
    "messages unreachable",
)
UNSET = (
    "Not run: PENSTOCK_CORPORA names no folder of recorded sessions. It would add coding and customer service sessions "
    "at 20 % and real compactions at the size of the model's own summary, for each summariser; these are what the "
    "floor is about."
)


class Talk(NamedTuple):
    """A conversation to compact, to how many tokens, and what says how much of it is left."""

    kind: str
    messages: Chat
    target_tokens: int
    score: Callable[[Chat], tuple[Recalls, int, bool]]
    """Of a compacted list: how much it recalls, its tokens, and whether it is legal."""


class Judged(NamedTuple):
    """One compaction of one conversation."""

    kind: str
    summariser: str
    recalls: Recalls
    over: bool
    legal: bool
    asked: bool
    degraded: bool
    request_fits: bool
    harm: Harm


Case = dict[str, Judged]
"""The compactions of one conversation, by summariser."""


def run(options: Options) -> list[Table]:
    with ProcessPoolExecutor(options.jobs, initializer=warm) as pool:
        tables = [_generated(options, pool), _recorded(options, pool)]
    return [*tables, summary_failures.run(options), summary_cost.run(options)]


def _generated(options: Options, pool: ProcessPoolExecutor) -> Table:
    seeds = range(1, 3 if options.quick else 13)
    note(f"summaries: generated sessions, {options.jobs} processes")
    done = list(pool.map(_judge_generated, [(kind, seed) for kind in GENERATED for seed in seeds]))
    remark = (
        f"Coding sessions of 60,000 tokens and service sessions of 9,000, cut where 55 % of the text has passed, at "
        f"{100 * PART:.0f} % of their tokens; the needles are those of `benchmarks/needles.py`."
        + _too_long(done)
    )
    rows = _rows(map(_kind, GENERATED), done)
    return Table("summaries-generated", "Summarisers on generated sessions", COLUMNS, rows, remark)


def _recorded(options: Options, pool: ProcessPoolExecutor) -> Table:
    title = "Summarisers on recorded sessions"
    folder = options.corpora
    if folder is None or not counts_exactly(folder):
        return Table("summaries-recorded", title, (), (), UNSET if folder is None else INEXACT)
    cases = recorded_cases(folder, options, pool)
    note(f"summaries: {len(cases)} recorded sessions, {options.jobs} processes")
    done = list(pool.map(_judge_recorded, [(folder, case) for case in cases]))
    remark = (
        f"By the corpora's own needles and scorer, at most {options.limit} cases a file: the cases of the tables above, "
        "with a few lines planted in each." + _too_long(done)
    )
    rows = _rows((row.name for row in RECORDED), done)
    return Table("summaries-recorded", title, COLUMNS, rows, remark)


def _judge_generated(case: tuple[str, int]) -> Case:
    kind, seed = case
    make, tokens = GENERATED[kind]
    session = make(tokens, seed)
    cut = cut_at(session)
    prefix, wanted = session[:cut], needles(session, cut)
    system = _system_tokens(prefix)

    def score(kept: Chat) -> tuple[Recalls, int, bool]:
        found = recalled(wanted, cut, kept)
        return (found.recall, found.context, found.far), message_tokens(kept), legal(kept)

    target = int(PART * (message_tokens(prefix) - system)) + system
    return _judge(Talk(_kind(kind), planted(prefix), target, score))


def _judge_recorded(work: tuple[Path, Recorded]) -> Case:
    folder, case = work
    scorer = load_scorer(folder, "future_recall")
    row = next(row for row in RECORDED if row.group == case.group)
    system = _system_tokens(case.scored["prefix"])

    def score(kept: Chat) -> tuple[Recalls, int, bool]:
        found = scorer.score(case.scored, kept)
        pairs = (found[metric] for metric in METRICS)
        shares = tuple(hits / of if of else None for hits, of in pairs)
        return shares, found["size"] + system, found["legal"]

    target = budget_of(folder, case, row.share) + system
    return _judge(Talk(row.name, planted(case.scored["prefix"]), target, score))


def _judge(talk: Talk) -> Case:
    """The conversation without a model, with its whole budget and with the share of the facts, then by every summariser."""
    whole = penstock.compress(talk.messages, target_tokens=talk.target_tokens, dialect="chat")
    less = talk.target_tokens - int(PROSE_SHARE * whole.receipt.handoff_tokens)
    results = {WHOLE: whole, FACTS: penstock.compress(talk.messages, target_tokens=less, dialect="chat")}
    for name, writer in WRITERS.items():
        results[name] = penstock.compress(
            talk.messages, target_tokens=talk.target_tokens, dialect="chat", summariser=writer
        )
    original = Original(talk.messages, talk.target_tokens)
    return {name: _judged(talk, original, name, result) for name, result in results.items()}


def _judged(talk: Talk, original: Original, name: str, result: penstock.Compressed) -> Judged:
    outcomes = [str(attempt["outcome"]) for attempt in result.receipt.attempts]
    if broken := [outcome for outcome in outcomes if outcome.startswith(ErrorKind.BAD_REQUEST.value)]:
        raise RuntimeError(f"the scripted summariser {name!r} is broken: {broken[0]}")
    recalls, size, is_legal = talk.score(result.messages)
    return Judged(
        kind=talk.kind,
        summariser=name,
        recalls=recalls,
        over=size > talk.target_tokens,
        legal=is_legal,
        asked=bool(outcomes),
        degraded=result.receipt.outcome == "degraded",
        request_fits=original.request_fits,
        harm=original.harm(result),
    )


def _rows(kinds: Iterable[str], done: list[Case]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(
        _row(f"{kind}: {name}", name, [case for case in done if case[WHOLE].kind == kind])
        for kind in kinds
        for name in (WHOLE, FACTS, *WRITERS)
    )


def _row(what: str, name: str, cases: list[Case]) -> tuple[Cell, ...]:
    own = [case[name] for case in cases]
    model = name in WRITERS
    asked = [case for case in cases if case[name].asked]
    gained = mean((case[name].recalls[0] or 0) - (case[FACTS].recalls[0] or 0) for case in asked)
    counts = (
        sum(judged.over for judged in own),
        sum(not judged.legal for judged in own),
        sum(judged.harm.request_missing for judged in own),
        sum(len(judged.harm.invented) for judged in own),
        sum(judged.harm.secrets for judged in own),
        sum(judged.harm.unreachable for judged in own),
    )
    return (
        what,
        Figure(len(own)),
        Figure(len(asked)) if model else "",
        share(mean(judged.degraded for judged in own)) if model else "",
        *(share(mean(_known(own, metric))) for metric in range(len(METRICS))),
        Figure(100 * gained, "%", LOSS) if model else "",
        *(Figure(count, "", NONE) for count in counts),
    )


def _kind(sessions: str) -> str:
    return f"{sessions}, {100 * PART:.0f} %"


def _known(own: list[Judged], metric: int) -> list[float]:
    found = (judged.recalls[metric] for judged in own)
    return [value for value in found if value is not None]


def _too_long(done: list[Case]) -> str:
    """How often the last request may be clipped, in words."""
    count = sum(not case[WHOLE].request_fits for case in done)
    if not count:
        return ""
    return (
        f" In {count} of the {len(done)} sessions the last request alone takes more than four fifths of the budget; it "
        "is clipped there, with a model and without, and not counted as missing."
    )


def _system_tokens(messages: Chat) -> int:
    return message_tokens([message for message in messages if message["role"] == "system"])
