"""Putting tables into documents: between two marks in a Markdown file, everything else left as it is.

<!-- figures: speed -->
…
<!-- end of figures: speed -->

A table stands wherever its marks are, in any number of documents. `figures: speed, bare` takes the rows alone, without the note
and the line that says when they were measured.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Table, markdown

__all__ = ["list_documents", "replaced", "write_tables"]

ROOT = Path(__file__).parents[1]


def list_documents() -> list[Path]:
    """Every document that may hold figures."""
    return [
        *(ROOT / name for name in ("README.md", "BENCHMARKS.md", "website/home.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


def write_tables(documents: Sequence[Path], tables: Sequence[Table], measured: str) -> None:
    """Puts the tables into their places. ValueError, before anything is written, for a table that has none."""
    old = {document: document.read_text(encoding="utf-8") for document in documents}
    for table in tables:
        if table.columns and not any(_marks(table.key).search(text) for text in old.values()):
            lines = f"<!-- figures: {table.key} --> and <!-- end of figures: {table.key} -->"
            raise ValueError(f"there is no place for {table.key!r}: add the lines {lines}")
    for document, text in old.items():
        if (new := replaced(text, tables, measured)) != text:
            document.write_text(new, encoding="utf-8")


def replaced(report: str, tables: Sequence[Table], measured: str) -> str:
    """The document with these tables in their places, each followed by `measured`: when and on what.

    A table without columns only says why it was not measured, so the figures that stand there stay.
    """
    for table in tables:
        if table.columns:
            body = markdown(table).partition("\n\n")[2]
            whole, rows = f"{body}\n\n{measured}", body.partition("\n\n")[0]
            report = _marks(table.key).sub(
                lambda found, whole=whole, rows=rows: (
                    f"{found[1]}\n{rows if found[2] else whole}\n\n{found[3]}"
                ),
                report,
            )
    return report


def _marks(key: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- figures: {key}(, bare)? -->\n).*?(<!-- end of figures: {key} -->)", re.DOTALL)
