"""Conversations that engines are held to their contract with: legal lists in OpenAI's chat format, of every shape."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["Chat", "agent_turns", "every_shape", "giant_result", "long_conversation"]

Chat = list[dict[str, Any]]

_SYSTEM = {"role": "system", "content": "You are a coding agent."}
_LAST = {"role": "user", "content": "Which part names owner_17?"}


def long_conversation(turns: int = 30) -> Chat:
    """A chat of an agent at work, with a system prompt and a last request."""
    return [dict(_SYSTEM), *agent_turns(0, turns), dict(_LAST)]


def agent_turns(first: int, end: int) -> Chat:
    """Turns of that chat, from the one with the number `first` on: each a request, a call with a long result, and an answer."""
    messages: Chat = []
    for turn in range(first, end):
        messages += [
            {"role": "user", "content": f"Look at part {turn}."},
            _calling(f"call_{turn}"),
            _result(f"call_{turn}", turn),
            {"role": "assistant", "content": f"Part {turn} is fine."},
        ]
    return messages


def every_shape(turns: int = 24) -> dict[str, Chat]:
    """The shapes that lists come in, by what is special about them. Each is long, legal, and ends with its last word."""
    return {
        "with a system prompt": long_conversation(turns),
        "without a system prompt": [*agent_turns(0, turns), dict(_LAST)],
        "with one request and many calls": [
            dict(_SYSTEM),
            dict(_LAST),
            *(one for turn in range(2 * turns) for one in (_calling(f"c{turn}"), _result(f"c{turn}", turn))),
        ],
        "with calls that were made together": [
            dict(_SYSTEM),
            *(one for turn in range(turns) for one in _batch(turn)),
            dict(_LAST),
        ],
        "with content in blocks": [
            dict(_SYSTEM),
            *(one for turn in range(8 * turns) for one in _blocks(turn)),
            {"role": "user", "content": [{"type": "text", "text": _LAST["content"]}]},
        ],
        "with requests that nobody answered": [
            dict(_SYSTEM),
            *({"role": "user", "content": f"Also think of owner_{turn}. " * 40} for turn in range(3 * turns)),
            dict(_LAST),
        ],
    }


def giant_result(characters: int) -> Chat:
    """A chat with one tool result of so many characters right before its end."""
    lines = [f"{number}: the value is {number * 37}" for number in range(characters // 24)]
    return [
        dict(_SYSTEM),
        *agent_turns(0, 3),
        dict(_LAST),
        _calling("giant"),
        {"role": "tool", "tool_call_id": "giant", "content": "\n".join(lines)},
    ]


def _calling(*ids: str) -> dict[str, Any]:
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {
                "name": "read_file",
                "arguments": json.dumps({"path": f"src/part_{call_id.rpartition('_')[2]}.py"}),
            },
        }
        for call_id in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _result(call_id: str, turn: int) -> dict[str, Any]:
    lines = [f"def step_{turn}_{line}(job): return job.owner_{line}" for line in range(60)]
    return {"role": "tool", "tool_call_id": call_id, "content": "\n".join(lines)}


def _batch(turn: int) -> Chat:
    ids = [f"call_{turn}_{number}" for number in range(3)]
    results = [_result(call_id, turn) for call_id in ids]
    return [{"role": "user", "content": f"Look at part {turn}."}, _calling(*ids), *results]


def _blocks(turn: int) -> Chat:
    picture = {"type": "image_url", "image_url": {"url": f"https://example.org/{turn}.png"}}
    asked = {"type": "text", "text": f"What does picture {turn} show? " * 10}
    answer = {"type": "text", "text": f"It shows part {turn}. " * 20}
    return [{"role": "user", "content": [asked, picture]}, {"role": "assistant", "content": [answer]}]
