"""The values in a text, found the way a reader finds them.

A value is a literal that somebody may have to repeat exactly: a path, an identifier, an id, a number with
more than two digits, a URL, a flag, a name in capitals, a quoted phrase. Plain words are not values.

A text is first cut into tokens: quoted phrases, and runs of characters that can stand in a value. A
conversation repeats its tokens, so that what a token holds is worth remembering (see `vocabulary`).
"""

from __future__ import annotations

import re

__all__ = ["SUB_WORD", "TOKEN", "plain_words", "sub_words", "values_in", "values_in_token"]

_RUN = re.compile(r"[\w@#~$/\\.\-][\w@#~$%+/\\.:\-]*")
TOKEN = re.compile(
    r"\"[^\"\n\\]{4,70}\"|`[^`\n]{3,70}`|(?<!\w)'[^'\n\\]{4,70}'(?!\w)|" + _RUN.pattern
)  # phrases first: what stands inside them is found when they are read
SUB_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}|\d{3,}|[^\W\d_a-zA-Z]{2,}")

_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]+")
# Digits, an inner _ or ., a change of case inside, @ or #, or all capitals.
_is_marked = re.compile(r"\d|[^_]_+[^_]|[^.]\.+[^.]|[a-z][A-Z]|[A-Z]{2}[a-z]|[@#]|^[A-Z]{3,}$").search
_NAME_LIKE = re.compile(r"\S*[_/\\.@#\d]\S*|\S*[a-z][A-Z]\S*")
_PLAIN_WORD = re.compile(r"[^\W\d_]{4,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
_LONGEST = 200


def values_in(text: str) -> list[str]:
    """Every value in the text, in order, repeated as often as it stands there."""
    return [value for token in TOKEN.findall(text) for value in values_in_token(token)]


def values_in_token(token: str) -> list[str]:
    """The values in one token."""
    if token.isidentifier() or token.isalnum():  # the common case, without anything to take apart
        return (
            [token]
            if 2 < len(token) <= _LONGEST and token.isascii() and _is_marked(token)
            else _unspaced(token)
        )
    if token[0] not in "\"'`":
        return _in_run(token) if len(token) <= _LONGEST else []
    phrase = token[1:-1].strip()
    inside = [value for run in _RUN.findall(phrase) for value in _in_run(run)]
    is_phrase = len(phrase) > 3 and (" " in phrase or not phrase.replace("_", "").isalnum())
    return [*inside, phrase] if is_phrase and phrase not in inside else inside


def sub_words(text: str) -> set[str]:
    """The words inside names: `getUserName` and `user_name` both hold `user`."""
    return {word.lower() for word in SUB_WORD.findall(text)}


def plain_words(text: str) -> int:
    """How many different ordinary words stand in the text, beside its names and numbers."""
    return len(set(_PLAIN_WORD.findall(_NAME_LIKE.sub(" ", text).lower())))


def _unspaced(token: str) -> list[str]:
    return [] if token.isascii() else _in_run(token)


def _in_run(run: str) -> list[str]:
    if not run.isascii() and _UNSPACED.search(run):
        return [value for piece in _UNSPACED.split(run) if piece for value in _in_run(piece)]
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
            found += _in_path(bare)
        elif _is_name(bare):
            found.append(bare)
            if "." in bare:
                found += [part for part in bare.split(".") if len(part) > 3 and _is_name(part)]
    return found


def _in_path(path: str) -> list[str]:
    """A path and the name at its end, which people use alone."""
    if not any(map(str.isalnum, path)):
        return []
    last = path.replace("\\", "/").rsplit("/", 1)[-1]
    return [path, last] if len(last) > 3 and last != path and _is_name(last) else [path]


def _is_name(word: str) -> bool:
    """Whether a reader would take the word for a name or a number rather than for plain language."""
    return _is_marked(word) is not None or ("-" in word and len(word) > 4)
