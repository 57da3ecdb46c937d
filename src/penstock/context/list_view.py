"""The view that an engine for lists has made, kept in the store beside the log: so that it is there after a restart.

Of a message that stands in it as it was logged, its position is kept; of one that the engine wrote, the message. The log
is not touched. The note holds while nothing else has become of the conversation: by the id of the last message it was
made of, and by the compaction that it rests on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.wire import encode_wire, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.sessions.session import Session

__all__ = ["ListView", "drop_list_view", "keep_list_view", "kept_list_view", "positions_after"]

_NOTE = "list view"


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """`pieces` are positions of the log, or messages as JSON. `over` is the key of the compaction below, 0 for none."""

    engine: str
    over: int
    tip: str
    length: int
    compactions: int
    pieces: list[int | str]


class ListView(msgspec.Struct, frozen=True, eq=False):
    """A view, where in the log its messages stand (None: nowhere), and how often it was compacted."""

    wires: list[Any]
    positions: list[int | None]
    compactions: int = 0


def keep_list_view(session: Session, engine: str, view: ListView) -> None:
    """Keep a view of the whole log, as far as this session knows it. Raises StoreError."""
    if session.is_behind():
        return  # somebody else goes on with the conversation
    pieces: list[int | str] = [
        encode_wire(wire).decode() if position is None else position
        for wire, position in zip(view.wires, view.positions, strict=True)
    ]
    tip = session.store.log_tip(session.id)
    note = _Note(
        engine=engine,
        over=_over(session),
        tip=tip.id,
        length=tip.length,
        compactions=view.compactions,
        pieces=pieces,
    )
    session.store.put_note(_NOTE, session.row.conversation, msgspec.json.encode(note))


def kept_list_view(session: Session, engine: str) -> ListView | None:
    """The view that this engine has made of the conversation, with what was logged since; None where there is none."""
    data = session.store.note(_NOTE, session.row.conversation)
    try:
        note = msgspec.json.decode(data, type=_Note) if data else None
    except msgspec.DecodeError:  # of another version
        return None
    if note is None or (note.engine, note.over) != (engine, _over(session)):
        return None
    last = session.store.read(session.id, [note.length - 1])
    if not last or last[0].id != note.tip:
        return None
    standing = [piece for piece in note.pieces if isinstance(piece, int)]
    entries = session.store.read(session.id, standing)
    known = {entry.position: parse_json(entry.raw) for entry in entries}
    if len(known) != len(set(standing)):
        return None
    later = session.store.read_from(session.id, note.length)
    return ListView(
        [
            *(known[piece] if isinstance(piece, int) else parse_json(piece) for piece in note.pieces),
            *(parse_json(entry.raw) for entry in later),
        ],
        [
            *(piece if isinstance(piece, int) else None for piece in note.pieces),
            *(entry.position for entry in later),
        ],
        note.compactions,
    )


def drop_list_view(session: Session) -> None:
    """Forget the view: the log is what is sent again. Raises StoreError."""
    session.store.put_note(_NOTE, session.row.conversation, b"")


def positions_after(
    made: Sequence[Any], before: Sequence[Any], positions: Sequence[int | None]
) -> list[int | None]:
    """Where the messages of a new view stand in the log: those that stood in the view before, in its order."""
    places: dict[bytes, list[int]] = {}
    for wire, position in zip(before, positions, strict=True):
        if position is not None:
            places.setdefault(encode_wire(wire), []).append(position)
    return list(_in_order(made, places))


def _in_order(made: Iterable[Any], places: dict[bytes, list[int]]) -> Iterable[int | None]:
    least = -1
    for wire in made:
        found = next((one for one in places.get(encode_wire(wire), ()) if one > least), None)
        if found is not None:
            least = found
        yield found


def _over(session: Session) -> int:
    newest = session.store.newest_compaction(session.id)
    return 0 if newest is None else newest.key
