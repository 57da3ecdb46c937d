"""Recall by meaning, with the real model of the extra."""

from __future__ import annotations

import logging
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from benchmarks.paraphrases import PARAPHRASES

from penstock.conversation.message import Message, Role, Text
from penstock.errors import SettingsError
from penstock.recall import MemoryIndex, Wish, index_terms
from penstock.recall.embedding import NEAREST, Meaning, pack_vectors
from penstock.recall.memory_history import MemoryHistory
from penstock.recall.semantic import embedder_for
from penstock.settings import RecallSettings, Settings

ON = Settings(recall=RecallSettings(semantic=True))
SAID = [
    "authentication fails with 401 for every user since the upgrade",
    "please look at src/billing/ledger_export.py next",
    "the tests pass now",
    "deployed to staging",
    "the disk of the build machine is full again",
    "Anna will be on holiday until the end of the month",
    "a refund takes five working days to reach the card",
    "the chart shows old figures because the cache is never refreshed",
]


@pytest.fixture(scope="module")
def embedder():
    if find_spec("wordllama") is None:
        pytest.skip("the extra `semantic` is not installed")
    return embedder_for(ON)


def index_of(texts, embedder=None):
    index = MemoryIndex(embedder)
    index.add_all(Message(Role.USER, (Text(text),)) for text in texts)
    return index


def test_off_asks_for_no_model():
    assert embedder_for(Settings()) is None


@pytest.mark.outside
def test_a_missing_package_is_told_with_what_to_install():
    script = (
        "import sys; sys.modules['tokenizers'] = None; import importlib.util as u; u.find_spec = lambda name: None\n"
        "from penstock.recall.semantic import wordllama; wordllama()"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (
        "SettingsError: recall.semantic needs the extra \"semantic\": pip install 'penstock-context[semantic]'"
        in run.stderr
    )
    assert issubclass(SettingsError, Exception)


def test_the_model_is_read_from_its_package_and_sets_up_nothing(embedder):
    assert embedder_for(ON) is embedder
    assert "wordllama" not in sys.modules
    assert embedder.name.startswith("wordllama-")
    assert not any("wordllama" in name for name in logging.root.manager.loggerDict)


def test_vectors_have_length_one_and_texts_without_words_none(embedder):
    vectors = embedder.embed(["the build is broken", "", "12 34", "\ud800 x" * 20_000, "字" * 300])
    assert vectors.shape == (5, embedder.dimensions)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), [1, 0, 0, 1, 1], atol=1e-5)
    assert embedder.embed([]).shape == (0, embedder.dimensions)


@pytest.mark.outside
def test_a_text_has_one_vector_however_many_words_were_seen_between(embedder):
    before = embedder.embed(["invoice of the customer"])
    for start in range(0, 40_000, 1_000):
        words = (
            chr(97 + n % 26) + chr(97 + n // 26 % 26) + chr(97 + n // 676 % 26) + "qz"
            for n in range(start, start + 1_000)
        )
        embedder.embed([" ".join(words)])
    assert np.allclose(embedder.embed(["invoice of the customer"]), before, atol=1e-6)


def test_packed_vectors_are_near_to_what_the_whole_ones_are_near_to(embedder):
    vectors = embedder.embed(SAID)
    rows = pack_vectors(vectors)
    assert rows.shape == (len(SAID), embedder.dimensions // 8)
    for text in SAID:
        near = Meaning(text, embedder).measure_packed(rows)
        assert near.argmax() == SAID.index(text)
        assert -1.0 <= near.min() <= near.max() <= 1.0


def test_what_says_nothing_is_near_to_nothing(embedder):
    rows = pack_vectors(embedder.embed(["12 34", *SAID]))
    assert Meaning("login", embedder).measure_packed(rows)[0] == 0.0
    assert len(Meaning("12 34", embedder).find_nearest(rows)) == 0
    assert len(Meaning("login", embedder).find_nearest(rows[:0])) == 0
    assert len(Meaning("login", embedder).find_nearest(np.repeat(rows, 50, axis=0))) <= NEAREST


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("login problem", "authentication fails"),
        ("CI host ran out of storage space", "the disk of the build machine"),
        ("when does the money come back to the buyer", "a refund takes"),
    ],
)
def test_a_question_in_other_words_finds_what_words_do_not(embedder, asked, said):
    by_words = index_of(SAID).search(asked, Wish(hits=1, characters=200))
    assert all(said not in hit.excerpt for hit in by_words)
    first = index_of(SAID, embedder).search(asked, Wish(hits=3, characters=200))
    assert any(said in hit.excerpt for hit in first)


def test_a_name_that_is_found_leaves_nothing_to_meaning(embedder):
    for asked in ("src/billing/ledger_export.py", "ledger_export", "401"):
        assert index_of(SAID, embedder).search(asked) == index_of(SAID).search(asked)


def test_what_is_hidden_is_not_found_by_meaning_either(embedder):
    hits = index_of(SAID, embedder).search("login problem", hidden={1})
    assert all(1 not in hit.messages for hit in hits)


def test_messages_that_come_later_are_found_too(embedder):
    index = index_of(SAID[1:4], embedder)
    index.search("login problem")
    index.add(9, Message(Role.USER, (Text(SAID[0]),)))
    assert index.search("login problem")[0].messages[0] == 9


def test_a_history_finds_by_meaning_whatever_is_being_talked_about(embedder):
    history = MemoryHistory(embedder=embedder)
    for number, text in enumerate(SAID, start=1):
        history.add(number, Message(Role.USER, (Text(text),)))
    seen = Message(Role.USER, (Text("now the tests of the chart, please"),))
    history.see([seen], [20])
    found = history.search("login problem", Wish(hits=1))
    assert found[0].handles[0] == "m1"


def test_of_many_questions_in_other_words_most_are_answered(embedder):
    """Among the texts of all the others; by words, none."""
    assert not any(index_terms(said) & index_terms(asked) for said, asked in PARAPHRASES)
    said = [text for text, _ in PARAPHRASES]
    answered = {}
    for model in (None, embedder):
        index = index_of(said, model)
        found = [index.search(asked, Wish(hits=5, characters=150)) for _, asked in PARAPHRASES]
        answered[model] = sum(
            any(text[:60] in hit.excerpt.replace("\n", " ") for hit in hits)
            for text, hits in zip(said, found, strict=True)
        )
    assert answered[None] <= 8  # what stands beside something that was found
    assert answered[embedder] >= 22
