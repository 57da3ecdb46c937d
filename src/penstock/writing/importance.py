"""How likely each value of a conversation is needed again: a rule with few weights, and trees learned from sessions.

**The rule** is logistic. In order of what its weights do: how recently and how often a value was mentioned, whether
anyone but a tool said it, how much it has to do with the live request, and how crowded the least crowded place was
that it stood in (one of forty items of a listing is rarely the one). Keys of JSON name values and are seldom wanted
themselves. See docs/adr/0004-importance.md.

**The trees** add what no hand would weigh: how the values of this shape, this kind and this tool fared so far in this
very conversation, what stands beside a value, where in its text it stands. They are learned from recorded sessions by
`benchmarks/train_importance.py`, and their weights, with where they come from, are in `importance.json` beside this
file. What they say is mixed with the rule's, which is the better guide in a kind of conversation that they never saw.
See docs/adr/0017-learned-importance.md.

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
from penstock.writing.vocabulary import IS_KEY, SHAPES, Kind, ValueLabel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.writing.reading import Index
    from penstock.writing.transcript import Transcript
    from penstock.writing.writer import Importance

    Whole = NDArray[np.int64]
    Flags = NDArray[np.bool_]

__all__ = [
    "FEATURES",
    "LOGIT",
    "LearnedImportance",
    "Live",
    "TreeWeights",
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
_RELATION_STEPS = 64
_RULE_STEPS = 64  # of a logit, where the rule's is a feature
_FINEST = 1024  # parts of an octave in the table of logarithms
_NEAR = 200  # tokens: mentions nearer than this to the end are alike
_NEVER = 1 << 24  # tokens, messages: more than any conversation has
_RATE = 1000  # steps of a share
_PRIOR = 4  # values: how much the share of all counts where few of a group are known
_TOOL_SHAPES = 65_521  # groups of a tool and a shape, a prime: two of them seldom share one
_NO_NEIGHBOUR = -20 * _RULE_STEPS


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
    speaks = np.isin(index.speakers, (Speaker.ASSISTANT, Speaker.CALL))
    latest = np.unique(index.message_of_source[speaks])[-messages:]
    sources = np.flatnonzero(speaks & np.isin(index.message_of_source, latest)).tolist()
    return "\n".join(index.sources[source].text for source in sources)


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
    learned = _shipped() if name == "learned" else None
    return score_by_rule if learned is None else learned


@cache
def _shipped() -> LearnedImportance | None:
    """Returns the scorer whose weights are in the package, read once; None where the file was left out."""
    try:
        return LearnedImportance(
            TreeWeights.read(files(__package__).joinpath("importance.json").read_bytes())
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


def _ln(numbers: NDArray[np.int32] | Whole) -> Whole:
    """Returns the natural logarithms of positive numbers, in steps."""
    fraction, octave = np.frexp(numbers.astype(np.float64))  # exact: it only takes the number apart
    result: Whole = _LN_OF_PART[(fraction * (2 * _FINEST)).astype(np.int64) - _FINEST] + _LN_OF_OCTAVE[octave]
    return result


def _squash(logits: Whole) -> NDArray[np.float32]:
    """Returns the logistic curve at these logits. No weight is 0 or 1."""
    end = _CURVE_END * _CURVE_STEPS
    steps = np.clip(logits // (LOGIT // _CURVE_STEPS), -end, end) + end
    result: NDArray[np.float32] = np.clip(_CURVE, 1 / _WEIGHT_STEPS, 1 - 1 / _WEIGHT_STEPS)[steps]
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
    """What is known of the values without regard to where they stand."""

    kind: NDArray[np.int8]
    shape: Whole
    words: NDArray[np.int32]
    is_key: Flags
    of_request: Whole  # the share of its words that stand in the request, in steps of 1/64
    of_work: Whole

    @classmethod
    def of(cls, index: Index, live: Live) -> _Looks:
        vocabulary, count = index.vocabulary, len(index.in_sources)
        return cls(
            vocabulary.kinds()[:count],
            vocabulary.shapes()[:count].astype(np.int64),
            vocabulary.word_counts()[:count],
            index.labels & IS_KEY > 0,
            _relation(index, live.request),
            _relation(index, live.work),
        )


def _relation(index: Index, text: str) -> Whole:
    """Returns for each value the share of its words that stand in the text, in steps."""
    share = index.vocabulary.relation(dict.fromkeys(sub_words(text), 1.0))[: len(index.in_sources)]
    return np.rint(share * _RELATION_STEPS).astype(np.int64)


def _rule(index: Index, looks: _Looks, tokens_after: NDArray[np.int64]) -> Whole:
    """Returns the logit of each value by the hand-made weights."""
    score = _step(RECENCY) * _ln(tokens_after + _NEAR)[index.last_message]
    score += _step(SOURCES - BURST) * _ln(np.maximum(index.in_sources, 1))
    score += _step(BURST) * _ln(np.maximum(index.in_excerpts, 1))
    score += _step(CROWD) * _ln(np.maximum(index.crowd, 1))
    score //= LOGIT
    score += _step(BIAS)
    score += _step(SAID) * index.said
    score += _step(SAID_BY_ASSISTANT) * index.said_by_assistant
    related = _step(RELATED_TO_REQUEST) * looks.of_request + _step(RELATED_TO_WORK) * looks.of_work
    score += related // _RELATION_STEPS
    score += np.array([_step(KIND_WEIGHTS.get(kind, 0.0)) for kind in Kind])[looks.kind]
    score += _step(JSON_KEY) * looks.is_key
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


def value_features(index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.int32]:
    """Returns one row per feature, in the order of `FEATURES`, and one column per value."""
    looks = _Looks.of(index, live)
    rule = _rule(index, looks, tokens_after) // (LOGIT // _RULE_STEPS)
    mentions = _Mentions(index)
    last = index.last_message
    total = int(tokens_after[0]) if len(tokens_after) else 0
    people = np.unique(index.message_of_source[index.speakers == Speaker.USER])
    after = tokens_after[mentions.message]
    features: dict[str, NDArray[Any]] = {
        "rule": rule,
        "kind": looks.kind,
        "characters": looks.shape & 255,
        "length": looks.shape >> 8,
        "words": looks.words,
        "is_key": looks.is_key,
        **{f"is_{str(label.name).lower()}": index.labels & label > 0 for label in ValueLabel},
        "of_request": looks.of_request,
        "of_work": looks.of_work,
        "of_goal": _relation(index, _goal(index)),
        "of_past_work": _relation(index, _own_words(index, _PAST_MESSAGES)[-_PAST_WORK:]),
        "asked_beside": _beside(index, weigh_words(index, _last_words(index, Speaker.USER))),
        "work_beside": _beside(index, weigh_words(index, _last_words(index, Speaker.ASSISTANT))),
        **mentions.by_speaker(),
        "in_sources": index.in_sources,
        "in_excerpts": index.in_excerpts,
        "first_speaker": mentions.first(mentions.speaker, 0),
        "last_speaker": mentions.last(mentions.speaker, 0),
        "after_last": tokens_after[last],
        "after_first": mentions.first(after, 0),
        "after_own": mentions.last(after, _NEVER, mentions.is_own),
        "after_call": mentions.last(after, _NEVER, mentions.speaker == Speaker.CALL),
        "after_result": mentions.last(after, _NEVER, mentions.speaker == Speaker.RESULT),
        "share_after": tokens_after[last] * _RATE // max(1, total),
        "messages_after": index.messages - last,
        "turns_after": len(people) - np.searchsorted(people, last, side="right"),
        "is_unanswered": mentions.stands(
            (mentions.message > mentions.last_own) & (mentions.speaker == Speaker.RESULT)
        ),
        "in_last_own": mentions.stands((mentions.message >= mentions.last_own) & mentions.is_own),
        "crowd": np.minimum(index.crowd, _NEVER),
        "crowd_last": mentions.last(mentions.sizes[mentions.source], 0),
        "used_in_source": mentions.share_of_last_source(mentions.own > 0),
        **_in_excerpts(index, rule, mentions.own > 0),
        **_fortunes(index, looks, mentions),
    }
    return np.stack([features[name] for name in FEATURES]).astype(np.int32)


def _last_words(index: Index, speaker: Speaker) -> str:
    """Returns what people, or the assistant, said last, the newest first."""
    said = np.flatnonzero(index.speakers == speaker)[: -_LIVE_MESSAGES - 1 : -1].tolist()
    return "\n".join(index.sources[source].text[:_LIVE_WORDS] for source in said)


def _beside(index: Index, weights: Whole) -> Whole:
    """Returns for each value the most that an excerpt in which it stands, with the one before and the one after, weighs."""
    same = index.source_of[1:] == index.source_of[:-1]
    near = weights.copy()
    near[1:] += np.where(same, weights[:-1], 0)
    near[:-1] += np.where(same, weights[1:], 0)
    result = np.zeros(len(index.in_sources), np.int64)
    np.maximum.at(result, index.ids, np.repeat(near, np.diff(index.starts)))
    return result


_OTHERS = int(Speaker.SYSTEM)  # from here on, speakers count as one


class _Mentions:
    """Every value of every source, source by source, so in the order of the conversation; one row per mention."""

    def __init__(self, index: Index) -> None:
        self.count = len(index.in_sources)
        self.sizes = np.array(
            [source.end_distinct - source.first_distinct for source in index.sources], np.int64
        )
        self.value = np.concatenate([np.zeros(0, np.int32), *(source.distinct for source in index.sources)])
        self.source = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.speaker = np.minimum(index.speakers, _OTHERS)[self.source]
        self.message = index.message_of_source[self.source]
        self.is_own = (self.speaker == Speaker.ASSISTANT) | (self.speaker == Speaker.CALL)
        self.last_own = int(self.message[self.is_own].max(initial=-1))
        rows = self.value.astype(np.int64) * (_OTHERS + 1) + self.speaker
        self._counts = np.bincount(rows, minlength=self.count * (_OTHERS + 1)).reshape(
            self.count, _OTHERS + 1
        )
        self.own = self._counts[:, Speaker.ASSISTANT] + self._counts[:, Speaker.CALL]

    def by_speaker(self) -> dict[str, Whole]:
        """Returns for each speaker in how many sources a value is mentioned."""
        names = ("by_user", "by_assistant", "by_call", "by_result", "by_other")
        return dict(zip(names, self._counts.T, strict=True))

    def last(self, what: NDArray[np.integer], none: int, some: Flags | None = None) -> Whole:
        """Returns `what` of the last mention of each value, of `some` mentions; `none` where there is none."""
        result = np.full(self.count, none, np.int64)
        if some is None:
            result[self.value] = what  # in order, so that the last stays
        else:
            result[self.value[some]] = what[some]
        return result

    def first(self, what: NDArray[np.integer], none: int, some: Flags | None = None) -> Whole:
        """Returns `what` of the first mention of each value, as `last` does of the last."""
        result = np.full(self.count, none, np.int64)
        value, what = (self.value, what) if some is None else (self.value[some], what[some])
        result[value[::-1]] = what[::-1]
        return result

    def stands(self, some: Flags) -> Flags:
        """Returns for each value whether it is among these mentions."""
        result = np.zeros(self.count, np.bool_)
        result[self.value[some]] = True
        return result

    def share_of_last_source(self, flags: Flags) -> Whole:
        """Returns the share of values with the flag among those of a value's last source."""
        flagged = np.bincount(self.source, flags[self.value], len(self.sizes)).astype(np.int64)
        return self.last((flagged * _RATE // np.maximum(1, self.sizes))[self.source], 0)


def _in_excerpts(index: Index, rule: Whole, used: Flags) -> dict[str, Whole]:
    """Returns the features that come from the excerpts a value stands in."""
    ids, count = index.ids, len(index.in_sources)
    sizes = np.diff(index.starts).astype(np.int64)
    excerpt = np.repeat(np.arange(len(sizes)), sizes)  # of each row of `ids`
    edges = np.array(index.first_excerpt, np.int64)
    source = index.source_of[excerpt]
    crowd = np.full(count, _NEVER, np.int64)
    np.minimum.at(crowd, ids, sizes[excerpt])
    used_beside = np.zeros(count, np.int64)
    np.maximum.at(used_beside, ids, _sum_runs(used[ids], index.starts)[excerpt] - used[ids])
    others = np.maximum(sizes[excerpt] - 1, 1)
    mean = (_sum_runs(rule[ids], index.starts)[excerpt] - rule[ids]) // others
    rule_beside = np.full(count, _NO_NEIGHBOUR, np.int64)
    np.maximum.at(rule_beside, ids, np.where(sizes[excerpt] > 1, mean, _NO_NEIGHBOUR))
    places = {
        "place": excerpt - edges[source],
        "place_from_end": edges[source + 1] - 1 - excerpt,
        "excerpt_length": index.lengths[excerpt],
    }
    features = {"crowd_excerpt": crowd, "used_beside": used_beside, "rule_beside": rule_beside}
    for name, rows in places.items():
        features[name] = np.zeros(count, np.int64)
        features[name][ids] = rows  # in order, so that the last stays
    return features


def _sum_runs(rows: NDArray[np.integer] | Flags, starts: NDArray[np.int32]) -> Whole:
    """Returns the sum of each run of rows; run r is `starts[r]` to `starts[r + 1]`."""
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows, dtype=np.int64)])
    result: Whole = sums[starts[1:]] - sums[starts[:-1]]
    return result


