"""Tools and their results as each dialect writes them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Message, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.conversation.message import ToolResult

__all__ = ["results_in", "tools_in"]


def tools_in(dialect: str, schemas: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Function tools in OpenAI's chat format, as the dialect takes them."""
    return [_tool(dialect, schema["function"], schema) for schema in schemas]


def results_in(dialect: str, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
    """The messages that answer a batch of calls: one for all, or one for each."""
    spoken = dialect_named(dialect)
    if not results:
        return []
    groups = [tuple(results)] if spoken.results_share is not None else [(one,) for one in results]
    return [spoken.build(Message(Role.TOOL, group)) for group in groups]


def _tool(dialect: str, function: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    match dialect:
        case "anthropic":
            about = {name: function[name] for name in ("name", "description") if name in function}
            return {**about, "input_schema": function["parameters"]}
        case "responses":
            return {"type": "function", **function}
        case _:
            return dict(schema)
