"""Conversations, their sessions and their logs.

Conversations are created, branched off, listed and ended here; their logs are appended to and read.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation.handles import name_message
from penstock.conversation.identity import chain
from penstock.conversation.wire import parse_json
from penstock.errors import StoreConflict, StoreError
from penstock.measure.usage import Usage
from penstock.stores.encoding import clean_label, is_storable, pack, require_moment, unpack
from penstock.stores.rows import (
    ENTRY,
    SESSION,
    build_session,
    build_tip,
    cut_batches,
    defer_conversation,
    find_conversation_key,
    find_id_at_end,
    find_last_session,
    find_log,
    find_session,
    find_stretches,
    insert_conversation,
    insert_session,
    limit_to_owner,
    make_fingerprint,
    read_conversation,
    read_ids,
    read_log_tip,
    require_row,
    select_conversation,
    sum_tokens,
)
from penstock.stores.values import (
    BRANCH,
    COMPRESSION,
    REWOUND,
    SUBAGENT,
    AppendResult,
    ConversationRow,
    LogEntry,
    LogShape,
    LogTip,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.stores.database import PendingRows, Row, SqlSpelling, Transaction
    from penstock.stores.values import NewMessage, NewSession, SessionRow

__all__ = [
    "PackedMessages",
    "append_messages",
    "branch_off",
    "create_conversation",
    "defer_continuations",
    "end_session",
    "find_by_prefix",
    "find_longest_known",
    "follow_continuations",
    "list_children",
    "list_conversations",
    "list_heads",
    "pack_messages",
    "read_log_shape",
    "read_positions",
    "read_stretch",
    "show_conversations",
    "update_session",
]

_MESSAGE_KEY = "(SELECT key FROM messages WHERE id = ? AND owner = ? AND fingerprint = ?)"
_PAGE = 16  # sessions
_LAST_PROBED, _SPREAD = 16, 16  # ids that are looked for at once: the last ones, and some of those before
_STORED_AT_ONCE = 50  # messages of one statement
_LAST_CHARACTER = "\U0010ffff"  # comes after all that an id may go on with
_USED = ", ".join(
    f"coalesce(sum(u.{column}), 0)"
    for column in ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
)


def create_conversation(do: Transaction, session: NewSession) -> SessionRow:
    """Creates a conversation, with its first session."""
    owner = do.owner or ""
    conversation = insert_conversation(do, session, owner)
    insert_session(do, session, owner, conversation, None)
    return find_session(do, session.id)[0]


def branch_off(do: Transaction, session_id: str, length: int, new: NewSession, hold: str) -> SessionRow:
    """Creates a conversation that shares the first `length` messages of another one's log."""
    row, key, source = find_session(do, session_id, hold)
    tip = find_id_at_end(do, source, length)
    conversation = insert_conversation(do, new, row.owner, forked_from=source, fork_length=length, tip=tip)
    kind = new.kind if new.kind == SUBAGENT else BRANCH
    insert_session(do, msgspec.structs.replace(new, kind=kind), row.owner, conversation, key)
    return find_session(do, new.id)[0]


def end_session(do: Transaction, session_id: str, reason: str, at: float, hold: str) -> None:
    """Ends a session; one that has ended stays as it is."""
    _, key, _ = find_session(do, session_id, hold)
    do.run(
        "UPDATE sessions SET ended = ?, end_reason = ? WHERE key = ? AND ended IS NULL",
        *(require_moment(at), clean_label(reason), key),
    )


def update_session(do: Transaction, session_id: str, title: str | None, model: str | None, hold: str) -> None:
    """Gives a session another title or model."""
    _, key, _ = find_session(do, session_id, hold)
    if title is not None:
        do.run("UPDATE sessions SET title = ? WHERE key = ?", clean_label(title), key)
    if model is not None:
        do.run("UPDATE sessions SET model = ? WHERE key = ?", clean_label(model), key)


def list_children(do: Transaction, session_id: str) -> list[SessionRow]:
    """Returns sessions that continue this one, branched off or work for it, oldest first."""
    _, key, _ = find_session(do, session_id)
    # One step at a time, here and below: a planner that has not counted its rows may read a whole table for a join.
    children = do.rows("SELECT key FROM sessions WHERE parent = ? ORDER BY key", key)
    return [build_session(require_row(do.one(f"{SESSION} WHERE s.key = ?", child[0]))) for child in children]