def _fortunes(index: Index, looks: _Looks, mentions: _Mentions) -> dict[str, Whole]:
    """Returns how the values of a group fared so far in this conversation, each value itself left out."""
    is_result = mentions.speaker == Speaker.RESULT
    told_at = mentions.first(mentions.message, _NEVER, is_result)
    used = mentions.last(mentions.message, -1, mentions.is_own) > told_at
    was_answered = told_at < mentions.last_own
    tools = _tools_of(index)
    tool = mentions.first(tools[mentions.source], 0, is_result)
    kind = looks.kind.astype(np.int64)
    by_tool = _Fortune(tool, int(tools.max(initial=0)) + 1, was_answered, used)
    is_own = mentions.own > 0
    return {
        "tool_values": by_tool.others,
        "rate_of_tool": by_tool.rate,
        "rate_of_kind": _Fortune(kind, len(Kind), was_answered, used).rate,
        "rate_of_shape": _Fortune(looks.shape, SHAPES, was_answered, used).rate,
        "rate_of_tool_and_shape": _Fortune(
            (tool * SHAPES + looks.shape) % _TOOL_SHAPES, _TOOL_SHAPES, was_answered, used
        ).rate,
        "again_of_kind": _Fortune(kind, len(Kind), is_own, mentions.own > 1).rate,
        "again_of_shape": _Fortune(looks.shape, SHAPES, is_own, mentions.own > 1).rate,
    }


