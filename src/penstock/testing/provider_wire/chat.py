"""Answers of OpenAI Chat Completions. Reasoning goes under `reasoning_content`, as open servers send it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.providers.exchange import Finish
from penstock.testing.provider_wire.served import CREATED, Frame, Served, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.measure.usage import Usage
    from penstock.providers.exchange import Called
    from penstock.testing.scripted import Failure

__all__ = ["body", "closing", "content", "failing", "wires"]

_FINISH = {
    Finish.STOP: "stop",
    Finish.LENGTH: "length",
    Finish.TOOL_CALLS: "tool_calls",
    Finish.REFUSED: "content_filter",
    Finish.OTHER: "error",
}


def body(served: Served) -> dict[str, Any]:
    """Returns the whole answer."""
    choice = {
        "index": 0,
        "message": wires(served)[0] | {"refusal": None, "annotations": []},
        "logprobs": None,
        "finish_reason": _FINISH[served.reply.finished],
    }
    return _head(served, "chat.completion") | {"choices": [choice], "usage": _usage(served.usage)}


def wires(served: Served) -> tuple[Any, ...]:
    """Returns the message to append."""
    reply = served.reply
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["content"] = reply.text or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in served.calls
        ]
    return (message,)


def content(served: Served) -> Iterator[Frame]:
    """Yields the chunks up to the last piece of the answer."""
    silent = served.reply.calls and not served.reply.text
    yield _chunk(served, {"role": "assistant", "content": None if silent else "", "refusal": None})
    for piece in pieces(served.reply.reasoning, served):
        yield _chunk(served, {"reasoning_content": piece})
    for piece in pieces(served.reply.text, served):
        yield _chunk(served, {"content": piece})
    for index, call in enumerate(served.calls):
        yield from _call(served, index, call)


def closing(served: Served) -> Iterator[Frame]:
    """Yields the reason to stop, the usage where it was asked for, and the end."""
    yield _chunk(served, {}, _FINISH[served.reply.finished])
    if served.include_usage:
        yield Frame(
            "", _head(served, "chat.completion.chunk") | {"choices": [], "usage": _usage(served.usage)}
        )
    yield Frame("", "[DONE]")


def failing(served: Served, failure: Failure) -> Iterator[Frame]:
    """Yields an error in the midst of a stream."""
    yield Frame("", failure.answer("chat", served.number).body)


def _head(served: Served, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-scripted{served.number:04}",
        "object": kind,
        "created": CREATED,
        "model": served.model,
        "system_fingerprint": None,
    }


def _chunk(served: Served, delta: dict[str, Any], finish: str | None = None) -> Frame:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    chunk = _head(served, "chat.completion.chunk") | {"choices": [choice]}
    return Frame("", chunk | {"usage": None} if served.include_usage else chunk)


def _call(served: Served, index: int, call: Called) -> Iterator[Frame]:
    opening = {
        "index": index,
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": ""},
    }
    yield _chunk(served, {"tool_calls": [opening]})
    for piece in pieces(call.arguments, served):
        yield _chunk(served, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


def _usage(usage: Usage) -> dict[str, Any]:
    prompt_details = {"cached_tokens": usage.cache_read_tokens, "audio_tokens": 0}
    if usage.cache_write_tokens:
        prompt_details["cache_write_tokens"] = usage.cache_write_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": prompt_details,
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
