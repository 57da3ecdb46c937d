"""Keeping the search index up to date: what was written waits in a queue until a search, or anybody, has it indexed.

So an append stays as quick as it is durable, and many messages are indexed at a time, which costs far less. What is
in the queue is written by triggers, in the same transaction as what it names. Each passage also holds a term for the conversation
that brought it (`scope_term`), by which one conversation is searched without looking at all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.recall.passages import INDEX_VERSION, message_passages
from penstock.recall.terms import index_terms
from penstock.stores.index import add_passages, empty_index, next_number, purge_some
from penstock.stores.rows import batches, there
from penstock.stores.schema import RESULT
from penstock.stores.sources import PassageSource, read_sources, recall_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.stores.database import Transaction

__all__ = ["Indexed", "index_some", "require_version", "scope_term", "waiting"]

_AT_ONCE = 256  # sources, and fewer where they are long: others who write wait meanwhile
_READ_AT_ONCE = 16
_ENOUGH = 8_000  # passages
_EVERYTHING = (
    "SELECT 0, m.key, min(e.conversation) FROM messages m JOIN entries e ON e.message = m.key GROUP BY m.key",
    "SELECT 1, key, conversation FROM compactions",
    "SELECT 2, r.key, s.conversation FROM results r JOIN sessions s ON s.key = r.session",
)


def scope_term(conversation: int) -> str:
    """The term of all passages that a conversation brought. No text has one like it: this mark is in no term."""
    return f"«{conversation}"


def require_version(do: Transaction) -> None:
    """Have everything indexed anew where the index was made in another way than today's."""
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


class Indexed(msgspec.Struct, frozen=True):
    """How many sources were indexed, and how many passages that had been indexed before were written anew for it."""

    sources: int
    anew: int


def index_some(do: Transaction, hold: Sequence[str], limit: int = _AT_ONCE) -> Indexed:
    """Index what has waited longest. `hold` keeps others from doing so meanwhile."""
    for statement in hold:
        do.run(statement)
    require_version(do)
    purge_some(do)  # where somebody who deleted was stopped before all had left the index
    # A conversation that is gone may have left messages that others share.
    waiting = do.rows(
        "SELECT u.kind, u.source, CASE WHEN EXISTS (SELECT 1 FROM conversations c WHERE c.key = u.conversation) "
        "THEN u.conversation ELSE coalesce((SELECT min(e.conversation) FROM entries e WHERE e.message = u.source), 0) "
        "END FROM unindexed u ORDER BY u.kind, u.source LIMIT ?",
        limit,
    )
    known = _indexed(do, [PassageSource(*row) for row in waiting])
    fresh = sorted(
        (PassageSource(*row) for row in waiting if (row[0], row[1]) not in known),
        key=lambda source: (source.kind, source.conversation, source.key),
    )
    done, anew = _add(do, fresh)
    left = {(source.kind, source.key) for source in fresh[done:]}
    ready = [row[:2] for row in waiting if row[:2] not in left]
    do.run_many("DELETE FROM unindexed WHERE kind = ? AND source = ?", ready)
    return Indexed(len(ready), anew)


def waiting(do: Transaction) -> int:
    """How many sources are to be indexed, those of an index that is out of date included."""
    row = do.one("SELECT version FROM index_version")
    current = row is not None and row[0] == INDEX_VERSION
    counted = ("unindexed",) if current else ("messages", "compactions", "results")
    return sum(there(do.one(f"SELECT count(*) FROM {table}"))[0] for table in counted)


def _add(do: Transaction, sources: Sequence[PassageSource]) -> tuple[int, int]:
    """Index sources, as many of them as have passages enough for once: how many, and what was written anew for it."""
    number = next_number(do)
    do.run(
        "UPDATE vectors_made SET upto = ? WHERE upto > ?", number, number
    )  # numbers of what is gone come again
    added: list[tuple[int, Sequence[str]]] = []
    ranges: list[tuple[int, int, int, int, int]] = []
    for some in _groups(sources):
        messages = read_sources(do, some)
        ours = recall_calls(do, messages)
        for source in some:
            passages = message_passages(messages[source]) if source in messages else ()
            scope = scope_term(source.conversation)
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


def _groups(sources: Sequence[PassageSource]) -> Iterator[Sequence[PassageSource]]:
    """The sources, as many at a time as are held in memory: a stored result may be very long."""
    results = [source for source in sources if source.kind == RESULT]
    yield from batches([source for source in sources if source.kind != RESULT], _READ_AT_ONCE)
    yield from batches(results, 1)


def _indexed(do: Transaction, sources: Sequence[PassageSource]) -> set[tuple[int, int]]:
    """Those of the sources that are in the index."""
    found: set[tuple[int, int]] = set()
    for kind in {source.kind for source in sources}:
        for some in batches([source.key for source in sources if source.kind == kind]):
            marks = ", ".join("?" * len(some))
            rows = do.rows(
                f"SELECT source FROM indexed WHERE kind = {int(kind)} AND source IN ({marks})", *some
            )
            found.update((kind, row[0]) for row in rows)
    return found
