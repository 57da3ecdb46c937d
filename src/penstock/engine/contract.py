"""`ContextEngine`: the contract between a host (an agent, a gateway) and the engine that keeps its context small.

Lists are lists of OpenAI-format dicts. An engine never mutates what it is given.

An engine needs four members. All that a host does around a compaction is the same for every engine: it is decided on,
committed to the session's log, opens a continuation session, is counted, can be undone and survives a restart. Optional
members let an engine say more: that it may work in the background, how much it keeps, that it watches the pressure itself.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.engine.compress import Compressed
    from penstock.measure.usage import Usage
    from penstock.planning.receipt import Receipt

__all__ = ["Beside", "CompactionWish", "ContextEngine"]


class Beside(msgspec.Struct, frozen=True):
    """The parts of a request beside its messages: they count against the window, and are never compacted.

    A summary is asked for with the same parts, so that the provider reads its prompt from the cache.
    """

    system: Any = None
    tools: Sequence[Any] = ()
    mark: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Places the cache marks on a request (`messages`, `system`, `tools`); None where the host places none."""
    passing: Sequence[str] = ()
    """Texts for this request alone."""


class CompactionWish(msgspec.Struct, frozen=True, kw_only=True):
    """The wishes for one compaction."""

    target_tokens: int | None = None
    """The most that the messages may take afterwards; None leaves it to the engine."""
    focus: str | None = None
    """A topic that gets more room than the rest."""
    pins: frozenset[int] = frozenset()
    """Numbers of messages that stay whole."""
    may_call_model: bool = True
    """False where no model may be asked: there is no time for it, or it would cost more than it saves."""
    dialect: str = "auto"
    """The dialect of the messages, where it is known: a list of plain texts does not tell."""
    beside: Beside | None = None
    """The other parts of the host's own requests, where they are known."""
    unsent: int = 0
    """How many of the last messages no request has held yet, so that no cache has them either."""
    refused: bool = False
    """True where the provider has refused the conversation as it is, so that no model is asked at its end."""
    book_summary: Callable[[str, Usage], None] | None = None
    """Told of each request for a summary which model answered it and what it used, whatever becomes of the summary."""

    @property
    def is_plain(self) -> bool:
        """True where a compaction that was prepared without any wish will do."""
        return self.target_tokens is None and not self.focus and not self.pins


class ContextEngine(ABC):
    """The members that a host may use. The first four members are required; the rest have defaults.

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

    works_in_background: bool = False
    """True where `compress` may run in a thread while the host calls other methods, and is free of lasting effects: the
    host then prepares compactions beside the work, and tells `on_compaction` which of them it has put in place."""
    watches_pressure: bool = False
    """True where the engine itself warns a person of pressure, and rests where compacting saves too little; else the host
    does both."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which `context.engine` chooses it."""

    @property
    def kept_tokens(self) -> int | None:
        """The most tokens that a compaction without a target leaves; None where the engine cannot tell.

        An engine that tells is also asked to compact below the threshold where prices make that worth it: to a target, and
        without a model, unless `context.economics` is `on`.
        """
        return None

    @property
    def summary_tokens(self) -> int:
        """The most tokens that a model writes for a compaction; 0 where none is asked. Prices are weighed with it."""
        return 0

    @abstractmethod
    def update_from_response(self, usage: Mapping[str, Any]) -> None:
        """Takes note of the usage that a provider reported. Call it after every response."""

    @abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Returns True where it is time to compress; without a number, by the last reported prompt tokens."""

    @abstractmethod
    def compress(
        self,
        messages: Sequence[dict[str, Any]],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
    ) -> list[dict[str, Any]]:
        """Returns a smaller list, or the same messages where there is nothing to do."""

    def should_compress_preflight(self, messages: Sequence[dict[str, Any]]) -> bool:
        """Returns True where a request with these messages should be compressed before it is sent."""
        return False

    def has_content_to_compress(self, messages: Sequence[dict[str, Any]]) -> bool:
        """Returns True where a compression of these messages could do anything."""
        return True

    def is_due(self, prompt_tokens: int, messages: Callable[[], Sequence[dict[str, Any]]]) -> bool:
        """Returns True where a request of so many tokens should be compressed first. `messages` gives its list, at a cost.

        The default asks the methods above, and converts nothing for an engine that decides by the tokens alone.
        """
        if not self.should_compress(prompt_tokens):
            if type(self).should_compress_preflight is ContextEngine.should_compress_preflight:
                return False
            if not self.should_compress_preflight(messages()):
                return False
        return bool(self.has_content_to_compress(messages()))

    async def compact_view(
        self, messages: Sequence[Any], numbers: Sequence[int], wish: CompactionWish
    ) -> Compressed | None:
        """Returns a compaction of the view of a log, with its plan; None from an engine that only has `compress`.

        `messages` are in the conversation's own dialect, `numbers` name them by their place in the log, 0 for those that
        stand for others. Nothing counts as done before `on_compaction`. Engines that build on `ContextCompressor` have it.
        """
        return None

    def on_compaction(self, receipt: Receipt, current_tokens: int | None = None) -> None:
        """A compaction of this engine was put in place, or came to nothing: the receipt tells which.

        `current_tokens` is what the whole request took before.
        """

    def reserve_output(self, tokens: int) -> None:
        """Requests ask for answers of so many tokens from now on, which leave less of the window to the prompt."""

    def use_summariser(self, summariser: Any) -> None:
        """Another model writes summaries from now on; None leaves the choice to the settings."""

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
        """Returns the result of one of those tools, as JSON."""
        return json.dumps({"error": f"this engine has no tool {name!r}"})

    def get_status(self) -> dict[str, Any]:
        """Returns the figures of a status line."""
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
