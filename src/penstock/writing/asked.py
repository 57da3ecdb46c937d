"""What a request means by its plain words: lines of what was read long ago.

"The batch size that the runbook asks for" names a file and a line in it, but holds no value by which either could be
found. The words stand in the text of a result, or in the call that brought it; rare ones tell most. All in whole
numbers, so that the choice is the same on every platform.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from penstock.writing.reading import spoken_text
from penstock.writing.values import plain_stem
from penstock.writing.vocabulary import BUCKETS, bucket, sorted_distinct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from penstock.conversation.message import ToolCall
    from penstock.writing.reading import Index
    from penstock.writing.transcript import Transcript

__all__ = ["find_asked", "weigh_words"]

_SOURCES = 5  # as many of those that hold most of the words
_NAMED_IN_CALL = 4  # times: a word in the call that brought a result tells more than one in the result
_LONGEST_REQUEST = 3_000  # characters
_SEARCHED_CHARACTERS = 3_000_000
_WORD = re.compile(r"[^\W\d_]{4,}")


def find_asked(
    transcript: Transcript, calls: Mapping[str, ToolCall], request: int | None, shut: NDArray[np.bool_]
) -> list[int]:
    """Returns the excerpts that the request at this position means, as far as its words tell, the surest first.

    `calls` are the calls by id; sources that are `shut` are left out.
    """
    if request is None:
        return []
    index = transcript.index
    asked = spoken_text(transcript.messages[request])[:_LONGEST_REQUEST].lower()
    words = _subjects(asked)
    texts = _newest_texts(index, without=request)
    holding = {word: [source for source, text in texts.items() if word in text] for word in words}
    # A word that stands everywhere names nothing; one that stands in few places names one of them.
    worth = {
        word: (len(texts) // len(sources)).bit_length()
        for word, sources in holding.items()
        if sources and len(sources) <= max(2, len(texts) // 4)
    }
    scores: dict[int, int] = {}
    for word, value in worth.items():
        for source in holding[word]:
            call = calls.get(index.tags[source])
            named = call is not None and word in call.arguments.lower()
            scores[source] = scores.get(source, 0) + (_NAMED_IN_CALL if named else 1) * value
    latest = {
        texts[source]: source for source in sorted(scores)
    }  # of a file that was read twice, the last time
    meant = [source for source in latest.values() if not shut[source]]
    meant.sort(key=lambda source: (-scores[source], -source))
    lines = {
        number: scores[source] * sum(value for word, value in worth.items() if word in line)
        for source in meant[:_SOURCES]
        for number in range(index.first_excerpt[source], index.first_excerpt[source + 1])
        if (line := index.excerpt(number).lower())
    }
    ranked = sorted(
        (number for number in lines if lines[number]), key=lambda number: (-lines[number], number)
    )
    return list(dict.fromkeys(one for number in ranked for one in _with_neighbours(number, index, lines)))


def weigh_words(index: Index, text: str) -> NDArray[np.int64]:
    """Returns for each excerpt the weight of the plain words of the text that stand in it; a rare word weighs more."""
    wanted = np.unique([bucket(word) for word in _subjects(text)]).astype(np.int64)
    place = np.full(BUCKETS, -1, np.int32)
    place[wanted] = np.arange(len(wanted))
    word = place[index.words]
    rows = np.flatnonzero(word >= 0)
    word = word[rows]
    excerpt = np.searchsorted(np.cumsum(index.word_counts), rows, side="right")
    sources = len(index.sources)
    held = sorted_distinct(word.astype(np.int64) * sources + index.source_of[excerpt])
    holding = np.bincount(held // max(1, sources), minlength=len(wanted))
    # A word that stands everywhere names nothing; one that stands in few places names one of them.
    worth = np.array(
        [
            (sources // many).bit_length() if 0 < many <= max(2, sources // 4) else 0
            for many in holding.tolist()
        ],
        np.int64,
    )
    weights = np.zeros(len(index.source_of), np.int64)
    np.add.at(weights, excerpt, worth[word])
    return weights


def _subjects(text: str) -> list[str]:
    """Returns the words that may name something, cut to what is compared."""
    return sorted({stem for word in _WORD.findall(text[:_LONGEST_REQUEST]) if (stem := plain_stem(word))})


def _with_neighbours(number: int, index: Index, among: Mapping[int, int]) -> Iterable[int]:
    """Yields the excerpt, and those before and after it in the same source."""
    yield number
    for beside in (number - 1, number + 1):
        if beside in among and index.source_of[beside] == index.source_of[number]:
            yield beside


def _newest_texts(index: Index, without: int) -> dict[int, str]:
    """Returns the texts of the newest sources in lower case, of a limited length together, but for one message's."""
    texts: dict[int, str] = {}
    room = _SEARCHED_CHARACTERS
    for source in range(len(index.sources) - 1, -1, -1):
        if index.message_of_source[source] != without:
            texts[source] = index.sources[source].text.lower()
            room -= len(texts[source])
        if room < 0:
            break
    return texts
