"""What is told of a long result that nobody has answered yet."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import json_values, texts
from tests.strategies.long_sessions import long_texts

from penstock.conversation.dialects import DIALECTS
from penstock.measure.tokens import tokenizer_for
from penstock.redaction import Redactor
from penstock.writing.notebook import Notebook
from penstock.writing.telling import Teller, share_out

TOKENIZER = tokenizer_for(None)
REDACTOR = Redactor()
GAP = "…"


def tell(text, limit, *, about="", needed=(), is_file=False, told_beside=frozenset()):
    """What a teller tells for the request `about`; only values that stand in `needed` are likely needed.

    Where `about` is a list, the last of it is the request, and the others are what people said before.
    """
    book = Notebook(TOKENIZER, REDACTOR)
    said = [about] if isinstance(about, str) else about
    wires = [{"role": "user", "content": one} for one in said]
    wires.append({"role": "assistant", "content": text})
    transcript = book.open(wires, DIALECTS["chat"]).transcript
    wanted = set(transcript.index.vocabulary.find(list(needed)).ids.tolist())

    def weigh(index, _live, _after):
        return np.array([float(number in wanted) for number in range(len(index.vocabulary))], np.float32)

    teller = Teller(transcript, len(said) - 1, "", TOKENIZER, weigh)
    return teller.tell(text, limit, is_file=is_file, told_beside=told_beside)


def steps(word, count=60):
    return [f"step {n} {word} in {n * 3} ms" for n in range(count)]


def build_log(error="ld: error: undefined reference to pay_invoice"):
    around = ["starting linker stage", error, "while linking target worker"]
    return "\n".join([*steps("compiled"), *around, *steps("cleaned")])


def orders(count=40):
    return [
        {
            "id": f"A-{n}",
            "status": "open",
            "total": n * 5,
            "owner": {"name": f"name_{n}", "team": "blue"},
        }
        for n in range(count)
    ]


def test_a_text_that_fits_is_told_whole():
    text = build_log()
    assert tell(text, 10_000) == text


@pytest.mark.parametrize("text", [build_log(), "def f(x):\n    if x:\n        return 1\n    return 2"])
def test_a_text_that_takes_just_the_limit_is_told_whole(text):
    assert tell(text, TOKENIZER.count(text)) == text


def test_an_error_is_told_whole_and_with_the_lines_around_it():
    told = tell(build_log(), 100).split("\n")
    at = told.index("ld: error: undefined reference to pay_invoice")
    assert told[at - 1 : at + 2] == [
        "starting linker stage",
        "ld: error: undefined reference to pay_invoice",
        "while linking target worker",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: invoice 17 has no owner",
        "FAILED tests/test_pay.py::test_refund",
        "E       assert 3 == 4",
        "bash: psycopg: command not found",
        "thread 'main' panicked at src/main.rs:4",
        "✗ refund is booked twice",
    ],
)
def test_errors_are_known_in_the_words_of_many_programs(line):
    assert line in tell(build_log(line), 80).split("\n")


def test_a_count_of_no_errors_is_no_error():
    assert "all stages done, 0 errors" not in tell(build_log("all stages done, 0 errors"), 80)


def test_in_a_file_the_word_error_is_a_word_as_any_other():
    text = build_log("def report_error(error):")
    assert "report_error" in tell(text, 100)
    assert "report_error" not in tell(text, 100, is_file=True)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("I want to send back the headphones and the kettle.", "Headphones"),
        ("Ich möchte den Kopfhörer zurückgeben.", "Kopfhörer"),
        ("我想退掉蓝牙耳机，谢谢。", "蓝牙耳机"),
        ("أريد إرجاع سماعات", "سماعات"),
    ],
)
def test_of_data_the_row_is_told_that_alone_holds_a_word_that_a_person_used_before(said, name):
    goods = [
        {"name": f"{color} lamp", "item": f"L-{n}"} for n, color in enumerate(["red", "blue", "grey"] * 20)
    ]
    goods[40] = {"name": name, "item": "H-7"}
    told = tell(json.dumps(goods), 60, about=[said, "Yes, show me the details, please."])
    assert f"{name}, H-7" in told


def test_a_word_that_many_rows_hold_singles_none_of_them_out():
    goods = [{"name": f"lamp of kind {n}", "item": f"L-{n}"} for n in range(60)]
    told = tell(json.dumps(goods), 60, about=["I want to send back a lamp."], needed=["L-50"])
    assert "L-50" in told


def test_of_a_file_what_is_needed_is_told_rather_than_imports_and_closing_braces():
    body = [f"func StepOf{n}(order Order) error {{ return post(order, {n}) }}" for n in range(60)]
    text = "\n".join(["package shop", "import (", '\t"context"', ")", *body, "}"])
    needed = [f"StepOf{n}" for n in range(60)]
    told = {*tell(text, 60, needed=needed).split("\n")}
    told_of_file = {*tell(text, 60, needed=needed, is_file=True).split("\n")}
    assert {"package shop", "}"} <= told
    assert {"import (", "}"}.isdisjoint(told_of_file)
    assert len(told_of_file.intersection(body)) > len(told.intersection(body))


def test_of_very_many_errors_the_first_and_the_last_are_told():
    text = "\n".join(["begin", *(f"error: case {n} is broken" for n in range(500)), "end"])
    told = tell(text, 150)
    assert "error: case 0 is broken" in told
    assert "error: case 499 is broken" in told


def test_first_and_last_lines_are_told_before_the_middle():
    told = tell("\n".join([*steps("compiled"), *steps("cleaned")]), 100).split("\n")
    assert told[:2] == ["step 0 compiled in 0 ms", "step 1 compiled in 3 ms"]
    assert told[-2:] == ["step 58 cleaned in 174 ms", "step 59 cleaned in 177 ms"]


def test_what_the_request_names_is_told():
    named = "the webhook signature is read from X-Shop-Signature"
    text = "\n".join([*steps("compiled"), named, *steps("cleaned")])
    assert named in tell(text, 100, about="Why is the signature of the webhook wrong?", is_file=True)
    assert named not in tell(text, 100, about="Which colour has the button?", is_file=True)


def test_room_that_is_left_goes_to_lines_with_values_that_are_likely_needed():
    text = "\n".join([*steps("compiled"), "wrote dist/worker-4.7.tar.gz", *steps("cleaned")])
    assert "wrote dist/worker-4.7.tar.gz" in tell(text, 100, needed=["dist/worker-4.7.tar.gz"])
    assert "wrote dist/worker-4.7.tar.gz" not in tell(text, 100)


def test_nothing_is_told_where_not_one_line_fits():
    assert tell(build_log(), 5) == ""
    assert tell(build_log(), 0) == ""
    assert tell(build_log(), -10) == ""


def test_a_line_that_is_too_long_is_told_in_pieces():
    line = " ".join(f"Sentence {n} says that value_{n} is fine." for n in range(200))
    told = tell(line, 80)
    assert "Sentence 0 says that value_0 is fine." in told
    assert all(piece == GAP or piece in line for piece in told.split("\n"))


def test_indentation_that_all_lines_share_is_left_out_and_the_rest_stays():
    assert tell("    def f():\n        return 1\n", 100) == "def f():\n    return 1"


def test_the_middle_of_a_huge_text_is_not_looked_at():
    text = "\n".join(["begin", *steps("compiled", 9_000), "end"])
    assert tell(text, 60).split("\n")[-1] == "end"


# JSON.


def test_rows_that_are_alike_become_a_table_with_what_they_share_said_once():
    told = tell(json.dumps(orders(4)), 1_000)
    assert told.split("\n") == [
        "rows (id, total, owner name); in all: status open, owner team blue:",
        "A-0, 0, name_0",
        "A-1, 5, name_1",
        "A-2, 10, name_2",
        "A-3, 15, name_3",
    ]


def test_a_table_is_named_by_its_key_and_stands_after_what_is_beside_it():
    told = tell(json.dumps({"page": 3, "orders": orders(3), "meta": {"next": None}}), 1_000).split("\n")
    assert told[0] == "page 3, meta next null"
    assert told[1].startswith("orders (id, total, owner name); in all:")


def test_an_object_of_objects_is_a_table_with_a_column_for_its_keys():
    cities = {f"city_{n}": {"people": n * 1_000, "rank": n} for n in range(3)}
    assert tell(json.dumps(cities), 1_000).split("\n") == [
        "rows (key, people, rank):",
        "city_0, 0, 0",
        "city_1, 1000, 1",
        "city_2, 2000, 2",
    ]


def test_keys_that_stand_in_the_rows_already_are_no_column():
    by_id = {row["id"]: row for row in orders(3)}
    assert tell(json.dumps(by_id), 1_000) == tell(json.dumps(orders(3)), 1_000)


def test_a_cell_that_a_row_lacks_is_a_dash():
    rows = [{"id": 1, "note": "late"}, {"id": 2}, {"id": 3, "note": "paid"}]
    assert tell(json.dumps(rows), 1_000).split("\n") == ["rows (id, note):", "1, late", "2, -", "3, paid"]


def test_objects_in_rows_that_hold_different_things_are_one_cell_each():
    options = [{"scent": "woody", "size": "30ml"}, {"length": "25ft", "layers": 3}, {"scent": "sweet"}]
    text = json.dumps([{"name": f"thing {n}", "options": one} for n, one in enumerate(options)])
    assert tell(text, 1_000).split("\n") == [
        "rows (name, options):",
        "thing 0, woody 30ml",
        "thing 1, 25ft layers 3",
        "thing 2, sweet",
    ]


def test_the_last_rows_of_data_give_way_to_those_that_are_likely_needed():
    told = tell(json.dumps(orders()), 70, needed=["A-17"])
    assert "A-17, " in told
    assert "A-39, " not in told


def test_fractions_keep_their_digits():
    assert tell('{"total": 3.50, "rate": 0.10}', 100) == "total 3.50, rate 0.10"


def test_larger_objects_within_objects_stand_on_lines_of_their_own_under_their_names():
    address = {
        "city": "Turin",
        "street": "Via Giuseppe Garibaldi 14",
        "zip": "10121",
        "doorbell": "Rossi, second one",
    }
    data = {"user": {"name": "Ada", "address": address}, "ok": True}
    assert tell(json.dumps(data), 100).split("\n") == [
        "ok true",
        "user: name Ada",
        "address: city Turin, street Via Giuseppe Garibaldi 14, zip 10121, doorbell Rossi, second one",
    ]


@pytest.mark.parametrize("limit", range(0, 200, 7))
def test_a_row_never_stands_without_its_head(limit):
    told = tell(json.dumps({"page": 3, "orders": orders()}), limit).split("\n")
    rows = [line for line in told if line.startswith("A-")]
    heads = [line for line in told if line.startswith("orders (id, total, owner name)")]
    assert not rows or len(heads) == 1
    if rows:
        assert told.index(heads[0]) < told.index(rows[0])


@pytest.mark.parametrize("limit", range(20, 60, 5))
def test_the_head_of_a_table_never_stands_without_a_row(limit):
    lamps = [{"id": f"A-{n}", "watts": n * 5, "colour": f"colour {n}"} for n in range(12)]
    order = {"order": "W7", "state": "open", "lamps": lamps}
    lines = tell(json.dumps(order), limit).split("\n")
    heads = [place for place, line in enumerate(lines) if line.startswith("lamps (")]
    assert all("A-" in "".join(lines[place + 1 :]) for place in heads)


def test_of_a_long_table_the_row_that_the_request_names_is_told_with_the_head():
    rows = [{**row, "note": "plain"} for row in orders()]
    rows[23]["note"] = "refund pending since the webhook broke"
    told = tell(json.dumps(rows), 120, about="Is there a refund that the webhook left pending?")
    assert told.startswith("rows (id, total, owner name, note)")
    assert "A-23, 115, name_23, refund pending since the webhook broke" in told


def test_what_another_result_tells_is_not_told_again():
    box = {"street": "12 Elm Avenue, behind the old mill", "town": "Northfield", "lamps": orders(12)}
    first = tell(json.dumps(box), 60)
    assert "12 Elm Avenue" in first
    beside = set(first.split("\n"))
    assert "12 Elm Avenue" not in tell(json.dumps(box), 60, told_beside=beside)


def test_what_a_client_writes_above_an_output_gives_way_to_the_output():
    above = [
        "Command: make lamps",
        "Chunk ID: 7f3a9c",
        "Wall time: 2.1000 seconds",
        "Process exited with code 0",
    ]
    text = "\n".join([*above, "Original token count: 900", "Output:", *steps("wired")])
    told = tell(text, 60)
    assert told.startswith("step 0 wired")
    assert not any(line in told for line in (*above, "Output:"))
    assert tell("\n".join([*above, "Output:", "wired"]), 60).startswith("Command: make lamps")


def test_that_a_process_still_runs_is_told():
    above = [
        "Chunk ID: 7f3a9c",
        "Process running with session ID 4711",
        "Original token count: 900",
        "Output:",
    ]
    assert tell("\n".join([*above, *steps("wired")]), 60).startswith(
        "Process running with session ID 4711\nstep 0"
    )


def test_a_text_that_only_mentions_an_output_is_told_from_its_first_line():
    text = "\n".join(["Notes on the lamp", "it is red", "Output:", *steps("wired")])
    assert tell(text, 60).startswith("Notes on the lamp")


def test_what_only_looks_like_json_is_told_as_it_is():
    text = "[worker] started\n[worker] stopped"
    assert tell(text, 100) == text


def test_json_that_is_nested_too_deeply_is_told_all_the_same():
    assert "deep" in tell("[" * 60 + '"deep"' + "]" * 60, 100)
    assert tell("[" * 100_000, 100) is not None


# Whatever the text.

LIMITS = st.integers(0, 300)


@st.composite
def results(draw):
    """Results of tools: logs, listings, prose, JSON of any shape, and tables."""
    row = st.dictionaries(texts(min_size=1, max_size=6), json_values(), max_size=4)
    kind = draw(st.sampled_from(["long", "any", "json", "rows"]))
    if kind == "long":
        return draw(long_texts())
    if kind == "any":
        return "\n".join(draw(st.lists(texts(max_size=200), max_size=20)))
    data = json_values() if kind == "json" else st.lists(row, min_size=3, max_size=30)
    return json.dumps(draw(data), ensure_ascii=draw(st.booleans()))


@settings(max_examples=300)
@given(text=results(), limit=LIMITS, about=texts(), is_file=st.booleans())
def test_never_more_is_told_than_the_limit_allows(text, limit, about, is_file):
    told = tell(text, limit, about=about, needed=[text], is_file=is_file)
    assert TOKENIZER.count(told) <= limit


@pytest.mark.outside  # takes long
@settings(max_examples=200)
@given(text=results(), limit=LIMITS, about=texts())
def test_the_same_is_told_every_time(text, limit, about):
    assert tell(text, limit, about=about, needed=[text]) == tell(text, limit, about=about, needed=[text])


LINES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x1b"), max_size=400).filter(
        lambda line: not line.lstrip().startswith(("{", "["))
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(lines=LINES, limit=LIMITS)
def test_every_line_of_a_plain_text_stands_in_the_original(lines, limit):
    text = "\n".join(lines)
    told = tell(text, limit, needed=lines)
    assert all(line == GAP or any(line in one for one in lines) for line in told.split("\n") if line)


@settings(max_examples=200)
@given(
    count=st.integers(1, 60),
    errors=st.sets(st.integers(0, 59), max_size=5),
    limit=st.integers(10, 200),
    is_file=st.booleans(),
)
def test_a_gap_is_marked_where_lines_are_missing_and_nowhere_else(count, errors, limit, is_file):
    lines = [f"line {n} {'error' if n in errors else 'fine'}" for n in range(count)]
    told = tell("\n".join(lines), limit, is_file=is_file)
    if not told:
        return
    standing = [lines.index(line) for line in told.split("\n") if line != GAP]
    assert standing == sorted(set(standing))
    marked = [] if standing[0] == 0 else [GAP]
    marked.append(lines[standing[0]])
    for before, place in pairwise(standing):
        marked += [lines[place]] if place == before + 1 else [GAP, lines[place]]
    if standing[-1] != count - 1:
        marked.append(GAP)
    assert told.split("\n") == marked


# Sharing.


def test_small_ones_get_all_they_want_and_large_ones_the_rest_in_equal_parts():
    assert share_out([10, 500, 700], 210) == [10, 100, 100]
    assert share_out([500, 10, 60], 170) == [100, 10, 60]
    assert share_out([5, 5], 100) == [5, 5]
    assert share_out([], 100) == []


@given(sizes=st.lists(st.integers(0, 1_000), max_size=12), allowed=st.integers(0, 5_000))
def test_shares_stay_within_what_is_allowed_and_nothing_is_left_while_one_wants_more(sizes, allowed):
    shares = share_out(sizes, allowed)
    assert all(0 <= share <= size for share, size in zip(shares, sizes, strict=True))
    assert sum(shares) == min(allowed, sum(sizes))


@given(sizes=st.lists(st.integers(0, 1_000), max_size=12), allowed=st.integers(0, 5_000))
def test_no_share_that_is_cut_is_smaller_than_another_by_more_than_one_token(sizes, allowed):
    shares = share_out(sizes, allowed)
    cut = [share for share, size in zip(shares, sizes, strict=True) if share < size]
    assert not cut or max(shares) - min(cut) <= 1
