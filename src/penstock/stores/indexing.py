"""Keeps the search index up to date, in slices that hold other writers for milliseconds.

New rows wait in a queue. So an append stays as quick as it is durable, and many messages are indexed at a time,
which costs far less. Triggers write the queue, in the same transaction as the rows that it names. It is indexed a slice at a
time: slow work (reading messages, making terms, packing and joining blocks) is done in transactions that only read
(`prepare_slice`); one that writes puts a slice in place (`add_slice`). After many appends, a thread indexes them beside the
writers (`IndexKeeper.note_written`), and ends when the queue is empty. A search indexes what it needs and is still
missing, within a moment, and can say how much is not searched yet.

A source of passages is a message of a log, the summary of a compaction or a stored tool result; each is read as a message.
Each passage also holds terms that narrow a search (`Within`): the conversation that brought it, its owner, its
speaker, a tool, a file.

If a new version cuts passages or makes terms differently (`INDEX_VERSION`), sources that were indexed in the old way are
indexed again when the queue is empty, oldest first. Each is found by its old passages until it has new ones, which get
numbers after all others; passages below the number `renew below` are old. So no search waits for a new index.

Vectors, for searches with an embedder, are made after the terms, in the order of the passages' numbers, from
the last one on. So it does not matter when a caller begins to ask for them, or whether another one indexes
without. Vectors of another model are made anew.
"""

from __future__ import annotations

import atexit
import re
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

import msgspec
import numpy as np

from penstock._log import log
from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Message, Role, ToolCall, ToolResult
from penstock.conversation.view import Handoff
from penstock.conversation.wire import parse_json
from penstock.errors import PenstockError, StoreError, StoreUnavailable
from penstock.recall.embedding import pack_vectors
from penstock.recall.passages import INDEX_VERSION, cut_passages
from penstock.recall.stems import index_passage
from penstock.recall.tools import TOOL_NAMES
from penstock.stores.compactions import read_pieces
from penstock.stores.encoding import unpack
from penstock.stores.index import (
    add_blocks,
    drop_old_blocks,
    empty_index,
    find_next_number,
    find_purge,
    join_blocks,
    pack_blocks,
    prepare_join,
)
from penstock.stores.rows import cut_batches, require_row
from penstock.stores.schema import MESSAGE, RESULT, SUMMARY
from penstock.writing.stubs import arguments_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.recall.embedding import Embedder
    from penstock.recall.passages import Passage
    from penstock.stores.database import Database, Row, Transaction
    from penstock.stores.index import PackedBlock
    from penstock.writing.reading import Speaker

__all__ = [
    "IndexKeeper",
    "IndexSlice",
    "PassageSource",
    "VectorSlice",
    "Within",
    "add_slice",
    "add_vectors",
    "count_unembedded",
    "count_waiting",
    "find_owners",
    "is_current",
    "is_damaged",
    "prepare_slice",
    "prepare_vectors",
    "read_sources",
    "renew_index",
]

_MUCH = 8_000  # passages: the room that they had is worth having back at once
_WRITTEN = 200  # messages that wait before a thread indexes them beside
_BESIDE_AT_ONCE = 64  # sources of a slice that is indexed beside: others share the processor
_REST = 1.0  # times as long as a slice took, the thread leaves the processor and the store to others
_LONGEST_REST = 0.5  # seconds
_CATCH_UP_SECONDS = 0.5
_NEEDED_AT_ONCE = 32  # sources of a slice that a search waits for
_AT_ONCE = 256  # sources, and fewer where they are long
_READ_AT_ONCE = 16
_ENOUGH = 8_000  # passages
_EVERYTHING = (
    "SELECT 0, m.key, min(e.conversation) FROM messages m JOIN entries e ON e.message = m.key GROUP BY m.key",
    "SELECT 1, key, conversation FROM compactions WHERE TRUE",  # without it SQLite takes ON CONFLICT for a join
    "SELECT 2, r.key, s.conversation FROM results r JOIN sessions s ON s.key = r.session WHERE TRUE",
)

