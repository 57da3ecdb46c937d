"""Requests to a model and its answers as plain values, the same for every provider.

`messages`, `tools` and `Answer.wires` are in the dialect of the model that is asked, so that a conversation is
passed on as it stands (its cached prefix too) and an answer can be appended to it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from penstock.measure.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from penstock.errors import ErrorClass

__all__ = [
    "Answer",
    "Answered",
    "Ask",
    "CallDelta",
    "Called",
    "Event",
    "Finish",
    "Model",
    "ReasoningDelta",
    "StreamingModel",
    "TextDelta",
]


class Finish(StrEnum):
    """The reason why a model stopped."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    REFUSED = "refused"
    OTHER = "other"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a model.

    `system` is the system prompt: a text, or what the dialect allows there. `most_requests` bounds how often it is
    sent, repeats after a failure included. `extra` is merged into the body last (`temperature`, `reasoning`, what a
    provider has of its own). `on_wait` hears, before the request is repeated, in how many seconds and after which failure.
    """

    messages: Sequence[Any]
    system: Any = None
    tools: Sequence[Any] = ()
    max_output_tokens: int | None = None
    timeout_seconds: float | None = None
    most_requests: int | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)
    on_wait: Callable[[float, ErrorClass], None] | None = None


class Called(msgspec.Struct, frozen=True):
    """A tool call in an answer; `arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A model's answer. `wires` is what to append to the conversation, in the model's dialect."""

    text: str
    finish: Finish = Finish.STOP
    usage: Usage = Usage()
    names_cache: bool = True
    """False if the report has no field for cached tokens, so that none of them is not the same as 0."""
    wires: tuple[Any, ...] = ()
    calls: tuple[Called, ...] = ()
    reasoning: str = ""
    model: str = ""
    request_id: str = ""
    requests: int = 1
    seconds: float = 0.0


class TextDelta(msgspec.Struct, frozen=True):
    """More of the answer's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More of the model's reasoning."""

    text: str


class CallDelta(msgspec.Struct, frozen=True):
    """More of a tool call: the first one of an `id` has the name, the others more of the arguments."""

    id: str
    name: str
    arguments: str


class Answered(msgspec.Struct, frozen=True):
    """The stream is over, and this is the whole answer."""

    answer: Answer


Event: TypeAlias = TextDelta | ReasoningDelta | CallDelta | Answered


class Model(Protocol):
    """Anything that answers. `name` is the model's, `dialect` "chat", "responses" or "anthropic"."""

    @property
    def name(self) -> str:
        """The model's name, as prices and windows are looked up by."""

    @property
    def dialect(self) -> str:
        """The dialect of its requests and answers."""

    async def answer(self, ask: Ask) -> Answer:
        """Returns the whole answer. Raises ProviderError; cancelling it ends the request."""


class StreamingModel(Model, Protocol):
    """A model that can also answer bit by bit."""

    def stream(self, ask: Ask) -> AsyncIterator[Event]:
        """Returns the answer as it comes, closed by `Answered`. Raises ProviderError."""
