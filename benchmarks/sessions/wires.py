"""The same conversation in the other dialects."""

import json
from collections.abc import Callable

from benchmarks.sessions.transcript import Chat


def _as_responses(messages: Chat) -> Chat:
    items: Chat = []
    for message in messages:
        if message["role"] == "tool":
            output = {"call_id": message["tool_call_id"], "output": message["content"]}
            items.append({"type": "function_call_output"} | output)
            continue
        if message["content"]:
            kind = "output_text" if message["role"] == "assistant" else "input_text"
            content = [{"type": kind, "text": message["content"]}]
            items.append({"type": "message", "role": message["role"], "content": content})
        for call in message.get("tool_calls", ()):
            items.append({"type": "function_call", "call_id": call["id"]} | call["function"])
    return items


def _as_anthropic(messages: Chat) -> Chat:
    """Results of one batch in one user message. The system prompt, which is a field there, is left out."""
    turns: Chat = []
    for message in messages:
        if message["role"] == "system":
            continue
        blocks = [{"type": "text", "text": message["content"]}] if message["content"] else []
        for call in message.get("tool_calls", ()):
            function = call["function"]
            use = {"id": call["id"], "name": function["name"], "input": json.loads(function["arguments"])}
            blocks.append({"type": "tool_use"} | use)
        role = message["role"]
        if role == "tool":
            role, blocks = (
                "user",
                [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": blocks}],
            )
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _as_sharegpt(messages: Chat) -> Chat:
    names = {"system": "system", "user": "human", "assistant": "gpt", "tool": "tool"}
    called: dict[str, str] = {}
    turns: Chat = []
    for message in messages:
        parts = [message["content"]] if message["content"] else []
        for call in message.get("tool_calls", ()):
            function = call["function"]
            called[call["id"]] = function["name"]
            shown = {"name": function["name"], "arguments": json.loads(function["arguments"])}
            parts.append(f"<tool_call>\n{json.dumps(shown)}\n</tool_call>")
        if message["role"] == "tool":
            shown = {"name": called[message["tool_call_id"]], "content": message["content"]}
            parts = [f"<tool_response>\n{json.dumps(shown)}\n</tool_response>"]
        turns.append({"from": names[message["role"]], "value": "\n".join(parts)})
    return turns


DIALECTS: dict[str, Callable[[Chat], Chat]] = {
    "chat": lambda messages: messages,
    "responses": _as_responses,
    "anthropic": _as_anthropic,
    "sharegpt": _as_sharegpt,
}
