"""A provider's list of its models, and the windows that it states. Pure.

Only what a server says about itself counts. The window that a model was trained with is not what a local
server was started with, so that servers with a route of their own are asked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from penstock._structs import read_early
from penstock.providers.bodies import read_shape

__all__ = ["OWN_ROUTES", "ModelListing", "OwnRoute", "entry_of", "listings_from_body", "next_page"]

_WINDOW_FIELDS = (
    "context_length",  # OpenRouter, Together, Fireworks
    "max_model_len",  # vLLM, SGLang
    "context_window",  # Groq
    "max_context_length",  # Mistral, LM Studio
    "loaded_context_length",  # LM Studio: what it was loaded with
    "max_input_tokens",  # Anthropic
)
_INSIDE = (
    ("top_provider", "context_length"),
    ("meta", "n_ctx"),
    ("meta", "n_ctx_train"),
)  # OpenRouter, llama.cpp
_LEAST = 256  # smaller numbers are no windows


class ModelListing(msgspec.Struct, frozen=True):
    """One model of a list. `window_tokens` is None if the provider does not state it."""

    id: str
    window_tokens: int | None = None
    owner: str = ""


class _Page(msgspec.Struct):
    data: list[Any] | None = None
    models: list[Any] | None = None


read_early(_Page)


def listings_from_body(body: Mapping[str, Any]) -> tuple[ModelListing, ...]:
    """Returns the models of a list, in any of the shapes that providers use. Raises ProviderError for anything else."""
    page = read_shape(body, _Page)
    entries = page.data if page.data is not None else page.models or []
    return tuple(_read_listing(entry) for entry in entries if isinstance(entry, Mapping) and _name(entry))


def next_page(body: Mapping[str, Any]) -> str | None:
    """Returns the id after which Anthropic's list goes on, or None."""
    last = body.get("last_id")
    return last if body.get("has_more") is True and isinstance(last, str) and last else None


def entry_of(model: str, listed: Iterable[ModelListing]) -> ModelListing | None:
    """Returns the entry of a model, by its id."""
    return next((entry for entry in listed if entry.id == model), None)


def _from_props(body: Mapping[str, Any], model: str, entry: ModelListing | None) -> int | None:  # noqa: ARG001 - one signature for all servers
    """llama.cpp says how large one slot is; its list only knows how the model was trained."""
    generation = body.get("default_generation_settings")
    slot = _count(generation.get("n_ctx")) if isinstance(generation, Mapping) else None
    return slot if slot is not None else entry.window_tokens if entry else None


def _from_lmstudio(body: Mapping[str, Any], model: str, entry: ModelListing | None) -> int | None:
    """LM Studio says what it loaded the model with, or what it allows."""
    own = entry_of(model, listings_from_body(body)) or entry
    return own.window_tokens if own else None


def _from_ollama(body: Mapping[str, Any], model: str, entry: ModelListing | None) -> int | None:  # noqa: ARG001 - as above
    """Ollama states the window that it loaded the model with; it is unknown until then."""
    running = listings_from_body(body)
    own = entry_of(model, running) or entry_of(f"{model}:latest", running)
    return own.window_tokens if own else None


class OwnRoute(NamedTuple):
    """A route that a kind of server has beside the API, and how to read the window from it."""

    route: str
    window: Callable[[Mapping[str, Any], str, ModelListing | None], int | None]


OWN_ROUTES: Final = {
    "llamacpp": OwnRoute("/props", _from_props),
    "lmstudio": OwnRoute("/api/v0/models", _from_lmstudio),
    "ollama": OwnRoute("/api/ps", _from_ollama),
}


def _read_listing(entry: Mapping[str, Any]) -> ModelListing:
    owner = entry.get("owned_by")
    return ModelListing(_name(entry), _window(entry), owner if isinstance(owner, str) else "")


def _name(entry: Mapping[str, Any]) -> str:
    for field in ("id", "name", "model"):
        value = entry.get(field)
        if isinstance(value, str) and value:
            return value
    return ""


def _window(entry: Mapping[str, Any]) -> int | None:
    stated = [_count(entry.get(field)) for field in _WINDOW_FIELDS]
    for place, field in _INSIDE:
        inside = entry.get(place)
        stated.append(_count(inside.get(field)) if isinstance(inside, Mapping) else None)
    return min((count for count in stated if count is not None), default=None)


def _count(value: Any) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and value >= _LEAST
    return value if known else None
