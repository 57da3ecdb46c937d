"""The tables of recorded sessions: means over cases, as the corpora's own tables have them."""

import statistics
from collections.abc import Iterable

from benchmarks.corpora import Compactor, Score, counts_exactly, scores
from benchmarks.goals import METRICS, ROWS
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table, share

__all__ = ["health", "mean", "run"]

TITLE = "Fidelity on recorded sessions"
SESSION = "session, share of tokens"
HEALTH = ("tokens kept", "over budget", "refused", "legal", "s / case")
NONE = Limit(0)
ALL = Limit(100, at_least=True)
UNSET = (
    "Not run: PENSTOCK_CORPORA names no folder of recorded sessions. Set it to a folder that holds `future_recall.py`, "
    "`natural_eval.py`, `openai/` and `natural/`. It would add the five rows that the floors are about (coding at 10, "
    "20 and 30 %, customer service at 20 %, real compactions at the size of the model's own summary), by the "
    "corpora's needles and by ours, beside baselines."
)
INEXACT = (
    "Not run: the corpora's scorer counts tokens with `tiktoken`, which is not installed here (or its `o200k.json` is "
    "missing), and without it the budgets mean nothing. Install it with `pip install tiktoken`."
)


def run(options: Options, compactor: Compactor) -> list[Table]:
    """Tables by the corpora's needles and by ours, or one that says why there are none."""
    if options.corpora is None:
        return [Table("corpora", TITLE, (), (), UNSET)]
    if not counts_exactly(options.corpora):
        return [Table("corpora", TITLE, (), (), INEXACT)]
    done = scores(options.corpora, options, compactor)
    tables = []
    if options.needles in ("theirs", "both"):
        tables += [_theirs(options, done), _baselines(done), _brief(done)]
    if options.needles in ("ours", "both"):
        tables.append(_ours(done))
    return tables


def mean(values: Iterable[float]) -> float:
    """Not a number where there is nothing to take the mean of."""
    listed = list(values)
    return statistics.fmean(listed) if listed else float("nan")


def health(over: Iterable[bool], legal: Iterable[bool]) -> tuple[Figure, Figure]:
    """How many results pass their budget, and the share of legal ones: there is no tolerance for either."""
    return Figure(sum(over), "", NONE), share(mean(legal), ALL)


def _theirs(options: Options, done: list[Score]) -> Table:
    rows: list[tuple[str | Figure, ...]] = []
    for number, row in enumerate(ROWS):
        own = _of(done, number)
        metrics = [share(value, limit) for value, limit in zip(_their_means(own), row.limits, strict=True)]
        over, legal = health((score.over for score in own), (score.legal for score in own))
        kept, seconds = share(mean(score.kept for score in own)), mean(score.seconds for score in own)
        refused = Figure(sum(score.refused for score in own), "", NONE)
        rows.append((row.name, Figure(len(own)), *metrics, kept, over, refused, legal, Figure(seconds, "s")))
    columns = (SESSION, "cases", *(f"{metric} (floor · goal)" for metric in METRICS), *HEALTH)
    remark = (
        "By the corpora's own needles and scorer: recall is the share of needles still there, ctx those beside two "
        "of their former neighbour words, far those last mentioned before the newest 30 % of the tokens. At most "
        f"{options.limit} cases a file, means over cases. {options.jobs} processes at once, so the seconds are those "
        "of a busy machine."
    )
    return Table("corpora", f"{TITLE}, the corpora's needles", columns, tuple(rows), remark)


def _ours(done: list[Score]) -> Table:
    others = [name for name in dict.fromkeys(score.compactor for score in done) if name != "penstock"]
    rows: list[tuple[str | Figure, ...]] = []
    for number, row in enumerate(ROWS):
        own = [score.ours for score in _of(done, number) if score.ours is not None]
        count = Figure(sum(recall.needles for recall in own))
        means = _our_means(_of(done, number))
        beside = [_three(_our_means(_of(done, number, name))) for name in others]
        rows.append((row.name, Figure(len(own)), count, *map(share, means), *beside))
    columns = (SESSION, "cases", "needles", *METRICS, *others)
    remark = (
        "The same compactions, judged by the needles of `benchmarks/needles.py`, which share no pattern with the "
        "corpora's. There are no floors for these; they are here to show a compaction that "
        "fits only the other definition."
    )
    if not others:
        remark += " `--baselines` adds simple compactors on the same cases."
    return Table("corpora-ours", f"{TITLE}, our needles", columns, tuple(rows), remark)


def _baselines(done: list[Score]) -> Table:
    names = list(dict.fromkeys(name for row in ROWS for name in row.recorded))
    again = [name for name in names if any(score.compactor == name for score in done)]
    rows: list[tuple[str | Figure, ...]] = []
    for number, row in enumerate(ROWS):
        cells = [row.name, _three(_their_means(_of(done, number)))]
        cells += [_three(value / 100 for value in row.recorded.get(name, ())) for name in names]
        cells += [_three(_their_means(_of(done, number, name))) for name in again]
        rows.append(tuple(cells))
    remark = (
        "Recall / ctx / far in per cent. The baselines come with the corpora: `last_k` is the newest messages that fit, "
        "`head3_tail` the first three and then those; both may pass the budget by up to 5 % in a case."
    )
    if not again:
        remark += " `--baselines` runs them again, on the same cases in the same run."
    columns = (
        SESSION,
        "penstock",
        *(f"{name}, as recorded" for name in names),
        *(f"{name}, this run" for name in again),
    )
    return Table("baselines", f"{TITLE}, baselines, the corpora's needles", columns, tuple(rows), remark)


def _brief(done: list[Score]) -> Table:
    """What people ask first, for the README: the share of values that are still there."""
    rows: list[tuple[str | Figure, ...]] = []
    for number, row in enumerate(ROWS):
        own = _of(done, number)
        simple = [f"{row.recorded[name][0]:.0f} %" for name in ("last_k", "head3_tail")]
        summary = row.recorded.get("the model's summary")
        kept = f"{100 * mean(score.kept for score in own):.0f} %"
        what = (
            f"{row.group}, {kept} of the tokens"
            if summary is None
            else f"compacted by an agent's own model to {kept}; its summary has {summary[0]:.0f} %"
        )
        rows.append((what, *simple, f"{100 * _their_means(own)[0]:.0f} %"))
    columns = ("kept", "newest messages", "first three + newest", "Penstock")
    return Table("kept", f"{TITLE}, in short", columns, tuple(rows))


def _of(done: list[Score], row: int, compactor: str = "penstock") -> list[Score]:
    return [score for score in done if score.row == row and score.compactor == compactor]


def _their_means(done: list[Score]) -> list[float]:
    counted = [[score.theirs[metric] for score in done if score.theirs[metric][1]] for metric in METRICS]
    return [mean(found / wanted for found, wanted in pairs) for pairs in counted]


def _our_means(done: list[Score]) -> tuple[float, float, float]:
    own = [score.ours for score in done if score.ours is not None]
    far = [recall.far for recall in own if recall.far is not None]
    return mean(recall.recall for recall in own), mean(recall.context for recall in own), mean(far)


def _three(shares: Iterable[float]) -> str:
    return " / ".join(f"{100 * value:.1f}" for value in shares)
