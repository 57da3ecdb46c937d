"""Figures and text as people are shown them, wherever that is."""

from __future__ import annotations

import time
from decimal import Decimal

from penstock.config import redactor_of_process
from penstock.measure.prices import Money
from penstock.measure.wording import pluralise

__all__ = [
    "SHORT_ID_CHARS",
    "explain_unreported",
    "format_money",
    "format_sum",
    "format_time",
    "redact",
    "shorten_count",
]

SHORT_ID_CHARS = 8  # of an id in a list; the beginning of an id is enough to name a conversation


def format_money(usd: float | None) -> str:
    """Returns an amount of money, or "unknown" for None."""
    return "unknown" if usd is None else str(Money(Decimal(repr(usd))))


def format_sum(usd: float | None, known: float) -> str:
    """Returns a sum of money; if it is None because a price is unknown, `at least` the part that is known."""
    return f"at least {format_money(known)}" if usd is None and known else format_money(usd)


def explain_unreported(count: int) -> str:
    """Returns a sentence on requests of which no usage was reported."""
    was = "it was" if count == 1 else "they were"
    return (
        f"{pluralise(count, 'request')} reported no usage ({was} broken off, or the provider does not say): "
        "these are the least that was used"
    )


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
    """Returns the text without secrets."""
    return redactor_of_process().redact(text)
