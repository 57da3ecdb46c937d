"""A conversation in the making, in the Chat Completions form, and what it weighs."""

import json
import random
from collections.abc import Sequence
from typing import Any

import toktok  # type: ignore[import-untyped]  # the wheel says nothing of its types

Chat = list[dict[str, Any]]


class Transcript:
    """A conversation in the making, in the Chat Completions form."""

    def __init__(self, rng: random.Random) -> None:
        self.messages: Chat = []
        self.characters = 0
        self._bits = rng.getrandbits
        self._weighed, self._tokens = 0, 0

    def say(self, role: str, text: str | None) -> None:
        self.characters += len(text or "")
        self.messages.append({"role": role, "content": text})

    def call(self, text: str | None, calls: Sequence[tuple[str, dict[str, Any], str]]) -> None:
        """An assistant message with its calls (tool, arguments, result), and the results after it."""
        self.say("assistant", text)
        entries, ids = [], [f"call_{self._bits(96):024x}" for _ in calls]
        for call_id, (name, arguments, _) in zip(ids, calls, strict=True):
            written = json.dumps(arguments)
            self.characters += len(written)
            entries.append(
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": written}}
            )
        self.messages[-1]["tool_calls"] = entries
        for call_id, (_, _, result) in zip(ids, calls, strict=True):
            self.characters += len(result)
            self.messages.append({"role": "tool", "tool_call_id": call_id, "content": result})

    def tokens(self) -> int:
        self._tokens += message_tokens(self.messages[self._weighed :])
        self._weighed = len(self.messages)
        return self._tokens


def message_tokens(messages: Chat) -> int:
    """o200k tokens: 4 a message and 8 a call beside its text."""
    texts, frames = [], 4 * len(messages)
    for message in messages:
        texts.append(message["content"] or "")
        for call in message.get("tool_calls", ()):
            frames += 8
            texts += [call["function"]["name"], call["function"]["arguments"]]
    return frames + sum(toktok.batch_count(texts, "o200k_base")) if texts else 0
