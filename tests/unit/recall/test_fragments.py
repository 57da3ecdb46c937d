"""Fragments as numbers: what a process has read before, or reads at the same time, changes no search."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from benchmarks.generate import coding_session, service_session

from penstock.conversation.dialects import dialect_named
from penstock.recall import MemoryIndex, Wish, fragments
from penstock.recall.fragments import Origin, PassageReader, cut_fragments, find_reader
from penstock.writing.reading import Speaker

QUERIES = [
    "which file holds the failing test",
    "the port that the service listens on",
    "error exit code",
    "config path",
    "order number of the customer",
]


def index_of(messages):
    index = MemoryIndex()
    index.add_all(map(dialect_named("chat").decode, messages))
    return index


def ask_all(index):
    return [index.search(query, Wish(hits=5)) for query in QUERIES]


def start_afresh(monkeypatch):
    monkeypatch.setattr(fragments, "_kept", [PassageReader()])


@pytest.fixture(scope="module")
def indexes():
    return [index_of(coding_session(20_000, seed=5)), index_of(service_session(9_000, seed=6))]


def test_what_was_read_before_changes_no_search(indexes, monkeypatch):
    coding, service = indexes
    start_afresh(monkeypatch)
    alone = ask_all(coding)
    assert any(alone)
    assert ask_all(coding) == alone
    start_afresh(monkeypatch)
    ask_all(service)
    assert ask_all(coding) == alone


def test_a_full_reader_gives_way_to_a_new_one(indexes, monkeypatch):
    start_afresh(monkeypatch)
    expected = ask_all(indexes[0])
    for limit in ("_MOST_PASSAGES", "_MOST_STRINGS"):
        start_afresh(monkeypatch)
        with monkeypatch.context() as small:
            small.setattr(fragments, limit, 3)
            first = find_reader()
            assert ask_all(indexes[0]) == expected
            assert first.is_full
            assert find_reader() is not first


def test_searches_in_threads_find_what_each_finds_alone(indexes, monkeypatch):
    start_afresh(monkeypatch)
    expected = [ask_all(index) for index in indexes]
    start_afresh(monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask_all, indexes * 4)) == expected * 4


def test_places_have_a_gap_where_passages_are_missing():
    passages = [
        (Origin(number, 1, message, 0, Speaker.USER), f"line {number} a\nline {number} b")
        for number, message in ((4, 1), (5, 1), (6, 2), (8, 2))
    ]
    table = cut_fragments(passages, size=10)
    assert table.texts[:3] == ["line 4 a", "line 4 b", "line 5 a"]
    assert table.places.tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    assert [round(part, 1) for part in table.beside.tolist()] == [0.4, 0.4, 0.4, 0.1, 0.4, 0.0, 0.4]
