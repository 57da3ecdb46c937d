"""Where a conversation is cut."""

from __future__ import annotations

import pytest

from penstock.conversation.message import (
    Image,
    Message,
    Role,
    Summary,
    Text,
    ToolResult,
    count_leading_system,
)
from penstock.conversation.speakers import is_request, last_request
from penstock.writing.transcript import Cuts

# Ten messages of 100 tokens; no cut between 3 and 6, where a call waits for its results.
CUTS = Cuts((0, 1, 2, 3, 6, 7, 8, 9, 10), tuple(range(0, 1_001, 100)))


def of(role, *parts):
    return Message(role, parts)


class TestHead:
    def test_it_has_the_wished_messages_where_they_fit(self):
        assert CUTS.head_end(3, 1_000, 0, 10) == 3

    def test_it_grows_to_the_next_legal_cut(self):
        assert CUTS.head_end(4, 1_000, 0, 10) == 6

    def test_it_stops_before_its_limit(self):
        assert CUTS.head_end(3, 250, 0, 10) == 2
        assert CUTS.head_end(4, 500, 0, 10) == 3

    def test_it_never_falls_below_the_floor_nor_over_the_ceiling(self):
        assert CUTS.head_end(3, 50, 2, 10) == 2
        assert CUTS.head_end(9, 1_000, 0, 7) == 7

    def test_no_wish_is_no_head(self):
        assert CUTS.head_end(0, 1_000, 0, 10) == 0


class TestTail:
    def test_it_reaches_back_to_its_budget(self):
        assert CUTS.tail_start(400, 600, 1, 0) == 6

    def test_it_has_at_least_three_messages(self):
        assert CUTS.tail_start(1, 1, 1, 0) == 7

    def test_it_goes_up_to_the_ceiling_for_the_wished_messages(self):
        assert CUTS.tail_start(300, 800, 20, 0) == 2
        assert CUTS.tail_start(300, 750, 20, 0) == 3

    def test_it_never_parts_a_call_from_its_results(self):
        assert CUTS.tail_start(550, 550, 1, 0) == 6

    def test_it_stops_at_the_floor(self):
        assert CUTS.tail_start(10_000, 10_000, 50, 2) == 2

    def test_a_shorter_one_starts_at_the_next_cut_until_nothing_is_left(self):
        assert CUTS.shorter_tail(3) == 6
        assert CUTS.shorter_tail(8) == 9
        assert CUTS.shorter_tail(9) is None


def test_a_segment_is_what_may_not_be_parted():
    assert CUTS.segment(4) == (3, 6)
    assert CUTS.segment(0) == (0, 1)
    assert CUTS.segment(9) == (9, 10)


def test_tokens_are_those_of_the_messages_between():
    assert CUTS.tokens(2, 5) == 300


class TestRequests:
    @pytest.mark.parametrize(
        ("message", "expected"),
        [
            (of(Role.USER, Text("please")), True),
            (of(Role.USER, Image("image/png", 1, "d")), True),
            (of(Role.USER, ToolResult("c", "x"), Text("and now?")), True),
            (of(Role.USER, ToolResult("c", "x")), False),
            (of(Role.USER, Text("  \n")), False),
            (of(Role.USER, Summary("text", 1)), False),
            (of(Role.ASSISTANT, Text("please")), False),
            (of(Role.SYSTEM, Text("please")), False),
        ],
    )
    def test_a_request_is_what_a_person_says(self, message, expected):
        assert is_request(message) is expected

    def test_the_last_one_is_found_behind_results(self):
        messages = [
            of(Role.USER, Text("a")),
            of(Role.ASSISTANT, Text("b")),
            of(Role.USER, ToolResult("c", "x")),
        ]
        assert last_request(messages) == 0
        assert last_request(messages[1:]) is None

    def test_leading_system_messages_are_counted(self):
        system, user = of(Role.SYSTEM, Text("s")), of(Role.USER, Text("u"))
        assert count_leading_system([system, system, user, system]) == 2
        assert count_leading_system([user]) == 0
        assert count_leading_system([system]) == 1
