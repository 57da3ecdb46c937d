"""`python -m benchmarks.train_importance`: learn which values of a conversation its agent goes on to use.

    python -m benchmarks.train_importance --corpora DIR                      # the folds, judged; nothing is written
    python -m benchmarks.train_importance --corpora DIR --folds FOLDER       # their weights as well
    python -m benchmarks.train_importance --corpora DIR --write FILE         # the weights of the package

Each recorded session is cut in several places. The values before the cut that the assistant uses behind it, before
anyone told it again, are the ones that were needed. Gradient boosting with symmetric trees learns to tell them from the
others by the features of `penstock.writing.importance`.

Conversations whose tools answer in text and those whose tools answer in data get weights of their own, each learned from
cuts of their sort alone. Where there are too few of them, that sort is left to the rule.

For every group of sources a fold is trained without it and judged on it, and for every kind of conversation (coding,
customer service) one without any of it: the figures say what to expect where the weights were never before. Everything
is seeded, and a model is trained in one process, so that the same sessions give the same file.
"""

import argparse
import gzip
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.clock import note
from benchmarks.folds import KINDS, TABLE, group_of_file, table_of_folds
from penstock.conversation.dialects import dialect_named
from penstock.conversation.speakers import last_request
from penstock.engine.compress import new_notebook
from penstock.settings import Settings
from penstock.writing.importance import (
    FEATURES,
    LOGIT,
    LearnedImportance,
    TreeWeights,
    WeightsByContent,
    live_of,
    value_features,
)
from penstock.writing.values import values_in

__all__ = ["main"]

Chat = list[dict[str, Any]]
Floats = NDArray[np.float64]
_Given = TypeVar("_Given")
_Made = TypeVar("_Made")

FILES = ("openai/c*.jsonl.gz", "openai/swe*.jsonl.gz", "openai/tau*.jsonl.gz", "natural/*.jsonl.gz")
CUTS = (0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85)  # of the text
SHORTEST = 4_000  # characters before a cut
FEWEST_USED = 3
UNUSED_PER_USED = 10  # at most so many values that were not needed are learned from, chosen at random,
FEWEST_UNUSED = 300  # but at least so many
MOST_HOLDERS = 3  # a name that stands in more values than that says little about each
SEED = 7
is_word = re.compile(r"\w").match

BINS = 32
ROUNDS = 110
DEPTH = 5
RATE = 0.12
SHRINK = 30.0  # added to the weight of each leaf: the larger, the more it takes to believe one
ROWS = 0.35  # the share of rows, and of features, by which one tree chooses its questions
COLUMNS = 0.6
NEAR = 40  # thousandths of the tokens: what was mentioned that late is mostly kept anyway,
NEAR_WEIGHT = 0.3  # and counts for less
RULE_SHARE = 30  # percent
IN_DATA = KINDS["service"]  # the sources whose tools answer in data, but for single cuts of others
FEWEST_CUTS = 20  # of a sort of conversation: fewer teach nothing

PROVENANCE = {
    "made_by": "benchmarks/train_importance.py",
    "learned_from": "published sessions of coding agents and of customer service: entireio/cli, entireio/git-sync, "
    "PackmindHub/context-evaluator, SWE-agent/SWE-agent, sierra-research/tau-bench, sierra-research/tau2-bench, "
    "xuanfeiren/tau-bench",
    "licences": "MIT; PackmindHub/context-evaluator Apache-2.0. The file holds thresholds and sums, no text of theirs.",
}


class Session(NamedTuple):
    """A recorded session and the places to cut it."""

    group: str
    messages: Chat
    cuts: tuple[int, ...]


class Sample(NamedTuple):
    """The values before one cut: their features, whether they were needed, and how many values each stands for.

    `is_data` where it is of a source whose tools answer in data.
    """

    group: str
    is_data: bool
    features: NDArray[np.int32]
    needed: NDArray[np.bool_]
    stands_for: Floats
    values: int


_Cuts = tuple[Sample, ...]


