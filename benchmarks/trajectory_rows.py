"""Generated rows of training data: trajectories of a coding agent, as chat messages and as ShareGPT turns."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.generate import coding_session

__all__ = ["chat_row", "rows_of", "sharegpt_row", "write_rows"]

SIZES = (3_000, 6_000, 9_000, 14_000, 22_000, 40_000, 70_000, 120_000)  # tokens: half of the rows are small


def chat_row(number: int, tokens: int) -> dict[str, Any]:
    """A row of chat messages, with columns beside them."""
    return {
        "id": f"run-{number}",
        "messages": coding_session(tokens, seed=number),
        "reward": round(0.1 * (number % 11), 1),
    }


def sharegpt_row(number: int, tokens: int) -> dict[str, Any]:
    """The same as ShareGPT turns, calls and results as tagged blocks."""
    chat = chat_row(number, tokens)
    turns: list[dict[str, str]] = []
    for message in chat.pop("messages"):
        turn = _turn(message)
        if turn["from"] == "tool" and turns[-1]["from"] == "tool":
            turns[-1]["value"] += "\n" + turn["value"]
        else:
            turns.append(turn)
    return {"id": chat["id"], "conversations": turns, "reward": chat["reward"]}


def rows_of(count: int, sizes: tuple[int, ...] = SIZES) -> Iterator[dict[str, Any]]:
    """Rows of these sizes, in turn."""
    for number in range(count):
        yield sharegpt_row(number + 1, sizes[number % len(sizes)])


def write_rows(path: Path, total_bytes: int, distinct: int = 64) -> int:
    """A file of at least so many bytes, made of a few distinct rows with ids of their own. Says how many rows."""
    lines = [json.dumps(row) for row in rows_of(distinct)]
    written = rows = 0
    with path.open("w", encoding="utf-8") as file:
        while written < total_bytes:
            line = lines[rows % distinct].replace(f'"run-{rows % distinct + 1}"', f'"run-{rows + 1}"', 1)
            written += file.write(f"{line}\n")
            rows += 1
    return rows


def _turn(message: dict[str, Any]) -> dict[str, str]:
    role, text = message["role"], message.get("content") or ""
    if role == "tool":
        response = {"tool_call_id": message["tool_call_id"], "content": text}
        return {"from": "tool", "value": f"<tool_response>\n{json.dumps(response)}\n</tool_response>"}
    blocks = [text] if text else []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        named = {"id": call["id"], "name": function["name"], "arguments": json.loads(function["arguments"])}
        blocks.append(f"<tool_call>\n{json.dumps(named)}\n</tool_call>")
    speaker = {"system": "system", "user": "human", "assistant": "gpt"}[role]
    return {"from": speaker, "value": "\n".join(blocks)}
