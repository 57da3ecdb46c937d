"""Asks a provider how large a model's window is, where neither the settings nor a refusal have told it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.providers.address import read_address
from penstock.providers.presets import PRESETS

if TYPE_CHECKING:
    from penstock.context.live import Context
    from penstock.sessions.session import Session

__all__ = ["WindowQuestion"]

_PATIENCE_SECONDS = 5.0
_MOST_ASKED = 2  # a server that loads a model when it is first used knows no window before


class WindowQuestion:
    """Asks the provider's list of models for a window, and keeps the context inside it. It may have no answer."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], int] = {}

    async def ask(self, context: Context, model: Any) -> None:
        """Keep the context inside the window that the list states for the model (any with `window_tokens()`).

        Raises nothing: without an answer, all stays as it is.
        """
        session, ask = context.session, getattr(model, "window_tokens", None)
        key = session.row.model, session.endpoint
        if ask is None or self._asked.get(key, 0) >= _MOST_ASKED or not _is_open(session):
            return
        self._asked[key] = self._asked.get(key, 0) + 1
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                found = await ask()
            if found is not None and key == (session.row.model, session.endpoint):
                session.listed_window = found
                context.fit_window(session.window.tokens)
        except (PenstockError, TimeoutError):
            return


def _is_open(session: Session) -> bool:
    """True where the list may know more than we do: our own table is made of those that large providers publish."""
    source = session.window.source
    if source in ("config", "learned", "listing"):
        return False
    return source != "table" or read_address(session.endpoint).hostname not in _published_hosts()


def _published_hosts() -> set[str]:
    addresses = (read_address(preset.base_url) for preset in PRESETS.values() if preset.base_url)
    return {address.hostname for address in addresses if not address.loopback}
