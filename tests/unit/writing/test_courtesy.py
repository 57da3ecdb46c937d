"""Sentences that only keep a conversation polite."""

from __future__ import annotations

import pytest

from penstock.writing.courtesy import is_courtesy, is_praise


@pytest.mark.parametrize(
    "text",
    [
        "Thank you for providing your information.",
        "Hi! How can I help you today?",
        "I can help you with that.",
        "Please hold on for a moment.",
        "You're welcome! Have a great day.",
        "Thanks for waiting.\nIs there anything else I can help you with?",
    ],
)
def test_a_courtesy_says_nothing(text):
    assert is_courtesy(text)


@pytest.mark.parametrize(
    "text",
    [
        "Thank you, Mei.",
        "Please hold the order until Monday.",
        "I can help you with the refund of the lamp.",
        "W9911714",
        "It is there.",
        "Ja, bitte.",
        "谢谢你的耐心等待。",
        "",
    ],
)
def test_anything_that_names_something_is_none(text):
    assert not is_courtesy(text)


@pytest.mark.parametrize("text", ["Good.", "Great!", "Well done.", "Very good work!"])
def test_praise_says_nothing_more(text):
    assert is_praise(text)


@pytest.mark.parametrize(
    "text", ["No.", "Yes.", "OK.", "It is done.", "Good, but slow.", "Work on it.", "Done.", ""]
)
def test_what_says_more_is_no_praise(text):
    assert not is_praise(text)
