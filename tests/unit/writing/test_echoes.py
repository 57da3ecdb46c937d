"""What people said that a text holds word for word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.conversation.message import Message, Role, Text
from penstock.redaction.redactor import Redactor
from penstock.writing.echoes import SHORTEST_TOLD, find_said_in
from penstock.writing.reading import Index, Reader, Speaker

_WORDS = st.sampled_from(
    [
        "Please",
        "deploy",
        "the",
        "ledger",
        "to",
        "Bergen-4",
        "again,",
        "über",
        "𝔘nd",
        "\ud800",
        "now.\n",
        "a\tb",
    ]
)
_SAID = st.lists(_WORDS, min_size=1, max_size=12).map(" ".join)
_MESSAGES = st.lists(st.tuples(st.sampled_from([Role.USER, Role.ASSISTANT]), _SAID), max_size=8)


def find_by_comparing(text, index):
    said = [" ".join(index.excerpt(number).split()) for number in range(len(index.source_of))]
    by_people = [index.speakers[source] == Speaker.USER for source in index.source_of]
    return [
        number
        for number, (one, is_ours) in enumerate(zip(said, by_people, strict=True))
        if is_ours and len(one) >= SHORTEST_TOLD and one in text
    ]


@given(_MESSAGES, _MESSAGES, _SAID)
def test_what_people_said_is_found_as_by_comparing_everything_also_after_more_was_said(first, second, other):
    reader = Reader(Redactor())
    index = Index(reader.vocabulary)
    for some in (first, second):
        index.extend(reader.read([Message(role, (Text(text),)) for role, text in some]))
        texts = [" ".join(text.split()) for _, text in some]
        for text in ("\n".join([*texts[:3], " ".join(other.split())]), " ".join(texts)[5:], ""):
            assert find_said_in(text, index) == find_by_comparing(text, index)


def test_a_request_is_found_in_a_text_that_repeats_it_with_other_white_space():
    reader = Reader(Redactor())
    index = Index(reader.vocabulary)
    messages = [("Deploy the  ledger\tto Bergen-4", Role.USER), ("Deploy it", Role.USER)]
    index.extend(reader.read([Message(role, (Text(text),)) for text, role in messages]))
    assert find_said_in("- m3 Deploy the ledger to Bergen-4 tonight. Deploy it", index) == [0]
