"""The store, in portable SQL over any `Database`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.identity import chain
from penstock.errors import StoreError
from penstock.measure.usage import Usage
from penstock.stores.base import (
    BRANCH,
    COMPRESSION,
    SUBAGENT,
    Appended,
    CompactionRow,
    ConversationRow,
    Entry,
    Fault,
    LogTip,
    SessionRow,
    StoredResult,
    UsageRow,
)
from penstock.stores.checks import findings, mend
from penstock.stores.compactions import (
    COMPACTION,
    as_compaction,
    insert_compaction,
    newest_of,
    require_base,
)
from penstock.stores.packing import pack, unpack
from penstock.stores.rows import (
    ENTRY,
    SESSION,
    appended_before,
    as_conversation,
    as_entry,
    as_session,
    batches,
    continuation_of,
    ids_of,
    last_session,
    log_tip_of,
    new_conversation,
    new_session,
    session_of,
    store_messages,
    stretches,
    tip_of,
)
from penstock.stores.schema import migrate
from penstock.stores.texts import identifier, is_storable, label, moment
from penstock.stores.upkeep import delete_conversations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stores.base import NewCompaction, NewMessage, NewSession
    from penstock.stores.database import Database, Transaction

__all__ = ["SqlStore"]


class SqlStore:
    """A store over a database, whose schema it brings up to date."""

    def __init__(self, database: Database) -> None:
        self._database = database
        try:
            migrate(database)
        except StoreError:
            database.close()
            raise

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return self._database.url

    @property
    def database(self) -> Database:
        """What it stands on, for what has tables of its own beside the store's."""
        return self._database

    def close(self) -> None:
        """Let go of files and connections."""
        self._database.close()

    # Sessions.

    def create(self, session: NewSession) -> SessionRow:
        """A new conversation, with its first session."""
        with self._database.writing() as do:
            conversation = new_conversation(do, session)
            new_session(do, session, conversation, None)
            return session_of(do, session.id)[0]

    def branch(self, session_id: str, length: int, new: NewSession) -> SessionRow:
        """A conversation that shares the first `length` messages of another one's log and goes its own way."""
        with self._database.writing() as do:
            _, key, source = session_of(do, session_id, self._database.words.hold_session)
            tip = tip_of(do, source, length)
            conversation = new_conversation(do, new, forked_from=source, fork_length=length, tip=tip)
            kind = new.kind if new.kind == SUBAGENT else BRANCH
            new_session(do, msgspec.structs.replace(new, kind=kind), conversation, key)
            return session_of(do, new.id)[0]

    def session(self, session_id: str) -> SessionRow:
        """The session. Raises UnknownSession."""
        with self._database.reading() as do:
            return session_of(do, session_id)[0]

    def tip(self, session_id: str) -> SessionRow:
        """The session that the conversation goes on in."""
        with self._database.reading() as do:
            row, _, conversation = session_of(do, session_id)
            return continuation_of(do, row, conversation)

    def children(self, session_id: str) -> Sequence[SessionRow]:
        """Sessions that continue this one, branched off or work for it, oldest first."""
        with self._database.reading() as do:
            _, key, _ = session_of(do, session_id)
            return [as_session(row) for row in do.rows(f"{SESSION} WHERE s.parent = ? ORDER BY s.key", key)]

    def list(self, *, limit: int = 50, offset: int = 0) -> Sequence[ConversationRow]:
        """Conversations, the one that was used last first; sub-agents' are left out."""
        with self._database.reading() as do:
            rows = do.rows(
                "SELECT c.key, c.id, c.created, c.updated, c.length, "
                "(SELECT count(*) FROM compactions k WHERE k.conversation = c.key AND k.undone IS NULL) "
                "FROM conversations c WHERE NOT EXISTS "
                "(SELECT 1 FROM sessions s WHERE s.conversation = c.key AND s.kind = ?) "
                "ORDER BY c.updated DESC, c.key DESC LIMIT ? OFFSET ?",
                SUBAGENT,
                limit,
                offset,
            )
            return [as_conversation(do, row) for row in rows]

    def end(self, session_id: str, reason: str, at: float) -> None:
        """End a session; one that has ended stays as it is."""
        with self._database.writing() as do:
            _, key, _ = session_of(do, session_id, self._database.words.hold_session)
            do.run(
                "UPDATE sessions SET ended = ?, end_reason = ? WHERE key = ? AND ended IS NULL",
                *(moment(at), label(reason), key),
            )

    def update(self, session_id: str, *, title: str | None = None, model: str | None = None) -> None:
        """Give a session another title or model."""
        with self._database.writing() as do:
            _, key, _ = session_of(do, session_id, self._database.words.hold_session)
            if title is not None:
                do.run("UPDATE sessions SET title = ? WHERE key = ?", label(title), key)
            if model is not None:
                do.run("UPDATE sessions SET model = ? WHERE key = ?", label(model), key)

    # The log.

    def append(self, session_id: str, messages: Sequence[NewMessage], after: str, at: float) -> Appended:
        """Append to the log whose last message has the id `after`."""
        moment(at)
        ids = []
        parent = after
        for message in messages:
            parent = chain(parent, message.digest)
            ids.append(parent)
        with self._database.writing() as do:
            _, _, conversation = session_of(do, session_id, self._database.words.hold_session)
            tip = self._locked_tip(do, conversation)
            if tip.id != after:
                return appended_before(do, conversation, tip, ids, after)
            keys = store_messages(do, messages, ids)
            do.run_many(
                "INSERT INTO entries (conversation, position, message, tokens, created) VALUES (?, ?, ?, ?, ?)",
                [
                    (conversation, tip.length + n, key, message.tokens, at)
                    for n, (key, message) in enumerate(zip(keys, messages, strict=True))
                ],
            )
            new = LogTip(ids[-1] if ids else after, tip.length + len(ids))
            do.run(
                "UPDATE conversations SET tip = ?, length = ?, updated = ? WHERE key = ?",
                bytes.fromhex(new.id),
                new.length,
                at,
                conversation,
            )
            return Appended(tuple(ids), new)

    def log_tip(self, session_id: str) -> LogTip:
        """The end of the log of the session's conversation."""
        with self._database.reading() as do:
            _, _, conversation = session_of(do, session_id)
            return log_tip_of(do, conversation)

    def read(self, session_id: str, positions: Sequence[int]) -> Sequence[Entry]:
        """The messages at these positions, in their order; positions that are not there are left out."""
        with self._database.reading() as do:
            _, _, conversation = session_of(do, session_id)
            found: dict[int, Entry] = {}
            for part, low, high in stretches(do, conversation):
                wanted = [position for position in positions if low <= position < high]
                for some in batches(wanted):
                    marks = ", ".join("?" * len(some))
                    rows = do.rows(f"{ENTRY} AND e.position IN ({marks})", part, *some)
                    found.update((row[0], as_entry(row)) for row in rows)
            return [found[position] for position in positions if position in found]

    def read_from(self, session_id: str, start: int, limit: int | None = None) -> Sequence[Entry]:
        """The messages from a position on."""
        with self._database.reading() as do:
            _, _, conversation = session_of(do, session_id)
            end = log_tip_of(do, conversation).length
            if limit is not None:
                end = min(end, start + limit)
            entries: list[Entry] = []
            for part, low, high in stretches(do, conversation):
                rows = do.rows(
                    f"{ENTRY} AND e.position >= ? AND e.position < ? ORDER BY e.position",
                    part,
                    max(low, start),
                    min(high, end),
                )
                entries += map(as_entry, rows)
            return entries

    def ids(self, session_id: str) -> Sequence[str]:
        """The ids of all messages of the log."""
        with self._database.reading() as do:
            _, _, conversation = session_of(do, session_id)
            return ids_of(do, conversation)

    def known_prefix(self, ids: Sequence[str]) -> tuple[str, int] | None:
        """The session whose log begins with the most of these ids, and how many."""
        with self._database.reading() as do:
            low, high = 0, len(ids)
            while low < high:  # ids are chained: who knows one knows all before it
                middle = (low + high + 1) // 2
                known = do.one("SELECT 1 FROM messages WHERE id = ?", bytes.fromhex(ids[middle - 1]))
                low, high = (middle, high) if known else (low, middle - 1)
            for length in range(low, 0, -1):
                row = do.one(
                    "SELECT s.id FROM messages m JOIN entries e ON e.message = m.key "
                    "JOIN sessions s ON s.conversation = e.conversation WHERE m.id = ? ORDER BY s.key DESC LIMIT 1",
                    bytes.fromhex(ids[length - 1]),
                )
                if row is not None:
                    return row[0], length
            return None

    # Compactions.

    def commit(self, session_id: str, new: NewCompaction) -> CompactionRow:
        """Commit a compaction, end its session and open the continuation."""
        with self._database.writing() as do:
            _, _, conversation = session_of(do, session_id, self._database.words.hold_session)
            self._locked_tip(do, conversation)
            if new.key:
                done = do.one(f"{COMPACTION} AND c.retry = ?", conversation, label(new.key))
                if done is not None:
                    return as_compaction(done)
            require_base(do, conversation, new)
            # The tip goes on, whichever session of the conversation was named; and its end is now, even where it was
            # ended before and resumed, since a continuation starts no earlier than what it continues has ended.
            last = last_session(do, conversation)[0]
            do.run(
                "UPDATE sessions SET ended = ?, end_reason = ? WHERE key = ?",
                *(new.session.at, COMPRESSION, last),
            )
            opened = msgspec.structs.replace(new.session, kind=COMPRESSION)
            session = new_session(do, opened, conversation, last)
            return insert_compaction(do, conversation, session, new)

    def compactions(self, session_id: str, *, undone: bool = False) -> Sequence[CompactionRow]:
        """The compactions that hold, oldest first; with `undone`, those that were taken back too."""
        with self._database.reading() as do:
            _, _, conversation = session_of(do, session_id)
            which = "" if undone else "AND c.undone IS NULL"
            rows = do.rows(f"{COMPACTION} {which} ORDER BY c.key", conversation)
            return [as_compaction(row) for row in rows]

    def newest_compaction(self, session_id: str) -> CompactionRow | None:
        """The compaction whose view is the present one, None for the bare log."""
        with self._database.reading() as do:
            _, _, conversation = session_of(do, session_id)
            return newest_of(do, conversation)

    def undo(self, session_id: str, at: float) -> CompactionRow | None:
        """Take the newest compaction back."""
        moment(at)
        with self._database.writing() as do:
            _, _, conversation = session_of(do, session_id, self._database.words.hold_session)
            self._locked_tip(do, conversation)
            newest = newest_of(do, conversation)
            if newest is None:
                return None
            do.run("UPDATE compactions SET undone = ? WHERE key = ?", at, newest.key)
            do.run(
                "UPDATE conversations SET view = ?, updated = ? WHERE key = ?", newest.over, at, conversation
            )
            return msgspec.structs.replace(newest, undone=at)

    def pin(self, session_id: str, position: int, *, pinned: bool = True) -> None:
        """Pin a message of the log, or unpin it."""
        with self._database.writing() as do:
            _, _, conversation = session_of(do, session_id, self._database.words.hold_session)
            if not 0 <= position < log_tip_of(do, conversation).length:
                raise StoreError(f"there is no message m{position + 1} in this conversation to pin")
            do.run("DELETE FROM pins WHERE conversation = ? AND position = ?", conversation, position)
            if pinned:
                do.run("INSERT INTO pins (conversation, position) VALUES (?, ?)", conversation, position)

    def pins(self, session_id: str) -> frozenset[int]:
        """The positions of pinned messages."""
        with self._database.reading() as do:
            _, _, conversation = session_of(do, session_id)
            return frozenset(
                row[0] for row in do.rows("SELECT position FROM pins WHERE conversation = ?", conversation)
            )

    # Results, usage, notes.

    def put_result(self, result: StoredResult) -> None:
        """Keep a tool result; the same id again changes nothing."""
        raw, packed = pack(result.text.encode("utf-8", "surrogatepass"))
        with self._database.writing() as do:
            _, session, _ = session_of(do, result.session, self._database.words.hold_session)
            do.run(
                "INSERT INTO results (id, session, tool, raw, packed, created) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO NOTHING",
                *(identifier(result.id), session, label(result.tool), raw, packed, moment(result.created)),
            )

    def result(self, result_id: str) -> StoredResult | None:
        """A tool result, or None."""
        if not is_storable(result_id):
            return None
        with self._database.reading() as do:
            row = do.one(
                "SELECT r.id, s.id, r.tool, r.raw, r.packed, r.created FROM results r "
                "JOIN sessions s ON s.key = r.session WHERE r.id = ?",
                result_id,
            )
        if row is None:
            return None
        text = unpack(row[3], row[4]).decode("utf-8", "surrogatepass")
        return StoredResult(id=row[0], session=row[1], tool=row[2], text=text, created=row[5])

    def book(self, row: UsageRow) -> None:
        """Take down what a request used."""
        used = row.usage
        with self._database.writing() as do:
            _, session, _ = session_of(do, row.session, self._database.words.hold_session)
            do.run(
                "INSERT INTO usage (session, at, model, task, input, output, cache_read, cache_write, cache_write_1h, "
                "reasoning, cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *(
                    session,
                    moment(row.at),
                    label(row.model),
                    label(row.task),
                    used.input_tokens,
                    used.output_tokens,
                ),
                *(used.cache_read_tokens, used.cache_write_tokens, used.cache_write_1h_tokens),
                *(used.reasoning_tokens, row.cost),
            )

    def usage(self, *, session_id: str | None = None, since: float = 0.0) -> Sequence[UsageRow]:
        """What requests used, oldest first: of a conversation, or of all."""
        with self._database.reading() as do:
            which, values = "", [since]
            if session_id is not None:
                which, values = " AND s.conversation = ?", [since, session_of(do, session_id)[2]]
            rows = do.rows(
                "SELECT s.id, u.at, u.model, u.task, u.input, u.output, u.cache_read, u.cache_write, u.cache_write_1h, "
                f"u.reasoning, u.cost FROM usage u JOIN sessions s ON s.key = u.session WHERE u.at >= ?{which} "
                "ORDER BY u.at, u.key",
                *values,
            )
        return [
            UsageRow(
                session=row[0], at=row[1], model=row[2], task=row[3], usage=Usage(*row[4:10]), cost=row[10]
            )
            for row in rows
        ]

    def put_note(self, name: str, key: str, value: bytes) -> None:
        """Keep something small by name and key."""
        with self._database.writing() as do:
            do.run(
                "INSERT INTO notes (name, key, value) VALUES (?, ?, ?) "
                "ON CONFLICT (name, key) DO UPDATE SET value = excluded.value",
                *(identifier(name), identifier(key), value),
            )

    def note(self, name: str, key: str) -> bytes | None:
        """What is kept under that name and key."""
        if not (is_storable(name) and is_storable(key)):
            return None
        with self._database.reading() as do:
            row = do.one("SELECT value FROM notes WHERE name = ? AND key = ?", name, key)
        return bytes(row[0]) if row else None

    # Upkeep.

    def delete(self, session_id: str) -> int:
        """Delete the session's conversation and all that only it holds. Returns how many messages went."""
        with self._database.writing() as do:
            if self._database.words.hold_all:
                do.run(self._database.words.hold_all)
            _, _, conversation = session_of(do, session_id)
            gone = delete_conversations(do, conversation)
        self._database.scrub()
        return gone

    def faults(self) -> Sequence[Fault]:
        """Everything that is not as it should be."""
        damage = [Fault("database", text) for text in self._database.damage()]
        if damage:  # rows read from damaged pages would show faults that are none
            return damage
        with self._database.reading() as do:
            return [finding.fault for finding in findings(do)]

    def repair(self) -> Sequence[Fault]:
        """Mend what can be mended; returns what was."""
        with self._database.writing() as do:
            if self._database.words.hold_all:
                do.run(self._database.words.hold_all)
            return mend(do)

    def _locked_tip(self, do: Transaction, conversation: int) -> LogTip:
        """The end of the log, held until the transaction ends."""
        return log_tip_of(do, conversation, self._database.words.for_update)
