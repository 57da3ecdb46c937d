"""Rollouts of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-TIME-ID.jsonl`.

Each line has a `timestamp`, a `type` and a `payload`: `session_meta` (the id, and who it works for),
`turn_context` (the model), `response_item` (an item of the Responses dialect), `event_msg` (what people see,
and token counts) and `compacted`. Early versions wrote the session's head and bare items instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.slicing import slice_object
from penstock.conversation.wire import encode_wire, read_text
from penstock.measure.usage import normalise_usage
from penstock.transfer.lines import read_moment
from penstock.transfer.recorded import RecordedConversation, RecordedFile, RecordedMessage, RecordedUsage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.measure.usage import Usage
    from penstock.transfer.lines import JsonLine
    from penstock.transfer.recorded import LineFault

__all__ = ["FORMAT", "is_codex", "read_codex"]

FORMAT = "codex"
_TYPES = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
_NEVER_SENT = frozenset(("ghost_snapshot", "other"))  # items that the program keeps for itself
_COMPACTED = ("compaction", "compaction_summary")


class _Rollout(msgspec.Struct):
    """The rollout as far as it has been read."""

    said: list[RecordedMessage] = []
    requests: list[RecordedUsage] = []
    left_out: dict[str, int] = {}
    source: str = ""
    works_for: str = ""
    model: str = ""
    total: Any = None

    def count(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1


def is_codex(lines: Sequence[JsonLine]) -> bool:
    """Returns True if the lines are those of a rollout."""
    if any(
        line.value.get("type") in _TYPES and isinstance(line.value.get("payload"), dict) for line in lines
    ):
        return True
    first = lines[0].value if lines else {}
    return {"id", "timestamp"} <= first.keys() and not first.keys() & {"type", "role", "message"}


def read_codex(lines: Sequence[JsonLine], faults: Sequence[LineFault]) -> RecordedFile:
    """Returns the session of a rollout."""
    rollout = _Rollout()
    for line in lines:
        payload = line.value.get("payload")
        if line.value.get("type") in _TYPES and isinstance(payload, dict):
            _take(rollout, line, payload)
        else:
            _take_bare(rollout, line)
    recorded = RecordedConversation(
        format=FORMAT,
        dialect="responses",
        messages=tuple(rollout.said),
        source=rollout.source,
        works_for=rollout.works_for,
        model=rollout.model,
        requests=tuple(rollout.requests),
        left_out=rollout.left_out,
    )
    return RecordedFile((recorded,) if recorded.messages else (), tuple(faults))


def _take(rollout: _Rollout, line: JsonLine, payload: dict[str, Any]) -> None:
    at = read_moment(line.value.get("timestamp"))
    match line.value["type"]:
        case "session_meta":
            # A fork copies the lines of what it was forked from, its head included: the first head is its
            # own.
            if not rollout.source:
                rollout.source = read_text(payload.get("id"))
                rollout.works_for = _read_parent(payload.get("source"))
        case "turn_context":
            rollout.model = read_text(payload.get("model")) or rollout.model
        case "response_item":
            _take_item(rollout, slice_object(line.raw)["payload"], payload, at)
        case "compacted":
            _take_compacted(rollout, payload, at)
        case _:
            if payload.get("type") == "token_count":
                _take_usage(rollout, payload.get("info"), at)


def _take_bare(rollout: _Rollout, line: JsonLine) -> None:
    """Takes a line of an early version."""
    value = line.value
    if isinstance(value.get("type"), str) and "record_type" not in value:
        _take_item(rollout, line.raw, value, read_moment(value.get("timestamp")))
    elif not rollout.source and "record_type" not in value:
        rollout.source = read_text(value.get("id"))


def _take_item(rollout: _Rollout, raw: bytes, item: dict[str, Any], at: float | None) -> None:
    kind = item.get("type")
    if not isinstance(kind, str) or kind in _NEVER_SENT:
        rollout.count(f"items of type {kind}" if isinstance(kind, str) else "items without a type")
        return
    if kind == "message" and item.get("role") not in ("user", "assistant", "system", "developer"):
        rollout.count("messages without a role that is known")
        return
    rollout.said.append(RecordedMessage(raw, at))


def _take_compacted(rollout: _Rollout, payload: dict[str, Any], at: float | None) -> None:
    """Takes the summary of a compaction, with which the log continues.

    The messages that it stands for are in the log before it.
    """
    history = payload.get("replacement_history")
    items = history if isinstance(history, list) else []
    sealed = [item for item in items if isinstance(item, dict) and item.get("type") in _COMPACTED]
    if read_text(payload.get("message")):
        block = {"type": "input_text", "text": payload["message"]}
        sealed.append({"type": "message", "role": "user", "content": [block]})
    rollout.said += [RecordedMessage(encode_wire(item), at) for item in sealed]


def _take_usage(rollout: _Rollout, info: Any, at: float | None) -> None:
    """Takes the usage of one request.

    The same count is told again with news that have nothing to do with tokens.
    """
    if not isinstance(info, dict) or not isinstance(info.get("last_token_usage"), dict):
        return
    if info.get("total_token_usage") == rollout.total:
        return
    rollout.total = info.get("total_token_usage")
    usage = _read_usage(info["last_token_usage"])
    rollout.requests.append(RecordedUsage(len(rollout.said), at, rollout.model, usage))


def _read_usage(counted: dict[str, Any]) -> Usage:
    return normalise_usage(
        {
            "input_tokens": counted.get("input_tokens"),
            "input_tokens_details": {"cached_tokens": counted.get("cached_input_tokens")},
            "output_tokens": counted.get("output_tokens"),
            "output_tokens_details": {"reasoning_tokens": counted.get("reasoning_output_tokens")},
        },
        "responses",
    )


def _read_parent(source: Any) -> str:
    """Returns the session that a sub-agent's session works for.

    The source has it as `{"subagent": {"thread_spawn": {"parent_thread_id": …}}}`.
    """
    for name in ("subagent", "thread_spawn"):
        source = source.get(name) if isinstance(source, dict) else None
    return read_text(source.get("parent_thread_id")) if isinstance(source, dict) else ""
