"""The benchmarks' own parts: verdicts, tables, the written report, the adapter and the measure behind the figures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import generate, recorded
from benchmarks.fidelity import compactor
from benchmarks.needles import Needle
from benchmarks.options import Options
from benchmarks.pairs import legal, newest_that_fit
from benchmarks.report import Figure, Limit, Table, as_json, markdown, missed
from benchmarks.written import list_documents, replaced, write_tables

ROOT = Path(__file__).parents[2]
REPORT = "before\n<!-- figures: speed -->\nold\n<!-- end of figures: speed -->\nafter\n"
SLOW = Table(
    "speed", "Speed", ("what", "best (floor · goal)"), (("a window", Figure(301, "ms", Limit(300, 100))),)
)


@pytest.mark.parametrize(
    ("value", "limit", "reached"),
    [
        (301, Limit(300, 100), "missed"),
        (300, Limit(300, 100), "floor"),
        (100, Limit(300, 100), "goal"),
        (12, Limit(12), "floor"),
        (63.9, Limit(64, 82, at_least=True), "missed"),
        (64, Limit(64, 82, at_least=True), "floor"),
        (82, Limit(64, 82, at_least=True), "goal"),
        (float("nan"), Limit(64, 82, at_least=True), "missed"),
        (5, None, ""),
    ],
)
def test_a_figure_knows_what_it_reaches(value, limit, reached):
    assert Figure(value, "", limit).reached == reached


def test_a_table_shows_figure_floor_and_goal_and_what_is_missed():
    assert "| a window | 301 ms ✗ (300 · 100) |" in markdown(SLOW)
    assert missed([SLOW]) == ["Speed: a window: best 301 ms ✗ (300 · 100)"]
    told = json.loads(as_json([SLOW], {"cores": 2}))
    assert told["tables"][0]["rows"][0][1] == {
        "value": 301,
        "unit": "ms",
        "floor": 300,
        "goal": 100,
        "reached": "missed",
    }


def test_json_stays_json_where_there_was_nothing_to_measure():
    empty = Table("corpora", "Recorded", ("what", "recall"), (("coding", Figure(float("nan"), "%")),))
    assert json.loads(as_json([empty], {}))["tables"][0]["rows"][0][1]["value"] is None


def test_writing_replaces_what_is_between_the_marks_and_nothing_else():
    once = replaced(REPORT, [SLOW], "Measured today.")
    assert once.startswith("before\n<!-- figures: speed -->\n\n| what")
    assert once.endswith("Measured today.\n\n<!-- end of figures: speed -->\nafter\n")
    assert "old" not in once
    assert replaced(once, [SLOW], "Measured today.") == once


def test_writing_keeps_figures_that_were_not_measured_again():
    assert replaced(REPORT, [Table("speed", "Speed", (), (), "Not run.")], "Measured today.") == REPORT


def test_writing_takes_the_rows_alone_where_a_place_asks_for_it():
    bare = replaced(
        REPORT.replace("figures: speed -->", "figures: speed, bare -->", 1), [SLOW], "Measured today."
    )
    assert "| what" in bare
    assert "Measured" not in bare


def test_writing_refuses_a_table_without_a_place(tmp_path):
    report = tmp_path / "report.md"
    report.write_text(REPORT, encoding="utf-8")
    with pytest.raises(ValueError, match="no place for 'memory'"):
        write_tables([report], [SLOW, Table("memory", "Memory", ("what",), (("a",),))], "")
    assert report.read_text(encoding="utf-8") == REPORT


def test_writing_reaches_every_document_with_a_place(tmp_path):
    reports = [tmp_path / "one.md", tmp_path / "two.md"]
    for report in reports:
        report.write_text(REPORT, encoding="utf-8")
    write_tables(reports, [SLOW], "Measured today.")
    assert [report.read_text(encoding="utf-8") for report in reports] == 2 * [
        replaced(REPORT, [SLOW], "Measured today.")
    ]


def test_the_documents_have_a_place_for_every_table():
    report = "".join(path.read_text(encoding="utf-8") for path in list_documents())
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "benchmarks").glob("*.py")))
    keys = set(re.findall(r'\bTable\(\s*"([\w-]+)"', sources)) - {"guard"}  # which is only printed
    assert {"speed", "memory", "corpora", "corpora-ours", "generated"} <= keys
    for key in keys:
        assert re.search(rf"<!-- figures: {key}(, bare)? -->", report), key
        assert f"<!-- end of figures: {key} -->" in report


def test_the_budget_of_the_adapter_leaves_the_system_prompt_out():
    session = generate.coding_session(12_000, seed=4)
    system = {"role": "system", "content": "Mind the gap. " * 400}
    messages = [system, *session[1 : generate.cut_at(session)]]
    budget = generate.message_tokens(messages[1:]) // 5
    kept = compactor(messages, budget)
    assert kept[0] == system
    assert 0.8 * budget < generate.message_tokens(kept[1:]) <= budget
    assert legal(kept)


def test_the_newest_that_fit_are_the_newest_whole_and_within_the_budget():
    session = generate.coding_session(12_000, seed=4)[:-1]
    kept = newest_that_fit(session, 3_000)
    assert legal(kept)
    assert kept[0] == session[0]
    assert kept[1:] == session[len(session) - len(kept) + 1 :]
    assert 500 < generate.message_tokens(kept[1:]) <= 3_000


def test_an_illegal_list_is_known():
    session = generate.coding_session(12_000, seed=4)
    result = next(index for index, message in enumerate(session) if message["role"] == "tool")
    assert legal(session)
    assert not legal(session[:result] + session[result + 1 :])
    assert not legal(session[result:])


@pytest.mark.parametrize(("text", "found"), [("port 48211.", 1.0), ("id 148211", 0.0), ("48211_b", 0.0)])
def test_a_needle_is_not_found_inside_a_longer_word(text, found):
    wanted = [Needle("48211", 3, 9, frozenset())]
    assert generate.recalled(wanted, 5, [{"role": "user", "content": text}]).recall == found


def test_without_recorded_sessions_it_says_so_and_what_they_would_add():
    (table,) = recorded.run(Options(), compactor)
    assert "PENSTOCK_CORPORA" in markdown(table)
    assert "customer service" in markdown(table)


@pytest.mark.outside
def test_an_unknown_subject_is_refused_with_the_names_there_are():
    command = [sys.executable, "-m", "benchmarks", "weather"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "weather" in done.stderr
    assert "fidelity" in done.stderr