class Model(NamedTuple):
    """Trees as they are trained: questions by feature and bin, leaves in logits."""

    edges: list[NDArray[np.int64]]
    bias: float
    trees: list[tuple[list[tuple[int, int]], Floats]]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train_importance", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--corpora", type=Path, required=True, metavar="DIR")
    parser.add_argument("--write", type=Path, metavar="FILE", help="weights trained on all of it")
    parser.add_argument(
        "--folds", type=Path, metavar="FOLDER", help="weights trained without one source or kind"
    )
    parser.add_argument("--date", default="", help="stands in the provenance of what is written")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(argv)
    sessions = list(read_sessions(options.corpora))
    samples = [sample for several in _map(samples_of, sessions, options.jobs) for sample in several]
    note(f"{len(sessions)} sessions, {len(samples)} cuts, {sum(len(s.needed) for s in samples):,} values")
    if options.folds:
        options.folds.mkdir(parents=True, exist_ok=True)
        table = table_of_folds([(session.group, session.messages) for session in sessions])
        (options.folds / TABLE).write_text(json.dumps(table, indent=0) + "\n")
    if options.folds or not options.write:
        _train_folds(samples, options)
    if options.write:
        models = _train_all([tuple(samples)], options.jobs)
        _write(options.write, models[0], options.date, "all of them")
    return 0


def _train_folds(samples: list[Sample], options: argparse.Namespace) -> None:
    print(
        f"{'left out':<10} {'cuts':>5}   rule: auc  top 15 %   learned: auc  top 15 %   mixed: auc  top 15 %"
    )
    folds = {group: (group,) for group in sorted({sample.group for sample in samples})} | KINDS
    learned_from = [tuple(s for s in samples if s.group not in left_out) for left_out in folds.values()]
    models = _train_all(learned_from, options.jobs)
    for (fold, left_out), learned in zip(folds.items(), models, strict=True):
        judged = [sample for sample in samples if sample.group in left_out]
        figures = []
        for rule_share in (100, 0, RULE_SHARE):
            scores = [_mixed(learned[sample.is_data], sample.features, rule_share) for sample in judged]
            pairs = list(zip(judged, scores, strict=True))
            figures += [
                float(np.mean([judge(s.needed, score, s.stands_for) for s, score in pairs]))
                for judge in (auc, top)
            ]
        print(f"{fold:<10} {len(judged):>5}  {figures[0]:>10.4f} {figures[1]:>9.4f}   {figures[2]:>12.4f} "
              f"{figures[3]:>9.4f}   {figures[4]:>10.4f} {figures[5]:>9.4f}", flush=True)  # fmt: skip
        if options.folds:
            _write(options.folds / f"{fold}.json", learned, options.date, f"all but {', '.join(left_out)}")


def _train_all(learned_from: Sequence[_Cuts], jobs: int) -> list[tuple[Model | None, Model | None]]:
    """For each of these, a model of its cuts in text and one of those in data; the same cuts are learned from once."""
    sorts = [
        tuple(s for s in samples if s.is_data is is_data)
        for samples in learned_from
        for is_data in (False, True)
    ]
    names = [tuple(map(id, cuts)) for cuts in sorts]
    distinct = {name: cuts for name, cuts in zip(names, sorts, strict=True) if len(cuts) >= FEWEST_CUTS}
    made = dict(zip(distinct, _map(train, distinct.values(), jobs), strict=True))
    models = [made.get(name) for name in names]
    return list(zip(models[::2], models[1::2], strict=True))


def _mixed(model: Model | None, features: NDArray[np.int32], rule_share: int) -> Floats:
    rule = features[FEATURES.index("rule")] / 64
    if model is None:
        return rule
    learned = LearnedImportance(_weights(model, "", "")).logits(features)
    return rule_share / 100 * rule + (1 - rule_share / 100) * learned / LOGIT


def _map(function: Callable[[_Given], _Made], given: Iterable[_Given], jobs: int) -> Iterator[_Made]:
    """Yields what the function makes of each, in order, in as many processes as asked for."""
    if jobs == 1:
        yield from map(function, given)
    else:
        with ProcessPoolExecutor(jobs) as pool:
            yield from pool.map(function, given)


# Reading.


def read_sessions(corpora: Path) -> Iterator[Session]:
    """Yields every recorded session with a place to cut it; a real compaction is one."""
    for path in (path for pattern in FILES for path in sorted(corpora.glob(pattern))):
        group = group_of_file(path.name)
        if group is None:
            continue
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                if "prefix" in record:
                    yield Session(group, record["prefix"] + record["future"], (len(record["prefix"]),))
                elif cuts := _cuts(record["messages"]):
                    yield Session(group, record["messages"], cuts)


