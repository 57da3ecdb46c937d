"""An inverted index in memory: for each term the numbers of the passages that hold it."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from penstock.conversation.message import Role
from penstock.recall.embedding import Meaning, pack_vectors
from penstock.recall.fragments import Origin
from penstock.recall.passages import cut_passages
from penstock.recall.query import Statistics, add_surroundings, read_query
from penstock.recall.ranking import Candidate, Hit, Wish, choose_passages, choose_terms, rank
from penstock.recall.stems import index_passage
from penstock.recall.talk import add_stems, read_talk_query

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from penstock.conversation.message import Message
    from penstock.recall.embedding import Embedder
    from penstock.recall.query import Query

__all__ = ["MemoryIndex"]


class MemoryIndex:
    """Every message of a session, searchable. Messages are added in their order; nothing is removed.

    With an embedder, what is near in meaning is found beside what holds the words.
    """

    def __init__(self, embedder: Embedder | None = None) -> None:
        self._embedder = embedder
        self._vectors = bytearray()  # packed, one for each passage that was there at the last search
        self._postings: dict[str, array[int]] = {}
        self._passages: list[Candidate] = []
        self._messages = array("q")  # the number of the message of each passage
        self._turn = 0

    def __len__(self) -> int:
        return len(self._passages)

    def add(self, number: int, message: Message, at: float | None = None) -> None:
        """Adds the next message under its number, said at that time. A turn begins with each message that holds no results."""
        if message.role is not Role.TOOL:
            self._turn = number
        for passage in cut_passages(message):
            place = len(self._passages)
            origin = Origin(place, self._turn, number, passage.voice, passage.speaker)
            self._passages.append(Candidate(origin, passage.text, at))
            self._messages.append(number)
            for term in index_passage(passage):
                self._postings.setdefault(term, array("I")).append(place)

    def add_all(self, messages: Iterable[Message]) -> None:
        """Adds messages, numbered from 1, but no system prompt: that is always in the view."""
        for number, message in enumerate(messages, start=1):
            if message.role is not Role.SYSTEM:
                self.add(number, message)

    def statistics(self, query: Query) -> Statistics:
        """Returns how rare the terms of the query are here."""
        return Statistics(
            len(self._passages),
            {term: len(self._postings[term]) for term in query.weights if term in self._postings},
        )

    def search(self, text: str, wish: Wish | None = None, hidden: Collection[int] = ()) -> list[Hit]:
        """Returns the best hits for a text, none of them in a hidden message.

        By words alone, there are none for a text without a word that stands here.
        """
        wish = wish or Wish()
        findable = self._mask_hidden(hidden)
        asked = add_surroundings(text, wish.surroundings)
        talk = read_talk_query(text, wish.now)
        if wish.surroundings and not self._holds(add_stems(read_query(text), talk), findable):
            if self._embedder is None:
                return []
            asked = text
        query = read_query(asked)
        lookup = add_stems(query, talk)
        statistics = self.statistics(lookup)
        scores = np.zeros(len(self._passages))
        for term in choose_terms(lookup, statistics):
            places = np.frombuffer(self._postings[term], np.uintc)
            scores[places] += lookup.weights[term] * statistics.rarity(term)
        found = np.flatnonzero(scores * findable)
        numbers = choose_passages(scores[found], found, talk)
        meaning = Meaning(asked, self._embedder) if self._embedder is not None else None
        if self._embedder is not None and meaning is not None:
            numbers = sorted({*numbers, *self._find_nearest(meaning, self._embedder, findable)})
        candidates = [
            self._passages[number] for number in numbers if number < len(scores) and findable[number]
        ]
        return rank(query, candidates, statistics, wish, meaning, talk)

    def _find_nearest(self, meaning: Meaning, embedder: Embedder, findable: NDArray[np.bool_]) -> list[int]:
        """Returns the passages that are nearest in meaning."""
        size = embedder.dimensions // 8
        new = [passage.text for passage in self._passages[len(self._vectors) // size :]]
        if new:
            self._vectors += pack_vectors(embedder.embed(new)).tobytes()
        rows = np.frombuffer(bytes(self._vectors), np.uint8).reshape(-1, size)
        places = np.flatnonzero(findable)
        return [int(place) for place in places[meaning.find_nearest(rows[places])]]

    def _holds(self, query: Query, findable: NDArray[np.bool_]) -> bool:
        """Returns True if a word of the query stands in a passage that can be found."""
        postings = [self._postings[term] for term in query.weights if term in self._postings]
        return any(findable[np.frombuffer(places, np.uintc)].any() for places in postings)

    def _mask_hidden(self, hidden: Collection[int]) -> NDArray[np.bool_]:
        """Returns for each passage whether its message is not hidden."""
        return ~np.isin(np.array(self._messages), list(hidden))
