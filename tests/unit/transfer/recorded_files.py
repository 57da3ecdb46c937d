"""Files in the shapes that other programs write, made up here, a line at a time."""

from __future__ import annotations

import json
from typing import Any

from penstock.transfer.reading import read_recorded

SESSION = "5f0c2a1e-0000-4000-8000-00000000c0de"


def lines(*values: Any) -> bytes:
    return b"".join(
        value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n" for value in values
    )


def claude_line(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    """A line of Claude Code. Fields of the message itself come in `message`."""
    message = {"role": kind, "content": content, **more.pop("message", {})}
    second = int(uuid.strip("abcdefghijklmnopqrstuvwxyz") or 0)
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/srv/shop",
        "sessionId": SESSION,
        "version": "2.1.0",
        "type": kind,
        "message": message,
        "uuid": uuid,
        "timestamp": f"2026-03-14T09:26:{second:02}.500Z",
        **more,
    }


def answer(
    uuid: str,
    parent: str,
    message_id: str,
    *blocks: Any,
    output: int = 7,
    stop: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    usage = {
        "input_tokens": 4,
        "cache_creation_input_tokens": 100,
        "cache_read_input_tokens": 900,
        "output_tokens": output,
    }
    message = {"id": message_id, "type": "message", "model": "claude-sonnet-4-5", "usage": usage}
    message["stop_reason"] = stop
    return claude_line("assistant", uuid, parent, list(blocks), message=message, **more)


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def tool_use(call: str, name: str = "Read", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def tool_result(call: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": text}


def claude_session() -> list[dict[str, Any]]:
    """A request, two calls at once whose results hang beside the chain, an answer."""
    return [
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        claude_line("user", "u1", None, "Compare the two reports."),
        answer("a2", "u1", "msg_1", {"type": "thinking", "thinking": "Read both.", "signature": "c2ln"}),
        answer("a3", "a2", "msg_1", tool_use("t1", file_path="q1.md")),
        answer("a4", "a3", "msg_1", tool_use("t2", file_path="q2.md"), output=41),
        claude_line("user", "u5", "a3", [tool_result("t1", "12 orders")], toolUseResult={"kept": "no"}),
        claude_line("user", "u6", "a4", [tool_result("t2", "19 orders")]),
        answer("a7", "u6", "msg_2", words("Seven orders more in the second."), stop="end_turn"),
        {"type": "summary", "summary": "Comparing reports", "leafUuid": "a7"},
    ]


def codex_line(kind: str, payload: dict[str, Any], second: int = 0) -> dict[str, Any]:
    return {"timestamp": f"2026-03-14T09:26:{second:02}.500Z", "type": kind, "payload": payload}


def codex_message(role: str, text: str, second: int = 0) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return codex_line("response_item", item, second)


def codex_tokens(prompt: int, cached: int, output: int, total: int, second: int = 0) -> dict[str, Any]:
    last = {
        "input_tokens": prompt,
        "cached_input_tokens": cached,
        "output_tokens": output,
        "reasoning_output_tokens": 3,
        "total_tokens": prompt + output,
    }
    info = {
        "total_token_usage": {"total_tokens": total},
        "last_token_usage": last,
        "model_context_window": 272_000,
    }
    return codex_line("event_msg", {"type": "token_count", "info": info, "rate_limits": None}, second)


def codex_rollout() -> list[dict[str, Any]]:
    """A request, a call with its output, an answer, and what the program writes beside them."""
    call = {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c1"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "README.md"}
    reasoning = {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "c2VhbA=="}
    return [
        codex_line(
            "session_meta", {"id": SESSION, "cwd": "/srv/shop", "cli_version": "0.166.0", "source": "cli"}
        ),
        codex_line("turn_context", {"cwd": "/srv/shop", "model": "gpt-5", "approval_policy": "never"}),
        codex_message("developer", "You work in a shell.", 1),
        codex_message("user", "What is here?", 2),
        codex_line("event_msg", {"type": "user_message", "message": "What is here?"}, 2),
        codex_line("response_item", reasoning, 3),
        codex_line("response_item", call, 3),
        codex_tokens(1_000, 0, 20, 1_020, 3),
        codex_tokens(1_000, 0, 20, 1_020, 3),
        codex_line("response_item", output, 4),
        codex_line("response_item", {"type": "ghost_snapshot", "ghost_commit": {}}, 4),
        codex_message("assistant", "A README.", 5),
        codex_tokens(1_100, 900, 10, 2_130, 5),
    ]


def only(data: bytes) -> Any:
    reading = read_recorded(data)
    assert len(reading.conversations) == 1
    return reading.conversations[0]


def wires(recorded: Any) -> list[Any]:
    return [json.loads(one.raw) for one in recorded.messages]
