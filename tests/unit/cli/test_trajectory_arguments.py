"""What is typed for `penstock trajectories`: input, output and options, in any order."""

from __future__ import annotations

from itertools import permutations

import pytest

from penstock.cli.parser import build_parser
from penstock.cli.trajectories import read_run

PIECES = (("in.jsonl",), ("out.jsonl",), ("--workers", "2"), ("--system-note",), ("--per-turn", "mask"))


def parsed(*words):
    return build_parser().parse_args(["trajectories", *words])


@pytest.mark.parametrize(
    "order", [order for order in permutations(PIECES) if order.index(PIECES[0]) < order.index(PIECES[1])]
)
def test_options_stand_before_between_and_after_input_and_output(order):
    args = parsed(*(word for piece in order for word in piece))
    assert (args.file, args.output) == ("in.jsonl", "out.jsonl")
    assert (args.workers, args.system_note, args.per_turn) == (2, True, ["mask"])


def test_an_output_may_be_left_out():
    args = parsed("--workers", "2", "in.jsonl", "--dry-run")
    assert (args.file, args.output, args.dry_run) == ("in.jsonl", None, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("in.jsonl", "out.jsonl", "--workers", "2", "more.jsonl"), "more.jsonl"),
        (("in.jsonl", "--workers", "2", "out.jsonl", "more.jsonl"), "more.jsonl"),
        (("in.jsonl", "--wokers", "out.jsonl"), "--wokers"),
        (("--workers", "2"), "INPUT"),
        (("in.jsonl", "--workers", "out.jsonl"), "out.jsonl"),
    ],
)
def test_what_is_too_much_or_unknown_is_told_in_one_line(words, told, capsys):
    with pytest.raises(SystemExit) as stopped:
        parsed(*words)
    assert stopped.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith("penstock: ")
    assert line.count("\n") == 1
    assert told in line


def test_the_words_of_the_note_are_an_option_and_may_stand_in_a_file(tmp_path):
    assert read_run(parsed("in.jsonl", "out.jsonl")).job.options.note == ""
    typed = read_run(parsed("in.jsonl", "out.jsonl", "--note-text", "Turns were cut."))
    assert typed.job.options.note == "Turns were cut."
    options = tmp_path / "options.yaml"
    options.write_text("note_text: Turns were merged.\n", encoding="utf-8")
    assert (
        read_run(parsed("in.jsonl", "out.jsonl", "--config", str(options))).job.options.note
        == "Turns were merged."
    )
