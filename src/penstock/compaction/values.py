"""The values in a text, found the way a reader finds them.

A value is a literal that somebody may have to repeat exactly: a path, an identifier, an id, a number with
more than two digits, a URL, a flag, a name in capitals, a quoted phrase. Plain words are not values.

The text is cut into runs of characters that can stand in a value, and each distinct run is read once: a
conversation repeats its runs, so that most of a text costs one look-up.
"""

from __future__ import annotations

import re
from enum import IntEnum

__all__ = ["Kind", "kind_of", "plain_words", "sub_words", "values_in"]

_RUN = re.compile(r"[\w@#~$/\\.\-][\w@#~$%+/\\.:\-]*")
_QUOTED = re.compile(r'"([^"\n\\]{4,70})"|`([^`\n]{3,70})`|\'([^\'\n\\]{4,70})\'')
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]+")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_NUMBER = re.compile(r"\d[\d,.]*%?$")
_HEX = re.compile(r"(?=[0-9a-f-]*\d)[0-9a-f]{7,64}$")
_FILE = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,4}$")
_SUB_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}|\d{3,}|[^\W\d_a-zA-Z]{2,}")
_NAME_LIKE = re.compile(r"\S*[_/\\.@#\d]\S*|\S*[a-z][A-Z]\S*")
_PLAIN_WORD = re.compile(r"[^\W\d_]{4,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")

_LONGEST = 200
_REMEMBERED_RUNS = 400_000


class Kind(IntEnum):
    """What a value looks like. The order is that of `importance.KIND_WEIGHTS`."""

    NAME = 0
    PATH = 1
    FILE = 2
    URL = 3
    FLAG = 4
    NUMBER = 5
    ID = 6
    HEX = 7
    SNAKE = 8
    CAPITALS = 9
    PHRASE = 10


_runs: dict[str, tuple[str, ...]] = {}


def values_in(text: str) -> list[str]:
    """Every value in the text, in order, repeated as often as it stands there."""
    found: list[str] = []
    known = _runs
    for run in _RUN.findall(text):
        values = known.get(run)
        if values is None:
            values = _remember(run)
        if values:
            found += values
    if '"' in text or "`" in text or "'" in text:
        for groups in _QUOTED.findall(text):
            phrase = (groups[0] or groups[1] or groups[2]).strip()
            if len(phrase) > 3 and (" " in phrase or not phrase.replace("_", "").isalnum()):
                found.append(phrase)
    return found


def kind_of(value: str) -> Kind:
    """What the value looks like."""
    if "://" in value:
        return Kind.URL
    if " " in value:
        return Kind.PHRASE
    if value.startswith("--"):
        return Kind.FLAG
    if "/" in value or "\\" in value:
        return Kind.PATH
    if value[0].isdigit() and _NUMBER.match(value):
        return Kind.NUMBER
    if _HEX.match(value):
        return Kind.HEX
    if "." in value.strip("."):
        return Kind.FILE if _FILE.search(value) and value.count(".") == 1 else Kind.NAME
    if any(map(str.isdigit, value)):
        return Kind.ID
    if "_" in value:
        return Kind.SNAKE
    if value.isupper():
        return Kind.CAPITALS
    return Kind.NAME


def sub_words(text: str) -> set[str]:
    """The words inside names: `getUserName` and `user_name` both hold `user`."""
    return {word.lower() for word in _SUB_WORD.findall(text)}


def plain_words(text: str) -> int:
    """How many different ordinary words stand in the text, beside its names and numbers."""
    return len(set(_PLAIN_WORD.findall(_NAME_LIKE.sub(" ", text).lower())))


def _remember(run: str) -> tuple[str, ...]:
    values = tuple(_read(run)) if len(run) <= _LONGEST else ()
    if len(_runs) >= _REMEMBERED_RUNS:
        _runs.clear()
    _runs[run] = values
    return values


def _read(run: str) -> list[str]:
    """The values in one run."""
    if not run.isascii() and _UNSPACED.search(run):
        return [value for piece in _UNSPACED.split(run) if piece for value in _read(piece)]
    if "://" in run:
        return [run.rstrip(".,:;-/")]
    found: list[str] = []
    for raw in run.split(":"):
        segment = raw.rstrip(".-+/\\%~$").lstrip("+%")
        bare = segment.lstrip("-")
        if len(bare) < 3:
            continue
        if segment.startswith("--"):
            found.append("--" + bare)
        elif "/" in bare or "\\" in bare:
            found += _path(bare)
        elif _is_name(bare):
            found.append(bare)
            if "." in bare:
                found += [part for part in bare.split(".") if len(part) > 3 and _is_name(part)]
    return found


def _path(path: str) -> list[str]:
    """A path and the name at its end, which people use alone."""
    if not any(map(str.isalnum, path)):
        return []
    last = path.replace("\\", "/").rsplit("/", 1)[-1]
    return [path, last] if len(last) > 3 and last != path and _is_name(last) else [path]


def _is_name(word: str) -> bool:
    """Whether a reader would take the word for a name or a number rather than for plain language."""
    if "_" in word.strip("_") or "." in word.strip("."):
        return True
    if any(map(str.isdigit, word)) or _CAMEL.search(word):
        return True
    if "-" in word:
        return len(word) > 4
    if "@" in word or "#" in word:
        return True
    return word.isupper() and word.isascii()
