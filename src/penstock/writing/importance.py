"""Scores how likely each value of a conversation is to be needed again: by a rule with few weights, and by learned trees.

**The rule** is logistic. Its weights, by their effect: how recently and how often a value was mentioned, whether
anyone but a tool said it, how closely it is related to the live request, and how crowded the least crowded of its
places is (one of forty items of a listing is rarely the wanted one). Keys of JSON name values and are seldom wanted
themselves. See docs/adr/0004-importance.md.

**The trees** add what nobody could weigh by hand: how values of this shape, this kind and this tool have fared so far
in this very conversation, the neighbours of a value, its place in the text. `benchmarks/train_importance.py` learns
them from recorded sessions; their weights, with a note of their origin, are in `importance.json` beside this file.
There are two sets of trees, for conversations whose tools answer in text and for those whose tools answer in data
(JSON), since different things make a value wanted. The trees' logits are mixed with the rule's. If there is no set for
a conversation, the rule decides alone. See docs/adr/0017-learned-importance.md.

All arithmetic is in whole numbers: logits in steps of 1/1024, logarithms and the logistic curve from tables. So every
platform chooses the same excerpts. Even sums of weights are exact, since a weight is a multiple of 1/16384.

All arrays have one row per value, by its number in the vocabulary, unless they say otherwise. The vocabulary serves
every conversation of a notebook and may know more values than this index, so its arrays are cut to `count`.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from penstock.writing.asked import weigh_words
from penstock.writing.compiled import (
    add_leaves,
    count_fortunes,
    count_mentions,
    find_least_of_most,
    look_beside,
    score_rule,
    squash,
)
from penstock.writing.finder import IS_KEY, ValueLabel
from penstock.writing.reading import Speaker, split_runs, spoken_text
from penstock.writing.value_looks import SHAPES, Kind
from penstock.writing.values import sub_words
from penstock.writing.vocabulary import RELATION_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.writing.reading import Index
    from penstock.writing.transcript import Transcript
    from penstock.writing.writer import Importance

    Whole = NDArray[np.int64]
    Steps = NDArray[
        np.int32
    ]  # logits and logarithms: all of them and their weighted sums are far below 2 ** 31
    Flags = NDArray[np.bool_]
    Features = Iterator[tuple[str, NDArray[Any]]]

__all__ = [
    "FEATURES",
    "LOGIT",
    "BesideRows",
    "ExcerptRows",
    "FortuneCounts",
    "FortuneRows",
    "ImportanceByContent",
    "LearnedImportance",
    "Live",
    "MentionRows",
    "RuleRows",
    "TreeWeights",
    "WeightsByContent",
    "answers_in_data",
    "count_fortunes_in_python",
    "count_mentions_in_python",
    "importance_named",
    "live_of",
    "look_beside_in_python",
    "score_by_rule",
    "score_rule_in_python",
    "score_values",
    "squash_in_python",
    "value_features",
    "weigh_once",
]

LOGIT = 1024  # steps of a logit, and of a natural logarithm
_LIVE_MESSAGES = 3
_LIVE_REQUEST = 3_000  # characters
_LIVE_WORK = 6_000
_LIVE_WORDS = 1_000
_PAST_MESSAGES = 15
_PAST_WORK = 12_000
_WEIGHT_STEPS = 1 << 14  # of a weight: sums of a thousand of them are exact in single precision
_CURVE_STEPS = 64  # of a logit when it becomes a weight
_CURVE_END = 10  # logits: beyond this the curve is flat
_RULE_STEPS = 64  # of the rule's logit when it is a feature
_FINEST = 1024  # parts of an octave in the table of logarithms
_NEAR = 200  # tokens: mentions nearer to the end than this count the same
_NEVER = 1 << 24  # tokens, messages: more than any conversation has
_RATE = 1000  # steps of a share
_PRIOR = 4  # values: the weight of the share of all values, which counts if few of a group are known
_TOOL_SHAPES = 65_521  # groups of a tool and a shape; a prime, so that two pairs seldom share a group
_NO_NEIGHBOUR = -20 * _RULE_STEPS
_AT_ONCE = 1 << 16  # values
_ANSWERED_AT_ONCE = 1 << 14  # values, each with hundreds of answers
_MOST_WEIGHED = 30_000  # values that the trees score: many times more than the largest handoff holds


class Live(msgspec.Struct, frozen=True):
    """The present subject of a conversation: the last request, and the assistant's latest words and calls."""

    request: str
    work: str


def live_of(transcript: Transcript, request: int | None, focus: str) -> Live:
    """Returns the present subject of a conversation; `request` is the position of the live request."""
    asked = spoken_text(transcript.messages[request])[:_LIVE_REQUEST] if request is not None else ""
    work = _own_words(transcript.index, _LIVE_MESSAGES)
    return Live(request=f"{asked}\n{focus}", work=work[-_LIVE_WORK:])


def _own_words(index: Index, messages: int) -> str:
    """Returns the assistant's words and calls in its last `messages` messages."""
    sources = np.flatnonzero((index.speakers == Speaker.ASSISTANT) | (index.speakers == Speaker.CALL))
    first = np.flatnonzero(np.diff(index.message_of_source[sources], prepend=-1))  # of each message
    latest = sources[first[-messages:][0] :].tolist() if len(first) else []
    return "\n".join(index.sources[source].text for source in latest)


def _goal(index: Index) -> str:
    """Returns the first text of a person."""
    people = np.flatnonzero(index.speakers == Speaker.USER)
    return index.sources[int(people[0])].text[:_LIVE_REQUEST] if len(people) else ""