def defer_continuations(do: Transaction, conversation: str, values: Sequence[Any]) -> PendingRows:
    """Has the continuations of a conversation read, whose key the expression `conversation` gives."""
    return do.defer(
        f"{SESSION} WHERE s.conversation = {conversation} AND s.kind = ? ORDER BY s.key", *values, COMPRESSION
    )


def follow_continuations(row: SessionRow, continuations: Sequence[Row]) -> SessionRow:
    """Returns the session in which a conversation continues, by the rows that `defer_continuations` reads.

    A continuation started when the session that it continues had ended, or later.
    """
    # In the order in which they were opened, so that no continuation comes before its parent.
    for session in map(build_session, continuations):
        if session.parent == row.id and row.ended is not None and session.started >= row.ended:
            row = session
    return row


def find_by_prefix(do: Transaction, prefix: str, limit: int) -> list[SessionRow]:
    """Returns the tips of up to `limit` conversations with a session id that has this prefix; leaves out those of sub-agents."""
    if not is_storable(prefix):
        return []
    owned, owner = limit_to_owner(do, "owner")
    seen: dict[int, SessionRow | None] = {}
    last, found = "", 0
    while found < limit:
        page = do.rows(
            f"SELECT id, conversation FROM sessions WHERE {owned}id >= ? AND id > ? AND id < ? "
            f"ORDER BY id LIMIT {_PAGE}",
            *(*owner, prefix, last, prefix + _LAST_CHARACTER),
        )
        for conversation in dict.fromkeys(row[1] for row in page):
            if conversation not in seen and found < limit:
                seen[conversation] = tip = _find_listed_tip(do, conversation)
                found += tip is not None
        if len(page) < _PAGE:
            break
        last = page[-1][0]
    return [tip for tip in seen.values() if tip is not None]


def _find_listed_tip(do: Transaction, conversation: int) -> SessionRow | None:
    """Returns the session in which a conversation continues; None for a sub-agent's."""
    subagent = do.one("SELECT 1 FROM sessions WHERE conversation = ? AND kind = ?", conversation, SUBAGENT)
    return None if subagent is not None else build_session(find_last_session(do, conversation))


def list_conversations(
    do: Transaction, limit: int, offset: int, after: tuple[float, str] | None = None
) -> list[ConversationRow]:
    """Returns conversations, last used first; leaves out those of sub-agents.

    With `after`, starts after the conversation with that time of last use and that id.
    """
    owned, owner = limit_to_owner(do, "c.owner")
    behind = ""
    place: tuple[float, int] | tuple[()] = ()
    if after is not None:
        found = (
            do.one("SELECT key FROM conversations WHERE id = ?", after[1]) if is_storable(after[1]) else None
        )
        behind, place = (
            "(c.updated, c.key) < (?, ?) AND ",
            (require_moment(after[0]), found[0] if found else 0),
        )
    rows = do.rows(
        "SELECT c.key, c.id, c.created, c.updated, c.length, c.tokens, c.view "
        f"FROM conversations c WHERE {owned}{behind}"
        "(SELECT count(*) FROM sessions s WHERE s.conversation = c.key AND s.kind = ?) = 0 "
        "ORDER BY c.updated DESC, c.key DESC LIMIT ? OFFSET ?",
        *(*owner, *place, SUBAGENT, limit, offset),
    )
    return [_build_conversation(do, row) for row in rows]


def list_heads(do: Transaction) -> dict[str, float]:
    """Returns when each conversation was last used, by its id; leaves out those of sub-agents."""
    owned, owner = limit_to_owner(do, "c.owner")
    rows = do.rows(
        f"SELECT c.id, c.updated FROM conversations c WHERE {owned}"
        "(SELECT count(*) FROM sessions s WHERE s.conversation = c.key AND s.kind = ?) = 0",
        *(*owner, SUBAGENT),
    )
    return dict(rows)


