"""Search by meaning, the same on every store, with the real model of the extra."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from benchmarks.paraphrases import PARAPHRASES
from tests.contract.store_talk import append, compact, messages, started

from penstock.conversation.dialects import dialect_named
from penstock.conversation.wire import parse_json
from penstock.recall import MemoryIndex, Wish
from penstock.recall.semantic import WordLlama, embedder_for
from penstock.settings import RecallSettings, Settings
from penstock.stores.values import NewSession, StoredResult

SAID = (
    "authentication fails with 401 for every user since the upgrade",
    "please look at src/billing/ledger_export.py next",
    "the tests pass now",
    "deployed to staging",
    "the disk of the build machine is full again",
)
ASKED = "login problem"


@pytest.fixture(scope="module")
def embedder():
    if find_spec("wordllama") is None:
        pytest.skip("the extra `semantic` is not installed")
    return embedder_for(Settings(recall=RecallSettings(semantic=True)))


class Renamed:
    """The same model under another name: what a new version of it would be."""

    def __init__(self, model: WordLlama) -> None:
        self.name, self.dimensions, self.embed = "another", model.dimensions, model.embed


def count(store, rows):
    with store.database.reading() as do:
        return do.one(f"SELECT count(*) FROM {rows}")[0]


def first(found):
    return found[0].handles[0] if found else None


def talk(store, session="s", *, before=()):
    started(store, session)
    append(store, session, *before, *SAID)


def test_what_was_said_in_other_words_is_found_where_it_is_asked_for(store, embedder):
    talk(store)
    assert list(store.search(ASKED)) == []
    assert first(store.search(ASKED, embedder=embedder)) == "m1"
    assert first(store.search(ASKED, session_id="s", embedder=embedder)) == "m1"


def test_off_makes_no_vectors(store):
    talk(store)
    store.search(ASKED)
    assert (count(store, "vectors"), count(store, "vectors_made")) == (0, 0)


def test_a_name_that_is_found_is_ranked_as_without_a_model(store, embedder):
    talk(store)
    for query in ("src/billing/ledger_export.py", "ledger_export", "401"):
        assert list(store.search(query, embedder=embedder)) == list(store.search(query))


def test_switching_it_on_later_takes_in_what_was_there(store, embedder):
    talk(store)
    assert store.index() == 5
    assert (store.count_unindexed(), store.count_unindexed(embedder=embedder)) == (0, 5)
    assert store.index(embedder=embedder) == 5
    assert store.count_unindexed(embedder=embedder) == 0
    append(store, "s", "one more")
    store.search("anything")  # somebody without the model indexes meanwhile
    assert (store.count_unindexed(), store.count_unindexed(embedder=embedder)) == (0, 1)
    assert first(store.search(ASKED, embedder=embedder)) == "m1"
    assert count(store, "vectors") == 6


def test_another_model_makes_its_vectors_anew(store, embedder):
    talk(store)
    store.index(embedder=embedder)
    assert store.count_unindexed(embedder=Renamed(embedder)) == 5
    assert first(store.search(ASKED, embedder=Renamed(embedder))) == "m1"
    assert count(store, "vectors_made WHERE model = 'another'") == count(store, "vectors_made") == 1
    assert count(store, "vectors") == 5


def test_an_index_that_is_made_anew_makes_its_vectors_anew(store, embedder):
    talk(store)
    store.index(embedder=embedder)
    with store.database.writing() as do:
        do.run("UPDATE index_version SET version = 0")
    assert first(store.search(ASKED, embedder=embedder)) == "m1"
    assert count(store, "vectors") == 5


def test_what_is_deleted_leaves_no_vectors_and_its_numbers_can_come_again(store, embedder):
    talk(store, "old", before=("a kitten asleep on the sofa",))
    store.put_result(StoredResult(id="r-1", session="old", tool="t", text="a violin", created=4.0))
    compact(store, "old", "old-b", text="we spoke about cats")
    store.index(embedder=embedder)
    store.delete("old")
    assert count(store, "vectors") == 0
    talk(store, "new")
    assert store.count_unindexed(embedder=embedder) == 5 or store.count_unindexed() > 0
    assert first(store.search(ASKED, embedder=embedder)) == "m1"
    assert count(store, "vectors") == 5
    assert list(store.search("young feline pet", session_id="new", embedder=embedder)) == []
    assert list(store.faults()) == []


def test_deleting_one_of_two_leaves_the_other_its_vectors(store, embedder):
    started(store, "one")
    append(store, "one", *SAID[1:])
    started(store, "two")
    append(store, "two", SAID[0], *SAID[2:4])
    store.index(embedder=embedder)
    store.delete("one")
    (found, *_) = store.search(ASKED, embedder=embedder)
    assert (found.session, found.handles[0]) == ("two", "m1")
    assert count(store, "vectors") == 3
    assert list(store.faults()) == []


def test_a_branch_finds_by_meaning_what_it_shares_and_not_what_came_after(store, embedder):
    started(store, "one")
    append(store, "one", *SAID[1:4])
    store.branch("one", 3, NewSession(id="two", at=5.0))
    append(store, "one", SAID[0])
    assert first(store.search(ASKED, session_id="one", embedder=embedder)) == "m4"
    found = store.search(ASKED, session_id="two", embedder=embedder)
    assert all("authentication" not in finding.excerpt for finding in found)


def test_what_a_conversation_does_not_share_takes_no_place_in_its_search(store, embedder):
    """Many that are nearer stand in another conversation, which brought the first message of both."""
    other, mine = NewSession(id="other", at=1.0), NewSession(id="mine", at=2.0)
    for new in (other, mine):
        store.create(new)
        append(store, new.id, "the same opening")
    append(store, "other", *(f"{SAID[0]}, attempt {n}" for n in range(80)))
    append(store, "mine", *SAID[2:], "the token check was wrong: users could not authenticate")
    assert first(store.search(ASKED, session_id="mine", embedder=embedder)) == "m5"


def test_messages_of_a_conversation_that_is_gone_keep_their_meaning_for_others(store, embedder):
    talk(store, "one")
    talk(store, "two")
    store.index()
    store.delete("one")
    (found, *_) = store.search(ASKED, session_id="two", embedder=embedder)
    assert (found.session, found.handles[0]) == ("two", "m1")


def test_what_the_asker_sees_is_not_found_by_meaning(store, embedder):
    talk(store)
    found = store.search(ASKED, session_id="s", hidden={0}, embedder=embedder)
    assert all("m1" not in finding.handles for finding in found)


def test_what_is_being_talked_about_does_not_hide_what_is_meant(store, embedder):
    talk(store)
    wish = Wish(surroundings="now the tests, please")
    assert list(store.search(ASKED, wish, session_id="s")) == []
    assert first(store.search(ASKED, wish, session_id="s", embedder=embedder)) == "m1"


@pytest.mark.parametrize("query", ["", "…", "7", "\ud800", "the of and"])
def test_any_query_is_answered_with_a_model_too(store, embedder, query):
    assert list(store.search(query, embedder=embedder)) == []
    talk(store)
    store.search(query, embedder=embedder)


def test_a_vector_takes_32_bytes_for_each_passage(store, embedder):
    started(store)
    append(
        store, "s", "\n".join(f"line {n} about the weather in the harbour" for n in range(100)), "", "short"
    )
    store.index(embedder=embedder)
    with store.database.reading() as do:
        passages = do.rows("SELECT first, passages FROM indexed WHERE passages > 0 ORDER BY first")
        bits = do.rows("SELECT first, bits FROM vectors ORDER BY first")
    assert [(first, len(held)) for first, held in bits] == [(first, 32 * count) for first, count in passages]
    assert np.frombuffer(bits[0][1], np.uint8).any()


def test_many_messages_are_searched_as_in_memory(store, embedder):
    """The same question finds the same places, whichever index holds them."""
    texts = [
        text for n, (said, _) in enumerate(PARAPHRASES) for text in (said, f"step {n} of part{n % 7}.py done")
    ]
    new = messages(*texts)
    started(store)
    store.append("s", new, "", 2.0)
    memory = MemoryIndex(embedder)
    memory.add_all(dialect_named("chat").decode(parse_json(one.raw)) for one in new)
    answered = 0
    for _, asked in PARAPHRASES[::5]:
        expected = [tuple(f"m{number}" for number in hit.messages) for hit in memory.search(asked)]
        answered += bool(expected)
        for session in (None, "s"):
            found = store.search(asked, session_id=session, embedder=embedder)
            assert [finding.handles for finding in found] == expected
    assert answered >= 6


def test_vectors_without_passages_are_told_and_go(store, embedder):
    talk(store)
    store.index(embedder=embedder)
    with store.database.writing() as do:
        do.run("INSERT INTO vectors (first, bits) VALUES (?, ?)", 900, bytes(32))
    assert [fault.what for fault in store.faults()] == ["it holds 1 vectors of passages that are not there"]
    store.repair()
    assert first(store.search(ASKED, embedder=embedder)) == "m1"
    assert count(store, "vectors") == 5
    assert list(store.faults()) == []


def test_what_another_owner_said_in_other_words_is_not_found(store, embedder):
    for owner in ("ann", "ben"):
        talk(store.for_owner(owner), owner)
    talk(store, "local")
    for owner, session in (("ann", "ann"), ("ben", "ben"), ("", "local")):
        found = store.for_owner(owner).search(ASKED, embedder=embedder)
        assert {one.session for one in found} == {session}
    assert not store.for_owner("cleo").search(ASKED, embedder=embedder)
