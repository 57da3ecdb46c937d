"""Recorded sessions, compacted and scored by the scorers that lie beside them, in as many processes as cores.

The scorers are loaded by path from the folder that `PENSTOCK_CORPORA` names; nothing of it is part of the project.
The same compactions are scored a second time with our own definition of a needle.
"""

import copy
import importlib.util
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.clock import note
from benchmarks.goals import METRICS, REAL, ROWS
from benchmarks.needles import Needle, Recall, needles, recalled
from benchmarks.options import Options
from benchmarks.speed import warm
from penstock import PenstockError

__all__ = [
    "FILES",
    "Case",
    "Compactor",
    "Score",
    "budget_of",
    "counts_exactly",
    "load_scorer",
    "recorded_cases",
    "scores",
]

Chat = list[dict[str, Any]]
Compactor = Callable[[Chat, int], Chat]
FEWEST_NEEDLES = 3  # as in the corpora's own scorer
FILES = {
    "coding": ("openai/c*.jsonl.gz", "openai/swe*.jsonl.gz"),
    "customer service": ("openai/tau*.jsonl.gz",),
    REAL: ("natural/*.jsonl.gz",),
}


class Case(NamedTuple):
    """One conversation cut in two: the scorer's own case, and the needles of our definition."""

    group: str
    scored: dict[str, Any]
    ours: tuple[Needle, ...]


class Task(NamedTuple):
    """What to do with a case: which row, which compactor by which name, how many tokens."""

    row: int
    name: str
    compactor: Compactor
    budget: int


class Score(NamedTuple):
    """One compaction of one case. Each of `theirs` is (found, of how many); `ours` is None with too few needles."""

    row: int
    compactor: str
    theirs: dict[str, tuple[int, int]]
    ours: Recall | None
    kept: float
    over: bool
    legal: bool
    refused: bool
    seconds: float


def counts_exactly(folder: Path) -> bool:
    """Whether the scorer has its tokenizer; without it budgets mean nothing."""
    return bool(load_scorer(folder, "future_recall").EXACT)


def scores(folder: Path, options: Options, compactor: Compactor) -> list[Score]:
    """Every row, on every case of its sessions, by our compactor and by baselines where asked."""
    with ProcessPoolExecutor(options.jobs, initializer=warm) as pool:
        cases = recorded_cases(folder, options, pool)
        note(f"fidelity: compacting {len(cases)} recorded sessions, {options.jobs} processes")
        work = [(folder, case, compactor, options.baselines) for case in cases]
        return [score for several in pool.map(_score_case, work) for score in several]


def recorded_cases(folder: Path, options: Options, pool: ProcessPoolExecutor) -> list[Case]:
    """All cases, the long ones first, so that no core waits at the end."""
    files = [
        (folder, group, path, options.limit)
        for group, patterns in FILES.items()
        for pattern in patterns
        for path in sorted(folder.glob(pattern))
    ]
    note(f"reading {len(files)} files of recorded sessions, {options.jobs} processes")
    cases = [case for several in pool.map(_cases, files) for case in several]
    return sorted(cases, key=lambda case: -case.scored["size"])


def budget_of(folder: Path, case: Case, share: float | None) -> int:
    """Tokens: a share of what the case holds, or the size of the recorded summary where that is None."""
    if share is None:
        return int(load_scorer(folder, "natural_eval").summary_size(case.scored))
    return int(share * case.scored["size"])


def load_scorer(folder: Path, name: str) -> ModuleType:
    """A scorer out of the folder, once a process. `natural_eval` finds `future_recall` by its name."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"there is no {name}.py in {folder}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _cases(work: tuple[Path, str, Path, int]) -> list[Case]:
    folder, group, path, limit = work
    scorer = load_scorer(folder, "future_recall")
    records = scorer.load(path)
    natural = group == REAL
    cases = scorer.natural_cases(records)[:limit] if natural else scorer.make_cases(records, limit=limit)
    by_id = {record["id"]: record for record in records}
    found = []
    for case in cases:
        record, prefix = by_id[case["id"]], case["prefix"]
        future = record["future"] if natural else record["messages"][len(prefix) :]
        found.append(Case(group, case, needles(prefix + future, len(prefix))))
    return found


def _score_case(work: tuple[Path, Case, Compactor, bool]) -> list[Score]:
    folder, case, compactor, baselines = work
    scorer = load_scorer(folder, "future_recall")
    compactors = {"penstock": compactor}
    if baselines:
        compactors |= {name: scorer.BASELINES[name] for name in ("last_k", "head3_tail")}
    done = []
    for number, row in enumerate(ROWS):
        if row.group == case.group:
            budget = budget_of(folder, case, row.share)
            done += [_score(scorer, case, Task(number, *named, budget)) for named in compactors.items()]
    return done


def _score(scorer: ModuleType, case: Case, task: Task) -> Score:
    given = copy.deepcopy(case.scored["prefix"])
    start = time.perf_counter()
    try:
        kept, refused = task.compactor(given, task.budget), False
    except PenstockError as error:
        note(f"fidelity: {case.scored['id']} at {task.budget} tokens was refused: {error}")
        kept, refused = [], True
    seconds = time.perf_counter() - start
    result = scorer.score(case.scored, kept)
    enough = len(case.ours) >= FEWEST_NEEDLES
    return Score(
        row=task.row,
        compactor=task.name,
        theirs={metric: tuple(result[metric]) for metric in METRICS},
        ours=recalled(case.ours, len(case.scored["prefix"]), kept) if enough else None,
        kept=result["kept"],
        over=result["size"] > task.budget,
        legal=result["legal"],
        refused=refused,
        seconds=seconds,
    )