_DAMAGED = 0
"""The version of an index that is made from nothing: there is none yet, or `doctor --repair` found it damaged."""
_NOTE = "search index"
_LONGEST_PATH = 300  # characters
_MOST_FOLDERS = 6  # of a path, from its end
_is_path = re.compile(
    r"[^\s\x00-\x1f:*?<>|\"]*[^\s\x00-\x1f:*?<>|\"/\\][/\\.][^\s\x00-\x1f:*?<>|\"]*[^\s.]"
).fullmatch

_OWNERS = {
    MESSAGE: "SELECT key, owner FROM messages WHERE key",
    SUMMARY: "SELECT k.key, c.owner FROM compactions k JOIN conversations c ON c.key = k.conversation WHERE k.key",
    RESULT: "SELECT r.key, c.owner FROM results r JOIN sessions s ON s.key = r.session "
    "JOIN conversations c ON c.key = s.conversation WHERE r.key",
}


class IndexKeeper:
    """Indexes what was written to a database. It can be shared between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._slicing = threading.Lock()  # two threads would make the terms of the same slice
        self._joining = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._written = 0

    def index(self, limit: int | None = None, embedder: Embedder | None = None) -> int:
        """Indexes the queue, or about `limit` sources of it; then indexes anew sources of an older version.

        Returns how many sources that were. With an embedder they get vectors, too, and count once more for these.
        """
        self._require_version()
        self.purge()
        done = 0
        while limit is None or done < limit:
            some = self._index_slice(None)
            if not some and embedder is not None:
                some = self._embed_slice(embedder)
            if not some:
                break
            done += some
        return done

    def catch_up(self, conversation: int | None, embedder: Embedder | None = None) -> None:
        """Indexes, within a moment, what a search needs: the given conversation first, then the rest.

        Raises nothing if others keep the store busy: the indexed part can be searched.
        """
        until = time.monotonic() + _CATCH_UP_SECONDS
        with suppress(StoreUnavailable):
            self._require_version()
            limit = None if conversation is None else _NEEDED_AT_ONCE
            while self._index_slice(conversation, limit) and time.monotonic() < until:
                if not self._count_waiting(conversation):
                    break
            while embedder is not None and time.monotonic() < until:
                if not self._embed_slice(embedder):
                    break
        if self._count_waiting(None) >= _WRITTEN:
            self._start()

    def count_waiting(self, do: Transaction, embedder: Embedder | None = None) -> int:
        """Returns how many sources are still to be indexed, and how many to be given vectors."""
        return count_waiting(do) + (count_unembedded(do, embedder) if embedder is not None else 0)

    def purge(self) -> None:
        """Takes deleted passages out of their blocks, some pages at a time."""
        while True:
            with self._database.reading() as do:
                purge = find_purge(do)
            if purge is None:
                return
            goes_on = True
            while goes_on:
                with self._holding() as do:
                    goes_on = purge.rewrite_some(do)

    def note_written(self, count: int) -> None:
        """Counts written messages; when many wait, a thread begins to index them."""
        self._written += count
        if self._written >= _WRITTEN:
            self._written = 0
            self._start()

    def stop(self) -> None:
        """Ends the thread, if there is one, after its present slice."""
        self._stopped.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # One slice.

    def _index_slice(self, conversation: int | None, limit: int | None = None) -> int:
        """Indexes one slice, and returns how many sources it had. A slice that others indexed meanwhile is made again."""
        while True:
            with self._slicing:
                with self._database.reading() as do:
                    ready = prepare_slice(do, conversation, limit)
                if ready is None:
                    return 0
                with self._holding() as do:
                    done = add_slice(do, ready)
            if done:
                if self._joining.acquire(blocking=False):
                    try:
                        self._join_blocks()
                    finally:
                        self._joining.release()
                return done

    def _join_blocks(self) -> None:
        anew = 0
        while True:
            with self._database.reading() as do:
                join = prepare_join(do)
            if join is None:
                break
            with self._holding() as do:
                anew += join_blocks(do, join)
        if anew >= _MUCH:
            # What was indexed stays so where this fails, and the server does it later by itself.
            with suppress(StoreUnavailable):
                self._database.reclaim()

    def _embed_slice(self, embedder: Embedder) -> int:
        while True:
            with self._database.reading() as do:
                ready = prepare_vectors(do, embedder)
            if ready is None:
                return 0
            with self._holding() as do:
                done = add_vectors(do, ready)
            if done:
                return done

    def _require_version(self) -> None:
        with self._database.reading() as do:
            if is_current(do):
                return
        with self._holding() as do:
            renew_index(do)

    def _count_waiting(self, conversation: int | None) -> int:
        with self._database.reading() as do:
            return count_waiting(do, conversation)

    @contextmanager
    def _holding(self) -> Iterator[Transaction]:
        """Opens a transaction that writes to the index, and keeps others from doing so meanwhile."""
        with self._database.writing() as do:
            for statement in self._database.words.hold_index:
                do.run(statement)
            yield do

    # The thread beside the writers.

    def _start(self) -> None:
        if not self._database.is_shared:
            return
        with self._lock:
            if self._stopped.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._work, name="penstock-index", daemon=True)
            _running.add(self)
            self._thread.start()

    def _work(self) -> None:
        try:
            self._require_version()
            self.purge()
            while not self._stopped.is_set():
                start = time.monotonic()
                if not self._index_slice(None, _BESIDE_AT_ONCE):
                    return
                self._stopped.wait(min(_REST * (time.monotonic() - start), _LONGEST_REST))
        except StoreError as error:  # the next append or search goes on from here
            log.info("indexing beside was broken off: %s", error)


_running: WeakSet[IndexKeeper] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """Ends all threads before the interpreter exits."""
    for keeper in list(_running):
        keeper.stop()


class PassageSource(msgspec.Struct, frozen=True, gc=False):
    """The kind and the key of a source, with the key of a conversation that it belongs to."""

    kind: int
    key: int
    conversation: int


class IndexSlice(msgspec.Struct, frozen=True):
    """Sources with their passages, ready to be written: by kind and key, with the conversation and how many passages.

    `known` were indexed before and only wait; `renewed` says that the others were indexed in an older way.
    """

    sources: list[tuple[int, int, int, int]]
    blocks: list[PackedBlock]
    known: list[tuple[int, int]]
    renewed: bool

    def __len__(self) -> int:
        return len(self.sources) + len(self.known)


class Within:
    """Terms that narrow a search to a part of all passages. No text has such terms, because of the mark that begins them."""

    @staticmethod
    def conversation(key: int) -> str:
        """Returns the term of all passages that a conversation brought."""
        return f"«{key}"

    @staticmethod
    def owner(name: str) -> str:
        """Returns the term of all passages of an owner."""
        return f"«@{name}"

    @staticmethod
    def role(speaker: Speaker) -> str:
        """Returns the term of all passages that a role speaks."""
        return f"«r{int(speaker)}"

    @staticmethod
    def tool(name: str) -> str:
        """Returns the term of calls of a tool and of their results."""
        return f"«t{name.casefold()}"

    @staticmethod
    def path(path: str) -> str:
        """Returns the term of calls that name a file, by its path or the end of it, and of their results."""
        return f"«p{path.casefold().replace(chr(92), '/').strip('/')}"


def is_damaged(do: Transaction) -> bool:
    """Returns True if the index was found to be damaged, and waits to be made from scratch."""
    row = do.one("SELECT version FROM index_version")
    return row is not None and row[0] == _DAMAGED


def is_current(do: Transaction) -> bool:
    """Returns True if the index is of this version, or on the way there."""
    row = do.one("SELECT version FROM index_version")
    return row is not None and int(row[0]) >= INDEX_VERSION


def renew_index(do: Transaction) -> None:
    """Has everything indexed again that was indexed in an older way. No other process may change the index meanwhile.

    The old index serves until then, unless it was found to be damaged: then it is emptied.
    """
    row = do.one("SELECT version FROM index_version")
    version = int(row[0]) if row is not None else _DAMAGED
    if version >= INDEX_VERSION:  # another process was quicker
        return
    do.run("DELETE FROM notes WHERE name = ?", _NOTE)
    if version > _DAMAGED:
        do.run(
            "INSERT INTO notes (name, key, value) VALUES (?, ?, ?)",
            *(_NOTE, "renew below", str(find_next_number(do)).encode()),
        )
    else:
        empty_index(do)
        for table in ("vectors", "vectors_made", "indexed", "unindexed"):
            do.run(f"DELETE FROM {table}")
        for sources in _EVERYTHING:
            # What was written since the table was emptied has put itself there.
            do.run(f"INSERT INTO unindexed (kind, source, conversation) {sources} ON CONFLICT DO NOTHING")
    do.run("DELETE FROM index_version")
    do.run("INSERT INTO index_version (version) VALUES (?)", INDEX_VERSION)


def prepare_slice(
    do: Transaction, conversation: int | None = None, limit: int | None = None
) -> IndexSlice | None:
    """Returns what has waited longest, or is to be made anew, with its terms; None if there is nothing.

    With a conversation, what it brought comes first.
    """
    limit = limit or _AT_ONCE
    waiting = _find_waiting(do, conversation, limit)
    if not waiting:
        return _prepare_renewal(do, limit)
    known = _find_indexed(do, waiting)
    fresh = sorted(
        (source for source in waiting if (source.kind, source.key) not in known),
        key=lambda source: (source.kind, source.conversation, source.key),
    )
    sources, blocks = _read_passages(do, fresh)
    return IndexSlice(sources, blocks, sorted(known), renewed=False)


def add_slice(do: Transaction, ready: IndexSlice) -> int:
    """Writes a slice, and returns how many sources it had; 0 if these have changed since, and nothing was written.

    No other process may change the index meanwhile.
    """
    keys = [*ready.known, *((kind, key) for kind, key, *_ in ready.sources)]
    table = "indexed" if ready.renewed else "unindexed"
    if _find_listed(do, table, keys) != set(keys):
        return 0
    if not ready.renewed and _find_listed(do, "indexed", keys) != set(ready.known):
        return 0
    number = find_next_number(do)
    # Numbers of deleted passages are used again, and need new vectors.
    do.run("UPDATE vectors_made SET upto = ? WHERE upto > ?", number, number)
    do.run_many(f"DELETE FROM {table} WHERE kind = ? AND source = ?", keys)
    add_blocks(do, ready.blocks, number)
    rows = []
    for kind, key, conversation, passages in ready.sources:
        rows.append((kind, key, conversation, number, passages))
        number += passages
    do.run_many(
        "INSERT INTO indexed (kind, source, conversation, first, passages) VALUES (?, ?, ?, ?, ?)", rows
    )
    if ready.renewed:
        drop_old_blocks(do)
    return len(keys)


def count_waiting(do: Transaction, conversation: int | None = None) -> int:
    """Returns how many sources are to be indexed, in all or of those that a conversation brought.

    Where the index is damaged, that is all of them. Sources that are only indexed anew can be found, and are not counted.
    """
    if is_damaged(do):
        tables = ("messages", "compactions", "results")
        return sum(require_row(do.one(f"SELECT count(*) FROM {table}"))[0] for table in tables)
    if conversation is None:
        return int(require_row(do.one("SELECT count(*) FROM unindexed"))[0])
    row = do.one("SELECT count(*) FROM unindexed WHERE conversation = ?", conversation)
    return int(require_row(row)[0])


def _find_waiting(do: Transaction, conversation: int | None, limit: int) -> list[PassageSource]:
    """Returns what has waited longest, each with a conversation that has it."""
    first, values = (
        ("", ())
        if conversation is None
        else ("CASE WHEN u.conversation = ? THEN 0 ELSE 1 END, ", (conversation,))
    )
    # A conversation that is gone may have left messages that others share.
    rows = do.rows(
        "SELECT u.kind, u.source, CASE WHEN EXISTS (SELECT 1 FROM conversations c WHERE c.key = u.conversation) "
        "THEN u.conversation ELSE coalesce((SELECT min(e.conversation) FROM entries e WHERE e.message = u.source), 0) "
        f"END FROM unindexed u ORDER BY {first}u.kind, u.source LIMIT ?",
        *(*values, limit),
    )
    return [PassageSource(*row) for row in rows]


def _prepare_renewal(do: Transaction, limit: int) -> IndexSlice | None:
    """Returns the oldest sources that were indexed in an older way."""
    row = do.one("SELECT value FROM notes WHERE name = ?", _NOTE)
    if row is None:
        return None
    rows = do.rows(
        "SELECT x.kind, x.source, coalesce((SELECT c.key FROM conversations c WHERE c.key = x.conversation), "
        "(SELECT min(e.conversation) FROM entries e WHERE x.kind = 0 AND e.message = x.source), 0) "
        "FROM indexed x WHERE x.passages > 0 AND x.first < ? ORDER BY x.first LIMIT ?",
        *(int(bytes(row[0])), limit),
    )
    if not rows:
        return None
    sources, blocks = _read_passages(do, [PassageSource(*row) for row in rows])
    return IndexSlice(sources, blocks, [], renewed=True)


def _read_passages(
    do: Transaction, sources: Sequence[PassageSource]
) -> tuple[list[tuple[int, int, int, int]], list[PackedBlock]]:
    """Returns as many sources as have passages enough for once, with how many, and the passages' terms in blocks."""
    passages: list[Sequence[str]] = []
    read: list[tuple[int, int, int, int]] = []
    for some in _group_sources(sources):
        messages = read_sources(do, some)
        marks_of = {key: _mark_call(call) for key, call in _find_calls(do, messages).items()}
        owners = find_owners(do, some)
        for source in some:
            own = cut_passages(messages[source]) if source in messages else ()
            scopes = (Within.conversation(source.conversation), Within.owner(owners.get(source, "")))
            for passage in own:
                marks = marks_of.get((source.conversation, passage.call), ())
                passages.append([*_find_passage_terms(passage, marks), *scopes])
            read.append((source.kind, source.key, source.conversation, len(own)))
        if len(passages) >= _ENOUGH:
            break
    return read, pack_blocks(passages)