def show_conversations(do: Transaction, ids: Sequence[str]) -> list[ConversationRow]:
    """Returns the conversations with these ids, in their order; skips ids that do not exist."""
    owned, owner = limit_to_owner(do, "c.owner")
    found: dict[str, ConversationRow] = {}
    for some in cut_batches([one for one in ids if is_storable(one)]):
        marks = ", ".join("?" * len(some))
        rows = do.rows(
            "SELECT c.key, c.id, c.created, c.updated, c.length, c.tokens, c.view "
            f"FROM conversations c WHERE {owned}c.id IN ({marks})",
            *(*owner, *some),
        )
        found.update((row[1], _build_conversation(do, row)) for row in rows)
    return [found[one] for one in ids if one in found]


def _build_conversation(do: Transaction, row: Row) -> ConversationRow:
    """Returns the conversation of a row, with its tip and its usage."""
    key = row[0]
    tip = find_last_session(do, key)
    used, cost, known_cost = _sum_usage(do, key)
    titled = do.one(
        "SELECT title FROM sessions WHERE conversation = ? AND title <> '' ORDER BY key DESC LIMIT 1", key
    )
    return ConversationRow(
        id=row[1],
        tip=build_session(tip),
        title=titled[0] if titled else "",
        started=row[2],
        updated=row[3],
        messages=row[4],
        tokens=row[5],
        view_tokens=_sum_view_tokens(do, key, row[6]) if row[6] else row[5],
        compactions=_count_compactions(do, key) if row[6] else 0,
        usage=used,
        cost=cost,
        known_cost=known_cost,
    )


def _sum_usage(do: Transaction, conversation: int) -> tuple[Usage, float | None, float]:
    """Returns the usage of a conversation, its cost if that of every request is known, and the known part of the cost."""
    used, cost, requests, priced = Usage(), 0.0, 0, 0
    sessions = do.rows("SELECT key FROM sessions WHERE conversation = ?", conversation)
    for some in cut_batches([row[0] for row in sessions]):
        row = require_row(
            do.one(
                f"SELECT {_USED}, coalesce(sum(u.cost), 0), count(*), count(u.cost) FROM usage u "
                f"WHERE u.session IN ({', '.join('?' * len(some))})",
                *some,
            )
        )
        used += Usage(*map(int, row[:6]))
        cost, requests, priced = cost + row[6], requests + row[7], priced + row[8]
    return used, cost if requests and requests == priced else None, cost


def _count_compactions(do: Transaction, conversation: int) -> int:
    """Returns how many compactions of a conversation are in force; rewinds are records of the same kind, and do not count."""
    rows = do.rows("SELECT receipt FROM compactions WHERE conversation = ? AND undone IS NULL", conversation)
    return sum(REWOUND not in _read_receipt(row[0]) for row in rows)


def _read_receipt(data: bytes) -> Mapping[str, Any]:
    """Returns a receipt; an empty one if it cannot be read, so that a list is shown all the same. `doctor` reports it."""
    try:
        receipt = parse_json(bytes(data))
    except ValueError:
        return {}
    return receipt if isinstance(receipt, dict) else {}


def _sum_view_tokens(do: Transaction, conversation: int, view: int) -> int:
    """Returns tokens of a compaction's result, and of what was logged after it."""
    length, receipt = require_row(do.one("SELECT length, receipt FROM compactions WHERE key = ?", view))
    return int(_read_receipt(receipt).get("tokens_after", 0)) + sum_tokens(do, conversation, length)


class PackedMessages(NamedTuple):
    """Messages for the end of a log, with everything that can be prepared before a transaction begins, since others wait for it."""

    messages: Sequence[NewMessage]
    after: str
    """The id of the last message of the log."""
    ids: list[str]
    rows: list[Row]
    """Of the table of messages, but for the owner."""


def pack_messages(messages: Sequence[NewMessage], after: str) -> PackedMessages:
    """Returns messages ready to be appended to the log whose last message has the id `after`."""
    ids: list[str] = []
    rows: list[Row] = []
    for message in messages:
        ids.append(chain(ids[-1] if ids else after, message.digest))
        rows.append(
            (
                bytes.fromhex(ids[-1]),
                make_fingerprint(message.raw),
                message.digest,
                message.role,
                *pack(message.raw),
            )
        )
    return PackedMessages(messages, after, ids, rows)


