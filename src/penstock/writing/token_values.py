"""Finds the values of a great many tokens at once, by passes over their bytes instead of one by one.

A conversation of 30 MB has half a million distinct tokens. The rules are those of `values`, applied to all tokens side by
side, with a line break after each:

    classes   the class of each byte, and the classes in each token
    bare      a token without the marks around it: only its place changes
    names     whether a reader would take a stretch for a name, from each byte and the two after it

A value is a stretch of its token, so its start and end identify it. Tokens beyond ASCII are few, and are read one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.writing.values import BEFORE_VALUES, BEHIND_VALUES, LONGEST_VALUE, QUOTES, values_of_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "CLASSES",
    "LETTERS",
    "UNDERSCORE",
    "Gathered",
    "LaidTokens",
    "gather",
    "lay_tokens",
    "read_tokens",
]

_LOWER, _UPPER, _DIGIT, UNDERSCORE, _DOT, _HYPHEN, _SLASH, _OTHER = (1 << bit for bit in range(8))
LETTERS = _LOWER | _UPPER
_NOT_LETTER = 255 - LETTERS
_NOT_PLAIN = 255 - (LETTERS | _DIGIT | UNDERSCORE)
_LINE_BREAK = ord("\n")
_SHORTEST = 3  # characters of a value
_SHORTEST_PART = 4  # characters of a value that is part of another
_SHORTEST_HYPHENATED = 5
_FEW = 200  # tokens: fewer than this are read one by one
_NOWHERE = 1 << 62


def _table_of(characters: Iterable[str]) -> NDArray[np.bool_]:
    """Returns for each byte whether it is one of these characters."""
    table = np.zeros(256, np.bool_)
    table[[ord(character) for character in characters]] = True
    return table


def _classes_of_bytes() -> NDArray[np.uint8]:
    """Returns the class of each byte; a line break has none."""
    table = np.full(256, _OTHER, np.uint8)
    table[_LINE_BREAK] = 0
    table[ord("a") : ord("z") + 1] = _LOWER
    table[ord("A") : ord("Z") + 1] = _UPPER
    table[ord("0") : ord("9") + 1] = _DIGIT
    table[[ord("_"), ord("."), ord("-")]] = UNDERSCORE, _DOT, _HYPHEN
    table[[ord("/"), ord("\\")]] = _SLASH
    return table


CLASSES = _classes_of_bytes()
_IS_QUOTE = _table_of(QUOTES)
_IS_BEHIND = _table_of(BEHIND_VALUES + "\n")
_IS_BEFORE = _table_of(BEFORE_VALUES + "\n")
_IS_BLANK = _table_of(character for character in map(chr, range(128)) if character.isspace())
_MAKES_NAME = _table_of("0123456789@#")


class LaidTokens(NamedTuple):
    """Tokens of ASCII side by side: token t is `text[starts[t]:ends[t]]`, and a line break follows it."""

    text: str
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    has: NDArray[np.uint8]  # for each token, the classes of all its bytes


class Gathered(NamedTuple):
    """The places of all bytes of many stretches, one stretch after the other; `firsts` has the start of each."""

    places: NDArray[np.int64]
    firsts: NDArray[np.int64]
    sizes: NDArray[np.int64]


class _Found(NamedTuple):
    """Values: for each, its token, its start, and its end."""

    owners: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def lay_tokens(tokens: Sequence[str]) -> LaidTokens:
    """Lays tokens side by side. There must be at least one, all ASCII, none empty or with a line break."""
    text = "\n".join([*tokens, ""])
    data = np.frombuffer(text.encode("ascii"), np.uint8)
    ends = np.flatnonzero(data == _LINE_BREAK)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return LaidTokens(text, data, starts, ends, np.bitwise_or.reduceat(CLASSES[data], starts))


def gather(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Gathered:
    """Returns the places of all bytes from each start up to its end."""
    sizes = ends - starts
    firsts = np.cumsum(sizes) - sizes
    return Gathered(np.arange(int(sizes.sum())) + np.repeat(starts - firsts, sizes), firsts, sizes)


def read_tokens(tokens: Sequence[str], laid: LaidTokens | None = None) -> tuple[list[str], list[int]]:
    """Returns the same as `values_of_each`: the values of all tokens and quoted phrases, and how many each holds.

    `laid` are the tokens, if they are all ASCII and were laid side by side before.
    """
    if laid is None and len(tokens) < _FEW:
        return values_of_each(tokens)
    if laid is None and not all(map(str.isascii, tokens)):
        return _read_mixed(tokens)
    laid = laid or lay_tokens(tokens)
    found, text = _find(laid), laid.text
    values = [text[start:end] for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True)]
    return values, np.bincount(found.owners, minlength=len(tokens)).tolist()


def _read_mixed(tokens: Sequence[str]) -> tuple[list[str], list[int]]:
    """Returns the same if some tokens are not ASCII, which are read one by one, between the others."""
    values, counts = read_tokens([token for token in tokens if token.isascii()])
    joined: list[str] = []
    sizes: list[int] = []
    done, left = 0, iter(counts)
    for token in tokens:
        if token.isascii():
            size = next(left)
            joined += values[done : done + size]
            done += size
        else:
            found, (size,) = values_of_each([token])
            joined += found
        sizes.append(size)
    return joined, sizes


def _find(laid: LaidTokens) -> _Found:
    """Returns the values of all tokens, in order."""
    _, data, starts, ends, has = laid
    lengths, first = ends - starts, data[starts]
    quoted = _IS_QUOTE[first]
    capital = CLASSES[data] == _UPPER
    capital[starts] = False
    word = ((has & _NOT_LETTER) == 0) & ~np.logical_or.reduceat(capital, starts)  # lower case, or capitalised
    plain = ((has & _NOT_PLAIN) == 0) & (((has & UNDERSCORE) == 0) | (CLASSES[first] != _DIGIT))
    whole = np.flatnonzero(plain & ~word & (lengths >= _SHORTEST) & (lengths <= LONGEST_VALUE))
    marked = np.flatnonzero(~plain & ~quoted & (lengths <= LONGEST_VALUE))
    phrases = np.flatnonzero(quoted & (lengths >= _SHORTEST))
    found = [
        _Found(whole, starts[whole], ends[whole]),
        *_find_marked(data, _Found(marked, starts[marked], ends[marked])),
        _find_phrases(data, _Found(phrases, starts[phrases] + 1, ends[phrases] - 1)),
    ]
    owners, begins, until = map(np.concatenate, zip(*found, strict=True))
    # A stable sort: a value comes before its parts, and those stay in order.
    order = np.argsort(owners, kind="stable")
    return _Found(owners[order], begins[order], until[order])


def _take(found: _Found, some: NDArray[np.bool_]) -> _Found:
    return _Found(found.owners[some], found.starts[some], found.ends[some])


def _find_marked(data: NDArray[np.uint8], tokens: _Found) -> list[_Found]:
    """Returns the values in tokens with marks inside or around them: first whole values, then their parts."""
    if not len(tokens.owners):
        return []
    bare = _strip(data, tokens, _IS_BEFORE, _IS_BEHIND)
    before_hyphens = bare.starts
    starts = before_hyphens.copy()
    at = np.flatnonzero(data[starts] == ord("-"))
    while len(at):  # stops inside each token, since no bare token ends with a hyphen
        starts[at] += 1
        at = at[data[starts[at]] == ord("-")]
    lengths = bare.ends - starts
    flags = (starts - before_hyphens >= 2) & (lengths >= _SHORTEST)
    bare = _Found(bare.owners, starts, bare.ends)
    rest = _take(bare, (starts - before_hyphens < 2) & (lengths >= _SHORTEST))
    flagged = _take(bare, flags)
    values = [_Found(flagged.owners, flagged.starts - 2, flagged.ends)]
    if not len(rest.owners):
        return values
    has, is_name = _judge(data, rest)
    path, dotted = (has & _SLASH) > 0, (has & (_SLASH | _DOT)) == _DOT
    spoken = path & ((has & (LETTERS | _DIGIT)) > 0)
    names = ~path & ~dotted & is_name
    dotted &= is_name | (data[rest.starts] != ord("."))
    values.append(_take(rest, spoken | names | dotted))
    for every in (_find_ends(data, _take(rest, spoken)), _find_parts(data, _take(rest, dotted))):
        parts = _take(every, every.ends - every.starts >= _SHORTEST_PART)
        if len(parts.owners):
            values.append(_take(parts, _judge(data, parts)[1]))
    return values


def _strip(
    data: NDArray[np.uint8], found: _Found, before: NDArray[np.bool_], behind: NDArray[np.bool_]
) -> _Found:
    """Returns the stretches without some bytes at their start and end; drops stretches that are nothing else."""
    places, firsts, _ = gather(found.starts, found.ends)
    held = data[places]
    starts = np.minimum.reduceat(np.where(before[held], _NOWHERE, places), firsts)
    ends = np.maximum.reduceat(np.where(behind[held], -1, places), firsts) + 1
    return _take(_Found(found.owners, starts, ends), starts < ends)


def _judge(data: NDArray[np.uint8], found: _Found) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Returns the classes in each stretch, and whether a reader would take it for a name or a number."""
    places, firsts, sizes = gather(found.starts, found.ends + 1)
    held = data[places]
    held[firsts + sizes - 1] = _LINE_BREAK
    classes = CLASSES[held]
    behind = np.append(classes[1:], np.uint8(0))  # the class of the next byte, 0 at the end of a stretch
    second = np.append(behind[1:], np.uint8(0))
    turns = (behind == _UPPER) & ((classes == _LOWER) | ((classes == _UPPER) & (second == _LOWER)))
    marked = np.logical_or.reduceat(_MAKES_NAME[held] | turns, firsts)
    has = np.bitwise_or.reduceat(classes, firsts)
    # Runs of _ and of . that something follows. The first run counts only if something comes before it, too.
    inner = (behind != classes) & (behind != 0)
    runs = np.add.reduceat(inner & (classes == UNDERSCORE), firsts, dtype=np.int32)
    marked |= runs > (held[firsts] == ord("_"))
    runs = np.add.reduceat(inner & (classes == _DOT), firsts, dtype=np.int32)
    marked |= runs > (held[firsts] == ord("."))
    lengths = sizes - 1
    marked |= (has == _UPPER) & (lengths >= _SHORTEST)
    return has, marked | (((has & _HYPHEN) > 0) & (lengths >= _SHORTEST_HYPHENATED))


