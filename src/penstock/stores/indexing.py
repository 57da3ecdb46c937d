"""Keeping the search index up to date.

What was written waits in a queue until a search, or anybody, has it indexed. So an append stays as quick as
it is durable, and many messages are indexed at a time, which costs far less. What is in the queue is written
by triggers, in the same transaction as what it names. A source of passages is a message of a log, the summary
of a compaction or a stored tool result; each is read as a message. Each passage also holds a term for the
conversation that brought it (`make_scope_term`), by which one conversation is searched without looking at all
others.

Vectors, for searches with an embedder, are made after the terms, in the order of the passages' numbers, from
where the last time ended. So it does not matter when a caller begins to ask for them, nor who indexes
without. Vectors of another model are made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Message, Role, ToolCall, ToolResult
from penstock.conversation.view import Handoff
from penstock.conversation.wire import parse_json
from penstock.errors import PenstockError
from penstock.recall.embedding import pack_vectors
from penstock.recall.passages import INDEX_VERSION, cut_passages
from penstock.recall.terms import index_terms
from penstock.recall.tools import TOOL_NAMES
from penstock.stores.compactions import read_pieces
from penstock.stores.encoding import unpack
from penstock.stores.index import add_passages, empty_index, find_next_number, purge_some
from penstock.stores.rows import cut_batches, require_row
from penstock.stores.schema import MESSAGE, RESULT, SUMMARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.recall.embedding import Embedder
    from penstock.stores.database import Row, Transaction

__all__ = [
    "IndexedCount",
    "PassageSource",
    "count_unembedded",
    "count_waiting",
    "embed_some",
    "index_some",
    "make_scope_term",
    "read_sources",
]

_AT_ONCE = 256  # sources, and fewer where they are long: others who write wait meanwhile
_READ_AT_ONCE = 16
_ENOUGH = 8_000  # passages
_EVERYTHING = (
    "SELECT 0, m.key, min(e.conversation) FROM messages m JOIN entries e ON e.message = m.key GROUP BY m.key",
    "SELECT 1, key, conversation FROM compactions",
    "SELECT 2, r.key, s.conversation FROM results r JOIN sessions s ON s.key = r.session",
)


class PassageSource(msgspec.Struct, frozen=True, gc=False):
    """By its kind and key, with the key of a conversation that it belongs to."""

    kind: int
    key: int
    conversation: int


class IndexedCount(msgspec.Struct, frozen=True):
    """The count of sources that were indexed, and of passages indexed before that were written anew for it."""

    sources: int
    anew: int


def index_some(do: Transaction, hold: Sequence[str], limit: int = _AT_ONCE) -> IndexedCount:
    """Indexes what has waited longest. `hold` keeps others from doing so meanwhile."""
    for statement in hold:
        do.run(statement)
    _require_version(do)
    purge_some(do)  # a process that deleted may have been stopped before all had left the index
    # A conversation that is gone may have left messages that others share.
    waiting = do.rows(
        "SELECT u.kind, u.source, CASE WHEN EXISTS (SELECT 1 FROM conversations c WHERE c.key = u.conversation) "
        "THEN u.conversation ELSE coalesce((SELECT min(e.conversation) FROM entries e WHERE e.message = u.source), 0) "
        "END FROM unindexed u ORDER BY u.kind, u.source LIMIT ?",
        limit,
    )
    known = _find_indexed(do, [PassageSource(*row) for row in waiting])
    fresh = sorted(
        (PassageSource(*row) for row in waiting if (row[0], row[1]) not in known),
        key=lambda source: (source.kind, source.conversation, source.key),
    )
    done, anew = _add_sources(do, fresh)
    left = {(source.kind, source.key) for source in fresh[done:]}
    ready = [row[:2] for row in waiting if row[:2] not in left]
    do.run_many("DELETE FROM unindexed WHERE kind = ? AND source = ?", ready)
    return IndexedCount(len(ready), anew)


def count_waiting(do: Transaction) -> int:
    """Returns how many sources are to be indexed, those of an index that is out of date included."""
    row = do.one("SELECT version FROM index_version")
    current = row is not None and row[0] == INDEX_VERSION
    counted = ("unindexed",) if current else ("messages", "compactions", "results")
    return sum(require_row(do.one(f"SELECT count(*) FROM {table}"))[0] for table in counted)


def _require_version(do: Transaction) -> None:
    """Has everything indexed anew where the index was made in another way than today's."""
    row = do.one("SELECT version FROM index_version")
    if row is not None and row[0] == INDEX_VERSION:
        return
    empty_index(do)
    for table in ("vectors", "vectors_made", "indexed", "unindexed"):
        do.run(f"DELETE FROM {table}")
    for sources in _EVERYTHING:
        do.run(f"INSERT INTO unindexed (kind, source, conversation) {sources}")
    do.run("DELETE FROM index_version")
    do.run("INSERT INTO index_version (version) VALUES (?)", INDEX_VERSION)


