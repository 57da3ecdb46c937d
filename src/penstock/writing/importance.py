"""Scores how likely each value of a conversation is needed again: a rule with few weights, and trees learned from sessions.

**The rule** is logistic. In order of what its weights do: how recently and how often a value was mentioned, whether
anyone but a tool said it, how much it has to do with the live request, and how crowded the least crowded place was
that it stood in (one of forty items of a listing is rarely the one). Keys of JSON name values and are seldom wanted
themselves. See docs/adr/0004-importance.md.

**The trees** add what no hand would weigh: how the values of this shape, this kind and this tool fared so far in this
very conversation, what stands beside a value, where in its text it stands. They are learned from recorded sessions by
`benchmarks/train_importance.py`, and their weights, with where they come from, are in `importance.json` beside this
file. There are two sets of them, for conversations whose tools answer in text and for those whose tools answer in
data (JSON), since what makes a value wanted differs. What they say is mixed with the rule's, and where there is no set
for a conversation the rule decides alone. See docs/adr/0017-learned-importance.md.

All of it is counted in whole numbers: logits in steps of 1/1024, logarithms and the logistic curve from tables. So
every platform chooses the same excerpts. Even their sums are exact, since a weight is a multiple of 1/16384.

All arrays have one row per value, by its number in the vocabulary, unless they say otherwise. The vocabulary may have
met more values than this index (it serves every conversation of a notebook), so what it gives is cut to `count`.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from penstock.writing.asked import weigh_words
from penstock.writing.reading import Speaker, spoken_text
from penstock.writing.values import sub_words
from penstock.writing.vocabulary import IS_KEY, RELATION_STEPS, SHAPES, Kind, ValueLabel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.writing.reading import Index
    from penstock.writing.transcript import Transcript
    from penstock.writing.writer import Importance

    Whole = NDArray[np.int64]
    Steps = NDArray[
        np.int32
    ]  # logits and logarithms: all of them and their weighted sums are far below 2 ** 31
    Flags = NDArray[np.bool_]

__all__ = [
    "FEATURES",
    "LOGIT",
    "ImportanceByContent",
    "LearnedImportance",
    "Live",
    "TreeWeights",
    "WeightsByContent",
    "answers_in_data",
    "importance_named",
    "live_of",
    "score_by_rule",
    "score_values",
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
_CURVE_STEPS = 64  # of a logit, where it becomes a weight
_CURVE_END = 10  # logits: beyond it the curve is flat
_RULE_STEPS = 64  # of a logit, where the rule's is a feature
_FINEST = 1024  # parts of an octave in the table of logarithms
_NEAR = 200  # tokens: mentions nearer than this to the end are alike
_NEVER = 1 << 24  # tokens, messages: more than any conversation has
_RATE = 1000  # steps of a share
_PRIOR = 4  # values: how much the share of all counts where few of a group are known
_TOOL_SHAPES = 65_521  # groups of a tool and a shape, a prime: two of them seldom share one
_NO_NEIGHBOUR = -20 * _RULE_STEPS
_MOST_WEIGHED = 30_000  # values that the trees look at: many times what the largest handoff holds


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
    """Returns what the assistant said and called in the last of its messages, so many of them."""
    sources = np.flatnonzero((index.speakers == Speaker.ASSISTANT) | (index.speakers == Speaker.CALL))
    first = np.flatnonzero(np.diff(index.message_of_source[sources], prepend=-1))  # of each message, in order
    latest = sources[first[-messages:][0] :].tolist() if len(first) else []
    return "\n".join(index.sources[source].text for source in latest)


def _goal(index: Index) -> str:
    """Returns the first words of a person."""
    people = np.flatnonzero(index.speakers == Speaker.USER)
    return index.sources[int(people[0])].text[:_LIVE_REQUEST] if len(people) else ""


def score_values(index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns for each value, by its number, how likely it is needed again, between 0 and 1.

    `tokens_after[m]` is how many tokens of the conversation come after message m. By what was learned, or by the
    rule where the package lacks the file of learned weights.
    """
    return importance_named("learned")(index, live, tokens_after)


