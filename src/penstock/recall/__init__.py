"""Finding again what was said.

Text → terms, messages → passages, a query and its candidates → ranked excerpts. Everything here is pure. An
index (in memory, in SQLite, in PostgreSQL) keeps for each term the passages that hold it; what it finds is
ranked here, the same for all of them.
"""

from __future__ import annotations

from penstock.recall.memory_index import MemoryIndex
from penstock.recall.passages import Passage, cut_passages
from penstock.recall.query import Query, Statistics, read_query
from penstock.recall.ranking import Candidate, Hit, Wish, draw_excerpt, rank
from penstock.recall.terms import find_terms, index_terms

__all__ = [
    "Candidate",
    "Hit",
    "MemoryIndex",
    "Passage",
    "Query",
    "Statistics",
    "Wish",
    "cut_passages",
    "draw_excerpt",
    "find_terms",
    "index_terms",
    "rank",
    "read_query",
]
