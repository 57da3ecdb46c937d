"""Ranking of what people said to each other: whole messages, by the stems of their words and of those beside them.

An agent's work is searched for values, by `ranking.py`. Conversations of people hold few values: a question is for the
message that answers it. A message counts by BM25 over the stems of its words and, at less weight, those of the
messages next to it, since an answer often lacks the words of its question; by its speaker, if the question names
a person; and by its time, if it names a time. Each hit is one message, with as many around it as the excerpt has room for.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.recall.query import find_token_values
from penstock.recall.stems import PEOPLE, find_empty_words, find_forms, find_language
from penstock.recall.terms import find_terms, fold_word, split_tokens
from penstock.writing.reading import Speaker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.recall.embedding import Meaning
    from penstock.recall.fragments import Origin
    from penstock.recall.query import Query, Statistics

__all__ = [
    "Spoken",
    "TalkQuery",
    "add_stems",
    "find_period",
    "holds_word",
    "is_talk",
    "read_talk_query",
    "score_talk",
]

_MOST_CHARACTERS = 300  # of a query: what is longer quotes something
_MOST_VALUES = 0.04  # of the words of candidates
_MOST_LISTED = 0.3  # of candidates that are calls or results
_SATURATION, _LENGTH = 1.2, 0.6  # k1 and b of BM25
_BESIDE = (0.45, 0.25)  # of a word in the message next to it, and in the one after that
_PAIRS = 0.4
_SPEAKER = 0.25  # more for the speaker that is named
_ASKER = 0.1  # more for the role that `I` or `you` means
_IN_TIME, _NEAR_TIME = 0.6, 0.2
_NEAR_DAYS = 7 * 86_400.0
_MEANT = 0.5
_ENGLISH = "en"
_LABEL = re.compile(r"\[?([^\W\d_][\w.'’-]{0,30}(?: [^\W\d_][\w.'’-]{0,30})?)\]?:\s").match
_DATE = re.compile(r"(?:19|20)\d\d(?:-\d\d){0,2}|\d{1,2}(?:st|nd|rd|th)").fullmatch
_WORD = re.compile(r"[^\W\d_]+")
_FIRST = frozenset(
    [
        "i",
        "me",
        "my",
        "mine",
        "we",
        "our",
        "ich",
        "mein",
        "meine",
        "wir",
        "yo",
        "mi",
        "je",
        "mon",
        "ma",
        "io",
        "mio",
        "mia",
        "eu",
        "meu",
        "minha",
        "ik",
        "mijn",
    ]
)
_SECOND = frozenset(
    [
        "you",
        "your",
        "yours",
        "du",
        "dein",
        "deine",
        "tu",
        "tuyo",
        "ton",
        "ta",
        "tuo",
        "tua",
        "voce",
        "seu",
        "jij",
        "jouw",
    ]
)


class Spoken(msgspec.Struct, frozen=True, gc=False):
    """A message among the candidates: its passages as one text, its speaker, and its time, if that is known."""

    origin: Origin
    text: str
    at: float | None
    last: int
    """The number of its last passage: the next message begins behind it."""


class TalkQuery(msgspec.Struct, frozen=True):
    """A question in plain words: the term that each stem stands for, its words, and the time that it names.

    `empty` are words that stand in every sentence of its language.
    """

    stems: dict[str, str]
    empty: frozenset[str]
    words: frozenset[str]
    period: tuple[float, float] | None = None


def read_talk_query(text: str, now: float | None) -> TalkQuery | None:
    """Returns the question in a text; None if the text is long or names values, and so is not one.

    `now` is when it is asked, for questions about last week, for example.
    """
    if len(text) > _MOST_CHARACTERS or any(map(_is_value, split_tokens(text))):
        return None
    stems: dict[str, str] = {}
    for language in dict.fromkeys(
        (find_language(text), _ENGLISH)
    ):  # words of other languages are found by both
        for token in split_tokens(text):
            terms = find_terms(token)
            for form in find_forms(token, language):
                if form not in terms:
                    stems.setdefault(form, terms[0] if terms else form)
    words = frozenset(map(str.lower, _WORD.findall(text)))
    return TalkQuery(stems, find_empty_words(text), words, find_period(text, now))


def _is_value(token: str) -> bool:
    """Returns True if a token of a question is a value; a date is not."""
    return bool(find_token_values(token)) and not _DATE(token.rstrip(".:"))


def add_stems(query: Query, talk: TalkQuery | None) -> Query:
    """Returns the terms to look up in an index: those of a query, and the stems of a question."""
    if talk is None:
        return query
    stems = {stem: query.weights.get(term, 1.0) for stem, term in talk.stems.items()}
    return msgspec.structs.replace(query, weights={**stems, **query.weights})


def holds_word(asked: TalkQuery, query: Query, text: str) -> bool:
    """Returns True if a text holds a word of the question, in any of its forms."""
    wanted = asked.stems.keys() | query.weights.keys()
    language = find_language(text)
    return any(not wanted.isdisjoint(find_forms(token, language)) for token in split_tokens(text))


def is_talk(asked: TalkQuery, query: Query, candidates: Iterable[tuple[Speaker, str]]) -> bool:
    """Returns True if the candidates that hold a word of the question are what people said, with few values in it."""
    passages = listed = words = values = 0
    for speaker, text in candidates:
        if not holds_word(asked, query, text):
            continue
        tokens = split_tokens(text)
        passages += 1
        listed += speaker not in PEOPLE
        words += len(tokens)
        values += sum(bool(find_token_values(token)) for token in tokens)
    return listed <= _MOST_LISTED * passages and values <= _MOST_VALUES * words


def score_talk(
    asked: TalkQuery,
    query: Query,
    spoken: Sequence[Spoken],
    statistics: Statistics,
    meaning: Meaning | None = None,
) -> NDArray[np.float64]:
    """Returns a score for each message; 0 if neither it nor those beside it share anything with the question.

    Messages come in the order of their passages. How rare a word is comes from the index.
    """
    scores: NDArray[np.float64] = np.zeros(len(spoken))
    columns, weights = _weigh_words(asked, query, statistics)
    if len(weights) and spoken:
        held = [_find_words(one.text) for one in spoken]
        counts = np.zeros((len(spoken), len(weights)))
        pairs = np.zeros(len(spoken))
        for row, words in enumerate(held):
            before = ""
            for forms in words:
                for column in {columns[form] for form in forms if form in columns}:
                    counts[row, column] += 1.0
                if forms:
                    pairs[row] += (before, forms[0]) in query.pairs
                    before = forms[0]
        lengths = np.array([[float(len(words))] for words in held])
        counts, lengths = _spread(counts, spoken), _spread(lengths, spoken)
        norm = _SATURATION * (1 - _LENGTH + _LENGTH * lengths / max(float(lengths.mean()), 1.0))
        scores = (counts * (_SATURATION + 1) / (counts + norm)) @ weights
        scores += _PAIRS * float(weights.mean()) * pairs
    if meaning is not None and spoken:
        near = meaning.measure_texts([one.text for one in spoken]).astype(np.float64)
        scores += _MEANT * max(float(scores.max()), 1.0) * np.maximum(near, 0.0)
    return scores * (1.0 + _weigh_speakers(asked, spoken) + _weigh_times(asked, spoken))


def _weigh_words(
    asked: TalkQuery, query: Query, statistics: Statistics
) -> tuple[dict[str, int], NDArray[np.float64]]:
    """Returns the column of each form of the question's words, and the weight of each column.

    A word is as rare as the form of it that most passages hold.
    """
    forms: dict[str, list[str]] = {term: [term] for term in query.weights if term not in asked.empty}
    for stem, term in asked.stems.items():
        if stem not in query.weights and term not in asked.empty:
            forms.setdefault(term, []).append(stem)
    columns: dict[str, int] = {}
    weights: list[float] = []
    for term, own in forms.items():
        held = [one for one in own if statistics.holding.get(one)]
        if held:
            columns.update((one, len(weights)) for one in held)
            weights.append(query.weights.get(term, 1.0) * min(map(statistics.rarity, held)))
    return columns, np.array(weights)


def _find_words(text: str) -> list[tuple[str, ...]]:
    """Returns the forms of each token that says something."""
    language = find_language(text)
    return [forms for token in split_tokens(text) if (forms := find_forms(token, language))]


def _spread(counts: NDArray[np.float64], spoken: Sequence[Spoken]) -> NDArray[np.float64]:
    """Returns each message's counts with a part of those of the messages beside it."""
    spread = counts.copy()
    follows = np.array([one.last + 1 == other.origin.passage for one, other in pairwise(spoken)], np.float64)
    beside = follows
    for step, part in enumerate(_BESIDE, start=1):
        if step > 1:
            beside = beside[:-1] * follows[step - 1 :]
        if not len(beside):
            break
        spread[step:] += part * beside[:, None] * counts[:-step]
        spread[:-step] += part * beside[:, None] * counts[step:]
    return spread


