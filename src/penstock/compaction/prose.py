"""A model's handoff, read into the entries of ours.

A model writes headings and lists in its own way. What stands under a heading that we know becomes entries of that
section; what stands under another becomes part of the active state. Nothing here trusts the text: whether it says
only what the conversation says is checked by `verify`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.compaction.handoff import Entry, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Prose", "read_prose"]

_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"^\s*```\w*\s*$", re.MULTILINE)
_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s+(.+?)\s*#*|\*\*([^*]+)\*\*\s*:?|__([^_]+)__\s*:?)\s*$")
_BULLET = re.compile(r"\s*(?:[-*•+–]|\d{1,3}[.)])\s+(?=\S)")
_TURN = re.compile(r"\bm(\d{1,9})\b")
_LEADING_TURN = re.compile(r"[(\[]?\bm\d{1,9}\b[)\]]?[:,]?\s+")
_CLOSING_TURN = re.compile(r"\s*[(\[]m\d{1,9}[)\]](?=[.;]?$)")
_NOTHING = re.compile(
    r"\W*(?:none|n/?a|nothing|not applicable|no(?:ne)? (?:known|yet|so far)|empty|keine?|aucune?|ninguno|нет|无|なし)?\W*$",
    re.IGNORECASE,
)
_LONGEST_ITEM = 1_200  # characters

_NAMES: dict[str, Section] = {
    "active task": Section.ACTIVE_TASK,
    "current task": Section.ACTIVE_TASK,
    "goal": Section.GOAL,
    "goals": Section.GOAL,
    "objective": Section.GOAL,
    "constraints preferences": Section.CONSTRAINTS,
    "constraints and preferences": Section.CONSTRAINTS,
    "constraints": Section.CONSTRAINTS,
    "preferences": Section.CONSTRAINTS,
    "completed actions": Section.COMPLETED,
    "completed": Section.COMPLETED,
    "completed work": Section.COMPLETED,
    "active state": Section.STATE,
    "current state": Section.STATE,
    "state": Section.STATE,
    "in progress": Section.IN_PROGRESS,
    "blocked": Section.BLOCKED,
    "blockers": Section.BLOCKED,
    "key decisions": Section.DECISIONS,
    "decisions": Section.DECISIONS,
    "resolved questions": Section.RESOLVED,
    "pending user asks": Section.PENDING,
    "pending asks": Section.PENDING,
    "relevant files": Section.FILES,
    "files": Section.FILES,
    "remaining work": Section.REMAINING,
    "next steps": Section.REMAINING,
    "critical context": Section.STATE,
}


class Prose(msgspec.Struct, frozen=True):
    """What a model wrote: entries by section, and the turns it named as unfulfilled requests.

    An entry's number is the turn that the model gave for it, 0 where it gave none.
    """

    entries: tuple[Entry, ...]
    open_turns: tuple[int, ...] = ()


def read_prose(text: str) -> Prose | None:
    """The entries of a model's text, or None where it has none of the headings and so is no handoff."""
    sections = list(_sections(_FENCE.sub("", _THOUGHTS.sub("", text))))
    if not any(known for _, known, _ in sections):
        return None
    entries: list[Entry] = []
    open_turns: list[int] = []
    for section, _, lines in sections:
        if section is Section.ACTIVE_TASK:
            open_turns += [int(turn) for turn in _TURN.findall("\n".join(lines))]
            continue
        entries += [_entry(section, item) for item in _items(lines)]
    return Prose(tuple(entries), tuple(dict.fromkeys(open_turns)))


def _sections(text: str) -> Iterator[tuple[Section, bool, list[str]]]:
    """Each section with whether its heading is one of ours, and its lines."""
    section, known, lines = Section.STATE, False, list[str]()
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        yield section, known, lines
        found = _NAMES.get(_plain(heading[1] or heading[2] or heading[3]))
        section, known, lines = found or Section.STATE, found is not None, []
    yield section, known, lines


def _plain(heading: str) -> str:
    words = re.sub(r"[^a-z ]+", " ", heading.lower())
    return " ".join(words.split())


def _items(lines: list[str]) -> Iterator[str]:
    """The items of a list; a paragraph is one item, and what follows an item without a bullet belongs to it."""
    held: list[str] = []
    for line in [*lines, ""]:
        bullet = _BULLET.match(line)
        if bullet is None and line.strip():
            held.append(line.strip())
            continue
        item = " ".join(held)
        if not _NOTHING.fullmatch(item):
            yield item
        held = [line[bullet.end() :].strip()] if bullet is not None else []


def _entry(section: Section, item: str) -> Entry:
    turn = _TURN.search(item)
    text = _LEADING_TURN.sub("", item, count=1) if _LEADING_TURN.match(item) else item
    if turn and len(_TURN.findall(text)) == 1:
        text = _CLOSING_TURN.sub("", text)  # it stands in front of the entry
    if len(text) > _LONGEST_ITEM:
        text = text[:_LONGEST_ITEM].rsplit(" ", 1)[0] + " …"
    return Entry(section, int(turn[1]) if turn else 0, text)
