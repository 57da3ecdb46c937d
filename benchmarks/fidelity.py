"""How much of what an agent goes on to use survives: on generated sessions always, on recorded ones where given.

`compactor` is also what the scorers of the recorded corpora take:

    python $PENSTOCK_CORPORA/future_recall.py --data … --compactor benchmarks.fidelity:compactor
"""

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import penstock
from benchmarks import recorded, windows
from benchmarks.clock import note
from benchmarks.folds import importance_for
from benchmarks.generate import coding_session, cut_at, message_tokens, needles, recalled, service_session
from benchmarks.needles import Recall
from benchmarks.options import Options
from benchmarks.pairs import legal, newest_that_fit
from benchmarks.recorded import health, mean
from benchmarks.report import Figure, Table, share
from benchmarks.speed import warm
from penstock.engine.compress import CompressRequest, compress_list

__all__ = ["by_rule", "compactor", "run"]

Chat = list[dict[str, Any]]
SHARES = (0.10, 0.20, 0.30)


def compactor(messages: Chat, budget_tokens: int) -> Chat:
    """Compress to the budget, which leaves the system messages out while `target_tokens` counts them in.

    A recorded session is scored with learned weights that never saw its source (`benchmarks.folds`).
    """
    target = budget_tokens + message_tokens(_system(messages))
    request = CompressRequest(target_tokens=target, dialect="chat", importance=importance_for(messages))
    return compress_list(messages, request).messages


def by_rule(messages: Chat, budget_tokens: int) -> Chat:
    """As `compactor`, with the hand-made weights."""
    target = budget_tokens + message_tokens(_system(messages))
    settings = {"compression.importance": "rule"}
    return penstock.compress(messages, target_tokens=target, dialect="chat", settings=settings).messages


def run(options: Options) -> list[Table]:
    note(f"fidelity: generated sessions, {options.jobs} processes")
    return [_generated(options), *recorded.run(options, compactor), *windows.run(options)]


class _Case(NamedTuple):
    kind: str
    tokens: int
    seed: int


class _Score(NamedTuple):
    kind: str
    share: float
    ours: Recall
    newest: Recall
    over: bool
    legal: bool
    seconds: float


MAKERS: dict[str, Callable[[int, int], Chat]] = {"coding": coding_session, "service": service_session}


def _generated(options: Options) -> Table:
    seeds = range(1, 3 if options.quick else 13)
    cases = [_Case("coding", 60_000, seed) for seed in seeds]
    cases += [_Case("service", 9_000, seed) for seed in seeds]
    with ProcessPoolExecutor(options.jobs, initializer=warm) as pool:
        scores = [score for several in pool.map(_score_case, cases) for score in several]
    rows = tuple(
        _row(
            f"{kind}, {100 * part:.0f} %",
            [score for score in scores if (score.kind, score.share) == (kind, part)],
        )
        for kind in MAKERS
        for part in SHARES
    )
    columns = ("session, share of tokens", "cases", "needles", "recall", "ctx", "far")
    health_columns = ("newest that fit: recall / ctx / far", "over budget", "legal", "s / case")
    remark = (
        "Coding sessions of 60,000 tokens and service sessions of 9,000, cut where 55 % of the text has passed; the "
        "needles are those of `benchmarks/needles.py`. The newest messages that fit are what the simplest compaction "
        f"keeps. {options.jobs} processes at once, so the seconds are those of a busy machine."
    )
    return Table(
        "generated", "Fidelity on generated sessions, our needles", columns + health_columns, rows, remark
    )


def _score_case(case: _Case) -> list[_Score]:
    messages = MAKERS[case.kind](case.tokens, case.seed)
    cut = cut_at(messages)
    prefix, wanted = messages[:cut], needles(messages, cut)
    system = message_tokens(_system(prefix))
    size = message_tokens(prefix) - system
    scores = []
    for part in SHARES:
        budget = int(part * size)
        start = time.perf_counter()
        kept = compactor(prefix, budget)
        seconds = time.perf_counter() - start
        ours, newest = (recalled(wanted, cut, view) for view in (kept, newest_that_fit(prefix, budget)))
        over = message_tokens(kept) - system > budget
        scores.append(_Score(case.kind, part, ours, newest, over, legal(kept), seconds))
    return scores


def _row(what: str, scores: list[_Score]) -> tuple[str | Figure, ...]:
    ours = [score.ours for score in scores]
    return (
        what,
        Figure(len(scores)),
        Figure(sum(recall.needles for recall in ours)),
        *map(share, _means(ours)),
        " / ".join(f"{100 * value:.0f}" for value in _means([score.newest for score in scores])),
        *health((score.over for score in scores), (score.legal for score in scores)),
        Figure(mean(score.seconds for score in scores), "s"),
    )


def _means(recalls: list[Recall]) -> tuple[float, float, float]:
    far = [recall.far for recall in recalls if recall.far is not None]
    return mean(r.recall for r in recalls), mean(r.context for r in recalls), mean(far)


def _system(messages: Chat) -> Chat:
    return [message for message in messages if message["role"] == "system"]