def _weigh_speakers(asked: TalkQuery, spoken: Sequence[Spoken]) -> NDArray[np.float64]:
    """Returns how much more each message counts for its speaker."""
    more = np.zeros(len(spoken))
    first, second = bool(asked.words & _FIRST), bool(asked.words & _SECOND)
    for row, one in enumerate(spoken):
        label = _LABEL(one.text)
        if label is not None:
            more[row] = _SPEAKER * any(word.lower() in asked.words for word in label[1].split())
        elif first != second:
            more[row] = _ASKER * (one.origin.speaker is (Speaker.USER if first else Speaker.ASSISTANT))
    return more


def _weigh_times(asked: TalkQuery, spoken: Sequence[Spoken]) -> NDArray[np.float64]:
    """Returns how much more each message counts for when it was said."""
    more = np.zeros(len(spoken))
    if asked.period is None:
        return more
    begins, ends = asked.period
    for row, one in enumerate(spoken):
        if one.at is not None:
            away = max(begins - one.at, one.at - ends, 0.0)
            more[row] = _IN_TIME if not away else _NEAR_TIME if away <= _NEAR_DAYS else 0.0
    return more


# The time that a question names: `last week`, `in May`, `on 3 June 2024`, as seconds since 1970, in UTC.

_DAY = 86_400.0
_MONTHS = (
    "january januar enero janvier gennaio januari janeiro jan",
    "february februar febrero fevrier febbraio februari fevereiro feb",
    "march marz marzo mars maart marco",
    "april abril avril aprile apr",
    "may mai mayo maggio mei maio",
    "june juni junio juin giugno junho jun",
    "july juli julio juillet luglio julho jul",
    "august agosto aout augustus aug",
    "september septiembre septembre settembre setembro sept sep",
    "october oktober octubre octobre ottobre outubro oct",
    "november noviembre novembre novembro nov",
    "december dezember diciembre decembre dicembre dezembro december dec",
)
_MONTH = {word: number for number, words in enumerate(_MONTHS, start=1) for word in words.split()}
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}
_COUNTS = {
    "a": 1,
    "an": 1,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "couple": 2,
    "few": 3,
}
# How far back a period begins and ends, in days before the end of today.
_RECENT = {
    "today": (1, 0), "heute": (1, 0), "hoy": (1, 0), "aujourd'hui": (1, 0), "oggi": (1, 0),
    "yesterday": (2, 1), "gestern": (2, 1), "ayer": (2, 1), "hier": (2, 1), "ieri": (2, 1),
    "this week": (7, 0), "diese woche": (7, 0), "esta semana": (7, 0), "cette semaine": (7, 0),
    "last week": (15, 5), "letzte woche": (15, 5), "la semana pasada": (15, 5), "la semaine derniere": (15, 5),
    "this month": (31, 0), "last month": (62, 20), "letzten monat": (62, 20), "el mes pasado": (62, 20),
    "le mois dernier": (62, 20), "recently": (21, 0), "neulich": (21, 0),
}  # fmt: skip
_MENTIONS = re.compile(r"\b(?:" + "|".join(sorted(map(re.escape, _RECENT), key=len, reverse=True)) + r")\b")
_AGO = re.compile(r"\b(\d{1,3}|" + "|".join(_COUNTS) + r")(?: of)? (day|week|month|year)s? ago\b")
_WEEKDAY = re.compile(r"\b(?:on|last) (" + "|".join(_DAYS) + r")\b")
_ISO = re.compile(r"\b(\d{4})-(\d{2})(?:-(\d{2}))?\b")
_NAMED = re.compile(
    r"(?:\b(\d{1,2})(?:st|nd|rd|th|\.)?(?: of| de)? )?(?<!\w)("
    + "|".join(sorted(_MONTH, key=len, reverse=True))
    + r")\b\.?"
    r"(?: (\d{1,2})(?:st|nd|rd|th)?\b(?!\d))?(?:,? (?:de |of )?(\d{4}))?"
)
_BEFORE_MONTH = re.compile(r"\b(?:in|im|en|since|of|early|late|during|until|mid|de|a|nel|em) $")
_YEAR = re.compile(r"\b(?:in|during|en|im jahr) ((?:19|20)\d\d)\b")


