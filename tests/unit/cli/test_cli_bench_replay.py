"""How a replay reads."""

from __future__ import annotations

import io

import msgspec
from benchmarks.traces import generated_traces

from penstock.cli.bench import Replay, ReplayCase, replay_lines
from penstock.cli.screen import Screen
from penstock.planning.economics import PriceTerms
from penstock.replay.bills import Case
from penstock.replay.needles import Recalled
from penstock.replay.policies import BEST, LATE, RULE, compare

TERMS = PriceTerms(0.1, 1.25, 5.0, 300.0, 5e-6)


def replay(*windows, **more):
    traces = generated_traces(3, seed=2)
    cases = [Case(terms=TERMS, window_tokens=window, kept_tokens=30_000) for window in windows]
    return Replay(
        sessions=3,
        requests=sum(trace.requests for trace in traces),
        left_out=2,
        model="some\x1b[31mmodel",
        cases=tuple(ReplayCase("5m", case, tuple(compare(traces, case))) for case in cases),
        **more,
    )


def shown(found, **screen):
    return list(replay_lines(found, Screen(io.StringIO(), **screen)))


def test_a_group_of_columns_for_each_window():
    text = shown(replay(128_000, 1_000_000))
    assert "some\\x1b[31mmodel" in text[0]
    assert text[1] == "2 conversations skipped: fewer than two requests on record"
    assert " ".join(text[4].split()) == "compacted 128k sent cost share 1M sent cost share"
    assert len({len(line) for line in text[4:15]}) == 1
    assert text[15].startswith("sessions that fit but cost more than without compaction: 128k: ")


def test_recall_where_it_was_measured():
    text = shown(replay(200_000, recall={RULE: Recalled(2, 4, 3), LATE: Recalled(1, 0, 0)}))
    rows = {line.split("  ")[0]: line.split()[-1] for line in text if line}
    assert (rows["compacted"], rows[RULE], rows[LATE], rows[BEST]) == ("recall", "75.0%", "-", "-")
    assert text[-1].startswith("recall: ")


def test_long_lines_are_broken_on_a_terminal():
    text = shown(replay(128_000, 1_000_000), columns=100)
    assert max(map(len, text[15:])) <= 100


def test_a_model_an_unknown_worth_and_what_is_left_out_are_told():
    found = replay(200_000)
    case = msgspec.structs.replace(
        found.cases[0].case, summary_tokens=5_000, terms=msgspec.structs.replace(TERMS, unit_usd=None)
    )
    cases = (msgspec.structs.replace(found.cases[0], case=case, without_room=1),)
    text = "\n".join(shown(msgspec.structs.replace(found, cases=cases)))
    assert "5,000 of them are written by a model" in text
    assert "unknown" in text
    assert "1 session left out of 200k: no room beside the static prefix" in text