def _cuts(messages: Chat) -> tuple[int, ...]:
    """The places where a share of the text has passed, never between a call and its result."""
    sizes = np.array([0 if message["role"] == "system" else len(json.dumps(message)) for message in messages])
    passed = np.cumsum(sizes)
    cuts = set()
    for share in CUTS:
        cut = int(np.searchsorted(passed, share * passed[-1])) + 1
        while cut < len(messages) and messages[cut]["role"] == "tool":
            cut += 1
        if 3 < cut < len(messages) - 1 and passed[cut - 1] > SHORTEST:
            cuts.add(cut)
    return tuple(sorted(cuts))


def samples_of(session: Session) -> list[Sample]:
    """The values before each cut of a session, as they would be scored there."""
    notebook = new_notebook(None, Settings())
    values = [
        frozenset(value for text in _texts(message) for value in values_in(text))
        for message in session.messages
    ]
    samples = []
    for cut in session.cuts:
        transcript = notebook.open(session.messages[:cut], dialect_named("chat")).transcript
        index = transcript.index
        live = live_of(transcript, last_request(transcript.messages), "")
        features = value_features(index, live, transcript.tokens_after())
        present = index.in_sources > 0
        used = _used_after(session.messages, values, cut)
        used |= _holders(used, frozenset().union(*values[:cut]))
        numbers = index.vocabulary.numbers_of(sorted(used))
        needed = np.zeros(len(present), np.bool_)
        needed[numbers[numbers < len(present)]] = True
        needed &= present
        if needed.sum() >= FEWEST_USED:
            samples.append(_thin(session.group, session.group in IN_DATA, features, needed, present))
    return samples


def _used_after(messages: Chat, values: Sequence[frozenset[str]], cut: int) -> set[str]:
    """The values that the assistant uses behind the cut before anyone, or the system prompt, told them."""
    told = {value for at in range(cut) if messages[at]["role"] == "system" for value in values[at]}
    used: set[str] = set()
    for at in range(cut, len(messages)):
        if messages[at]["role"] == "assistant":
            used |= values[at] - told
        told |= values[at]
    return used


def _holders(used: set[str], before: frozenset[str]) -> set[str]:
    """The values before the cut that hold a used one that was no value there: a path whose folder is named later."""
    lines = "\n".join(["", *sorted(before), ""])
    return {
        lines[lines.rfind("\n", 0, at) + 1 : lines.find("\n", at)]
        for value in used - before
        for at in islice(_places(value, lines), MOST_HOLDERS)
    }


def _places(value: str, text: str) -> Iterator[int]:
    """Yields where the value stands as a whole word."""
    at = text.find(value)
    while at >= 0:
        if not is_word(text[at - 1]) and not is_word(text[at + len(value)]):
            yield at
        at = text.find(value, at + 1)


def _texts(message: dict[str, Any]) -> Iterator[str]:
    """Yields what a message says, and each argument of its calls; a key is written because the tool has it."""
    content = message.get("content") or ""
    yield content if isinstance(content, str) else "\n".join(part.get("text") or "" for part in content)
    for call in message.get("tool_calls") or ():
        arguments = call["function"].get("arguments") or ""
        try:
            nodes = [json.loads(arguments)]
        except ValueError:
            yield arguments
            continue
        while nodes:
            node = nodes.pop()
            if isinstance(node, list | dict):
                nodes += node.values() if isinstance(node, dict) else node
            else:
                yield str(node)


def _thin(
    group: str,
    is_data: bool,
    features: NDArray[np.int32],
    needed: NDArray[np.bool_],
    present: NDArray[np.bool_],
) -> Sample:
    """All values that were needed, and some of the others, each of which stands for several."""
    used, unused = np.flatnonzero(needed), np.flatnonzero(present & ~needed)
    most = min(len(unused), max(FEWEST_UNUSED, UNUSED_PER_USED * len(used)))
    some = np.random.default_rng(SEED).choice(unused, most, replace=False)
    chosen = np.concatenate([used, some])
    stands_for = np.concatenate([np.ones(len(used)), np.full(most, len(unused) / max(1, most))])
    return Sample(group, is_data, features[:, chosen], needed[chosen], stands_for, int(present.sum()))


