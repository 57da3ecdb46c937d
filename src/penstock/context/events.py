"""Events that a live context tells its host while it works: plain values, in the order in which they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from penstock._log import log
from penstock.planning.pressure import Level
from penstock.planning.receipt import Receipt  # noqa: TC001 - a struct's field types are read at run time

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.planning.pressure import Notice

__all__ = ["Compacted", "Compacting", "ContextEvent", "Noticed", "Recovering", "tell_notice"]


class Compacting(msgspec.Struct, frozen=True):
    """A compaction starts that the turn has to wait for; `reason` says why now."""

    reason: str


class Compacted(msgspec.Struct, frozen=True):
    """A compaction was committed; `waited_seconds` is 0 if it had been prepared in the background."""

    receipt: Receipt
    reason: str
    waited_seconds: float


class Recovering(msgspec.Struct, frozen=True):
    """A provider's refusal is being handled: what it was, and the step taken."""

    what: str
    step: str


class Noticed(msgspec.Struct, frozen=True):
    """Something a person should know: pressure, and why compaction rests. `level` as in `planning.pressure`."""

    level: str
    text: str


ContextEvent: TypeAlias = Compacting | Compacted | Recovering | Noticed


def tell_notice(notice: Notice, tell: Callable[[ContextEvent], None]) -> None:
    """Reports a notice on pressure; the mildest, which no host shows, is also logged."""
    if notice.level is Level.LOG:
        log.info("%s", notice.text)
    tell(Noticed(str(notice.level), notice.text))
