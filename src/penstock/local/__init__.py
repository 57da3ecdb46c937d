"""A real model on this machine: llama.cpp behind loopback HTTP, in a process of its own.

Needs the extra `local` (`docs/guides/local-model.md`). Nothing heavy is imported here: the model lives in the child
process alone.
"""

from __future__ import annotations

from penstock.local.installed import bundled_model, missing
from penstock.local.server import LocalServer

__all__ = ["LocalServer", "bundled_model", "missing"]
