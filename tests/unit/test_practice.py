"""The benchmark of CompactBench's templates: values are found as its checks find them, and losses are told apart."""

from __future__ import annotations

import io
import tarfile

import pytest
from benchmarks import practice
from benchmarks.options import Options
from benchmarks.practice import ABSENT, CUT, SENTENCE, Asked, Case, judge, load_cases
from benchmarks.report import markdown

MESSAGES = [
    {"role": "user", "content": "Ada looks after the harbour office. Ben looks after the tide tables."},
    {"role": "assistant", "content": "Two offices, two people."},
    {"role": "user", "content": "Do not repaint the northern light before the storms have passed."},
    {"role": "assistant", "content": "Agreed."},
    {"role": "user", "content": "Nice weather, by the way."},
    {"role": "user", "content": "Who does what?"},
]
ASKED = Asked("Ada", "people"), Asked("repaint the northern light", "rules")
CASE = Case("ours", MESSAGES, ASKED, frozenset({5}))
TARGET = 90

TEMPLATE = """\
template:
  key: harbour_v1
  family: buried_constraint
  version: 1.0.0
  difficulty_policy:
    distractor_turns: {easy: 2, medium: 4, hard: 6, elite: 8}
  variables:
    - {name: keeper, generator: person_name}
    - {name: topic, generator: project_noun}
  transcript:
    turns:
      - {role: user, template: "{{keeper}} is in charge of the {{topic}}."}
      - {role: distractor_block, count: "{{difficulty.distractor_turns}}"}
      - {role: user, template: "Who is in charge?"}
  ground_truth:
    immutable_facts: ["{{keeper}} keeps the {{topic}}"]
  evaluation_items:
    - key: who
      type: entity_integrity
      prompt: "Who is in charge?"
      expected: {check: contains_normalized, value: "{{keeper}}"}
    - key: never
      type: forbidden_behavior_retention
      prompt: "Is anybody else?"
      expected: {check: forbidden_absent, value: "{{topic}}"}
"""


def view(*texts):
    return [{"role": "user", "content": text} for text in texts]


def test_a_value_is_found_whatever_its_case_and_line_breaks():
    judged = judge(CASE, view("ADA does the office.", "never repaint the\n  Northern light"), TARGET)
    assert judged.losses == ()
    assert judged.asked == ASKED


@pytest.mark.parametrize(
    ("shown", "how"),
    [
        ("Who does what?", [ABSENT, ABSENT]),
        ("Ben looks after the tide tables.", [SENTENCE, ABSENT]),
        ("Do not repaint the northern", [ABSENT, CUT]),
        ("before the storms have passed", [ABSENT, SENTENCE]),
    ],
)
def test_losses_are_told_apart_by_what_stands_of_their_message(shown, how):
    assert [loss.how for loss in judge(CASE, view(shown), TARGET).losses] == how


def test_a_loss_says_where_it_stood_and_whether_there_was_room():
    empty = judge(CASE, view("Who does what?"), TARGET)
    assert [loss.in_first_request for loss in empty.losses] == [True, False]
    assert [loss.fits for loss in empty.losses] == [True, True]
    full = judge(CASE, view("Who does what? " * 20), TARGET)
    assert full.used > 0.9
    assert [loss.fits for loss in full.losses] == [False, False]


@pytest.mark.parametrize(("number", "counted"), [(5, True), (3, False)])
def test_small_talk_among_the_constraints_is_counted(number, counted):
    handoff = (
        '<penstock-handoff v="1" after="5">\n'
        f"## Constraints & Preferences\n- m{number} something that was said\n</penstock-handoff>"
    )
    assert judge(CASE, view(handoff), TARGET).filler_as_constraint is counted


def test_without_the_templates_it_says_so_and_what_they_would_add(monkeypatch, tmp_path):
    monkeypatch.setattr(practice, "SOURCE", tmp_path)
    (table,) = practice.run(Options(quick=True))
    assert not table.columns
    assert "CompactBench is not installed" in markdown(table)


def test_templates_of_the_packed_source_become_the_same_cases_every_time(monkeypatch, tmp_path):
    pytest.importorskip("compactbench")
    _pack(tmp_path)
    cases = load_cases(tmp_path, (1, 2))
    assert cases == load_cases(tmp_path, (1, 2))
    assert [case.name for case in cases] == ["harbour_v1", "harbour_v1"]
    for case in cases:
        (asked,) = case.asked
        assert asked.kind == "people and tasks"
        assert case.messages[0]["content"].startswith(f"{asked.value} is in charge")
        assert case.filler == frozenset(range(2, 10))
        assert judge(case, case.messages, 1_000).losses == ()
        assert judge(case, case.messages[1:], 1_000).losses[0].in_first_request

    monkeypatch.setattr(practice, "SOURCE", tmp_path)
    kept, lost = practice.run(Options(quick=True))
    assert [row[0] for row in kept.rows] == ["1/2", "1/4", "1/8"]
    assert len(lost.rows) == 9


def _pack(folder):
    data = TEMPLATE.encode()
    with tarfile.open(folder / "compactbench-0.0.tar.gz", "w:gz") as package:
        member = tarfile.TarInfo("compactbench-0.0/benchmarks/public/elite_practice/harbour_v1.yaml")
        member.size = len(data)
        package.addfile(member, io.BytesIO(data))
