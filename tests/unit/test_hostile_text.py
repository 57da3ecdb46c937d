"""Text that was made to slow us down takes the time of its length, on every path that strangers' text takes.

The speeds are measured by `python -m benchmarks hostile`. Here a thirtieth of its floor is asked for, in CPU time: no
busy machine misses that, and whatever grows with the square of the text does.
"""

from __future__ import annotations

import time

import pytest
from benchmarks.hostile import UNITS, mix_units, paths

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
