"""What was said is found again: by whole names, by parts of them, in other scripts, within bounds."""

from __future__ import annotations

import pytest

from penstock.conversation.message import Message, Role, Text
from penstock.recall import MemoryIndex

SAID = [
    "The retry lives in worker/retry_policy.py and the class is RetryPolicy.",
    "Order 88213-B was refunded to the card that ends in 4471.",
    "订单编号是 A-77 ，客户要求退款。",
    "The nightly job writes to /var/data/export_2024.csv at two in the morning.",
    *(f"Nothing of note happened in week {n}; everyone was busy with other work." for n in range(200)),
]


@pytest.fixture(scope="module")
def index():
    made = MemoryIndex()
    made.add_all([Message(Role.USER, (Text(text),)) for text in SAID])
    return made


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("worker/retry_policy.py", 0),
        ("RetryPolicy", 0),
        ("retry policy", 0),
        ("which card got the refund for 88213-B", 1),
        ("退款", 2),
        ("export_2024.csv", 3),
        ("where does the nightly export go", 3),
    ],
)
def test_it_is_found_first(index, query, expected):
    first = index.search(query)[0]
    assert any(word in first.excerpt for word in SAID[expected].split()[:4])


@pytest.mark.parametrize("query", ["", "   ", "?!", "zzzunknownword"])
def test_nothing_is_found_for_nothing(index, query):
    assert index.search(query) == []


def test_hits_are_bounded_and_repeatable(index):
    hits = index.search("work week busy")
    assert len(hits) <= 10
    assert all(len(hit.excerpt) <= 1_200 for hit in hits)
    assert [hit.excerpt for hit in hits] == [hit.excerpt for hit in index.search("work week busy")]
