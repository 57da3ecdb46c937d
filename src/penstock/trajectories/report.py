"""A report of a run: its figures gathered on the way, its page written at the end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.trajectories.report_figures import ReportFigures
from penstock.trajectories.report_page import render

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.trajectories.report_page import ReportFacts

__all__ = ["Report"]


class Report(ReportFigures):
    """The figures of a report, and where its page goes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def write(self, facts: ReportFacts) -> None:
        """Write the page, whole or not at all. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.new")
        try:
            temporary.write_text(render(facts, self), encoding="utf-8")
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)
