"""What a reader would have to repeat exactly, and what is plain language."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.writing.value_looks import Kind
from penstock.writing.values import (
    END,
    SEPARATORS,
    parts_of_paths,
    plain_words,
    space_out,
    sub_words,
    tokens_of,
    values_in,
)
from penstock.writing.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("see src/app/main.py for it", "src/app/main.py"),
        ("see src/app/main.py for it", "main.py"),
        ("the order #W4411 is paid", "#W4411"),
        ("call getUserName now", "getUserName"),
        ("the field user_name", "user_name"),
        ("it took 4,711 ms or 4711 ms", "4711"),
        ("pass --dry-run to it", "--dry-run"),
        ("the commit 9f3c2ab1 broke it", "9f3c2ab1"),
        ("DATABASE_URL is set", "DATABASE_URL"),
        ("GET is allowed", "GET"),
        ("write to ada@example.org", "ada@example.org"),
        ("the error was 'no such table' again", "no such table"),
        ("the branch `feature x` is old", "feature x"),
        ('status "in transit" since', "in transit"),
        ("订单编号是88213,请查询", "88213"),
        ("C:\\Users\\ada\\notes.txt is open", ["C", "\\Users\\ada\\notes.txt"][1]),
        ("версия v2.14.0 сломана", "v2.14.0"),
    ],
)
def test_values_are_found(text, value):
    assert value in values_in(text)


@pytest.mark.parametrize(
    "text",
    ["Please look at the tests again.", "it is fine", "one two", "- - -", "", "日本語のテスト", "a b c 12"],
)
def test_plain_language_holds_no_value(text):
    assert values_in(text) == []


def test_a_value_stands_as_often_as_it_is_said():
    assert values_in("job_1 then job_2 then job_1").count("job_1") == 2


@given(st.text(max_size=80))
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_every_value_stands_in_its_text(text):
    for value in values_in(text):
        assert value in text
        assert value.strip()


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), max_size=6))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_a_vocabulary_finds_in_many_texts_what_is_in_each(texts):
    vocabulary = Vocabulary()
    found = vocabulary.find(texts)
    for number, text in enumerate(texts):
        ids = found.ids[found.starts[number] : found.starts[number + 1]].tolist()
        assert len(ids) == len(set(ids)) == len(set(values_in(text)))
        assert set(ids) == set(vocabulary.find_known([text]).tolist())
    assert len(vocabulary) == len({value for text in texts for value in values_in(text)})


def test_a_vocabulary_gives_a_value_the_same_number_for_good():
    vocabulary = Vocabulary()
    vocabulary.find(["job_1 and job_2"])
    first = vocabulary.find_known(["job_1"]).tolist()
    vocabulary.find(["job_3 and job_1"])
    assert vocabulary.find_known(["job_1"]).tolist() == first
    assert vocabulary.find_known(["job_4"]).tolist() == []
    assert len(vocabulary) == 3


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("src/app.py", Kind.PATH),
        ("--verbose", Kind.FLAG),
        ("4711", Kind.NUMBER),
        ("12.50", Kind.NUMBER),
        ("SKU-4711", Kind.ID),
        ("9f3c2ab1", Kind.HEX),
        ("user_name", Kind.SNAKE),
        ("no such table", Kind.PHRASE),
        ("getUserName", Kind.NAME),
    ],
)
def test_kinds_follow_what_a_value_looks_like(value, kind):
    vocabulary = Vocabulary()
    text = f"'{value}'" if " " in value else value
    vocabulary.find([f"before_1 {text} after_2"])
    (number,) = vocabulary.find_known([text]).tolist()[:1]
    assert Kind(vocabulary.kinds()[number]) is kind


def test_names_share_their_words():
    assert sub_words("getUserName") & sub_words("user_name") == {"user", "name"}
    assert sub_words("订单编号") == {"订单编号"}


def test_plain_words_leave_names_and_numbers_out():
    assert plain_words("retry the failing upload in step_4 after 300 ms", 9) == 4
    assert plain_words("step_4 300 getUserName", 9) == 0
    assert plain_words("again again again", 9) == 1


def test_a_path_holds_its_folders_its_ends_and_the_stem_of_its_name():
    lines = ["see /srv/shop/dates_of.py, and then either/or.", "dates_of.py", "a\x00b/c_d e/", "/srv"]
    assert parts_of_paths(lines) == [
        ["/srv", "shop/dates_of.py", "/srv/shop", "dates_of.py", "dates_of", "either", "or"],
        [],
        ["b", "c_d"],
        [],
    ]
    assert parts_of_paths([]) == []


@given(st.text(st.sampled_from([*"ab_/.-", *SEPARATORS, "é", "語", "\u2003", "\ud800", "\U0001f600"])))
def test_separators_become_spaces_whatever_stands_beside_them(text):
    spaces = {ord(char): " " for char in SEPARATORS}
    assert tokens_of(text) == text.translate(spaces).split()
    assert space_out(text) == text.translate(spaces | {ord(END): END})
