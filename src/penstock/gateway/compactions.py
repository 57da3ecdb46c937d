"""The providers' compaction protocols: what a request asks for in one of them, and the answers in its form. Pure.

OpenAI's is `{"type": "compaction_trigger"}` as the last item, `POST /responses/compact`, and a `context_management` entry
with a threshold; Anthropic's is the edit `compact_20260112`. What we give is one item or block with a sealed handoff.
When it comes back, the handoff stands in its place as a message; a provider's own compaction is never touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from penstock.conversation.dialects.wire_kinds import RESPONSES_ITEMS, Nature
from penstock.conversation.wire import encode_wire, parse_json
from penstock.gateway.exchange import OwnAnswer
from penstock.gateway.sealing import TOKEN_START
from penstock.gateway.splicing import RequestBody, put_messages

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = [
    "CompactionAsked",
    "answer_compact",
    "answer_pause",
    "answer_trigger",
    "concerns_compaction",
    "drop_request",
    "find_tokens",
    "open_items",
    "read_asked",
    "write_block_events",
    "write_event",
    "write_item",
    "write_response",
    "write_stream",
]

_START: Final = TOKEN_START.encode()
_TRIGGER: Final = b"compaction_trigger"
_TRIGGER_BYTES: Final = 400  # the item is a type, and perhaps an id
_EDIT: Final = "compact_20260112"
_EDIT_TOKENS: Final = 150_000  # Anthropic's own default
_KEPT_ROLES: Final = frozenset({"user", "developer", "system"})
_JSON: Final = "application/json"
_STREAM: Final = "text/event-stream"


class CompactionAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that a request asks for: now, or in passing from so many tokens on."""

    form: Literal["trigger", "endpoint", "passing"]
    from_tokens: int = 0
    pauses: bool = False
    """True where the caller wants the block alone, and asks for the answer afterwards."""
    focus: str | None = None
    """The caller's own words on what matters."""


class _Item(msgspec.Struct, frozen=True):
    """The fields that decide about an item of the Responses API."""

    type: Any = None
    role: Any = None
    call_id: Any = None
    encrypted_content: Any = None


_ITEM: Final = msgspec.json.Decoder(_Item)


# What is asked.


def concerns_compaction(body: RequestBody) -> bool:
    """Returns False for nearly all requests, after a look at their bytes: they neither ask for a compaction nor bring one."""
    return body.dialect != "chat" and (
        b"compact" in body.fields.get("context_management", b"")
        or _START in body.listed
        or (body.dialect == "responses" and _TRIGGER in body.listed[-_TRIGGER_BYTES:])
    )


def read_asked(body: RequestBody, messages: Sequence[bytes], *, endpoint: bool) -> CompactionAsked | None:
    """Returns the compaction that the request asks for; None where it asks for none that we know."""
    if body.dialect == "responses":
        if endpoint:
            return CompactionAsked(form="endpoint")
        last = messages[-1]
        if len(last) < _TRIGGER_BYTES and _TRIGGER in last and _read_item(last).type == "compaction_trigger":
            return CompactionAsked(form="trigger") if len(messages) > 1 else None
        for entry in _entries(body):
            least = _read_count(entry.get("compact_threshold"))
            if entry.get("type") == "compaction" and least:
                return CompactionAsked(form="passing", from_tokens=least)
    elif body.dialect == "anthropic":
        for entry in _entries(body):
            if entry.get("type") == _EDIT:
                trigger = entry.get("trigger")
                least = _read_count(trigger.get("value")) if isinstance(trigger, dict) else 0
                words = entry.get("instructions")
                return CompactionAsked(
                    form="passing",
                    from_tokens=least or _EDIT_TOKENS,
                    pauses=entry.get("pause_after_compaction") is True,
                    focus=words if isinstance(words, str) and words else None,
                )
    return None


def drop_request(body: RequestBody, messages: Sequence[bytes], asked: CompactionAsked) -> RequestBody:
    """Returns the body without what asked for the compaction; all else of it stays as it came."""
    if asked.form == "trigger":
        return put_messages(body, messages[:-1])
    if asked.form == "endpoint":
        return body
    fields = dict(body.fields)
    ours = "compaction" if body.dialect == "responses" else _EDIT
    rest = [entry for entry in _entries(body) if entry.get("type") != ours]
    if body.dialect == "responses":
        told: Any = rest
    else:
        told = {**parse_json(fields["context_management"]), "edits": rest}
        if not rest and len(told) == 1:
            told = None
    if told:
        fields["context_management"] = encode_wire(told)
    else:
        del fields["context_management"]
    return RequestBody(body.dialect, fields)