class _Fortune:
    """How many other values of a value's group were told, and which share of them was used."""

    def __init__(self, group: Whole, groups: int, told: Flags, used: Flags) -> None:
        used = used & told
        tellings = np.bincount(group[told], minlength=groups)
        uses = np.bincount(group[used], minlength=groups)
        usual = _RATE * int(used.sum()) // max(1, int(told.sum()))
        self.others: Whole = tellings[group] - told
        self.rate: Whole = (_RATE * (uses[group] - used) + _PRIOR * usual) // (self.others + _PRIOR)


def _tools_of(index: Index) -> Whole:
    """Returns for each source that is a result a number for the tool, 0 for any other.

    Results come in the order of their calls, which is how a result is matched with the name in its call.
    """
    numbers: dict[str, int] = {}
    tools = np.zeros(len(index.sources), np.int64)
    waiting: list[int] = []
    called_at = -1
    rows = zip(index.speakers.tolist(), index.tags, index.message_of_source.tolist(), strict=True)
    for source, (speaker, tag, message) in enumerate(rows):
        if speaker == Speaker.CALL:
            if message != called_at:
                waiting, called_at = [], message
            waiting.append(numbers.setdefault(tag, len(numbers) + 1))
        elif speaker == Speaker.RESULT and waiting:
            tools[source] = waiting.pop(0)
    return tools


