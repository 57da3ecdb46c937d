"""Text that was made to slow us down takes the time of its length, on every path that strangers' text takes.

The speeds are measured by `python -m benchmarks hostile`. Here a thirtieth of its floor is asked for, in CPU time: no
busy machine misses that, and whatever grows with the square of the text does.
"""

from __future__ import annotations

import os
import random
import time

import pytest
from benchmarks.hostile import UNITS, mix_units, paths
from test_pattern_times import find_patterns, pumps

CHARACTERS = 8_000
MOST_SECONDS = 0.25
PATHS = {name: path for name, path in paths().items() if name != "a whole compaction"}


def seconds(path, text: str) -> float:
    start = time.process_time()
    path(text)
    return time.process_time() - start


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PATHS)
def test_no_text_takes_more_than_its_length(name: str):
    path = PATHS[name]
    path("warm")
    slow = {}
    for unit in (*UNITS, *mix_units(60)):
        text = (unit * (CHARACTERS // len(unit) + 1))[:CHARACTERS]
        if seconds(path, text) > MOST_SECONDS:
            slow[unit] = min(seconds(path, text) for _ in range(3))
    assert {unit: spent for unit, spent in slow.items() if spent > MOST_SECONDS} == {}


@pytest.mark.outside  # it is slow: every path reads some hundred texts
@pytest.mark.parametrize("name", PATHS)
def test_nothing_that_a_pattern_repeats_takes_more_than_its_length(name: str):
    """The units above were thought of; these are made from the patterns of all paths, with what leads to each."""
    path = PATHS[name]
    every = sorted({pump for pattern in find_patterns(adapters=False).values() for pump in pumps(pattern)})
    count = min(len(every), int(120 * max(1.0, float(os.environ.get("PENSTOCK_EXAMPLES", "1")))))
    slow = {}
    for lead, unit in random.Random(name).sample(every, count):
        text = (lead + unit * (CHARACTERS // len(unit) + 1))[:CHARACTERS]
        if seconds(path, text) > MOST_SECONDS:
            slow[lead, unit] = min(seconds(path, text) for _ in range(3))
    assert {pump: spent for pump, spent in slow.items() if spent > MOST_SECONDS} == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("laying out and cutting", "1\t" + "\n" * 60_000),
        ("passages for search", "\n###\t1\t " + "\n" * 60_000),
        ("facts of a command", 'p"' + '\\"' * 30_000 + "\\"),
        ("entities of a command", 'p"' + '\\"' * 30_000 + "\\"),
        ("a model's summary", "# a#" + " " * 60_000 + "x"),
        ("a model's summary", "**a**" + " " * 60_000 + "x"),
    ],
)
def test_what_once_took_the_square_of_its_length(name: str, text: str):
    assert seconds(PATHS[name], text) < 1.0
