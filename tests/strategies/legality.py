"""What a provider would refuse in a list of messages, written from the APIs' own words and not from our rules."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.conversation.dialects.wire_kinds import RESPONSES_ITEMS, Nature

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["refusals"]

Wire = dict[str, Any]
_STANDING = {
    "item_reference",
    "context_compaction",
    "compaction_trigger",
    "additional_tools",
    "configuration_update",
}
_USES = ("server_tool_use", "mcp_tool_use")
_STANDING_BLOCKS = {"container_upload", "tool_addition", "tool_removal"}


def refusals(dialect: str, given: Sequence[Wire], sent: Sequence[Wire]) -> list[str]:
    """Returns every reason to refuse `sent`, a compaction of `given`, in words."""
    check = {"responses": _refuse_responses, "anthropic": _refuse_anthropic, "chat": _refuse_chat}[dialect]
    return [*check(sent), *_lost(dialect, given, sent)]


def _lost(dialect: str, given: Sequence[Wire], sent: Sequence[Wire]) -> list[str]:
    """Returns what must have survived as it was and did not: the newest barrier, standing items, what they refer to."""
    if dialect == "chat":
        return []
    before, after = _atoms(dialect, given), {_key(one) for one in _atoms(dialect, sent)}
    barriers = [one for one in before if _is_barrier(one)]
    standing = [
        one for one in before if _type(one) in (_STANDING if dialect == "responses" else _STANDING_BLOCKS)
    ]
    return [f"{_type(one)} is gone" for one in (*barriers[-1:], *standing) if _key(one) not in after]


def _atoms(dialect: str, wires: Sequence[Wire]) -> list[Wire]:
    if dialect == "responses":
        return list(wires)
    return [block for wire in wires if isinstance(wire["content"], list) for block in wire["content"]]


def _key(wire: Wire) -> str:
    return json.dumps(wire, sort_keys=True)


def _type(wire: Wire) -> str:
    return wire.get("type") or ("message" if "role" in wire else "item_reference")


def _is_barrier(wire: Wire) -> bool:
    if _type(wire) not in ("compaction", "compaction_summary"):
        return False
    return bool(wire["content"] if "content" in wire else wire.get("encrypted_content"))


def _refuse_responses(sent: Sequence[Wire]) -> list[str]:
    return [*_refuse_pairs(sent), *_refuse_uses(sent), *_refuse_order(sent)]


def _refuse_pairs(sent: Sequence[Wire]) -> list[str]:
    found: list[str] = []
    calls: set[str] = set()
    end = len(sent)
    while end and _type(sent[end - 1]) != "message":
        end -= 1
    for at, item in enumerate(sent):
        name = _type(item)
        kind = RESPONSES_ITEMS.get(name)
        if kind is not None and kind.nature is Nature.CALL:
            calls.add(item["call_id"])
            answers = [_type(one) for one in sent[at + 1 :] if _answered_by(one) == item["call_id"]]
            if answers != [kind.pair] and (answers or at < end):
                found.append(f"{name} is answered by {answers}")
        elif kind is not None and kind.nature is Nature.OUTPUT:
            if _answered_by(item) not in calls and not _is_referenced(sent[:at]):
                found.append(f"{name} has no call")
            found += _misshapen(name, item)
    return found


def _answered_by(item: Wire) -> str | None:
    kind = RESPONSES_ITEMS.get(_type(item))
    if kind is None or kind.nature is not Nature.OUTPUT:
        return None
    return item["id"] if _type(item) == "local_shell_call_output" else item["call_id"]


def _is_referenced(before: Sequence[Wire]) -> bool:
    """Whether what is missing may be an item that the provider has kept."""
    return any(_type(item) == "item_reference" for item in before)


def _refuse_uses(sent: Sequence[Wire]) -> list[str]:
    found: list[str] = []
    uses: set[str] = set()
    for at, item in enumerate(sent):
        name = _type(item)
        kind = RESPONSES_ITEMS.get(name)
        if kind is not None and kind.nature is Nature.USE:
            uses.add(item[kind.key])
        named = [item[kind.key]] if kind is not None and kind.nature is Nature.RESULT else []
        named += [item["caller"]["caller_id"]] if item.get("caller") else []
        named += (
            [item["approval_request_id"]] if name == "mcp_call" and item.get("approval_request_id") else []
        )
        if set(named) - uses and not _is_referenced(sent[:at]):
            found.append(f"{name} has lost what it belongs to")
        if name == "x_new_result" and not any(one.get("id") == item["x_call_id"] for one in sent[:at]):
            found.append("an unknown item has lost what it names")
    return found


def _refuse_order(sent: Sequence[Wire]) -> list[str]:
    found: list[str] = []
    for item, follower in pairwise(sent):
        after = _type(follower)
        if _type(item) == "reasoning" and (
            after.endswith("_output") or follower.get("role") in ("user", "developer")
        ):
            found.append(f"reasoning is followed by {after}")
        if _type(item) == "compaction_trigger":
            found.append("the trigger of a compaction is not the last item")
    return found


def _misshapen(name: str, item: Wire) -> list[str]:
    if name == "computer_call_output":
        good = item["output"].get("type") == "computer_screenshot" and item["output"].get("image_url")
    elif name == "shell_call_output":
        good = all(chunk.keys() == {"stdout", "stderr", "outcome"} for chunk in item["output"])
    elif name == "tool_search_output":
        good = all(tool.get("name") for tool in item["tools"])
    else:
        good = isinstance(item["output"], str) or all("type" in block for block in item["output"])
    return [] if good else [f"{name} has a shape of its own"]


def _refuse_anthropic(sent: Sequence[Wire]) -> list[str]:
    found: list[str] = []
    for wire in sent:
        thoughts = [block["type"] in ("thinking", "redacted_thinking") for block in _blocks(wire)]
        if any(thoughts) and not thoughts[0]:
            found.append("thinking does not come first")
        if not thoughts:
            found.append("a message is empty")
    turns = _join_turns(sent)
    if turns and turns[0]["role"] != "user" and not any(map(_is_barrier, _blocks(turns[0]))):
        found.append("the first message is not the user's")
    for turn, after in pairwise([{"role": "user", "content": []}, *turns, {"role": "user", "content": []}]):
        calls = [block["id"] for block in _blocks(turn) if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in _blocks(after) if block["type"] == "tool_result"]
        if set(results) - set(calls) or len(results) != len(set(results)):
            found.append("a tool_result has no tool_use")
        if set(calls) - set(results) and after is not turns[-1] and turn is not turns[-1]:
            found.append("a tool_use has no tool_result")
    return found + _refuse_server_tools([block for turn in turns for block in _blocks(turn)])


def _refuse_server_tools(blocks: Sequence[Wire]) -> list[str]:
    uses = {block["id"] for block in blocks if block["type"] in _USES}
    results = [block for block in blocks if block["type"].endswith("_tool_result")]
    return [f"{block['type']} has no use" for block in results if block["tool_use_id"] not in uses]


def _join_turns(sent: Sequence[Wire]) -> list[Wire]:
    """Returns the messages as the API reads them: neighbours of one role are one turn, and the system's are beside it."""
    turns: list[Wire] = []
    for wire in sent:
        if wire["role"] == "system":
            continue
        if turns and turns[-1]["role"] == wire["role"]:
            turns[-1] = {**turns[-1], "content": [*_blocks(turns[-1]), *_blocks(wire)]}
        else:
            turns.append(wire)
    return turns


def _blocks(wire: Wire) -> list[Wire]:
    content = wire["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _refuse_chat(sent: Sequence[Wire]) -> list[str]:
    found: list[str] = []
    speakers = [wire for wire in sent if wire["role"] != "system"]
    if speakers and speakers[0]["role"] != "user":
        found.append("the list no longer begins with the user")
    for at, wire in enumerate(sent):
        calls = [call["id"] for call in wire.get("tool_calls") or ()]
        run = at + 1
        while run < len(sent) and sent[run]["role"] == "tool":
            run += 1
        answered = [one["tool_call_id"] for one in sent[at + 1 : run]] if wire["role"] == "assistant" else []
        if run < len(sent) and set(calls) - set(answered):
            found.append("a call has no result")
        if set(answered) - set(calls) or len(answered) != len(set(answered)):
            found.append("a result has no call")
    return found
