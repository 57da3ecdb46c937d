"""Sessions of Claude Code: `~/.claude/projects/PROJECT/SESSION.jsonl`, and sub-agents' files `agent-ID.jsonl`.

Each line has a `type`. Lines of the types `user` and `assistant` hold a `message` of the Anthropic dialect; an answer is
written a block at a time, in lines that share `message.id`. `parentUuid` chains the lines. A turn that was taken back
leaves lines that no chain reaches; results of parallel calls hang beside the chain. A compaction starts a new chain
whose `logicalParentUuid` names where the old one ended; it begins with a summary, a user's line with `isCompactSummary`,
which gets a tag where its words do not show what it is. Sub-agents' lines have `isSidechain`. Lines with `isMeta`, and
local commands such as `/clear` with what they printed, are the program's own business and no messages.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.conversation.slicing import slice_array, slice_object
from penstock.conversation.speakers import Voice, part_voices
from penstock.conversation.wire import encode_wire, read_text
from penstock.measure.usage import normalise_usage
from penstock.transfer.lines import read_moment
from penstock.transfer.recorded import RecordedConversation, RecordedFile, RecordedMessage, RecordedUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.transfer.lines import JsonLine
    from penstock.transfer.recorded import LineFault

__all__ = ["FORMAT", "is_claude_code", "read_claude_code"]

FORMAT = "claude-code"
_SPEAKERS = ("user", "assistant")
# What a session may begin with before anything was said in it.
_BESIDE = ("summary", "file-history-snapshot", "queue-operation", "custom-title", "ai-title", "last-prompt")
_SYNTHETIC = "<synthetic>"  # the model of messages that the program wrote itself, such as errors
_OWN_WORDS = "messages of the program itself"
_LOCAL_LINES = "lines of local commands and notes of the program"
_PRINTED = re.compile(r"\s*<local-command-(?:stdout|stderr|caveat)>")
_TYPED = re.compile(r"\s*<command-(?:name|message)>")
_BOUNDARY = "compact_boundary"
_SUMMARY_TAG = "conversation-summary"


def is_claude_code(lines: Sequence[JsonLine]) -> bool:
    """Returns True if a line is one that only Claude Code writes."""
    return any(_is_own(line.value) for line in lines)


def _is_own(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    if kind in _SPEAKERS:
        return isinstance(value.get("message"), dict) and ("uuid" in value or "sessionId" in value)
    return kind in _BESIDE and not value.keys().isdisjoint(("leafUuid", "sessionId", "messageId"))


def read_claude_code(lines: Sequence[JsonLine], faults: Sequence[LineFault]) -> RecordedFile:
    """Returns the session of a file, then its sub-agents."""
    own = _drop_repeats(lines)
    main = [line for line in own if not line.value.get("isSidechain")]
    titles = [line for line in main if line.value.get("type") not in _SPEAKERS]
    session = next(
        (read_text(line.value.get("sessionId")) for line in own if line.value.get("sessionId")), ""
    )
    conversations = []
    if any(_speaks(line) for line in main):
        conversations.append(
            _record(_follow_chain(main), main, source=session, title=_find_title(titles, own))
        )
    for name, chain in _group_sidechains(own).items():
        source = f"{session}/{name}"
        conversations.append(_record(chain, chain, source=source, works_for=session, title=""))
    return RecordedFile(tuple(one for one in conversations if one.messages), tuple(faults))


def _drop_repeats(lines: Iterable[JsonLine]) -> list[JsonLine]:
    seen: set[str] = set()
    kept: list[JsonLine] = []
    for line in lines:
        name = read_text(line.value.get("uuid"))
        if name and name in seen:
            continue
        seen.add(name)
        kept.append(line)
    return kept


def _speaks(line: JsonLine) -> bool:
    value = line.value
    return value.get("type") in _SPEAKERS and isinstance(value.get("message"), dict)


def _follow_chain(lines: Sequence[JsonLine]) -> list[JsonLine]:
    """Returns the lines of the present branch.

    They are those that the last one goes back to, and what belongs to them.
    """
    places = {
        read_text(line.value.get("uuid")): at for at, line in enumerate(lines) if line.value.get("uuid")
    }
    at = next((place for place in range(len(lines) - 1, -1, -1) if _speaks(lines[place])), None)
    reached: set[int] = set()
    while at is not None and at not in reached:
        reached.add(at)
        at = _find_line_before(lines, at, places)
    answers = {_read_message_id(lines[place]) for place in reached} - {""}
    taken = [at in reached or _read_message_id(line) in answers for at, line in enumerate(lines)]
    calls = {call for at, line in enumerate(lines) if taken[at] for call in _read_ids(line, "tool_use", "id")}
    open_calls = calls - {
        call for at in reached for call in _read_ids(lines[at], "tool_result", "tool_use_id")
    }
    return [
        line
        for at, line in enumerate(lines)
        if taken[at] or not open_calls.isdisjoint(_read_ids(line, "tool_result", "tool_use_id"))
    ]


def _find_line_before(lines: Sequence[JsonLine], at: int, places: dict[str, int]) -> int | None:
    """Returns where the line before this one in its chain stands.

    A parent that is not there is the line before it; so is that of a compaction that names none, as older versions wrote it.
    """
    value = lines[at].value
    parent = read_text(value.get("parentUuid")) or read_text(value.get("logicalParentUuid"))
    if not parent and value.get("subtype") != _BOUNDARY and not value.get("isCompactSummary"):
        return None
    if parent in places:
        return places[parent]
    return next((place for place in range(at - 1, -1, -1) if lines[place].value.get("uuid")), None)


def _read_message_id(line: JsonLine) -> str:
    message = line.value.get("message")
    return (
        read_text(message.get("id"))
        if line.value.get("type") == "assistant" and isinstance(message, dict)
        else ""
    )


def _read_ids(line: JsonLine, kind: str, field: str) -> list[str]:
    message = line.value.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return []
    return [
        block[field]
        for block in content
        if isinstance(block, dict) and block.get("type") == kind and isinstance(block.get(field), str)
    ]


def _group_sidechains(lines: Sequence[JsonLine]) -> dict[str, list[JsonLine]]:
    """Returns the lines of each sub-agent, by its id, or by its first line in files that give none."""
    chains: dict[str, list[JsonLine]] = {}
    roots: dict[str, str] = {}
    for line in lines:
        value = line.value
        if not value.get("isSidechain"):
            continue
        name, parent = read_text(value.get("uuid")), read_text(value.get("parentUuid"))
        agent = read_text(value.get("agentId"))
        root = agent or roots.get(parent) or name or f"line {line.number}"
        roots[name] = root
        chains.setdefault(root, []).append(line)
    return {name: chain for name, chain in chains.items() if any(map(_speaks, chain))}


def _find_title(lines: Iterable[JsonLine], own: Sequence[JsonLine]) -> str:
    """Returns what a person called the session, else what the program did.

    A file may hold summaries of other conversations, known by a `leafUuid` that is not `own`.
    """
    names = {read_text(line.value.get("uuid")) for line in own}
    found: dict[str, str] = {}
    for line in lines:
        if line.value.get("type") == "summary" and read_text(line.value.get("leafUuid")) not in names:
            continue
        for kind, field in (("custom-title", "customTitle"), ("ai-title", "aiTitle"), ("summary", "summary")):
            if line.value.get("type") == kind and read_text(line.value.get(field)):
                found[kind] = line.value[field]
    return found.get("custom-title") or found.get("ai-title") or found.get("summary") or ""


def _record(
    chain: Sequence[JsonLine], lines: Sequence[JsonLine], *, source: str, title: str, works_for: str = ""
) -> RecordedConversation:
    left_out: dict[str, int] = {}
    said, requests, models = _read_messages(chain, left_out)
    taken = {line.number for line in chain}
    abandoned = sum(1 for line in lines if _speaks(line) and line.number not in taken)
    if abandoned:
        left_out["lines of turns that were taken back"] = abandoned
    attachments = sum(1 for line in chain if line.value.get("type") == "attachment")
    if attachments:
        left_out["attachments"] = attachments
    return RecordedConversation(
        format=FORMAT,
        dialect="anthropic",
        messages=tuple(said),
        source=source,
        works_for=works_for,
        model=models[-1] if models else "",
        title=title,
        requests=tuple(requests),
        left_out=left_out,
        may_go_on=_may_go_on(chain),
    )


def _may_go_on(chain: Sequence[JsonLine]) -> bool:
    """Returns True if the last line is a piece of an answer that is not its last, or one result of several."""
    last = next((line for line in reversed(chain) if _speaks(line)), None)
    if last is None:
        return False
    if _read_message_id(last):
        return not last.value["message"].get("stop_reason")
    results = {call for line in chain for call in _read_ids(line, "tool_result", "tool_use_id")}
    calls = {call for line in chain for call in _read_ids(line, "tool_use", "id")}
    return bool(_read_ids(last, "tool_result", "tool_use_id") and calls - results)


def _read_messages(
    chain: Sequence[JsonLine], left_out: dict[str, int]
) -> tuple[list[RecordedMessage], list[RecordedUsage], list[str]]:
    said: list[RecordedMessage] = []
    requests: dict[str, RecordedUsage] = {}
    models: list[str] = []
    # The place of the answer that is being written: its results may come before its last block.
    places: dict[str, int] = {}
    in_results = False
    local = _find_local(chain)
    if local:
        left_out[_LOCAL_LINES] = len(local)
    for line in chain:
        if not _speaks(line) or line.number in local:
            continue
        message = line.value["message"]
        if message.get("model") == _SYNTHETIC or line.value.get("isApiErrorMessage"):
            left_out[_OWN_WORDS] = left_out.get(_OWN_WORDS, 0) + 1
            continue
        at, answer = read_moment(line.value.get("timestamp")), _read_message_id(line)
        results = bool(_read_ids(line, "tool_result", "tool_use_id"))
        place = places.get(answer) if answer else (len(said) - 1 if results and in_results else None)
        if place is None:
            place = len(said)
            said.append(RecordedMessage(_read_message(line), at))
        else:
            said[place] = RecordedMessage(_join(said[place].raw, _read_message(line)), said[place].at)
        in_results = results or (in_results and place < len(said) - 1)
        places = {answer: place} if answer else (places if results else {})
        if isinstance(message.get("usage"), dict) and read_text(message.get("model")):
            models.append(message["model"])
            usage = normalise_usage(message["usage"], "anthropic")
            # The lines of one answer repeat its usage, which grows while it is written.
            requests[answer or f"line {line.number}"] = RecordedUsage(place + 1, at, message["model"], usage)
    return said, list(requests.values()), models


def _find_local(chain: Sequence[JsonLine]) -> set[int]:
    """Returns the numbers of the lines that are not messages.

    The text that a slash command stands for is a message, although it is marked as the program's: the model has answered it.
    """
    local: set[int] = set()
    typed = False  # the last line is a command that a person typed for the model
    spoken = [line for line in chain if _speaks(line)]
    for at, line in enumerate(spoken):
        text = _read_user_text(line)
        printed = _PRINTED.match(text) is not None
        if _TYPED.match(text):
            answer = next((one for one in spoken[at + 1 :] if not one.value.get("isMeta")), None)
            printed = answer is not None and _PRINTED.match(_read_user_text(answer)) is not None
        note = line.value.get("isMeta") and not typed and not _read_ids(line, "tool_result", "tool_use_id")
        if line.value.get("type") == "user" and (printed or note):
            local.add(line.number)
        typed = _TYPED.match(text) is not None and not printed
    return local


def _read_user_text(line: JsonLine) -> str:
    """Returns the first text of a user's line; empty if there is none."""
    content = line.value["message"].get("content") if line.value.get("type") == "user" else None
    if isinstance(content, list):
        texts = (block.get("text") for block in content if isinstance(block, dict))
        content = next((text for text in texts if isinstance(text, str)), "")
    return content if isinstance(content, str) else ""


