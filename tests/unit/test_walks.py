"""The walks of the documents lead past the functions that they name, in that order."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest
from benchmarks.walk import walk_compress, walk_session, walk_turn

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "walks.md"
STOP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", re.MULTILINE)


def list_stops(heading):
    text = PAGE.read_text(encoding="utf-8")
    walk = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    assert len(STOP.findall(walk)) == len(re.findall(r"^\d+\.", walk, re.MULTILINE))
    return STOP.findall(walk)


def run_compress(folder):
    return walk_compress().functions


def run_session(folder):
    # What the search calls first was called before, by the compaction: only its own stops follow.
    return [*chain.from_iterable(walk.functions for walk in walk_session(folder))]


def run_turn(folder):
    return walk_turn(folder).functions


@pytest.mark.parametrize(
    ("heading", "run"),
    [
        ("One `compress`", run_compress),
        ("A stored conversation", run_session),
        ("An agent's turn", run_turn),
    ],
)
def test_a_walk_meets_its_stops_in_order(heading, run, tmp_path):
    stops, met = list_stops(heading), [*run(tmp_path)]
    assert len(stops) >= 10
    assert [stop for stop in stops if stop not in met] == []
    places = [met.index(stop) for stop in stops]
    assert [
        stop for stop, place, before in zip(stops[1:], places[1:], places, strict=False) if place < before
    ] == []
