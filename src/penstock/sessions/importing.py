"""Imports a conversation that another program recorded. Doing it twice adds nothing.

The id of its session is derived from the id that the other program gave it, or else from its content. If
the file has grown since, the log gets the new messages; if it took another course, a branch does. Messages keep their
times, and the usage of requests is booked.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from penstock.config import redactor_of_process
from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import chain
from penstock.conversation.wire import encode_wire, parse_json
from penstock.errors import StoreConflict, UnknownSession
from penstock.measure.tokens import tokenizer_for
from penstock.sessions.appending import prepare_messages
from penstock.sessions.metering import price_request
from penstock.stores.values import BRANCH, LAST_USED, MAIN, SUBAGENT, NewMessage, NewSession

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow, UsageRow
    from penstock.transfer.recorded import RecordedConversation

__all__ = ["BRANCHED", "GROWN", "KNOWN", "NEW", "WITHOUT_PARENT", "Adoption", "adopt_conversation"]

NEW, GROWN, KNOWN, BRANCHED, WITHOUT_PARENT = "new", "grown", "known", "branched", "without_parent"
_NOTE = "import"
_TITLE_CHARS = 200
_TRIES = 20  # where another process imports the same
_LIVE_SECONDS = 60.0  # since a file was written that another program may still be writing
_LONGEST_SECONDS = 15.0  # between some messages and what they cost
_AT_ONCE = 500  # messages in one transaction


class Adoption(msgspec.Struct, frozen=True):
    """The outcome for one recorded conversation: NEW, GROWN, KNOWN, BRANCHED or WITHOUT_PARENT."""

    outcome: str
    session: str = ""
    added: int = 0
    """Messages that were added to the store's log."""
    messages: int = 0
    """Messages that the recorded conversation has."""
    more_to_come: bool = False
    """True if its last message was left for the next time."""


class _Adoptee(msgspec.Struct, frozen=True):
    """A recorded conversation as the store takes it. `now` is the time of the import, `written` that of messages without one."""

    recorded: RecordedConversation
    new: list[NewMessage]
    ids: list[str]
    id: str
    now: float
    written: float


def adopt_conversation(
    store: Store, recorded: RecordedConversation, settings: Settings, now: float, written: float | None = None
) -> Adoption:
    """Puts the conversation into the store. Messages without a time of their own get that of `written`, or of `now`.

    Raises InputError for a message that is not one of its dialect, StoreError if the store does not take it. Messages that
    were appended until then stay, and the next attempt continues from there. Another process may import the same at the same
    time. The last message of a file that was written a moment ago may still grow: it is left for the next time, since a log
    is never changed.
    """
    is_live = written is not None and 0 <= now - written < _LIVE_SECONDS
    more_to_come = recorded.may_go_on and is_live and len(recorded.messages) > 1
    prepared = _prepare(
        _drop_last(recorded) if more_to_come else recorded, now, now if written is None else written
    )
    for _ in range(_TRIES):
        try:
            done = _put(store, prepared, settings)
            break
        except StoreConflict:  # another process is at it: go on from where that is now
            continue
    else:
        done = _put(store, prepared, settings)
    return msgspec.structs.replace(done, more_to_come=more_to_come)


def _drop_last(recorded: RecordedConversation) -> RecordedConversation:
    """Returns the conversation without its last message."""
    length = len(recorded.messages) - 1
    return msgspec.structs.replace(
        recorded,
        messages=recorded.messages[:length],
        requests=tuple(one for one in recorded.requests if one.after <= length),
    )


def _put(store: Store, prepared: _Adoptee, settings: Settings) -> Adoption:
    recorded = prepared.recorded
    total = len(prepared.ids)
    branch = _make_id(prepared.id, prepared.ids[-1])
    diverged: int | None = None
    for session_id in _list_candidates(store, prepared, branch):
        row = _find_session(store, session_id)
        if row is None or row.dialect != recorded.dialect:
            continue
        standing = store.ids(session_id)
        shared = _count_shared(standing, prepared.ids)
        if session_id in (prepared.id, branch) and not _is_under_way(store, row, prepared.now):
            _book_missing(store, session_id, prepared, range(diverged or 0, shared))
        if shared == total:
            return Adoption(KNOWN, row.conversation, 0, total)
        if shared == len(standing) and (
            session_id in (prepared.id, branch) or _is_same(store, row, recorded)
        ):
            _append(store, store.tip(session_id).id, prepared, shared)
            return Adoption(GROWN, row.conversation, total - shared, total)
        if session_id == prepared.id:
            diverged = shared
    first = next((one.at for one in recorded.messages if one.at is not None), prepared.written)
    session = NewSession(
        id=prepared.id,
        at=first,
        dialect=recorded.dialect,
        model=recorded.model,
        title=redactor_of_process(settings.redaction.detector).redact(recorded.title)[:_TITLE_CHARS],
        kind=SUBAGENT if recorded.works_for else MAIN,
    )
    if diverged is not None:
        return _open_branch(store, prepared, msgspec.structs.replace(session, id=branch), diverged)
    return _open_session(store, prepared, session)


