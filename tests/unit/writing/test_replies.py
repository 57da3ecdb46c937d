"""Short replies: the offer that one agrees to, and sentences that are only polite."""

from __future__ import annotations

import pytest

from penstock.writing.replies import find_offer, is_courtesy, is_praise

OPTIONS = (
    "I can do one of these:\n1. wait until Monday\n2) **sell** the lamps\n3. stop\n\nWhich one shall it be?"
)


@pytest.mark.parametrize(
    ("answer", "said", "offer"),
    [
        (
            "yes",
            "The lamps are here. Shall I move the lamps to shelf 7?",
            "Shall I move the lamps to shelf 7?",
        ),
        (
            "no, put it back",
            "<ask_followup_question>\nThe page size is 14 now. Should I update the test?\n</ask_followup_question>",
            "Should I update the test?",
        ),
        (
            "that was the idea, yes",
            "Currently there is one. Would you like a dot for each of the two sessions that share the checkpoint?",
            "Would you like a dot for each of the two sessions that share the checkpoint?",
        ),
        ("das war die Idee, ja", "Soll ich die Lampen umräumen?", "Soll ich die Lampen umräumen?"),
        ("Yeah, do that.", "Shelf 7 is free. Shall I use it?", "Shelf 7 is free. Shall I use it?"),
        (
            "Yes, that's the lamp.",
            "Order W1 holds a lamp. To confirm, is this the lamp that you want to send back because it flickers at night?",
            "Order W1 holds a lamp. To confirm, is this the lamp that you want to send back because it flickers at night?",
        ),
        ("ok, do 2", OPTIONS, "**sell** the lamps — Which one shall it be?"),
        (
            "2",
            "**Option 1: Return errors**\nSkip them.\n**Option 2: Typed structs**\nValidate once.\n\nWhich one?",
            "Typed structs — Which one?",
        ),
        ("let's try 2", OPTIONS, "**sell** the lamps — Which one shall it be?"),
        ("take the second", OPTIONS, "**sell** the lamps — Which one shall it be?"),
        ("yes", OPTIONS, "Which one shall it be?"),
        (
            "yes",
            "It would read:\n```\nlamp: blue\n```\nShall I write it down?",
            "It would read: Shall I write it down?",
        ),
        ("the third, please", OPTIONS, "stop — Which one shall it be?"),
        ("2", OPTIONS, "**sell** the lamps — Which one shall it be?"),
        (
            "go ahead",
            "All is ready. Let me know if you want the lamps moved.",
            "Let me know if you want the lamps moved.",
        ),
        ("fix it up", "The lamp flickers. Want me to mend the lamp?", "Want me to mend the lamp?"),
        ("please do that now", "Want me to mend the lamp?", "Want me to mend the lamp?"),
        ("no", "Do you want a receipt by post?", "Do you want a receipt by post?"),
        ("ja, gerne", "Soll ich die Lampen umräumen?", "Soll ich die Lampen umräumen?"),
        ("好的", "要不要我把灯搬到七号架？", "要不要我把灯搬到七号架？"),
    ],
)
def test_it_is_the_last_question_or_the_option_that_was_picked(answer, said, offer):
    assert find_offer(answer, said) == offer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("Find the order of last week that holds a blue lamp.", "Shall I move the lamps?"),
        ("yes", "The lamps are on shelf 7."),
        ("Put it on shelf 7 with the blue lamps and then call the customer.", "Want me to mend the lamp?"),
        ("yes", ""),
        ("Notes on the parser, please.", "Which file do you mean?"),
    ],
)
def test_an_answer_that_speaks_for_itself_has_none(answer, said):
    assert find_offer(answer, said) == ""


def test_it_is_short():
    said = "It is " + "very " * 80 + "late. " + "Shall I do it " + "or not " * 20 + "?"
    assert len(find_offer("yes", said)) <= 320


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