def append_messages(
    do: Transaction, session_id: str, packed: PackedMessages, at: float, words: SqlSpelling
) -> tuple[AppendResult, int]:
    """Appends to the log whose last message the messages were packed for; returns the key of its conversation, too.

    One round trip holds the log, one more writes. Raises StoreConflict if it has another last message.
    """
    messages, after, ids, rows = packed
    subquery, named = select_conversation(do, session_id)
    found = defer_conversation(do, session_id, words.hold_session)
    end = do.defer(f"SELECT tip, length FROM conversations WHERE key = {subquery} {words.for_update}", *named)
    conversation, owner = read_conversation(do, session_id, found)
    tip = build_tip(end.one())
    if tip.id != after:
        return _recognise_retry(do, conversation, owner, tip, ids, after), conversation
    for some in cut_batches(rows, _STORED_AT_ONCE):
        do.defer(
            "INSERT INTO messages (id, fingerprint, digest, role, raw, packed, owner) VALUES "
            f"{', '.join(('(?, ?, ?, ?, ?, ?, ?)',) * len(some))} ON CONFLICT (id, owner, fingerprint) DO NOTHING",
            *(value for row in some for value in (*row, owner)),
        )
    names = [(row[0], owner, row[1]) for row in rows]
    do.run_many(
        f"INSERT INTO entries (conversation, position, message, tokens, created) VALUES (?, ?, {_MESSAGE_KEY}, ?, ?)",
        [
            (
                conversation,
                tip.length + n,
                *name,
                message.tokens,
                at if message.at is None else require_moment(message.at),
            )
            for n, (name, message) in enumerate(zip(names, messages, strict=True))
        ],
    )
    if any(message.results for message in messages):
        _tie_results(do, conversation, names, messages)
    new = LogTip(ids[-1] if ids else after, tip.length + len(ids))
    do.defer(
        "UPDATE conversations SET tip = ?, length = ?, tokens = tokens + ?, updated = ? WHERE key = ?",
        *(bytes.fromhex(new.id), new.length, sum(message.tokens for message in messages), at, conversation),
    )
    return AppendResult(tuple(ids), new), conversation


def _recognise_retry(
    do: Transaction, conversation: int, owner: str, tip: LogTip, ids: Sequence[str], after: str
) -> AppendResult:
    """Returns the result of the append if the very same messages are there already.

    Raises StoreConflict otherwise.
    """
    before = _find_position(do, conversation, owner, after) if after else -1
    if before is not None and read_ids(do, conversation, before + 1, before + 1 + len(ids)) == list(ids):
        return AppendResult(tuple(ids), tip, again=True)
    raise StoreConflict(
        f"the log no longer ends with {after[:12] or 'nothing'}; read what was added, then append again"
    )


def _find_position(do: Transaction, conversation: int, owner: str, message_id: str) -> int | None:
    """Returns where a message stands in a log, None if it does not."""
    for part, low, high in find_stretches(do, conversation):
        row = do.one(
            "SELECT e.position FROM messages m JOIN entries e ON e.message = m.key "
            "WHERE m.id = ? AND m.owner = ? AND e.conversation = ? AND e.position >= ? AND e.position < ?",
            *(bytes.fromhex(message_id), owner, part, low, high),
        )
        if row is not None:
            return int(row[0])
    return None


def _tie_results(
    do: Transaction, conversation: int, names: Sequence[Row], messages: Sequence[NewMessage]
) -> None:
    """Ties stored results of the conversation to the messages that stand in their place.

    A result stays as long as its message does.
    """
    do.run_many(
        f"UPDATE results SET message = {_MESSAGE_KEY} WHERE id = ? AND message IS NULL "
        "AND session IN (SELECT key FROM sessions WHERE conversation = ?)",
        [
            (*name, result, conversation)
            for name, message in zip(names, messages, strict=True)
            for result in message.results
            if is_storable(result)
        ],
    )


def read_positions(
    do: Transaction, session_id: str, positions: Sequence[int]
) -> Callable[[], list[LogEntry]]:
    """Reads the messages at these positions; skips positions that do not exist.

    Returns a function that gives them in their order. Call it after the transaction, which brings them when it ends.
    """
    _, stretches = find_log(do, session_id)
    pages = [
        do.defer(f"{ENTRY} AND e.position IN ({', '.join('?' * len(some))})", part, *some)
        for part, low, high in stretches
        for some in cut_batches([position for position in positions if low <= position < high])
    ]

    def read() -> list[LogEntry]:
        found = {row[0]: _build_entry(row) for page in pages for row in page.rows()}
        return [found[position] for position in positions if position in found]

    return read


