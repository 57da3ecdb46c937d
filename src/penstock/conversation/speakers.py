"""Tells who speaks in a user message: a person, or the harness that the person works with.

Clients put text of their own into user messages: reminders, the output of local commands and hooks, skills,
attachments, summaries of a session that was continued. `part_voices` tells it apart from what a person typed, by
structure first: a line that begins with a tag whose name no person would paste, up to its closing tag; then a few
openings by which clients begin such a text. Code that a person pasted (generics, HTML, JSX, XML, anything in a
fence) stays the person's, and so does a tag that is never closed.

A part is told by its text alone, so that a message is read once; only the head of a result that a client writes down as a
part of its own says whose the next part is (`voices_of`). `last_request` and `people_in` also look at the
neighbours of a message: the text of a slash command and what it printed come as messages of their own.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from penstock.conversation.message import Image, Message, Role, Text, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "Voice",
    "VoicedPart",
    "find_typed_command",
    "is_bare_command",
    "is_request",
    "last_request",
    "part_voices",
    "people_in",
    "person_words",
    "voices_of",
    "without_reminders",
]


class Voice(StrEnum):
    """The voices in a user message."""

    PERSON = "person"
    REMINDER = "reminder"  # rules, instructions, the state of the environment
    COMMAND = "command"  # a local command and what it printed
    SKILL = "skill"  # the text of a skill
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

    Every block of harness text is a part of its own, with the blanks behind it. An empty text has no part.
    """
    if not _may_hold_harness(text):
        return (VoicedPart(Voice.PERSON, text),) if text else ()
    return tuple(VoicedPart(span.voice, text[span.start : span.end]) for span in _Scanner(text).spans())


def voices_of(message: Message) -> Iterator[tuple[Text, tuple[VoicedPart, ...]]]:
    """Yields the texts of a user message, each in parts with their voices.

    After a part that is only the head of a result ("[read_file for 'a.py'] Result:"), the next part is the result.
    """
    is_result = False
    for part in message.parts:
        if not isinstance(part, Text):
            continue
        voices = part_voices(part.text)
        if is_result:
            voices = tuple(
                VoicedPart(Voice.OUTPUT, one.text)
                if one.voice is Voice.PERSON and (len(voices) == 1 or not _stands_in_tags(voices, place))
                else one
                for place, one in enumerate(voices)
            )
        yield part, voices
        is_result = is_result or _RESULT_HEAD.fullmatch(part.text) is not None


def _stands_in_tags(voices: Sequence[VoicedPart], place: int) -> bool:
    """Returns True if the words stand in tags in which a client passes on what a person typed."""
    return place > 0 and voices[place - 1].text.rstrip().endswith(">")


def without_reminders(result: str) -> str:
    """Returns the result of a tool without the reminders that a client inserted into it."""
    return _REMINDER.sub("", result) if "<system-reminder>" in result else result


def person_words(message: Message) -> str:
    """Returns what a person typed in the message, without calls, results and harness text; empty if nothing.

    A slash command counts as typed, with its arguments.
    """
    if message.role is not Role.USER:
        return ""
    words: list[str] = []
    command = False
    for part, voices in voices_of(message):
        if part.text:
            if not (command and _reads_like_command(part.text)):
                words += [one.text.strip() for one in voices if one.voice is Voice.PERSON]
            command = _TYPED_COMMAND.search(part.text) is not None
    return "\n".join(word for word in words if word)


def find_typed_command(message: Message) -> str:
    """Returns the slash command that a client recorded in the message, as it was typed; empty if there is none."""
    command = _TYPED_COMMAND.search(_user_text(message))
    return command[1].strip() if command is not None else ""


def is_bare_command(text: str) -> bool:
    """Returns True if a text is a slash command without words of a person: "/clear", "/add src/a.py"."""
    return _BARE_COMMAND.match(text) is not None


def is_request(message: Message) -> bool:
    """Returns True if a person speaks in the message: not only tools, a harness or a handoff."""
    if message.role is not Role.USER:
        return False
    return any(isinstance(part, Image) for part in message.parts) or bool(person_words(message))