def _find_ends(data: NDArray[np.uint8], paths: _Found) -> _Found:
    """Returns the name at the end of each path."""
    if not len(paths.owners):
        return paths
    places, firsts, _ = gather(paths.starts, paths.ends)
    last = np.maximum.reduceat(np.where(CLASSES[data[places]] == _SLASH, places, -1), firsts)
    return _Found(paths.owners, last + 1, paths.ends)


def _find_parts(data: NDArray[np.uint8], dotted: _Found) -> _Found:
    """Returns the parts between the dots of each name, in order."""
    if not len(dotted.owners):
        return dotted
    places, firsts, sizes = gather(dotted.starts, dotted.ends + 1)
    is_border = data[places] == ord(".")
    is_border[firsts + sizes - 1] = True
    borders = np.flatnonzero(is_border)
    begins = np.concatenate([[0], borders[:-1] + 1])
    return _Found(np.repeat(dotted.owners, sizes)[borders], places[begins], places[borders])


def _find_phrases(data: NDArray[np.uint8], inside: _Found) -> _Found:
    """Returns the words between quotes, if they are more than one plain word."""
    if not len(inside.owners):
        return inside
    phrases = _strip(data, inside, _IS_BLANK, _IS_BLANK)
    phrases = _take(phrases, phrases.ends - phrases.starts >= _SHORTEST_PART)
    if not len(phrases.owners):
        return phrases
    places, firsts, _ = gather(phrases.starts, phrases.ends)
    has = np.bitwise_or.reduceat(CLASSES[data[places]], firsts)
    return _take(phrases, ((has & _NOT_PLAIN) > 0) | (has == UNDERSCORE))
