"""`ContextEngine`: the contract between a host (an agent, a gateway) and the engine that keeps its context small.

Lists hold OpenAI-format dicts, or an SDK's objects for them. An engine never mutates its arguments.

An engine needs four members. Everything that a host does around a compaction is the same for all engines: the host decides
on it, commits it to the session's log, opens a continuation session, counts it, and can undo it, even after a restart. With
`hosting`, an engine says more: whether it may work in the background, how much it keeps, whether it watches the pressure
itself. Hosts pass only the arguments that an engine's method takes.
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

    from penstock.engine.compress import Compressed, CompressRequest
    from penstock.measure.usage import Usage
    from penstock.planning.receipt import Receipt

__all__ = ["Beside", "CompactionWish", "ContextEngine", "Hosting"]


class Beside(msgspec.Struct, frozen=True):
    """The parts of a request beside its messages. They count against the window and are never compacted.

    A request for a summary has the same parts, so that the provider reads its prompt from the cache.
    """

    system: Any = None
    tools: Sequence[Any] = ()
    mark: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Places the cache marks on a request (`messages`, `system`, `tools`); None if the host places none."""
    passing: Sequence[str] = ()
    """Texts for this request only."""


class CompactionWish(msgspec.Struct, frozen=True, kw_only=True):
    """The wishes for one compaction."""

    target_tokens: int | None = None
    """The maximum size of the messages afterwards; None leaves it to the engine."""
    focus: str | None = None
    """A topic that gets more room than the rest."""
    pins: frozenset[int] = frozenset()
    """Numbers of messages that stay whole."""
    may_call_model: bool = True
    """False if no model may be asked: there is no time for it, or it would cost more than it saves."""
    dialect: str = "auto"
    """The dialect of the messages, if known: a list of plain texts does not show it."""
    beside: Beside | None = None
    """The other parts of the host's own requests, if known."""
    unsent: int = 0
    """The number of messages at the end that no request has included yet, so that no cache has them either."""
    refused: bool = False
    """True if the provider refused the conversation at its present size, so that no model is asked at its end."""
    book_summary: Callable[[str, Usage], None] | None = None
    """Called for each request for a summary, with the model that answered and its usage, whatever becomes of the summary."""
    most_request_tokens: int | None = None
    """The largest request for a summary, by our count: the provider has refused a larger one."""
    trigger: Trigger = Trigger.MANUAL
    """The occasion. A refusal or an emergency is worth any saving; at the threshold, few messages are not worth a model."""

    @property
    def is_plain(self) -> bool:
        """True if a compaction that was prepared without any wish will do."""
        return self.target_tokens is None and not self.focus and not self.pins


def _do_nothing(*_told: Any) -> None:
    """Does nothing, for engines that have nothing to do at that point."""


class Hosting(msgspec.Struct, frozen=True, kw_only=True):
    """The optional steps of an engine, for a host that keeps a log, such as Penstock's own agent."""

    works_in_background: bool = False
    """True if `compress` may run in a thread while the host calls other methods, and has no lasting effects. Then the host
    prepares compactions in the background, and reports to `on_compaction` which of them it has put in place."""
    watches_pressure: bool = False
    """True if the engine itself warns people of pressure, and pauses when compacting saves too little; otherwise the host
    does both."""
    kept_tokens: int | None = None
    """The maximum that a compaction without a target leaves; None if the engine cannot tell. If it can, the host also asks
    for compactions below the threshold that prices make worthwhile: with a target, and without a model unless
    `context.economics` is `on`."""
    summary_tokens: int = 0
    """The maximum that a model writes for a compaction; 0 if no model is asked. The host's economics use it."""
    is_due: Callable[[int], bool] | None = None
    """Returns True if a request of that many tokens should be compressed first. Replaces `should_compress`,
    `should_compress_preflight` and `has_content_to_compress`."""
    compact_view: Callable[[Sequence[Any], Sequence[int], CompactionWish], Awaitable[Compressed]] | None = (
        None
    )
    """Returns a compaction of the view of a log, with its plan; None for an engine that only has `compress`. The messages
    are in the conversation's own dialect. The numbers are their places in the log, 0 for messages that stand for others.
    Nothing counts as done before `on_compaction`. Engines derived from `ContextCompressor` have it."""
    describe: Callable[[CompactionWish], CompressRequest | None] | None = None
    """Returns the request that gives `compress_list`, in any process, the same result as `compact_view`; None if this very
    engine is needed, as for a model's words. A host with many conversations compacts them in another process."""
    on_compaction: Callable[[Receipt, int | None], None] = _do_nothing
    """Called when a compaction of this engine was put in place or came to nothing: the receipt says which. The number is
    the size of the whole request before, if known."""
    reserve_output: Callable[[int], None] = _do_nothing
    """Called with the maximum length of answers from now on, which leaves less of the window to the prompt."""
    use_summariser: Callable[[Any], None] = _do_nothing
    """Called with the model that writes summaries from now on; None leaves the choice to the settings."""


