"""A provider's prompt cache, as far as its usage shows it.

The OpenAI dialects cache every prefix by themselves and report what was read. Anthropic caches what is marked with
`cache_control` and reports what was written too. The grain is the message: a mark anywhere in one counts at
its end.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.wire import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.measure.usage import Usage
    from penstock.testing.scripted import Received

__all__ = ["PromptCache"]

_HOUR_SECONDS = 3600.0
_FIVE_MINUTES = 300.0


class _Prefix(msgspec.Struct, frozen=True):
    """The prompt up to the end of one segment. `ttl_seconds` is 0 if no mark stands there."""

    digest: bytes
    tokens: int
    ttl_seconds: float


class PromptCache:
    """Remembers prefixes of prompts. Prefixes of fewer than `min_tokens` are not kept, as providers do.

    `clock` tells the seconds by which entries expire: five minutes or an hour after their last use.
    """

    def __init__(self, *, min_tokens: int = 1024, clock: Callable[[], float] = time.monotonic) -> None:
        self._min_tokens = min_tokens
        self._clock = clock
        self._kept: dict[bytes, tuple[float, float]] = {}  # when an entry expires, and its whole life

    def split(self, usage: Usage, received: Received, weights: Sequence[int]) -> Usage:
        """`usage` with its input parted into read, written and neither; the prompt is kept for later ones."""
        marked_only = received.dialect == "anthropic"
        prefixes = [p for p in _prefixes(received, weights) if p.tokens >= self._min_tokens]
        if marked_only:
            marked = [index for index, prefix in enumerate(prefixes) if prefix.ttl_seconds]
            prefixes = prefixes[: marked[-1] + 1] if marked else []
        now = self._clock()
        read = self._read(prefixes, now)
        written, hour = self._write(prefixes, now, read) if marked_only else (0, 0)
        if not marked_only:
            self._kept.update((prefix.digest, (now + _FIVE_MINUTES, _FIVE_MINUTES)) for prefix in prefixes)
        return msgspec.structs.replace(
            usage,
            input_tokens=usage.input_tokens - read - written,
            cache_read_tokens=read,
            cache_write_tokens=written,
            cache_write_1h_tokens=hour,
        )

    def _read(self, prefixes: Sequence[_Prefix], now: float) -> int:
        """Returns the tokens of the longest prefix that is kept. Reading it restarts its life."""
        for prefix in reversed(prefixes):
            expires, life = self._kept.get(prefix.digest, (0.0, 0.0))
            if expires > now:
                self._kept[prefix.digest] = (now + life, life)
                return prefix.tokens
        return 0

    def _write(self, prefixes: Sequence[_Prefix], now: float, read: int) -> tuple[int, int]:
        """Keeps what is marked. Returns the tokens written, and those of them that were written for an hour."""
        written = hour = 0
        reached = read
        for prefix in prefixes:
            if not prefix.ttl_seconds:
                continue
            self._kept[prefix.digest] = (now + prefix.ttl_seconds, prefix.ttl_seconds)
            fresh = max(0, prefix.tokens - reached)
            reached = max(reached, prefix.tokens)
            written += fresh
            hour += fresh if prefix.ttl_seconds == _HOUR_SECONDS else 0
        return written, hour


def _prefixes(received: Received, weights: Sequence[int]) -> Iterator[_Prefix]:
    """Yields every prefix of the prompt, in the order tools, system prompt, messages."""
    digest = hashlib.blake2b(received.model.encode(), digest_size=16)
    tokens = 0
    segments = (received.tools, _as_blocks(received.system), *received.messages)
    for segment, weight in zip(segments, weights, strict=False):  # what could not be read has no weights
        digest.update(canonical_json(_strip_marks(segment)))
        tokens += weight
        yield _Prefix(digest.copy().digest(), tokens, _ttl_seconds(segment))


def _strip_marks(value: Any) -> Any:
    """Returns the value without marks: where they stand does not change what is cached.

    A text is written as a block, since a client turns it into one to mark it.
    """
    if isinstance(value, dict):
        return {
            key: _strip_marks(_as_blocks(item) if key == "content" else item)
            for key, item in value.items()
            if key != "cache_control"
        }
    if isinstance(value, list):
        return [_strip_marks(item) for item in value]
    return value


def _as_blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _ttl_seconds(value: Any) -> float:
    """Returns the longest life that a mark in the value asks for; 0 without a mark."""
    if isinstance(value, dict):
        mark = value.get("cache_control")
        own = 0.0
        if isinstance(mark, dict):
            own = _HOUR_SECONDS if mark.get("ttl") == "1h" else _FIVE_MINUTES
        return max([own, *(_ttl_seconds(item) for key, item in value.items() if key != "cache_control")])
    if isinstance(value, list):
        return max((_ttl_seconds(item) for item in value), default=0.0)
    return 0.0
