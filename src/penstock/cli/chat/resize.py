"""Redraws cleanly after a resize: a terminal that rewraps lines moves what a program has drawn.

prompt_toolkit and rich go up as many rows as they have drawn, and leave the rest behind as a ghost. Only what was drawn
above the cursor matters: below it, everything is erased anyway.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.config import wraps_on_resize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prompt_toolkit.application import Application
    from prompt_toolkit.layout.screen import Screen as DrawnScreen

__all__ = ["count_added_rows", "redraw_cleanly"]


def count_added_rows(widths: Iterable[int], columns: int) -> int:
    """Returns how many more rows lines of these widths take once a terminal of `columns` has wrapped them."""
    return sum(max(0, width - 1) // max(1, columns) for width in widths)


def redraw_cleanly(app: Application[Any]) -> None:
    """Makes the application erase everything it has drawn when the terminal gets narrower."""
    if not wraps_on_resize():
        return
    resize = app._on_resize  # noqa: SLF001 - there is no public place between a resize and the erasing

    def erase_and_resize() -> None:
        drawn = app.renderer.last_rendered_screen
        if drawn is not None:
            cursor = drawn.get_cursor_position(app.layout.current_window)
            columns = app.output.get_size().columns
            above = count_added_rows(_measure_rows(drawn, cursor.y), columns)
            app.output.cursor_up(above + cursor.x // columns)
        resize()

    app._on_resize = erase_and_resize  # type: ignore[method-assign] # noqa: SLF001 - as above


def _measure_rows(drawn: DrawnScreen, rows: int) -> list[int]:
    """Returns the widths of the first rows, without blanks at their ends."""
    return [
        max((at + 1 for at, char in drawn.data_buffer[row].items() if char.char.strip()), default=0)
        for row in islice(range(drawn.height), rows)
    ]
