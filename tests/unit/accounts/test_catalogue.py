"""The catalogue always says what the store says, however it was changed; timelines say what became of messages."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.accounts.catalogue import Catalogue, read_catalogue_query
from penstock.accounts.comparison import compare_compaction
from penstock.accounts.conversations import mark_words, open_conversation
from penstock.accounts.overview import read_overview
from penstock.accounts.talk import read_talk
from penstock.accounts.timeline import ViewFate, find_runs, trace_fates, trace_requests
from penstock.accounts.usage import report_insights
from penstock.conversation.message import Summary
from penstock.conversation.view import Compaction, Handoff, Kept, Rewritten, is_merged
from penstock.measure.usage import Usage
from penstock.sessions.session import Session
from penstock.settings import Settings
from penstock.stores.store import open_store
from penstock.stores.values import LogShape, UsageRow

WORD = "The port of the staging database is 5433. "


@pytest.fixture
def store():
    store = open_store("memory:")
    yield store
    store.close()


def talk(store, title, turns=12, model="gpt-4.1"):
    session = Session.create(store, title=title, model=model)
    for turn in range(turns):
        session.append(
            [{"role": "user", "content": f"{WORD * 4} {turn}"}, {"role": "assistant", "content": WORD * 6}]
        )
    return session


def book(session, cost=0.01):
    session.record_usage(Usage(input_tokens=100, cache_read_tokens=300, output_tokens=10))


def test_it_follows_the_store(store):
    catalogue = Catalogue(store)
    assert catalogue.refresh()
    assert catalogue.find(read_catalogue_query("")) == []
    one, other = talk(store, "apples"), talk(store, "pears", model="gpt-5-mini")
    assert catalogue.refresh()
    assert [found.title for found in catalogue.find(read_catalogue_query("gpt-5"))] == ["pears"]
    book(one)
    one.append([{"role": "user", "content": "more"}])
    one.store.update(one.id, title="cherries")
    one.append([{"role": "user", "content": "and more"}])
    catalogue.refresh()
    assert [found.title for found in catalogue.find(read_catalogue_query("sort:-title"))] == [
        "pears",
        "cherries",
    ]
    store.delete(other.id)
    catalogue.refresh()
    assert [found.row.id for found in catalogue.find(read_catalogue_query(""))] == [one.row.conversation]
    assert catalogue.total == 1


def test_savings_are_those_of_the_insights_also_after_an_undo(store):
    catalogue, session = Catalogue(store), talk(store, "apples")
    for step in ("compact", "use", "use", "compact", "use", "undo", "use"):
        match step:
            case "compact":
                session.compact(target_tokens=session.count() // 2)
            case "use":
                book(session)
                session.append([{"role": "user", "content": WORD * 20}])
            case "undo":
                session.undo()
        catalogue.refresh()
        told = report_insights(store, 30, session.row.started + 10)
        assert catalogue.savings.complete
        assert catalogue.savings.total == told.compactions
        assert catalogue.savings.per_day == told.compactions_per_day
    assert told.compactions.saved_tokens > 0


def test_quick_leaves_much_for_later_and_says_so(store):
    catalogue = Catalogue(store)
    for number in range(120):
        Session.create(store, title=f"number {number}")
    assert not catalogue.refresh(quick=True)
    assert catalogue.waiting == 120
    overview = read_overview(store, catalogue, Settings(), read_catalogue_query("number"), (0, 40), 0.0)
    assert (overview.found, overview.waiting) == (0, 120)
    plain = read_overview(store, catalogue, Settings(), read_catalogue_query(""), (0, 40), 0.0)
    assert (len(plain.rows), plain.found) == (40, 120)  # the list needs no catalogue
    catalogue.refresh()
    assert catalogue.waiting == 0
    catalogue.stop()
    Session.create(store)
    assert not catalogue.refresh()


def test_what_is_typed():
    assert read_catalogue_query("a sort:cost b") == read_catalogue_query("a b", "cost")
    assert read_catalogue_query("sort:-cost").reverse
    assert read_catalogue_query("sort:nonsense").words == "sort:nonsense"
    assert read_catalogue_query("", "nonsense").is_plain


# Timelines.


@given(st.integers(0, 60), st.data())
def test_every_message_has_one_fate_and_runs_cover_all(length, data):
    made_of = data.draw(st.integers(0, length))
    kinds = data.draw(st.lists(st.sampled_from("krhg"), min_size=made_of, max_size=made_of))
    at = {kind: tuple(n for n, one in enumerate(kinds) if one == kind) for kind in "krhg"}
    pieces = (
        *(Kept(n) for n in at["k"]),
        *(Rewritten(n, {}) for n in at["r"]),
        Handoff(Summary("text", 1), at["h"]),
    )
    fates = trace_fates(length, Compaction("", made_of, pieces))
    expected = {"k": ViewFate.VERBATIM, "r": ViewFate.ELIDED, "h": ViewFate.HANDED_ON, "g": ViewFate.GONE}
    assert fates == [expected[kind] for kind in kinds] + [ViewFate.VERBATIM] * (length - made_of)
    runs = find_runs(fates, LogShape([1] * length, [0.0] * length))
    assert [run.fate for run in runs for _ in range(run.start, run.end)] == fates
    assert sum(run.tokens for run in runs) == length
    assert all(one.fate is not other.fate for one, other in pairwise(runs))


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=1_500))
def test_a_series_keeps_its_ends_and_its_order(tokens):
    rows = [
        UsageRow(session="s", at=float(n), model="m", task="turn", usage=Usage(one), cost=0.5)
        for n, one in enumerate(tokens)
    ]
    points = trace_requests(rows, LogShape([], []))
    assert len(points) <= 810
    assert (points[0].tokens, points[-1].tokens) == (tokens[0], tokens[-1])
    assert points[-1].cost == 0.5 * len(tokens)
    assert [point.at for point in points] == sorted({point.at for point in points})


def test_a_compaction_beside_what_it_was_made_of(store):
    session = talk(store, "apples")
    session.compact(target_tokens=session.count() // 3)
    length = len(session)
    session.append([{"role": "user", "content": WORD * 40}, {"role": "assistant", "content": WORD * 40}])
    session.compact(target_tokens=session.count() // 2)
    tip = store.tip(session.id)
    opened = open_conversation(store, tip, Settings())
    assert (len(opened.compactions), opened.newest) == (2, 2)
    assert opened.cuts == [(1, length), (2, length + 2)]
    base = None
    for number in (1, 2):
        compared = compare_compaction(store, tip, number)
        receipt = compared.receipt
        before = sum(stretch.count for stretch in compared.stretches)
        merged = sum(is_merged(piece) for piece in base.compaction.pieces) if base is not None else 0
        assert before == receipt.messages_before + merged  # a handoff inside a message has a line of its own
        base = compared.row
        assert compared.is_newest is (number == 2)
        kept = sum(stretch.count for stretch in compared.stretches if stretch.fate is ViewFate.VERBATIM)
        whole = sum(isinstance(piece, Kept) for piece in compared.row.compaction.pieces)
        assert kept == whole, [(one.fate, one.count) for one in compared.stretches]
        written = [
            piece.summary.text for piece in compared.row.compaction.pieces if isinstance(piece, Handoff)
        ]
        assert compared.handoff == "\n".join(written)


def test_a_stretch_of_a_talk_is_the_talk_cut_in_pieces(store):
    session = Session.create(store)
    for turn in range(40):
        function = {"name": "read", "arguments": "{}"}
        session.append(
            [
                {"role": "user", "content": f"turn {turn}"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": f"c{turn}", "type": "function", "function": function}],
                },
                {"role": "tool", "tool_call_id": f"c{turn}", "content": f"exit code {turn % 3}"},
            ]
        )
    whole = read_talk(store, session.id)
    for step in (1, 7, 50, 500):
        pieces = [one for start in range(0, 120, step) for one in read_talk(store, session.id, start, step)]
        assert pieces == whole
    assert [call.failed for entry in whole for call in entry.calls] == [bool(turn % 3) for turn in range(40)]


@given(st.text(), st.text())
def test_marked_words_are_the_text(text, query):
    assert "".join(piece for piece, _ in mark_words(text, query)) == text


def test_words_are_marked_as_the_search_understands_them():
    found = list(mark_words("The Ports of staging_db, port", "port staging"))
    assert [piece for piece, asked in found if asked][-1] == "port"