def _find_passage_terms(passage: Passage, marks: Sequence[str] | None) -> Iterable[str]:
    """Returns the terms of a passage, with the marks of its call and of its speaker.

    What a recall tool gave (its marks are None) has no terms: it would be found beside what it quotes.
    """
    return () if marks is None else (*index_passage(passage), *marks, Within.role(passage.speaker))


def _mark_call(call: ToolCall) -> tuple[str, ...] | None:
    """Returns the terms of a call and its result: its tool, and the files that it names. A call of a recall tool has None."""
    if call.name in TOOL_NAMES:
        return None
    paths = (end for path in _find_paths(call) for end in _list_ends(path))
    return (Within.tool(call.name), *map(Within.path, paths))


def _find_paths(call: ToolCall) -> list[str]:
    """Returns the paths among the arguments of a call."""
    values = arguments_of(call).values()
    return [
        value
        for value in values
        if isinstance(value, str) and len(value) <= _LONGEST_PATH and _is_path(value)
    ]


def _list_ends(path: str) -> Iterator[str]:
    """Yields a path and the ends of it, down to the name of the file."""
    parts = path.replace("\\", "/").strip("/").split("/")[-_MOST_FOLDERS:]
    for start in range(len(parts)):
        yield "/".join(parts[start:])


def find_owners(do: Transaction, sources: Sequence[PassageSource]) -> dict[PassageSource, str]:
    """Returns the owner of each source; a deleted one has none."""
    found: dict[PassageSource, str] = {}
    for kind, statement in _OWNERS.items():
        wanted = {source.key: source for source in sources if source.kind == kind}
        for some in cut_batches(list(wanted)):
            rows = do.rows(f"{statement} IN ({_marks(some)})", *some)
            found.update((wanted[key], owner) for key, owner in rows)
    return found