def _entries(body: RequestBody) -> list[dict[str, Any]]:
    """Returns the entries of `context_management`, of either form."""
    raw = body.fields.get("context_management")
    if raw is None:
        return []
    try:
        told = parse_json(raw)
    except ValueError:
        return []
    if body.dialect == "anthropic":
        told = told.get("edits") if isinstance(told, dict) else None
    return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []


def _read_count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _read_item(raw: bytes) -> _Item:
    try:
        return _ITEM.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _Item()


# What comes back.


def find_tokens(messages: Sequence[bytes], dialect: str) -> dict[int, str]:
    """Returns our own sealed tokens in the messages, by their places: the last one of each message."""
    found: dict[int, str] = {}
    for at, raw in enumerate(messages):
        for token in _list_tokens(raw, dialect) if _START in raw else ():
            found[at] = token
    return found


def _list_tokens(raw: bytes, dialect: str) -> list[str]:
    """Returns the sealed tokens that an item or the blocks of a message hold."""
    if dialect == "responses":
        item = _read_item(raw)
        return [item.encrypted_content] if _is_ours(item.type, item.encrypted_content) else []
    if dialect != "anthropic":
        return []
    try:
        content = parse_json(raw).get("content")
    except ValueError:
        return []
    blocks = content if isinstance(content, list) else []
    return [block["encrypted_content"] for block in blocks if _is_our_block(block)]


def _is_our_block(block: Any) -> bool:
    return isinstance(block, dict) and _is_ours(block.get("type"), block.get("encrypted_content"))


def _is_ours(kind: Any, token: Any) -> bool:
    return kind == "compaction" and isinstance(token, str) and token.startswith(TOKEN_START)


def open_items(
    messages: Sequence[bytes], dialect: str, text: str, at: int, ours: Collection[int] = ()
) -> tuple[list[bytes], int]:
    """Returns the messages with a handoff in place of what stands at `at`, and how many of them stand up to it.

    What the handoff stands for is left out; `ours` are the places of our own items. Of the Responses API, what people and the
    client's own instructions say stays, as Codex keeps it; so do what must never go, and a call whose result comes later.
    """
    after = messages[at + 1 :]
    if dialect == "anthropic":
        rest = _rest_of_blocks(messages[at]) if at < len(messages) else b""
        tail = [rest, *after] if rest else list(after)
        if tail and parse_json(tail[0]).get("role") == "user":  # two of them would follow each other
            return [_join_user(text, tail[0]), *tail[1:]], 0
        return [encode_wire({"role": "user", "content": [{"type": "text", "text": text}]}), *tail], 1
    later = {_read_item(raw).call_id for raw in after} - {None}
    kept = [raw for place, raw in enumerate(messages[:at]) if place not in ours and _stays(raw, later)]
    kept.append(encode_wire(_write_message(text)))
    return [*kept, *after], len(kept)


def _write_message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _stays(raw: bytes, later: Collection[Any] = ()) -> bool:
    item = _read_item(raw)
    if item.type in {None, "message"}:
        return item.role in _KEPT_ROLES
    if item.call_id is not None and item.call_id in later:
        return True
    kind = RESPONSES_ITEMS.get(item.type) if isinstance(item.type, str) else None
    return kind is None or kind.nature in {Nature.BARRIER, Nature.STANDING}


def _rest_of_blocks(raw: bytes) -> bytes:
    """Returns an assistant's message behind our block; empty where nothing is there."""
    message = parse_json(raw)
    blocks = message["content"]
    last = max(at for at, block in enumerate(blocks) if _is_our_block(block))
    return encode_wire({**message, "content": blocks[last + 1 :]}) if blocks[last + 1 :] else b""


def _join_user(text: str, raw: bytes) -> bytes:
    message = parse_json(raw)
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return encode_wire({**message, "content": [{"type": "text", "text": text}, *blocks]})


# Answers.


