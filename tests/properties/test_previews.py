"""Whatever results a turn brings: what is stored is enough, the largest first, and nothing of it is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.redaction import Redactor
from penstock.sessions.results import (
    LEAST_CHARS,
    LargeResult,
    ResultLimits,
    choose_for_store,
    find_stored_handles,
    scale_limits,
    write_preview,
)
from penstock.settings import ToolsSettings

HANDLE = "r0123456789ab"
REDACTOR = Redactor()
texts = st.builds(
    lambda line, count: (line + "\n") * count,
    st.text(st.characters(codec="utf-8"), max_size=90),
    st.integers(0, 400),
)
results = st.builds(
    LargeResult,
    texts,
    st.none() | st.integers(LEAST_CHARS, 30_000),
    last=st.booleans(),
    stays=st.sampled_from([False, False, False, True]),
)
limits = st.builds(ResultLimits, st.just(0), st.integers(1_000, 60_000), st.integers(100, 3_000))
quick = settings(max_examples=150, deadline=None, derandomize=True, database=None)


@quick
@given(st.lists(results, max_size=12), limits, st.integers(0, 5_000))
def test_after_it_all_limits_are_kept(given_results, bounds, spent):
    rooms = choose_for_store(given_results, bounds, spent)
    total = spent
    for place, one in enumerate(given_results):
        shown = one.text
        if place in rooms:
            shown = write_preview(one.text, rooms[place], HANDLE, str, "history_expand")
            assert len(shown) <= rooms[place] < len(one.text)
            assert find_stored_handles(shown) == (HANDLE,)
        assert one.stays or one.limit_chars is None or len(shown) <= one.limit_chars
        total += len(shown)
    movable = sum(not one.stays for one in given_results)
    staying = sum(len(one.text) for one in given_results if one.stays)
    assert total <= max(bounds.turn_chars, spent + staying + movable * LEAST_CHARS)


@quick
@given(st.lists(results, max_size=12), limits)
def test_no_more_is_stored_than_needed_and_the_largest_first(given_results, bounds):
    rooms = choose_for_store(given_results, bounds)
    over = {
        n
        for n, one in enumerate(given_results)
        if one.limit_chars is not None and len(one.text) > one.limit_chars
    }
    for place in rooms:
        assert not given_results[place].stays
    by_turn = [given_results[place] for place in rooms.keys() - over]
    left = [one for n, one in enumerate(given_results) if n not in rooms and not one.stays]
    for stored in by_turn:
        for other in left:
            assert (other.last, -len(other.text)) >= (stored.last, -len(stored.text)) or len(
                other.text
            ) <= max(rooms.values())
    if sum(len(one.text) for one in given_results) <= bounds.turn_chars:
        assert rooms.keys() <= over


@quick
@given(
    texts.filter(lambda text: len(text) > 700), st.integers(LEAST_CHARS, 3_000), st.sampled_from([HANDLE, ""])
)
def test_a_preview_is_the_beginning_of_what_is_stored(text, room, handle):
    shown = write_preview(text, room, handle, str)
    beginning, _, note = shown.rpartition("\n")
    assert len(shown) <= max(room, LEAST_CHARS)
    assert text.startswith(beginning)
    assert f"{len(text):,} characters" in note
    assert ("stored as" in note) == bool(handle)
    assert ("kept" in note) != bool(handle)


def test_it_is_cut_at_a_line():
    text = "".join(f"line number {n}\n" for n in range(10_000))
    beginning, _, note = write_preview(text, 1_660, HANDLE, str).rpartition("\n")
    assert text.startswith(beginning + "\n")
    assert 1_400 < len(beginning) <= 1_560
    assert note == (
        "[168,890 characters in 10,001 lines, of which this is the beginning; all of it is stored as r0123456789ab]"
    )
    assert len(write_preview("x" * 200_000, 1_660, HANDLE, str)) == 1_660


@pytest.mark.parametrize("start", ["password=", "API_KEY=sk-test-", "Authorization: Bearer "])
def test_what_is_shown_is_redacted_before_it_is_cut(start):
    secret = start + "A1b2C3d4E5f6" * 3
    for before in range(0, 400, 11):
        shown = write_preview(
            "w " * (before // 2) + secret + "\n" + "x " * 5_000, 400, HANDLE, REDACTOR.redact
        )
        assert "A1b2" not in shown


@pytest.mark.parametrize(
    ("window", "result", "turn"),
    [
        (None, 100_000, 200_000),
        (1_000_000, 100_000, 200_000),
        (200_000, 100_000, 200_000),
        (128_000, 76_800, 153_600),
        (32_000, 19_200, 38_400),
        (8_000, 8_000, 16_000),
        (1, 8_000, 16_000),
    ],
)
def test_limits_shrink_with_the_window(window, result, turn):
    assert scale_limits(ToolsSettings(), window) == ResultLimits(result, turn, 1_500)


def test_a_lower_setting_stays_lower():
    assert scale_limits(ToolsSettings(result_chars=2_000, turn_chars=3_000), 8_000) == ResultLimits(
        2_000, 3_000, 1_500
    )
