"""A view as a provider takes it.

A log may be broken, as a killed process leaves it: calls that never got a result.

The log stays as it is. What is broken is mended in what is sent, the same way every time, so that a
provider's cache of it holds: a result without a call is left out, a call without a result gets a stub. Calls
at the very end are left alone, since they may still run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.conversation.dialects import decode_all, wire_of
from penstock.conversation.opening import open_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.dialects import Dialect

__all__ = ["Sent", "sendable"]


class Sent(NamedTuple):
    """A message to be sent. `place` is where it stands in the view, None where it was put in or changed."""

    wire: Any
    place: int | None


def sendable(wires: Sequence[Any], dialect: Dialect) -> list[Sent]:
    """Returns the messages as they can be sent; those that break no rule are the objects that were given."""
    opened = open_list(decode_all(dialect, wires, wires), wires, dialect, keep_merged=True)
    if not opened.mends:
        return [Sent(wire, place) for place, wire in enumerate(wires)]
    changed = opened.changed
    return [
        Sent(
            origin if origin is not None else wire_of(message, dialect), None if place in changed else source
        )
        for place, (message, origin, source) in enumerate(
            zip(opened.messages, opened.origins, opened.sources, strict=True)
        )
    ]
