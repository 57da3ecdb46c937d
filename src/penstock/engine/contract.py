"""`ContextEngine`: the contract between a host (an agent, a gateway) and the engine that keeps its context small.

Lists are lists of OpenAI-format dicts, or of an SDK's objects that stand for them. An engine never mutates what it is given.

An engine needs four members. All that a host does around a compaction is the same for every engine: it is decided on,
committed to the session's log, opens a continuation session, is counted, can be undone and survives a restart. By
`hosting` an engine says more: that it may work in the background, how much it keeps, that it watches the pressure itself.
Hosts pass what an engine's method takes, and leave out the rest.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.planning.policy import Trigger
from penstock.planning.receipt import SummaryCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from penstock.engine.compress import Compressed
    from penstock.measure.usage import Usage
    from penstock.planning.receipt import Receipt

__all__ = ["Beside", "CompactionWish", "ContextEngine", "Hosting"]


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
    """The number of last messages that no request has held yet, so that no cache has them either."""
    refused: bool = False
    """True where the provider has refused the conversation as it is, so that no model is asked at its end."""
    book_summary: Callable[[str, Usage], None] | None = None
    """Told of each request for a summary which model answered it and what it used, whatever becomes of the summary."""
    most_request_tokens: int | None = None
    """The most that a request for a summary may take, as we count: the provider has refused a larger one."""
    trigger: Trigger = Trigger.MANUAL
    """The occasion: a refused request or an emergency is worth any saving; at the threshold a few messages ask no model."""

    @property
    def is_plain(self) -> bool:
        """True where a compaction that was prepared without any wish will do."""
        return self.target_tokens is None and not self.focus and not self.pins


def _do_nothing(*_told: Any) -> None:
    """For engines that have nothing to do then."""


class Hosting(msgspec.Struct, frozen=True, kw_only=True):
    """The optional steps of an engine, for a host that keeps a log, such as Penstock's own agent."""

    works_in_background: bool = False
    """True where `compress` may run in a thread while the host calls other methods, and is free of lasting effects: the
    host then prepares compactions beside the work, and tells `on_compaction` which of them it has put in place."""
    watches_pressure: bool = False
    """True where the engine itself warns a person of pressure, and rests where compacting saves too little; else the host
    does both."""
    kept_tokens: int | None = None
    """The most tokens that a compaction without a target leaves; None where the engine cannot tell. An engine that tells is
    also asked to compact below the threshold where prices make that worth it: to a target, and without a model unless
    `context.economics` is `on`."""
    summary_tokens: int = 0
    """The most tokens that a model writes for a compaction; 0 where none is asked. Prices are weighed with it."""
    is_due: Callable[[int], bool] | None = None
    """Returns True where a request of so many tokens should be compressed first, in place of `should_compress`,
    `should_compress_preflight` and `has_content_to_compress`."""
    compact_view: Callable[[Sequence[Any], Sequence[int], CompactionWish], Awaitable[Compressed]] | None = (
        None
    )
    """Returns a compaction of the view of a log, with its plan; None for an engine that only has `compress`. The messages
    are in the conversation's own dialect; the numbers name them by their place in the log, 0 for those that stand for
    others. Nothing counts as done before `on_compaction`. Engines that build on `ContextCompressor` have it."""
    on_compaction: Callable[[Receipt, int | None], None] = _do_nothing
    """Told that a compaction of this engine was put in place, or came to nothing: the receipt tells which. The number is
    what the whole request took before, where that is known."""
    reserve_output: Callable[[int], None] = _do_nothing
    """Told how many tokens requests let an answer take from now on, which leave less of the window to the prompt."""
    use_summariser: Callable[[Any], None] = _do_nothing
    """Told which model writes summaries from now on; None leaves the choice to the settings."""


