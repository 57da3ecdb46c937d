from __future__ import annotations

import pytest

from penstock.conversation.dialects import detect
from penstock.conversation.handles import (
    gaps_between,
    join_runs,
    numbers_in,
    read_runs,
    runs_of,
    write_runs,
)
from penstock.engine.compress import new_notebook
from penstock.lossless.outline import (
    FAN,
    Spot,
    children_of,
    collapse_handles,
    cut_segments,
    handle_of,
    segment_key,
    spot_of,
)
from penstock.settings import Settings
from penstock.testing.engine_contract import long_conversation


def transcript_of(messages):
    return new_notebook(None, Settings()).open(messages, detect(messages)).transcript


@pytest.fixture(scope="module")
def transcript():
    return transcript_of(long_conversation(20))


def test_nodes_are_numbered_as_they_become_whole():
    assert [spot_of(handle) for handle in range(1, 8)] == [
        Spot(0, 0),
        Spot(0, 1),
        Spot(1, 0),
        Spot(0, 2),
        Spot(0, 3),
        Spot(1, 1),
        Spot(2, 0),
    ]
    assert [handle_of(spot_of(handle)) for handle in range(1, 3_000)] == list(range(1, 3_000))


def test_children_come_before_their_parent_and_cover_its_leaves():
    assert children_of(1) == ()
    assert children_of(3) == (1, 2)
    assert children_of(7) == (3, 6)
    for handle in range(1, 1_000):
        for place, child in enumerate(children_of(handle)):
            assert spot_of(child) == Spot(spot_of(handle).level - 1, FAN * spot_of(handle).ordinal + place)


def test_the_tree_of_many_leaves_is_low():
    assert max(spot_of(handle).level for handle in range(1, handle_of(Spot(0, 999)) + 1)) == 9


def test_whole_groups_collapse_to_their_parent():
    assert collapse_handles([1, 2]) == (3,)
    assert collapse_handles([1, 2, 4, 5]) == (7,)
    assert collapse_handles([2, 4, 5]) == (2, 6)
    assert collapse_handles([3, 6, 8]) == (7, 8)


def test_segments_hold_every_place_once_in_order(transcript):
    places = list(range(1, len(transcript.messages) - 1))
    segments = cut_segments(transcript, places, 2_000)
    assert [place for segment in segments for place in segment] == places
    sizes = [sum(transcript.tokens[place] for place in segment) for segment in segments]
    assert len(segments) > 4
    assert all(1_000 <= size <= 3_000 for size in sizes)


def test_no_segment_parts_a_call_from_its_result(transcript):
    places = list(range(1, len(transcript.messages)))
    for segment in cut_segments(transcript, places, 100):
        assert segment[0] in transcript.legal


def test_segments_are_the_same_when_the_conversation_has_gone_on(transcript):
    longer = transcript_of(long_conversation(30))
    before = cut_segments(transcript, range(1, 70), 2_000)
    after = cut_segments(longer, range(1, 110), 2_000)
    assert before[:-1] == after[: len(before) - 1]
    keys = [
        segment_key(one, places) for one, cut in ((transcript, before), (longer, after)) for places in cut[:3]
    ]
    assert keys[:3] == keys[3:]


def test_a_short_remainder_belongs_to_the_segment_before(transcript):
    places = list(range(1, 10))
    whole = sum(transcript.tokens[place] for place in places[:-1])
    assert cut_segments(transcript, places, whole) == [tuple(places)]


def test_one_giant_is_a_segment_of_its_own():
    messages = long_conversation(6)
    messages[11]["content"] = "much of the same. " * 4_000
    transcript = transcript_of(messages)
    segments = cut_segments(transcript, range(1, 25), 1_000)
    assert (9, 10, 11) in segments


def test_nothing_has_no_segments(transcript):
    assert cut_segments(transcript, [], 2_000) == []


def test_another_message_makes_another_key(transcript):
    assert segment_key(transcript, range(1, 5)) != segment_key(transcript, range(1, 6))
    assert segment_key(transcript, range(1, 5)) != segment_key(transcript, range(2, 6))


def test_runs_of_numbers():
    runs = runs_of([3, 4, 5, 9])
    assert runs == ((3, 5), (9, 9))
    assert write_runs(runs) == "3-5 9"
    assert read_runs("3-5 9") == runs
    assert list(numbers_in(runs)) == [3, 4, 5, 9]
    assert join_runs([((9, 9),), ((3, 5),), ((6, 7), (12, 12))]) == ((3, 7), (9, 9), (12, 12))
    assert read_runs("x 7-3 4") == ((4, 4),)
    assert gaps_between(runs, 11) == ((1, 2), (6, 8), (10, 11))
    assert gaps_between(((1, 4), (2, 3)), 4) == ()
