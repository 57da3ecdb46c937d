"""Search in a store: terms → passages by the index → ranked findings.

The index says which passages hold a term. Which of them are worth examining depends on how rare the terms
are; `penstock.recall` says how related they are to the query, the same as in memory. Of a term in very
many passages only the newest are taken, and those that hold another such term too; its rarity is then
estimated.
"""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.conversation.handles import name_message
from penstock.recall.embedding import Meaning
from penstock.recall.fragments import Origin
from penstock.recall.history import Finding
from penstock.recall.originals import redact_message
from penstock.recall.passages import cut_again
from penstock.recall.query import Statistics, add_surroundings, read_query
from penstock.recall.ranking import Candidate, Wish, choose_passages, choose_terms, rank
from penstock.recall.talk import add_stems, read_talk_query
from penstock.recall.terms import find_terms
from penstock.stores.index import FoundRange, Look, PassageTerms, find_within, sort_ranges
from penstock.stores.indexing import (
    PassageSource,
    Within,
    count_waiting,
    find_owners,
    is_damaged,
    read_sources,
)
from penstock.stores.rows import cut_batches, find_stretches, read_log_tip
from penstock.stores.schema import MESSAGE, RESULT, SUMMARY
from penstock.writing.reading import Speaker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.conversation.message import Message
    from penstock.recall.embedding import Embedder
    from penstock.recall.passages import Passage
    from penstock.recall.query import Query
    from penstock.recall.ranking import Hit
    from penstock.stores.database import Row, Transaction

__all__ = ["SearchFilter", "SearchQuery", "SearchScope", "count_lacking", "find_shown_summaries", "search"]

_MOST_TERMS = 96  # of a query that are looked up at all
_COUNTED = 20_000  # passages with a term: how rare it is, is estimated beyond
_TAKEN = 3_000  # passages with a term that are looked at: the newest
_TOGETHER = 1_000  # passages with two terms that are both very common
_COMMON_TERMS = 4  # the strongest of these are looked up in pairs
_MOST_COMPARED = 50_000  # messages, the newest, whose vectors are compared with a query
_MOST_WAITING = 5_000  # sources that are all looked at for those that a search needs
_FILTERED_AT_ONCE = 400  # passages whose times are looked up together
_SPEAKERS = {
    "user": (Speaker.USER, Speaker.HARNESS),
    "assistant": (Speaker.ASSISTANT, Speaker.CALL),
    "tool": (Speaker.RESULT,),
    "system": (Speaker.SYSTEM,),
}
_FAR = 1 << 40  # from the numbers of one conversation to those of the next: they are never next to each other


class SearchScope(msgspec.Struct, frozen=True):
    """One conversation, by its key, without the positions and the summaries (by compaction) that the asker sees."""

    conversation: int
    hidden: frozenset[int] = frozenset()
    hidden_summaries: frozenset[int] = frozenset()


class SearchFilter(msgspec.Struct, frozen=True):
    """A part of a store to search: messages since a time, of a role, of a tool, or of a file by its path or the end of it.

    Calls of a tool and their results belong to it, and to the files that the call names. A passage whose text names the
    file belongs to it as well.
    """

    since: float | None = None
    role: str = ""
    tool: str = ""
    path: str = ""

    def list_groups(self) -> tuple[tuple[str, ...], ...]:
        """Returns groups of terms, of each of which a passage must hold one."""
        groups: list[tuple[str, ...]] = []
        if self.role:
            groups.append(tuple(map(Within.role, _SPEAKERS.get(self.role, ()))) or ("«r",))
        if self.tool:
            groups.append((Within.tool(self.tool),))
        if self.path:
            # Whatever names the file has its name as a term; `names_file` says whether it names this one.
            name = self.path.replace("\\", "/").rstrip("/").rpartition("/")[2]
            groups.append((Within.path(self.path), *find_terms(name)[:1]))
        return tuple(groups)

    def names_file(self, text: str) -> bool:
        """Returns True if a text names the file by a path with the same end."""
        path = self.path.casefold().replace("\\", "/").strip("/")
        found = re.search(rf"(?<![\w.-]){re.escape(path)}(?!\w)", text.casefold().replace("\\", "/"))
        return found is not None