class ContextEngine(ABC):
    """The members that a host may use. The first four members are required; the rest have defaults.

    The attributes are the engine's view of the last response and of its limits. A host may read them at any time. It writes
    none of them but `last_prompt_tokens`, which it may set to -1 after a compaction: not known before the next response.
    """

    last_prompt_tokens: int = 0
    last_completion_tokens: int = 0
    last_total_tokens: int = 0
    threshold_tokens: int = 0
    context_length: int = 0
    compression_count: int = 0
    last_summary_call: SummaryCall = SummaryCall()
    """The last request for a summary: its outcome, its error, and which model stepped in."""

    threshold_percent: float = 0.75
    protect_first_n: int = 3
    protect_last_n: int = 6

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which `context.engine` chooses it."""

    @abstractmethod
    def update_from_response(self, usage: Any) -> None:
        """Takes note of the usage that a provider reported, as a dict or as its SDK's object. Call it after every response."""

    @abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Returns True if it is time to compress; without a number, by the last reported prompt tokens."""

    @abstractmethod
    def compress(
        self,
        messages: Sequence[Any],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
    ) -> list[Any]:
        """Returns a smaller list, or the same messages if there is nothing to do.

        The newest hosts pass two more, by name, to an engine whose method takes them: `force` where a person asks for it, so
        that what holds the engine back does not count, and `memory_context`, what the host's memory knows.
        """

    def should_compress_preflight(self, messages: Sequence[Any]) -> bool:
        """Returns True if a request with these messages should be compressed before it is sent."""
        return False

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        """Returns the answer of `should_compress`, and for the user the reason if a compaction is due but has to wait."""
        return self.should_compress(prompt_tokens), None

    def select_context(self, request_messages: Sequence[Any], **context: Any) -> list[Any] | None:
        """Returns other messages for this one request, which are not kept; None leaves the request as it is.

        The host may name `conversation_messages`, `incoming_message` and `budget_tokens`.
        """
        return None

    def on_turn_complete(self, messages: Sequence[Any], usage: Any = None, **context: Any) -> None:
        """A turn has ended. `usage` is what its last response reported, or None."""

    def prune_tool_results_only(
        self, messages: Sequence[Any], current_tokens: int | None = None
    ) -> tuple[Sequence[Any], int]:
        """Returns the messages with old tool results shortened, and their number; the given list if there were none.

        Shortening what a provider holds in its cache costs more than it saves before the threshold is reached, so the
        built-in engines leave results to `compress`.
        """
        return messages, 0

    def has_content_to_compress(self, messages: Sequence[Any]) -> bool:
        """Returns True if a compression of these messages could change anything."""
        return True

    @property
    def hosting(self) -> Hosting:
        """The engine's optional steps, for a host that keeps a log. The defaults do nothing."""
        return Hosting()

    def on_session_start(self, session_id: str, **context: Any) -> None:
        """A session begins or is resumed."""

    def on_session_end(self, session_id: str, messages: Sequence[Any]) -> None:
        """A session really ends, which a compaction does not do."""

    def on_session_reset(self) -> None:
        """The host starts over: forget the conversation, keep the model."""
        self.last_prompt_tokens = self.last_completion_tokens = self.last_total_tokens = 0
        self.compression_count = 0

    def on_session_switch(self, old_id: str, new_id: str, reason: str) -> None:
        """A session continues under another id, after a compaction or a branch."""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Tools that the host should offer to the model on the engine's behalf."""
        return []

    def handle_tool_call(self, name: str, args: Mapping[str, Any], **context: Any) -> str:
        """Returns the result of one of those tools, as JSON."""
        return json.dumps({"error": f"this engine has no tool {name!r}"})

    def get_status(self) -> dict[str, Any]:
        """Returns the figures of a status line."""
        prompt_tokens = max(0, self.last_prompt_tokens)
        used = 100.0 * prompt_tokens / self.context_length if self.context_length else 0.0
        return {
            "last_prompt_tokens": prompt_tokens,
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
        api_mode: str = "",
    ) -> None:
        """The host switched to another model. `api_mode` is the host's name for the API in use."""
        self.context_length = context_length
        self.threshold_tokens = int(context_length * self.threshold_percent)
