from __future__ import annotations

import io

import pytest

from penstock.cli.explain import table
from penstock.cli.labels import Label
from penstock.cli.runs import OLDER, VerdictEntry, group_entries
from penstock.cli.screen import Screen, width_of


def entry(number, fate="summarised", reason=f"{OLDER}reachable by its handle", before=10, after=0, tool=""):
    tools = (tool,) if tool else ()
    return VerdictEntry(Label(f"m{number}", "tool", tools), number, before, after, fate, reason)


def kept(number, reason="tail: recent"):
    return entry(number, "kept", reason, after=10)


def elided(number, reason="old result or long argument"):
    return entry(number, "elided", reason, after=3)


def handles(entries):
    return [f"{one.label.handle}-{one.last}" if one.count > 1 else one.label.handle for one in entries]


def test_a_run_is_one_line_with_its_sums_and_its_tools_by_number():
    run = [entry(n, tool="read" if n % 3 else "terminal") for n in range(2, 12)]
    (line,) = group_entries(run)
    assert (line.label.handle, line.last, line.count) == ("m2", "m11", 10)
    assert (line.before, line.after) == (100, 0)
    assert Label("", "", line.tools).tools_text == "read ×7, terminal ×3"


def test_what_is_notable_stands_alone():
    entries = [
        kept(1, "system prompt"),
        *map(entry, range(2, 8)),
        elided(8),
        *(kept(n) for n in range(9, 14)),
        kept(14, "pinned"),
        kept(15, "open call"),
        kept(16, "the user's last request"),
    ]
    assert handles(group_entries(entries)) == ["m1", "m2-m7", "m8", "m9-m13", "m14", "m15", "m16"]


def test_two_are_no_run():
    assert handles(group_entries([entry(1), entry(2)])) == ["m1", "m2"]


def test_a_run_ends_where_numbers_are_missing_and_at_a_handoff():
    handoff = VerdictEntry(
        Label("", "handoff", ()), 0, 50, 0, "summarised", f"{OLDER}9 excerpts in the handoff"
    )
    entries = [*map(entry, (1, 2, 3)), handoff, *map(entry, (58, 59, 60, 70, 71, 72))]
    assert handles(group_entries(entries)) == ["m1-m3", "", "m58-m60", "m70-m72"]


def test_reasons_of_a_run_say_how_many_are_quoted():
    quoted = [entry(n, reason=f"{OLDER}{n} excerpts in the handoff") for n in (1, 2, 3)]
    by_handle = [entry(n) for n in (4, 5)]
    assert group_entries(quoted)[0].reason == f"{OLDER}excerpts in the handoff"
    assert group_entries(quoted + by_handle)[0].reason == f"{OLDER}3 quoted, 2 by handle"
    assert group_entries([*by_handle, entry(6)])[0].reason == f"{OLDER}reachable by handle"


def test_few_elided_messages_are_told_one_by_one_and_many_together():
    few = [elided(n) if n % 4 == 0 else kept(n, "small enough to stay") for n in range(1, 13)]
    assert [line.fate for line in group_entries(few) if line.fate == "elided"] == ["elided"] * 3
    many = [elided(n) if n % 2 else kept(n, "small enough to stay") for n in range(1, 401)]
    (line,) = group_entries(many)
    assert line.fate == "elided"
    assert line.reason == "200 elided: old result or long argument; 200 kept"
    assert (line.before, line.after) == (4_000, 2_600)


def test_a_long_session_fits_a_screen():
    middle = [elided(n) if n % 3 else kept(n, "small enough to stay") for n in range(4, 360)]
    tail = [elided(n, "too large for the tail") if n % 2 else kept(n) for n in range(360, 400)]
    head = [
        kept(1, "system prompt"),
        kept(2, "head: one of the first 3"),
        kept(3, "head: one of the first 3"),
    ]
    lines = group_entries([*head, *middle, *tail, kept(400, "the user's last request")])
    assert handles(lines) == ["m1", "m2", "m3", "m4-m359", "m360-m399", "m400"]


def brought(number):
    return kept(number, "room was left for it")


def test_messages_that_came_back_together_are_one_line():
    entries = [*map(entry, range(1, 9)), *map(brought, range(9, 30)), kept(30, "pinned")]
    lines = group_entries(entries)
    assert handles(lines) == ["m1-m8", "m9-m29", "m30"]
    assert (lines[1].fate, lines[1].reason) == ("kept", "room was left for it")


def test_where_fates_alternate_for_long_a_line_counts_them():
    """What stands alone still does, and so do long runs of one fate."""
    first = [
        brought(n) if n % 4 == 0 else entry(n, reason=f"{OLDER}2 excerpts in the handoff")
        for n in range(4, 204)
    ]
    last = [brought(n) if n % 2 else elided(n) if n % 4 else entry(n) for n in range(305, 405)]
    lines = group_entries(
        [
            kept(1, "system prompt"),
            *map(entry, range(2, 4)),
            *first,
            *map(entry, range(204, 304)),
            kept(304, "pinned"),
            *last,
            *(kept(n) for n in range(405, 410)),
        ]
    )
    assert handles(lines) == ["m1", "m2-m200", "m201-m303", "m304", "m305-m404", "m405-m409"]
    mixed, _, _, both = lines[1:5]
    assert (mixed.fate, mixed.reason) == (
        "summarised",
        f"{OLDER}149 of them, 147 quoted, 2 by handle; 50 kept: room was left",
    )
    assert (mixed.before, mixed.after) == (1_990, 500)
    assert both.reason == (
        f"{OLDER}25 of them, reachable by handle; 25 elided: old result or long argument; "
        "50 kept: room was left"
    )


def test_few_that_alternate_are_told_one_by_one():
    entries = [brought(n) if n % 4 == 0 else entry(n) for n in range(1, 13)]
    assert handles(group_entries(entries)) == ["m1-m3", "m4", "m5-m7", "m8", "m9-m11", "m12"]


@pytest.mark.parametrize("columns", [40, 50, 60, 80, 120])
def test_no_line_of_the_table_leaves_the_screen(columns):
    entries = [
        entry(1, before=31_039, after=12_001, tool="terminal"),
        kept(1_234, "the user's last request"),
    ]
    lines = list(table(entries, Screen(io.StringIO(), columns=columns)))
    assert all(width_of(line) <= columns for line in lines)
    assert any("summarised" in line for line in lines)
