"""OpenHands SDK (Python 3.12 or later): a condenser that writes its summary without a model.

    from openhands.sdk import Agent
    from penstock.integrations.openhands import PenstockCondenser

    agent = Agent(llm=llm, tools=tools, condenser=PenstockCondenser(context_length=128_000))

OpenHands can only forget events and put one text in their place, so this uses `penstock.handoff` and no bridge: the events stay in
OpenHands' own log. The same events give the same summary, and nothing is asked over the network.
"""

from __future__ import annotations

import uuid
from typing import Any

from openhands.sdk.context.condenser.base import (
    CondensationRequirement,
    NoCondensationAvailableException,
    RollingCondenser,
)
from openhands.sdk.context.view import View  # noqa: TC002 - the host's models read annotations
from openhands.sdk.event import LLMConvertibleEvent
from openhands.sdk.event.condenser import Condensation
from openhands.sdk.event.llm_convertible import MessageEvent, SystemPromptEvent
from openhands.sdk.llm import LLM, TextContent
from openhands.sdk.logger import get_logger
from pydantic import PrivateAttr

from penstock.conversation.wire import json_text
from penstock.engine.handoff import handoff
from penstock.errors import PenstockError
from penstock.integrations.translators import ChatMessageParts
from penstock.measure.tokens import tokenizer_for
from penstock.measure.windows import resolve_window

__all__ = ["PenstockCondenser"]

logger = get_logger(__name__)

_LEAST_FORGOTTEN = 2  # events: less is not worth a summary


class PenstockCondenser(RollingCondenser):
    """Condenses at a share of the window, keeps the newest events and what a person said, and tells the rest in a handoff."""

    context_length: int | None = None
    """The window in tokens; without it, that of the agent's model."""
    threshold: float = 0.75
    """The share of the window from which on it condenses."""
    tail: float = 0.25
    """The share of the window that the newest events may keep."""
    handoff_tokens: int | None = None
    """The most that the handoff may take; without it, an eighth of the window, at most 8,000 tokens."""
    _weights: dict[str, int] = PrivateAttr(default_factory=dict)

    def handles_condensation_requests(self) -> bool:
        """True: a person may ask for it."""
        return True

    def condensation_requirement(
        self, view: View, agent_llm: LLM | None = None
    ) -> CondensationRequirement | None:
        """Returns HARD if a condensation was requested, SOFT if the view has reached the threshold."""
        if view.unhandled_condensation_request:
            return CondensationRequirement.HARD
        due = sum(self._weigh(view.events)) >= self.threshold * self._window(agent_llm)
        return CondensationRequirement.SOFT if due else None

    def get_condensation(self, view: View, agent_llm: LLM | None = None) -> Condensation:
        """Forgets all but the system prompt and the newest events. Raises NoCondensationAvailableException."""
        weights, window = self._weigh(view.events), self._window(agent_llm)
        first = next((n + 1 for n, one in enumerate(view.events) if isinstance(one, SystemPromptEvent)), 0)
        room, last = self.tail * window, len(view.events)
        while last > first and room >= weights[last - 1]:
            room -= weights[last - 1]
            last -= 1
        return self._condense(view, first, min(last, len(view.events) - 1), agent_llm)

    def hard_context_reset(self, view: View, agent_llm: LLM | None = None) -> Condensation | None:
        """Forgets half of what can be forgotten, where `get_condensation` found too little."""
        first = next((n + 1 for n, one in enumerate(view.events) if isinstance(one, SystemPromptEvent)), 0)
        return self._condense(view, first, first + (len(view.events) - first) // 2, agent_llm)

    def _condense(self, view: View, first: int, last: int, llm: LLM | None) -> Condensation:
        """Forgets the events from `first` up to `last`, as far as calls and their results stay together."""
        cuts = sorted(view.manipulation_indices)
        start = next((cut for cut in cuts if cut >= first), len(view.events))
        end = max((cut for cut in cuts if cut <= last), default=start)
        spoken = self._keep_requests(view.events[start:end], self._window(llm) // 8)
        forgotten = [event for event in view.events[start:end] if event.id not in spoken]
        if len(forgotten) < _LEAST_FORGOTTEN:
            raise NoCondensationAvailableException(
                "the newest events fill the window; there is nothing to forget"
            )
        tokens = self.handoff_tokens or min(8_000, self._window(llm) // 8)
        try:
            summary = handoff(
                _write(forgotten), tokens=tokens, dialect="chat", model=llm.model if llm else None
            )
        except PenstockError as error:
            raise NoCondensationAvailableException(f"Penstock: {error}") from error
        before, after = sum(self._weigh(forgotten)), tokenizer_for(None).count(summary)
        logger.info("penstock: %d events, %d tokens, became a handoff of %d", len(forgotten), before, after)
        return Condensation(
            forgotten_event_ids={event.id for event in forgotten},
            summary=summary,
            summary_offset=start + len(spoken),
            llm_response_id=f"penstock-{uuid.uuid4()}",
        )

    def _keep_requests(self, events: list[LLMConvertibleEvent], room: int) -> set[str]:
        """Returns the messages of the person that stay word for word: the newest in any case, others as far as there is room."""
        kept: set[str] = set()
        said = [one for one in events if isinstance(one, MessageEvent) and one.source == "user"]
        for event, tokens in zip(reversed(said), reversed(self._weigh(said)), strict=True):
            room -= tokens
            if kept and room < 0:
                break
            kept.add(event.id)
        return kept

    def _weigh(self, events: list[LLMConvertibleEvent]) -> list[int]:
        """Returns the tokens of each event; each is counted once, since events never change."""
        count = tokenizer_for(None).count
        for event in events:
            if event.id not in self._weights:
                self._weights[event.id] = count(json_text(_write([event])))
        return [self._weights[event.id] for event in events]

    def _window(self, llm: LLM | None) -> int:
        if self.context_length:
            return self.context_length
        known = llm.max_input_tokens if llm is not None else None
        return known or resolve_window(llm.model if llm is not None else None).tokens


def _write(events: list[LLMConvertibleEvent]) -> list[dict[str, Any]]:
    """Returns the events as the messages that the model was sent, in the Chat Completions dialect."""
    wires: list[dict[str, Any]] = []
    for message in LLMConvertibleEvent.events_to_messages(events):
        text = "\n".join(part.text for part in message.content if isinstance(part, TextContent))
        calls = [(call.id, call.name, call.arguments) for call in message.tool_calls or ()]
        wires.append(ChatMessageParts(message.role, text, calls, message.tool_call_id).to_wire())
    return wires
