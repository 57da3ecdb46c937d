"""Asks a provider how large the window of a session's model is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.providers.address import read_address
from penstock.providers.presets import PRESETS

if TYPE_CHECKING:
    from penstock.sessions.session import Session

__all__ = ["WindowListings"]

_LISTING_SECONDS = 5.0  # to wait for a provider's list of models
_MOST_LISTINGS = 2  # a server that loads a model when it is first used knows no window before


class WindowListings:
    """The windows that providers list for the models of one session. Each is asked for twice at most."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._asked: dict[tuple[str, str], int] = {}  # by model and address

    async def ask(self, model: Any) -> bool:
        """Takes the window that the provider lists for the session's model; True where it lists one.

        `model` is anything with `window_tokens()`. Does not ask where settings or a refusal have told the window already.
        Raises nothing: without an answer, all stays as it is.
        """
        session, ask = self._session, getattr(model, "window_tokens", None)
        key = session.row.model, session.endpoint
        asked = self._asked.get(key, 0)
        if ask is None or asked >= _MOST_LISTINGS or not _may_listing_know_more(session):
            return False
        self._asked[key] = asked + 1
        try:
            async with asyncio.timeout(_LISTING_SECONDS):
                found = await ask()
        except (PenstockError, TimeoutError):
            return False
        if found is None or key != (session.row.model, session.endpoint):
            return False
        session.workings.listed_window = found
        return True


def _may_listing_know_more(session: Session) -> bool:
    """Returns True where a provider's list of models may know more: our own table is made of those of large providers."""
    source = session.window.source
    if source in ("config", "learned", "listing"):
        return False
    published = (read_address(preset.base_url) for preset in PRESETS.values() if preset.base_url)
    hosts = {address.hostname for address in published if not address.loopback}
    return source != "table" or read_address(session.endpoint).hostname not in hosts
