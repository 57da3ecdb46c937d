"""Texts in pieces that can be quoted."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.writing.excerpts import excerpts, lay_out


def test_a_long_sentence_that_was_said_stays_whole():
    link = "[internal/a.go](/srv/git/internal/a.go:128)"
    said = f"It fails in {link}, {link} and {link}, then {link} and {link}, so that {link} is read twice."
    assert 260 < len(said) < 400
    assert excerpts(said, spoken=True) == [said]
    assert len(excerpts(said)) > 1


def test_the_printed_number_of_an_empty_line_says_nothing():
    assert excerpts("1377:def serialize(self, value):\n1378:\n1379:    return value") == [
        "1377:def serialize(self, value):",
        "1379:    return value",
    ]


class TestLayOut:
    def test_json_becomes_lines_of_key_and_value(self):
        data = {
            "order_id": "#W1",
            "total": 3.5,
            "paid": True,
            "note": None,
            "address": {"city": "Oslo", "zip": "0150"},
        }
        assert lay_out(json.dumps(data)).text == (
            "order_id #W1, total 3.5, paid true, address city Oslo, zip 0150"
        )

    def test_objects_in_a_list_have_a_line_each(self):
        data = {"items": [{"sku": f"SKU-{n}", "name": "a lamp"} for n in range(3)], "page": 1}
        assert lay_out(json.dumps(data)).text.split("\n") == [
            "page 1",
            "items: sku SKU-0, name a lamp",
            "items: sku SKU-1, name a lamp",
            "items: sku SKU-2, name a lamp",
        ]

    def test_numbers_stay_as_they_are_written(self):
        assert "3.50" in lay_out('{"price": 3.50, "currency": "EUR", "quantity": 12345678901234567890}').text
        assert "12345678901234567890" in lay_out('{"a": 12345678901234567890, "b": "some more words"}').text

    def test_keys_are_told_apart_from_values(self):
        laid = lay_out(json.dumps({"order_id": "#W1", "customer name": "Ada", "88213": "x"}))
        assert laid.keys == {"order_id", "customer name"}

    def test_every_scalar_of_the_json_is_still_there(self):
        data = {"a": [{"b": ["x1", "y2", {"c": "deep_3"}]}, "z4"], "d": {"e": {"f": {"g": "far_5"}}}}
        text = lay_out(json.dumps(data)).text
        assert all(value in text for value in ("x1", "y2", "deep_3", "z4", "far_5"))

    def test_json_that_is_nested_too_deeply_is_still_text(self):
        deep = "[" * 3_000 + "1" + "]" * 3_000
        assert "1" in lay_out(deep).text
        assert lay_out("[" * 60 + '"leaf_1"' + "]" * 60).text.count("leaf_1") == 1

    @pytest.mark.parametrize("text", ["{not json", "[1, 2", "{}", "plain text", ""])
    def test_what_is_no_json_stays_as_it_is(self, text):
        assert lay_out(text).text in {text, ""}

    @pytest.mark.parametrize("mark", ["→", "\t", "|"])
    def test_printed_line_numbers_are_left_out(self, mark):
        text = "\n".join(f"{n:>6}{mark}def step_{n}(): pass" for n in range(1, 4))
        assert lay_out(text).text == "def step_1(): pass\ndef step_2(): pass\ndef step_3(): pass"

    @settings(max_examples=500)
    @given(st.text(st.sampled_from("\n\n \t|5→a\x85\x1c"), max_size=16))
    def test_line_numbers_are_told_as_by_a_look_at_each_character(self, text):
        number = r"(?:(?:\A|(?<=\S\n))\s*+|^[^\S\n]*+)\d{1,6}(?:→|\t|\|)\s?"
        assert lay_out(text).text == re.sub(number, "", text, flags=re.MULTILINE)

    def test_a_text_without_line_numbers_stays_the_same_object(self):
        text = "a table 5|6 inside a line"
        assert lay_out(text).text is text

    def test_numbers_that_are_content_stay(self):
        assert lay_out("4711 is the port\n4712 | is not").text.startswith("4711 is the port")


class TestExcerpts:
    def test_short_lines_share_a_piece_and_long_enough_ones_stand_alone(self):
        assert excerpts("a = 1\nb = 2\nc = 3\nd = 4\ne = 5") == ["a = 1\nb = 2\nc = 3\nd = 4", "e = 5"]

    def test_lines_without_a_word_are_left_out(self):
        assert excerpts("}\n---\n\n   \nvalue_1 is here, and that is all\n===") == [
            "value_1 is here, and that is all"
        ]

    def test_a_long_line_is_cut_between_its_sentences(self):
        line = (
            "The first sentence says that the port is 5433 and nothing else of interest. The second one is about "
            "`pool_size` (it is 20). The third is short. The fourth ends it all, at last, late."
        )
        pieces = excerpts(line)
        assert len(pieces) > 1
        assert all(piece.endswith(".") for piece in pieces)
        assert " ".join(pieces) == line

    def test_the_number_of_a_point_is_no_sentence(self):
        point = "Reservation IFOYYZ is a basic economy ticket, made more than a day ago without insurance"
        pieces = excerpts(f"12. {point}. It cannot be cancelled for a refund, as the rules say, at any time.")
        assert pieces[0] == f"12. {point}."

    def test_a_sentence_stays_whole_up_to_what_can_be_quoted(self):
        line = "The first part of this sentence is here, and the second part of it follows there, while the third one ends it all at last, late."
        assert excerpts(line) == [line]

    def test_a_sentence_that_is_too_long_is_cut_at_the_ends_of_clauses(self):
        line = "one clause of it names value_%d and goes on, " * 8 % tuple(range(8)) + "and here it ends."
        pieces = excerpts(line)
        assert len(pieces) > 1
        assert all(piece.endswith(",") for piece in pieces[:-1])
        assert " ".join(pieces) == line

    def test_a_list_is_cut_between_its_items(self):
        line = ", ".join(f"item_{n} value number {n}" for n in range(12))
        pieces = excerpts(line, items=True)
        assert len(pieces) > 2
        assert " ".join(pieces) == line
        assert all(piece.rstrip(",").split(", ")[-1].startswith("item_") for piece in pieces)

    def test_colour_codes_and_earlier_states_of_a_progress_bar_are_left_out(self):
        text = "\x1b[31mFAILED\x1b[0m test_ports.py\n 10 %\r 50 %\rfetched 17 packages in 3 s"
        assert lay_out(text).text == "FAILED test_ports.py\nfetched 17 packages in 3 s"

    def test_a_chinese_text_is_cut_at_its_own_marks(self):
        text = "客户要求尽快发货，订单编号是88213。" * 12
        pieces = excerpts(text)
        assert "".join(pieces) == text
        assert all(piece[-1] in "，。" for piece in pieces)

    def test_a_line_without_a_space_is_cut_anywhere_and_loses_nothing(self):
        line = "x" * 1_000 + "end_1"
        assert "".join(excerpts(line)) == line

    @given(st.text(max_size=600), st.integers(1, 4))
    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    def test_every_line_of_every_piece_stands_in_the_text(self, text, times):
        text = "\n".join([text] * times)
        for piece in excerpts(text):
            assert all(line in text for line in piece.split("\n"))
            assert any(character.isalnum() or character == "_" for character in piece)

    @given(st.text("ab c.,\n é中", max_size=600))
    @settings(max_examples=100, deadline=None, derandomize=True, database=None)
    def test_no_word_is_lost(self, text):
        kept = "".join("".join(piece.split()) for piece in excerpts(text))
        lines = [line for line in text.split("\n") if any(c.isalnum() for c in line)]
        letters = [c for line in lines for c in line if c.isalnum()]
        assert [c for c in kept if c.isalnum()] == letters