def _read_message(line: JsonLine) -> bytes:
    """Returns the message as the API takes it: its role and the exact bytes of its content."""
    content = slice_object(slice_object(line.raw)["message"]).get("content", b'""')
    if line.value.get("isCompactSummary") and (text := _tag_summary(line)):
        content = encode_wire(text)
    role = encode_wire(line.value["type"])
    return b'{"role":' + role + b',"content":' + content + b"}"


def _tag_summary(line: JsonLine) -> str:
    """Returns the summary inside a tag that tells it from a person's words; empty if its own words do."""
    content = line.value["message"].get("content")
    blocks = content if isinstance(content, list) else [{"text": content}]
    texts = [block["text"] for block in blocks if isinstance(block, dict) and read_text(block.get("text"))]
    if all(voiced.voice is Voice.SUMMARY for text in texts for voiced in part_voices(text)):
        return ""
    inside = "\n\n".join(texts).replace(f"</{_SUMMARY_TAG}", f"<\\/{_SUMMARY_TAG}")
    return f"<{_SUMMARY_TAG}>\n{inside}\n</{_SUMMARY_TAG}>"


def _join(before: bytes, more: bytes) -> bytes:
    """Joins two pieces of one answer, or two results of one batch, to one message."""
    role = slice_object(before)["role"]
    blocks = [*_read_blocks(before), *_read_blocks(more)]
    return b'{"role":' + role + b',"content":[' + b",".join(blocks) + b"]}"


def _read_blocks(raw: bytes) -> list[bytes]:
    content = slice_object(raw)["content"]
    if content[:1] == b'"':
        return [b'{"type":"text","text":' + content + b"}"]
    return slice_array(content)