class ContextEngine(ABC):
    """The members that a host may use. The first four are required; the rest have defaults.

    The attributes are the engine's view of the last response and of its limits. A host may read them at any time. It only
    sets `last_prompt_tokens`, to -1 after a compaction: unknown until the next response.
    """

    last_prompt_tokens: int = 0
    last_completion_tokens: int = 0
    last_total_tokens: int = 0
    threshold_tokens: int = 0
    context_length: int = 0
    compression_count: int = 0
    last_summary_call: SummaryCall = SummaryCall()
    """The last request for a summary: its outcome, its error, and the model that stepped in, if any."""

    threshold_percent: float = 0.75
    protect_first_n: int = 3
    protect_last_n: int = 6

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the engine in the setting `context.engine`."""

    @abstractmethod
    def update_from_response(self, usage: Any) -> None:
        """Records the usage that a provider reported, as a dict or as its SDK's object. Call it after every response."""

    @abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Returns True if it is time to compress. Without a number, goes by the last reported prompt tokens."""

    @abstractmethod
    def compress(
        self,
        messages: Sequence[Any],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
    ) -> list[Any]:
        """Returns a smaller list, or the same messages if there is nothing to do.

        The newest hosts pass two more arguments, by name, if an engine's method takes them: `force` if a person asks for the
        compaction, so that the engine's guards do not count, and `memory_context`, the knowledge of the host's memory.
        """

    def should_compress_preflight(self, messages: Sequence[Any]) -> bool:
        """Returns True if a request with these messages should be compressed before it is sent."""
        return False

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        """Returns the answer of `should_compress`, and the reason, for the user, if a compaction is due but has to wait."""
        return self.should_compress(prompt_tokens), None

    def select_context(self, request_messages: Sequence[Any], **context: Any) -> list[Any] | None:
        """Returns replacement messages for this one request, which are not kept; None leaves the request as it is.

        The host may name `conversation_messages`, `incoming_message` and `budget_tokens`.
        """
        return None

    def on_turn_complete(self, messages: Sequence[Any], usage: Any = None, **context: Any) -> None:
        """Called when a turn has ended. `usage` is the report of its last response, or None."""

    def prune_tool_results_only(
        self, messages: Sequence[Any], current_tokens: int | None = None
    ) -> tuple[Sequence[Any], int]:
        """Returns the messages with old tool results shortened, and the number of those; the given list if there were none.

        Before the threshold is reached, shortening messages that a provider has in its cache costs more than it saves, so
        the built-in engines leave results to `compress`.
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
        """Called when a session begins or is resumed."""

    def on_session_end(self, session_id: str, messages: Sequence[Any]) -> None:
        """Called when a session really ends. A compaction does not end one."""

    def on_session_reset(self) -> None:
        """Called when the host starts over: the engine forgets the conversation and keeps the model."""
        self.last_prompt_tokens = self.last_completion_tokens = self.last_total_tokens = 0
        self.compression_count = 0

    def on_session_switch(self, old_id: str, new_id: str, reason: str) -> None:
        """Called when a session continues under another id, after a compaction or a branch."""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Returns tools for the host to offer to the model on the engine's behalf."""
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
        """Called when the host switches to another model. `api_mode` is the host's name for the API in use."""
        self.context_length = context_length
        self.threshold_tokens = int(context_length * self.threshold_percent)
