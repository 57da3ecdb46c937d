"""Which values somebody who asks this may be after.

A search is rarely for the words of the query: it is for the path, the id, the number that stood with them. So
each value in the fragments at hand gets a share of belief. In order of what they do: how relevant the fragments are
that hold it; whether words of the query stand right before it, as a label does; whether it was an argument of a
call; in how many fragments it stands (one that stands everywhere is no find); and how crowded its least crowded
fragment is. What the asker knows, because it stands in the query or in the view, is worth nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from penstock.compaction.reading import Speaker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.recall.fragments import Fragment

__all__ = ["Labels", "value_worth"]

_RELEVANT = 0.75
_LABELLED = 3.0
_CALLED = 0.9
_EVERYWHERE = -0.45
_CROWDED = -0.45

_LABEL = (1.0, 0.65, 0.45, 0.3, 0.2)  # of the words before a value, the nearest first
_MOST_LABELLED = 2.0
_STRONGEST = 5  # the strongest words of a query together are one full label


class Labels:
    """What the words before a value count for: `strength` says what each term of the query does."""

    def __init__(self, strength: Mapping[str, float]) -> None:
        self._strength = strength
        self._full = sum(sorted(strength.values())[-_STRONGEST:]) or 1.0
        self._of_token: dict[tuple[str, ...], float] = {}

    def before(self, fragment: Fragment) -> dict[int, float]:
        """For each token that holds a value, how much of a label stands before it; 1 for a full one."""
        tokens = fragment.terms
        known = self._of_token
        for terms in tokens:
            if terms not in known:
                known[terms] = max([self._strength.get(term, 0.0) for term in terms], default=0.0)
        label = [known[terms] for terms in tokens]
        places = [at for at, values in enumerate(fragment.values) if values]
        if not any(label):
            return dict.fromkeys(places, 0.0)
        return {
            at: sum([weight * word for weight, word in zip(_LABEL, label[at - 1 :: -1], strict=False)])
            / self._full
            if at
            else 0.0
            for at in places
        }


class _Sighting(msgspec.Struct):
    belief: float = 0.0
    label: float = 0.0
    fragments: int = 0
    crowd: int = 1_000
    called: bool = False


def value_worth(
    fragments: Sequence[Fragment], belief: NDArray[np.float64], labels: Labels, known: frozenset[str]
) -> tuple[dict[str, float], list[frozenset[str]]]:
    """The worth of each value, all together 1, and the values of each fragment. None of them is known."""
    seen: dict[str, _Sighting] = {}
    held: list[frozenset[str]] = []
    for fragment, share in zip(fragments, belief.tolist(), strict=True):
        before = labels.before(fragment)
        mine: set[str] = set()
        for at, label in before.items():
            for value in fragment.values[at]:
                if value not in known:
                    sighting = seen.get(value)
                    if sighting is None:
                        sighting = seen[value] = _Sighting()
                    sighting.label = max(sighting.label, label)
                    mine.add(value)
        for value in mine:
            sighting = seen[value]
            sighting.belief += share
            sighting.fragments += 1
            sighting.crowd = min(sighting.crowd, len(before))
            sighting.called |= fragment.origin.speaker is Speaker.CALL
        held.append(frozenset(mine))
    worth = {value: _worth(sighting) for value, sighting in seen.items()}
    total = sum(worth.values()) or 1.0
    return {value: one / total for value, one in worth.items()}, held


def _worth(sighting: _Sighting) -> float:
    return math.exp(
        _RELEVANT * math.log(max(sighting.belief, 1e-12))
        + _LABELLED * min(sighting.label, _MOST_LABELLED)
        + _CALLED * sighting.called
        + _EVERYWHERE * math.log(sighting.fragments)
        + _CROWDED * math.log(sighting.crowd + 1)
    )
