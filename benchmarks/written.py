"""Putting tables into a report: between two marks in a Markdown file, everything else left as it is.

<!-- figures: speed -->
…
<!-- end of figures: speed -->
"""

from collections.abc import Sequence

from benchmarks.report import Table, markdown

__all__ = ["replaced"]


def replaced(report: str, tables: Sequence[Table], measured: str) -> str:
    """The report with these tables in their places, each followed by `measured`: when and on what.

    A table without columns only says why it was not measured, so the figures that stand there stay. ValueError
    for a table that has no place in the report.
    """
    for table in tables:
        if table.columns:
            body = markdown(table).partition("\n\n")[2]
            report = _placed(report, table.key, f"{body}\n\n{measured}")
    return report


def _placed(report: str, key: str, text: str) -> str:
    begin, end = f"<!-- figures: {key} -->\n", f"<!-- end of figures: {key} -->"
    before, found, rest = report.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the report has no place for {key!r}: add the lines {begin.strip()} and {end}")
    return f"{before}{begin}\n{text}\n\n{end}{after}"
