"""What a model takes and gives at most, as its provider says it: in its list of models, or in a refusal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.engine.compressor import ContextCompressor
from penstock.engine.registry import blaming
from penstock.errors import PenstockError
from penstock.providers.address import read_address
from penstock.providers.presets import PRESETS

if TYPE_CHECKING:
    from penstock.loop.agent import Agent

__all__ = ["WindowQuestion", "fit_window", "reserve_output"]

_PATIENCE_SECONDS = 5.0
_MOST_ASKED = 2  # a server that loads a model when it is first used knows no window before


class WindowQuestion:
    """Asks the provider for a model's window, where neither the settings nor a refusal tell it. It may have no answer."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], int] = {}

    async def ask(self, agent: Agent) -> None:
        """Have the agent keep inside the window that is listed. Raises nothing: without an answer, all stays as it is."""
        session, ask = agent.session, getattr(agent.model, "window_tokens", None)
        key = agent.model.name, session.endpoint
        if ask is None or self._asked.get(key, 0) >= _MOST_ASKED or not _is_open(agent):
            return
        self._asked[key] = self._asked.get(key, 0) + 1
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                found = await ask()
            if found is not None and key == (agent.model.name, session.endpoint):
                session.listed_window = found
                fit_window(agent, session.window.tokens)
        except (PenstockError, TimeoutError):
            return


def fit_window(agent: Agent, tokens: int) -> None:
    """Keep the conversation inside a window of so many tokens from now on. Raises EngineFailure."""
    context, engine = agent.context, agent.context.engine
    if tokens == engine.context_length:
        return
    with blaming(engine.name):
        engine.update_model(agent.model.name, tokens, base_url=context.session.endpoint)
    if context.bookkeeper is not None:
        context.bookkeeper.limit(engine.threshold_tokens)


def reserve_output(agent: Agent) -> None:
    """Keep room for the answers that the host asks for. Engines of others know no such room."""
    context, tokens = agent.context, agent.limits.max_output_tokens
    if tokens is None or not isinstance(context.engine, ContextCompressor):
        return
    context.engine.reserve_output(tokens)
    if context.bookkeeper is not None:
        context.bookkeeper.limit(context.engine.threshold_tokens)


def _is_open(agent: Agent) -> bool:
    """Whether the list has something to say: our own table is made of those that the large providers publish."""
    source = agent.session.window.source
    if source in ("config", "learned", "listing"):
        return False
    return source != "table" or read_address(agent.session.endpoint).hostname not in _published()


def _published() -> set[str]:
    addresses = (read_address(preset.base_url) for preset in PRESETS.values() if preset.base_url)
    return {address.hostname for address in addresses if not address.loopback}