def weigh_once(importance: Importance) -> Importance:
    """Returns the same importance, which is worked out once for each conversation and request of one compaction."""
    known: list[tuple[Index, Live, NDArray[np.float32]]] = []

    def weigh(index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
        for same, alike, weights in known:
            if same is index and alike == live:
                return weights
        weights = importance(index, live, tokens_after)
        weights[index.in_sources == 0] = 0.0  # values of other conversations that the vocabulary has met
        known.append((index, live, weights))
        return weights

    return weigh


def importance_named(name: str) -> Importance:
    """Returns the way of scoring that the setting `compression.importance` names: `learned` or `rule`."""
    learned = _load_shipped() if name == "learned" else None
    return score_by_rule if learned is None else learned


@cache
def _load_shipped() -> ImportanceByContent | None:
    """Returns the scorer whose weights are in the package, read once; None where the file was left out."""
    try:
        return ImportanceByContent(
            WeightsByContent.read(files(__package__).joinpath("importance.json").read_bytes())
        )
    except FileNotFoundError:
        return None


def score_by_rule(index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
    """As `score_values`, by the hand-made weights alone."""
    return _squash(_rule(index, _Looks.of(index, live), tokens_after))


# Whole numbers in the place of logarithms and exponentials. The tables are rounded from values that are nowhere near
# the middle between two whole numbers, so that they are alike on all machines.

_LN_OF_PART = np.array([round(LOGIT * math.log(0.5 + part / (2 * _FINEST))) for part in range(_FINEST)])
_LN_OF_OCTAVE = np.array([round(LOGIT * octave * math.log(2)) for octave in range(65)])
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
    fraction, octave = np.frexp(numbers.astype(np.float64))  # exact: it only takes the number apart
    parts = _LN_OF_PART[(fraction * (2 * _FINEST)).astype(np.int64) - _FINEST]
    result: Steps = (parts + _LN_OF_OCTAVE[octave]).astype(np.int32)
    return result


_LN_OF_COUNT = _ln(np.maximum(np.arange(1 << 12), 1))


def _ln_of_counts(counts: NDArray[np.int32]) -> Steps:
    """Returns the natural logarithms of counts, in steps; 0 for none. Nearly all of them are in the table."""
    result: Steps = _LN_OF_COUNT.take(counts, mode="clip")
    large = np.flatnonzero(counts >= len(_LN_OF_COUNT))
    result[large] = _ln(counts[large])
    return result


def _squash(logits: Steps) -> NDArray[np.float32]:
    """Returns the logistic curve at these logits. No weight is 0 or 1."""
    steps = logits // (LOGIT // _CURVE_STEPS)
    steps += _CURVE_END * _CURVE_STEPS
    result: NDArray[np.float32] = _CURVE.take(steps, mode="clip")  # the curve is flat beyond its ends
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
    """The features of values that do not depend on where they stand."""

    kind: NDArray[np.int8]
    shape: NDArray[np.int16]
    words: NDArray[np.int32]
    is_key: Flags
    of_request: Steps  # the share of its words that stand in the request, in steps of 1/64
    of_work: Steps

    @classmethod
    def of(cls, index: Index, live: Live) -> _Looks:
        vocabulary, count = index.vocabulary, len(index.in_sources)
        return cls(
            vocabulary.kinds()[:count],
            vocabulary.shapes()[:count],
            vocabulary.word_counts()[:count],
            index.labels & IS_KEY > 0,
            _relation(index, live.request),
            _relation(index, live.work),
        )


def _relation(index: Index, text: str, some: Whole | None = None) -> Steps:
    """Returns for each value, or for `some`, the share of its words that stand in the text, in steps of 1/64."""
    return index.vocabulary.relation(sub_words(text), some)[: len(index.in_sources)]


def _rule(index: Index, looks: _Looks, tokens_after: NDArray[np.int64]) -> Steps:
    """Returns the logit of each value by the hand-made weights."""
    score = (_step(RECENCY) * _ln(tokens_after + _NEAR)).take(index.last_message)
    score += _step(SOURCES - BURST) * _ln_of_counts(index.in_sources)
    score += _step(BURST) * _ln_of_counts(index.in_excerpts)
    score += _step(CROWD) * _ln_of_counts(index.crowd)
    score //= LOGIT
    # All that does not depend on where a value stands: a table of the few cases that there are.
    cases = np.zeros((len(Kind), 2, 2, 2), np.int32)
    cases += _step(BIAS)
    cases += np.array([_step(KIND_WEIGHTS.get(kind, 0.0)) for kind in Kind], np.int32)[:, None, None, None]
    cases[:, 1] += _step(SAID)
    cases[:, :, 1] += _step(SAID_BY_ASSISTANT)
    cases[:, :, :, 1] += _step(JSON_KEY)
    case = looks.kind << 3
    case |= index.said.view(np.int8) << 2
    case |= index.said_by_assistant.view(np.int8) << 1
    case |= looks.is_key.view(np.int8)
    score += cases.ravel().take(case)
    related = np.flatnonzero(looks.of_request | looks.of_work)  # few
    score[related] += (
        _step(RELATED_TO_REQUEST) * looks.of_request[related]
        + _step(RELATED_TO_WORK) * looks.of_work[related]
    ) // RELATION_STEPS
    return score


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
    "is_identifier",  # what the words before it say it is
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
    "asked_beside",  # words of people's last messages, and of the assistant's, that stand beside it; rare ones weigh more
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
    "is_unanswered",  # it stands in a result that the assistant has not answered
    "in_last_own",  # it stands in the assistant's last message
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
    """Returns one row per feature, in the order of `FEATURES`, and one column per value: all, or `some` by their numbers."""
    looks = _Looks.of(index, live)
    return _describe(index, looks, _rule(index, looks, tokens_after), tokens_after, some)


def _describe(
    index: Index, looks: _Looks, logits: Steps, tokens_after: NDArray[np.int64], some: Whole | None
) -> NDArray[np.int32]:
    """As `value_features`, with what the rule has needed already."""
    numbers = np.arange(len(index.in_sources)) if some is None else some
    rule = logits // (LOGIT // _RULE_STEPS)
    used = index.last_own >= 0  # by the assistant
    mentions = _Mentions(index, numbers, tokens_after)
    last_own = int(index.last_own.max(initial=-1))
    own_at = index.last_own[numbers]
    last = index.last_message[numbers]
    labels = index.labels[numbers]
    total = int(tokens_after[0]) if len(tokens_after) else 0
    people = np.unique(index.message_of_source[index.speakers == Speaker.USER])
    features: dict[str, NDArray[Any]] = {
        "rule": rule[numbers],
        "kind": looks.kind[numbers],
        "characters": looks.shape[numbers] & 255,
        "length": looks.shape[numbers] >> 8,
        "words": looks.words[numbers],
        "is_key": looks.is_key[numbers],
        **{f"is_{str(label.name).lower()}": labels & label > 0 for label in ValueLabel},
        "of_request": looks.of_request[numbers],
        "of_work": looks.of_work[numbers],
        "of_goal": _relation(index, _goal(index), numbers),
        "of_past_work": _relation(index, _own_words(index, _PAST_MESSAGES)[-_PAST_WORK:], numbers),
        **dict(zip(_SPEAKERS, index.by_speaker[numbers].T, strict=True)),
        "in_sources": index.in_sources[numbers],
        "in_excerpts": index.in_excerpts[numbers],
        "first_speaker": mentions.of_first(np.minimum(index.speakers, Speaker.SYSTEM)),
        "last_speaker": mentions.of_last(np.minimum(index.speakers, Speaker.SYSTEM)),
        "after_last": tokens_after[last],
        "after_first": mentions.of_first(tokens_after[index.message_of_source]),
        "after_own": mentions.tokens_after(own_at),
        "after_call": mentions.tokens_after(index.last_call[numbers]),
        "after_result": mentions.tokens_after(index.last_result[numbers]),
        "share_after": tokens_after[last] * _RATE // max(1, total),
        "messages_after": index.messages - last,
        "turns_after": len(people) - np.searchsorted(people, last, side="right"),
        "is_unanswered": index.last_result[numbers] > last_own,
        "in_last_own": (own_at >= last_own) & (own_at >= 0),
        "crowd": np.minimum(index.crowd[numbers], _NEVER),
        "crowd_last": mentions.of_last(index.mentions),
        "used_in_source": mentions.of_last(_share_of_sources(index, used)),
        **_in_excerpts(index, numbers, rule, used),
        **_fortunes(index, looks, numbers),
    }
    return np.stack([features[name].astype(np.int32, copy=False) for name in FEATURES])


def _last_words(index: Index, speaker: Speaker) -> str:
    """Returns what people, or the assistant, said last, the newest first."""
    said = np.flatnonzero(index.speakers == speaker)[: -_LIVE_MESSAGES - 1 : -1].tolist()
    return "\n".join(index.sources[source].text[:_LIVE_WORDS] for source in said)


_SPEAKERS = ("by_user", "by_assistant", "by_call", "by_result", "by_other")


class _Mentions:
    """The first and the last mention of some values."""

    def __init__(self, index: Index, numbers: Whole, tokens_after: NDArray[np.int64]) -> None:
        # A row of -1 and a row for none of the messages: what was never mentioned has both at the end of each array.
        self._first = np.where(index.in_sources[numbers] > 0, index.first_source[numbers], -1)
        self._last = index.last_source[numbers]
        self._after = np.append(tokens_after, _NEVER)

    def of_first(self, by_source: NDArray[np.integer]) -> Whole:
        """Returns for each value what its first source has; 0 where there is none."""
        return np.append(by_source, 0)[self._first]

    def of_last(self, by_source: NDArray[np.integer]) -> Whole:
        """Returns for each value what its last source has; 0 where there is none."""
        return np.append(by_source, 0)[self._last]

    def tokens_after(self, messages: NDArray[np.int32]) -> Whole:
        """Returns the tokens after each of these messages; more than there ever are for -1."""
        return self._after[messages]


def _share_of_sources(index: Index, flags: Flags) -> Steps:
    """Returns for each source the share of its values with the flag."""
    flagged = _sum_runs(flags.take(index.mentioned), np.append(0, np.cumsum(index.mentions)))
    result: Steps = flagged * _RATE // np.maximum(1, index.mentions)
    return result


def _places(numbers: Whole, count: int) -> NDArray[np.int32]:
    """Returns for each of `count` values its place among these numbers, -1 where it is not among them."""
    places = np.full(count, -1, np.int32)
    places[numbers] = np.arange(len(numbers), dtype=np.int32)
    return places


class _Rows:
    """The rows of `Index.ids` with some values: each a value in an excerpt, in the order of the conversation."""

    def __init__(self, index: Index, numbers: Whole) -> None:
        place = _places(numbers, len(index.in_sources)).take(index.ids)
        rows = np.flatnonzero(place >= 0)  # in `Index.ids`
        self.number = index.ids.take(rows)
        owners = np.repeat(np.arange(len(index.lengths), dtype=np.int32), np.diff(index.starts))
        self.excerpt = owners.take(rows)
        self._value = place.take(rows)  # by its place among these values
        self._count = len(numbers)

    def most(self, what: Steps, least: int) -> Steps:
        """Returns for each value the most of `what` in its rows."""
        result = np.full(self._count, least, np.int32)
        np.maximum.at(result, self._value, what)
        return result


def _add_beside(index: Index, weights: Steps) -> Steps:
    """Returns the weight of each excerpt together with the one before and the one after in its source."""
    same = index.source_of[1:] == index.source_of[:-1]
    near = weights.copy()
    near[1:] += weights[:-1] * same
    near[:-1] += weights[1:] * same
    return near


def _in_excerpts(index: Index, numbers: Whole, rule: Steps, used: Flags) -> dict[str, NDArray[np.integer]]:
    """Returns the features that come from the excerpts a value stands in."""
    rows = _Rows(index, numbers)
    excerpt, number = rows.excerpt, rows.number
    sizes = np.diff(index.starts)
    others_used = _sum_runs(used.take(index.ids), index.starts).take(excerpt)
    others_used -= used.take(number)
    mean = _sum_runs(rule.take(index.ids), index.starts).take(excerpt)
    mean -= rule.take(number)
    mean //= np.maximum(sizes - 1, 1).take(excerpt)
    mean[(sizes <= 1).take(excerpt)] = _NO_NEIGHBOUR
    asked = _add_beside(index, weigh_words(index, _last_words(index, Speaker.USER)))
    work = _add_beside(index, weigh_words(index, _last_words(index, Speaker.ASSISTANT)))
    # Where a value stood last. One that stands in no excerpt of this conversation has -1: a row of 0 at the end.
    last = index.last_excerpt[numbers]
    source = np.append(index.source_of, 0)[last]
    stands = last >= 0
    edges = np.append(np.searchsorted(index.source_of, np.arange(len(index.sources) + 1)), 0)
    return {
        "asked_beside": rows.most(asked.take(excerpt), 0),
        "work_beside": rows.most(work.take(excerpt), 0),
        "crowd_excerpt": np.minimum(index.crowd_excerpt[numbers], _NEVER),
        "used_beside": rows.most(others_used, 0),
        "rule_beside": rows.most(mean, _NO_NEIGHBOUR),
        "place": (last - edges[source]) * stands,
        "place_from_end": (edges[source + 1] - 1 - last) * stands,
        "excerpt_length": np.append(index.lengths, 0)[last],
    }


def _sum_runs(rows: Steps | Flags, starts: NDArray[np.integer]) -> Steps:
    """Returns the sum of each run of rows; run r is `starts[r]` to `starts[r + 1]`."""
    sums = np.zeros(len(rows) + 1, np.int32)  # wraps, and the difference of two is exact all the same
    np.cumsum(rows, dtype=np.int32, out=sums[1:])
    return np.diff(sums.take(starts))


def _fortunes(index: Index, looks: _Looks, numbers: Whole) -> dict[str, Whole]:
    """Returns how the values of a group fared so far in this conversation, each of these values itself left out.

    A value was told by the first result that holds it, and had its chance once the assistant spoke after that. It was used
    where the assistant has said or called it since.
    """
    tellings: _Tellings = index.tellings or _Tellings()
    index.tellings = tellings
    groups = tellings.bring_up_to_date(index, looks)
    own = np.flatnonzero(index.last_own >= 0)
    told_at = np.append(index.message_of_source, _NEVER)[groups.told_by(own)]
    taken = own[(index.last_own[own] > told_at) & (index.first_result[own] < tellings.spoken)]
    had_chance = index.first_result[numbers] < tellings.spoken
    answered = _Fortunes(groups, numbers, tellings.counts, had_chance, tellings.total, taken)
    many = index.by_speaker[own, Speaker.ASSISTANT] + index.by_speaker[own, Speaker.CALL] > 1
    said = {name: groups.tally(name, own) for name in ("kind", "shape")}
    again = _Fortunes(groups, numbers, said, index.last_own[numbers] >= 0, len(own), own[many])
    tool_values, rate_of_tool = answered.of("tool")
    return {
        "tool_values": tool_values,
        "rate_of_tool": rate_of_tool,
        "rate_of_kind": answered.of("kind")[1],
        "rate_of_shape": answered.of("shape")[1],
        "rate_of_tool_and_shape": answered.of("tool and shape")[1],
        "again_of_kind": again.of("kind")[1],
        "again_of_shape": again.of("shape")[1],
    }


class _Groups(msgspec.Struct, frozen=True):
    """Values by their kind, by their shape, and by the tool whose result first told them."""

    index: Index
    looks: _Looks
    tools: Whole  # of each source, and a 0 at the end
    sizes: dict[str, int]  # how many groups there are of each sort

    def told_by(self, some: Whole) -> Whole:
        """Returns the first result that holds each of these values, -1 where there is none."""
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
        """Returns how many of these values each group has."""
        return np.bincount(self.find(sort, some), minlength=self.sizes[sort])


class _Tellings:
    """Counts the values that were told and had their chance, group by group.

    It belongs to one index, which only grows: what was counted stays so, in the same group, and only what came since is
    counted anew.
    """

    def __init__(self) -> None:
        self.spoken = 0  # the sources that came before the assistant's last message
        self.total = 0
        self.counts: dict[str, Whole] = {}
        self._tools: dict[str, int] = {}
        self._tool_of_call: list[int] = []

    def bring_up_to_date(self, index: Index, looks: _Looks) -> _Groups:
        """Counts what came since the last time; returns the groups by which it was counted."""
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
        fresh = np.flatnonzero((index.first_result >= self.spoken) & (index.first_result < spoken))
        for sort in sizes:
            counts = groups.tally(sort, fresh)
            known = self.counts.get(sort, counts[:0])
            counts[: len(known)] += known
            self.counts[sort] = counts
        self.spoken, self.total = spoken, self.total + len(fresh)
        return groups


class _Fortunes:
    """Of values that were told, the share that was used, for groups of values; `numbers` are those that are asked about."""

    def __init__(
        self,
        groups: _Groups,
        numbers: Whole,
        told: Mapping[str, Whole],
        was_told: Flags,
        told_in_all: int,
        used: Whole,
    ) -> None:
        self._groups, self._numbers, self._told, self._used = groups, numbers, told, used
        self._usual = _RATE * len(used) // max(1, told_in_all)
        self._was_told, self._was_used = was_told, np.isin(numbers, used, assume_unique=True)

    def of(self, sort: str) -> tuple[Whole, Whole]:
        """Returns for each value the number of others of its group that were told, and the share of them that was used."""
        mine = self._groups.find(sort, self._numbers)
        uses = self._groups.tally(sort, self._used)
        others = self._told[sort][mine] - self._was_told
        rate = (_RATE * (uses[mine] - self._was_used) + _PRIOR * self._usual) // (others + _PRIOR)
        return others, rate


def _tools_of(index: Index, calls: Whole, tool_of_call: Whole) -> Whole:
    """Returns for each source that is a result the number of the tool, 0 for any other.

    Results come in the order of their calls: the third result after a message with calls belongs to its third call.
    """
    results = np.flatnonzero(index.speakers == Speaker.RESULT)
    tools = np.zeros(len(index.sources), np.int64)
    if not len(calls):
        return tools
    message = index.message_of_source[calls]
    first = np.flatnonzero(np.diff(message, prepend=-1))  # the first call of each message, among the calls
    # Of each result, the last message with calls before it, and its place among the results since then.
    batch = np.searchsorted(calls[first], results, side="right") - 1
    place = np.arange(len(results)) - np.searchsorted(batch, batch, side="left")
    many = np.diff(first, append=len(calls))
    has_call = (batch >= 0) & (place < many[batch])
    tools[results[has_call]] = tool_of_call[first[batch[has_call]] + place[has_call]]
    return tools


# The trees.
# The trees.


class TreeWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One set of learned weights.

    A tree asks the same question of all values at each of its depths: is this feature above this threshold? The
    answers, read as a binary number, say which leaf a value comes to. The leaves of all trees and the bias add up
    to a logit, in steps.
    """

    provenance: dict[str, str]
    features: tuple[str, ...]
    rule_share: int
    """The rule's part in the result, in percent; the rest is the trees'."""
    bias: int
    splits: tuple[tuple[tuple[int, int], ...], ...]
    """Per tree, feature and threshold of each depth."""
    leaves: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        unknown = set(self.features) - set(FEATURES)
        if unknown:
            raise ValueError(f"unknown features in the learned weights: {', '.join(sorted(unknown))}")


class WeightsByContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Learned weights as they stand in their file: a set for each sort of conversation that was learned from."""

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
    """Returns whether at least three quarters of what the tools of a conversation answered, by its characters, is JSON."""
    return index.told_characters[True] > 3 * index.told_characters[False]


class ImportanceByContent:
    """Scores values by the weights for the conversation at hand, or by the rule where there are none for it.

    May be called wherever `score_values` may.
    """

    def __init__(self, weights: WeightsByContent) -> None:
        self._text: Importance = score_by_rule if weights.text is None else LearnedImportance(weights.text)
        self._data: Importance = score_by_rule if weights.data is None else LearnedImportance(weights.data)

    def __call__(self, index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns for each value how likely it is needed again, between 0 and 1."""
        score = self._data if answers_in_data(index) else self._text
        return score(index, live, tokens_after)


def _find_likeliest(rule: Steps, most: int) -> Whole:
    """Returns the numbers of all values, or of more than `most` those that are likeliest by the rule.

    In a conversation of 450,000 values, those that the largest handoff can hold came from the first 23,000 by the rule.
    """
    if len(rule) <= most:
        return np.arange(len(rule))
    return np.flatnonzero(rule >= np.partition(rule, -most)[-most])


class LearnedImportance:
    """Scores values by one set of trees and the rule.

    The trees look at `most_weighed` values, the likeliest by the rule; the others count as the least likely of those.
    """

    def __init__(self, weights: TreeWeights, most_weighed: int = _MOST_WEIGHED) -> None:
        self._most_weighed = most_weighed
        self._rule_share = weights.rule_share
        self._bias = weights.bias
        rows = [FEATURES.index(name) for name in weights.features]
        # A question that several trees ask is answered once.
        asked = sorted({(rows[row], above) for tree in weights.splits for row, above in tree})
        place = {question: number for number, question in enumerate(asked)}
        self._questions = asked
        trees = [[place[rows[row], above] for row, above in tree] for tree in weights.splits]
        leaves = [np.array(some, np.int32) for some in weights.leaves]
        # Two trees are one with twice the depth: a value comes to the sum of two leaves by one look.
        if len(trees) % 2:
            trees.append([])
            leaves.append(np.zeros(1, np.int32))
        self._trees = [one + other for one, other in zip(trees[::2], trees[1::2], strict=True)]
        self._leaves = [
            np.add.outer(one, other).ravel() for one, other in zip(leaves[::2], leaves[1::2], strict=True)
        ]

    def __call__(self, index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns for each value how likely it is needed again, between 0 and 1."""
        looks = _Looks.of(index, live)
        rule = _rule(index, looks, tokens_after)
        likely = _find_likeliest(rule, self._most_weighed)
        trees = self.logits(_describe(index, looks, rule, tokens_after, likely))
        rule -= rule % (LOGIT // _RULE_STEPS)
        rule *= self._rule_share
        by_trees = (100 - self._rule_share) * trees
        of_likely = rule[likely] + by_trees
        rule += by_trees.min(initial=0)
        rule[likely] = of_likely
        rule //= 100
        return _squash(rule)

    def logits(self, features: NDArray[np.int32]) -> Steps:
        """Returns what the trees alone say of values with these features."""
        answers = [(features[row] > above).astype(np.uint16) for row, above in self._questions]
        total = np.full(features.shape[1], self._bias, np.int32)
        leaf = np.zeros(features.shape[1], np.uint16)
        for questions, leaves in zip(self._trees, self._leaves, strict=True):
            leaf.fill(0)
            for question in questions:
                leaf <<= 1
                leaf |= answers[question]
            total += leaves.take(leaf)
        return total
