"""The bundled table of models: where to find one by the name that a client uses for it.

The data is that of the `genai-prices` wheel, read only when asked for (0.2 s, once). Its updater is never
started here, so nothing is fetched; a host that runs the updater itself gets the newer data.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo

__all__ = ["find_entries", "find_resold"]

# Bedrock's names: an optional region, the vendor, then the vendor's own name.
_BEDROCK_NAME = re.compile(
    r"(?:[a-z]{2,6}\.)?(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral|openai|qwen)\.(.+)"
)


def find_entries(model: str, provider: str | None = None) -> Iterator[tuple[str, ModelInfo]]:
    """Yields (provider, entry) for each reading of the name `model`, the likeliest first.

    With a `provider` that the table knows, only that provider's entries.
    """
    table = _load_table()
    known = provider if _provider_is_known(provider) else None
    for where, name in _read_name(model, known):
        try:
            found, entry = table.find_provider_model(name, None, where, None)
        except LookupError:
            continue
        yield found.id, entry


def find_resold(model: str) -> Iterator[tuple[str, ModelInfo]]:
    """Yields entries of the same name with providers that resell it, for what does not depend on the seller."""
    bare = _strip_name(model)
    for provider in _load_table().providers:
        if provider.id == "openrouter":
            for entry in provider.models:
                if _strip_name(entry.id) == bare:
                    yield provider.id, entry


def _provider_is_known(provider: str | None) -> bool:
    """Returns whether the table has a provider of that name."""
    if not provider:
        return False
    try:
        _load_table().find_provider(None, provider, None)
    except LookupError:
        return False
    return True


def _read_name(model: str, provider: str | None) -> Iterator[tuple[str | None, str]]:
    """Yields (provider, name) pairs to look up; None lets the table find the provider by the name."""
    name = model.strip().lower()
    head, slash, rest = name.partition("/")
    if provider:
        yield provider, name
        if slash:
            yield provider, rest
        return
    yield None, name
    if slash:
        yield head, rest
        yield "openrouter", name
        if "/" in rest:
            yield from _read_name(rest, None)
        else:
            yield None, rest
    elif bedrock := _BEDROCK_NAME.fullmatch(name):
        yield "aws", name
        yield None, bedrock[1]


def _strip_name(model: str) -> str:
    """Returns the name without vendor, variant and fine-tune.

    "vendor/model:free" and "ft:model:org" give "model".
    """
    return (
        model.strip().lower().removeprefix("ft:").rsplit("/", 1)[-1].split(":", 1)[0].removesuffix("-latest")
    )


def _load_table() -> DataSnapshot:
    # Reading the table takes 0.2 s: it waits for the first question.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    return get_snapshot()
