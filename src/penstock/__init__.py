"""Penstock: the context engine that keeps an LLM agent's conversation inside its window.

    import penstock

    result = penstock.compress(messages, target_tokens=20_000)
    result.messages   # same dialect and shape as given
    print(result.receipt)

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.engine.compress import Compressed as Compressed
    from penstock.engine.compress import acompress as acompress
    from penstock.engine.compress import compress as compress
    from penstock.engine.compressor import ContextCompressor as ContextCompressor
    from penstock.engine.contract import ContextEngine as ContextEngine
    from penstock.engine.contract import Hosting as Hosting
    from penstock.engine.handoff import handoff as handoff
    from penstock.engine.summariser import Summariser as Summariser
    from penstock.errors import ErrorClass as ErrorClass
    from penstock.errors import PenstockError as PenstockError
    from penstock.lossless.engine import LosslessEngine as LosslessEngine
    from penstock.measure.usage import Usage as Usage
    from penstock.measure.usage import normalise_usage as normalise_usage
    from penstock.planning.receipt import Receipt as Receipt
    from penstock.providers.cache_marks import mark_cache as mark_cache
    from penstock.providers.classify import classify_error as classify_error
    from penstock.providers.connect import connect as connect
    from penstock.sessions.session import Session as Session
    from penstock.settings import Settings as Settings
    from penstock.stores.store import open_store as open_store
    from penstock.trajectories.compress import acompress_trajectory as acompress_trajectory
    from penstock.trajectories.compress import compress_trajectories as compress_trajectories
    from penstock.trajectories.compress import compress_trajectory as compress_trajectory
    from penstock.trajectories.metrics import TrajectoryMetrics as TrajectoryMetrics

__version__ = "0.1.0"

__all__ = [
    "Compressed",
    "ContextCompressor",
    "ContextEngine",
    "ErrorClass",
    "Hosting",
    "LosslessEngine",
    "PenstockError",
    "Receipt",
    "Session",
    "Settings",
    "Summariser",
    "TrajectoryMetrics",
    "Usage",
    "acompress",
    "acompress_trajectory",
    "classify_error",
    "compress",
    "compress_trajectories",
    "compress_trajectory",
    "connect",
    "handoff",
    "mark_cache",
    "normalise_usage",
    "open_store",
]

_HOMES = {
    "Compressed": "penstock.engine.compress",
    "ContextCompressor": "penstock.engine.compressor",
    "ContextEngine": "penstock.engine.contract",
    "ErrorClass": "penstock.errors",
    "Hosting": "penstock.engine.contract",
    "LosslessEngine": "penstock.lossless.engine",
    "PenstockError": "penstock.errors",
    "Receipt": "penstock.planning.receipt",
    "Session": "penstock.sessions.session",
    "Settings": "penstock.settings",
    "Summariser": "penstock.engine.summariser",
    "TrajectoryMetrics": "penstock.trajectories.metrics",
    "Usage": "penstock.measure.usage",
    "acompress": "penstock.engine.compress",
    "acompress_trajectory": "penstock.trajectories.compress",
    "classify_error": "penstock.providers.classify",
    "compress": "penstock.engine.compress",
    "compress_trajectories": "penstock.trajectories.compress",
    "compress_trajectory": "penstock.trajectories.compress",
    "connect": "penstock.providers.connect",
    "handoff": "penstock.engine.handoff",
    "mark_cache": "penstock.providers.cache_marks",
    "normalise_usage": "penstock.measure.usage",
    "open_store": "penstock.stores.store",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