# The trees.


class TreeWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Learned weights as they stand in their file.

    A tree asks the same question of all values at each of its depths: is this feature above this threshold? The
    answers, read as a binary number, say which leaf a value comes to. The leaves of all trees and the bias add up
    to a logit, in steps.
    """

    provenance: dict[str, str]
    features: tuple[str, ...]
    rule_share: int
    """How much of the result is the rule's, in percent; the rest is the trees'."""
    bias: int
    splits: tuple[tuple[tuple[int, int], ...], ...]
    """Per tree, feature and threshold of each depth."""
    leaves: tuple[tuple[int, ...], ...]

    @classmethod
    def read(cls, data: bytes) -> TreeWeights:
        """Returns the weights in a file. Raises ValueError for weights of other features than these."""
        weights = msgspec.json.decode(data, type=cls)
        unknown = set(weights.features) - set(FEATURES)
        if unknown:
            raise ValueError(f"unknown features in the learned weights: {', '.join(sorted(unknown))}")
        return weights


class LearnedImportance:
    """Scores values by trees and the rule. May be called wherever `score_values` may."""

    def __init__(self, weights: TreeWeights) -> None:
        self._rule_share = weights.rule_share
        self._bias = weights.bias
        rows = [FEATURES.index(name) for name in weights.features]
        # A question that several trees ask is answered once.
        asked = sorted({(rows[row], above) for tree in weights.splits for row, above in tree})
        place = {question: number for number, question in enumerate(asked)}
        self._questions = asked
        self._trees = [[place[rows[row], above] for row, above in tree] for tree in weights.splits]
        self._leaves = [np.array(leaves, np.int32) for leaves in weights.leaves]

    def __call__(self, index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns for each value how likely it is needed again, between 0 and 1."""
        features = value_features(index, live, tokens_after)
        rule = features[FEATURES.index("rule")].astype(np.int64) * (LOGIT // _RULE_STEPS)
        mixed = self._rule_share * rule + (100 - self._rule_share) * self.logits(features)
        return _squash(mixed // 100)

    def logits(self, features: NDArray[np.int32]) -> Whole:
        """Returns what the trees alone say of values with these features."""
        answers = [(features[row] > above).view(np.uint8) for row, above in self._questions]
        total = np.full(features.shape[1], self._bias, np.int32)
        for questions, leaves in zip(self._trees, self._leaves, strict=True):
            leaf = np.zeros(features.shape[1], np.uint8)
            for question in questions:
                leaf <<= 1
                leaf |= answers[question]
            total += leaves[leaf]
        return total.astype(np.int64)
