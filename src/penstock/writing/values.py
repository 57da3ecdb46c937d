"""Finds the values in a text, in the way a reader does.

A value is a literal that a reader may have to repeat exactly: a path, an identifier, an id, a number with
more than two digits, a URL, a flag, a name in capitals, a quoted phrase. Plain words are not values.

A text is cut into tokens, runs of characters that a value may contain; a quoted phrase is a token as well. A
conversation repeats its tokens, so the values of a token are worth remembering (see `finder`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "BEFORE_VALUES",
    "BEHIND_VALUES",
    "END",
    "LONGEST_VALUE",
    "NO_SUBJECT",
    "PHRASE",
    "QUOTES",
    "SEPARATORS",
    "SHORTEST_WORD",
    "STEM",
    "parts_of_paths",
    "plain_stem",
    "plain_words",
    "space_out",
    "sub_words",
    "tokens_of",
    "values_in",
    "values_in_phrase",
    "values_in_token",
    "values_of_each",
]

QUOTES = "\"'`"
PHRASE = re.compile(r"\"[^\"\n\\]{4,70}\"|`[^`\n]{3,70}`|'(?<!\w')[^'\n\\]{4,70}'(?!\w)")
_INSIDE_TOKENS = "_@#~$/\\.-%+"
END = "\x00"  # separates texts that are cut into tokens together
_ASCII_SEPARATORS = "".join(
    char for char in map(chr, range(128)) if not (char.isalnum() or char in _INSIDE_TOKENS)
)
_OTHER_SEPARATORS = "“”‘’„«»…—–·•→，。；：！？、（）「」『』【】《》"
SEPARATORS = _ASCII_SEPARATORS + _OTHER_SEPARATORS
_SPACE_OUT = bytes(
    ord(" ") if chr(byte) in _ASCII_SEPARATORS and chr(byte) != END else byte for byte in range(256)
)
_OTHER_SEPARATOR = re.compile(f"[{_OTHER_SEPARATORS}]")
_SUB_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}|\d{3,}|[^\W\d_a-zA-Z]{2,}")

_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]+")
# Digits, an inner _ or ., a change of case inside, @ or #, or all capitals.
_is_marked = re.compile(r"\d|[^_]_+[^_]|[^.]\.+[^.]|[a-z][A-Z]|[A-Z]{2}[a-z]|[@#]|^[A-Z]{3,}$").search
_is_name_like = re.compile(r"[_/\\.@#\d]|[a-z][A-Z]").search
SHORTEST_WORD = 4
_PLAIN_WORD = re.compile(r"[^\W\d_]{4,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
LONGEST_VALUE = 200
BEHIND_VALUES = ".-+/\\%~$"  # marks at the end of a token that do not belong to its value
BEFORE_VALUES = "+%"
STEM = 6  # plain words are compared by their first characters, this many
_WORDS_WITHOUT_SUBJECT = """
about after again also because been before being below could does done each else ever every first from
give good have here into just keep know last like long make many more most much need never next only
other over please same should some still such sure take than that their them then there these they thing
things this those through today under until very want well were what when where which while will with
without would your yourself
"""
NO_SUBJECT = frozenset(_WORDS_WITHOUT_SUBJECT.split())


def tokens_of(text: str) -> list[str]:
    """Returns the runs of characters in the text that a value may contain."""
    return space_out(text.replace(END, " ")).split()


def space_out(text: str) -> str:
    """Returns the text with a space for each character that no value contains, except `END`.

    It works on bytes: `str.translate` takes 200 times as long for a text with a single character beyond ASCII.
    """
    if not text.isascii():
        text = _OTHER_SEPARATOR.sub(" ", text)
    return text.encode("utf-8", "surrogatepass").translate(_SPACE_OUT).decode("utf-8", "surrogatepass")


def values_in(text: str) -> list[str]:
    """Returns every value in the text, each time that it occurs: first those of tokens, then phrases."""
    found = [value for token in tokens_of(text) for value in values_in_token(token)]
    return found + [value for phrase in PHRASE.findall(text) for value in values_in_phrase(phrase)]


def values_of_each(tokens: Iterable[str]) -> tuple[list[str], list[int]]:
    """Returns the values of these tokens and phrases, one after the other, and how many each of them holds.

    The results are those of `values_in_token` and `values_in_phrase`. Conversations have a great many distinct
    tokens, so the common cases are handled here, without a call for each.
    """
    values: list[str] = []
    counts: list[int] = []
    count, add = counts.append, values.append
    for token in tokens:
        if token.isascii() and (token.isidentifier() or token.isalnum()):
            if 2 < len(token) <= LONGEST_VALUE and not (
                token.isalpha() and (token.islower() or token.istitle())
            ):
                add(token)
                count(1)
            else:
                count(0)
        elif token.isalpha() and (token.islower() or token.istitle()):
            count(0)
        else:
            found = values_in_phrase(token) if token[0] in QUOTES else values_in_token(token)
            values += found
            count(len(found))
    return values, counts


def values_in_phrase(quoted: str) -> list[str]:
    """Returns the words between quotes, if they are more than one plain word."""
    phrase = quoted[1:-1].strip()
    is_value = len(phrase) > 3 and (" " in phrase or not phrase.replace("_", "").isalnum())
    return [phrase] if is_value else []


def values_in_token(token: str) -> list[str]:
    """Returns the values in one token: a name, a path and the name at its end, a dotted name and its parts."""
    if _is_plain_name(token):
        return [token]
    if len(token) > LONGEST_VALUE or (token.isascii() and token.isalpha()):
        return []
    if not token.isascii() and _UNSPACED.search(token):
        return [value for piece in _UNSPACED.split(token) if piece for value in values_in_token(piece)]
    return _in_marked(token)


def _is_plain_name(token: str) -> bool:
    """Returns True if the token is a value without parts: the common case, recognised quickly."""
    if not 2 < len(token) <= LONGEST_VALUE or not token.isascii():
        return False
    if token.isalpha():
        return not (token.islower() or token.istitle())
    return token.isidentifier() or token.isalnum()


def _in_marked(token: str) -> list[str]:
    """Returns the values in a token with marks inside or around it."""
    bare = token.rstrip(BEHIND_VALUES).lstrip(BEFORE_VALUES)
    if bare.startswith("--"):
        bare = bare.lstrip("-")
        return ["--" + bare] if len(bare) > 2 else []
    bare = bare.lstrip("-")
    if len(bare) < 3:
        return []
    if "/" in bare or "\\" in bare:
        return _in_path(bare)
    if "." not in bare:
        return [bare] if _is_name(bare) else []
    if bare[0] == "." and not _is_name(bare):  # only an inner dot makes a name
        return []
    return [bare, *[part for part in bare.split(".") if len(part) > 3 and _is_name(part)]]


def parts_of_paths(texts: Sequence[str]) -> list[list[str]]:
    """Returns the parts that a reader finds in the paths of each text: folders, ends as relative paths, stems of names.

    They are values only if the conversation also names them on their own.
    """
    known: dict[str, list[str]] = {}  # by token, since paths are repeated again and again
    found: list[list[str]] = []
    # All texts are cut into tokens together, since starting costs more than a line does.
    joined = END.join([text.replace(END, " ") if "/" in text else "" for text in texts])
    for spaced in space_out(joined).split(END) if texts else ():
        parts: list[str] = []
        for token in spaced.split():
            if "/" in token:
                if token not in known:
                    known[token] = _parts_of_path(token)
                parts += known[token]
        found.append(parts)
    return found


def _parts_of_path(token: str) -> list[str]:
    """Returns the folders, the ends and the stem of one path; nothing for any other token."""
    if "/" not in token[1:] or len(token) > LONGEST_VALUE:
        return []
    parts: list[str] = []
    path = token.rstrip(BEHIND_VALUES).lstrip(".-+%~$")
    at = path.find("/", 1)
    while at > 0:
        parts += (path[:at], path[at + 1 :])
        at = path.find("/", at + 1)
    stem = path.rpartition("/")[2].rpartition(".")[0]
    return [*parts, stem] if len(stem) > 3 else parts


def sub_words(text: str) -> set[str]:
    """Returns the words inside names: `getUserName` and `user_name` both hold `user`."""
    return {word.lower() for word in _SUB_WORD.findall(text)}


def plain_stem(token: str) -> str:
    """Returns the stem of an ordinary word that may name a subject, for comparisons; empty for any other token."""
    if len(token) < SHORTEST_WORD or not token.isalpha():
        return ""
    word = token.lower()
    return "" if word in NO_SUBJECT else word[:STEM]


def plain_words(text: str, most: int) -> int:
    """Returns the number of different ordinary words in the text, apart from names and numbers; at most `most`."""
    words: set[str] = set()
    for word in text.split():
        if len(word) >= SHORTEST_WORD and word.isalpha() and word.islower():  # most lines have some of these
            words.add(word)
        elif not _is_name_like(word):
            words.update(_PLAIN_WORD.findall(word.lower()))
        if len(words) >= most:
            return most
    return len(words)


def _in_path(path: str) -> list[str]:
    """Returns a path and the name at its end, which people often use alone."""
    if not any(map(str.isalnum, path)):
        return []
    last = path.replace("\\", "/").rsplit("/", 1)[-1]
    return [path, last] if len(last) > 3 and last != path and _is_name(last) else [path]


def _is_name(word: str) -> bool:
    """Returns True if a reader would take the word for a name or a number rather than for plain language."""
    return ("-" in word and len(word) > 4) or _is_marked(word) is not None
