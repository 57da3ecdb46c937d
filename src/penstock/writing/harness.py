"""Chooses from harness text: the rules in it that are in force, and the few lines that tell what it was.

A client repeats the rules of a project, its skills and the state of the environment as text in user messages. Of such a
text the instructions outlive the message: `house_rules_in` finds them. If it takes more room than it earns,
`shorten_harness` leaves its telling lines and the handle of the whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.conversation.speakers import Voice
from penstock.writing.stubs import shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.conversation.speakers import VoicedPart

__all__ = ["find_next_steps", "house_rules_in", "shorten_harness", "title_of"]

_LONGEST_RULE = 300  # characters
_RULES_FILE = re.compile(
    r"\b(?:CLAUDE|AGENTS?|GEMINI|QWEN|CONVENTIONS|WARP|CODEX|copilot-instructions)(?:\.local)?\.md\b|\.(?:cursor|cline|windsurf|roo)rules\b"
)
_RULES_TAG = re.compile(
    r"\s*<[\w -]*?(?:rules?|guidelines|conventions|preferences|memor(?:y|ies)|user[-_]instructions|"
    r"repo(?:sitory)?[-_]instructions|custom[-_]instructions|INSTRUCTIONS)\b",
    re.IGNORECASE,
)
_TAG_AROUND = re.compile(r"^<[^\W_]+(?:[_-]+[^\W_]+)+(?:\s[^<>]*)?>|</[^\W_]+(?:[_-]+[^\W_]+)+>$")
# What a client says about its own reminder is no rule of the project.
_ABOUT_ITSELF = re.compile(
    r"this (?:context|reminder|message)|system[- ]reminder|these instructions override|"
    r"instructions are shown below|mention this|respond to this",
    re.IGNORECASE,
)
_BINDING = re.compile(
    r"\b(?:never|always|must(?:n[’']t)?|do(?:n[’']t| not)|required?|mandatory|forbidden|prohibited|not allowed|"
    r"before (?:every|each|any|you|commit\w*|push\w*|merg\w*)|after (?:every|each|any)|make sure|ensure|only|"
    r"nie(?:mals)?|immer|muss|darf|pflicht|jamais|toujours|obligatoire|nunca|siempre|obligatorio|sempre|mai|"
    r"никогда|всегда|обязательно|нельзя)\b|不要|必须|禁止|务必|必ず|絶対|반드시|절대",
    re.IGNORECASE,
)
_OPENING_TAG = re.compile(r"<([A-Za-z][\w -]*)")
_LONGEST_TITLE = 80  # characters
_HEADING = re.compile(r"#{1,6} ")
_TITLE = re.compile(
    r"(?:#{1,6} |\d{1,2}[.)] \**[A-Z]|\*\*[A-Z][^*\n]{0,60}\*\*:?\s*$|</|If you need |Please continue )"
)
_NEXT_TITLE = re.compile(
    r"(?:#{1,6} |\d{1,2}[.)] |\*\*)[*\d. ]*(?:(?:optional |suggested )?(?P<next>next steps?)|"
    r"(?P<pending>(?:pending|remaining|outstanding|open) (?:tasks?|work|items?|steps?)|to-?do)|"
    r"(?P<current>(?:current|active) (?:work|task|state)|in progress))\b[^:\n]{0,40}:?\**:?(?P<rest>.*)$",
    re.IGNORECASE,
)
_TELLING = re.compile(r"\b(?:error|failed|failure|status|exit code|blocked|denied|warning)\b", re.IGNORECASE)


def house_rules_in(part: VoicedPart) -> tuple[str, ...]:
    """Returns the binding lines of a project's or a user's rules, as they stand; none if the part holds no rules."""
    if part.voice is not Voice.REMINDER:
        return ()
    named = _RULES_FILE.search(part.text)
    if named is None and _RULES_TAG.match(part.text) is None:
        return ()
    begin = named.start() if named else 0
    line_begin = part.text.rfind("\n", 0, begin) + 1
    if part.text.startswith("<", line_begin):  # the file is named within a tag
        begin = line_begin
    lines = (
        _TAG_AROUND.sub("", line.strip()).strip().lstrip("-*•>0123456789. ")
        for line in part.text[begin:].split("\n")
    )
    return tuple(
        dict.fromkeys(
            line
            for line in lines
            if len(line) <= _LONGEST_RULE
            and not line.startswith(("#", "<"))
            and not line.endswith((":", ":**"))  # what it announces stands below it
            and _is_rule(line)
        )
    )


def _is_rule(line: str) -> bool:
    return _BINDING.search(line) is not None and _ABOUT_ITSELF.search(line) is None


def title_of(part: VoicedPart) -> str:
    """Returns what names the part to a reader: a skill's heading or folder, a rules file, else its first words."""
    lines = [line.strip() for line in part.text.split("\n") if line.strip()]
    if part.voice is Voice.SKILL:
        heading = next((line for line in lines if _HEADING.match(line)), "")
        folder = lines[0].replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] if lines else ""
        return shorten((heading or folder).lstrip("# "))
    named = next((line for line in lines if _RULES_FILE.search(line)), "")
    first = named or next((line for line in lines if not line.startswith("<")), "")
    tag = _OPENING_TAG.match(lines[0]) if lines else None
    if tag is not None and not named and len(first) > _LONGEST_TITLE:
        return tag[1]
    return shorten(first.lstrip("# "))