def last_request(messages: Sequence[Message]) -> int | None:
    """Returns the position of the last message in which a person speaks, or None.

    If only a harness speaks in the whole list, returns the last user message with text.
    """
    found = next(_people_backwards(messages), None)
    if found is not None:
        return found
    return next((place for place in range(len(messages) - 1, -1, -1) if _user_text(messages[place])), None)


def people_in(messages: Sequence[Message], start: int = 0) -> list[int]:
    """Returns the positions, from `start` on, of the messages in which a person speaks, in order."""
    return list(_people_backwards(messages, start))[::-1]


def _people_backwards(messages: Sequence[Message], start: int = 0) -> Iterator[int]:
    for place in range(len(messages) - 1, start - 1, -1):
        message = messages[place]
        if message.role is not Role.USER:
            continue
        before = _user_text(messages[place - 1]) if place else ""
        after = _user_text(messages[place + 1]) if place + 1 < len(messages) else ""
        own = _user_text(message)
        if _TYPED_COMMAND.search(own):
            if _PRINTED in after:
                continue  # a setting of the client, not the agent's work
            if _SKILL.match(after) or _reads_like_command(after):
                yield place
                continue
        if after and is_bare_command(own):
            continue  # a command that the client carried out: nobody answered it
        if _OBSERVED.match(own) and place and _asks_for_action(messages[place - 1]):
            continue  # the result of a tool, where a client has no role for it
        if _TYPED_COMMAND.search(before) and (_SKILL.match(own) or _reads_like_command(own)):
            continue  # what the command stands for
        # The text of a skill that the agent itself asked for is no request, either.
        if is_request(message) and not any(map(_launches_skill, messages[max(place - 1, 0) : place + 1])):
            yield place


def _launches_skill(message: Message) -> bool:
    """Returns True if a result only says that a skill begins, whose text the client sends next as a user's."""
    return any(isinstance(part, ToolResult) and part.text.startswith(_LAUNCHING) for part in message.parts)


def _asks_for_action(message: Message) -> bool:
    """Returns True if an agent that writes its calls into its text wrote one."""
    return message.role is Role.ASSISTANT and any(
        isinstance(part, Text) and _ACTION.search(part.text) for part in message.parts
    )


def _user_text(message: Message) -> str:
    """Returns all texts of a user message; empty if there is nothing to read."""
    if message.role is not Role.USER:
        return ""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    text = texts[0] if len(texts) == 1 else "\n".join(texts)
    return "" if text.isspace() else text


_ACTION = re.compile(r"^(?:Action|Action Input|ACTION):", re.MULTILINE)
_OBSERVED = re.compile(r"\s*Observation:")
_BARE_COMMAND = re.compile(r"\s*/[a-z][\w-]*(?:[ \t]+(?=\S*[./\d_-])\S+){0,4}\s*\Z")
_TYPED_COMMAND = re.compile(r"<command-name>([^<\n]*)</command-name>")
_REMINDER = re.compile(r"^<system-reminder>[\s\S]*?</system-reminder>", re.MULTILINE)
_PRINTED = "<local-command-std"
_SKILL = re.compile(r"\s*Base directory for this skill:")
_LAUNCHING = "Launching skill: "
_SHORTEST_COMMAND = 800  # characters
_HEADING = re.compile(r"^#{1,4} \S", re.MULTILINE)
_INVOKES = re.compile(
    r"\s*(?:Invoke|Use|Run|Load|Execute|Follow) the \S+ (?:skill|command|workflow|agent|prompt)\b"
)


def _reads_like_command(text: str) -> bool:
    """Returns True if a text after a slash command is what the command stands for.

    Such a text is long, with headings, or tells the agent to invoke something by name.
    """
    return _INVOKES.match(text) is not None or (
        len(text) >= _SHORTEST_COMMAND and len(_HEADING.findall(text)) > 1
    )


