"""Finds what a request means by its plain words: lines of what was read long ago.

"The batch size that the runbook asks for" names a file and a line in it, but holds no value by which either could be
found. The words stand in the text of a result, or in the call that brought it; rare ones tell most. All in whole
numbers, so that the choice is the same on every platform.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.writing.compiled import find_holding
from penstock.writing.reading import spoken_text
from penstock.writing.value_looks import bucket
from penstock.writing.values import plain_stem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from penstock.conversation.message import ToolCall
    from penstock.writing.reading import Index
    from penstock.writing.transcript import Transcript

__all__ = ["AskedLines", "find_asked", "weigh_words"]

_SOURCES = 5  # as many of those that hold most of the words
_NAMED_IN_CALL = 4  # times: a word in the call that brought a result tells more than one in the result
_LONGEST_REQUEST = 3_000  # characters
_CLAUSES = 8  # of a long request the last ones
_CLAUSE = re.compile(r"[,.;:()?!\n]+")
_SEARCHED_CHARACTERS = 1_000_000
_LOWERED_AT_ONCE = 64  # sources
_WORD = re.compile(r"[^\W\d_]{4,}")


class AskedLines(NamedTuple):
    """The excerpts that a request means, the surest first, and how many things it asks for."""

    excerpts: list[int]
    things: int = 1


def find_asked(
    transcript: Transcript, calls: Mapping[str, ToolCall], request: int | None, shut: NDArray[np.bool_]
) -> AskedLines:
    """Returns the excerpts that the request at this position means, as far as its words tell, the surest first.

    A request may ask for several things, so that its clauses take turns, each with its own best excerpts. `calls` are
    the calls by id; sources that are `shut` are left out.
    """
    if request is None:
        return AskedLines([])
    index = transcript.index
    asked = spoken_text(transcript.messages[request])[:_LONGEST_REQUEST].lower()
    texts = _newest_texts(index, without=request)
    holding = _find_holding(index, texts, _subjects(asked))
    # A word that stands everywhere names nothing; one that stands in few places names one of them.
    worth = {
        word: (len(texts) // len(sources)).bit_length()
        for word, sources in holding.items()
        if sources and len(sources) <= max(2, len(texts) // 4)
    }
    named = {
        word: {
            source
            for source in holding[word]
            if (call := calls.get(index.tags[source])) is not None and word in call.arguments.lower()
        }
        for word in worth
    }
    ranks: list[list[tuple[int, ...]]] = []
    for words in _clauses_of(asked, worth):
        scores: dict[int, int] = {}
        for word in words:
            for source in holding[word]:
                more = _NAMED_IN_CALL if source in named[word] else 1
                scores[source] = scores.get(source, 0) + more * worth[word]
        weights = {word: worth[word] if word in words else 0 for word in holding}
        ranks.append(_rank_lines(index, texts, scores, weights, shut))
    turns = zip_longest(*ranks, fillvalue=())
    excerpts = dict.fromkeys(number for turn in turns for unit in turn for number in unit)
    return AskedLines(list(excerpts), len(ranks))


def _find_holding(index: Index, texts: dict[int, str], words: Iterable[str]) -> dict[str, list[int]]:
    """Returns for each word the sources among these texts that hold it.

    A request stands for many turns, so that most texts were searched for its words before. Those are not searched again.
    """
    searched, known = index.searched
    fresh = [source for source in texts if source not in searched]
    wanted = list(words)
    before = [word for word in wanted if word in known]
    unknown = [word for word in wanted if word not in known]
    found = dict(zip(before, _find_among(fresh, texts, before), strict=True))
    found |= zip(unknown, _find_among(list(texts), texts, unknown), strict=True)
    holding = {
        word: [source for source in known.get(word, ()) if source in texts] + found[word] for word in wanted
    }
    index.searched = (texts, holding)  # for the last request alone
    return holding


def _find_among(some: list[int], texts: dict[int, str], words: list[str]) -> list[list[int]]:
    """Returns for each word those of some sources whose texts hold it."""
    holding = find_holding([texts[source] for source in some], words)
    return [[some[place] for place in places] for places in holding]


def _clauses_of(asked: str, worth: Mapping[str, int]) -> list[list[str]]:
    """Returns the telling words of each clause of the request, the last one first; all of them where it has but one."""
    clauses = [[word for word in _subjects(clause) if word in worth] for clause in _CLAUSE.split(asked)]
    telling = [clause for clause in clauses if len(clause) > 1][: -_CLAUSES - 1 : -1]
    return telling if len(telling) > 1 else [list(worth)]


def _rank_lines(
    index: Index,
    texts: Mapping[int, str],
    scores: Mapping[int, int],
    worth: Mapping[str, int],
    shut: NDArray[np.bool_],
) -> list[tuple[int, ...]]:
    """Returns the excerpts of the best sources that hold the words, the best first.

    Of two that are worth the same, the one that holds more words of the whole request comes first, and a number counts as
    one: what is asked for is often one. A line of data comes with its neighbours, which say what it is of.
    """
    latest = {
        texts[source]: source for source in sorted(scores)
    }  # of a file that was read twice, the last time
    meant = [source for source in latest.values() if not shut[source]]
    meant.sort(key=lambda source: (-scores[source], -source))
    ranks: dict[tuple[int, ...], tuple[int, int]] = {}
    for source in meant[:_SOURCES]:
        text = texts[source]
        # In a text that is ASCII in lower case, each letter has become what it is in lower case alone.
        wanted = list(worth)
        held = (
            [word for word, places in zip(wanted, find_holding([text], wanted), strict=True) if places]
            if text.isascii()
            else wanted
        )
        for number, value in _find_lines(index, source, text, worth):
            unit = (number, *_neighbours(number, index))
            said = " ".join(map(index.excerpt, unit)).lower()
            states = any(map(str.isdigit, said))
            ranks[unit] = (scores[source] * value, len([word for word in held if word in said]) + states)
    return sorted(ranks, key=lambda unit: (-ranks[unit][0], -ranks[unit][1], unit))


def _find_lines(index: Index, source: int, text: str, worth: Mapping[str, int]) -> list[tuple[int, int]]:
    """Returns the excerpts of a source that hold words worth something, with what these are worth; `text` is in lower case."""
    first, after = index.first_excerpt.item(source), index.first_excerpt.item(source + 1)
    ends = np.cumsum(index.lengths[first:after] + 1).tolist()  # with a line break
    if len(text) != ends[-1] - 1:  # a few letters are two in lower case
        lines = [index.excerpt(number).lower() for number in range(first, after)]
        values = [sum(value for word, value in worth.items() if value and word in line) for line in lines]
        return [(number, value) for number, value in enumerate(values, first) if value]
    found: dict[int, int] = {}
    for word, value in worth.items():
        at = text.find(word) if value else -1
        while at >= 0:  # once in each excerpt: words hold no line break
            place = bisect_right(ends, at)
            found[place] = found.get(place, 0) + value
            at = text.find(word, ends[place])
    return [(first + place, found[place]) for place in sorted(found)]


def weigh_words(index: Index, text: str) -> NDArray[np.int32]:
    """Returns for each excerpt the weight of the plain words of the text that stand in it; a rare word weighs more."""
    wanted = np.array(sorted({bucket(word) for word in _subjects(text)}), np.uint16)
    sources = len(index.sources)
    # A word that stands everywhere names nothing; one that stands in few places names one of them.
    worth = np.array(
        [
            (sources // many).bit_length() if 0 < many <= max(2, sources // 4) else 0
            for many in index.excerpts_by_word.count_sources(wanted, index.source_of).tolist()
        ],
        np.int32,
    )
    weights = np.zeros(len(index.source_of), np.int32)
    index.excerpts_by_word.count_owners(wanted[worth > 0], worth[worth > 0], weights)
    return weights


def _subjects(text: str) -> list[str]:
    """Returns the words that may name something, cut to what is compared."""
    return sorted({stem for word in _WORD.findall(text[:_LONGEST_REQUEST]) if (stem := plain_stem(word))})


def _neighbours(number: int, index: Index) -> Iterable[int]:
    """Yields the excerpts before and after a line of data in the same source; a sentence or a line of a log has none."""
    line = index.excerpt(number).rstrip()
    if not line.endswith((",", "{", "[", "|", ":")):
        return
    source = int(index.source_of[number])
    for beside in (number - 1, number + 1):
        if index.first_excerpt[source] <= beside < index.first_excerpt[source + 1]:
            yield beside


def _newest_texts(index: Index, without: int) -> dict[int, str]:
    """Returns the texts of the newest sources in lower case, of a limited length together, but for one message's."""
    texts: dict[int, str] = {}
    room = _SEARCHED_CHARACTERS
    known = index.searched[0]
    sources = np.flatnonzero(index.message_of_source != without)[::-1]
    for start in range(0, len(sources), _LOWERED_AT_ONCE):
        some = sources[start : start + _LOWERED_AT_ONCE].tolist()
        fresh = [source for source in some if source not in known]
        lowered = _lower(index, fresh)
        for source in some:
            texts[source] = text = known[source] if source in known else lowered[source]
            room -= len(text)
            if room < 0:
                return texts
    return texts


def _lower(index: Index, sources: list[int]) -> dict[int, str]:
    """Returns the texts of these sources in lower case; ASCII, as most are, all together."""
    if not sources:
        return {}
    texts = zip(sources, index.texts_of(np.array(sources, np.int64)), strict=True)
    return {
        source: text.lower() if text.isascii() else index.sources[source].lowered for source, text in texts
    }
