"""Conversations without a dialect, and how each dialect writes them on the wire.

What a strategy draws is a list of turns; the writers give it the shape of a dialect, with the unknown fields,
batches and orders that are seen in the wild.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Call", "Turn", "Wire", "write"]

_PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (640).to_bytes(4, "big") + (480).to_bytes(4, "big") + bytes(16)
).decode()

Wire = dict[str, Any]


class Call(NamedTuple):
    """A call and what it returned."""

    name: str
    arguments: dict[str, Any]
    output: str
    has_image: bool
    is_error: bool


class Turn(NamedTuple):
    """A request, the rounds of calls that it led to, and the answer: a conversation without a dialect."""

    request: str
    has_image: bool
    rounds: list[list[Call]]
    says: str
    thinks: str
    answer: str
    extra: bool


def write(dialect_name: str, turns: list[Turn], has_system: bool, shape: int) -> list[Wire]:
    """The turns as a legal conversation of the dialect. `shape` (0 to 3) chooses among the ways to write it."""
    return _WRITERS[dialect_name](turns, has_system, shape)


def _flatten(turns: list[Turn]) -> list[tuple[str, Any, int]]:
    """The turns as steps: (kind, content, number), numbers growing."""
    steps: list[tuple[str, Any, int]] = []
    for turn in turns:
        steps.append(("request", turn, len(steps)))
        steps += [("round", (turn, calls), len(steps) + index) for index, calls in enumerate(turn.rounds)]
        steps.append(("answer", turn, len(steps)))
    return steps


def _id(number: int, index: int) -> str:
    return f"call_{number}_{index}"


def _extras(turn: Turn) -> Wire:
    return {"x_provider": {"trace": [1, None, "é"]}} if turn.extra else {}


def _write_chat(turns: list[Turn], has_system: bool, shape: int) -> list[Wire]:
    wires: list[Wire] = [
        {"role": "developer" if shape == 1 else "system", "content": "Be brief."}
    ] * has_system
    for kind, content, number in _flatten(turns):
        if kind == "request":
            blocks: list[Wire] = [{"type": "text", "text": content.request}]
            if content.has_image:
                blocks.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PNG}"}})
            if content.extra:
                blocks.append({"type": "x_unknown", "payload": {"n": number}})
            plain = len(blocks) == 1 and shape != 2
            wires.append(
                {"role": "user", "content": content.request if plain else blocks, **_extras(content)}
            )
        elif kind == "round":
            wires += _chat_round(content[0], content[1], number, shape)
        else:
            wires.append(
                {"role": "assistant", "content": content.answer, "refusal": None, **_extras(content)}
            )
    return wires


def _chat_round(turn: Turn, calls: list[Call], number: int, shape: int) -> list[Wire]:
    made = [
        {
            "id": _id(number, index),
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=shape == 0)},
        }
        for index, call in enumerate(calls)
    ]
    wire: Wire = {
        "role": "assistant",
        "content": turn.says if shape else turn.says or None,
        "tool_calls": made,
    }
    if turn.thinks:
        wire["reasoning_content"] = turn.thinks
    results: list[Wire] = []
    for index, call in enumerate(calls):
        as_list = [{"type": "text", "text": call.output}]
        content = as_list if shape == 2 else call.output
        results.append(
            {"role": "tool", "tool_call_id": _id(number, index), "name": call.name, "content": content}
        )
    return [wire, *(results[::-1] if shape == 3 else results)]


def _write_anthropic(turns: list[Turn], has_system: bool, shape: int) -> list[Wire]:
    wires: list[Wire] = []
    for kind, content, number in _flatten(turns):
        if kind == "request":
            wires.append({"role": "user", "content": _anthropic_request(content, shape)})
            if has_system and number == 0:
                wires.append({"role": "system", "content": "A reminder."})
        elif kind == "round":
            wires += _anthropic_round(content[0], content[1], number, shape)
        else:
            answer: Any = content.answer
            if shape == 2 or content.thinks:
                thinking = {"type": "thinking", "thinking": content.thinks, "signature": f"sig{number}"}
                answer = [thinking] * bool(content.thinks) + [{"type": "text", "text": content.answer}]
            wires.append({"role": "assistant", "content": answer, **_extras(content)})
    return wires


def _anthropic_request(turn: Turn, shape: int) -> Any:
    blocks: list[Wire] = [{"type": "text", "text": turn.request}]
    if turn.has_image:
        source = {"type": "base64", "media_type": "image/png", "data": _PNG}
        blocks.append({"type": "image", "source": source})
    if turn.extra:
        blocks.append({"type": "document", "source": {"type": "text", "data": "x"}, "title": turn.request})
    if shape == 1:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    return turn.request if len(blocks) == 1 and shape == 0 else blocks


def _anthropic_round(turn: Turn, calls: list[Call], number: int, shape: int) -> list[Wire]:
    blocks: list[Wire] = []
    if turn.thinks:
        blocks.append({"type": "thinking", "thinking": turn.thinks, "signature": f"sig{number}"})
    if shape == 3:
        blocks.append({"type": "redacted_thinking", "data": f"sealed{number}"})
    if turn.says.strip():
        blocks.append({"type": "text", "text": turn.says})
    results: list[Wire] = []
    for index, call in enumerate(calls):
        blocks.append(
            {
                "type": "tool_use",
                "id": _id(number, index),
                "name": call.name,
                "input": call.arguments,
                "x": index,
            }
        )
        content: Any = call.output
        if call.has_image:
            source = {"type": "base64", "media_type": "image/png", "data": _PNG}
            content = [{"type": "text", "text": call.output}, {"type": "image", "source": source}]
        result: Wire = {"type": "tool_result", "tool_use_id": _id(number, index), "content": content}
        results.append({**result, "is_error": True} if call.is_error else result)
    ordered = results[::-1] if shape == 3 else results
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": ordered}]


def _write_responses(turns: list[Turn], has_system: bool, shape: int) -> list[Wire]:
    developer = {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Be brief."}],
    }
    wires: list[Wire] = [developer] * has_system
    for kind, content, number in _flatten(turns):
        if kind == "request":
            blocks: list[Wire] = [{"type": "input_text", "text": content.request}]
            if content.has_image:
                blocks.append({"type": "input_image", "image_url": f"data:image/png;base64,{_PNG}"})
            plain = {"role": "user", "content": content.request}
            full = {"type": "message", "role": "user", "content": blocks, **_extras(content)}
            wires.append(plain if shape == 0 and len(blocks) == 1 else full)
        elif kind == "round":
            wires += _responses_round(content[0], content[1], number, shape)
        else:
            text = {"type": "output_text", "text": content.answer, "annotations": []}
            answer = {"type": "message", "role": "assistant", "id": f"msg_{number}", "status": "completed"}
            wires += _reasoning_item(content, number)
            wires.append({**answer, "content": [text]})
    return wires


def _reasoning_item(turn: Turn, number: int) -> list[Wire]:
    if not turn.thinks:
        return []
    summary = [{"type": "summary_text", "text": turn.thinks}]
    return [
        {
            "type": "reasoning",
            "id": f"rs_{number}",
            "summary": summary,
            "encrypted_content": f"sealed{number}",
        }
    ]


def _responses_round(turn: Turn, calls: list[Call], number: int, shape: int) -> list[Wire]:
    made: list[Wire] = []
    outputs: list[Wire] = []
    for index, call in enumerate(calls):
        call_id = _id(number, index)
        arguments = json.dumps(call.arguments)
        if shape == 1:
            made.append(
                {"type": "custom_tool_call", "call_id": call_id, "name": call.name, "input": call.output}
            )
            outputs.append({"type": "custom_tool_call_output", "call_id": call_id, "output": call.output})
            continue
        made.append({"type": "function_call", "call_id": call_id, "name": call.name, "arguments": arguments})
        blocks = [{"type": "input_text", "text": call.output}]
        output = blocks if shape == 2 else call.output
        outputs.append({"type": "function_call_output", "call_id": call_id, "output": output})
    search = [
        {
            "type": "web_search_call",
            "id": f"ws_{number}",
            "status": "completed",
            "action": {"query": turn.request},
        }
    ] * turn.extra
    if shape == 3:
        return [
            *_reasoning_item(turn, number),
            *search,
            *(item for pair in zip(made, outputs, strict=True) for item in pair),
        ]
    return [*_reasoning_item(turn, number), *search, *made, *outputs]


def _write_sharegpt(turns: list[Turn], has_system: bool, shape: int) -> list[Wire]:
    wires: list[Wire] = [{"from": "system", "value": "Be brief."}] * has_system
    for kind, content, number in _flatten(turns):
        if kind == "request":
            wires.append({"from": "human", "value": content.request, **_extras(content)})
        elif kind == "round":
            wires += _sharegpt_round(content[0], content[1], number, shape)
        else:
            wires.append({"from": "gpt", "value": content.answer})
    return wires


def _sharegpt_round(turn: Turn, calls: list[Call], number: int, shape: int) -> list[Wire]:
    blocks = [f"<think>\n{turn.thinks}\n</think>"] * bool(turn.thinks and shape == 2)
    blocks += [turn.says] * bool(turn.says.strip())
    responses: list[str] = []
    for index, call in enumerate(calls):
        named = {"id": _id(number, index)} if shape == 1 else {}
        body = json.dumps({**named, "name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        blocks.append(f"<tool_call>\n{body}\n</tool_call>")
        known = {} if shape == 3 else {"tool_call_id": _id(number, index)}
        body = json.dumps({**known, "name": call.name, "content": call.output}, ensure_ascii=False)
        responses.append(f"<tool_response>\n{body}\n</tool_response>")
    said = {"from": "gpt", "value": "\n".join(blocks)}
    if shape == 2:  # a turn for each response
        return [said, *({"from": "tool", "value": response} for response in responses)]
    return [said, {"from": "tool", "value": "\n".join(responses)}]


_WRITERS: dict[str, Callable[[list[Turn], bool, int], list[Wire]]] = {
    "chat": _write_chat,
    "anthropic": _write_anthropic,
    "responses": _write_responses,
    "sharegpt": _write_sharegpt,
}