# What tags say. Their names are told by their words, so that those of a client that nobody listed here are known too.


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")
# What a person typed stands inside these; the tags themselves are the client's.
_ASKING = _set(
    "task issue request prompt query question feedback answer goal objective problem requirements ticket user_message "
    "user_input user-memory-input user_text command-args uploaded_files bug_report user_story human_message user_response"
)
_ASKING_LAST = _set("query request task issue prompt question description statement feedback")
_SINGLE: dict[str, Voice] = {
    "attachment": Voice.ATTACHMENT,
    "attachments": Voice.ATTACHMENT,
    "skill": Voice.SKILL,
    "skills": Voice.SKILL,
    "reminder": Voice.REMINDER,
    "permissions instructions": Voice.REMINDER,
    "tick": Voice.NOTICE,
    "returncode": Voice.OUTPUT,
}
_SINGLE_FIRST = _set("context rules environment memory memories notice timestamp")  # people write these, too
# Names with a hyphen or in camel case are those of web components too, so the usual ones of clients are listed.
_NAMED = _set(
    "system-reminder command-name command-message command-contents local-command-stdout local-command-stderr "
    "local-command-caveat bash-input bash-stdout bash-stderr user-prompt-submit-hook session-start-hook "
    "post-tool-use-hook pre-tool-use-hook stop-hook task-notification new-diagnostics teammate-message "
    "conversation-summary info-msg user-state agent-notification background-task ide-selection user-rule user-rules "
    "project-rules current-time tool-result tool-output tool-error environmentcontext editorcontext "
    "reminderinstructions toolreferences workspaceinfo environmentinfo usermemory repocontext todolist attachedfiles"
)
_NOUNS = _set(
    "reminder reminders instructions context info information details environment rules guidelines hook hooks "
    "notification notifications notice caveat stdout stderr output outputs files file content contents layout status "
    "state summary snapshot message messages data metadata mode diagnostics errors selection history memory memories "
    "skills skill commands command note notes warning settings preferences transcript transcripts links references "
    "tools todos tree structure date datetime timestamp results result aborted action permissions policy budget usage "
    "event switch tables docs documentation knowledge important ephemeral checkpoint spec"
)
_VOICES: tuple[tuple[frozenset[str], Voice], ...] = (
    (_set("hook hooks notification notifications notice event aborted diagnostics"), Voice.NOTICE),
    (_set("summary snapshot condensed checkpoint"), Voice.SUMMARY),
    (_set("skill skills"), Voice.SKILL),
    (_set("command commands bash shell caveat"), Voice.COMMAND),
    (_set("output outputs result results"), Voice.OUTPUT),
    (
        _set("attachment attachments attached file files folder url selection opened content contents"),
        Voice.ATTACHMENT,
    ),
)
_MARKUP = re.compile(
    r"\b(?:class(?:Name)?|style|href|src|slot|on[A-Z]\w*)\s*=|[{}]|\s(?:v-|:|@|#|\*|\[|\()[\w-]+[\])]?="
)


class _Likelihood(NamedTuple):
    """The voice of a tag by its name, and whether the name alone makes it certain.

    If it is not `sure`, the tag counts only at the beginning of a text or after other harness text, and with `prose`
    only if the block holds no markup.
    """

    voice: Voice
    sure: bool = True
    prose: bool = False


@lru_cache(maxsize=1_000)
def _judge_name(name: str, attributes: str) -> _Likelihood | None:
    """Returns the voice of a block by its opening tag; None if a person may have pasted it."""
    lower = name.lower()
    words = [word.lower() for word in _WORD.findall(name)]
    voice = next((voice for known, voice in _VOICES if not known.isdisjoint(words)), Voice.REMINDER)
    if lower in _NAMED:
        return _Likelihood(voice)
    if _MARKUP.search(attributes):
        return None
    if lower in _SINGLE:
        return _Likelihood(_SINGLE[lower])
    if lower in _SINGLE_FIRST:
        return _Likelihood(voice, sure=False, prose=True)
    separated = "_" in name or "-" in name
    spoken = separated or name[0].islower()
    if lower in _ASKING or (len(words) > 1 and spoken and words[-1] in _ASKING_LAST):
        return _Likelihood(Voice.PERSON)
    if len(words) < 2:
        return None
    noun = words[-1] in _NOUNS
    if ("_" in name and noun) or (separated and name.isupper()):
        return _Likelihood(voice)
    return _Likelihood(voice, sure=False, prose=not noun) if separated or (noun and spoken) else None


def _holds_markup(body: str) -> bool:
    lines = [line.strip() for line in body[:4_000].split("\n") if line.strip()]
    return bool(lines) and 2 * sum(line.startswith("<") for line in lines) >= len(lines)


# How harness text begins that stands in no tags. An opening counts where a text begins, or behind other harness text.