def find_period(text: str, now: float | None) -> tuple[float, float] | None:
    """Returns when the period that the text names begins and ends, or None if it names none.

    `now` is when the question is asked. Without it, only dates with a year are understood.
    """
    said = fold_spaced(text)
    if found := _ISO.search(said):
        return _bound(int(found[1]), int(found[2]), int(found[3] or 0))
    for found in _NAMED.finditer(said):
        day, month, other_day, year = found.groups()
        is_date = bool(day or other_day or year) or _BEFORE_MONTH.search(said[: found.start()])
        if not is_date:  # `may` is a verb, too
            continue
        number = _MONTH[month]
        if year or now is not None:
            return _bound(
                int(year) if year else _latest_year(number, now or 0.0), number, int(day or other_day or 0)
            )
    if found := _YEAR.search(said):
        return _bound(int(found[1]), 1, 0)[0], _bound(int(found[1]), 12, 0)[1]
    return None if now is None else _find_recent(said, now)


def fold_spaced(text: str) -> str:
    """Returns the text in lower case and without accents, one space between words."""
    return " ".join(map(fold_word, text.split()))


def _find_recent(said: str, now: float) -> tuple[float, float] | None:
    """Returns a period that is counted back from today."""
    tonight = (now // _DAY + 1) * _DAY
    if found := _AGO.search(said):
        days = (int(found[1]) if found[1].isdigit() else _COUNTS[found[1]]) * _UNITS[found[2]]
        slack = max(1.0, 0.3 * days)
        return tonight - (days + 1 + slack) * _DAY, tonight - (days - slack) * _DAY
    if found := _WEEKDAY.search(said):
        today = int(now // _DAY + 3) % 7  # 1 January 1970 was a Thursday
        back = (today - _DAYS.index(found[1])) % 7 or 7
        return tonight - (back + 1) * _DAY, tonight - back * _DAY
    if found := _MENTIONS.search(said):
        begins, ends = _RECENT[found[0]]
        return tonight - begins * _DAY, tonight - ends * _DAY
    return None


def _latest_year(month: int, now: float) -> int:
    """Returns the year in which that month was last, or is now."""
    today = np.datetime64(int(now), "s").astype("datetime64[M]").astype(int)
    return int(1970 + (today - (month - 1)) // 12)


def _bound(year: int, month: int, day: int) -> tuple[float, float]:
    """Returns when a month, or a day of it, begins and ends; a date that does not exist is the end of its month."""
    start = np.datetime64(f"{year:04d}-{min(max(month, 1), 12):02d}", "M")
    ends = (start + 1).astype("datetime64[s]")
    begins = start.astype("datetime64[s]")
    if day:
        begins = min(begins + np.timedelta64(max(day, 1) - 1, "D").astype("timedelta64[s]"), ends)
        ends = begins + np.timedelta64(1, "D").astype("timedelta64[s]")
    return float(begins.astype(np.int64)), float(ends.astype(np.int64))
