"""Searching a session: what is found, in which order, and what an excerpt may hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.generate import coding_session, service_session
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Message, Role, Text, ToolCall, ToolResult
from penstock.recall import Hit, MemoryIndex, Statistics, Wish, draw_excerpt, read_query
from penstock.recall.fragments import Origin, cut_fragments
from penstock.recall.query import find_values
from penstock.recall.ranking import weigh_cues
from penstock.writing.reading import Speaker

ROOT = Path(__file__).parents[3]
FILLER = "The tests of this part pass and nothing else was changed in the meantime."


def user(text):
    return Message(Role.USER, (Text(text),))


def assistant(text, *calls):
    return Message(Role.ASSISTANT, (Text(text), *calls))


def result(call_id, text):
    return Message(Role.TOOL, (ToolResult(call_id, text),))


def index_of(*messages):
    index = MemoryIndex()
    index.add_all(messages)
    return index


def decoded(messages):
    return [dialect_named("chat").decode(message) for message in messages]


@pytest.fixture(scope="module")
def coding():
    return index_of(*decoded(coding_session(30_000, seed=3)))


def test_a_value_is_found_by_the_words_beside_it():
    index = index_of(
        *[user(f"{FILLER} Part {n}.") for n in range(30)],
        user("The invoice of the harbour office has the number R-2291-K."),
        *[user(f"{FILLER} Part {n}.") for n in range(30, 60)],
    )
    (first, *_) = index.search("which invoice number did the harbour office have?")
    assert "R-2291-K" in first.excerpt
    assert first.messages[0] <= 31 <= first.messages[-1]


def test_a_result_is_found_by_the_arguments_of_its_call():
    turns = []
    for number in range(40):
        path = "conf/limits.toml" if number == 17 else f"src/part{number}.py"
        turns += [
            assistant("Reading.", ToolCall(f"c{number}", "read_file", f'{{"path": "{path}"}}')),
            result(f"c{number}", "burst = 4711" if number == 17 else f"x = {number}"),
        ]
    (first, *_) = index_of(*turns).search("read conf/limits.toml")
    assert "burst = 4711" in first.excerpt


@pytest.mark.parametrize("asked", ["parseInvoiceLine", "parseinvoiceline", "invoice", "Invoices", "line"])
def test_a_name_is_found_whole_and_by_part(asked):
    index = index_of(*[user(FILLER)] * 20, user("Broken: parseInvoiceLine raises."), *[user(FILLER)] * 20)
    assert "parseInvoiceLine" in index.search(asked)[0].excerpt


def test_text_without_spaces_is_found_by_a_piece_of_it():
    index = index_of(*[user("今日は天気がいい")] * 5, user("請求書の番号は8812です"), *[user("明日は雨")] * 5)
    assert "8812" in index.search("請求書")[0].excerpt
    assert "8812" in index.search("書")[0].excerpt


def test_the_same_lines_are_not_shown_twice():
    log = "connection to db-7.internal refused after 30 s"
    index = index_of(*[user(log)] * 25, user("connection pool of db-9.internal is exhausted"))
    hits = index.search("connection refused", Wish(hits=3))
    assert "db-7.internal" in hits[0].excerpt
    assert "db-9.internal" in "".join(hit.excerpt for hit in hits[:2])


def test_what_stands_in_the_view_is_not_the_first_hit():
    seen = "The build id of release candidate one is rc1-a77f."
    index = index_of(user(seen), *[user(FILLER)] * 30, user("The build id of the candidate two is rc2-b88e."))
    known = find_values([seen])
    assert "rc2-b88e" in index.search("build id of the candidate", Wish(known=known))[0].excerpt


@pytest.mark.parametrize(
    "asked", ["", "   ", "the", "zyxwvut", "?", "\x00", "\ud800", "'; --", '"', "* OR NEAR("]
)
def test_odd_queries_find_nothing_and_do_no_harm(coding, asked):
    assert coding.search(asked) == []


def test_an_empty_index_finds_nothing():
    assert MemoryIndex().search("anything") == []
    assert index_of(user("---")).search("anything") == []


def test_every_hit_has_to_do_with_the_query():
    index = index_of(*[user(FILLER)] * 30, user("Only here: quicksilver."), *[user(FILLER)] * 30)
    hits = index.search("quicksilver")
    assert [("quicksilver" in hit.excerpt) for hit in hits] == [True]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2_000), st.integers(1, 1_500), st.integers(1, 12))
def test_hits_are_bounded_in_number_and_length_and_repeat_no_place(coding, start, characters, hits):
    text = str(coding._passages[start % len(coding)].text)[:200]
    found = coding.search(text, Wish(hits=hits, characters=characters))
    assert len(found) <= hits
    assert all(0 < len(hit.excerpt) <= characters for hit in found)
    assert all(list(hit.messages[1:]) == sorted(set(hit.messages) - {hit.messages[0]}) for hit in found)
    assert len({hit.excerpt for hit in found}) == len(found)


def test_scores_are_shares_of_one_whole(coding):
    hits = coding.search("the failing test and the module it covers")
    assert len(hits) == 10
    assert all(isinstance(hit, Hit) and hit.score > 0.0 for hit in hits)
    assert sum(hit.score for hit in hits) <= 1.0


@pytest.mark.outside
def test_passages_of_a_session_find_themselves():
    index = index_of(*decoded(service_session(6_000, seed=5)))
    missed = [
        passage.text
        for passage in index._passages
        if not shows_lines(index.search(passage.text), passage.text[:60])
    ]
    assert len(missed) <= 0.02 * len(index)


def shows_lines(hits, text):
    """Whether each line of the text stands in an excerpt."""
    return all(any(line in hit.excerpt for hit in hits) for line in text.split("\n"))


def talk_of_two_gauges():
    """Two values of one subject, twelve messages apart, among messages about something else."""
    said = [user(f"{FILLER} Part {n}.") for n in range(60)]
    said[20] = user("The pressure gauge of boiler seven reads G-4471-X in the morning.")
    said[32] = user("The pressure gauge of boiler seven reads G-9038-Q in the evening.")
    return index_of(*said)


def test_the_first_excerpt_takes_what_fits_from_turns_around_its_own():
    (first, *_) = talk_of_two_gauges().search("what does the pressure gauge of boiler seven read?")
    assert "G-4471-X" in first.excerpt
    assert "G-9038-Q" in first.excerpt
    assert {21, 33} <= set(first.messages)
    assert first.turn == first.messages[0]


def test_for_a_few_words_each_excerpt_is_one_place():
    hits = talk_of_two_gauges().search("G-4471-X boiler")
    assert all(max(hit.messages) - min(hit.messages) <= 6 for hit in hits)


@pytest.mark.outside
def test_results_do_not_depend_on_the_order_of_sets():
    program = (
        "from benchmarks.generate import coding_session\n"
        "from penstock.conversation.dialects import dialect_named\n"
        "from penstock.recall import MemoryIndex\n"
        "index = MemoryIndex()\n"
        "index.add_all([dialect_named('chat').decode(m) for m in coding_session(10_000, seed=2)])\n"
        "print(index.search('which test fails and in which module'))\n"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1
    assert b"Hit(" in answers.pop()


@given(st.integers(0, 79), st.integers(60, 900))
def test_an_excerpt_of_a_text_holds_the_rarest_word_asked_for(at, characters):
    lines = [f"{FILLER} Line {number}." for number in range(80)]
    lines[at] = "The marker is quicksilver-77 here."
    excerpt = draw_excerpt("\n".join(lines), read_query("tests and quicksilver"), characters)
    assert len(excerpt) <= characters
    assert "quicksilver-77" in excerpt


@given(st.text(max_size=2_000), st.text(max_size=60), st.integers(0, 500))
def test_an_excerpt_of_any_text_is_bounded(text, asked, characters):
    assert len(draw_excerpt(text, read_query(asked), characters)) <= characters


def test_an_excerpt_marks_what_was_left_out_and_is_the_beginning_where_nothing_fits():
    text = "\n".join(["alpha stands here", *[FILLER] * 40, "omega stands here", *[FILLER] * 40])
    assert "\n…\n" in draw_excerpt(text, read_query("alpha omega"), 500)
    assert draw_excerpt(text, read_query("unheard"), 300).startswith("alpha stands here")
    assert draw_excerpt("short", read_query("x"), 300) == "short"


def test_words_in_the_order_of_the_query_speak_for_what_follows_them():
    query = read_query("deploy the harbour office with key")
    statistics = Statistics(100, dict.fromkeys(query.weights, 10))

    def cue(text):
        table = cut_fragments([(Origin(0, 1, 1, 0, Speaker.USER), text)])
        return weigh_cues(query, statistics, table)[-1]

    assert cue("the harbour office with key K-17") > cue("the office harbour with key K-17")
    assert cue("the office harbour with key K-17") > cue("nothing of it before K-17")
    assert cue("K-17") == 0.0


def test_a_quoted_phrase_is_a_value():
    told = 'It stops with "no free port was left" when the pool is empty.'
    index = index_of(*[user(f"{FILLER} It stops, part {n}.") for n in range(30)], user(told))
    assert "no free port was left" in find_values([told])
    assert "no free port was left" in index.search("with what does it stop when the pool is empty")[0].excerpt