class _Opening(NamedTuple):
    """A way in which harness text begins, and where it ends: at a match of `until`, or else with the text.

    With `anywhere`, it counts at the beginning of any line.
    """

    begins: re.Pattern[str]
    voice: Voice
    until: re.Pattern[str] | None = None
    anywhere: bool = False


def _open_with(*patterns: str) -> re.Pattern[str]:
    return re.compile(rf"\s*(?:{'|'.join(patterns)})", re.IGNORECASE)


def _at_line(pattern: str) -> re.Pattern[str]:
    return re.compile(f"^{pattern}", re.MULTILINE | re.IGNORECASE)


_PARAGRAPH = re.compile(r"\n[ \t]*\n|\Z")
_OPENINGS = (
    _Opening(
        _open_with(
            r"this (?:session|conversation) is being continued from a previous",
            r"another language model started to solve this",
            r"i spoke to you previously about a number of",
            r"\[(?:context (?:summary|compaction)|compacted history|(?:previous )?conversation summary|session summary)",
        ),
        Voice.SUMMARY,
        _at_line(r"-{3} END OF CONTEXT SUMMARY\b.*$"),
    ),
    _Opening(
        _open_with(r"base directory for this skill:", r"\[\w+: the user has invoked the [^\n]{1,80} skill"),
        Voice.SKILL,
        re.compile(r"^(?:ARGUMENTS|The user has provided the following instruction[^\n:]*):", re.MULTILINE),
    ),
    _Opening(_open_with(r"caveat: the messages below were generated"), Voice.COMMAND, _PARAGRAPH),
    _Opening(
        _open_with(r"# [\w./-]{1,80}\.md instructions\b"), Voice.REMINDER, re.compile("</INSTRUCTIONS>")
    ),
    _Opening(
        _open_with(
            r"this is the (?:gemini cli|qwen code)\b",
            r"here is the user's editor context as",
            r"here is a summary of changes in the user's editor context",
        ),
        Voice.REMINDER,
    ),
    _Opening(
        _open_with(
            r"[\w.:/()*-]{1,60}(?: [\w.:/()*-]{1,40}){0,3} hook (?:(?:blocking )?error|feedback|success|"
            r"additional context|output|stopped|cancelled|failed|returned)\b",
            r"(?:operation|prompt|request|command|tool call) (?:stopped|blocked|denied|cancelled) by (?:\w+ )?hook\b",
        ),
        Voice.NOTICE,
    ),
    _Opening(
        _open_with(r"# (?:files mentioned by the user|context from my ide setup|applications mentioned)"),
        Voice.ATTACHMENT,
        _at_line(r"#{1,3} My request for [^\n:]{1,40}:"),
    ),
    _Opening(
        _open_with(
            r"i have \*added these files to the chat\*",
            r"here are summaries of some files present in my git repo",
            r"here are some read only files, provided for",
            r"the following items were attached by the user",
        ),
        Voice.ATTACHMENT,
    ),
    _Opening(
        _open_with(r"--- content from referenced files ---"),
        Voice.ATTACHMENT,
        _at_line("--- End of content ---"),
        anywhere=True,
    ),
    _Opening(
        _open_with(
            r"called the \w+ tool with the following input:",
            r"result of calling the \w+ tool:",
            r"the following tool was executed by the user",
            r"execution result of \[\w+\]:",
            r"observation:[ \t]*\n",
        ),
        Voice.OUTPUT,
    ),
    _Opening(
        _open_with(
            r"\[error\] you did not use a tool in your previous",
            r"\[task resumption\]",
            r"plan mode is active\. the user indicated",
            r"note: [^\n]{1,300} was modified, either by the user or by a linter\.",
            r"your todo list has changed\. do not mention",
            r"continue if you have next steps, or stop and ask for clarif",
            r"summarize the task tool output above and continue",
            r"briefly inform the user about the task result",
            r"the beginning of the above subagent result",
        ),
        Voice.NOTICE,
    ),
    _Opening(
        _open_with(r"\[system(?: (?:note|notification|message|reminder))?\s*[:\]]"), Voice.NOTICE, _PARAGRAPH
    ),
    _Opening(
        _open_with(r"approved command prefix(?:es)? saved:", r"(?:allowed|denied) network rule saved\b"),
        Voice.NOTICE,
        _PARAGRAPH,
    ),
    _Opening(
        _open_with(r"\[request interrupted by user[^\]\n]{0,40}(?=\])"),
        Voice.INTERRUPTION,
        re.compile(r"\]"),
        anywhere=True,
    ),
)
_HINT = re.compile(
    r"\s*(?:[\[#-]|this |another |i |base |caveat|here |called |the |continue |summarize |briefly |observation:|execution result|result of calling |plan mode |note: |your todo |approved command |(?:allowed|denied) network |[^\n]{1,140} hook\b)",
    re.IGNORECASE,
)
_HINTED = 200  # characters of a text that the hint is looked for in
# A client without a role for results writes them into a user message; what the person says stands in tags then.
_WRITTEN_RESULT = _open_with(r"\[[a-z]\w{2,40}(?: for '[^\n]{0,300}'[^\]\n]{0,100})?\] Result:")
_RESULT_HEAD = re.compile(rf"{_WRITTEN_RESULT.pattern}\s*", re.IGNORECASE)
_ANYWHERE = ("[Request interrupted", "--- Content from")
_TAG = re.compile(
    r"[ \t]{0,3}<([A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*(?: instructions)?)(\s[^<>\n]{0,500})?>"
)
_MARKED_LINE = re.compile(
    r"^[ \t]{0,3}(?:<(?=[A-Za-z])|(?=\[Request interrupted|--- Content from))", re.MULTILINE
)
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)", re.MULTILINE)
_FENCES = re.compile("```|~~~")
_DEEPEST = 12


