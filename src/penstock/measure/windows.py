"""The window of a model, in tokens, and how we know it."""

from __future__ import annotations

from itertools import chain
from typing import Literal, TypeAlias

import msgspec

from penstock.errors import SettingsError
from penstock.measure import model_table

__all__ = ["DEFAULT_WINDOW_TOKENS", "Window", "WindowSource", "resolve_window"]

DEFAULT_WINDOW_TOKENS = 128_000

WindowSource: TypeAlias = Literal["config", "learned", "listing", "table", "default"]


class Window(msgspec.Struct, frozen=True):
    """A window with its provenance. A `default` is a guess: it is not to be kept."""

    tokens: int
    source: WindowSource
    detail: str


def resolve_window(
    model: str | None,
    *,
    configured: int | None = None,
    learned: int | None = None,
    listed: int | None = None,
    stated_limit: int | None = None,
) -> Window:
    """Returns the window of `model`: from the settings, else learned from an error of the provider, else from
    the provider's list of models, else from the bundled table, else 128,000.

    `stated_limit` is a limit that the provider itself stated; it lowers any of them and never raises one.
    Numbers below 1 are ignored, except that a `configured` one raises SettingsError.
    """
    if configured is not None and configured < 1:
        raise SettingsError(f"model.context_length is {configured}; it must be at least 1 token")
    window = (
        _use_given(configured, "config", "set in the settings")
        or _use_given(learned, "learned", "learned from an error of the provider")
        or _use_given(listed, "listing", "from the provider's list of models")
        or _look_up(model)
        or Window(DEFAULT_WINDOW_TOKENS, "default", _say_unknown(model))
    )
    if stated_limit is None or not 0 < stated_limit < window.tokens:
        return window
    detail = f"{window.detail}: {window.tokens:,}; lowered to the {stated_limit:,} that the provider stated"
    return Window(stated_limit, window.source, detail)


def _use_given(tokens: int | None, source: WindowSource, detail: str) -> Window | None:
    return Window(tokens, source, detail) if tokens is not None and tokens > 0 else None


def _look_up(model: str | None) -> Window | None:
    if not model:
        return None
    for provider, entry in chain(model_table.find_entries(model), model_table.find_resold(model)):
        if entry.context_window:
            return Window(entry.context_window, "table", f"bundled table, {provider}: {entry.id}")
    return None


def _say_unknown(model: str | None) -> str:
    return f"unknown model {model!r}" if model else "the default"
