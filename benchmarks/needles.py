"""Our own measure of what a compaction loses: values from before a cut that the assistant uses after it.

It shares no pattern with the measure of the recorded corpora, so that a compaction made to fit one of the two
shows in the other.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.replay.needles import places, values_in

Chat = list[dict[str, Any]]

WORD = re.compile(r"[^\W\d_]{4,}")
FAR = 0.7
"""A needle is far when it was last seen in this share of the messages, counted from the oldest."""


class Needle(NamedTuple):
    """A value that stood before the cut and that the assistant uses after it, untold in between."""

    value: str
    last_seen: int
    used_at: int
    words: frozenset[str]


class Recall(NamedTuple):
    """Shares of the needles that a compaction kept; `far` is None where no needle is far."""

    needles: int
    recall: float
    far: float | None
    context: float


def cut_at(messages: Chat, share: float = 0.55) -> int:
    """The first index past that share of the text where no call is parted from its result."""
    sizes = [len(_text(message)) for message in messages]
    wanted, passed = share * sum(sizes), 0
    for index, (message, size) in enumerate(zip(messages, sizes, strict=True)):
        if passed >= wanted and message["role"] != "tool":
            return index
        passed += size
    return len(messages)


def needles(messages: Chat, cut: int) -> tuple[Needle, ...]:
    """Values from before `cut` that the assistant uses after it, by first use; none that the system prompt holds."""
    texts = [_text(message) for message in messages]
    before: set[str] = set()
    told: set[str] = set()
    for index in range(cut):
        (told if messages[index]["role"] == "system" else before).update(values_in(texts[index]))
    found = []
    for index in range(cut, len(messages)):
        for value in values_in(texts[index]):
            if value in before and value not in told and messages[index]["role"] == "assistant":
                last = _last_seen(value, messages, texts[:cut])
                found.append(Needle(value, last, index, frozenset(_words_beside(value, texts[last]))))
            told.add(value)
    return tuple(found)


def recalled(wanted: Sequence[Needle], cut: int, kept: Chat) -> Recall:
    """How many of the needles the kept messages still hold, and beside two of the words they stood with."""
    text = "\n".join(_text(message) for message in kept if message["role"] != "system")
    present = {needle.value for needle in wanted if next(places(needle.value, text), None) is not None}
    distant = [needle for needle in wanted if needle.last_seen < FAR * cut]
    beside = sum(
        len(_words_beside(needle.value, text, most=40) & needle.words) >= min(2, len(needle.words))
        for needle in wanted
        if needle.value in present
    )
    far = sum(needle.value in present for needle in distant) / len(distant) if distant else None
    total = max(1, len(wanted))
    return Recall(len(wanted), len(present) / total, far, beside / total)


def _last_seen(value: str, messages: Chat, texts: Sequence[str]) -> int:
    """The last of the texts that holds the value, in the sense in which `recalled` looks for it."""
    return next(
        index
        for index in range(len(texts) - 1, -1, -1)
        if messages[index]["role"] != "system" and next(places(value, texts[index]), None) is not None
    )


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "\n".join(part.get("text") or "" for part in content)
    return "\n".join([content, *(_arguments(call) for call in message.get("tool_calls") or ())])


def _arguments(call: dict[str, Any]) -> str:
    """What a call's arguments say, without their names."""
    written = call["function"].get("arguments") or ""
    try:
        arguments = json.loads(written)
    except ValueError:
        return written
    return "\n".join(map(str, arguments.values())) if isinstance(arguments, dict) else str(arguments)


def _words_beside(value: str, text: str, most: int = 8) -> set[str]:
    """Plain words within 60 characters of the value's first occurrences."""
    words: set[str] = set()
    for seen, at in enumerate(places(value, text)):
        end = at + len(value)
        near = text[max(0, at - 60) : at] + " " + text[end : end + 60]
        words.update(word.lower() for word in WORD.findall(near))
        if seen + 1 >= most:
            break
    return words