# Training.


def train(samples: Sequence[Sample]) -> Model:
    """Trees that tell the values that were needed from the others of the same cut.

    Each cut starts from its own share of needed values, so that the trees need not learn which conversations use more
    of what was said: only the order of values within one matters.
    """
    features = np.concatenate([sample.features for sample in samples], axis=1)
    needed = np.concatenate([sample.needed for sample in samples])
    edges = [_edges(row) for row in features]
    bins = np.stack(
        [np.searchsorted(edge, row).astype(np.uint8) for edge, row in zip(edges, features, strict=True)]
    )
    weights = _weigh(samples, features)
    logits = np.concatenate([np.full(len(s.needed), _logit(s.needed.sum() / s.values)) for s in samples])
    bias = float(np.average(logits, weights=weights))
    random = np.random.default_rng(SEED)
    trees = []
    for _ in range(ROUNDS):
        chance = 1 / (1 + np.exp(-logits))
        slope, bend = weights * (chance - needed), weights * chance * (1 - chance)
        rows = np.flatnonzero(random.random(len(needed)) < ROWS)
        columns = np.sort(random.choice(len(bins), int(COLUMNS * len(bins)), replace=False))
        questions = _grow(bins[np.ix_(columns, rows)], slope[rows], bend[rows])
        questions = [(int(columns[column]), above) for column, above in questions]
        leaf = _leaf(bins, questions)
        leaves = -RATE * np.bincount(leaf, slope, 1 << DEPTH) / (np.bincount(leaf, bend, 1 << DEPTH) + SHRINK)
        logits += leaves[leaf]
        trees.append((questions, leaves))
    return Model(edges, bias, trees)


def _weigh(samples: Sequence[Sample], features: NDArray[np.int32]) -> Floats:
    """Cuts with many needed values and groups with many cuts count for more than others, but not in proportion."""
    cuts = {group: sum(sample.group == group for sample in samples) for group in {s.group for s in samples}}
    weights = np.concatenate(
        [s.stands_for / math.sqrt(max(10, int(s.needed.sum())) * cuts[s.group]) for s in samples]
    )
    weights *= np.where(features[FEATURES.index("share_after")] < NEAR, NEAR_WEIGHT, 1.0)
    return weights / weights.mean()


def _logit(share: float) -> float:
    return math.log(share / (1 - min(share, 0.9)))


def _edges(row: NDArray[np.int32]) -> NDArray[np.int64]:
    """The thresholds of a feature: between all its values where they are few, else at its quantiles."""
    distinct = np.unique(row)
    if len(distinct) > BINS - 1:
        return np.unique(np.quantile(row, np.linspace(0, 1, BINS + 1)[1:-1], method="lower")).astype(np.int64)
    return distinct[:-1].astype(np.int64)


def _grow(bins: NDArray[np.uint8], slope: Floats, bend: Floats) -> list[tuple[int, int]]:
    """The questions of one tree: at each depth the one that parts needed from others best, over all leaves so far.

    Of the two leaves that a question makes of one, only the smaller is counted; the other is what remains.
    """
    leaf = np.zeros(bins.shape[1], np.int64)
    questions: list[tuple[int, int]] = []
    sums = np.zeros((0,))
    for depth in range(DEPTH):
        if depth == 0:
            sums = _histograms(bins, leaf, slope, bend, 1)
        else:
            sizes = np.bincount(leaf, minlength=1 << depth).reshape(-1, 2)
            smaller = (sizes[:, 1] < sizes[:, 0]).astype(np.int64)
            rows = np.flatnonzero((leaf & 1) == smaller[leaf >> 1])
            counted = _histograms(bins[:, rows], leaf[rows] >> 1, slope[rows], bend[rows], 1 << depth >> 1)
            parents, parts = np.arange(len(smaller)), np.empty((*sums.shape[:2], 1 << depth, BINS))
            parts[:, :, 2 * parents + smaller] = counted
            parts[:, :, 2 * parents + 1 - smaller] = sums - counted
            sums = parts
        below = np.cumsum(sums, axis=3)[..., :-1]
        total = sums.sum(axis=3, keepdims=True)
        above = total - below
        gain = (_worth(below) + _worth(above) - _worth(total)).sum(axis=1)
        column, threshold = divmod(int(gain.argmax()), BINS - 1)
        questions.append((column, threshold))
        leaf = 2 * leaf + (bins[column] > threshold)
    return questions


