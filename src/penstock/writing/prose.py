"""A model's handoff, read into the entries of ours.

A model writes headings and lists in its own way. What stands under a heading that we know becomes entries of
that section; what stands under another becomes part of the active state. Nothing here trusts the text:
whether it says only what the conversation says is checked by `verify`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.writing.handoff import HandoffEntry, HandoffSection

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Prose", "read_prose"]

_THOUGHT_TAG = re.compile(r"<(/?)(think|thinking|reasoning)>", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*+```\w*+[ \t]*+$", re.MULTILINE)
_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s+(.+)|(?:\*\*([^*]+)\*\*|__([^_]+)__)\s*+:?\s*+$)")
_BULLET = re.compile(r"\s*(?:[-*•+–]|\d{1,3}[.)])\s+(?=\S)")
_TURN = re.compile(r"\bm(\d{1,9})\b")
_LEADING_TURN = re.compile(r"[(\[]?\bm\d{1,9}\b[)\]]?[:,]?\s+")
_CLOSING_TURN = re.compile(r"(?<!\s)\s*[(\[]m\d{1,9}[)\]](?=[.;]?$)")
_NOTHING = re.compile(
    r"\W*(?:none|n/?a|nothing|not applicable|no(?:ne)? (?:known|yet|so far)|empty|keine?|aucune?|ninguno|нет|无|なし)?\W*$",
    re.IGNORECASE,
)
_LONGEST_ITEM = 1_200  # characters

_NAMES: dict[str, HandoffSection] = {
    "active task": HandoffSection.ACTIVE_TASK,
    "current task": HandoffSection.ACTIVE_TASK,
    "goal": HandoffSection.GOAL,
    "goals": HandoffSection.GOAL,
    "objective": HandoffSection.GOAL,
    "constraints preferences": HandoffSection.CONSTRAINTS,
    "constraints and preferences": HandoffSection.CONSTRAINTS,
    "constraints": HandoffSection.CONSTRAINTS,
    "preferences": HandoffSection.CONSTRAINTS,
    "completed actions": HandoffSection.COMPLETED,
    "completed": HandoffSection.COMPLETED,
    "completed work": HandoffSection.COMPLETED,
    "active state": HandoffSection.STATE,
    "current state": HandoffSection.STATE,
    "state": HandoffSection.STATE,
    "in progress": HandoffSection.IN_PROGRESS,
    "blocked": HandoffSection.BLOCKED,
    "blockers": HandoffSection.BLOCKED,
    "key decisions": HandoffSection.DECISIONS,
    "decisions": HandoffSection.DECISIONS,
    "resolved questions": HandoffSection.RESOLVED,
    "pending user asks": HandoffSection.PENDING,
    "pending asks": HandoffSection.PENDING,
    "relevant files": HandoffSection.FILES,
    "files": HandoffSection.FILES,
    "remaining work": HandoffSection.REMAINING,
    "next steps": HandoffSection.REMAINING,
    "critical context": HandoffSection.STATE,
}


class Prose(msgspec.Struct, frozen=True):
    """A model's words: entries by section, and the turns it named as unfulfilled requests.

    An entry's number is the turn that the model gave for it, 0 if it gave none.
    """

    entries: tuple[HandoffEntry, ...]
    open_turns: tuple[int, ...] = ()


def read_prose(text: str) -> Prose | None:
    """Returns the entries of a model's text, or None if it has none of the headings and so is no handoff."""
    sections = list(_sections(_FENCE.sub("", _drop_thoughts(text))))
    if not any(known for _, known, _ in sections):
        return None
    entries: list[HandoffEntry] = []
    open_turns: list[int] = []
    for section, _, lines in sections:
        if section is HandoffSection.ACTIVE_TASK:
            open_turns += [int(turn) for turn in _TURN.findall("\n".join(lines))]
            continue
        entries += [_entry(section, item) for item in _items(lines)]
    return Prose(tuple(entries), tuple(dict.fromkeys(open_turns)))


def _drop_thoughts(text: str) -> str:
    """Returns the text without what stands between tags of thinking; a tag that is never closed stays, as does what follows it."""
    tags = [(one, one[2].lower(), bool(one[1])) for one in _THOUGHT_TAG.finditer(text)]
    last_closing = {name: tag.start() for tag, name, closes in tags if closes}
    kept: list[str] = []
    end, open_name = 0, ""
    for tag, name, closes in tags:
        if closes and name == open_name:
            end, open_name = tag.end(), ""
        elif not closes and not open_name and tag.start() < last_closing.get(name, 0):
            kept.append(text[end : tag.start()])
            open_name = name
    return "".join((*kept, text[end:]))


def _sections(text: str) -> Iterator[tuple[HandoffSection, bool, list[str]]]:
    """Yields each section with whether its heading is one of ours, and its lines."""
    section, known, lines = HandoffSection.STATE, False, list[str]()
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        yield section, known, lines
        found = _NAMES.get(_plain(heading[1] or heading[2] or heading[3]))
        section, known, lines = found or HandoffSection.STATE, found is not None, []
    yield section, known, lines


def _plain(heading: str) -> str:
    words = re.sub(r"[^a-z ]+", " ", heading.lower())
    return " ".join(words.split())


def _items(lines: list[str]) -> Iterator[str]:
    """Yields the items of a list; a paragraph is one item, and what follows an item without a bullet belongs to it."""
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


def _entry(section: HandoffSection, item: str) -> HandoffEntry:
    turn = _TURN.search(item)
    text = _LEADING_TURN.sub("", item, count=1) if _LEADING_TURN.match(item) else item
    if turn and len(_TURN.findall(text)) == 1:
        text = _CLOSING_TURN.sub("", text)  # it stands in front of the entry
    if len(text) > _LONGEST_ITEM:
        text = text[:_LONGEST_ITEM].rsplit(" ", 1)[0] + " …"
    return HandoffEntry(section, int(turn[1]) if turn else 0, text)
