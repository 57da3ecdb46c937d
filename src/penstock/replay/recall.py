"""Measures how much of what the agent needed later the compactions of a replayed session would have kept."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import dialect_named
from penstock.conversation.wire import parse_json
from penstock.engine.compress import CompressRequest, compress_list, new_notebook
from penstock.errors import TargetTooSmall
from penstock.replay.needles import Recalled, SpokenText, find_needed, join_passages, places
from penstock.replay.traces import turns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.dialects.base import Dialect
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import LogEntry

__all__ = ["StoredSession", "measure_recall", "read_recorded_session"]


class StoredSession(msgspec.Struct, frozen=True, eq=False):
    """A stored conversation, and where in its log each request of its trace was made."""

    dialect: str
    model: str
    wires: list[Any]
    spoken: list[SpokenText]
    positions: list[int]


def read_recorded_session(store: Store, session_id: str) -> StoredSession:
    """Returns the conversation with this session, whose requests are those of `read_stored_trace`."""
    row = store.session(session_id)
    dialect = dialect_named(row.dialect)
    entries = store.read_from(session_id, 0)
    wires = [parse_json(entry.raw) for entry in entries]
    spoken = [
        SpokenText(join_passages(dialect.decode(wire)), entry.role == "assistant")
        for wire, entry in zip(wires, entries, strict=True)
    ]
    times = [turn.at for turn in turns_of(store, session_id)]
    return StoredSession(row.dialect, row.model, wires, spoken, _positions(entries, times))


def measure_recall(
    session: StoredSession, compacted: Sequence[int], kept_tokens: int, settings: Settings
) -> Recalled:
    """Compacts the session before these requests, one after the other, without a model, and measures what is missed.

    Each compaction is made of the view that the one before it left. Values needed after it are looked for until the
    next one. A compaction whose view cannot be that small is left out, and so are those after it.
    """
    dialect = dialect_named(session.dialect)
    notebook = new_notebook(session.model or None, settings)
    request = CompressRequest(
        target_tokens=kept_tokens, model=session.model or None, dialect=session.dialect, settings=settings
    )
    cuts = sorted({session.positions[at] for at in compacted} - {0})
    stretches = pairwise([*cuts, len(session.wires)])
    view: list[Any] = []
    total, start = Recalled(), 0
    for cut, end in stretches:
        try:
            view = compress_list([*view, *session.wires[start:cut]], request, notebook).messages
        except TargetTooSmall:
            break
        total += _count_missed(session, dialect, view, cut, end)
        start = cut
    return total


def _count_missed(session: StoredSession, dialect: Dialect, view: list[Any], cut: int, end: int) -> Recalled:
    wanted = find_needed(session.spoken, cut, end)
    text = "\n".join(join_passages(dialect.decode(wire)) for wire in view) if wanted else ""
    kept = sum(next(places(value, text), None) is not None for value in wanted)
    return Recalled(1, len(wanted), kept)


def _positions(entries: Sequence[LogEntry], times: Sequence[float]) -> list[int]:
    """Returns how many messages stood when each request was made: all before its answer."""
    found, at = [], 0
    for time in times:
        while at < len(entries) and entries[at].created < time:
            at += 1
        asked = at
        while asked and entries[asked - 1].role == "assistant":  # pieces of the answer itself
            asked -= 1
        found.append(asked)
    return found
