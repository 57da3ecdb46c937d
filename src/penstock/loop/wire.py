"""Writes tools, their results and attachments in each dialect. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Message, Role
from penstock.conversation.wire import json_text, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.conversation.message import ToolResult
    from penstock.transfer.convert import Picture

__all__ = ["is_whole", "mend_calls", "results_in", "tools_in", "write_user_message"]

_UNREADABLE = 2_000  # characters that are kept of arguments that cannot be read


def tools_in(dialect: str, schemas: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns function tools in OpenAI's chat format as the dialect takes them."""
    return [_tool(dialect, schema["function"], schema) for schema in schemas]


def results_in(dialect: str, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
    """Returns the messages that answer a batch of calls: one for all, or one for each."""
    spoken = dialect_named(dialect)
    if not results:
        return []
    groups = [tuple(results)] if spoken.results_share is not None else [(one,) for one in results]
    return [spoken.build(Message(Role.TOOL, group)) for group in groups]


def write_user_message(dialect: str, text: str, pictures: Sequence[Picture] = ()) -> dict[str, Any]:
    """Returns a user message: plain text, or pictures followed by text."""
    if not pictures:
        return dialect_named(dialect).text_message(Role.USER, text)
    kind = "input_text" if dialect == "responses" else "text"
    words = [{"type": kind, "text": text}] if text else []
    message = {
        "role": "user",
        "content": [*(_write_picture(dialect, picture) for picture in pictures), *words],
    }
    return {"type": "message", **message} if dialect == "responses" else message


def _write_picture(dialect: str, picture: Picture) -> dict[str, Any]:
    match dialect:
        case "anthropic":
            source = {"type": "base64", "media_type": picture.media_type, "data": picture.data}
            return {"type": "image", "source": source}
        case "responses":
            return {"type": "input_image", "image_url": picture.address}
        case _:
            return {"type": "image_url", "image_url": {"url": picture.address}}


def mend_calls(dialect: str, wires: Sequence[Any]) -> list[Any]:
    """Returns the messages of an answer; arguments that are not a JSON object are wrapped in one.

    Servers that read the calls of earlier turns (vLLM, llama.cpp) would refuse every later request because of them.
    """
    if dialect != "chat":
        return list(wires)
    return [_sound(wire) if isinstance(wire, dict) and wire.get("tool_calls") else wire for wire in wires]


def _sound(wire: dict[str, Any]) -> dict[str, Any]:
    calls = [
        call
        if is_whole(text := call["function"]["arguments"])
        else {
            **call,
            "function": {**call["function"], "arguments": json_text({"unreadable": text[:_UNREADABLE]})},
        }
        for call in wire["tool_calls"]
    ]
    return {**wire, "tool_calls": calls}


def is_whole(arguments: str) -> bool:
    """Returns True if the arguments of a call are a JSON object, or empty."""
    try:
        return not arguments.strip() or isinstance(parse_json(arguments), dict)
    except ValueError:
        return False


def _tool(dialect: str, function: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    match dialect:
        case "anthropic":
            about = {name: function[name] for name in ("name", "description") if name in function}
            return {**about, "input_schema": function["parameters"]}
        case "responses":
            return {"type": "function", **function}
        case _:
            return dict(schema)
