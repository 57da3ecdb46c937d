"""The contracts of plugins beside engines, as checks that any test framework can call.

from penstock.testing import check_dialect, check_provider, check_tool

def test_my_tool():
    check_tool(MyTool)

def test_my_provider():
    check_provider(PRESET)

def test_my_dialect():
    check_dialect(DIALECT)
"""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.conversation.dialects import DIALECTS, decode_all, dialect_named
from penstock.conversation.message import Message, Role, Text, ToolCall, ToolResult
from penstock.conversation.rules import check
from penstock.engine.compress import CompressRequest, new_notebook
from penstock.errors import InputError
from penstock.installed_dialects import explain_dialect_fault
from penstock.loop.approvals import Access, Decision
from penstock.loop.installed_tools import explain_tool_fault
from penstock.loop.tools import ToolContext, ToolOutcome
from penstock.loop.workspace import Workspace
from penstock.planning.compact import compact
from penstock.providers.address import read_address
from penstock.providers.presets import PRESETS, Preset

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.conversation.dialects import Dialect
    from penstock.loop.approvals import Permission
    from penstock.loop.tools import Tool

__all__ = ["check_dialect", "check_provider", "check_tool"]

_RUBBISH: tuple[Any, ...] = ({}, {"nothing_like_it": 1}, "no JSON", "[1, 2]", None, 5)
_ROUNDS = 30
_TARGET_TOKENS = 1_500


def check_tool(make: Callable[[], Tool], folder: str = ".") -> None:
    """Raises AssertionError if hosts could not use the tool: its description, and how it takes what a model may send.

    Every approval is refused, and the tool is called with rubbish only: a sound tool changes nothing in the world.
    """
    tool = make()
    fault = explain_tool_fault(tool)
    _require(not fault, f"{tool!r} is no tool: {fault}")
    _require(
        len(tool.name) <= 64 and tool.name.replace("_", "").replace("-", "").isalnum(),
        "providers refuse its name",
    )
    json.dumps(dict(tool.parameters))
    _require(make().name == tool.name, "its name does not change")
    asked: list[Permission] = []

    async def refuse(permission: Permission) -> Decision:
        asked.append(permission)
        return Decision(allowed=False, reason="the test refuses everything")

    context = ToolContext(workspace=Workspace.at(Path(folder)), approve=refuse)
    for args in _RUBBISH:
        outcome = asyncio.run(tool.run(args, context))
        _require(isinstance(outcome, ToolOutcome), f"run({args!r}) returns a ToolOutcome")
        _require(isinstance(outcome.text, str), "its outcome is a text")
    _require(
        all(one.access is not Access.READ or one.why for one in asked), "reading is free, or it says why not"
    )


def check_provider(preset: Preset, name: str = "") -> None:
    """Raises AssertionError if the provider could not be connected to, or if its name is one of ours."""
    _require(isinstance(preset, Preset), f"a provider is a Preset, not a {type(preset).__name__}")
    _require(name not in PRESETS, f"the name {name!r} is taken")
    dialect_named(preset.dialect)
    if preset.base_url:
        address = read_address(preset.base_url)
        _require(address.encrypted or address.loopback, "a key is only sent over https, or to this machine")
    _require(
        bool(preset.key_variable) or preset.key_optional, "it names the variable of its key, or needs none"
    )


def check_dialect(dialect: Dialect) -> None:
    """Raises AssertionError if conversations could not be read, changed and compacted in the dialect.

    It builds a conversation with calls and results, reads it again, changes each message, and compacts it.
    """
    name = getattr(dialect, "name", "")
    fault = "" if DIALECTS.get(name) is dialect else explain_dialect_fault(dialect, name)
    _require(not fault, f"{dialect!r} is not a dialect: {fault}")
    meant = _make_talk(dialect)
    wires = [dialect.build(message) for message in meant]
    given = deepcopy(wires)
    messages = decode_all(dialect, wires)
    for wire, message, original in zip(wires, messages, meant, strict=True):
        json.dumps(wire)
        _require(dialect.recognises(wire), f"it recognises what it builds: {wire!r}")
        _require(message.role is original.role, f"{wire!r} is read with the role {original.role}")
        _require(_words(message) == _words(original), f"{wire!r} is read with the words that it was built of")
        _check_changes(dialect, message)
    _require(not check(messages, dialect.rules), "what it builds keeps its own rules")
    for rubbish in (*_RUBBISH, [], {"role": ["user"], "from": {}, "type": 5}):
        _check_refusal(dialect, rubbish)
    _check_compaction(dialect, wires)
    _require(wires == given, "what it is given stays as it was")


def _make_talk(dialect: Dialect) -> list[Message]:
    """Returns a conversation of which most is in results, as that of an agent."""
    talk: list[Message] = []
    for number in range(_ROUNDS):
        call = ToolCall(f"call_{number}", "read_file", json.dumps({"path": f"log/{number}.txt"}))
        lines = "\n".join(
            f"{number}.{line}: {number * 7919 + line * 31} boxes on shelf {line}" for line in range(9)
        )
        talk += [
            Message(Role.USER, (Text(f"Look at log {number}."),)),
            Message(Role.ASSISTANT, (call,)),
            Message(dialect.results_share or Role.TOOL, (ToolResult(call.call_id, lines),)),
            Message(Role.ASSISTANT, (Text(f"Log {number} is read."),)),
        ]
    return talk


def _words(message: Message) -> list[str]:
    """Returns the texts of the parts; a call's arguments without the way in which their JSON is written."""
    return [
        json.dumps([part.name, json.loads(part.arguments)]) if isinstance(part, ToolCall) else part.text
        for part in message.parts
        if isinstance(part, Text | ToolCall | ToolResult)
    ]


def _check_changes(dialect: Dialect, message: Message) -> None:
    whole = dialect.decode(dialect.keep(message, range(len(message.parts))))
    _require(_words(whole) == _words(message), "a message of which all is kept reads the same")
    for index, part in enumerate(message.parts):
        if isinstance(part, ToolResult):
            changed = dialect.decode(dialect.rewrite(message, {index: ToolResult(part.call_id, "[gone]")}))
            _require(_words(changed) == ["[gone]"], "a result can be rewritten")
        elif isinstance(part, Text):
            added = dialect.decode(dialect.append_text(message, "the end"))
            _require("".join(_words(added)).endswith("the end"), "text can be put after a message")
            added = dialect.decode(dialect.prepend_text(message, "the start"))
            _require("".join(_words(added)).startswith("the start"), "text can be put before a message")
            said = dialect.decode(dialect.text_message(message.role, part.text))
            _require(said.role is message.role and _words(said) == [part.text], "a plain message can be made")


def _check_refusal(dialect: Dialect, rubbish: Any) -> None:
    try:
        dialect.decode(rubbish)
    except InputError:
        return
    raise AssertionError(f"decode({rubbish!r}) raises InputError")


def _check_compaction(dialect: Dialect, wires: list[dict[str, Any]]) -> None:
    request = CompressRequest(target_tokens=_TARGET_TOKENS)
    book = new_notebook(None, request.settings)
    result = compact(book.open(wires, dialect), request.order(book))
    compacted = decode_all(dialect, result.encoded)
    _require(len(compacted) < len(wires), "it can be compacted")
    _require(not check(compacted, dialect.rules), "a compacted conversation keeps its rules")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)
