"""`ContextEngine`: the contract between a host (an agent, a gateway) and whatever keeps its context small.

Lists are lists of OpenAI-format dicts. An engine never mutates what it is given.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ContextEngine"]


class ContextEngine(ABC):
    """What a host may call. The first four are required; the rest have defaults that do nothing.

    The attributes are the engine's view of the last response and of its limits. A host may read them at any
    time and writes none of them.
    """

    last_prompt_tokens: int = 0
    last_completion_tokens: int = 0
    last_total_tokens: int = 0
    threshold_tokens: int = 0
    context_length: int = 0
    compression_count: int = 0

    threshold_percent: float = 0.75
    protect_first_n: int = 3
    protect_last_n: int = 6

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which `context.engine` chooses it."""

    @abstractmethod
    def update_from_response(self, usage: Mapping[str, Any]) -> None:
        """Take note of the usage that a provider reported. Call it after every response."""

    @abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Whether to compress now; without a number, by the last reported prompt tokens."""

    @abstractmethod
    def compress(
        self,
        messages: Sequence[dict[str, Any]],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
    ) -> list[dict[str, Any]]:
        """A smaller list, or the same messages where there is nothing to do."""

    def should_compress_preflight(self, messages: Sequence[dict[str, Any]]) -> bool:
        """Whether to compress before a request with these messages is sent."""
        return False

    def has_content_to_compress(self, messages: Sequence[dict[str, Any]]) -> bool:
        """Whether a compression of these messages could do anything."""
        return True

    def on_session_start(self, session_id: str, **context: Any) -> None:
        """A session begins or is resumed."""

    def on_session_end(self, session_id: str, messages: Sequence[dict[str, Any]]) -> None:
        """A session really ends; a compaction is no end."""

    def on_session_reset(self) -> None:
        """The host starts over: forget the conversation, keep the model."""
        self.last_prompt_tokens = self.last_completion_tokens = self.last_total_tokens = 0
        self.compression_count = 0

    def on_session_switch(self, old_id: str, new_id: str, reason: str) -> None:
        """A session goes on under another id, after a compaction or a branch."""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Tools that the host should offer to the model on the engine's behalf."""
        return []

    def handle_tool_call(self, name: str, args: Mapping[str, Any], **context: Any) -> str:
        """The result of one of those tools, as JSON."""
        return json.dumps({"error": f"this engine has no tool {name!r}"})

    def get_status(self) -> dict[str, Any]:
        """What a status line shows."""
        used = 100.0 * self.last_prompt_tokens / self.context_length if self.context_length else 0.0
        return {
            "last_prompt_tokens": self.last_prompt_tokens,
            "threshold_tokens": self.threshold_tokens,
            "context_length": self.context_length,
            "usage_percent": min(100.0, round(used, 1)),
            "compression_count": self.compression_count,
        }

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
    ) -> None:
        """The host switched to another model."""
        self.context_length = context_length
        self.threshold_tokens = int(context_length * self.threshold_percent)
