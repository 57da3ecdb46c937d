"""Which values somebody who asks this may be after.

A search is rarely for the words of the query: it is for the path, the id, the number that stood with them. So
each value in the fragments at hand gets a share of belief, by what a log-linear model gives it: how relevant the
fragments are that hold it; whether words of the query stand right before it, as a label does; how many tokens before it
stand in the query in the same order; whether it was an argument of a call; in how many fragments it stands (one that
stands everywhere is no find); and how crowded its least crowded fragment is. What the asker knows, because it stands in
the query or in the view, is worth nothing.

The weights were fitted on one half of recorded sessions, as those of the chance that a value is the one looked for, and
then softened: what the model is sure of is taken with 0.7 of its certainty.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from penstock.compaction.reading import Speaker
from penstock.recall.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.recall.fragments import Fragment
    from penstock.recall.query import Query, Statistics

__all__ = ["Cues", "value_worth"]

_RELEVANT = 0.35
_LABELLED = 4.2
_ECHOED = 0.4  # for each word
_CALLED = 0.55
_EVERYWHERE = -0.3
_CROWDED = -0.3

_LABEL = (1.0, 0.65, 0.45, 0.3, 0.2)  # of the words before a value, the nearest first
_MOST_LABELLED = 2.0
_STRONGEST = 5  # the strongest words of a query together are one full label
_LONGEST_ECHO = 5  # words


class Cues:
    """What stands before a value and speaks for it.

    A label is made of words of the query, the rarer the better. An echo is a run of tokens that stands in the query,
    too, in the same order: who writes the same again goes on the same way.
    """

    def __init__(self, query: Query, statistics: Statistics, tokens: Iterable[str]) -> None:
        """For a query, in fragments that are made of these tokens."""
        self._query = query
        strength = {term: weight * statistics.rarity(term) for term, weight in query.weights.items()}
        self._full = sum(sorted(strength.values())[-_STRONGEST:]) or 1.0
        self._strength: dict[str, float] = {}
        for token in tokens:
            strongest = max([strength.get(term, 0.0) for term in terms_of(token)], default=0.0)
            if strongest:
                self._strength[token] = strongest

    def before(self, tokens: list[str], places: Sequence[int]) -> list[float]:
        """For the tokens at these places of a fragment, how much what stands before them speaks for them."""
        strength = self._strength
        label = [strength.get(token, 0.0) for token in tokens]
        if not any(label):
            return [0.0] * len(places)
        asked = self._query.places
        cues = []
        for at in places:
            cue = 0.0
            if at:
                words = sum([part * word for part, word in zip(_LABEL, label[at - 1 :: -1], strict=False)])
                cue = _LABELLED * min(words / self._full, _MOST_LABELLED)
                if tokens[at - 1] in asked:
                    cue += _ECHOED * self._echo(tokens, at)
            cues.append(cue)
        return cues

    def _echo(self, tokens: list[str], at: int) -> int:
        """How many tokens before this place stand in the query as well, one after the other."""
        asked = self._query.tokens
        longest = 1
        for place in self._query.places[tokens[at - 1]]:
            length = 1
            most = min(_LONGEST_ECHO, at, place + 1)
            while length < most and tokens[at - 1 - length] == asked[place - length]:
                length += 1
            longest = max(longest, length)
        return longest


class _Sighting(msgspec.Struct):
    belief: float = 0.0
    cue: float = 0.0
    fragments: int = 0
    crowd: int = 1_000
    called: bool = False


def value_worth(
    fragments: Sequence[Fragment], belief: NDArray[np.float64], cues: Cues, known: frozenset[str]
) -> tuple[dict[str, float], list[frozenset[str]]]:
    """The worth of each value, all together 1, and the values of each fragment. None of them is known."""
    seen: dict[str, _Sighting] = {}
    held: list[frozenset[str]] = []
    for fragment, share in zip(fragments, belief.tolist(), strict=True):
        values = fragment.values()
        places = [at for at, own in enumerate(values) if own]
        mine: set[str] = set()
        for at, cue in zip(places, cues.before(fragment.tokens, places), strict=True):
            for value in values[at]:
                if value not in known:
                    sighting = seen.get(value)
                    if sighting is None:
                        sighting = seen[value] = _Sighting()
                    sighting.cue = max(sighting.cue, cue)
                    mine.add(value)
        for value in mine:
            sighting = seen[value]
            sighting.belief += share
            sighting.fragments += 1
            sighting.crowd = min(sighting.crowd, len(places))
            sighting.called |= fragment.origin.speaker is Speaker.CALL
        held.append(frozenset(mine))
    worth = {value: _worth(sighting) for value, sighting in seen.items()}
    total = sum(worth.values()) or 1.0
    return {value: one / total for value, one in worth.items()}, held


def _worth(sighting: _Sighting) -> float:
    return math.exp(
        _RELEVANT * math.log(max(sighting.belief, 1e-12))
        + sighting.cue
        + _CALLED * sighting.called
        + _EVERYWHERE * math.log(sighting.fragments)
        + _CROWDED * math.log(sighting.crowd + 1)
    )
