"""Names and paths are found whole and by part; what is indexed and what is asked give the same terms."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.recall import find_terms, index_terms, read_query
from penstock.recall.terms import STOP_WORDS

WORDS = st.text(string.ascii_lowercase, min_size=2, max_size=9).filter(
    lambda word: word not in STOP_WORDS and not word.endswith("s")
)
PARTS = st.lists(WORDS, min_size=2, max_size=5, unique=True)


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("getUserName", {"getusername", "get", "user", "name"}),
        ("HTTPServer", {"httpserver", "http", "server"}),
        ("max_retry_count", {"max_retry_count", "max", "retry", "count"}),
        ("MAX_RETRIES", {"max_retries", "max", "retry"}),
        ("src/app/main.py", {"src", "app", "main", "py", "src/app/main.py"}),
        ("./src/app/main.py:17", {"src", "app", "main", "py", "17", "src/app/main.py:17"}),
        ("os.path.join", {"path", "join", "os.path.join"} | {"os"}),
        ("--dry-run", {"dry", "run", "dry-run"}),
        ("#W1234567", {"w1234567", "1234567"}),
        ("ana.k@mail.test", {"ana", "mail", "test", "ana.k@mail.test"}),
        ("orders", {"order"}),
        ("queries", {"query"}),
        ("status", {"status"}),
        ("class", {"class"}),
        ("Résumé", {"resume"}),
        ("3f2a9bc0d1", {"3f2a9bc0d1"}),
        ("42.50", {"42", "50", "42.50"}),
        ("東京都", {"東", "京", "都", "東京", "京都"}),
        ("v2リリース", {"v2", "リ", "ー", "ス", "リリ", "リー", "ース"}),
        ("the", set()),
        ("---", set()),
        ("x", set()),
    ],
)
def test_terms_of_a_token(token, expected):
    assert set(find_terms(token)) == expected


@given(PARTS)
def test_a_camel_case_name_is_found_whole_and_by_every_part(parts):
    name = parts[0] + "".join(part.title() for part in parts[1:])
    held = index_terms(f"before {name}(after)")
    for asked in (name, name.lower(), name.upper(), *parts):
        assert set(read_query(asked).weights) & held, asked


@given(PARTS, st.sampled_from("_./-"))
def test_a_joined_name_is_found_whole_and_by_every_part(parts, mark):
    name = mark.join(parts)
    held = index_terms(f"x = '{name}', and more")
    assert set(read_query(name).weights) <= held
    for part in parts:
        assert set(read_query(part).weights) <= held, part


@given(st.text(st.characters(), max_size=200))
def test_any_text_gives_terms_that_find_it_again_and_that_a_database_takes(text):
    held = index_terms(text)
    assert set(read_query(text).weights) == held
    assert all(term and term not in STOP_WORDS for term in held)
    assert not re.search(r"[\s\x00-\x1f\"']", "".join(held))
    "".join(held).encode()


def test_a_block_of_data_is_one_term_and_found_by_itself():
    data = "Ab3" * 400
    assert index_terms(data) == {("ab3" * 400)[:64]}
    assert set(read_query(data).weights) == index_terms(data)


def test_the_first_words_of_a_query_weigh_more_than_its_surroundings():
    query = read_query("needle " + "filler " * 60 + "afterthought needle")
    assert query.weights["needle"] == 1.0
    assert 0.0 < query.weights["afterthought"] < 0.5


@pytest.mark.parametrize("text", ["", " ", "the of and", "?!…", '""', "\x00", "\ud800"])
def test_a_query_without_words_has_no_weights(text):
    assert read_query(text).weights == {}
