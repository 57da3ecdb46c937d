"""What a model wrote for a row, kept so that it is never asked for the same row twice."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from penstock.writing.prose import Prose  # noqa: TC001 - `KeptSummary` is decoded by it

__all__ = ["KeptSummaries", "KeptSummary"]


class KeptSummary(msgspec.Struct, frozen=True):
    """What a model wrote for one row, with the figures of it, so that it is never asked for it again.

    `prose` is None where it failed for good; `figures` are fields of the metrics.
    """

    row: int
    prose: Prose | None
    figures: dict[str, Any]


class KeptSummaries(Protocol):
    """Where what models wrote is kept, by row."""

    def get(self, row: int) -> KeptSummary | None:
        """What was written for this row before."""

    def put(self, kept: KeptSummary) -> None:
        """Keep it, for good."""
