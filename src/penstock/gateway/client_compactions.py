"""Clients' own compactions: the calls by which Claude Code, opencode and Codex have a model summarise. Pure.

Each is known by the words that its client puts there. Where the gateway answers, it writes the handoff into the form that
the client reads its summary from:

- **Claude Code** appends a text block to the last message, and takes what stands in `<summary>`. It puts that into a
  replacement of JavaScript, where `$1` and `$&` mean something, and joins blank lines.
- **Codex** appends a message of the user and takes the last message of the assistant. Where its provider is named `OpenAI`
  it asks by a protocol instead (`compactions`).
- **opencode** sends no conversation at all: one message with a transcript of it, in which results are cut short. What was
  really said is in the log of the conversation that its headers name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from penstock.conversation.wire import encode_wire, parse_json
from penstock.gateway.compactions import write_response, write_stream
from penstock.gateway.exchange import OwnAnswer
from penstock.gateway.splicing import slice_messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.gateway.splicing import RequestBody

__all__ = ["ClientCompaction", "answer_in_form", "offers_tools", "recognise"]

_CLAUDE: Final = "CRITICAL: Respond with TEXT ONLY"
_CLAUDE_FORM: Final = "<summary>"
_CODEX: Final = "CONTEXT CHECKPOINT COMPACTION"
_OPENCODE: Final = "You are a context summarization agent"
_TRANSCRIPT: Final = re.compile(r"<conversation>\n(.*)\n</conversation>", re.DOTALL)
_INSTRUCTIONS: Final = re.compile(r"\n\nAdditional Instructions:\n(.+?)(?:\n\nREMINDER: |\Z)", re.DOTALL)
_LOOKED_AT: Final = 1 << 15  # bytes at an end of the list: the longest of these prompts is a quarter of that
_FOCUS_CHARS: Final = 1_000
_FORM_TAGS: Final = re.compile(r"<(/?)(analysis|summary)>")
_REPLACED: Final = re.compile(r"\$(?=[$&`'0-9<])")
_BLANK_LINES: Final = re.compile(r"\n{3,}")


class ClientCompaction(msgspec.Struct, frozen=True, kw_only=True):
    """A call for a summary: whose it is, and what it is about."""

    client: Literal["claude", "codex", "opencode"]
    messages: tuple[bytes, ...] = ()
    """The conversation without the words that ask; none where the client sends a transcript."""
    transcript: str = ""
    focus: str | None = None
    """The user's words on what matters."""


def offers_tools(body: RequestBody) -> bool:
    """Returns True for a request whose model may call something: an agent's, and no side call."""
    return body.tools not in {b"", b"[]", b"null"}


def recognise(body: RequestBody, *, told: bool = False) -> ClientCompaction | None:
    """Returns the compaction that a client asks a model for; None for nearly all requests, after a look at their bytes.

    `told` is True where Codex' headers say that it is one, whatever its prompt.
    """
    listed = body.listed
    if body.dialect == "anthropic" and _CLAUDE.encode() in listed[-_LOOKED_AT:]:
        return _read_claude(listed)
    if body.dialect == "responses" and (told or _CODEX.encode() in listed[-_LOOKED_AT:]):
        return _read_codex(listed, told=told)
    start = body.system[:_LOOKED_AT] or listed[: len(_OPENCODE) + 400]
    if _OPENCODE.encode() in start and not offers_tools(body):
        return _read_opencode(listed)
    return None


def _read_claude(listed: bytes) -> ClientCompaction | None:
    messages = slice_messages(listed)
    last = None if messages is None else _parse(messages[-1])
    if messages is None or last is None or last.get("role") != "user":
        return None
    content = last.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    asked = blocks[-1].get("text") if blocks and isinstance(blocks[-1], dict) else None
    if not isinstance(asked, str) or not asked.startswith(_CLAUDE) or _CLAUDE_FORM not in asked:
        return None
    rest = [encode_wire({**last, "content": blocks[:-1]})] if blocks[:-1] else []
    focus = _INSTRUCTIONS.search(asked)
    return ClientCompaction(
        client="claude",
        messages=(*messages[:-1], *rest),
        focus=None if focus is None else focus[1].strip()[:_FOCUS_CHARS] or None,
    )


def _read_codex(listed: bytes, *, told: bool) -> ClientCompaction | None:
    messages = slice_messages(listed)
    last = None if messages is None else _parse(messages[-1])
    if messages is None or last is None or last.get("role") != "user":
        return None
    if not told and _CODEX not in _read_text(last)[:400]:
        return None
    return ClientCompaction(client="codex", messages=tuple(messages[:-1]))


def _read_opencode(listed: bytes) -> ClientCompaction | None:
    messages = slice_messages(listed)
    last = None if messages is None else _parse(messages[-1])
    found = None if last is None else _TRANSCRIPT.search(_read_text(last))
    return None if found is None else ClientCompaction(client="opencode", transcript=found[1])


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        message = parse_json(raw)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _read_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


# Answers.


def answer_in_form(
    text: str, compaction: ClientCompaction, body: RequestBody, number: str, created: int, tokens: int
) -> OwnAnswer:
    """Returns the answer with a handoff, in the form that the client reads and the dialect that it speaks, streamed or not."""
    said = text
    if compaction.client == "claude":
        plain = _BLANK_LINES.sub("\n\n", _FORM_TAGS.sub(r"<\1 \2>", text))
        said = f"<summary>\n{_REPLACED.sub('$$', plain)}\n</summary>"
    if body.dialect == "chat":
        return _answer_chat(said, body, number, created, tokens)
    if body.dialect == "anthropic":
        return _answer_anthropic(said, body, number, tokens)
    return _answer_responses(said, body, number, created, tokens)


def _answer_chat(text: str, body: RequestBody, number: str, created: int, tokens: int) -> OwnAnswer:
    head = {"id": f"chatcmpl-{number}", "created": created, "model": body.model}
    usage = {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens}
    if not body.streams:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        told = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return OwnAnswer(status=200, body=encode_wire(told), content_type="application/json")
    chunk = {**head, "object": "chat.completion.chunk"}
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"content": text}, None),
        ({}, "stop"),
    ]
    chunks = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in deltas
    ]
    if b"include_usage" in body.fields.get("stream_options", b""):
        chunks.append({**chunk, "choices": [], "usage": usage})
    lines = [b"data: " + encode_wire(one) + b"\n\n" for one in chunks]
    return OwnAnswer(
        status=200, body=b"".join([*lines, b"data: [DONE]\n\n"]), content_type="text/event-stream"
    )


def _answer_anthropic(text: str, body: RequestBody, number: str, tokens: int) -> OwnAnswer:
    message: dict[str, Any] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body.model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": tokens},
    }
    if not body.streams:
        return OwnAnswer(status=200, body=encode_wire(message), content_type="application/json")
    begun = {**message, "content": [], "stop_reason": None}
    return write_stream(
        [
            {"type": "message_start", "message": {**begun, "usage": {"input_tokens": 0, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": tokens},
            },
            {"type": "message_stop"},
        ]
    )


def _answer_responses(text: str, body: RequestBody, number: str, created: int, tokens: int) -> OwnAnswer:
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item: dict[str, Any] = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
    done = {**item, "status": "completed", "content": [part]}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    empty = {**part, "text": ""}
    return write_response(
        body,
        done,
        [
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {**item, "status": "in_progress", "content": []},
            },
            {"type": "response.content_part.added", **place, "part": empty},
            {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []},
            {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
            {"type": "response.output_item.done", "output_index": 0, "item": done},
        ],
        number,
        created,
        tokens,
    )
