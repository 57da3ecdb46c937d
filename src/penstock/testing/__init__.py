"""Test kit for code that builds on Penstock.

A model and a provider that answer from a script, and the contract for engines, are named here. Hypothesis strategies
and writers of conversations are in modules of their own. Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.engine_contract import EngineContract as EngineContract
    from penstock.testing.engine_contract import check_engine as check_engine
    from penstock.testing.plugin_contract import check_dialect as check_dialect
    from penstock.testing.plugin_contract import check_provider as check_provider
    from penstock.testing.plugin_contract import check_tool as check_tool
    from penstock.testing.prompt_cache import PromptCache as PromptCache
    from penstock.testing.provider_server import ScriptedProvider as ScriptedProvider
    from penstock.testing.provider_server import scripted_provider as scripted_provider
    from penstock.testing.scripted import Breach as Breach
    from penstock.testing.scripted import Failure as Failure
    from penstock.testing.scripted import RawBody as RawBody
    from penstock.testing.scripted import Received as Received
    from penstock.testing.scripted import Reply as Reply
    from penstock.testing.scripted_model import ScriptedModel as ScriptedModel

__all__ = [
    "Breach",
    "EngineContract",
    "Failure",
    "PromptCache",
    "RawBody",
    "Received",
    "Reply",
    "ScriptedModel",
    "ScriptedProvider",
    "check_dialect",
    "check_engine",
    "check_provider",
    "check_tool",
    "scripted_provider",
]

_HOMES = {
    "Breach": "penstock.testing.scripted",
    "EngineContract": "penstock.testing.engine_contract",
    "Failure": "penstock.testing.scripted",
    "PromptCache": "penstock.testing.prompt_cache",
    "RawBody": "penstock.testing.scripted",
    "Received": "penstock.testing.scripted",
    "Reply": "penstock.testing.scripted",
    "ScriptedModel": "penstock.testing.scripted_model",
    "ScriptedProvider": "penstock.testing.provider_server",
    "check_dialect": "penstock.testing.plugin_contract",
    "check_engine": "penstock.testing.engine_contract",
    "check_provider": "penstock.testing.plugin_contract",
    "check_tool": "penstock.testing.plugin_contract",
    "scripted_provider": "penstock.testing.provider_server",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
