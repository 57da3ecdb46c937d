"""What is asked of a compression: for one trajectory, and for the model that may write its summary."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import SettingsError

__all__ = ["MODEL_TIMEOUT_SECONDS", "ModelOptions", "TrajectoryOptions"]

MODEL_TIMEOUT_SECONDS = 120.0
_LEAST_SUMMARY = 100
_MOST_PASSES = 8


class TrajectoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one trajectory is compressed. Raises SettingsError for a value that cannot be meant.

    `target_tokens` bounds all turns together, `summary_tokens` the turn that takes the place of others. The first
    system, human, gpt and tool turn and the last `keep_last` turns stay. Where that alone is too much, each further
    pass of `passes` keeps half as many turns at the end. `system_note` adds a sentence to the system turn.
    `tokenizer` is "o200k", "cl100k" or the path of a `tokenizer.json`.
    """

    target_tokens: int = 15_250
    summary_tokens: int = 750
    keep_last: int = 4
    passes: int = 1
    system_note: bool = False
    tokenizer: str = "o200k"

    def __post_init__(self) -> None:
        """Raises SettingsError."""
        _require_number("target_tokens", self.target_tokens, 1)
        _require_number("summary_tokens", self.summary_tokens, _LEAST_SUMMARY)
        _require_number("keep_last", self.keep_last, 1)
        _require_number("passes", self.passes, 1, _MOST_PASSES)
        if self.summary_tokens >= self.target_tokens:
            raise SettingsError(
                f"summary_tokens is {self.summary_tokens:,} and target_tokens {self.target_tokens:,}; "
                "a summary must be smaller than the target"
            )


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The model that writes summaries. The key itself is read from its variable where it is used.

    `timeout_seconds` is what one row may take in all, repeats included. `concurrency` is how many rows wait for the
    model at once, over all workers.
    """

    name: str
    provider: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    window_tokens: int | None = None
    timeout_seconds: float = MODEL_TIMEOUT_SECONDS
    concurrency: int = 16

    def __post_init__(self) -> None:
        """Raises SettingsError."""
        if not self.name.strip():
            raise SettingsError("no model was named; give the name by which its provider knows it")
        if not self.timeout_seconds > 0:
            raise SettingsError(f"timeout_seconds is {self.timeout_seconds:g}; it must be above 0")
        _require_number("concurrency", self.concurrency, 1, 1_024)


def _require_number(name: str, value: Any, least: int, most: int | None = None) -> None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or value < least or (most is not None and value > most):
        limit = f"from {least:,} to {most:,}" if most is not None else f"of at least {least:,}"
        raise SettingsError(f"{name} is {value!r}; give a whole number {limit}")