def find_next_steps(summary: str) -> str:
    """Returns what a summary by another maker says is to be done next; empty if it has no such section.

    That is its section on the next step, or else on what is pending, or on the current work.
    """
    lines = summary.split("\n")
    titles = [(at, found) for at, line in enumerate(lines) if (found := _NEXT_TITLE.match(line))]
    for wanted in ("next", "pending", "current"):
        for at, title in reversed(titles):
            if title[wanted] is None:
                continue
            end = next((n for n in range(at + 1, len(lines)) if _TITLE.match(lines[n])), len(lines))
            if text := "\n".join([title["rest"], *lines[at + 1 : end]]).strip():
                return text
    return ""


def shorten_harness(part: VoicedPart, limit: int, count: Callable[[str], int], note: str) -> str:
    """Returns the part within about `limit` tokens: how it begins and ends, its telling lines, and the note.

    The closing tag stays, so that a later reader can tell the part from what a person typed.
    """
    text = part.text
    if count(text) <= limit:
        return text
    body = text.strip()
    before = text[: len(text) - len(text.lstrip())]
    after = text[len(text.rstrip()) :]
    lines = body.split("\n")
    tag = re.match(r"<[\w -]+[^<>\n]*>", lines[0])
    closing = f"</{tag[0][1:-1].split()[0]}>" if tag is not None else ""
    if closing and not body.endswith(closing):  # a name of two words is closed by both
        closing = next((line for line in reversed(lines) if line.startswith("</")), "")
    if closing and not body.endswith(closing):
        closing = ""
    inner = body[: len(body) - len(closing)].rstrip().split("\n")
    kept = _choose_lines(inner, limit - count(f"[… {note} …]\n{closing}"), count)
    shown = [line for place, line in enumerate(inner) if place in kept]
    if not shown:
        opening = tag[0] if tag is not None and closing else ""
        words = body[len(opening) : len(body) - len(closing)].split()
        while len(words) > 1 and count(" ".join(words)) > max(6, limit // 2):
            words = words[: len(words) * 3 // 4]
        shown = [f"{opening}{' '.join(words)} …"]
    return before + "\n".join([*shown, f"[… {note} …]", *([closing] if closing else [])]) + after


def _choose_lines(lines: list[str], room: int, count: Callable[[str], int]) -> set[int]:
    """Returns the places of the lines that tell most, within the room: the first, then rules, failures, headings."""

    def rank(place: int) -> tuple[int, int]:
        line = lines[place].strip()
        if place == 0:
            return 0, place
        if _is_rule(line) or _TELLING.search(line):
            return 1, place
        return (2, place) if _HEADING.match(line) else (3, place)

    kept: set[int] = set()
    for place in sorted((place for place, line in enumerate(lines) if line.strip()), key=rank):
        if room < 6:
            break
        line = lines[place]
        if len(line) > 12 * room:
            continue
        cost = count(line) + 1
        if cost <= room:
            kept.add(place)
            room -= cost
    return kept if 0 in kept else set()
