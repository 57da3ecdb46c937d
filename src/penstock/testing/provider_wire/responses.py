"""Answers of OpenAI Responses: a list of items, and a stream that announces, fills and closes each of them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from penstock.providers.exchange import Finish
from penstock.testing.provider_wire.served import CREATED, Frame, Served, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.measure.usage import Usage
    from penstock.testing.scripted import Failure

__all__ = ["body", "closing", "content", "failing", "number", "wires"]

_INCOMPLETE: dict[Finish, dict[str, str] | None] = {
    Finish.LENGTH: {"reason": "max_output_tokens"},
    Finish.REFUSED: {"reason": "content_filter"},
    Finish.OTHER: None,
}


def body(served: Served) -> dict[str, Any]:
    """Returns the whole answer."""
    finished = served.reply.finished
    return _response(served, "incomplete" if finished in _INCOMPLETE else "completed") | {
        "incomplete_details": _INCOMPLETE.get(finished),
        "output": list(wires(served)),
        "usage": _usage(served.usage),
    }


def wires(served: Served) -> tuple[Any, ...]:
    """Returns the items to append."""
    status = "incomplete" if served.reply.finished in _INCOMPLETE else "completed"
    return tuple(_fill(item, text, status) for item, text in _items(served))


def content(served: Served) -> Iterator[Frame]:
    """Yields the opening and every item."""
    opening = _response(served, "in_progress")
    yield _event("response.created", response=opening)
    yield _event("response.in_progress", response=opening)
    for index, (item, text) in enumerate(_items(served)):
        yield _event("response.output_item.added", output_index=index, item=item)
        place = {"item_id": item["id"], "output_index": index}
        yield from _FILLING[item["type"]](served, text, place)
        done = _fill(item, text, "completed")
        yield _event("response.output_item.done", output_index=index, item=done)


def closing(served: Served) -> Iterator[Frame]:
    """Yields the whole answer once more."""
    whole = body(served)
    yield _event(f"response.{whole['status']}", response=whole)


def failing(served: Served, failure: Failure) -> Iterator[Frame]:
    """Yields an error in the midst of a stream, and the response that failed by it."""
    error = failure.answer("responses", served.number).body
    error = error.get("error", error) if isinstance(error, dict) else {"message": str(error)}
    told = {"code": error.get("code") or "server_error", "message": error.get("message", "")}
    yield _event("error", **told, param=error.get("param"))
    yield _event("response.failed", response=_response(served, "failed") | {"error": told})


def number(frames: Iterator[Frame]) -> Iterator[Frame]:
    """Yields the events, numbered from 0 as the API does."""
    for position, frame in enumerate(frames):
        data = frame.data
        yield Frame(frame.event, data | {"sequence_number": position} if isinstance(data, dict) else data)


def _event(name: str, **fields: Any) -> Frame:
    return Frame(name, {"type": name, **fields})


def _response(served: Served, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_scripted{served.number:04}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": served.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "metadata": {},
    }


def _items(served: Served) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields each item as it opens, with the text that fills it."""
    reply = served.reply
    if reply.reasoning:
        sealed = base64.b64encode(f"scripted reasoning {served.number}".encode()).decode()
        item = {"id": f"rs_{served.number:04}", "type": "reasoning", "summary": []}
        yield item | {"encrypted_content": sealed}, reply.reasoning
    if reply.text or not reply.calls:
        item = {"id": f"msg_{served.number:04}", "type": "message", "status": "in_progress"}
        yield item | {"role": "assistant", "content": []}, reply.text
    for index, call in enumerate(served.calls, start=1):
        item = {"id": f"fc_{served.number:04}_{index}", "type": "function_call", "status": "in_progress"}
        yield item | {"call_id": call.id, "name": call.name, "arguments": ""}, call.arguments


def _fill(item: dict[str, Any], text: str, status: str) -> dict[str, Any]:
    match item["type"]:
        case "reasoning":
            return item | {"summary": [{"type": "summary_text", "text": text}]}
        case "message":
            return item | {"status": status, "content": [_text_part(text)]}
        case _:
            return item | {"status": status, "arguments": text}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _fill_message(served: Served, text: str, place: dict[str, Any]) -> Iterator[Frame]:
    place = place | {"content_index": 0}
    yield _event("response.content_part.added", **place, part=_text_part(""))
    for piece in pieces(text, served):
        yield _event("response.output_text.delta", **place, delta=piece, logprobs=[])
    yield _event("response.output_text.done", **place, text=text, logprobs=[])
    yield _event("response.content_part.done", **place, part=_text_part(text))


def _fill_reasoning(served: Served, text: str, place: dict[str, Any]) -> Iterator[Frame]:
    place = place | {"summary_index": 0}
    part = {"type": "summary_text"}
    yield _event("response.reasoning_summary_part.added", **place, part=part | {"text": ""})
    for piece in pieces(text, served):
        yield _event("response.reasoning_summary_text.delta", **place, delta=piece)
    yield _event("response.reasoning_summary_text.done", **place, text=text)
    yield _event("response.reasoning_summary_part.done", **place, part=part | {"text": text})


def _fill_call(served: Served, text: str, place: dict[str, Any]) -> Iterator[Frame]:
    for piece in pieces(text, served):
        yield _event("response.function_call_arguments.delta", **place, delta=piece)
    yield _event("response.function_call_arguments.done", **place, arguments=text)


_FILLING = {"message": _fill_message, "reasoning": _fill_reasoning, "function_call": _fill_call}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
