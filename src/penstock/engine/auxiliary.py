"""The choice of the model that writes summaries.

It is the session's own, another of its provider, or one that the settings name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.summariser import Summariser
from penstock.errors import SettingsError
from penstock.providers.connect import connect
from penstock.providers.model import ProviderModel

if TYPE_CHECKING:
    from penstock.providers.exchange import Model
    from penstock.settings import Settings

__all__ = ["LOCAL", "provider_of", "summariser_for", "writes_summaries"]

LOCAL = "local"
"""The provider of the small model that is bundled for this machine."""
_ANTHROPIC_NAMES = ("claude",)


def writes_summaries(settings: Settings, model: str, provider: str) -> bool:
    """Returns False for the bundled model on this machine, unless the settings name it.

    It would take most of a minute for what excerpts do at once, and do it worse.
    """
    named = settings.auxiliary.mode == "same-as-main" or settings.compression.summary_model == model
    return provider != LOCAL or named


def summariser_for(
    settings: Settings, main: Model | None, main_window_tokens: int | None = None, provider: str = ""
) -> Summariser | None:
    """Returns the summariser that the settings ask for, None if no model is configured.

    Sends nothing yet. `auto` and `same-as-main`: the session's own model; with `auto`,
    `compression.summary_model` names another one of the same provider. `custom`: the model under
    `auxiliary.compression`, and the session's own if that one fails. A model with a small window is given
    the work in smaller parts; it never changes when compaction starts. `provider` is that of the session's own
    model: the bundled one is not asked unless it is named. Raises SettingsError if the settings leave out something that
    is needed.
    """
    auxiliary = settings.auxiliary
    if main is not None and not writes_summaries(settings, main.name, provider):
        main = None
    if auxiliary.mode == "custom":
        named = auxiliary.compression
        if named.model is None:
            raise SettingsError(
                "auxiliary.mode is custom, but auxiliary.compression.model names no model; name one, or set the mode to auto"
            )
        chosen: Model = connect(
            named.provider or provider_of(named.model),
            named.model,
            base_url=named.base_url,
            api_key_env=named.api_key_env,
            timeout_seconds=named.timeout,
        )
        return Summariser(
            chosen, main=main, window_tokens=named.context_length, timeout_seconds=named.timeout
        )
    if main is None:
        return None
    other = settings.compression.summary_model
    if auxiliary.mode == "auto" and other and other != main.name and isinstance(main, ProviderModel):
        return Summariser(main.make_sibling(other), main=main)
    return Summariser(main, main=main, window_tokens=main_window_tokens)


def provider_of(model: str) -> str:
    """Returns the provider that a model's name speaks of: `anthropic` for Claude, else `openai`."""
    return "anthropic" if model.lower().startswith(_ANTHROPIC_NAMES) else "openai"
