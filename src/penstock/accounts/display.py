"""Figures and text as people are shown them, wherever that is."""

from __future__ import annotations

import time
from decimal import Decimal

from penstock.config import redactor_of_process
from penstock.measure.prices import Money

__all__ = ["SHORT_ID_CHARS", "format_money", "format_sum", "format_time", "redact", "shorten_count"]

SHORT_ID_CHARS = 8  # of an id in a list; the beginning of an id is enough to name a conversation


def format_money(usd: float | None) -> str:
    """Returns an amount of money, or "unknown" for None."""
    return "unknown" if usd is None else str(Money(Decimal(repr(usd))))


def format_sum(usd: float | None, known: float) -> str:
    """Returns a sum of money; of one that is None, since a price in it is unknown, the least that it can be."""
    return f"at least {format_money(known)}" if usd is None and known else format_money(usd)


def format_time(at: float) -> str:
    """Returns a point in time to the minute, in the reader's time zone."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def shorten_count(count: int) -> str:
    """Returns a number in few characters: `9,999`, `62k`, `1.05M`."""
    if count < 10_000:
        return f"{count:,}"
    if count < 1_000_000:
        return f"{count / 1_000:.0f}k"
    return f"{count / 1_000_000:.2f}".rstrip("0").rstrip(".") + "M"


def redact(text: str) -> str:
    """Returns the text without secrets, to be shown."""
    return redactor_of_process().redact(text)