class SearchQuery(msgspec.Struct, frozen=True):
    """A search: its text, its scope, the redactor of quoted text, and the embedder, if any.

    Without a scope, everything is searched; `within` narrows the search.
    """

    text: str
    wish: Wish
    scope: SearchScope | None = None
    redact: Callable[[str], str] = str
    embedder: Embedder | None = None
    within: SearchFilter | None = None


class _Spot(msgspec.Struct, frozen=True, gc=False):
    """The place of a source: the key of its conversation, its position, its turn, and when it was written."""

    conversation: int
    position: int
    turn: int
    at: float


def count_lacking(do: Transaction, scope: SearchScope | None) -> int:
    """Returns how many messages, summaries and results that the search could find are not indexed yet.

    Messages that stand whole in the view need not be indexed: the asker sees them.
    """
    waiting = count_waiting(do)
    if not waiting or scope is None:
        return waiting
    if is_damaged(do):
        return read_log_tip(do, scope.conversation).length - len(scope.hidden)
    parts = find_stretches(do, scope.conversation)
    keys = sorted({scope.conversation, *(part for part, _, _ in parts)})
    marks = ", ".join("?" * len(keys))
    others = do.rows(
        f"SELECT kind, source FROM unindexed WHERE kind <> 0 AND conversation IN ({marks})", *keys
    )
    lacking = sum(kind != SUMMARY or source not in scope.hidden_summaries for kind, source in others)
    if waiting <= _MOST_WAITING:  # the limit has a planner begin with what waits, however long the log is
        places = do.rows(
            "SELECT e.conversation, e.position FROM (SELECT source FROM unindexed WHERE kind = 0 LIMIT ?) waiting "
            f"JOIN entries e ON e.message = waiting.source WHERE e.conversation IN ({marks})",
            *(_MOST_WAITING, *keys),
        )
    else:
        places = do.rows(
            f"SELECT e.conversation, e.position FROM entries e WHERE e.conversation IN ({marks}) "
            "AND EXISTS (SELECT 1 FROM unindexed u WHERE u.kind = 0 AND u.source = e.message)",
            *keys,
        )
    for conversation, position in places:
        if position not in scope.hidden:
            lacking += any(part == conversation and low <= position < high for part, low, high in parts)
    return int(lacking)


def search(do: Transaction, asked: SearchQuery) -> list[Finding]:
    """Returns the best findings, in one conversation or in everything that may be seen."""
    text, wish, scope = asked.text, asked.wish, asked.scope
    vectors = _read_findable_vectors(do, asked)
    lookup = _Lookup(do, scope, asked.within)
    whole = add_surroundings(text, wish.surroundings)
    query, talk = read_query(whole), read_talk_query(text, wish.now)
    statistics = lookup.statistics(add_stems(query, talk))
    if wish.surroundings and not statistics.holding.keys() & add_stems(read_query(text), talk).weights.keys():
        # Nothing here holds a word of what was asked: its surroundings alone would find what nobody asked
        # for.
        if asked.embedder is None:
            return []
        whole, query = text, read_query(text)
    # Two arrays side by side: the number of each passage, and the weight of the query's terms in it.
    numbers, scores = lookup.find_passages(add_stems(query, talk), statistics)
    if scope is not None:
        shown = _find_hidden(do, numbers, scope)
        numbers, scores = numbers[~shown], scores[~shown]
    if asked.within is not None and asked.within.since is not None:
        late = _find_since(do, numbers, asked.within.since)
        numbers, scores = numbers[late], scores[late]
    best = choose_passages(scores, numbers, talk)
    meaning = None
    if asked.embedder is not None and vectors is not None:
        meaning = Meaning(whole, asked.embedder)
        # `vectors` are two arrays side by side as well: the numbers of passages, and their vectors as bits.
        best = sorted({*best, *vectors[0][meaning.find_nearest(vectors[1])].tolist()})
    if asked.within is not None:
        best = lookup.keep_within(best)
    if not best:
        return []
    sources = _drop_foreign(do, _find_sources(do, best))
    spots = _find_spots(do, sorted({source for source, _ in sources.values()}, key=_key), scope)
    if asked.within is not None and asked.within.since is not None:
        spots = {source: spot for source, spot in spots.items() if spot.at >= asked.within.since}
    table = _Table(do, sources, spots, scope, asked.redact)
    if asked.within is not None and asked.within.path:
        called = lookup.find_holding((Within.path(asked.within.path),), best)
        table.keep_candidates(called, asked.within.names_file)
    hits = rank(query, table.candidates.values(), statistics, wish, meaning, talk)
    return [table.build_finding(hit) for hit in hits]


