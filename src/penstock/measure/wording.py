"""Words counts and shares for people: one way, from receipts to the terminal."""

from __future__ import annotations

__all__ = ["format_share", "pluralise"]


def pluralise(count: int, one: str, many: str = "") -> str:
    """Returns the number and its word: `1 token`, `2,000 tokens`; `many` is for words that do more than add an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def format_share(share: float) -> str:
    """Returns a share in percent: `18%`; a share above 0 that would round to 0 is `<1%`."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"
