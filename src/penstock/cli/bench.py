"""`penstock bench`: measurements on your own sessions. Each has its own module, loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["run"]

_HOMES = {"recall": "bench_recall", "replay": "bench_replay"}


def run(args: argparse.Namespace) -> int:
    """Carry out the benchmark. Raises what it raises."""
    module = import_module(f"penstock.cli.{_HOMES[args.bench]}")
    code: int = module.run(args)
    return code
