"""Patterns for names and paths: `*`, `?`, `[…]`, and `**` across folders. Pure.

Patterns come from strangers: a cloned repository brings its `.gitignore`. So no match takes more than the length of the
text times the length of the pattern. A star gives nothing back: what follows it up to the next star is taken where it
first fits, which leaves the most for the rest; only what follows the last star is fixed, to the end. The same holds for
`**` and the folders between two of them.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

__all__ = ["Glob", "compile_glob", "compile_path_glob"]

_LONGEST = 1_000  # characters of a pattern; a longer one matches nothing
_FOLDERS = "**"


class Glob(msgspec.Struct, frozen=True):
    """A pattern, ready to be asked: one expression for each name in a path, None for `**`."""

    names: tuple[re.Pattern[str] | None, ...]
    in_one_piece: bool = False
    """The text is no path: a `/` in it is like any other character."""

    def matches(self, text: str) -> bool:
        """Returns True if the pattern matches the whole text."""
        if self.in_one_piece:
            (whole,) = self.names
            return whole is not None and whole.fullmatch(text) is not None
        return self._match_names(text.split("/"))

    def _match_names(self, path: list[str]) -> bool:
        names, at, place = self.names, 0, 0
        resume: tuple[int, int] | None = (
            None  # behind the last `**`: where in the pattern, and how far in the path
        )
        while place < len(path):
            expression = names[at] if at < len(names) else None
            if at < len(names) and expression is None:
                if at + 1 == len(names):
                    return True  # all that is inside
                resume = at + 1, place
                at += 1
            elif expression is not None and expression.fullmatch(path[place]):
                at, place = at + 1, place + 1
            elif resume is not None:
                at, place = resume[0], resume[1] + 1
                resume = at, place
            else:
                return False
        return at == len(names)


@lru_cache(maxsize=1_000)
def compile_glob(pattern: str, *, star_crosses: bool = False) -> Glob:
    """Returns the pattern for a whole path; with `star_crosses`, for a text in one piece.

    `*` and `?` end at a `/` unless `star_crosses`. `**/` stands for any number of folders, including none, and `/**` for
    everything inside one.
    """
    if len(pattern) > _LONGEST:
        return Glob((re.compile("(?!)"),))
    if star_crosses:
        return Glob((_compile_name(pattern),), in_one_piece=True)
    return Glob(tuple(None if name == _FOLDERS else _compile_name(name) for name in pattern.split("/")))


def compile_path_glob(pattern: str) -> Glob:
    """Returns the pattern for a path from a folder on: one without `/` means the last name, at any depth."""
    return compile_glob(pattern.removeprefix("/") if "/" in pattern else f"**/{pattern}")


def _compile_name(pattern: str) -> re.Pattern[str]:
    first, *others = _read_pieces(pattern)
    if not others:
        return re.compile("".join(first), re.DOTALL)
    *middle, last = others
    inner = "".join(f"(?>.*?{''.join(piece)})" for piece in middle if piece)
    # Every element of a piece stands for one character, so that the last piece can be looked for from the end.
    return re.compile(f"{''.join(first)}{inner}(?>.{{{len(last)},}})(?<={''.join(last)})", re.DOTALL)


def _read_pieces(pattern: str) -> list[list[str]]:
    """Returns what stands between the stars, each as the expressions of single characters."""
    pieces: list[list[str]] = [[]]
    at = 0
    while at < len(pattern):
        if pattern[at] == "*":
            pieces.append([])
            at += 1
        elif pattern[at] == "?":
            pieces[-1].append(".")
            at += 1
        elif (inside := _read_class(pattern, at)) is not None:
            pieces[-1].append(inside[0])
            at = inside[1]
        else:
            pieces[-1].append(re.escape(pattern[at]))
            at += 1
    return pieces


def _read_class(pattern: str, at: int) -> tuple[str, int] | None:
    """Returns the class of characters at this place, and where it ends; None if there is none."""
    if pattern[at] != "[":
        return None
    end = pattern.find("]", at + (3 if pattern[at + 1 : at + 2] in {"!", "^"} else 2))
    if end < 0:
        return None
    inside = pattern[at + 1 : end]
    negated = inside[:1] in {"!", "^"}
    body = inside[1:] if negated else inside
    body = re.sub(r"([\\\[\]&~|^])", r"\\\1", body)
    candidate = f"(?!/)[{'^' if negated else ''}{body}]"
    try:
        re.compile(candidate)
    except re.error:  # a range from high to low matches nothing, as a shell has it
        return "(?!).", end + 1
    return candidate, end + 1
