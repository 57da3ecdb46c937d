"""Takes messages out of the view of a conversation again. The log keeps them: a rewind is a record, and can be undone.

A record says what the view is from now on, as a compaction does. If the newest compaction summarised messages that are
taken out, its handoff cannot stay; the newest earlier one whose handoff tells nothing of them takes its place.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation.message import Role
from penstock.conversation.view import Handoff, Kept, is_merged
from penstock.stores.values import REWOUND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.view import Compaction, Piece
    from penstock.stores.store import Store

__all__ = ["Rewound", "describe_rewind", "find_standing_pins", "rewind_view", "rewound_positions"]

GONE = "gone"  # beside it: where they stand in the log, as [first, end] of each stretch


class Rewound(NamedTuple):
    """The pieces of the view after a rewind, and the positions in the log of the messages that it took out."""

    pieces: tuple[Piece, ...]
    gone: list[int]


def rewind_view(
    records: Sequence[Compaction], length: int, count: int, gone: frozenset[int] = frozenset()
) -> Rewound:
    """Returns the view of a log of `length` messages without the last `count` that were not rewound before (`gone`).

    `records` are those that hold, the oldest first. Messages that left the view count, too, with or without a handoff.
    """
    told = [position for position in range(length) if position not in gone]
    split = max(0, len(told) - count)
    left = set(told[:split])
    base = next((one for one in reversed(records) if _list_summarised(one) <= left), None)
    start = 0 if base is None else base.length
    pieces = [] if base is None else _without(base.pieces, left)
    pieces += [Kept(position) for position in told[:split] if position >= start]
    return Rewound(tuple(pieces) if left else (), told[split:])


def describe_rewind(rewound: Rewound) -> dict[str, Any]:
    """Returns what the receipt of a rewind says: how many messages it took out, and which."""
    stretches: list[list[int]] = []
    for position in rewound.gone:
        if stretches and stretches[-1][1] == position:
            stretches[-1][1] += 1
        else:
            stretches.append([position, position + 1])
    return {REWOUND: len(rewound.gone), GONE: stretches}


def find_standing_pins(store: Store, session_id: str) -> frozenset[int]:
    """Returns the positions of pinned messages, without those that were rewound: they stay away until that is undone."""
    return store.pins(session_id) - rewound_positions(store, session_id)


def rewound_positions(store: Store, session_id: str) -> frozenset[int]:
    """Returns the positions of all messages that rewinds have taken out."""
    receipts = (row.receipt for row in store.compactions(session_id) if row.is_rewind)
    return frozenset(
        place for receipt in receipts for first, end in receipt.get(GONE, ()) for place in range(first, end)
    )


def _list_summarised(compaction: Compaction) -> set[int]:
    return {place for piece in compaction.pieces if isinstance(piece, Handoff) for place in piece.covers}


def _without(pieces: Sequence[Piece], left: set[int]) -> list[Piece]:
    """Returns the pieces of the messages that are left. A handoff whose message is gone becomes one of its own."""
    kept: list[Piece] = []
    for piece, following in zip_longest(pieces, pieces[1:]):
        if not isinstance(piece, Handoff):
            kept += [piece] if piece.position in left else []
        elif is_merged(piece) and (isinstance(following, Handoff) or following.position not in left):
            kept.append(msgspec.structs.replace(piece, role=Role.USER))
        else:
            kept.append(piece)
    return kept
