"""The bundled table of models: where to find one by the name that a client uses for it.

The data is that of the `genai-prices` wheel, read only when asked for (0.2 s, once). Its updater is never
started here, so nothing is fetched; a host that runs the updater itself gets the newer data.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo

__all__ = ["find_entries", "find_resold"]

_LONGEST_NAME = 256  # characters; no name in the table is near that
_MOST_REMEMBERED = 4_096  # look-ups

# Bedrock's names: an optional region, the vendor, then the vendor's own name.
_BEDROCK_NAME = re.compile(
    r"(?:[a-z]{2,6}\.)?(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral|openai|qwen)\.(.+)"
)


def find_entries(model: str, provider: str | None = None) -> Sequence[tuple[str, ModelInfo]]:
    """Returns (provider, entry) for each reading of the name `model`, the likeliest first.

    With a `provider` that the table knows, only that provider's entries.
    """
    if len(model) > _LONGEST_NAME or len(provider or "") > _LONGEST_NAME:
        return ()
    return _read_table().find_entries(model, provider)


def find_resold(model: str) -> Sequence[tuple[str, ModelInfo]]:
    """Returns entries of the same name with providers that resell it, for what does not depend on the seller."""
    return _read_table().resold.get(_strip_name(model), ()) if len(model) <= _LONGEST_NAME else ()


class _Table:
    """One state of the table, with the look-ups that were made last.

    The package remembers each name that it is asked for, for ever, and callers of a gateway name what they like. So each
    look-up has a table of its own, which shares the entries and is thrown away.
    """

    def __init__(self, snapshot: DataSnapshot) -> None:
        self.snapshot = snapshot
        self.find_entries = lru_cache(_MOST_REMEMBERED)(self._find_entries)

    def _find_entries(self, model: str, provider: str | None) -> tuple[tuple[str, ModelInfo], ...]:
        own = self.snapshot
        table = type(own)(
            providers=own.providers, from_auto_update=own.from_auto_update, timestamp=own.timestamp
        )
        known = provider if _is_known(provider, table) else None
        entries = []
        for where, name in _read_name(model, known):
            with suppress(LookupError):
                found, entry = table.find_provider_model(name, None, where, None)
                entries.append((found.id, entry))
        return tuple(entries)

    @cached_property
    def resold(self) -> Mapping[str, Sequence[tuple[str, ModelInfo]]]:
        """The entries of a provider that resells models of others, by their bare names."""
        by_name: dict[str, list[tuple[str, ModelInfo]]] = {}
        for provider in self.snapshot.providers:
            if provider.id == "openrouter":
                for entry in provider.models:
                    by_name.setdefault(_strip_name(entry.id), []).append((provider.id, entry))
        return by_name


def _is_known(provider: str | None, table: DataSnapshot) -> bool:
    """Returns True if the table has a provider of that name."""
    if not provider:
        return False
    try:
        table.find_provider(None, provider, None)
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


def _read_table() -> _Table:
    # Reading the table takes 0.2 s: it waits for the first question.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    snapshot = get_snapshot()
    if not _READ or _READ[0].snapshot is not snapshot:
        _READ[:] = [_Table(snapshot)]
    return _READ[0]


_READ: list[_Table] = []  # the newest state, where there is one
