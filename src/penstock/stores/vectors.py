"""What passages mean, as vectors beside the index: for searches with an embedder, and for nobody else.

They are made after the terms, in the order of the passages' numbers, from where the last time ended. So it does not
matter when somebody begins to ask for them, nor who indexes without. Vectors of another model are made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.recall.embedding import pack_vectors
from penstock.recall.passages import cut_passages
from penstock.stores.indexing import PassageSource, find_recall_calls, read_sources
from penstock.stores.rows import find_stretches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.recall.embedding import Embedder
    from penstock.stores.database import Row, Transaction

__all__ = ["MOST_SOURCES", "count_unembedded", "embed_some", "read_vectors"]

MOST_SOURCES = 50_000
"""Of so many messages, the newest, vectors are compared with a query."""
_AT_ONCE = 256


def embed_some(do: Transaction, hold: Sequence[str], embedder: Embedder, limit: int = _AT_ONCE) -> int:
    """Make the vectors of the next passages that have none; of how many messages, summaries and results.

    `hold` keeps others from doing so meanwhile.
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
    """How many messages, summaries and results are indexed and have no vectors."""
    row = do.one("SELECT upto FROM vectors_made WHERE model = ?", embedder.name)
    start = row[0] if row is not None else 0
    row = do.one("SELECT count(*) FROM indexed WHERE first >= ? AND passages > 0", start)
    return int(row[0]) if row is not None else 0


def read_vectors(
    do: Transaction, conversation: int | None, dimensions: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The numbers of passages and their packed vectors: of a conversation, by its key, or of all."""
    if conversation is None:
        found = do.rows("SELECT first, bits FROM vectors ORDER BY first DESC LIMIT ?", MOST_SOURCES)
    else:
        found = _read_vectors_of(do, conversation)
    found.reverse()
    size = dimensions // 8
    rows = np.frombuffer(b"".join(row[1] for row in found), np.uint8).reshape(-1, size)
    firsts = np.array([row[0] for row in found], np.int64)
    counts = np.array([len(row[1]) // size for row in found], np.int64)
    begins = np.cumsum(counts) - counts
    return np.repeat(firsts - begins, counts) + np.arange(len(rows)), rows


def _read_vectors_of(do: Transaction, conversation: int) -> list[Row]:
    """What its log holds, whoever brought it, with its own summaries and results; the newest first."""
    found = do.rows(
        "SELECT v.first, v.bits FROM indexed x JOIN vectors v ON v.first = x.first "
        "WHERE x.conversation = ? AND x.kind <> 0 AND x.passages > 0",
        conversation,
    )
    for part, low, high in find_stretches(do, conversation):
        found += do.rows(
            "SELECT v.first, v.bits FROM entries e JOIN indexed x ON x.kind = 0 AND x.source = e.message "
            "JOIN vectors v ON v.first = x.first "
            "WHERE e.conversation = ? AND e.position >= ? AND e.position < ? AND x.passages > 0 "
            "ORDER BY e.position DESC LIMIT ?",
            *(part, low, high, MOST_SOURCES),
        )
    return sorted(found, reverse=True)[:MOST_SOURCES]


def _find_start(do: Transaction, embedder: Embedder) -> int:
    """The number of the first passage that may have no vector. Vectors of another model are removed."""
    row = do.one("SELECT model, upto FROM vectors_made")
    if row is not None and row[0] == embedder.name:
        return int(row[1])
    do.run("DELETE FROM vectors")
    return 0


def _add_vectors(do: Transaction, embedder: Embedder, rows: Sequence[Row]) -> None:
    sources = [PassageSource(*row[:3]) for row in rows]
    messages = read_sources(do, sources)
    ours = find_recall_calls(do, messages)
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
