"""What a write changes, for the person who is asked. Pure."""

from __future__ import annotations

import difflib
from itertools import islice

__all__ = ["difference"]

_MOST_LINES = 200
_MOST_COMPARED = 20_000  # lines; comparing more takes longer than anybody waits for a question


def difference(before: str, after: str, name: str) -> str:
    """A unified difference of at most 200 lines; only the sizes where the files are very long."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > _MOST_COMPARED:
        return f"{name}: {len(old):,} → {len(new):,} lines"
    lines = difflib.unified_diff(old, new, f"{name} (now)", f"{name} (then)", lineterm="")
    shown = list(islice(lines, _MOST_LINES + 1))
    more = ["…"] if len(shown) > _MOST_LINES else []
    return "\n".join([*shown[:_MOST_LINES], *more])
