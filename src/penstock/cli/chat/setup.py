"""What all conversations of a chat share. It is known before the agent is there, and loads nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.providers.cache_marks import caching_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.cli.chat.model import ModelChoice, ModelChooser
    from penstock.settings import Settings
    from penstock.stores.store import Store

__all__ = ["ChatSetup"]


class ChatSetup(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The settings, the store and the model chooser that all conversations of a chat share."""

    settings: Settings
    store: Store
    chooser: ModelChooser
    folder: Path
    carry: Callable[[str], str] = str
    """Adds to a command the options by which this chat found its store."""

    def describe_caching(self, choice: ModelChoice) -> str:
        """Returns how prompts are cached for this model; empty if caching is off and was not asked for."""
        wished = self.settings.model.cache_ttl
        endpoint = str(getattr(choice.model, "base_url", ""))
        plan = caching_for(choice.model.name, endpoint, choice.provider, ttl=wished)
        return str(plan) if plan.on or wished == "1h" else ""
