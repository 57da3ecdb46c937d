"""The time that a question names: `last week`, `in May`, `on 3 June 2024`, as seconds since 1970, in UTC."""

from __future__ import annotations

import re

import numpy as np

from penstock.recall.terms import fold

__all__ = ["find_period"]

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
    """Returns when the period that the text names begins and ends, or None where it names none.

    `now` is when it is asked. Without it only dates with a year are understood.
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
    return " ".join(map(fold, text.split()))


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
