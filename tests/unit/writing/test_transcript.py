"""The numbers of messages, and how a mark carries them over a compaction."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.conversation.dialects import DIALECTS
from penstock.conversation.handles import AFTER, number_messages, numbers_after
from penstock.conversation.message import Message, Role, Summary, Text
from penstock.writing.reading import Index
from penstock.writing.transcript import Transcript
from penstock.writing.vocabulary import Vocabulary


def said(text="words"):
    return Message(Role.USER, (Text(text),))


def handoff(after, *more):
    return Message(Role.USER, (Summary("text", 1, {AFTER: after}), *more))


class TestNumbers:
    def test_without_a_handoff_they_count_from_one(self):
        assert number_messages([said()] * 3) == (1, 2, 3)
        assert number_messages([]) == ()

    def test_a_handoff_says_what_follows_and_has_none_itself(self):
        messages = [said(), handoff("7 12+"), said(), said(), said()]
        assert number_messages(messages) == (1, 0, 7, 12, 13)

    def test_a_handoff_inside_a_message_leaves_the_message_its_number(self):
        assert number_messages([handoff("5 9+", Text("the request")), said()]) == (5, 9)

    @pytest.mark.parametrize("after", ["", "x", "3-", "+", "-4", "1 two 3"])
    def test_an_attribute_that_is_not_ours_is_no_help(self, after):
        assert number_messages([said(), handoff(after), said()]) == (1, 0, 2)

    def test_an_absurd_run_does_no_harm(self):
        messages = [handoff("1-999999999"), *[said()] * 3]
        assert number_messages(messages) == (0, 1, 2, 3)


class TestAttribute:
    @pytest.mark.parametrize(
        ("numbers", "newest", "attribute"),
        [
            ([57, 58, 59], 59, "57+"),
            ([1, 57, 58], 58, "1 57+"),
            ([4, 5, 6, 20], 30, "4-6 20 31+"),
            ([3], 3, "3+"),
            ([], 12, "13+"),
        ],
    )
    def test_it_is_short(self, numbers, newest, attribute):
        assert numbers_after(numbers, newest) == attribute

    @given(st.sets(st.integers(1, 60)), st.integers(0, 20), st.integers(0, 4))
    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    def test_the_numbers_come_back_and_new_messages_count_on(self, kept, gone_after, new):
        newest = max(kept, default=1) + gone_after
        numbers = sorted(kept)
        messages = [handoff(numbers_after(numbers, newest)), *[said()] * (len(numbers) + new)]
        assert number_messages(messages) == (0, *numbers, *range(newest + 1, newest + 1 + new))


@pytest.mark.parametrize("numbers", [(), (1, 2, 3, 4), (1, 0, 7, 0, 12), (2, 3), (3, 1, 1)])
def test_messages_are_found_by_their_numbers(numbers):
    transcript = Transcript(
        DIALECTS["chat"], [said()] * len(numbers), (), (), numbers, (), Index(Vocabulary()), (), ()
    )
    for wanted in ({0}, {1, 3}, {0, 7, 99}, {4, -1}, set()):
        standing = [place for place, number in enumerate(numbers) if number in wanted]
        assert transcript.list_places(wanted) == standing
        assert transcript.find_places(wanted) == {numbers[place]: place for place in standing}
