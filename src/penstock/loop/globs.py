"""Patterns for names and paths: `*`, `?`, `[…]`, and `**` across folders. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["glob_regex", "path_matcher"]


@lru_cache(maxsize=1_000)
def glob_regex(pattern: str, *, star_crosses: bool = False) -> re.Pattern[str]:
    """The pattern as a regular expression for the whole text.

    `*` and `?` end at a `/` unless `star_crosses`. `**/` stands for any number of folders, also none.
    """
    star, one = (".*", ".") if star_crosses else ("[^/]*", "[^/]")
    out: list[str] = []
    at = 0
    while at < len(pattern):
        rest = pattern[at:]
        if rest.startswith("**/") and (at == 0 or pattern[at - 1] == "/"):
            out.append("(?:.*/)?")
            at += 3
        elif rest.startswith("**"):
            out.append(".*")
            at += 2
        elif rest[0] in "*?":
            out.append(star if rest[0] == "*" else one)
            at += 1
        elif (inside := _bracket(rest)) is not None:
            out.append(inside[0])
            at += inside[1]
        else:
            out.append(re.escape(rest[0]))
            at += 1
    return re.compile("".join(out), re.DOTALL)


@lru_cache(maxsize=100)
def path_matcher(pattern: str) -> re.Pattern[str]:
    """For a path from a folder on: a pattern without `/` means the last name, at any depth."""
    return glob_regex(pattern.removeprefix("/") if "/" in pattern else f"**/{pattern}")


def _bracket(text: str) -> tuple[str, int] | None:
    """A class of characters at the start of the text, and its length; None where there is none."""
    if text[0] != "[":
        return None
    end = text.find("]", 3 if text[1:2] in {"!", "^"} else 2)
    if end < 0:
        return None
    inside = text[1:end]
    negated = inside[:1] in {"!", "^"}
    body = inside[1:] if negated else inside
    body = re.sub(r"([\\\[\]&~|^])", r"\\\1", body)
    candidate = f"(?!/)[{'^' if negated else ''}{body}]"
    try:
        re.compile(candidate)
    except re.error:  # a range from high to low matches nothing, as a shell has it
        return "(?!)", end + 1
    return candidate, end + 1
