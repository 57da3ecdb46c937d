"""A window against a target: whether a view of a window keeps as much as one of a named target of the same size.

Each recorded session is compacted for a window that it does not fit, and then to the size which that view really has. The
questions are those of `future_recall.py` and `continuity_eval.py`, which lie beside the sessions.
"""

import copy
import statistics
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.clock import note
from benchmarks.corpora import FILES, load_scorer
from benchmarks.folds import importance_for
from benchmarks.goals import REAL
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table, share
from benchmarks.speed import warm
from penstock.engine.compress import Compressed, CompressRequest, compress_list
from penstock.errors import TargetTooSmall
from penstock.planning.receipt import COMPACTED

__all__ = ["run"]

Chat = list[dict[str, Any]]
Answers = dict[str, float | None]

VALUES = ("recall", "ctx", "far")
THREAD = ("fresh", "own", "people", "args", "phrases", "line", "task", "goal", "part")
SHARES = (0.25, 0.5)
SERVICE_SHARES = (1.0,)  # of a session of 4,000 tokens, a quarter is no window
SMALLEST = 3_500  # tokens; models have no smaller windows


class Pair(NamedTuple):
    """One session in one window: the answers for its view, and for that of a target of the same size."""

    group: str
    share: float
    kept: float
    window: Answers
    target: Answers


def run(options: Options) -> list[Table]:
    """The table, or none where there are no recorded sessions: the tables before it say why."""
    folder = options.corpora
    if folder is None or not load_scorer(folder, "future_recall").EXACT:
        return []
    files = [
        (folder, group, path, options.limit)
        for group, patterns in FILES.items()
        for pattern in patterns
        for path in sorted(folder.glob(pattern))
    ]
    files.sort(
        key=lambda work: -work[2].stat().st_size
    )  # the long ones first, so that no core waits at the end
    note(f"windows: {len(files)} files of recorded sessions, {options.jobs} processes")
    with ProcessPoolExecutor(options.jobs, initializer=warm) as pool:
        pairs = [pair for several in pool.map(_judge_file, files) for pair in several]
    rows = [
        _row(f"{group}, {100 * part:.0f} %", [pair for pair in pairs if pair[:2] == (group, part)])
        for group in FILES
        for part in _shares(group)
    ]
    columns = ("session, window", "cases", "tokens kept", "recall against the target", *VALUES, *THREAD)
    remark = (
        "Each cell: what the view of the window has, and by how much that is more than what a named target of the same size "
        "has, with the standard error of the paired difference. A window of 25 % is one of a quarter of the session's tokens "
        f"(with its system prompt beside them); windows below {SMALLEST:,} tokens are left out. The questions are those of "
        f"the corpora, `part` is better when lower. At most {options.limit} cases a file."
    )
    return [Table("windows", "A window against a target of the same size", columns, tuple(rows), remark)]


def _shares(group: str) -> tuple[float, ...]:
    return SHARES if group in ("coding", REAL) else SERVICE_SHARES


def _judge_file(work: tuple[Path, str, Path, int]) -> list[Pair]:
    folder, group, path, limit = work
    recall = load_scorer(folder, "future_recall")
    load_scorer(folder, "natural_eval")
    continuity = load_scorer(folder, "continuity_eval")
    cases = continuity.natural_cases(path) if group == REAL else continuity.cases_of(path, limit)
    found = []
    for case in cases:
        asked = continuity.ask(case)
        for part in _shares(group):
            views = _compact_twice(case["prefix"], case["size"], part, recall)
            if views is None:
                continue
            window, target = (
                {**_score(recall, case, view), **_judge(continuity, recall, asked, view)} for view in views
            )
            kept = recall.tokens(recall.split_system(views[0])[1]) / case["size"]
            found.append(Pair(group, part, kept, window, target))
    return found


def _compact_twice(prefix: Chat, size: int, part: float, recall: ModuleType) -> tuple[Chat, Chat] | None:
    """The view of a window and that of a target of its size; None where the window is too small for this session."""
    window = recall.tokens(recall.split_system(prefix)[0]) + int(part * size)
    if window < SMALLEST:
        return None
    importance = importance_for(prefix)

    def compact(**goal: int) -> Compressed:
        request = CompressRequest(dialect="chat", importance=importance, **goal)
        return compress_list(copy.deepcopy(prefix), request)

    try:
        first = compact(context_length=window)
        if first.receipt.outcome != COMPACTED:
            return None
        return first.messages, compact(target_tokens=first.receipt.tokens_after).messages
    except TargetTooSmall:
        return None


def _score(recall: ModuleType, case: dict[str, Any], view: Chat) -> Answers:
    hits = recall.score(case, view)
    return {name: hits[name][0] / hits[name][1] if hits[name][1] else None for name in VALUES}


def _judge(continuity: ModuleType, recall: ModuleType, asked: dict[str, Any], view: Chat) -> Answers:
    size = max(1, recall.tokens(recall.split_system(view)[1]))
    answers = continuity.judge(asked, view, size)
    return {name: answers[name] for name in THREAD}


def _row(what: str, pairs: list[Pair]) -> tuple[str | Figure, ...]:
    kept = statistics.fmean(pair.kept for pair in pairs) if pairs else float("nan")
    cells = [
        _compare((pair.window[name], pair.target[name]) for pair in pairs) for name in (*VALUES, *THREAD)
    ]
    against = [pair.window["recall"] - pair.target["recall"] for pair in pairs]  # type: ignore[operator]  # cases have needles
    behind = share(statistics.fmean(against) if against else float("nan"), Limit(-1, 0, at_least=True))
    return (what, Figure(len(pairs)), share(kept), behind, *cells)


def _compare(answers: Iterable[tuple[float | None, float | None]]) -> str:
    both = [
        (100 * window, 100 * target)
        for window, target in answers
        if window is not None and target is not None
    ]
    if not both:
        return "–"
    differences = [window - target for window, target in both]
    error = statistics.stdev(differences) / len(both) ** 0.5 if len(both) > 1 else 0.0
    mean = statistics.fmean(window for window, _ in both)
    return f"{mean:.1f} ({statistics.fmean(differences):+.1f} ± {error:.1f})"
