"""The engines there are, by the name that `context.engine` chooses them by: built in, installed, or a file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.config import plugins_folder
from penstock.engine.compressor import ContextCompressor
from penstock.engine.contract import ContextEngine
from penstock.engine.lossless import LosslessEngine
from penstock.engine.plugins import EngineOffer, blaming, files_in, installed, taken, trouble_with
from penstock.errors import EngineFailure, SettingsError
from penstock.settings import Settings, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BUILT_IN", "ENGINES", "engine_named", "offers"]

BUILT_IN = "built in"
ENGINES: dict[str, type[ContextCompressor]] = {"compressor": ContextCompressor, "lossless": LosslessEngine}


def engine_named(name: str, settings: Settings | None = None, **options: Any) -> ContextEngine:
    """A new engine of that name. Raises SettingsError where there is none, or where it cannot be made.

    A built-in engine takes the options of its class, and the settings as one of them. An engine of a third party gets
    those that its class or function takes; `update_model` tells it the rest.
    """
    built_in = ENGINES.get(name)
    if built_in is not None:
        return built_in(settings=settings, **options)
    settings = settings or Settings()
    for offer in offers(settings):
        if offer.name == name:
            try:
                return _made(offer, {"settings": settings, **options})
            except EngineFailure as error:
                raise SettingsError(
                    f"context.engine is {name!r}, and that engine cannot be used: {error}"
                ) from error
    raise SettingsError(f"context.engine is {name!r}, and there is no such engine; {_hint(name, settings)}")


def offers(settings: Settings) -> Iterator[EngineOffer]:
    """All engines: those built in, those of packages, those of the plugin folder. Of one name the first counts.

    The others are offers that cannot be loaded, and say why. Raises SettingsError for a folder that is no whole path.
    """
    seen: dict[str, EngineOffer] = {}
    for offer in _all(settings):
        first = seen.setdefault(offer.name, offer)
        yield offer if first is offer else msgspec.structs.replace(offer, load=partial(_refuse, first))


def _all(settings: Settings) -> Iterator[EngineOffer]:
    for name, engine in ENGINES.items():
        yield EngineOffer(name=name, kind=BUILT_IN, where="penstock", load=partial(_itself, engine))
    yield from installed()
    yield from files_in(plugins_folder(settings.plugins.folder))


def _itself(engine: type[ContextEngine]) -> type[ContextEngine]:
    return engine


def _refuse(first: EngineOffer) -> type[ContextEngine]:
    by = "a built-in engine" if first.kind == BUILT_IN else first.where
    raise EngineFailure(f"the name {first.name!r} is taken by {by}; choose another name for this one")


def _made(offer: EngineOffer, options: dict[str, Any]) -> ContextEngine:
    factory = offer.load()
    with blaming(offer.name, quote=True):
        made = factory(**taken(factory, options))
    if not isinstance(made, ContextEngine):
        raise EngineFailure(f"{offer.where} made a {type(made).__name__} and no penstock.ContextEngine")
    return made


def _hint(name: str, settings: Settings) -> str:
    names = dict.fromkeys(offer.name for offer in offers(settings))
    near = nearest(name, names)
    hint = f"did you mean {near}?" if near else f"the engines are {', '.join(names)}"
    folder = plugins_folder(settings.plugins.folder)
    trouble = trouble_with(folder) if settings.plugins.folder else ""
    return f"{hint} (plugins.folder is {folder}: {trouble})" if trouble else hint