def _open_session(store: Store, prepared: _Adoptee, session: NewSession) -> Adoption:
    recorded = prepared.recorded
    if recorded.works_for:
        parent = _find_session(store, _make_id(recorded.format, recorded.works_for))
        if parent is None:
            return Adoption(WITHOUT_PARENT, messages=len(prepared.ids))
        row = store.branch(parent.id, 0, session)
    else:
        row = store.create(session)
    _sign(store, row, recorded)
    _append(store, row.id, prepared, 0)
    return Adoption(NEW, row.conversation, len(prepared.ids), len(prepared.ids))


def _open_branch(store: Store, prepared: _Adoptee, session: NewSession, shared: int) -> Adoption:
    kind = session.kind if session.kind == SUBAGENT else BRANCH
    session = msgspec.structs.replace(session, kind=kind)
    row = store.branch(prepared.id, shared, session)
    _sign(store, row, prepared.recorded)
    _append(store, row.id, prepared, shared)
    return Adoption(BRANCHED, row.conversation, len(prepared.ids) - shared, len(prepared.ids))


def _prepare(recorded: RecordedConversation, now: float, written: float) -> _Adoptee:
    dialect = dialect_named(recorded.dialect)
    wires = [parse_json(one.raw) for one in recorded.messages]
    raws = [one.raw for one in recorded.messages]
    new = prepare_messages(raws, wires, dialect, tokenizer_for(recorded.model or None))
    ids: list[str] = []
    for message in new:
        ids.append(chain(ids[-1] if ids else "", message.digest))
    own = recorded.source or f"{recorded.dialect} {ids[-1]}"
    return _Adoptee(recorded, new, ids, _make_id(recorded.format, own), now, written)


def _make_id(*what: str) -> str:
    return hashlib.blake2b("\n".join(what).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _list_candidates(store: Store, prepared: _Adoptee, branch: str) -> Iterator[str]:
    """Sessions that may hold the conversation already, or its beginning."""
    yield prepared.id
    yield branch
    if not prepared.recorded.works_for:  # sub-agents are given the same words again and again
        known = store.find_known_prefix(prepared.ids)
        if known is not None:
            yield known[0]


def _find_session(store: Store, session_id: str) -> SessionRow | None:
    try:
        return store.session(session_id)
    except UnknownSession:
        return None


def _count_shared(standing: Sequence[str], ids: Sequence[str]) -> int:
    low, high = 0, min(len(standing), len(ids))
    while low < high:  # ids are chained: equal ones have equal ones before them
        middle = (low + high + 1) // 2
        low, high = (middle, high) if standing[middle - 1] == ids[middle - 1] else (low, middle - 1)
    return low


def _sign(store: Store, row: SessionRow, recorded: RecordedConversation) -> None:
    """Records the origin of the conversation, so that a later import of it finds it."""
    store.put_note(_NOTE, row.conversation, _write_signature(recorded), session_id=row.conversation)


def _is_same(store: Store, row: SessionRow, recorded: RecordedConversation) -> bool:
    return store.note(_NOTE, row.conversation) == _write_signature(recorded)


def _write_signature(recorded: RecordedConversation) -> bytes:
    return encode_wire({"format": recorded.format, "source": recorded.source})


def _is_under_way(store: Store, row: SessionRow, now: float) -> bool:
    """Returns True if another process may be importing the same: its messages are there, and their costs not booked yet."""
    last = store.note(LAST_USED, row.conversation)
    return last is not None and abs(now - float(last)) < _LONGEST_SECONDS


def _book_missing(store: Store, session_id: str, prepared: _Adoptee, among: range) -> None:
    """Books requests of messages that are in the log already: an import that was killed may have left them out."""
    requests = [one for one in prepared.recorded.requests if one.after - 1 in among and one.at is not None]
    known = Counter((row.at, row.model, row.usage) for row in store.usage(session_id=session_id))
    missing: list[UsageRow] = []
    for spent in requests:
        row = price_request(session_id, spent.usage, spent.model, at=spent.at or 0.0)
        key = (row.at, row.model, row.usage)
        if known[key]:
            known[key] -= 1
        else:
            missing.append(row)
    if missing:
        store.book_all(missing)


def _append(store: Store, session_id: str, prepared: _Adoptee, start: int) -> None:
    """Appends the messages from `start` on, each with its own time, and books what their requests used."""
    session = store.session(session_id)
    # However old what was said is, it was used now.
    name = session.conversation
    store.put_note(LAST_USED, name, str(prepared.now).encode(), session_id=name)
    last = session.started if start == 0 else prepared.written
    times: list[float] = []
    for one in prepared.recorded.messages:
        last = last if one.at is None else one.at
        times.append(last)
    requests = [spent for spent in prepared.recorded.requests if spent.after > start]
    while start < len(times):
        end = min(start + _AT_ONCE, len(times))
        new = [
            msgspec.structs.replace(message, at=at)
            for message, at in zip(prepared.new[start:end], times[start:end], strict=True)
        ]
        done = store.append(session_id, new, prepared.ids[start - 1] if start else "", times[end - 1])
        if not done.again:  # the process that has appended them books them
            store.book_all(
                [
                    price_request(
                        session_id,
                        spent.usage,
                        spent.model,
                        at=times[spent.after - 1] if spent.at is None else spent.at,
                    )
                    for spent in requests
                    if start < spent.after <= end
                ]
            )
        start = end
