"""Words counts for people: one way, from receipts to the terminal."""

from __future__ import annotations

__all__ = ["pluralise"]


def pluralise(count: int, one: str, many: str = "") -> str:
    """Returns the number and its word: `1 token`, `2,000 tokens`; `many` is for words that do more than add an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
