"""All that a conversation says, as arrays: one row per excerpt, one per value.

An index only grows. After k new messages it is brought up to date at a cost of O(k) reading and a copy of
its arrays, so that a second compaction of a long conversation does not read it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.writing.reading import Speaker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.writing.reading import Reading, SpokenSource
    from penstock.writing.vocabulary import Vocabulary

__all__ = ["Index"]

_NEVER = 1 << 30
_AT_ONCE = 4_000  # messages


class Index:
    """The excerpts and values of a list of messages.

    Excerpt e belongs to source `source_of[e]` and holds the values `ids[starts[e]:starts[e + 1]]`.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.messages = 0
        self.sources: list[SpokenSource] = []
        self.tags: list[str] = []
        self.message_of_source = np.zeros(0, np.int32)
        self.speakers = np.zeros(0, np.int8)
        self.first_excerpt: list[int] = [0]
        self.source_of = np.zeros(0, np.int32)
        self.lengths = np.zeros(0, np.int32)
        self.ids = np.zeros(0, np.int32)
        self.starts = np.zeros(1, np.int32)
        self.filled = np.zeros(0, np.int64)  # the excerpts that hold a value
        # Of the excerpts that were looked at more closely: their tokens and their plain words.
        self.costs: dict[int, int] = {}
        self.plain: dict[int, int] = {}
        # Of the sources that were: what stands above their excerpts, and its tokens.
        self.headings: dict[int, tuple[int, str]] = {}
        self.heading_costs: dict[int, int] = {}
        # One row per value.
        self.in_sources = np.zeros(0, np.int32)
        self.in_excerpts = np.zeros(0, np.int32)
        self.last_message = np.zeros(0, np.int32)
        self.said = np.zeros(0, np.bool_)
        self.said_by_assistant = np.zeros(0, np.bool_)
        self.crowd = np.zeros(0, np.int32)

    def extend(self, readings: Sequence[Reading]) -> None:
        """Add the readings of the messages that come next, some at a time: what that takes meanwhile stays small."""
        for start in range(0, len(readings), _AT_ONCE):
            self._add(readings[start : start + _AT_ONCE])

    def _add(self, readings: Sequence[Reading]) -> None:
        fresh: list[SpokenSource] = []
        at: list[int] = []
        for offset, reading in enumerate(readings):
            fresh.extend(reading.sources)
            self.tags.extend(reading.tags)
            at.extend([self.messages + offset] * len(reading.sources))
        self.messages += len(readings)
        if fresh:
            self._add_excerpts(fresh)
            places = np.array(at, np.int32)
            self._add_values(fresh, places)
            self.sources += fresh
            self.message_of_source = np.concatenate([self.message_of_source, places])
            speakers = np.array([source.speaker for source in fresh], np.int8)
            self.speakers = np.concatenate([self.speakers, speakers])

    def excerpt(self, number: int) -> str:
        """The text of an excerpt."""
        source = int(self.source_of[number])
        return self.sources[source].excerpt(number - self.first_excerpt[source])

    def values_of(self, number: int) -> NDArray[np.int32]:
        """The values of an excerpt."""
        return self.ids[self.starts[number] : self.starts[number + 1]]

    def _add_excerpts(self, fresh: list[SpokenSource]) -> None:
        sizes = [source.end_excerpt - source.first_excerpt for source in fresh]
        first = len(self.sources)
        self.source_of = np.concatenate(
            [self.source_of, np.repeat(np.arange(first, first + len(fresh), dtype=np.int32), sizes)]
        )
        for size in sizes:
            self.first_excerpt.append(self.first_excerpt[-1] + size)
        self.lengths = np.concatenate([self.lengths, *(source.lengths for source in fresh)])
        counts = np.concatenate([source.counts for source in fresh])
        self.filled = np.concatenate([self.filled, len(self.starts) - 1 + np.flatnonzero(counts)])
        self.ids = np.concatenate([self.ids, *(source.ids for source in fresh)])
        self.starts = np.concatenate([self.starts, self.starts[-1] + np.cumsum(counts, dtype=np.int32)])

    def _add_values(self, fresh: list[SpokenSource], at: NDArray[np.int32]) -> None:
        self._grow(len(self.vocabulary))
        total = len(self.in_sources)
        sizes = np.array([source.end_distinct - source.first_distinct for source in fresh])
        distinct = np.concatenate([source.distinct for source in fresh])
        self.in_sources += np.bincount(distinct, minlength=total).astype(np.int32)
        occurrences = np.concatenate([source.ids for source in fresh])
        self.in_excerpts += np.bincount(occurrences, minlength=total).astype(np.int32)
        self.last_message[distinct] = np.repeat(at, sizes)  # in order, so that the latest stays
        np.minimum.at(self.crowd, distinct, np.repeat(sizes.astype(np.int32), sizes))
        for source in fresh:
            if source.speaker is not Speaker.RESULT:
                self.said[source.distinct] = True
                if source.speaker is Speaker.ASSISTANT:
                    self.said_by_assistant[source.distinct] = True

    def _grow(self, total: int) -> None:
        more = total - len(self.in_sources)
        if more <= 0:
            return
        self.in_sources = np.concatenate([self.in_sources, np.zeros(more, np.int32)])
        self.in_excerpts = np.concatenate([self.in_excerpts, np.zeros(more, np.int32)])
        self.last_message = np.concatenate([self.last_message, np.zeros(more, np.int32)])
        self.said = np.concatenate([self.said, np.zeros(more, np.bool_)])
        self.said_by_assistant = np.concatenate([self.said_by_assistant, np.zeros(more, np.bool_)])
        self.crowd = np.concatenate([self.crowd, np.full(more, _NEVER, np.int32)])