def _add_sources(do: Transaction, sources: Sequence[PassageSource]) -> tuple[int, int]:
    """Indexes as many sources as have passages enough for once.

    Returns how many, and how many passages were written anew.
    """
    number = find_next_number(do)
    # Numbers of what is gone come again, and need new vectors.
    do.run("UPDATE vectors_made SET upto = ? WHERE upto > ?", number, number)
    added: list[tuple[int, Sequence[str]]] = []
    ranges: list[tuple[int, int, int, int, int]] = []
    for some in _group_sources(sources):
        messages = read_sources(do, some)
        ours = _find_recall_calls(do, messages)
        for source in some:
            passages = cut_passages(messages[source]) if source in messages else ()
            scope = make_scope_term(source.conversation)
            for place, passage in enumerate(passages):
                terms = index_terms(passage.text) if passage.call not in ours else ()
                added.append((number + place, [*terms, scope]))
            ranges.append((source.kind, source.key, source.conversation, number, len(passages)))
            number += len(passages)
        if len(added) >= _ENOUGH:
            break
    anew = add_passages(do, added)
    do.run_many(
        "INSERT INTO indexed (kind, source, conversation, first, passages) VALUES (?, ?, ?, ?, ?)", ranges
    )
    return len(ranges), anew


def make_scope_term(conversation: int) -> str:
    """Returns the term of all passages that a conversation brought.

    No text has one like it: this mark is in no term.
    """
    return f"«{conversation}"


def _group_sources(sources: Sequence[PassageSource]) -> Iterator[Sequence[PassageSource]]:
    """Returns the sources, as many at a time as are held in memory: a stored result may be very long."""
    results = [source for source in sources if source.kind == RESULT]
    yield from cut_batches([source for source in sources if source.kind != RESULT], _READ_AT_ONCE)
    yield from cut_batches(results, 1)


def _find_indexed(do: Transaction, sources: Sequence[PassageSource]) -> set[tuple[int, int]]:
    """Returns those of the sources that are in the index."""
    found: set[tuple[int, int]] = set()
    for kind in {source.kind for source in sources}:
        for some in cut_batches([source.key for source in sources if source.kind == kind]):
            marks = ", ".join("?" * len(some))
            rows = do.rows(
                f"SELECT source FROM indexed WHERE kind = {int(kind)} AND source IN ({marks})", *some
            )
            found.update((kind, row[0]) for row in rows)
    return found


def embed_some(do: Transaction, hold: Sequence[str], embedder: Embedder, limit: int = _AT_ONCE) -> int:
    """Makes the vectors of the next passages that have none.

    Returns of how many messages, summaries and results. `hold` keeps others from doing so meanwhile.
    """
    for statement in hold:
        do.run(statement)
    start = _find_start(do, embedder)
    # A conversation that is gone may have left messages that others share.
    rows = do.rows(
        "SELECT x.kind, x.source, coalesce((SELECT c.key FROM conversations c WHERE c.key = x.conversation), "
        "(SELECT min(e.conversation) FROM entries e WHERE x.kind = 0 AND e.message = x.source), 0), x.first, x.passages "
        "FROM indexed x WHERE x.first >= ? AND x.passages > 0 ORDER BY x.first LIMIT ?",
        *(start, limit),
    )
    if not rows:
        return 0
    _add_vectors(do, embedder, rows)
    do.run("DELETE FROM vectors_made")
    do.run("INSERT INTO vectors_made (model, upto) VALUES (?, ?)", embedder.name, rows[-1][3] + rows[-1][4])
    return len(rows)


def count_unembedded(do: Transaction, embedder: Embedder) -> int:
    """Returns how many messages, summaries and results are indexed and have no vectors."""
    row = do.one("SELECT upto FROM vectors_made WHERE model = ?", embedder.name)
    start = row[0] if row is not None else 0
    row = do.one("SELECT count(*) FROM indexed WHERE first >= ? AND passages > 0", start)
    return int(row[0]) if row is not None else 0


def _find_start(do: Transaction, embedder: Embedder) -> int:
    """Returns the number of the first passage that may have no vector.

    Vectors of another model are removed.
    """
    row = do.one("SELECT model, upto FROM vectors_made")
    if row is not None and row[0] == embedder.name:
        return int(row[1])
    do.run("DELETE FROM vectors")
    return 0


def _add_vectors(do: Transaction, embedder: Embedder, rows: Sequence[Row]) -> None:
    sources = [PassageSource(*row[:3]) for row in rows]
    messages = read_sources(do, sources)
    ours = _find_recall_calls(do, messages)
    held: list[tuple[int, list[str]]] = []
    for source, (*_, first, count) in zip(sources, rows, strict=True):
        passages = cut_passages(messages[source]) if source in messages else ()
        if len(passages) == count:
            held.append((first, ["" if passage.call in ours else passage.text for passage in passages]))
    vectors = pack_vectors(embedder.embed([text for _, texts in held for text in texts]))
    ends = np.cumsum([len(texts) for _, texts in held], dtype=np.int64)
    do.run_many(
        "INSERT INTO vectors (first, bits) VALUES (?, ?)",
        [
            (first, vectors[end - len(texts) : end].tobytes())
            for (first, texts), end in zip(held, ends.tolist(), strict=True)
        ],
    )


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


def _find_recall_calls(do: Transaction, messages: Mapping[PassageSource, Message]) -> frozenset[str]:
    """Returns the calls of the recall tools that the messages make or answer.

    What these gave would be found beside what it quotes.
    """
    made = {
        part.call_id for message in messages.values() for part in message.parts if isinstance(part, ToolCall)
    }
    answers = {
        source
        for source, message in messages.items()
        if source.kind == MESSAGE
        and any(isinstance(part, ToolResult) and part.call_id not in made for part in message.parts)
    }
    before = read_sources(do, _find_callers(do, answers))
    return frozenset(
        part.call_id
        for message in (*messages.values(), *before.values())
        for part in message.parts
        if isinstance(part, ToolCall) and part.name in TOOL_NAMES
    )


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
