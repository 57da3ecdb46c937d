"""Who speaks in a user message: the person, or the harness that the person works with.

Clients put text of their own into user messages: reminders, the output of local commands and hooks, skills,
attachments, summaries of a session that was continued. `part_voices` tells it apart from what a person typed, by
structure first: a line that begins with a tag whose name no person would paste, up to its closing tag; a bracketed
notice; a few openings by which clients begin such a text. Code that a person pasted (generics, HTML, JSX, XML,
anything in a fence) stays the person's, and so does a tag that is never closed.

A part is told by its text alone, so that a message is read once. `last_request` also looks at what stands before it: the
text of a slash command comes as a message of its own.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from penstock.conversation.message import Image, Message, Role, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Voice", "VoicedPart", "is_request", "last_request", "part_voices", "people_in", "person_words"]


class Voice(StrEnum):
    """The voices in a user message."""

    PERSON = "person"
    REMINDER = "reminder"  # rules, instructions, the state of the environment
    COMMAND = "command"  # a local command and what it printed
    SKILL = "skill"  # the text of a skill or of a slash command
    ATTACHMENT = "attachment"  # files, selections, what stands open in an editor
    OUTPUT = "output"  # the result of a tool, where a client has no role for it
    NOTICE = "notice"  # hooks, background tasks, a client's own prompts to go on
    INTERRUPTION = "interruption"
    SUMMARY = "summary"  # of an earlier part of the session, by another maker


class VoicedPart(NamedTuple):
    """A stretch of a text and the voice that speaks in it."""

    voice: Voice
    text: str


def part_voices(text: str) -> tuple[VoicedPart, ...]:
    """Returns the text in parts, each with its voice; joined they are the text.

    Blanks between two parts of a harness are the harness's. An empty text has no part.
    """
    if not _may_hold_harness(text):
        return (VoicedPart(Voice.PERSON, text),) if text else ()
    spans: list[_Span] = []
    _scan(text, 0, len(text), spans)
    return _join(text, spans)


def person_words(message: Message) -> str:
    """Returns what a person typed in the message, without calls, results and harness text; empty where nobody did."""
    if message.role is not Role.USER:
        return ""
    words: list[str] = []
    after_command = False
    for part in message.parts:
        if isinstance(part, Text) and part.text:
            voices = part_voices(part.text)
            if not (after_command and _is_command_text(part.text)):
                words += [one.text.strip() for one in voices if one.voice is Voice.PERSON]
            after_command = _ends_with_command(voices)
    return "\n".join(word for word in words if word)


def is_request(message: Message) -> bool:
    """Returns whether a person speaks in the message: not only tools, a harness or a handoff."""
    if message.role is not Role.USER:
        return False
    return any(isinstance(part, Image) for part in message.parts) or bool(person_words(message))


def last_request(messages: Sequence[Message]) -> int | None:
    """Returns the position of the last message in which a person speaks, None where there is none.

    Where only a harness speaks in the whole list, it is the last message with text of a user.
    """
    found = next((place for place in _requests_backwards(messages)), None)
    if found is not None:
        return found
    places = range(len(messages) - 1, -1, -1)
    return next((place for place in places if _holds_user_text(messages[place])), None)


def people_in(messages: Sequence[Message]) -> list[int]:
    """Returns the positions of the messages in which a person speaks, in order."""
    return list(_requests_backwards(messages))[::-1]


def _requests_backwards(messages: Sequence[Message]):  # type: ignore[no-untyped-def]
    for place in range(len(messages) - 1, -1, -1):
        if is_request(messages[place]) and not _is_text_of_command(messages, place):
            yield place


def _holds_user_text(message: Message) -> bool:
    return message.role is Role.USER and any(
        isinstance(part, Text) and part.text.strip() for part in message.parts
    )


def _is_text_of_command(messages: Sequence[Message], place: int) -> bool:
    """Returns whether the message is what a slash command, typed just before, stands for."""
    before = messages[place - 1] if place else None
    if before is None or before.role is not Role.USER:
        return False
    texts = [part.text for part in messages[place].parts if isinstance(part, Text) and part.text.strip()]
    typed = [part.text for part in before.parts if isinstance(part, Text) and part.text.strip()]
    return (
        len(texts) > 0
        and len(typed) > 0
        and _is_command_text(texts[0])
        and _ends_with_command(part_voices(typed[-1]))
    )


_SHORTEST_COMMAND_TEXT = 800
_HEADING = re.compile(r"^#{1,4} \S", re.MULTILINE)


def _is_command_text(text: str) -> bool:
    """Returns whether a text behind a slash command is long and laid out as the commands of clients are."""
    return len(text) >= _SHORTEST_COMMAND_TEXT and len(_HEADING.findall(text)) > 1


def _ends_with_command(voices: Sequence[VoicedPart]) -> bool:
    """Returns whether a text is a slash command that a client wrote down, and no more."""
    return any("<command-name>" in one.text for one in voices if one.voice is Voice.COMMAND) and (
        voices[-1].voice is not Voice.PERSON
    )


# How harness text begins. A tag counts where it begins a line, or stands right behind other harness text, and is
# closed; an opening where the text begins, or right behind other harness text.


class _Span(NamedTuple):
    voice: Voice
    start: int
    end: int


_TAG = re.compile(r"[ \t]{0,3}<([A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*(?: instructions)?)(\s[^<>\n]{0,300})?>")
_LINE_TAG = re.compile(_TAG.pattern, re.MULTILINE)
_MARKED_LINE = re.compile(
    r"^[ \t]{0,3}(?:<(?=[A-Za-z])|(?=\[Request interrupted|--- (?:Content from referenced files|END OF CONTEXT)))",
    re.MULTILINE | re.IGNORECASE,
)
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)", re.MULTILINE)
_DEEPEST = 12
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")

# What a person typed stands inside these; the tags themselves are the client's.
_ASKS = frozenset(
    "task issue request prompt query question feedback answer goal objective problem requirements ticket "
    "user_message user_input user-memory-input user_text command-args uploaded_files pr_description "
    "problem_statement issue_description task_description bug_report user_story human_message user_response".split()
)
_ASKING_WORDS = frozenset("query request task issue prompt question description statement feedback".split())
_SINGLE: dict[str, Voice] = {
    "attachment": Voice.ATTACHMENT,
    "attachments": Voice.ATTACHMENT,
    "attachedfiles": Voice.ATTACHMENT,
    "skill": Voice.SKILL,
    "skills": Voice.SKILL,
    "reminder": Voice.REMINDER,
    "rules": Voice.REMINDER,
    "timestamp": Voice.REMINDER,
    "permissions instructions": Voice.REMINDER,
    "environment": Voice.REMINDER,
    "memory": Voice.REMINDER,
    "memories": Voice.REMINDER,
    "notice": Voice.NOTICE,
    "tick": Voice.NOTICE,
    "returncode": Voice.OUTPUT,
}
# Names with a hyphen or in camel case are also those of web components, so the usual ones are named.
_NAMED = frozenset(
    "system-reminder command-name command-message command-contents local-command-stdout local-command-stderr "
    "local-command-caveat bash-input bash-stdout bash-stderr user-prompt-submit-hook session-start-hook "
    "post-tool-use-hook pre-tool-use-hook stop-hook task-notification new-diagnostics teammate-message "
    "conversation-summary info-msg user-state agent-notification background-task ide-selection "
    "user-rule user-rules project-rules current-time tool-result tool-output tool-error "
    "environmentcontext editorcontext reminderinstructions toolreferences workspaceinfo environmentinfo "
    "usermemory repocontext todolist attachedfiles customizationsindex".split()
)
_NOUNS = frozenset(
    "reminder reminders instructions context info information details environment rules guidelines hook hooks "
    "notification notifications notice caveat stdout stderr output outputs files file content contents layout status "
    "state summary snapshot message messages data metadata mode diagnostics errors selection history memory memories "
    "skills skill commands note notes warning settings preferences transcript transcripts links references tools todos "
    "tree structure date datetime timestamp results result aborted action permissions policy budget usage event switch "
    "tables docs documentation knowledge important ephemeral checkpoint spec".split()
)
_MARKUP = re.compile(r"\b(?:class(?:Name)?|style|href|src|slot|on[A-Z]\w*)\s*=|[{}]|\s(?:v-|:|@|#|\*|\[|\()[\w-]+[\])]?=")
_VOICES: tuple[tuple[frozenset[str], Voice], ...] = (
    (
        frozenset("hook hooks notification notifications notice event aborted diagnostics".split()),
        Voice.NOTICE,
    ),
    (frozenset("summary snapshot condensed checkpoint".split()), Voice.SUMMARY),
    (frozenset("skill skills".split()), Voice.SKILL),
    (frozenset("command commands bash shell caveat".split()), Voice.COMMAND),
    (frozenset("output outputs result results".split()), Voice.OUTPUT),
    (
        frozenset("attachment attached attachments file files folder url selection opened content contents".split()),
        Voice.ATTACHMENT,
    ),
)


def _opens(pattern: str) -> re.Pattern[str]:
    return re.compile(r"\s*(?:" + pattern + ")", re.IGNORECASE)


class _Opening(NamedTuple):
    """A way in which harness text begins, its voice, and where it ends: at a match of `until`, else with the text."""

    begins: re.Pattern[str]
    voice: Voice
    until: re.Pattern[str] | None = None


_PARAGRAPH = re.compile(r"\n[ \t]*\n|\Z")
_SUMMARY_ENDS = re.compile(r"^-{3} END OF CONTEXT SUMMARY\b.*$", re.MULTILINE | re.IGNORECASE)
_OPENINGS = (
    _Opening(
        _opens(
            r"this (?:session|conversation) is being continued from a previous|another language model started to solve this|"
            r"\[compacted history|\[conversation summary|\[session summary|i spoke to you previously about a number of|"
            r"\[context (?:summary|compaction)|\[previous conversation summary"
        ),
        Voice.SUMMARY,
        _SUMMARY_ENDS,
    ),
    _Opening(
        _opens(r"base directory for this skill:|\[(?:system|important): the user has invoked the [^\n]{1,80} skill"),
        Voice.SKILL,
        re.compile(r"^(?:ARGUMENTS|The user has provided the following instruction[^\n:]*):", re.MULTILINE),
    ),
    _Opening(_opens(r"caveat: the messages below were generated"), Voice.COMMAND, _PARAGRAPH),
    _Opening(_opens(r"# AGENTS\.md instructions for|# CLAUDE\.md instructions"), Voice.REMINDER, re.compile("</INSTRUCTIONS>")),
    _Opening(
        _opens(
            r"this is the (?:gemini cli|qwen code)\b|here is the user's editor context as|"
            r"here is a summary of changes in the user's editor context"
        ),
        Voice.REMINDER,
    ),
    _Opening(
        _opens(
            r"[\w.:/()*-]{1,60}(?: [\w.:/()*-]{1,40}){0,3} hook "
            r"(?:feedback|error|success|blocking error|additional context|output|stopped|cancelled|failed|returned)\b"
        ),
        Voice.NOTICE,
    ),
    _Opening(
        _opens(r"# (?:files mentioned by the user|context from my ide setup|in-app browser|applications mentioned)"),
        Voice.ATTACHMENT,
        re.compile(r"^#{1,3} My request for [^\n:]{1,40}:", re.MULTILINE | re.IGNORECASE),
    ),
    _Opening(
        _opens(
            r"i have \*added these files to the chat\*|here are summaries of some files present in my git repo|"
            r"here are some read only files, provided for|the following items were attached by the user"
        ),
        Voice.ATTACHMENT,
    ),
    _Opening(
        _opens(r"--- content from referenced files ---"),
        Voice.ATTACHMENT,
        re.compile(r"^--- End of content ---", re.MULTILINE | re.IGNORECASE),
    ),
    _Opening(_opens(r"called the \w+ tool with the following input:|the following tool was executed by the user"), Voice.OUTPUT),
    _Opening(
        _opens(
            r"\[error\] you did not use a tool in your previous|\[task resumption\]|"
            r"continue if you have next steps, or stop and ask for clarif|"
            r"summarize the task tool output above and continue"
        ),
        Voice.NOTICE,
    ),
    _Opening(
        _opens(r"\[(?:system|system note|system notification|system message)\b\s*[:\]]"), Voice.NOTICE, _PARAGRAPH
    ),
    _Opening(_opens(r"\[request interrupted by user[^\]\n]{0,40}\]"), Voice.INTERRUPTION, re.compile(r"\]")),
)
# A client without a role for results writes them into the user's message; what the person says about them is in tags.
_WRITTEN_RESULT = _opens(r"\[[a-z]\w{2,40}(?: for '[^\n]{0,300}')?\] Result:")
_OPENING_HINT = re.compile(r"\s*(?:[\[#-]|this |another |i |base |caveat|here |called |the |continue |summarize |[^\n]{1,140} hook )", re.IGNORECASE)


def _may_hold_harness(text: str) -> bool:
    """Returns whether it is worth looking more closely: a few quick looks settle it for most messages."""
    return (
        "</" in text
        or "[Request interrupted" in text
        or "--- Content from" in text
        or _OPENING_HINT.match(text, 0, 200) is not None
    )


def _scan(text: str, start: int, end: int, spans: list[_Span], depth: int = 0, base: Voice = Voice.PERSON) -> None:
    """Add the spans of a stretch of text to `spans`."""
    at = start  # what stands before it has its span
    behind = True  # nothing but harness text since the stretch began
    look = start
    while at < end:
        if behind:
            opened = _match_opening(text, at, end)
            if opened is not None:
                spans.append(opened)
                at = look = opened.end
                continue
            if (written := _WRITTEN_RESULT.match(text, at, end)) is not None:
                spans.append(_Span(Voice.OUTPUT, at, written.end()))
                at = look = written.end()
                base = Voice.OUTPUT
        found = _next_block(text, at, look, end, behind=behind)
        if found is None:
            break
        voice, first, inner, inner_end, last = found
        if first > at:
            spans.append(_Span(base, at, first))
        if voice is Voice.PERSON and depth < _DEEPEST:
            spans.append(_Span(Voice.REMINDER, first, inner))
            _scan(text, inner, inner_end, spans, depth + 1)
            spans.append(_Span(Voice.REMINDER, inner_end, last))
        else:
            spans.append(_Span(voice, first, last))
        at = look = last
        behind = True
    if at < end:
        spans.append(_Span(base, at, end))


def _match_opening(text: str, at: int, end: int) -> _Span | None:
    if _OPENING_HINT.match(text, at, min(end, at + 200)) is None:
        return None
    for opening in _OPENINGS:
        begun = opening.begins.match(text, at, end)
        if begun is not None:
            ended = opening.until.search(text, begun.end() - 1, end) if opening.until is not None else None
            return _Span(opening.voice, at, ended.end() if ended is not None else end)
    return None


class _Block(NamedTuple):
    voice: Voice
    start: int
    inner: int
    inner_end: int
    end: int


def _next_block(text: str, at: int, look: int, end: int, *, behind: bool) -> _Block | None:
    """Returns the next block of harness text from `look` on; what stands from `at` up to it belongs together."""
    if behind and (block := _block_at(text, _skip_blanks(text, at, end), end, weak=True)) is not None:
        return block
    while (line := _MARKED_LINE.search(text, look, end)) is not None:
        if not _is_fenced(text, at, line.start(), end):
            block = _block_at(text, line.start(), end, weak=not text[at : line.start()].strip())
            if block is not None:
                return block
        look = line.end() if line.end() > line.start() else line.end() + 1
    return None


def _block_at(text: str, start: int, end: int, *, weak: bool) -> _Block | None:
    """Returns the block of harness text that begins here; with `weak` the name of its tag alone may tell."""
    tag = _TAG.match(text, start, end)
    if tag is None:
        opened = _match_opening(text, start, end) if text[start : start + 4].lstrip()[:1] in {"[", "-"} else None
        if opened is None or opened.voice not in {Voice.INTERRUPTION, Voice.ATTACHMENT, Voice.SUMMARY}:
            return None
        return _Block(opened.voice, start, start, opened.end, opened.end)
    closing = _find_closing(text, tag[1], tag.end(), end)
    if closing is None:
        return None
    voice = _voice_of(tag[1], tag[2] or "", text[tag.end() : closing[0]], weak=weak)
    if voice is None:
        return None
    return _Block(voice, start, tag.end(), closing[0], closing[1])


def _find_closing(text: str, name: str, start: int, end: int) -> tuple[int, int] | None:
    """Returns where the tag is closed: blocks of its own name inside it are closed first, where they can be."""
    first: tuple[int, int] | None = None
    deep = 1
    for match in re.finditer(rf"^[ \t]{{0,3}}<{re.escape(name)}[\s>]|</{re.escape(name)}>", text[start:end], re.MULTILINE):
        if match[0].startswith("</"):
            first = first or (start + match.start(), start + match.end())
            deep -= 1
            if not deep:
                return start + match.start(), start + match.end()
        else:
            deep += 1
    return first


def _voice_of(name: str, attributes: str, body: str, *, weak: bool) -> Voice | None:
    """Returns the voice of a block by its tag; None where a person may have pasted it."""
    lower = name.lower()
    words = [word.lower() for word in _WORDS.findall(name)]
    if lower in _NAMED:
        return _voice_by_words(words)
    if _MARKUP.search(attributes):
        return None
    if lower in _ASKS:
        return Voice.PERSON
    if lower in _SINGLE:
        return _SINGLE[lower] if weak or not _looks_like_markup(body) else None
    if len(words) < 2:
        return None
    separated = "_" in name or "-" in name
    if (separated or name[0].islower()) and words[-1] in _ASKING_WORDS:
        return Voice.PERSON
    noun = words[-1] in _NOUNS
    if "_" in name and noun:
        return _voice_by_words(words)
    if separated and name.isupper():
        return _voice_by_words(words)
    if not weak or not (separated or (noun and name[0].islower())):
        return None
    if noun or not _looks_like_markup(body):
        return _voice_by_words(words)
    return None


def _voice_by_words(words: Sequence[str]) -> Voice:
    for known, voice in _VOICES:
        if not known.isdisjoint(words):
            return voice
    return Voice.REMINDER


def _looks_like_markup(body: str) -> bool:
    lines = [line.strip() for line in body[:4_000].split("\n") if line.strip()]
    return bool(lines) and 2 * sum(line.startswith("<") for line in lines) >= len(lines)


def _is_fenced(text: str, start: int, place: int, end: int) -> bool:
    """Returns whether a place is inside a fence that a person opened after `start` and closed."""
    if "```" not in text[start:place] and "~~~" not in text[start:place]:
        return False
    return len(_FENCE.findall(text[start:place])) % 2 == 1 and _FENCE.search(text, place, end) is not None


def _skip_blanks(text: str, at: int, end: int) -> int:
    while at < end and text[at].isspace():
        at += 1
    return at


def _join(text: str, spans: Sequence[_Span]) -> tuple[VoicedPart, ...]:
    """Returns the spans as parts; blanks between harness texts are theirs."""
    joined: list[_Span] = []
    for span in spans:
        if span.start == span.end:
            continue
        voice = span.voice
        blank = text[span.start : span.end].isspace()
        if joined and (blank or voice is joined[-1].voice is Voice.PERSON):
            joined[-1] = _Span(joined[-1].voice, joined[-1].start, span.end)
        else:
            joined.append(_Span(voice, span.start, span.end))
    if len(joined) > 1 and joined[0].voice is Voice.PERSON and text[: joined[0].end].isspace():
        joined[:2] = [_Span(joined[1].voice, 0, joined[1].end)]
    return tuple(VoicedPart(span.voice, text[span.start : span.end]) for span in joined)