def read_stretch(
    do: Transaction, session_id: str, start: int, limit: int | None
) -> Callable[[], list[LogEntry]]:
    """Reads the messages from a position on; returns a function as `read_positions` does."""
    tip, stretches = find_log(do, session_id)
    end = tip.length if limit is None else min(tip.length, start + limit)
    pages = [
        do.defer(
            f"{ENTRY} AND e.position >= ? AND e.position < ? ORDER BY e.position",
            *(part, max(low, start), min(high, end)),
        )
        for part, low, high in stretches
        if low < end and start < high
    ]
    return lambda: [_build_entry(row) for page in pages for row in page.rows()]


def read_log_shape(do: Transaction, session_id: str) -> LogShape:
    """Returns the tokens and times of all messages of a log, without reading the messages."""
    conversation, _ = find_conversation_key(do, session_id)
    rows: list[Row] = []
    for part, low, high in find_stretches(do, conversation):
        rows += do.rows(
            "SELECT position, tokens, created FROM entries "
            "WHERE conversation = ? AND position >= ? AND position < ? ORDER BY position",
            *(part, low, high),
        )
    length = read_log_tip(do, conversation).length
    tokens, created = [0] * length, [0.0] * length
    for position, weight, at in rows:
        tokens[position], created[position] = weight, at
    return LogShape(tokens, created)


def _build_entry(row: Row) -> LogEntry:
    """Returns the message of a row of `ENTRY`. Raises StoreError if its bytes are not those that were logged."""
    raw = unpack(row[2], row[3])
    if make_fingerprint(raw) != bytes(row[7]):
        raise StoreError(
            f"{name_message(row[0] + 1)} is damaged on disk; `penstock doctor` shows what else is, then restore a copy"
        )
    return LogEntry(row[0], bytes(row[1]).hex(), raw, row[4], row[5], row[6])


def find_longest_known(do: Transaction, ids: Sequence[str]) -> tuple[str, int] | None:
    """Returns the session whose log begins with the most of these ids, and how many; of several, the last one of the newest log.

    Ids are chained: a store that knows one knows all before it. Many are looked for at once, since each statement is a
    round trip: all of the last ones, where the known part nearly always ends, and some of those before.
    """
    low, high, session = 0, len(ids), ""
    while low < high:
        lengths = sorted({*range(max(low, high - _LAST_PROBED) + 1, high + 1), *_spread(low + 1, high)})
        found = _find_holders(do, [ids[length - 1] for length in lengths])
        known = [length for length in lengths if ids[length - 1] in found]
        unknown = [length for length in lengths if ids[length - 1] not in found]
        if known:
            low, session = known[-1], found[ids[known[-1] - 1]]
        high = min((length - 1 for length in unknown if length > low), default=high)
    return (session, low) if low else None


def _spread(first: int, last: int) -> list[int]:
    """Returns some numbers from the first to the last, including both."""
    return [first + (last - first) * part // (_SPREAD - 1) for part in range(_SPREAD)]


def _find_holders(do: Transaction, ids: Sequence[str]) -> dict[str, str]:
    """Returns the last session of the newest log that has each of these messages, by the message's id."""
    owned, owner = limit_to_owner(do, "m.owner")
    marks = ", ".join("?" * len(ids))
    # Subqueries, not joins: the planner of a database that has not counted its rows may begin at the wrong end.
    rows = do.rows(
        "SELECT k.id, k.conversation, (SELECT s.id FROM sessions s WHERE s.conversation = k.conversation "
        "ORDER BY s.key DESC LIMIT 1) FROM (SELECT m.id AS id, (SELECT e.conversation FROM entries e "
        "WHERE e.message = m.key ORDER BY e.conversation DESC LIMIT 1) AS conversation "
        f"FROM messages m WHERE {owned}m.id IN ({marks})) AS k",
        *(*owner, *map(bytes.fromhex, ids)),
    )
    newest = sorted((row for row in rows if row[1] is not None), key=itemgetter(1))
    return {bytes(row[0]).hex(): row[2] for row in newest}