def write_item(token: str, text: str, dialect: str, request_id: str) -> dict[str, Any]:
    """Returns the item or block that holds a sealed handoff."""
    if dialect == "anthropic":
        return {"type": "compaction", "content": text, "encrypted_content": token}
    return {"type": "compaction", "id": f"cmp_{request_id}", "encrypted_content": token}


def answer_trigger(
    item: Mapping[str, Any], body: RequestBody, request_id: str, created: int, tokens: int
) -> OwnAnswer:
    """Returns the answer to a trigger: one item, streamed where the caller wants that."""
    steps = [
        {"type": f"response.output_item.{step}", "output_index": 0, "item": item}
        for step in ("added", "done")
    ]
    return write_response(body, item, steps, request_id, created, tokens)


def write_response(
    body: RequestBody,
    item: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    request_id: str,
    created: int,
    tokens: int,
) -> OwnAnswer:
    """Returns an answer of the Responses API with one item; `steps` are the events that bring it in a stream."""
    response = {
        "id": f"resp_{request_id}",
        "object": "response",
        "created_at": created,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": body.model,
        "output": [item],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(tokens),
        "metadata": {},
    }
    if not body.streams:
        return OwnAnswer(status=200, body=encode_wire(response), content_type=_JSON)
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[Mapping[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *steps,
        {"type": "response.completed", "response": response},
    ]
    return write_stream([{**event, "sequence_number": number} for number, event in enumerate(events)])


def answer_compact(
    item: Mapping[str, Any], messages: Sequence[bytes], request_id: str, created: int, tokens: int
) -> OwnAnswer:
    """Returns the answer of `POST /responses/compact`: what people and instructions say, and behind them the item."""
    kept = [
        _complete(parse_json(raw), f"msg_{request_id}{at}") for at, raw in enumerate(messages) if _stays(raw)
    ]
    told = {
        "id": f"resp_{request_id}",
        "object": "response.compaction",
        "created_at": created,
        "output": [*kept, item],
        "usage": _usage(tokens),
    }
    return OwnAnswer(status=200, body=encode_wire(told), content_type=_JSON)


def _complete(item: dict[str, Any], item_id: str) -> dict[str, Any]:
    """Returns an item of a request as an answer has it: input may leave out what output must say."""
    if item.get("type", "message") != "message":
        return item
    content = item.get("content")
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    return {"id": item_id, "status": "completed", **item, "type": "message", "content": content}


def answer_pause(block: Mapping[str, Any], body: RequestBody, request_id: str) -> OwnAnswer:
    """Returns Anthropic's answer of a compaction after which the caller wants to be asked: the block alone."""
    message = {
        "id": f"msg_{request_id}",
        "type": "message",
        "role": "assistant",
        "model": body.model,
        "content": [block],
        "stop_reason": "compaction",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    if not body.streams:
        return OwnAnswer(status=200, body=encode_wire(message), content_type=_JSON)
    return write_stream(
        [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
            *write_block_events(block),
            {
                "type": "message_delta",
                "delta": {"stop_reason": "compaction", "stop_sequence": None},
                "usage": {"output_tokens": 0},
            },
            {"type": "message_stop"},
        ]
    )


def write_block_events(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the events of a stream that bring our block as the first one of a message."""
    begun = {"type": "compaction", "content": None, "encrypted_content": None}
    return [
        {"type": "content_block_start", "index": 0, "content_block": begun},
        {"type": "content_block_delta", "index": 0, "delta": {**block, "type": "compaction_delta"}},
        {"type": "content_block_stop", "index": 0},
    ]


def _usage(tokens: int) -> dict[str, Any]:
    """Returns the usage of an answer that no model was asked for: the handoff is all that it made."""
    return {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens,
    }


def write_stream(events: Sequence[Mapping[str, Any]]) -> OwnAnswer:
    """Returns an answer in events, all at once."""
    return OwnAnswer(status=200, body=b"".join(map(write_event, events)), content_type=_STREAM)


def write_event(event: Mapping[str, Any]) -> bytes:
    """Returns an event as it stands in a stream."""
    return (
        b"event: "
        + str(event["type"]).encode("utf-8", "replace")
        + b"\ndata: "
        + encode_wire(event)
        + b"\n\n"
    )
