"""The same message as another client, or the same client a request later, would send it."""

from __future__ import annotations

from typing import Any

__all__ = ["respell"]


def respell(wire: dict[str, Any]) -> dict[str, Any]:
    """Returns the message with its text as a list where it was a string and the other way round, a mark, and no ids."""
    wire = {key: value for key, value in wire.items() if key not in ("id", "status", "phase")}
    content = wire.get("content")
    kind = {"assistant": "output_text"}.get(wire.get("role", ""), "input_text") if "type" in wire else "text"
    if isinstance(content, str) and content and wire.get("role") != "tool":
        wire["content"] = [{"type": kind, "text": content, "cache_control": {"type": "ephemeral"}}]
    elif isinstance(content, list) and len(content) == 1 and content[0].get("type") in ("text", "input_text"):
        wire["content"] = content[0]["text"]
    return wire
