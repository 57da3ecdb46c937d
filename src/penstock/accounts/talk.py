"""A conversation as people read it: who said what, and each call with its outcome. Secrets are redacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.accounts.display import redact
from penstock.conversation.dialects import dialect_named
from penstock.conversation.handles import name_message
from penstock.conversation.message import Image, Message, Opaque, Role, Summary, Text, ToolCall, ToolResult
from penstock.conversation.speakers import Voice, part_voices
from penstock.conversation.wire import json_text, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.stores.store import Store

__all__ = ["TalkCall", "TalkEntry", "TalkText", "read_talk", "write_markdown"]


class TalkText(msgspec.Struct, frozen=True):
    """A text, and the kind of it where it is not simply what the speaker said: `reminder`, `picture`, `handoff`."""

    text: str
    kind: str = ""


class TalkCall(msgspec.Struct):
    """A call and its outcome. `answer` is the handle of the message with the result, empty while there is none."""

    call_id: str
    name: str
    arguments: dict[str, str]
    answer: str = ""
    outcome: str = ""
    failed: bool = False


class TalkEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One message: its texts and its calls. Results stand with their calls, not as entries of their own."""

    handle: str
    speaker: str
    at: float
    texts: list[TalkText] = []
    calls: list[TalkCall] = []


def read_talk(store: Store, session_id: str) -> list[TalkEntry]:
    """Returns the whole log of the session's conversation, in order. Raises UnknownSession."""
    row = store.tip(session_id)
    dialect = dialect_named(row.dialect)
    entries: list[TalkEntry] = []
    waiting: dict[str, TalkCall] = {}
    for logged in store.read_from(row.id, 0):
        message = dialect.decode(parse_json(logged.raw))
        handle = name_message(logged.position + 1)
        entry = TalkEntry(
            handle=handle,
            speaker=message.role.value,
            at=logged.created,
            texts=list(_read_texts(message)),
            calls=[_read_call(part) for part in message.parts if isinstance(part, ToolCall)],
        )
        waiting |= {call.call_id: call for call in entry.calls}
        lone = _settle(message, handle, waiting)
        entry.texts.extend(lone)
        if entry.texts or entry.calls:
            entries.append(entry)
    return entries


def _settle(message: Message, handle: str, waiting: dict[str, TalkCall]) -> Iterator[TalkText]:
    """Puts results to their calls; yields those without one."""
    for part in message.parts:
        if not isinstance(part, ToolResult):
            continue
        text = redact(part.text)
        call = waiting.pop(part.call_id, None)
        if call is None:
            yield TalkText(text, "result without a call")
            continue
        call.answer, call.outcome, call.failed = handle, text, part.is_error


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


def _read_texts(message: Message) -> Iterator[TalkText]:
    for part in message.parts:
        match part:
            case Text() if message.role is Role.USER:
                for voiced in part_voices(part.text):
                    if text := redact(voiced.text).strip():
                        yield TalkText(text, "" if voiced.voice is Voice.PERSON else str(voiced.voice))
            case Text():
                if text := redact(part.text).strip():
                    yield TalkText(text)
            case Summary():
                yield TalkText(redact(part.text).strip(), "handoff")
            case Image():
                yield TalkText(part.media_type, "picture")
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
