"""The engines there are, by the name that `context.engine` chooses them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine.compressor import ContextCompressor
from penstock.engine.lossless import LosslessEngine
from penstock.errors import SettingsError
from penstock.settings import nearest

if TYPE_CHECKING:
    from penstock.engine.contract import ContextEngine

__all__ = ["ENGINES", "engine_named"]

ENGINES: dict[str, type[ContextEngine]] = {"compressor": ContextCompressor, "lossless": LosslessEngine}


def engine_named(name: str, **options: Any) -> ContextEngine:
    """A new engine of that name; the options are those of its class. Raises SettingsError where there is none."""
    engine = ENGINES.get(name)
    if engine is None:
        near = nearest(name, ENGINES)
        hint = f"did you mean {near}?" if near else f"the engines are {', '.join(ENGINES)}"
        raise SettingsError(f"context.engine is {name!r}, and there is no such engine; {hint}")
    return engine(**options)
