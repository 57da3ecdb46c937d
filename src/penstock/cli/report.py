"""The receipt of a compaction as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.compaction.receipt import NOTHING_TO_DO, Receipt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cli.screen import Screen

__all__ = ["receipt_lines"]

_LABEL = 11  # columns of a label in the text of a receipt, after two blanks


def receipt_lines(receipt: Receipt, screen: Screen, *, aimed: bool) -> Iterator[str]:
    """The lines of the report. `aimed` when a target or a window was named, so that no hint is needed."""
    first, *rest = str(receipt).splitlines()
    yield screen.paint(first, "bold")
    for line in rest:
        yield f"  {screen.paint(line[2 : 2 + _LABEL], 'dim')}{line[2 + _LABEL :]}"
    if receipt.outcome == NOTHING_TO_DO and not aimed:
        yield f"  {screen.paint('hint', 'dim')}       name a smaller target with --target-tokens N"
