"""How likely each value is needed again.

The rule is a logistic one with few weights. In order of what they do: how recently and how often a value was
mentioned, whether anybody but a tool said it, how much it has to do with the live request, and how crowded
the least crowded place was that it stood in (one of forty items of a listing is rarely the one). Keys of JSON
name values and are seldom wanted themselves. The weights were fitted once on several kinds of recorded
sessions at several budgets; see docs/adr/0004-importance.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.writing.values import sub_words
from penstock.writing.vocabulary import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.writing.index import Index

__all__ = ["Live", "score_values"]

_NEAR = 200  # tokens: mentions nearer than this to the end are alike

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


class Live(msgspec.Struct, frozen=True):
    """What the conversation is about now: the last request, and the assistant's latest words and calls."""

    request: str
    work: str


def score_values(index: Index, live: Live, tokens_after: NDArray[np.int64]) -> NDArray[np.float32]:
    """For each value a number between 0 and 1.

    `tokens_after[m]` is how many tokens of the conversation come after message m.
    """
    vocabulary = index.vocabulary
    count = len(index.in_sources)
    mentioned = _log(np.maximum(index.in_sources, 1))
    recency = _log(tokens_after + _NEAR)
    score = RECENCY * recency[index.last_message] + np.float32(BIAS)
    score += np.float32(SOURCES - BURST) * mentioned
    score += np.float32(BURST) * _log(np.maximum(index.in_excerpts, 1))
    score += np.float32(CROWD) * _log(np.maximum(index.crowd, 1))
    score += np.float32(SAID) * index.said
    score += np.float32(SAID_BY_ASSISTANT) * index.said_by_assistant
    related = dict.fromkeys(sub_words(live.request), RELATED_TO_REQUEST)
    for word in sub_words(live.work):
        related[word] = related.get(word, 0.0) + RELATED_TO_WORK
    score += vocabulary.relation(related)[:count]
    weights = np.array([KIND_WEIGHTS.get(kind, 0.0) for kind in Kind], np.float32)
    score += weights[vocabulary.kinds()[:count]]
    keys = np.array([key for key in vocabulary.keys if key < count], np.int64)
    score[keys] += np.float32(JSON_KEY)
    result: NDArray[np.float32] = 1.0 / (1.0 + np.exp(-score))
    return result


def _log(numbers: NDArray[np.int32] | NDArray[np.int64]) -> NDArray[np.float32]:
    """Logarithms in single precision: twice as quick, and far more exact than the rule."""
    result: NDArray[np.float32] = np.log(numbers.astype(np.float32))
    return result