def _may_hold_harness(text: str) -> bool:
    """Returns True if a closer look is worthwhile. A few quick checks rule it out for most messages."""
    return (
        "</" in text
        or _HINT.match(text, 0, _HINTED) is not None
        or any(opening in text for opening in _ANYWHERE)
    )


class _Span(NamedTuple):
    voice: Voice
    start: int
    end: int


class _Block(NamedTuple):
    """Harness text in a text. If its voice is the person, the person's words stand from `inner` to `inner_end`."""

    voice: Voice
    start: int
    inner: int
    inner_end: int
    end: int


class _Scanner:
    """Finds the harness text in one text, in one pass."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans: list[_Span] = []
        self._unclosed: set[tuple[str, int]] = set()  # names that no tag closes before an end
        self._fences = [fence.start() for fence in _FENCE.finditer(text)] if _FENCES.search(text) else []

    def spans(self) -> list[_Span]:
        """Returns the spans of the text, in order, each with a voice."""
        self._scan(0, len(self._text), 0)
        return self._spans

    def _scan(self, start: int, end: int, depth: int) -> None:
        text, at = self._text, start
        voice = Voice.PERSON  # of what stands between the blocks
        while at < end:
            if (written := _WRITTEN_RESULT.match(text, at, end)) is not None:
                self._add(Voice.OUTPUT, at, written.end())
                at, voice = written.end(), Voice.OUTPUT
            block = self._next_block(at, end)
            if block is None:
                break
            self._add(voice, at, block.start)
            if block.voice is Voice.PERSON and depth < _DEEPEST:
                self._add(Voice.REMINDER, block.start, block.inner)
                self._scan(block.inner, block.inner_end, depth + 1)
                self._add(Voice.REMINDER, block.inner_end, block.end)
            else:
                self._add(block.voice, block.start, block.end)
            at = block.end
        self._add(voice, at, end)

    def _add(self, voice: Voice, start: int, end: int) -> None:
        """Adds a span; blanks go to the span before them, and so do a person's words to a person's."""
        if start == end:
            return
        last = self._spans[-1] if self._spans else None
        if last is not None and last.voice is Voice.PERSON and self._text[last.start : last.end].isspace():
            self._spans[-1] = _Span(voice, last.start, end)  # the blanks that the text begins with
        elif last is not None and (voice is last.voice is Voice.PERSON or self._text[start:end].isspace()):
            self._spans[-1] = _Span(last.voice, last.start, end)
        else:
            self._spans.append(_Span(voice, start, end))

    def _next_block(self, at: int, end: int) -> _Block | None:
        """Returns the next harness text from `at` on, at which the text begins or other harness text ends."""
        text = self._text
        opened = self._open(at, end)
        if opened is not None:
            return opened
        first = at
        while first < end and text[first].isspace():
            first += 1
        block = self._read_tagged(first, end, first=True)
        look = at
        while block is None and (line := _MARKED_LINE.search(text, look, end)) is not None:
            look = line.end() + (line.end() == line.start())
            place = line.start()
            if self._is_fenced(at, place, end):
                continue
            if line.end() > place and text[line.end() - 1] == "<":
                block = self._read_tagged(place, end, first=False)
            else:
                block = self._open(place, end, anywhere=True)
        return block

    def _is_fenced(self, start: int, place: int, end: int) -> bool:
        """Returns True if a place is inside a fence that was opened after `start` and is closed."""
        fences = self._fences
        if not fences:
            return False
        before = bisect_left(fences, place)
        return (before - bisect_left(fences, start)) % 2 == 1 and before < bisect_left(fences, end)

    def _open(self, at: int, end: int, *, anywhere: bool = False) -> _Block | None:
        """Returns the harness text that begins here without a tag."""
        if _HINT.match(self._text, at, min(end, at + _HINTED)) is None:
            return None
        for opening in _OPENINGS:
            if anywhere and not opening.anywhere:
                continue
            begun = opening.begins.match(self._text, at, end)
            if begun is not None:
                ended = opening.until.search(self._text, begun.end(), end) if opening.until else None
                last = ended.end() if ended is not None else end
                return _Block(opening.voice, at, at, last, last)
        return None

    def _read_tagged(self, at: int, end: int, *, first: bool) -> _Block | None:
        """Returns the harness text in tags that begins here; `first` if only harness text stands before it."""
        tag = _TAG.match(self._text, at, end)
        likely = _judge_name(tag[1], tag[2] or "") if tag is not None else None
        if tag is None or likely is None or not (first or likely.sure):
            return None
        closing = self._find_closing(tag[1], tag.end(), end)
        if closing is None:
            return None
        inner, inner_end = tag.end(), closing - len(tag[1]) - 3
        voice = likely.voice
        if (
            likely.prose
            and not self._begins_for_sure(inner, inner_end)
            and _holds_markup(self._text[inner:inner_end])
        ):
            return None
        if (
            tag[1] == "system-reminder"
            and (sent := _SENT_MEANWHILE.match(self._text, inner, inner_end)) is not None
        ):
            return _Block(Voice.PERSON, at, *sent.span("said"), closing)
        if tag[1] == "command-name" and _HAS_ARGUMENTS.match(self._text, closing, end) is not None:
            voice = Voice.PERSON
        return _Block(voice, at, inner, inner_end, closing)

    def _begins_for_sure(self, start: int, end: int) -> bool:
        """Returns True if a client's block begins here whose name makes it certain."""
        while start < end and self._text[start].isspace():
            start += 1
        tag = _TAG.match(self._text, start, end)
        likely = _judge_name(tag[1], tag[2] or "") if tag is not None else None
        return likely is not None and likely.sure and likely.voice is not Voice.PERSON

    def _find_closing(self, name: str, start: int, end: int) -> int | None:
        """Returns the end of the tag that closes this one: blocks of its own name inside are closed first."""
        text = self._text
        if (name, end) in self._unclosed:
            return None
        nearest = text.find(f"</{name}>", start, end)
        if nearest < 0:
            self._unclosed.add((name, end))
            return None
        length = len(name) + 3
        if text.find(f"<{name}", start, nearest) < 0:
            return nearest + length
        deep = 1
        for tag in re.compile(
            rf"^[ \t]{{0,3}}<{re.escape(name)}[\s>]|</{re.escape(name)}>", re.MULTILINE
        ).finditer(text, start, end):
            deep += -1 if tag[0].startswith("</") else 1
            if not deep:
                return tag.end()
        return nearest + length


_SENT_MEANWHILE = re.compile(  # what a person typed while the agent worked
    r"\s*The user sent (?:the following|a new) message\b[^\n]{0,60}:\s*(?P<said>[\s\S]*?)\s*"
    r"(?:\n\n(?:Please address this message|IMPORTANT: After completing)[^\n]*\s*)?\Z"
)
_HAS_ARGUMENTS = re.compile(r"\s*(?:<command-message>[^<]*</command-message>\s*)?<command-args>\s*[^<\s]")
