"""Token usage as providers report it, normalised to one record.

Providers disagree on what "input" means: Anthropic excludes cached tokens from it, OpenAI includes them.
Here `input_tokens` is always the part that was neither read from the cache nor written to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

__all__ = ["Usage", "names_cache", "normalise_usage"]

# More than any request can hold; a larger number is no count.
_MOST_TOKENS = 10**15


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one request, or of many added up.

    `cache_write_1h_tokens` is the part of `cache_write_tokens` that was written for an hour, if the
    provider reports it. `reasoning_tokens` is part of `output_tokens`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Everything that was sent: what decides about pressure."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """Everything sent and received."""
        return self.prompt_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


def normalise_usage(usage: Any, dialect: str | None = None) -> Usage:
    """Returns one record from the usage of OpenAI Chat or Responses, Anthropic, Bedrock's Converse, LangChain, or our own.

    `usage` is a mapping or an SDK object. `dialect` ("chat", "responses", "anthropic") is only needed if the
    field names are ambiguous; it is ignored if none of its own fields is there. A field that is missing, null,
    negative or not a number counts as 0; nothing raises and nothing goes below 0.
    """
    if isinstance(usage, Usage):
        return usage
    read = _READERS.get(dialect or "")
    if read is None or not any(_has(usage, name) for name in _OWN_FIELDS[dialect or ""]):
        read = _recognise(usage)
    return read(usage)


def names_cache(usage: Any) -> bool:
    """Returns True if a report, in any of those shapes, has a field for cached tokens, even if it is 0.

    A report without one does not tell whether a prompt was read from a cache.
    """
    details = [_get(usage, name) for name in ("prompt_tokens_details", "input_tokens_details")]
    return any(_has(place, name) for place in (usage, *details) if place for name in _CACHE_FIELDS)


_CACHE_FIELDS = (
    "cached_tokens",
    "cache_write_tokens",
    "cache_creation_tokens",
    "cache_read_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_creation",
    "prompt_cache_hit_tokens",
    "cacheReadInputTokens",
)


def _recognise(usage: Any) -> _Reader:
    if any(_has(usage, name) for name in _OWN_FIELDS["chat"]):
        return _from_chat
    if any(_has(usage, name) for name in ("cache_read_tokens", "cache_write_tokens")):
        return _from_record
    if any(
        _has(usage, name)
        for name in ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")
    ):
        return _from_anthropic
    if _has(usage, "inputTokens"):
        return _from_converse
    return _from_responses


def _from_chat(usage: Any) -> Usage:
    prompt_details = _get(usage, "prompt_tokens_details")
    read = (
        _count(prompt_details, "cached_tokens")
        or _count(usage, "prompt_cache_hit_tokens")
        or _count(usage, "cache_read_input_tokens")
    )
    written = (
        _count(prompt_details, "cache_write_tokens")
        or _count(prompt_details, "cache_creation_input_tokens")
        or _count(usage, "cache_creation_input_tokens")
    )
    prompt = _count(usage, "prompt_tokens")
    output, reasoning = _chat_output(usage, prompt, cached=bool(read or written))
    return Usage(
        input_tokens=max(0, prompt - read - written),
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
    )


def _chat_output(usage: Any, prompt: int, *, cached: bool) -> tuple[int, int]:
    """Returns output and reasoning tokens. Some providers (xAI, Gemini) count reasoning in the total alone.

    With tokens of the cache beside the prompt the total may be larger for another reason, so that there it
    has to fit the reasoning exactly.
    """
    output = _count(usage, "completion_tokens")
    reasoning = _count(_get(usage, "completion_tokens_details"), "reasoning_tokens")
    beyond = _count(usage, "total_tokens") - prompt - output
    if prompt and beyond > 0 and (beyond == reasoning or not cached):
        return output + beyond, max(reasoning, beyond)
    return output, reasoning


def _from_responses(usage: Any) -> Usage:
    details = _get(usage, "input_tokens_details")
    if details is None:  # LangChain's names
        details = _get(usage, "input_token_details")
    read = _count(details, "cached_tokens") or _count(details, "cache_read")
    written = (
        _count(details, "cache_creation_tokens")
        or _count(details, "cache_write_tokens")
        or _count(details, "cache_creation")
    )
    return Usage(
        input_tokens=max(0, _count(usage, "input_tokens") - read - written),
        output_tokens=_count(usage, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_count(_get(usage, "output_tokens_details"), "reasoning_tokens"),
    )


def _from_anthropic(usage: Any) -> Usage:
    split = _get(usage, "cache_creation")
    hour = _count(split, "ephemeral_1h_input_tokens")
    written = _count(usage, "cache_creation_input_tokens")
    written = written or hour + _count(split, "ephemeral_5m_input_tokens")
    return Usage(
        input_tokens=_count(usage, "input_tokens"),
        output_tokens=_count(usage, "output_tokens"),
        cache_read_tokens=_count(usage, "cache_read_input_tokens"),
        cache_write_tokens=written,
        cache_write_1h_tokens=min(hour, written),
        reasoning_tokens=_count(_get(usage, "output_tokens_details"), "thinking_tokens"),
    )


def _from_converse(usage: Any) -> Usage:
    read, written = _count(usage, "cacheReadInputTokens"), _count(usage, "cacheWriteInputTokens")
    output = _count(usage, "outputTokens")
    # Some models count what was cached in the input, some beside it: the total has it in any case.
    prompt = max(_count(usage, "inputTokens"), _count(usage, "totalTokens") - output)
    return Usage(max(0, prompt - read - written), output, read, written)


def _from_record(usage: Any) -> Usage:
    record = Usage(*(_count(usage, name) for name in Usage.__struct_fields__))
    hour = min(record.cache_write_1h_tokens, record.cache_write_tokens)
    return msgspec.structs.replace(record, cache_write_1h_tokens=hour)


_Reader: TypeAlias = Callable[[Any], Usage]
_READERS: Mapping[str, _Reader] = {
    "chat": _from_chat,
    "responses": _from_responses,
    "anthropic": _from_anthropic,
}
_OWN_FIELDS: Mapping[str, tuple[str, ...]] = {
    "chat": ("prompt_tokens", "completion_tokens"),
    "responses": ("input_tokens", "output_tokens"),
    "anthropic": ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
}


def _get(source: Any, name: str) -> Any:
    """Returns a field of a mapping or an attribute of an object, or None."""
    if type(source) is dict:  # nearly always; the general question is slow
        return source.get(name)
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def _has(source: Any, name: str) -> bool:
    return _get(source, name) is not None


def _count(source: Any, name: str) -> int:
    """Returns a field as a count: whole, never negative, 0 for anything but a number."""
    value = _get(source, name)
    if isinstance(value, str) and len(value) <= 15 and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    # NaN and the infinities fail the comparison too.
    return int(value) if 0 <= value <= _MOST_TOKENS else 0
