"""A conversation as people read it: who said what, and each call with its outcome. Secrets are redacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.accounts.display import redact
from penstock.conversation.dialects import dialect_named
from penstock.conversation.handles import name_message
from penstock.conversation.message import Image, Message, Opaque, Role, Summary, Text, ToolCall, ToolResult
from penstock.conversation.speakers import Voice, voices_of
from penstock.conversation.wire import json_text, parse_json
from penstock.writing.stubs import exit_status, state_result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.stores.store import Store

__all__ = ["TalkCall", "TalkEntry", "TalkPicture", "TalkText", "line_up", "read_talk", "write_markdown"]

_LINE_CHARS = 300
_AROUND = 200  # messages before and after a stretch among which the other halves of its calls and results are looked for


class TalkPicture(msgspec.Struct, frozen=True):
    """A picture: the message that holds it, its known properties, and the digest by which its data is found there."""

    handle: str
    media_type: str
    size_bytes: int
    digest: str
    width: int = 0
    height: int = 0


class TalkText(msgspec.Struct, frozen=True):
    """A text, and its kind if it is not simply what the speaker said: `reminder`, `picture`, `handoff`."""

    text: str
    kind: str = ""
    picture: TalkPicture | None = None


class TalkCall(msgspec.Struct):
    """A call and its outcome. `answer` is the handle of the message with the result, empty while there is none.

    `stated` is the outcome in few words: an exit code, a size.
    """

    call_id: str
    name: str
    arguments: dict[str, str]
    answer: str = ""
    outcome: str = ""
    stated: str = ""
    failed: bool = False
    pictures: list[TalkPicture] = []


class TalkEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One message: its texts and its calls. Results stand with their calls, not as entries of their own.

    `speaker` is the role, or `summary` for a user message that is nothing but the summary of an earlier part.
    """

    handle: str
    speaker: str
    at: float
    texts: list[TalkText] = []
    calls: list[TalkCall] = []


def read_talk(store: Store, session_id: str, start: int = 0, limit: int | None = None) -> list[TalkEntry]:
    """Returns the whole log of the session's conversation, in order, or `limit` messages of it from position `start` on.

    Of a stretch, calls have their results even if these stand behind it, and results whose call stands before it are
    left out: they are told there. Raises UnknownSession.
    """
    row = store.tip(session_id)
    dialect = dialect_named(row.dialect)
    first = max(0, start - _AROUND)
    end = store.log_tip(row.id).length if limit is None else start + limit
    entries: list[TalkEntry] = []
    waiting: dict[str, TalkCall] = {}
    earlier: set[str] = set()  # calls that stand before the stretch
    for logged in store.read_from(row.id, first, end - first + _AROUND):
        if logged.position >= end and not waiting:
            break
        message = dialect.decode(parse_json(logged.raw))
        if logged.position < start:
            earlier |= {part.call_id for part in message.parts if isinstance(part, ToolCall)}
            continue
        handle = name_message(logged.position + 1)
        if logged.position >= end:
            _settle(message, handle, waiting)
            continue
        entry = _read_entry(message, handle, logged.created)
        waiting |= {call.call_id: call for call in entry.calls}
        lone = [part for part in _settle(message, handle, waiting) if part.call_id not in earlier]
        entry.texts.extend(TalkText(redact(part.text), "result without a call") for part in lone)
        if entry.texts or entry.calls:
            entries.append(entry)
    return entries


def line_up(message: Message) -> str:
    """Returns a message in one line: the beginning of what it says, or the tools that it calls. Without secrets."""
    for part in message.parts:
        match part:
            case Text() | Summary() | Opaque() | ToolResult() if part.text.strip():
                return " ".join(redact(part.text)[:_LINE_CHARS].split())
            case ToolCall():
                return f"{part.name} {' '.join(redact(part.arguments)[:_LINE_CHARS].split())}"
            case Image():
                return f"a picture, {part.media_type}"
            case _:
                continue
    return ""


def _read_entry(message: Message, handle: str, at: float) -> TalkEntry:
    texts = list(_read_texts(message, handle))
    summed_up = texts and all(text.kind == Voice.SUMMARY for text in texts)
    return TalkEntry(
        handle=handle,
        speaker=Voice.SUMMARY.value if summed_up else message.role.value,
        at=at,
        texts=texts,
        calls=[_read_call(part) for part in message.parts if isinstance(part, ToolCall)],
    )


def _settle(message: Message, handle: str, waiting: dict[str, TalkCall]) -> list[ToolResult]:
    """Puts results to their calls; returns those without one."""
    lone: list[ToolResult] = []
    for part in message.parts:
        if not isinstance(part, ToolResult):
            continue
        call = waiting.pop(part.call_id, None)
        if call is None:
            lone.append(part)
            continue
        call.answer, call.outcome = handle, redact(part.text)
        call.failed = part.is_error or bool(exit_status(part.text))
        call.stated = state_result(ToolCall(call.call_id, call.name, ""), part)
        call.pictures.extend(_show_picture(image, handle) for image in part.images)
    return lone


def _show_picture(image: Image, handle: str) -> TalkPicture:
    return TalkPicture(handle, image.media_type, image.size_bytes, image.digest, image.width, image.height)


def _read_call(part: ToolCall) -> TalkCall:
    try:
        value = parse_json(part.arguments)
    except ValueError:
        value = part.arguments
    given = value if isinstance(value, dict) else {"": value} if value else {}
    arguments = {
        str(name): redact(one if isinstance(one, str) else json_text(one)) for name, one in given.items()
    }
    return TalkCall(part.call_id, part.name, arguments)


def _read_texts(message: Message, handle: str) -> Iterator[TalkText]:
    spoken = voices_of(message)
    for part in message.parts:
        match part:
            case Text() if message.role is Role.USER:
                for voiced in next(spoken)[1]:
                    if text := redact(voiced.text).strip():
                        yield TalkText(text, "" if voiced.voice is Voice.PERSON else str(voiced.voice))
            case Text():
                if text := redact(part.text).strip():
                    yield TalkText(text)
            case Summary():
                yield TalkText(redact(part.text).strip(), "handoff")
            case Image():
                yield TalkText(part.media_type, "picture", _show_picture(part, handle))
            case Opaque():
                yield TalkText(redact(part.text).strip(), part.kind or "unknown")


def write_markdown(title: str, entries: Sequence[TalkEntry]) -> bytes:
    """Returns the conversation as a Markdown document: a heading per message, calls and their results in fences."""
    blocks = [f"# {title or 'Conversation'}"]
    for entry in entries:
        blocks.append(f"## {entry.speaker} ({entry.handle})")
        blocks += [_fence(text.text, text.kind) if text.kind else text.text for text in entry.texts]
        for call in entry.calls:
            given = "\n".join(f"{name}: {value}" if name else value for name, value in call.arguments.items())
            blocks.append(f"**{call.name}**" + (" failed" if call.failed else ""))
            blocks += [_fence(one) for one in (given, call.outcome) if one]
    return ("\n\n".join(blocks) + "\n").encode("utf-8", "replace")


def _fence(text: str, kind: str = "") -> str:
    """Returns the text in a fence that is longer than any in it."""
    ticks = "```"
    while ticks in text:
        ticks += "`"
    label = f"*{kind}*\n\n" if kind else ""
    return f"{label}{ticks}text\n{text}\n{ticks}"
