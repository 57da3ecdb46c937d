"""Answers of Anthropic Messages."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from penstock.conversation.wire import parse_json
from penstock.providers.exchange import Finish
from penstock.testing.provider_wire.served import Frame, Served, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.measure.usage import Usage
    from penstock.testing.scripted import Failure

__all__ = ["body", "closing", "content", "failing", "wires"]

_FINISH = {
    Finish.STOP: "end_turn",
    Finish.LENGTH: "max_tokens",
    Finish.TOOL_CALLS: "tool_use",
    Finish.REFUSED: "refusal",
    Finish.OTHER: "pause_turn",
}


def body(served: Served) -> dict[str, Any]:
    """Returns the whole answer."""
    return _message(served) | {
        "content": _blocks(served),
        "stop_reason": _FINISH[served.reply.finished],
        "usage": _usage(served.usage),
    }


def wires(served: Served) -> tuple[Any, ...]:
    """Returns the message to append; none if the model said nothing, since an empty one is not allowed."""
    blocks = _blocks(served)
    return ({"role": "assistant", "content": blocks},) if blocks else ()


def content(served: Served) -> Iterator[Frame]:
    """Yields the opening and every block."""
    opening = _message(served) | {"content": [], "usage": _usage(served.usage) | {"output_tokens": 1}}
    yield Frame("message_start", {"type": "message_start", "message": opening})
    yield Frame("ping", {"type": "ping"})
    for index, (block, deltas) in enumerate(_block_deltas(served)):
        yield Frame(
            "content_block_start", {"type": "content_block_start", "index": index, "content_block": block}
        )
        for delta in deltas:
            yield Frame(
                "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
            )
        yield Frame("content_block_stop", {"type": "content_block_stop", "index": index})


def closing(served: Served) -> Iterator[Frame]:
    """Yields the reason to stop with the usage, and the end."""
    delta = {"stop_reason": _FINISH[served.reply.finished], "stop_sequence": None}
    usage = _usage(served.usage)
    del usage["cache_creation"], usage["service_tier"]
    yield Frame("message_delta", {"type": "message_delta", "delta": delta, "usage": usage})
    yield Frame("message_stop", {"type": "message_stop"})


def failing(served: Served, failure: Failure) -> Iterator[Frame]:
    """Yields an error in the midst of a stream."""
    yield Frame("error", failure.answer("anthropic", served.number).body)


def _message(served: Served) -> dict[str, Any]:
    return {
        "id": f"msg_scripted{served.number:04}",
        "type": "message",
        "role": "assistant",
        "model": served.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _blocks(served: Served) -> list[dict[str, Any]]:
    reply = served.reply
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": _signature(served)})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
        for call in served.calls
    ]
    return blocks


def _block_deltas(served: Served) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yields each block as it opens, with the pieces that fill it."""
    reply = served.reply
    if reply.reasoning:
        thoughts = [
            {"type": "thinking_delta", "thinking": piece} for piece in pieces(reply.reasoning, served)
        ]
        seal = {"type": "signature_delta", "signature": _signature(served)}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, seal]
    if reply.text:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in pieces(reply.text, served)],
        )
    for call in served.calls:
        bits = ["", *pieces(call.arguments, served)]
        yield (
            {"type": "tool_use", "id": call.id, "name": call.name, "input": {}},
            [{"type": "input_json_delta", "partial_json": bit} for bit in bits],
        )


def _signature(served: Served) -> str:
    return base64.b64encode(f"scripted reasoning {served.number}".encode()).decode()


def _input(arguments: str) -> Any:
    """Returns the arguments as an object: this API sends no other kind, so what is none becomes an empty one."""
    try:
        parsed = parse_json(arguments or "{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _usage(usage: Usage) -> dict[str, Any]:
    written = {
        "ephemeral_5m_input_tokens": usage.cache_write_tokens - usage.cache_write_1h_tokens,
        "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
    }
    fields = {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation": written,
        "output_tokens": usage.output_tokens,
        "service_tier": "standard",
    }
    if usage.reasoning_tokens:
        fields["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return fields
