"""Tools of installed packages: an entry point in the group `penstock.tools` names a class or function that makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock._installed import list_points
from penstock.loop.approvals import Access

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.loop.tools import Tool

__all__ = ["TOOL_GROUP", "InstalledTools", "explain_tool_fault", "find_installed_tools"]

TOOL_GROUP = "penstock.tools"


class InstalledTools(msgspec.Struct, frozen=True):
    """The tools that can be used, and why others cannot."""

    tools: tuple[Tool, ...]
    failures: tuple[str, ...]


def find_installed_tools(taken: Collection[str]) -> InstalledTools:
    """Returns the tools of installed packages. One whose name is taken is left out, with the reason."""
    tools: dict[str, Tool] = {}
    failures: list[str] = []
    for point in list_points(TOOL_GROUP):
        try:
            made: Any = point.load()()
        except Exception as error:  # noqa: BLE001 - code of others, which may raise anything; the person is told
            failures.append(
                f"the tool {point.name!r} of {point.value} cannot be used: {type(error).__name__}: {error}"
            )
            continue
        fault = explain_tool_fault(made)
        if not fault and (made.name in taken or made.name in tools):
            fault = f"the name {made.name!r} is taken"
        if fault:
            failures.append(f"the tool {point.name!r} of {point.value} cannot be used: {fault}")
        else:
            tools[made.name] = made
    return InstalledTools(tuple(tools.values()), tuple(failures))


def explain_tool_fault(tool: Any) -> str:
    """Returns why this cannot be a tool; empty if it can."""
    for field, kind in (("name", str), ("description", str), ("access", Access)):
        if not isinstance(getattr(tool, field, None), kind) or not getattr(tool, field):
            return f"it has no {field}"
    if not isinstance(getattr(tool, "parameters", None), dict) or tool.parameters.get("type") != "object":
        return "its parameters are not a JSON schema of an object"
    if not callable(getattr(tool, "run", None)) or not hasattr(tool, "most_chars"):
        return "it has no run and no most_chars"
    return ""