def _histograms(
    bins: NDArray[np.uint8], leaf: NDArray[np.int64], slope: Floats, bend: Floats, leaves: int
) -> Floats:
    """Sums of slope and bend, by feature, leaf and bin."""
    sums = np.empty((2, len(bins), leaves, BINS))
    for column, row in enumerate(bins):
        key = leaf * BINS + row
        for which, numbers in enumerate((slope, bend)):
            sums[which, column] = np.bincount(key, numbers, leaves * BINS).reshape(leaves, BINS)
    return sums


def _worth(sums: Floats) -> Floats:
    """How much is won by giving rows with these sums of slope and bend a leaf of their own."""
    worth: Floats = sums[0] ** 2 / (np.maximum(sums[1], 0.0) + SHRINK)
    return worth


def _leaf(bins: NDArray[np.uint8], questions: list[tuple[int, int]]) -> NDArray[np.int64]:
    leaf = np.zeros(bins.shape[1], np.int64)
    for column, above in questions:
        leaf = 2 * leaf + (bins[column] > above)
    return leaf


# Judging and writing.


def auc(needed: NDArray[np.bool_], score: Floats, stands_for: Floats) -> float:
    """How often a value that was needed scores higher than one that was not."""
    order = np.argsort(score, kind="stable")
    needed, stands_for = needed[order], stands_for[order]
    below = np.cumsum(stands_for * ~needed)
    return float((stands_for * below)[needed].sum() / (stands_for[needed].sum() * stands_for[~needed].sum()))


def top(needed: NDArray[np.bool_], score: Floats, stands_for: Floats, share: float = 0.15) -> float:
    """How many of the needed values are among this share of all values that scores highest."""
    order = np.argsort(-score, kind="stable")
    within = np.cumsum(stands_for[order]) <= share * stands_for.sum()
    return float(needed[order][within].sum() / needed.sum())


def _weights(model: Model, date: str, learned_from: str) -> TreeWeights:
    """The model in whole numbers: thresholds of features in the place of bins, leaves in steps of a logit."""
    used = sorted({feature for questions, _ in model.trees for feature, _ in questions})
    place = {feature: number for number, feature in enumerate(used)}
    return TreeWeights(
        provenance=PROVENANCE | {"sources_used": learned_from} | ({"date": date} if date else {}),
        features=tuple(FEATURES[feature] for feature in used),
        rule_share=RULE_SHARE,
        bias=round(model.bias * LOGIT),
        splits=tuple(
            tuple((place[feature], _threshold(model.edges[feature], above)) for feature, above in questions)
            for questions, _ in model.trees
        ),
        leaves=tuple(tuple(round(leaf * LOGIT) for leaf in leaves.tolist()) for _, leaves in model.trees),
    )


def _threshold(edges: NDArray[np.int64], above: int) -> int:
    """A row is in a bin above this one where its feature is greater than the bin's upper edge."""
    return int(edges[above]) if above < len(edges) else 2**31 - 1


def _write(path: Path, models: tuple[Model | None, Model | None], date: str, learned_from: str) -> None:
    sets = [None if model is None else _weights(model, date, learned_from) for model in models]
    written = {
        name: "{\n" + ",\n".join(_fields(weights)) + "\n}"
        for name, weights in zip(WeightsByContent.__struct_fields__, sets, strict=True)
        if weights is not None
    }
    lines = [f"{json.dumps(name)}: {value}" for name, value in written.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    note(f"wrote {path.name}, {path.stat().st_size:,} bytes")


def _fields(weights: TreeWeights) -> Iterator[str]:
    """JSON of each field, with one tree a line."""
    for name in weights.__struct_fields__:
        value = getattr(weights, name)
        written = json.dumps(value)
        if isinstance(value, tuple) and value and isinstance(value[0], tuple):
            trees = ",\n".join(json.dumps(tree, separators=(",", ":")) for tree in value)
            written = f"[\n{trees}\n]"
        yield f"{json.dumps(name)}: {written}"


if __name__ == "__main__":
    raise SystemExit(main())
