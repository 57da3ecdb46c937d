"""Hermes Agent: its context engine, found by entry point.

    pip install "penstock-context[hermes]"
    hermes plugins enable penstock

    # ~/.hermes/config.yaml
    context:
      engine: penstock

The engine is `ContextCompressor` under Hermes' own contract, and gives the agent the recall tools. Settings are those of
Penstock (`penstock config`): `auxiliary.mode` decides whether the agent's model writes the prose of handoffs.
"""

from __future__ import annotations

from typing import Any

from agent.context_engine import ContextEngine as HermesContextEngine

from penstock.config import load_settings
from penstock.engine.compressor import ContextCompressor

__all__ = ["HermesEngine", "register"]


class HermesEngine(ContextCompressor, HermesContextEngine):
    """The built-in engine as Hermes Agent takes it. The host copies it for each of its agents."""

    emit_automatic_compaction_status = False
    """Compactions are routine: status lines of the host about each would only be noise."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"settings": load_settings(), "recall_tools": True, **options})

    @property
    def name(self) -> str:
        """`penstock`, for `context.engine` of Hermes' settings."""
        return "penstock"

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Returns the recall tools as bare functions, which every version of the host understands."""
        return [schema["function"] for schema in super().get_tool_schemas()]


def register(ctx: Any) -> None:
    """Registers the engine: called by Hermes for the entry point `penstock` in the group `hermes_agent.plugins`."""
    ctx.register_context_engine(HermesEngine())