def score_values(index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns for each value, by its number, how likely it is to be needed again, between 0 and 1.

    `tokens_after[m]` is the number of tokens after message m. Uses the learned weights, or the rule alone if the
    package lacks their file.
    """
    return importance_named("learned")(index, live, tokens_after)


def weigh_once(importance: Importance) -> Importance:
    """Returns the same importance, computed once for each conversation and request of one compaction."""
    known: list[tuple[Index, Live, NDArray[np.float32]]] = []

    def weigh(index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
        for same, alike, weights in known:
            if same is index and alike == live:
                return weights
        weights = importance(index, live, tokens_after)
        weights[index.in_sources == 0] = 0.0  # values of other conversations in the same vocabulary
        known.append((index, live, weights))
        return weights

    return weigh


def importance_named(name: str) -> Importance:
    """Returns the scoring that the setting `compression.importance` names: `learned` or `rule`."""
    learned = _load_shipped() if name == "learned" else None
    return score_by_rule if learned is None else learned


@cache
def _load_shipped() -> ImportanceByContent | None:
    """Returns the scorer whose weights are in the package, read once; None if the file is missing."""
    try:
        return ImportanceByContent(
            WeightsByContent.read(files(__package__).joinpath("importance.json").read_bytes())
        )
    except FileNotFoundError:
        return None


def score_by_rule(index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
    """Does what `score_values` does, with the hand-made weights alone."""
    return _squash(_rule(index, _Looks.of(index), _Related.to(live, index), tokens_after))


# Whole numbers instead of logarithms and exponentials. The values before rounding are nowhere near the middle between
# two whole numbers, so that the tables are the same on all machines.

_LN_OF_PART = np.array(
    [round(LOGIT * math.log(0.5 + part / (2 * _FINEST))) for part in range(_FINEST)], np.int32
)
_LN_OF_OCTAVE = np.array([round(LOGIT * octave * math.log(2)) for octave in range(65)], np.int32)
_CURVE = np.array(
    [
        round(_WEIGHT_STEPS / (1 + math.exp(-step / _CURVE_STEPS))) / _WEIGHT_STEPS
        for step in range(-_CURVE_END * _CURVE_STEPS, _CURVE_END * _CURVE_STEPS + 1)
    ],
    np.float32,
)


_CURVE = np.clip(_CURVE, 1 / _WEIGHT_STEPS, 1 - 1 / _WEIGHT_STEPS)  # no weight is 0 or 1


def _ln(numbers: NDArray[np.int32] | Whole) -> Steps:
    """Returns the natural logarithms of positive numbers, in steps."""
    fraction, octave = np.frexp(numbers.astype(np.float64))  # exact, since it only splits the number
    parts = _LN_OF_PART[(fraction * (2 * _FINEST)).astype(np.int64) - _FINEST]
    result: Steps = (parts + _LN_OF_OCTAVE[octave]).astype(np.int32)
    return result


_LN_OF_COUNT = _ln(np.maximum(np.arange(1 << 12), 1))


def _ln_of_counts(counts: NDArray[np.int32]) -> Steps:
    """Returns the natural logarithms of counts, in steps; 0 for a count of 0. The table has nearly all of them."""
    result: Steps = _LN_OF_COUNT.take(counts, mode="clip")
    large = np.flatnonzero(counts >= len(_LN_OF_COUNT))
    result[large] = _ln(counts[large])
    return result


def squash_in_python(logits: Steps, divisor: int, result: NDArray[np.float32]) -> None:
    """Does what `compiled.squash` does, if the core is missing."""
    for some in _some_at_once(len(logits)):
        steps = logits[some] // divisor
        steps //= LOGIT // _CURVE_STEPS
        steps += _CURVE_END * _CURVE_STEPS
        _CURVE.take(steps, mode="clip", out=result[some])  # the curve is flat beyond its ends


def _squash(logits: Steps, divisor: int = 1) -> NDArray[np.float32]:
    """Returns the logistic curve at these logits, divided by `divisor` before. No weight is 0 or 1."""
    result = np.empty(len(logits), np.float32)
    if not squash(logits, np.array([divisor, LOGIT // _CURVE_STEPS], np.int32), _CURVE, result):
        squash_in_python(logits, divisor, result)
    return result


# The rule.

BIAS = 0.4
RECENCY = -0.28
SOURCES = 0.56
SAID = 0.8
SAID_BY_ASSISTANT = 0.4
RELATED_TO_REQUEST = 1.15
RELATED_TO_WORK = 1.25
CROWD = -0.8
BURST = 0.14
JSON_KEY = -1.2
KIND_WEIGHTS: dict[Kind, float] = {
    Kind.ID: 1.0,
    Kind.FLAG: 0.6,
    Kind.NUMBER: 0.1,
    Kind.HEX: -0.6,
    Kind.SNAKE: -0.55,
    Kind.PHRASE: -0.3,
}


class _Looks(NamedTuple):
    """The features of values that do not depend on their places."""

    kind: NDArray[np.int8]
    shape: NDArray[np.int16]
    words: NDArray[np.unsignedinteger[Any]]
    labels: NDArray[np.uint8]

    @classmethod
    def of(cls, index: Index) -> _Looks:
        vocabulary, count = index.vocabulary, len(index.in_sources)
        return cls(
            vocabulary.kinds()[:count],
            vocabulary.shapes()[:count],
            vocabulary.word_counts()[:count],
            index.labels,
        )


class _Related(NamedTuple):
    """The relation of values to the present subject: the share of their words that occur in it, in steps of 1/64."""

    of_request: Steps
    of_work: Steps

    @classmethod
    def to(cls, live: Live, index: Index) -> _Related:
        return cls(_relation(index, live.request), _relation(index, live.work))

    def of(self, numbers: Whole) -> _Related:
        """Returns the same for some of the values."""
        return _Related(self.of_request.take(numbers), self.of_work.take(numbers))


def _relation(index: Index, text: str, some: Whole | None = None) -> Steps:
    """Returns for each value, or for `some`, the share of its words that occur in the text, in steps of 1/64."""
    return index.vocabulary.relation(sub_words(text), some)[: len(index.in_sources)]


def _rule(index: Index, looks: _Looks, related: _Related, tokens_after: NDArray[np.int64]) -> Steps:
    """Returns the logit of each value by the hand-made weights."""
    rows = RuleRows(
        index.last_message,
        index.in_sources,
        index.in_excerpts,
        index.crowd,
        looks.kind,
        index.said,
        index.said_by_assistant,
        looks.labels,
        related.of_request,
        related.of_work,
    )
    recency = np.int32(_step(RECENCY)) * _ln(tokens_after + _NEAR)
    scores = np.empty(len(index.in_sources), np.int32)
    tables = _make_cases().ravel(), _LN_OF_PART, _LN_OF_OCTAVE, _weights_of_rule()
    if not score_rule(*rows, recency, *tables, scores):
        score_rule_in_python(rows, recency, scores)
    return scores


def _weights_of_rule() -> Steps:
    """Returns the weights that are multiplied with a figure of a value, in steps."""
    weights = SOURCES - BURST, BURST, CROWD, RELATED_TO_REQUEST, RELATED_TO_WORK
    return np.array([_step(weight) for weight in weights], np.int32)


def _make_cases() -> Steps:
    """Returns the sum of all weights that have no figure of their own: there are few cases, so they are in a table."""
    cases = np.zeros((len(Kind), 2, 2, 2), np.int32)
    cases += _step(BIAS)
    cases += np.array([_step(KIND_WEIGHTS.get(kind, 0.0)) for kind in Kind], np.int32)[:, None, None, None]
    cases[:, 1] += _step(SAID)
    cases[:, :, 1] += _step(SAID_BY_ASSISTANT)
    cases[:, :, :, 1] += _step(JSON_KEY)
    return cases


class RuleRows(NamedTuple):
    """What the rule knows of each value, as `score_rule` needs it."""

    last_message: NDArray[np.int32]
    in_sources: NDArray[np.int32]
    in_excerpts: NDArray[np.int32]
    crowd: NDArray[np.int32]
    kind: NDArray[np.int8]
    said: Flags
    said_by_assistant: Flags
    labels: NDArray[np.uint8]
    of_request: Steps
    of_work: Steps


def score_rule_in_python(rows: RuleRows, recency: Steps, scores: Steps) -> None:
    """Does what `compiled.score_rule` does, if the core is missing; `recency` has a row for each message."""
    cases = _make_cases().ravel()
    for some in _some_at_once(len(scores)):
        score = recency.take(rows.last_message[some])
        score += _step(SOURCES - BURST) * _ln_of_counts(rows.in_sources[some])
        score += _step(BURST) * _ln_of_counts(rows.in_excerpts[some])
        score += _step(CROWD) * _ln_of_counts(rows.crowd[some])
        score //= LOGIT
        case = rows.kind[some] << 3
        case |= rows.said[some].view(np.int8) << 2
        case |= rows.said_by_assistant[some].view(np.int8) << 1
        case |= (rows.labels[some] & IS_KEY > 0).view(np.int8)
        score += cases.take(case)
        of_request, of_work = rows.of_request[some], rows.of_work[some]
        is_related = np.flatnonzero(of_request | of_work)  # few
        score[is_related] += (
            _step(RELATED_TO_REQUEST) * of_request[is_related] + _step(RELATED_TO_WORK) * of_work[is_related]
        ) // RELATION_STEPS
        scores[some] = score


def _some_at_once(count: int, many: int = _AT_ONCE) -> Iterator[slice]:
    """Yields slices of `count` values, some at a time, so that intermediate results are small and stay in the cache."""
    for start in range(0, count, many):
        yield slice(start, start + many)


def _step(weight: float) -> int:
    return round(weight * LOGIT)


# The features.

FEATURES = (
    "rule",  # the rule's logit
    "kind",
    "characters",  # the classes of characters in it, as bits
    "length",
    "words",
    "is_key",
    "is_identifier",  # according to the words before it
    "is_amount",
    "is_time",
    "is_place",
    "is_name",
    "is_state",
    "is_definition",
    "of_request",
    "of_work",
    "of_goal",  # as to the request and the work: to the first request, and to the assistant's words for some time
    "of_past_work",
    "asked_beside",  # neighbouring words from people's last messages, and the assistant's; rare ones weigh more
    "work_beside",
    "by_user",  # the sources that mention it, by their speaker
    "by_assistant",
    "by_call",
    "by_result",
    "by_other",
    "in_sources",
    "in_excerpts",
    "first_speaker",
    "last_speaker",
    "after_last",  # tokens after its last mention, its first, the last by the assistant, in a call, in a result
    "after_first",
    "after_own",
    "after_call",
    "after_result",
    "share_after",  # of all tokens, those after its last mention
    "messages_after",
    "turns_after",  # a person's messages after its last mention
    "is_unanswered",  # it is in a result that the assistant has not answered
    "in_last_own",  # it is in the assistant's last message
    "crowd",  # values in its least crowded source, its last source, its least crowded excerpt
    "crowd_last",
    "crowd_excerpt",
    "place",  # excerpts before and after its own in its last source, and the characters of its own
    "place_from_end",
    "excerpt_length",
    "used_beside",  # most other values of one of its excerpts that the assistant has used
    "rule_beside",  # the best mean of the rule's logits of the others in one of its excerpts
    "used_in_source",  # the share of the values of its last source that the assistant has used
    "tool_values",  # values that came with results of its tool
    "rate_of_tool",  # of the values that came with a result, the share that the assistant used, by group
    "rate_of_kind",
    "rate_of_shape",
    "rate_of_tool_and_shape",
    "again_of_kind",  # of the values that the assistant used, the share that it used again
    "again_of_shape",
)


def value_features(
    index: Index, live: Live, tokens_after: NDArray[np.int64], some: Whole | None = None
) -> NDArray[np.int32]:
    """Returns a row per feature, in the order of `FEATURES`, with a column per value: all, or `some` by their numbers."""
    looks, related = _Looks.of(index), _Related.to(live, index)
    rule = _rule(index, looks, related, tokens_after)
    rule //= LOGIT // _RULE_STEPS
    numbers = np.arange(len(rule)) if some is None else some
    return _describe(index, looks, related.of(numbers), rule, tokens_after, numbers)


def _describe(
    index: Index,
    looks: _Looks,
    related: _Related,
    rule: Steps,
    tokens_after: NDArray[np.int64],
    numbers: Whole,
) -> NDArray[np.int32]:
    """As `value_features`, with what was worked out already.

    `rule` has the logit of each value in steps of 1/64, `related` a row for each of the numbers. What needs a pass over all
    rows comes first: together with the table it would take most of the memory of a compaction.
    """
    fortunes = _fortunes(index, looks, numbers)
    place_of = _places(numbers, len(index.in_sources))
    used = index.last_own >= 0  # by the assistant
    excerpts = _Excerpts(index, numbers, place_of, rule, used)
    mentions = _Mentions(index, place_of, excerpts, used, tokens_after)
    groups = [
        _own_features(index, looks, related, tokens_after, numbers),
        mentions.features(index, numbers, tokens_after),
        excerpts.features(index),
        iter([*fortunes, ("rule", rule[numbers])]),
    ]
    del place_of, used, fortunes, excerpts, mentions  # each group goes when it stands in the table
    table = np.empty((len(FEATURES), len(numbers)), np.int32)
    while groups:
        for name, row in groups.pop():
            table[FEATURES.index(name)] = row
    return table


def _own_features(
    index: Index,
    looks: _Looks,
    related: _Related,
    tokens_after: NDArray[np.int64],
    numbers: Whole,
) -> Features:
    """Yields the features that stand in the rows of values, or follow from what they look like."""
    last_own = int(index.last_own.max(initial=-1))
    own_at = index.last_own[numbers]
    last = index.last_message[numbers]
    labels = index.labels[numbers]
    total = int(tokens_after[0]) if len(tokens_after) else 0
    share_after = tokens_after * _RATE // max(1, total)
    by_people = np.zeros(index.messages, np.bool_)
    by_people[index.message_of_source[index.speakers == Speaker.USER]] = True
    turns = np.cumsum(by_people, dtype=np.int32)
    yield "kind", looks.kind[numbers]
    yield "characters", looks.shape[numbers] & 255
    yield "length", looks.shape[numbers] >> 8
    yield "words", looks.words[numbers]
    yield "is_key", labels & IS_KEY > 0
    for label in ValueLabel:
        yield f"is_{str(label.name).lower()}", labels & label > 0
    yield "of_request", related.of_request
    yield "of_work", related.of_work
    yield "of_goal", _relation(index, _goal(index), numbers)
    yield "of_past_work", _relation(index, _own_words(index, _PAST_MESSAGES)[-_PAST_WORK:], numbers)
    yield "in_sources", index.in_sources[numbers]
    yield "in_excerpts", index.in_excerpts[numbers]
    yield "after_last", _look_up_each(tokens_after, last)
    yield "share_after", _look_up_each(share_after, last)
    yield "messages_after", index.messages - last
    yield "turns_after", turns[-1:] - turns[last]
    yield "in_last_own", (own_at >= last_own) & (own_at >= 0)
    yield "crowd", np.minimum(index.crowd[numbers], _NEVER)


def _look_up_each(by_message: Whole, messages: NDArray[np.int32]) -> Steps:
    """Returns the entry of each of these messages. As features have 32 bits, so does what is looked up."""
    found: Steps = by_message.astype(np.int32).take(messages)
    return found


def _last_words(index: Index, speaker: Speaker) -> str:
    """Returns the last words of people, or of the assistant, newest first."""
    said = np.flatnonzero(index.speakers == speaker)[: -_LIVE_MESSAGES - 1 : -1].tolist()
    return "\n".join(index.sources[source].text[:_LIVE_WORDS] for source in said)


_VOICES = int(Speaker.SYSTEM) + 1
_SPEAKERS = ("by_user", "by_assistant", "by_call", "by_result", "by_other")


class _Mentions:
    """The mentions of some values: each a value in a source."""

    def __init__(
        self,
        index: Index,
        place_of: NDArray[np.int32],
        excerpts: _Excerpts,
        used: Flags,
        tokens_after: NDArray[np.int64],
    ) -> None:
        # The first and the last source that mention it; -1 for one without, which is a row of its own at the end of each array.
        self._first = _look_up(index.source_of, excerpts.first, -1)
        self._last = _look_up(index.source_of, excerpts.last, -1)
        self._after = np.append(tokens_after, _NEVER).astype(np.int32)
        # By value and speaker: how many sources mention it, and the last message that does, -1 where there is none. `SYSTEM`
        # stands for all speakers from there on. By source: how many of its values the assistant has used.
        shape = len(excerpts.first), _VOICES
        self._by_voice = np.zeros(shape, np.int32)
        self._last_by_voice = np.full(shape, -1, np.int32)
        self._used = np.zeros(len(index.sources), np.int32)
        self._speakers = np.minimum(index.speakers, np.int8(Speaker.SYSTEM))
        rows = MentionRows(
            index.first_mention, index.mentioned, place_of, used, self._speakers, index.message_of_source
        )
        if not count_mentions(*rows, self._by_voice, self._last_by_voice, self._used):
            count_mentions_in_python(rows, self._by_voice, self._last_by_voice, self._used)

    def features(self, index: Index, numbers: Whole, tokens_after: NDArray[np.int64]) -> Features:
        """Yields the features that come from them."""
        last_result = self._last_by_voice[:, Speaker.RESULT]
        held = np.diff(index.first_mention)
        yield from zip(_SPEAKERS, self._by_voice.T, strict=True)
        yield "first_speaker", self.of_first(self._speakers)
        yield "last_speaker", self.of_last(self._speakers)
        yield "after_first", self.of_first(tokens_after[index.message_of_source])
        yield "after_own", self.tokens_after(index.last_own[numbers])
        yield "after_call", self.tokens_after(self._last_by_voice[:, Speaker.CALL])
        yield "after_result", self.tokens_after(last_result)
        yield "is_unanswered", last_result > int(index.last_own.max(initial=-1))
        yield "crowd_last", self.of_last(held)
        yield "used_in_source", self.of_last(self._used * _RATE // np.maximum(1, held))

    def of_first(self, by_source: NDArray[np.integer]) -> Whole:
        """Returns for each value the entry of its first source; 0 if there is none."""
        return np.append(by_source, 0)[self._first]

    def of_last(self, by_source: NDArray[np.integer]) -> Whole:
        """Returns for each value the entry of its last source; 0 if there is none."""
        return np.append(by_source, 0)[self._last]

    def tokens_after(self, messages: NDArray[np.int32]) -> Steps:
        """Returns the tokens after each of these messages; for -1, more than any conversation has."""
        return self._after[messages]


class MentionRows(NamedTuple):
    """The rows of all mentions, as `count_mentions` needs them."""

    edges: NDArray[np.int32]  # by source: the start of its values in `mentioned`
    mentioned: NDArray[np.int32]
    place_of: NDArray[np.int32]  # by value: its place among the values in question, -1 for any other
    used: Flags  # by value
    voices: NDArray[np.int8]  # by source
    messages: NDArray[np.int32]  # by source


def count_mentions_in_python(
    by: MentionRows,
    by_voice: NDArray[np.int32],
    last_by_voice: NDArray[np.int32],
    used: NDArray[np.int32],
) -> None:
    """Does what `compiled.count_mentions` does, if the core is missing."""
    for first, after in split_runs(by.edges):
        edges = by.edges[first : after + 1]
        mentioned = by.mentioned[edges[0] : edges[-1]]
        used[first:after] = _sum_runs(by.used.take(mentioned), edges - edges[0])
        place = by.place_of.take(mentioned)
        rows = np.flatnonzero(place >= 0)
        source = np.repeat(np.arange(first, after, dtype=np.int32), np.diff(edges)).take(rows)
        cell = place.take(rows) * _VOICES + by.voices.take(source)
        np.add.at(by_voice.reshape(-1), cell, np.int32(1))
        last_by_voice.reshape(-1)[cell] = by.messages.take(source)  # in order, so that the latest stays


def _places(numbers: Whole, count: int) -> NDArray[np.int32]:
    """Returns for each of `count` values its place among these numbers, or -1."""
    places = np.full(count, -1, np.int32)
    places[numbers] = np.arange(len(numbers), dtype=np.int32)
    return places


def _look_up(rows: NDArray[np.int32], at: NDArray[np.int32], none: int = 0) -> NDArray[np.int32]:
    """Returns the row at each of these places, `none` where there is no such row. Copies nothing but those."""
    if not len(rows):
        return np.full(len(at), none, np.int32)
    found = rows.take(at, mode="clip")
    found[(at < 0) | (at >= len(rows))] = none
    return found


def _add_beside(source_of: NDArray[np.int32], weights: Steps) -> Steps:
    """Returns the weight of each excerpt plus those of its two neighbours in the same source."""
    same = source_of[1:] == source_of[:-1]
    near = weights.copy()
    np.add(near[1:], weights[:-1], out=near[1:], where=same)
    np.add(near[:-1], weights[1:], out=near[:-1], where=same)
    return near


class ExcerptRows(NamedTuple):
    """The rows of all excerpts and values, as `look_beside` needs them."""

    starts: NDArray[np.int32]  # by excerpt: the start of its values in `ids`
    ids: NDArray[np.int32]
    place_of: NDArray[np.int32]  # by value: its place among the values in question, -1 for any other
    rule: Steps  # by value
    used: Flags  # by value
    asked: Steps  # by excerpt: the weight of words from people's last messages
    work: Steps  # the same for the assistant's last messages
    source_of: NDArray[np.int32]  # by excerpt


class BesideRows(NamedTuple):
    """The surroundings of some values in their excerpts, a row for each value."""

    # The first and the last excerpt. A value in no excerpt of this conversation has the end and -1, which are the same row
    # of an array with one extra row for it.
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    # The highest figures of any of its excerpts; words are counted in the neighbours of an excerpt as well.
    asked: Steps
    work: Steps
    crowd: NDArray[np.int32]  # the number of values in its least crowded excerpt
    used: Steps  # other values that the assistant has used
    rule: Steps  # the mean of the rule's logits of the others

    @classmethod
    def of(cls, many: int, excerpts: int) -> BesideRows:
        """Returns rows for `many` values, as if none of them were in an excerpt."""
        firsts = (excerpts, -1, 0, 0, _NEVER, 0, _NO_NEIGHBOUR)
        return cls(*(np.full(many, first, np.int32) for first in firsts))


def look_beside_in_python(by: ExcerptRows, numbers: Whole, found: BesideRows) -> None:
    """Does what `compiled.look_beside` does, if the core is missing; `numbers` are the values in question."""
    own_use, own_rule = by.used.take(numbers), by.rule.take(numbers)
    asked, work = (_add_beside(by.source_of, weights) for weights in (by.asked, by.work))
    for first, after in split_runs(by.starts):
        edges = by.starts[first : after + 1]
        ids = by.ids[edges[0] : edges[-1]]
        edges = edges - edges[0]
        sizes = np.diff(edges)
        place = by.place_of.take(ids)
        rows = np.flatnonzero(place >= 0)
        value = place.take(rows)
        excerpt = np.repeat(np.arange(after - first, dtype=np.int32), sizes).take(rows)
        others_used = _sum_runs(by.used.take(ids), edges).take(excerpt)
        others_used -= own_use.take(value)
        mean = _sum_runs(by.rule.take(ids), edges).take(excerpt)
        mean -= own_rule.take(value)
        mean //= np.maximum(sizes - 1, 1).take(excerpt)
        mean[(sizes <= 1).take(excerpt)] = _NO_NEIGHBOUR
        np.maximum.at(found.used, value, others_used)
        np.maximum.at(found.rule, value, mean)
        np.maximum.at(found.asked, value, asked[first:after].take(excerpt))
        np.maximum.at(found.work, value, work[first:after].take(excerpt))
        np.minimum.at(found.crowd, value, sizes.take(excerpt).astype(np.int32, copy=False))
        excerpt += first
        np.minimum.at(found.first, value, excerpt)
        found.last[value] = excerpt  # in order, so that the last one stays


class _Excerpts:
    """The excerpts that hold some values."""

    def __init__(
        self, index: Index, numbers: Whole, place_of: NDArray[np.int32], rule: Steps, used: Flags
    ) -> None:
        asked = weigh_words(index, _last_words(index, Speaker.USER))
        work = weigh_words(index, _last_words(index, Speaker.ASSISTANT))
        rows = ExcerptRows(index.starts, index.ids, place_of, rule, used, asked, work, index.source_of)
        self._found = BesideRows.of(len(numbers), len(index.lengths))
        if not look_beside(rows, self._found):
            look_beside_in_python(rows, numbers, self._found)
        self.first, self.last = self._found.first, self._found.last

    def features(self, index: Index) -> Features:
        """Yields the features that come from them."""
        source = _look_up(index.source_of, self.last)
        edges = np.append(index.first_excerpt, 0)
        stands = self.last >= 0
        yield "asked_beside", self._found.asked
        yield "work_beside", self._found.work
        yield "crowd_excerpt", self._found.crowd
        yield "used_beside", self._found.used
        yield "rule_beside", self._found.rule
        yield "place", (self.last - edges[source]) * stands
        yield "place_from_end", (edges[source + 1] - 1 - self.last) * stands
        yield "excerpt_length", _look_up(index.lengths, self.last)


def _sum_runs(rows: Steps | Flags, starts: NDArray[np.integer]) -> Steps:
    """Returns the sum of each run of rows; run r is `starts[r]` to `starts[r + 1]`."""
    sums = np.zeros(len(rows) + 1, np.int32)  # may wrap, but the difference of two is still exact
    np.cumsum(rows, dtype=np.int32, out=sums[1:])
    return np.diff(sums.take(starts))


def _fortunes(index: Index, looks: _Looks, numbers: Whole) -> list[tuple[str, Steps]]:
    """Returns how the values of a group fared so far in this conversation, each of these values itself left out.

    The first result that holds a value has told it. The value had its chance once the assistant spoke after that, and was
    used if the assistant has since said it or called a tool with it.
    """
    tellings: _Tellings = index.tellings or _Tellings()
    index.tellings = tellings
    groups = tellings.bring_up_to_date(index, looks)
    rows = FortuneRows(
        index.first_mention,
        index.mentioned,
        index.speakers,
        index.message_of_source,
        groups.tools[:-1].astype(np.int32),
        index.last_own,
        index.first_result,
        looks.kind,
        looks.shape,
        np.array([tellings.spoken], np.int32),
    )
    counts = FortuneCounts.of(groups.sizes, len(index.last_own))
    if not count_fortunes(*rows, *counts):
        count_fortunes_in_python(rows, counts)
    own_at, told = index.last_own[numbers], groups.told_by(numbers)
    had_chance = index.first_result[numbers] < tellings.spoken
    was_used = had_chance & (own_at > np.append(index.message_of_source, _NEVER)[told])
    used = {
        "kind": counts.used_by_kind,
        "shape": counts.used_by_shape,
        "tool": counts.used_by_tool,
        "tool and shape": counts.used_by_both,
    }
    said = {"kind": counts.own_by_kind, "shape": counts.own_by_shape}
    again_used = {"kind": counts.again_by_kind, "shape": counts.again_by_shape}
    mine = {sort: groups.find(sort, numbers) for sort in groups.sizes}
    answered = _Fortunes(mine, tellings.counts, had_chance, used, was_used, tellings.total)
    again = _Fortunes(mine, said, own_at >= 0, again_used, counts.often[numbers] > 1, int(said["kind"].sum()))
    tool_values, rate_of_tool = answered.of("tool")
    features = (
        ("tool_values", tool_values),
        ("rate_of_tool", rate_of_tool),
        ("rate_of_kind", answered.of("kind")[1]),
        ("rate_of_shape", answered.of("shape")[1]),
        ("rate_of_tool_and_shape", answered.of("tool and shape")[1]),
        ("again_of_kind", again.of("kind")[1]),
        ("again_of_shape", again.of("shape")[1]),
    )
    return [(name, row.astype(np.int32)) for name, row in features]


class _Groups(msgspec.Struct, frozen=True):
    """Groups values by their kind, by their shape, and by the tool whose result first told them."""

    index: Index
    looks: _Looks
    tools: Whole  # by source, with a 0 at the end
    sizes: dict[str, int]  # the number of groups of each sort

    def told_by(self, some: Whole) -> Whole:
        """Returns the first result that holds each of these values, or -1."""
        first = self.index.first_result[some]
        return np.where(first < len(self.index.sources), first, -1)

    def find(self, sort: str, some: Whole) -> Whole:
        """Returns the group of each of these values."""
        if sort == "kind":
            return self.looks.kind[some].astype(np.int64)
        if sort == "shape":
            return self.looks.shape[some].astype(np.int64)
        tool: Whole = self.tools[self.told_by(some)]
        return tool if sort == "tool" else (tool * SHAPES + self.looks.shape[some]) % _TOOL_SHAPES

    def tally(self, sort: str, some: Whole) -> Whole:
        """Returns the number of these values in each group."""
        return np.bincount(self.find(sort, some), minlength=self.sizes[sort])


class _Tellings:
    """Counts the values that were told and had their chance, group by group.

    It belongs to one index, which only grows: a value that was counted stays in its group, and only new ones need
    counting.
    """

    def __init__(self) -> None:
        self.spoken = 0  # the sources that came before the assistant's last message
        self.total = 0
        self.counts: dict[str, Whole] = {}
        self._tools: dict[str, int] = {}
        self._tool_of_call: list[int] = []

    def bring_up_to_date(self, index: Index, looks: _Looks) -> _Groups:
        """Counts the sources that came since the last call; returns the groups."""
        calls = np.flatnonzero(index.speakers == Speaker.CALL)
        for call in calls[len(self._tool_of_call) :].tolist():
            self._tool_of_call.append(self._tools.setdefault(index.tags[call], len(self._tools) + 1))
        sizes = {
            "kind": len(Kind),
            "shape": SHAPES,
            "tool": len(self._tools) + 1,
            "tool and shape": _TOOL_SHAPES,
        }
        tools = np.append(_tools_of(index, calls, np.array(self._tool_of_call, np.int64)), 0)
        groups = _Groups(index, looks, tools, sizes)
        spoken = int(np.searchsorted(index.message_of_source, index.last_own.max(initial=-1)))
        fresh = _find_told_first(index, self.spoken, spoken)
        for sort, size in sizes.items():
            known = self.counts.get(sort, np.zeros(0, np.int64))
            counts = np.zeros(size, np.int64)
            counts[: len(known)] = known
            for some in _some_at_once(len(fresh)):
                counts += groups.tally(sort, fresh[some])
            self.counts[sort] = counts
        self.spoken, self.total = spoken, self.total + len(fresh)
        return groups


def _find_told_first(index: Index, since: int, until: int) -> Whole:
    """Returns the values that a result among these sources was the first to tell, in any order."""
    first, after = index.first_mention[[since, until]].tolist()
    if after - first > len(index.first_result):  # a pass over all values is shorter
        return np.flatnonzero((index.first_result >= since) & (index.first_result < until))
    told = index.mentioned[first:after]
    sources = np.repeat(
        np.arange(since, until, dtype=np.int32), np.diff(index.first_mention[since : until + 1])
    )
    fresh: Whole = told[index.first_result.take(told) == sources].astype(np.int64)
    return fresh


class _Fortunes:
    """The share of told values that were used, by group; `mine` has the groups of the values in question, by sort."""

    def __init__(
        self,
        mine: Mapping[str, Whole],
        told: Mapping[str, NDArray[np.integer]],
        was_told: Flags,
        used: Mapping[str, NDArray[np.integer]],
        was_used: Flags,
        told_in_all: int,
    ) -> None:
        self._mine, self._told, self._used = mine, told, used
        self._was_told, self._was_used = was_told, was_used
        self._usual = _RATE * int(used["kind"].sum()) // max(1, told_in_all)

    def of(self, sort: str) -> tuple[Whole, Whole]:
        """Returns for each value how many others of its group were told, and the share of those that were used."""
        mine = self._mine[sort]
        uses = self._used[sort].astype(np.int64).take(mine)
        others = self._told[sort].astype(np.int64).take(mine) - self._was_told
        rate = (_RATE * (uses - self._was_used) + _PRIOR * self._usual) // (others + _PRIOR)
        return others, rate


class FortuneRows(NamedTuple):
    """The rows of sources and values, as `count_fortunes` needs them."""

    edges: NDArray[np.int32]  # by source: the start of its values in `mentioned`
    mentioned: NDArray[np.int32]
    speakers: NDArray[np.int8]  # by source
    messages: NDArray[np.int32]  # by source
    tools: NDArray[np.int32]  # by source: the tool whose result it is, 0 for none
    last_own: NDArray[np.int32]  # by value
    first_result: NDArray[np.int32]  # by value
    kind: NDArray[np.int8]  # by value
    shape: NDArray[np.int16]  # by value
    spoken: NDArray[np.int32]  # a single number: the sources before the assistant's last message


class FortuneCounts(NamedTuple):
    """Values by group: those that the assistant said, said in more than one source, and used after a result told them."""

    own_by_kind: NDArray[np.int32]
    own_by_shape: NDArray[np.int32]
    again_by_kind: NDArray[np.int32]
    again_by_shape: NDArray[np.int32]
    used_by_kind: NDArray[np.int32]
    used_by_shape: NDArray[np.int32]
    used_by_tool: NDArray[np.int32]
    used_by_both: NDArray[np.int32]
    often: NDArray[np.uint8]  # by value: how many of the assistant's sources hold it, 2 for more

    @classmethod
    def of(cls, sizes: Mapping[str, int], values: int) -> FortuneCounts:
        """Returns counts of nothing, for groups of these sizes."""
        kind, shape, tool, both = (sizes[sort] for sort in ("kind", "shape", "tool", "tool and shape"))
        own_kind, own_shape, again_kind, again_shape, used_kind, used_shape, used_tool, used_both = (
            np.zeros(size, np.int32) for size in (kind, shape, kind, shape, kind, shape, tool, both)
        )
        often = np.zeros(values, np.uint8)
        return cls(
            own_kind,
            own_shape,
            again_kind,
            again_shape,
            used_kind,
            used_shape,
            used_tool,
            used_both,
            often,
        )


def count_fortunes_in_python(by: FortuneRows, counts: FortuneCounts) -> None:
    """Does what `compiled.count_fortunes` does, if the core is missing."""
    own = np.flatnonzero(by.last_own >= 0)
    kind, shape = by.kind[own].astype(np.int64), by.shape[own].astype(np.int64)
    by_assistant = (by.speakers == Speaker.ASSISTANT) | (by.speakers == Speaker.CALL)
    its_own = np.flatnonzero(np.repeat(by_assistant, np.diff(by.edges)))
    mentions = np.bincount(by.mentioned.take(its_own), minlength=len(by.last_own))
    counts.often[:] = np.minimum(mentions, 2)
    again = counts.often[own] > 1
    told = np.where(by.first_result[own] < len(by.messages), by.first_result[own], -1)
    told_at = np.append(by.messages, _NEVER)[told]
    used = (by.last_own[own] > told_at) & (by.first_result[own] < by.spoken[0])
    tool = by.tools[told[used]].astype(np.int64)
    both = (tool * len(counts.used_by_shape) + shape[used]) % len(counts.used_by_both)
    groups = kind, shape, kind[again], shape[again], kind[used], shape[used], tool, both
    for count, group in zip(counts[:-1], groups, strict=True):
        np.add(count, np.bincount(group, minlength=len(count)), out=count, casting="unsafe")


def _tools_of(index: Index, calls: Whole, tool_of_call: Whole) -> Whole:
    """Returns the number of the tool for each source that is a result, 0 for any other source.

    Results come in the order of their calls: the third result after a message with calls belongs to its third call.
    """
    results = np.flatnonzero(index.speakers == Speaker.RESULT)
    tools = np.zeros(len(index.sources), np.int64)
    if not len(calls):
        return tools
    message = index.message_of_source[calls]
    first = np.flatnonzero(np.diff(message, prepend=-1))  # the first call of each message, among the calls
    # For each result: the last message with calls before it, and its place among the results since then.
    batch = np.searchsorted(calls[first], results, side="right") - 1
    place = np.arange(len(results)) - np.searchsorted(batch, batch, side="left")
    many = np.diff(first, append=len(calls))
    has_call = (batch >= 0) & (place < many[batch])
    tools[results[has_call]] = tool_of_call[first[batch[has_call]] + place[has_call]]
    return tools


# The trees.


class TreeWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One set of learned weights.

    At each depth, a tree makes the same comparison for all values: is this feature above this threshold? The
    results, read as a binary number, are the leaf of a value. The leaves of all trees and the bias add up to a
    logit, in steps.
    """

    provenance: dict[str, str]
    features: tuple[str, ...]
    rule_share: int
    """The rule's part in the result, in percent; the rest is the trees'."""
    bias: int
    splits: tuple[tuple[tuple[int, int], ...], ...]
    """For each tree, the feature and the threshold of each depth."""
    leaves: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        unknown = set(self.features) - set(FEATURES)
        if unknown:
            raise ValueError(f"unknown features in the learned weights: {', '.join(sorted(unknown))}")


class WeightsByContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The learned weights in their file: a set for each sort of conversation in the training data."""

    text: TreeWeights | None = None
    """For conversations whose tools answer in text, or that have no tools."""
    data: TreeWeights | None = None
    """For conversations whose tools answer in data."""

    @classmethod
    def read(cls, data: bytes) -> WeightsByContent:
        """Returns the weights in a file. Raises ValueError for weights of other features than these."""
        return _READ_WEIGHTS(data)


_READ_WEIGHTS = msgspec.json.Decoder(WeightsByContent).decode


def answers_in_data(index: Index) -> bool:
    """Returns True if at least three quarters of the characters of the tools' answers are JSON."""
    return index.told_characters[True] > 3 * index.told_characters[False]


class ImportanceByContent:
    """Scores values by the weights for the kind of conversation, or by the rule if there are none for it.

    Callable like `score_values`.
    """

    def __init__(self, weights: WeightsByContent) -> None:
        self._text: Importance = score_by_rule if weights.text is None else LearnedImportance(weights.text)
        self._data: Importance = score_by_rule if weights.data is None else LearnedImportance(weights.data)

    def __call__(self, index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns for each value how likely it is to be needed again, between 0 and 1."""
        score = self._data if answers_in_data(index) else self._text
        return score(index, live, tokens_after)


def _join_runs(
    runs: Sequence[Sequence[int] | NDArray[np.int32]],
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns where each run begins, with one more row for the end, and all of them one after the other."""
    edges = np.cumsum([0, *map(len, runs)], dtype=np.int32)
    return edges, np.concatenate([np.zeros(0, np.int32), *(np.array(run, np.int32) for run in runs)])


def _find_likeliest(rule: Steps, most: int) -> Whole:
    """Returns the numbers of all values; if there are more than `most`, those that are likeliest by the rule.

    In a conversation of 450,000 values, all values of the largest possible handoff were among the first 23,000 by the rule.
    """
    if len(rule) <= most:
        return np.arange(len(rule))
    return np.flatnonzero(rule >= find_least_of_most(rule, most))


class LearnedImportance:
    """Scores values by one set of trees and the rule.

    The trees score `most_weighed` values, the likeliest by the rule; all others count as much as the least likely of those.
    """

    def __init__(self, weights: TreeWeights, most_weighed: int = _MOST_WEIGHED) -> None:
        self._most_weighed = most_weighed
        self._rule_share = weights.rule_share
        self._bias = weights.bias
        rows = [FEATURES.index(name) for name in weights.features]
        # A comparison that several trees share is made once.
        asked = sorted({(rows[row], above) for tree in weights.splits for row, above in tree})
        place = {question: number for number, question in enumerate(asked)}
        self._questions = asked
        trees = [[place[rows[row], above] for row, above in tree] for tree in weights.splits]
        leaves = [np.array(some, np.int32) for some in weights.leaves]
        # Two trees are combined into one of twice the depth: a single look-up gives the sum of two leaves.
        if len(trees) % 2:
            trees.append([])
            leaves.append(np.zeros(1, np.int32))
        self._trees = [one + other for one, other in zip(trees[::2], trees[1::2], strict=True)]
        self._leaves = [
            np.add.outer(one, other).ravel() for one, other in zip(leaves[::2], leaves[1::2], strict=True)
        ]
        # The same as rows: the questions, and the questions and leaves of tree after tree.
        features, thresholds = (
            np.array(some, np.int32) for some in (zip(*asked, strict=True) if asked else ([], []))
        )
        self._rows = (features, thresholds, *_join_runs(self._trees), *_join_runs(self._leaves))

    def __call__(self, index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns for each value how likely it is to be needed again, between 0 and 1."""
        looks, related = _Looks.of(index), _Related.to(live, index)
        rule = _rule(index, looks, related, tokens_after)
        likely = _find_likeliest(rule, self._most_weighed)
        related = related.of(likely)
        rule //= LOGIT // _RULE_STEPS
        trees = self.logits(_describe(index, looks, related, rule, tokens_after, likely))
        rule *= LOGIT // _RULE_STEPS * self._rule_share
        by_trees = (100 - self._rule_share) * trees
        of_likely = rule[likely] + by_trees
        rule += by_trees.min(initial=0)
        rule[likely] = of_likely
        return _squash(rule, 100)

    def logits(self, features: NDArray[np.int32]) -> Steps:
        """Returns the logits of the trees alone, for values with these features."""
        total = np.full(features.shape[1], self._bias, np.int32)
        if not add_leaves(*self._rows, np.ascontiguousarray(features), total):
            self._add_leaves(features, total)
        return total

    def _add_leaves(self, features: NDArray[np.int32], total: Steps) -> None:
        """Does what `compiled.add_leaves` does, where that is missing."""
        for some in _some_at_once(len(total), _ANSWERED_AT_ONCE):
            answers = [(features[row, some] > above).astype(np.uint16) for row, above in self._questions]
            leaf = np.zeros(len(total[some]), np.uint16)
            for questions, leaves in zip(self._trees, self._leaves, strict=True):
                leaf.fill(0)
                for question in questions:
                    leaf <<= 1
                    leaf |= answers[question]
                total[some] += leaves.take(leaf)
