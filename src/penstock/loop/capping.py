"""Caps output: keeps the beginning and the end, with a line that says how much was left out. Pure."""

from __future__ import annotations

from collections import deque

__all__ = ["HeadAndTail", "cap_text"]

_HEAD_SHARE = 0.4  # the end of an output tells how it went


def cap_text(text: str, most_chars: int) -> str:
    """Returns the text in at most about `most_chars` characters, with a line in the middle that says what was left out."""
    if len(text) <= most_chars:
        return text
    kept = HeadAndTail(most_chars)
    kept.add(text)
    return kept.text()


class HeadAndTail:
    """Collects text piece by piece, and holds only its beginning and its end."""

    def __init__(self, most_chars: int) -> None:
        self._head_room = int(most_chars * _HEAD_SHARE)
        self._tail_room = most_chars - self._head_room
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._tail_chars = 0
        self._left_out_chars = 0
        self._left_out_breaks = 0

    def add(self, text: str) -> None:
        """Adds text."""
        if self._head_room:
            first = text[: self._head_room]
            self._head.append(first)
            self._head_room -= len(first)
            text = text[len(first) :]
        if not text:
            return
        self._tail.append(text)
        self._tail_chars += len(text)
        while self._tail_chars > self._tail_room:
            oldest = self._tail.popleft()
            surplus = self._tail_chars - self._tail_room
            if len(oldest) > surplus:
                self._tail.appendleft(oldest[surplus:])
                oldest = oldest[:surplus]
            self._tail_chars -= len(oldest)
            self._leave_out(oldest)

    def text(self) -> str:
        """Returns the kept text, cut between lines if a line ends nearby."""
        head, tail = "".join(self._head), "".join(self._tail)
        if not self._left_out_chars:
            return head + tail
        chars, breaks = self._left_out_chars, self._left_out_breaks
        if (end := head.rfind("\n", len(head) // 2) + 1) > 0:
            chars, breaks, head = chars + len(head) - end, breaks + head.count("\n", end), head[:end]
        if 0 < (start := tail.find("\n", 0, len(tail) // 2) + 1) < len(tail):
            chars, breaks, tail = chars + start, breaks + tail.count("\n", 0, start), tail[start:]
        lines = f", {breaks:,} lines" if breaks > 1 else ""
        gap = "" if head.endswith("\n") else "\n"
        return f"{head}{gap}[… {chars:,} characters{lines} left out …]\n{tail}"

    def _leave_out(self, text: str) -> None:
        self._left_out_chars += len(text)
        self._left_out_breaks += text.count("\n")