def _find_since(do: Transaction, numbers: NDArray[np.int64], since: float) -> NDArray[np.bool_]:
    """Returns which of the passages belong to messages that were logged at that time or later, or to no log."""
    kept = np.zeros(len(numbers), np.bool_)
    for start in range(0, len(numbers), _FILTERED_AT_ONCE):
        some = numbers[start : start + _FILTERED_AT_ONCE].tolist()
        sources = _find_sources(do, some)
        keys = sorted({source.key for source, _ in sources.values() if source.kind == MESSAGE})
        late: set[int] = set()
        for batch in cut_batches(keys):
            marks = ", ".join("?" * len(batch))
            rows = do.rows(
                f"SELECT DISTINCT message FROM entries WHERE message IN ({marks}) AND created >= ?",
                *batch,
                since,
            )
            late.update(row[0] for row in rows)
        for place, number in enumerate(some, start=start):
            if number in sources:
                source = sources[number][0]
                kept[place] = source.kind != MESSAGE or source.key in late
    return kept


class _Lookup:
    """The index for one query, within its scope."""

    def __init__(self, do: Transaction, scope: SearchScope | None, within: SearchFilter | None) -> None:
        self._look = Look(do)
        self._filters = within.list_groups() if within is not None else ()
        self._within = self._filters  # of each group of terms a passage must hold one
        self._is_scoped = scope is not None
        if scope is not None:
            bringers = _find_bringers(do, scope.conversation)
            self._within += (tuple(Within.conversation(bringer) for bringer, _ in bringers),)
            self.passages = sum(passages for _, passages in bringers)
            return
        row = do.one("SELECT first + passages FROM indexed WHERE passages > 0 ORDER BY first DESC LIMIT 1")
        self._highest = row[0] - 1 if row is not None else 0
        self.passages = self._highest
        if do.owner is not None:
            owner = Within.owner(do.owner)
            self._within += ((owner,),)
            self.passages = self._estimate(self._look.measure_spreads([owner], (), _COUNTED)[owner])

    def statistics(self, query: Query) -> Statistics:
        """Returns how rare the terms of the query are here."""
        if not self.passages:
            return Statistics(0, {})
        found = self._look.measure_spreads(list(query.weights)[:_MOST_TERMS], self._within, _COUNTED)
        holding: dict[str, int] = {}
        for term, spread in found.items():
            holding[term] = spread.passages if self._is_scoped else self._estimate(spread)
        return Statistics(self.passages, {term: count for term, count in holding.items() if count})

    def _estimate(self, spread: FoundRange) -> int:
        """Returns how many passages hold a term of which only the newest were counted."""
        if spread.passages < _COUNTED:
            return spread.passages
        share = _COUNTED / max(_COUNTED, self._highest - spread.lowest + 1)
        return max(_COUNTED, int(share * self._highest))

    def keep_within(self, numbers: Sequence[int]) -> list[int]:
        """Returns the passages that pass the filters: a neighbour of one that does may not."""
        if not self._filters:
            return list(numbers)
        kept = set(numbers)
        for group in self._filters:
            kept &= self.find_holding(group, kept)
        return sorted(kept)

    def find_holding(self, terms: Iterable[str], numbers: Collection[int]) -> set[int]:
        """Returns the passages that hold one of the terms, down to the lowest of these numbers."""
        lowest = min(numbers, default=0)
        return {number for term in terms for number in self._look.find_down_to(term, lowest)}

    def find_passages(
        self, query: Query, statistics: Statistics
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Returns the numbers of passages that hold the strongest terms, and the weight of these terms in each."""
        terms = choose_terms(query, statistics)
        weights = np.array([query.weights[term] * statistics.rarity(term) for term in terms])
        found = [self._look.find_newest(PassageTerms((term,), self._within), _TAKEN) for term in terms]
        common = [column for column, term in enumerate(terms) if statistics.holding[term] > _TAKEN]
        for one, other in combinations(common[:_COMMON_TERMS], 2):
            both = self._look.find_newest(PassageTerms((terms[one], terms[other]), self._within), _TOGETHER)
            for column in (one, other):
                found[column] = np.union1d(found[column], both)
        holding = np.concatenate(found) if found else np.zeros(0, np.int64)
        numbers, places = np.unique(holding, return_inverse=True)
        scores: NDArray[np.float64] = np.zeros(len(numbers))
        np.add.at(scores, places, np.repeat(weights, [len(some) for some in found]))
        return numbers, scores


def _find_bringers(do: Transaction, conversation: int) -> list[tuple[int, int]]:
    """Returns the conversations that brought the passages of one, and how many passages each.

    They are the conversation itself, and those that had one of its messages earlier.
    """
    bringers = {conversation: _count_passages(do, conversation)}
    for part, low, high in find_stretches(do, conversation):
        rows = do.rows(
            "SELECT x.conversation, sum(x.passages) FROM entries e JOIN indexed x ON x.kind = 0 AND x.source = e.message "
            "WHERE e.conversation = ? AND e.position >= ? AND e.position < ? AND x.conversation <> ? "
            "GROUP BY x.conversation",
            *(part, low, high, conversation),
        )
        for bringer, passages in rows:
            bringers[bringer] = bringers.get(bringer, 0) + int(passages)
    return list(bringers.items())


def _count_passages(do: Transaction, conversation: int) -> int:
    row = do.one("SELECT sum(passages) FROM indexed WHERE conversation = ?", conversation)
    return int(row[0]) if row is not None and row[0] is not None else 0


def _read_findable_vectors(
    do: Transaction, asked: SearchQuery
) -> tuple[NDArray[np.int64], NDArray[np.uint8]] | None:
    """Returns the numbers and vectors of the passages that may be found by what they mean."""
    if asked.embedder is None:
        return None
    if asked.scope is None:
        return _read_vectors(do, None, asked.embedder.dimensions)
    numbers, rows = _read_vectors(do, asked.scope.conversation, asked.embedder.dimensions)
    shown = _find_hidden(do, numbers, asked.scope)
    return numbers[~shown], rows[~shown]


def _read_vectors(
    do: Transaction, conversation: int | None, dimensions: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Returns the numbers of passages and their packed vectors: of a conversation, by its key, or of all that may be seen."""
    if conversation is None and do.owner is not None:
        found = _read_vectors_of_owner(do, do.owner)
    elif conversation is None:
        found = do.rows("SELECT first, bits FROM vectors ORDER BY first DESC LIMIT ?", _MOST_COMPARED)
    else:
        found = _read_vectors_of(do, conversation)
    found.reverse()
    size = dimensions // 8
    rows = np.frombuffer(b"".join(row[1] for row in found), np.uint8).reshape(-1, size)
    firsts = np.array([row[0] for row in found], np.int64)
    counts = np.array([len(row[1]) // size for row in found], np.int64)
    # All vectors of a source stand together, and its passages are numbered through from its first: the number
    # of a row is its index, moved by how far the first number of its source is from the index of the source's
    # first row.
    begins = np.cumsum(counts) - counts
    return np.repeat(firsts - begins, counts) + np.arange(len(rows)), rows


def _read_vectors_of(do: Transaction, conversation: int) -> list[Row]:
    """Returns the vectors of a conversation's log, its summaries and results, the newest first."""
    found = do.rows(
        "SELECT v.first, v.bits FROM indexed x JOIN vectors v ON v.first = x.first "
        "WHERE x.conversation = ? AND x.kind <> 0 AND x.passages > 0",
        conversation,
    )
    for part, low, high in find_stretches(do, conversation):
        found += do.rows(
            "SELECT v.first, v.bits FROM entries e JOIN indexed x ON x.kind = 0 AND x.source = e.message "
            "JOIN vectors v ON v.first = x.first "
            "WHERE e.conversation = ? AND e.position >= ? AND e.position < ? AND x.passages > 0 "
            "ORDER BY e.position DESC LIMIT ?",
            *(part, low, high, _MOST_COMPARED),
        )
    return sorted(found, reverse=True)[:_MOST_COMPARED]


def _read_vectors_of_owner(do: Transaction, owner: str) -> list[Row]:
    """Returns the vectors of an owner's conversations, from the last used on until there are enough, the newest first."""
    found: dict[int, Row] = {}
    for (conversation,) in do.rows(
        "SELECT key FROM conversations WHERE owner = ? ORDER BY updated DESC, key DESC", owner
    ):
        if len(found) >= _MOST_COMPARED:
            break
        found.update((row[0], row) for row in _read_vectors_of(do, conversation))
    return sorted(found.values(), reverse=True)[:_MOST_COMPARED]


def _find_hidden(do: Transaction, numbers: NDArray[np.int64], scope: SearchScope) -> NDArray[np.bool_]:
    """Returns which of the numbers are passages that the asker sees."""
    ranges: list[tuple[int, int]] = []
    for part, low, high in find_stretches(do, scope.conversation):
        for some in cut_batches(sorted(place for place in scope.hidden if low <= place < high)):
            marks = ", ".join("?" * len(some))
            ranges += do.rows(
                "SELECT x.first, x.passages FROM entries e JOIN indexed x ON x.kind = 0 AND x.source = e.message "
                f"WHERE e.conversation = ? AND e.position IN ({marks})",
                *(part, *some),
            )
    return find_within(numbers, sort_ranges(ranges))


def find_shown_summaries(do: Transaction, conversation: int) -> frozenset[int]:
    """Returns the compaction whose summary stands in the view and therefore need not be found."""
    row = do.one("SELECT view FROM conversations WHERE key = ?", conversation)
    return frozenset((row[0],)) if row is not None and row[0] else frozenset()


def _find_sources(do: Transaction, numbers: Sequence[int]) -> dict[int, tuple[PassageSource, int]]:
    """Returns for each passage its source, and its place among the passages of that source."""
    found: dict[int, tuple[PassageSource, int]] = {}
    for some in cut_batches(numbers):
        marks = ", ".join("(?)" for _ in some)
        rows = do.rows(
            f"WITH wanted (number) AS (VALUES {marks}), ranged AS (SELECT number, (SELECT max(x.first) FROM indexed x "
            "WHERE x.first <= number AND x.passages > 0) AS begins FROM wanted) "
            "SELECT r.number, x.kind, x.source, x.conversation, x.first, x.passages FROM ranged r "
            "JOIN indexed x ON x.first = r.begins AND x.passages > 0",
            *some,
        )
        for number, kind, key, conversation, first, count in rows:
            if number < first + count:
                found[number] = (PassageSource(kind, key, conversation), number - first)
    return dict(sorted(found.items()))


def _drop_foreign(
    do: Transaction, sources: dict[int, tuple[PassageSource, int]]
) -> dict[int, tuple[PassageSource, int]]:
    """Returns the passages without those of other owners: terms of two owners may have the same place in the index."""
    if do.owner is None:
        return sources
    owners = find_owners(do, [source for source, _ in sources.values()])
    return {number: found for number, found in sources.items() if owners.get(found[0]) == do.owner}


def _key(source: PassageSource) -> tuple[int, int]:
    return source.kind, source.key


def _find_spots(
    do: Transaction, sources: Sequence[PassageSource], scope: SearchScope | None
) -> dict[PassageSource, _Spot]:
    """Returns where each source stands, in the searched conversation or in any."""
    found: dict[PassageSource, _Spot] = {}
    messages = {source.key: source for source in sources if source.kind == MESSAGE}
    parts = find_stretches(do, scope.conversation) if scope is not None else []
    for some in cut_batches(list(messages)):
        marks = ", ".join("?" * len(some))
        rows = do.rows(
            "SELECT e.message, e.conversation, e.position, e.created, CASE WHEN m.role = 'tool' THEN coalesce((SELECT "
            "b.position FROM entries b JOIN messages n ON n.key = b.message WHERE b.conversation = e.conversation "
            "AND b.position < e.position AND n.role <> 'tool' ORDER BY b.position DESC LIMIT 1), e.position) "
            "ELSE e.position END FROM entries e JOIN messages m ON m.key = e.message "
            f"WHERE e.message IN ({marks}) ORDER BY e.conversation DESC",
            *some,
        )
        for key, conversation, position, created, turn in rows:
            if scope is None:
                found[messages[key]] = _Spot(conversation, position, turn, created)
            elif any(part == conversation and low <= position < high for part, low, high in parts):
                found[messages[key]] = _Spot(scope.conversation, position, turn, created)
    for source in sources:
        spot = None
        if source.kind == RESULT:
            spot = _find_spot_of_result(do, source, scope, parts)
        elif source.kind != MESSAGE and (scope is None or source.conversation == scope.conversation):
            spot = _find_spot_of_summary(do, source)
        if spot is not None:
            found[source] = spot
    return found


def _find_spot_of_summary(do: Transaction, source: PassageSource) -> _Spot | None:
    """Returns the spot after the messages that the summary was made of."""
    row = do.one("SELECT length - 1, created FROM compactions WHERE key = ?", source.key)
    return None if row is None else _Spot(source.conversation, row[0], row[0], row[1])


def _find_spot_of_result(
    do: Transaction, source: PassageSource, scope: SearchScope | None, parts: Sequence[tuple[int, int, int]]
) -> _Spot | None:
    """Returns the spot of the message that stands for the result, if the searched log has it or shares it."""
    row = do.one(
        "SELECT s.conversation, r.message, r.created FROM results r JOIN sessions s ON s.key = r.session WHERE r.key = ?",
        source.key,
    )
    if row is None:
        return None
    home, message, created = row
    conversation = home if scope is None else scope.conversation
    for part, low, high in parts or find_stretches(do, home):
        at = do.one(
            "SELECT min(position) FROM entries WHERE message = ? AND conversation = ? AND position >= ? AND position < ?",
            *(message, part, low, high),
        )
        if at is not None and at[0] is not None:
            return _Spot(conversation, at[0], at[0], created)
    return _Spot(conversation, 0, 0, created) if home == conversation else None


class _Table:
    """Candidates under numbers for the ranking to use, and the way back from these numbers.

    Each conversation has a range of its own. A summary or a stored result stands in no log, and has a range to itself.
    """

    def __init__(
        self,
        do: Transaction,
        sources: Mapping[int, tuple[PassageSource, int]],
        spots: Mapping[PassageSource, _Spot],
        scope: SearchScope | None,
        redact: Callable[[str], str],
    ) -> None:
        self._names = _read_names(do, {spot.conversation for spot in spots.values()})
        self._ranges: list[tuple[int, PassageSource | None]] = []
        self._handles: dict[int, str] = {}
        self._spots = spots
        self.candidates: dict[int, Candidate] = {}
        # In the dialect of the log that it was found in: the log that brought it may be deleted.
        found = {
            source: PassageSource(source.kind, source.key, spot.conversation)
            for source, spot in spots.items()
        }
        texts = _Texts(read_sources(do, list(found.values())), redact)
        for number, (source, place) in sources.items():
            spot = spots.get(source)
            if spot is None or _is_shown(source, spot, scope):
                continue
            base = self._find_base(source, spot)
            own = base + spot.position + 1
            self._handles[own] = _make_handle(do, source, spot)
            for step, passage in texts.find_around(found[source], place):
                origin = Origin(
                    base + number + step, base + spot.turn + 1, own, passage.voice, passage.speaker
                )
                self.candidates[origin.passage] = Candidate(origin, passage.text, spot.at)

    def keep_candidates(self, numbers: Collection[int], is_meant: Callable[[str], bool]) -> None:
        """Drops all candidates except passages with these numbers and those whose text is meant."""
        self.candidates = {
            place: candidate
            for place, candidate in self.candidates.items()
            if place % _FAR in numbers or is_meant(candidate.text)
        }

    def build_finding(self, hit: Hit) -> Finding:
        """Returns the hit as a finding."""
        conversation, alone = self._ranges[hit.turn // _FAR - 1]
        turn = hit.turn % _FAR
        at = [
            spot.at
            for source, spot in self._spots.items()
            if (source == alone if alone else spot.conversation == conversation and spot.turn == turn - 1)
        ]
        return Finding(
            handles=tuple(dict.fromkeys(self._handles[message] for message in hit.messages)),
            turn=turn,
            excerpt=hit.excerpt,
            score=hit.score,
            at=min(at, default=None),
            session=self._names.get(conversation, ""),
        )

    def _find_base(self, source: PassageSource, spot: _Spot) -> int:
        entry = (spot.conversation, None if source.kind == MESSAGE else source)
        if entry not in self._ranges:
            self._ranges.append(entry)
        return (self._ranges.index(entry) + 1) * _FAR


class _Texts:
    """The passages of sources, without secrets: each message is redacted as a whole, before it is cut."""

    def __init__(self, messages: Mapping[PassageSource, Message], redact: Callable[[str], str]) -> None:
        self._passages: dict[PassageSource, tuple[Passage, ...]] = {}
        self._moved: set[PassageSource] = set()
        for source, message in messages.items():
            clean = redact_message(message, redact)
            self._passages[source] = cut_again(clean)
            if clean.parts != message.parts:
                self._moved.add(source)

    def find_around(self, source: PassageSource, place: int) -> list[tuple[int, Passage]]:
        """Returns the passage at a place, under 0. If redaction may have moved it, the one before it comes, too, under -1."""
        passages = self._passages.get(source, ())
        steps = (-1, 0) if source in self._moved else (0,)
        return [(step, passages[place + step]) for step in steps if 0 <= place + step < len(passages)]


def _is_shown(source: PassageSource, spot: _Spot, scope: SearchScope | None) -> bool:
    if scope is None:
        return False
    if source.kind == MESSAGE:
        return spot.position in scope.hidden
    return source.kind != RESULT and source.key in scope.hidden_summaries


def _make_handle(do: Transaction, source: PassageSource, spot: _Spot) -> str:
    if source.kind == MESSAGE:
        return name_message(spot.position + 1)
    if source.kind == RESULT:
        row = do.one("SELECT id FROM results WHERE key = ?", source.key)
        return str(row[0]) if row is not None else ""
    row = do.one(
        "SELECT count(*) FROM compactions WHERE conversation = ? AND key <= ?",
        source.conversation,
        source.key,
    )
    return f"s{row[0] if row is not None else 0}"


def _read_names(do: Transaction, conversations: Collection[int]) -> dict[int, str]:
    """Returns the ids of conversations by their keys."""
    found: dict[int, str] = {}
    for some in cut_batches(sorted(conversations)):
        marks = ", ".join("?" * len(some))
        found.update(do.rows(f"SELECT key, id FROM conversations WHERE key IN ({marks})", *some))
    return found
