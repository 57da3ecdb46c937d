"""Calls and their results: what may not be parted, whether a list is legal, and the simplest compaction of all."""

from typing import Any

from benchmarks.generate import message_tokens

__all__ = ["legal", "newest_that_fit"]

Chat = list[dict[str, Any]]


def legal(messages: Chat) -> bool:
    """Every call is followed at once by its results, and no result stands without its call."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return False
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    return not waiting


def newest_that_fit(messages: Chat, budget_tokens: int) -> Chat:
    """The newest messages within the budget, whole calls only; system messages come on top. To compare with."""
    system = [message for message in messages if message["role"] == "system"]
    rest = [message for message in messages if message["role"] != "system"]
    start, left = len(rest), budget_tokens
    for index in range(len(rest) - 1, -1, -1):
        left -= message_tokens([rest[index]])
        if left < 0:
            break
        if rest[index]["role"] != "tool":
            start = index
    return system + rest[start:]