def _group_sources(sources: Sequence[PassageSource]) -> Iterator[Sequence[PassageSource]]:
    """Returns the sources, as many at a time as are held in memory: a stored result may be very long."""
    results = [source for source in sources if source.kind == RESULT]
    yield from cut_batches([source for source in sources if source.kind != RESULT], _READ_AT_ONCE)
    yield from cut_batches(results, 1)


def _find_indexed(do: Transaction, sources: Sequence[PassageSource]) -> set[tuple[int, int]]:
    """Returns those of the sources that are in the index."""
    return _find_listed(do, "indexed", [(source.kind, source.key) for source in sources])


def _find_listed(do: Transaction, table: str, keys: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Returns those of the sources, by kind and key, that a table has."""
    found: set[tuple[int, int]] = set()
    for kind in {kind for kind, _ in keys}:
        for some in cut_batches([key for own, key in keys if own == kind]):
            rows = do.rows(
                f"SELECT source FROM {table} WHERE kind = {int(kind)} AND source IN ({_marks(some)})", *some
            )
            found.update((kind, row[0]) for row in rows)
    return found


class VectorSlice(msgspec.Struct, frozen=True):
    """Vectors that are ready to be written: by the number of each source's first passage, from a number on up to another."""

    model: str
    start: int
    upto: int
    vectors: list[tuple[int, bytes]]
    sources: int


def prepare_vectors(do: Transaction, embedder: Embedder) -> VectorSlice | None:
    """Returns the vectors of the next passages that have none; None if all have."""
    start = _find_start(do, embedder)
    # A conversation that is gone may have left messages that others share.
    rows = do.rows(
        "SELECT x.kind, x.source, coalesce((SELECT c.key FROM conversations c WHERE c.key = x.conversation), "
        "(SELECT min(e.conversation) FROM entries e WHERE x.kind = 0 AND e.message = x.source), 0), x.first, x.passages "
        "FROM indexed x WHERE x.first >= ? AND x.passages > 0 ORDER BY x.first LIMIT ?",
        *(start, _AT_ONCE),
    )
    if not rows:
        return None
    upto = rows[-1][3] + rows[-1][4]
    return VectorSlice(embedder.name, start, upto, _make_vectors(do, embedder, rows), len(rows))


def add_vectors(do: Transaction, ready: VectorSlice) -> int:
    """Writes vectors, and returns of how many sources; 0 if others were quicker.

    Vectors of another model are removed. No other process may change the index meanwhile.
    """
    row = do.one("SELECT model, upto FROM vectors_made")
    is_ours = row is not None and row[0] == ready.model
    if ready.start != (row[1] if row is not None and is_ours else 0):
        return 0
    if not is_ours:
        do.run("DELETE FROM vectors")
    firsts = [first for first, _ in ready.vectors]
    there: set[int] = set()
    for some in cut_batches(firsts):
        there.update(
            row[0]
            for row in do.rows(
                f"SELECT first FROM indexed WHERE passages > 0 AND first IN ({_marks(some)})", *some
            )
        )
    do.run_many(
        "INSERT INTO vectors (first, bits) VALUES (?, ?)", [one for one in ready.vectors if one[0] in there]
    )
    do.run("DELETE FROM vectors_made")
    do.run("INSERT INTO vectors_made (model, upto) VALUES (?, ?)", ready.model, ready.upto)
    return ready.sources


def count_unembedded(do: Transaction, embedder: Embedder) -> int:
    """Returns how many messages, summaries and results are indexed and have no vectors."""
    row = do.one("SELECT upto FROM vectors_made WHERE model = ?", embedder.name)
    start = row[0] if row is not None else 0
    row = do.one("SELECT count(*) FROM indexed WHERE first >= ? AND passages > 0", start)
    return int(row[0]) if row is not None else 0


def _find_start(do: Transaction, embedder: Embedder) -> int:
    """Returns the number of the first passage that may have no vector of this model."""
    row = do.one("SELECT upto FROM vectors_made WHERE model = ?", embedder.name)
    return int(row[0]) if row is not None else 0


def _make_vectors(do: Transaction, embedder: Embedder, rows: Sequence[Row]) -> list[tuple[int, bytes]]:
    sources = [PassageSource(*row[:3]) for row in rows]
    messages = read_sources(do, sources)
    calls = _find_calls(do, messages)
    held: list[tuple[int, list[str]]] = []
    for source, (*_, first, count) in zip(sources, rows, strict=True):
        passages = cut_passages(messages[source]) if source in messages else ()
        if len(passages) == count:
            ours = {key for key, call in calls.items() if call.name in TOOL_NAMES}
            held.append(
                (
                    first,
                    [
                        "" if (source.conversation, passage.call) in ours else passage.text
                        for passage in passages
                    ],
                )
            )
    vectors = pack_vectors(embedder.embed([text for _, texts in held for text in texts]))
    ends = np.cumsum([len(texts) for _, texts in held], dtype=np.int64)
    return [
        (first, vectors[end - len(texts) : end].tobytes())
        for (first, texts), end in zip(held, ends.tolist(), strict=True)
    ]


def read_sources(do: Transaction, sources: Sequence[PassageSource]) -> dict[PassageSource, Message]:
    """Returns each source that is there and can be read, as a message. `doctor` says why one cannot."""
    found: dict[PassageSource, Message] = {}
    for kind, read in ((MESSAGE, _read_messages), (SUMMARY, _read_summaries), (RESULT, _read_results)):
        wanted = {source.key: source for source in sources if source.kind == kind}
        for some in cut_batches(list(wanted)):
            found.update((wanted[key], message) for key, message in read(do, some, wanted))
    return found


def _read_messages(
    do: Transaction, keys: Sequence[int], sources: Mapping[int, PassageSource]
) -> Iterator[tuple[int, Message]]:
    conversations = sorted({sources[key].conversation for key in keys})
    rows = do.rows(
        f"SELECT key, dialect FROM conversations WHERE key IN ({_marks(conversations)})", *conversations
    )
    dialects: dict[int, str] = {row[0]: row[1] for row in rows}
    for key, raw, packed in do.rows(
        f"SELECT key, raw, packed FROM messages WHERE key IN ({_marks(keys)})", *keys
    ):
        dialect = dialects.get(sources[key].conversation)
        if dialect is None:
            continue
        try:
            yield key, dialect_named(dialect).decode(parse_json(unpack(raw, packed)))
        except (PenstockError, ValueError):
            continue


def _read_summaries(
    do: Transaction, keys: Sequence[int], _: Mapping[int, PassageSource]
) -> Iterator[tuple[int, Message]]:
    """Yields the summaries of compactions that hold: one that was taken back says nothing any more."""
    for key, pieces in do.rows(
        f"SELECT key, pieces FROM compactions WHERE undone IS NULL AND key IN ({_marks(keys)})", *keys
    ):
        try:
            read = read_pieces(bytes(pieces))
        except ValueError:
            continue
        yield key, Message(Role.USER, tuple(piece.summary for piece in read if isinstance(piece, Handoff)))


def _read_results(
    do: Transaction, keys: Sequence[int], _: Mapping[int, PassageSource]
) -> Iterator[tuple[int, Message]]:
    for key, raw, packed in do.rows(
        f"SELECT key, raw, packed FROM results WHERE key IN ({_marks(keys)})", *keys
    ):
        try:
            text = unpack(raw, packed).decode("utf-8", "surrogatepass")
        except (PenstockError, ValueError):
            continue
        yield key, Message(Role.TOOL, (ToolResult("", text),))


def _find_calls(
    do: Transaction, messages: Mapping[PassageSource, Message]
) -> dict[tuple[int, str], ToolCall]:
    """Returns the calls that the messages make or answer, by conversation and id."""
    calls = _read_calls(messages)
    answers = {
        source
        for source, message in messages.items()
        if source.kind == MESSAGE
        and any(
            isinstance(part, ToolResult) and (source.conversation, part.call_id) not in calls
            for part in message.parts
        )
    }
    return {**_read_calls(read_sources(do, _find_callers(do, answers))), **calls}


def _read_calls(messages: Mapping[PassageSource, Message]) -> dict[tuple[int, str], ToolCall]:
    return {
        (source.conversation, part.call_id): part
        for source, message in messages.items()
        for part in message.parts
        if isinstance(part, ToolCall)
    }


def _find_callers(do: Transaction, answers: Iterable[PassageSource]) -> list[PassageSource]:
    """Returns the messages that these may answer: of each, the last before it that holds no results."""
    found: set[PassageSource] = set()
    for answer in answers:
        row = do.one(
            "SELECT max(position) FROM entries WHERE message = ? AND conversation = ?",
            answer.key,
            answer.conversation,
        )
        if row is None or row[0] is None:
            continue
        row = do.one(
            "SELECT e.message FROM entries e JOIN messages m ON m.key = e.message "
            "WHERE e.conversation = ? AND e.position < ? AND m.role <> 'tool' ORDER BY e.position DESC LIMIT 1",
            *(answer.conversation, row[0]),
        )
        if row is not None:
            found.add(PassageSource(MESSAGE, row[0], answer.conversation))
    return list(found)


def _marks(values: Sequence[int]) -> str:
    return ", ".join("?" * len(values))
