"""Why a text does not stand in a file, and what stands there that is most like it. Pure."""

from __future__ import annotations

import difflib

__all__ = ["why_not_found"]

_SHOWN_LINES = 12
_LONGEST_LINE = 200  # characters of a line that are compared and shown
_MOST_LINES = 20_000  # that are compared
_ALIKE = 0.6


def why_not_found(text: str, old: str) -> str:
    """What to tell the model, with the nearest lines as they stand there."""
    lines, wanted = text.split("\n"), old.strip("\n").split("\n")
    if (at := _same_but_white_space(lines, wanted)) is not None:
        return (
            "old is not in the file, but lines that differ from it only in white space are\n"
            f"Copy them as they stand:\n{_excerpt(lines, at, len(wanted))}"
        )
    at = _most_alike(lines, wanted)
    if at is None:
        return "old is not in the file, nor anything like it; read the file again before changing it"
    return f"old is not in the file\nThe nearest lines are:\n{_excerpt(lines, at, len(wanted))}"


def _same_but_white_space(lines: list[str], wanted: list[str]) -> int | None:
    """Where the same words stand in the same lines."""
    sought = ["".join(line.split()) for line in wanted]
    if not any(sought):
        return None
    bare = ["".join(line.split()) for line in lines]
    first, length = sought[0], len(sought)
    if length == 1:
        return next((at for at, line in enumerate(bare) if first and first in line), None)
    candidates = range(len(bare) - length + 1)
    return next((at for at in candidates if bare[at] == first and bare[at : at + length] == sought), None)


def _most_alike(lines: list[str], wanted: list[str]) -> int | None:
    """Where the line stands that is most like the longest of the wanted ones, moved to their beginning."""
    key = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    sought = wanted[key].strip()[:_LONGEST_LINE]
    if not sought:
        return None
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(sought)
    best, place = _ALIKE, None
    for at, line in enumerate(lines[:_MOST_LINES]):
        matcher.set_seq1(line.strip()[:_LONGEST_LINE])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, place = matcher.ratio(), max(0, at - key)
    return place


def _excerpt(lines: list[str], at: int, count: int) -> str:
    end = min(len(lines), at + min(count, _SHOWN_LINES))
    width = len(str(end))
    shown = [f"{number + 1:>{width}}\t{_short(lines[number])}" for number in range(at, end)]
    return "\n".join(shown + (["…"] if count > _SHOWN_LINES else []))


def _short(line: str) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
