"""`penstock bench` as people run it: real processes, a generated trace file, a store with usage in it."""

from __future__ import annotations

import gzip
import json

import pytest
from benchmarks.traces import trace_file
from tests.e2e.cli_process import assert_one_clear_error, penstock, work
from tests.unit.transfer.recorded_files import claude_line, lines, tool_result, tool_use, words

from penstock.measure.usage import Usage
from penstock.replay.policies import BEST, GATED, LATE, NEVER, POLICIES, RULE
from penstock.sessions.session import Session
from penstock.stores.store import open_store
from penstock.stores.values import UsageRow


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    file = tmp_path_factory.mktemp("traces") / "generated.jsonl"
    file.write_bytes(trace_file(12, seed=3))
    return file


def replayed(*args, **more):
    ran = penstock("bench", "replay", *args, "--json", **more)
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


def policies(case):
    return {policy["policy"]: policy for policy in case["policies"]}


def test_every_window_under_every_cache(traces):
    found = replayed("--traces", traces)
    assert found["sessions"] == 12
    cases = [(case["cache"], case["window_tokens"]) for case in found["cases"]]
    windows = (128_000, 200_000, 1_000_000)
    assert cases == [(cache, window) for cache in ("5m", "1h", "automatic", "none") for window in windows]
    for case in found["cases"]:
        named = policies(case)
        assert list(named) == [policy.name for policy in POLICIES]
        never, best = named[NEVER], named[BEST]
        assert all(best["cost"] <= one["cost"] * (1 + 1e-9) for one in named.values())
        assert named[RULE]["units"] <= best["units"] * 1.06
        assert named[RULE]["units"] <= named[LATE]["units"]
        assert named[GATED]["sessions_dearer"] == 0
        assert never["of_never"] == 1
        assert never["cost"] == pytest.approx(never["units"] * case["terms"]["unit_usd"])
        for one in named.values():
            assert one["sent_tokens"] == one["read_tokens"] + one["fresh_tokens"]
            assert one["output_tokens"] >= never["output_tokens"]  # summaries are output, too


def test_the_table_says_the_same_as_the_json(traces):
    ran = penstock("bench", "replay", "--traces", traces, "--window", "200k", "--cache", "5m")
    case = replayed("--traces", traces, "--window", "200k", "--cache", "5m")["cases"][0]
    shown = ran.text.splitlines()
    assert shown[0].startswith("12 sessions, ")
    assert "at the prices of claude-opus-4-8" in shown[0]
    assert shown[2] == "5-minute cache: reading 0.1, writing 1.25 times the price of input"
    assert shown[3].split() == ["compacted", "200k", "sent", "cost", "share", "compactions"]
    for line, policy in zip(shown[4:], case["policies"], strict=False):
        assert line.startswith(policy["policy"])
        assert line.split()[-2:] == [f"{policy['of_never']:.3f}", f"{policy['compactions']:,}"]
    assert shown[-1].startswith("sessions that fit but cost more than without compaction: 200k: ")
    assert " 0 gated, of " in shown[-1]


def test_gzipped_files_and_standard_input_are_read_together(traces, tmp_path):
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(traces.read_bytes()))
    found = replayed("--traces", packed, "-", "--window", "200k", "--cache", "5m", stdin=traces.read_bytes())
    assert found["sessions"] == 24
    assert found["cases"][0]["policies"][0]["of_never"] == 1


def test_a_folder_is_all_trace_files_in_it(traces, tmp_path):
    (tmp_path / "one.jsonl").write_bytes(traces.read_bytes())
    (tmp_path / "two.jsonl.gz").write_bytes(gzip.compress(traces.read_bytes()))
    (tmp_path / "notes.txt").write_text("no trace")
    few = ("--window", "200k", "--cache", "5m")
    assert (
        replayed("--traces", tmp_path, *few)["sessions"] == 2 * replayed("--traces", traces, *few)["sessions"]
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    assert_one_clear_error(penstock("bench", "replay", "--traces", empty), "no trace files")


def test_keeping_less_costs_less_and_a_model_costs_more(traces):
    few = ("--traces", traces, "--window", "200k", "--cache", "5m")
    usual = policies(replayed(*few)["cases"][0])[RULE]["cost"]
    less = policies(replayed(*few, "--handoff-tokens", "5k", "--tail-tokens", "10k")["cases"][0])[RULE][
        "cost"
    ]
    model = policies(replayed(*few, "--summary-tokens", "5k")["cases"][0])[RULE]["cost"]
    assert less < usual < model


def filled(url):
    """A store with a long session of requests, and one that nothing is on record for."""
    store = open_store(url)
    session = Session.create(store, model="claude-sonnet-4-6")
    session.append(work(2))
    at, prompt = 1_000.0, 20_000
    for turn in range(60):
        usage = Usage(input_tokens=prompt, output_tokens=300)
        store.book(UsageRow(session=session.id, at=at, model="claude-sonnet-4-6", task="turn", usage=usage))
        at += 4_000 if turn % 20 == 19 else 20
        prompt = 20_000 if turn == 39 else prompt + 2_500  # the program compacted by itself once
    store.book(UsageRow(session=session.id, at=at, model="other", task="compression", usage=Usage(9)))
    silent = Session.create(store)
    silent.append(work(1))
    store.close()
    return session.id


def test_stored_sessions_are_replayed_by_what_they_used(tmp_path):
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    session = filled(url)
    found = replayed("--store", url)
    assert (found["sessions"], found["requests"], found["left_out"]) == (1, 60, 1)
    assert found["model"] == "claude-sonnet-4-6"
    never = policies(found["cases"][2])[NEVER]  # a window of a million: nothing is forced
    views = [20_000]
    for turn in range(1, 60):
        views.append(views[-1] + (300 if turn == 40 else 2_500))
    assert never["sent_tokens"] == sum(views)
    assert policies(found["cases"][0])[RULE]["of_never"] < 0.9
    few = ("--cache", "5m", "--window", "1m")
    assert replayed("--store", url, "--session", session[:6], *few)["requests"] == 60
    text = penstock("bench", "replay", "--store", url, "--cache", "5m").text
    assert "1 conversation skipped: fewer than two requests on record" in text


def claude_code_file(turns=30):
    """A session as Claude Code writes it: every turn reads a part, the last one needs what the first was told."""
    written, parent, prompt = [], None, 20_000
    for turn in range(turns):
        minute = f"2026-03-14T{10 + turn // 60:02}:{turn % 60:02}"
        told = (
            words("Release build_0f3a9c.")
            if not turn
            else tool_result(f"t{turn - 1}", f"part_{turn:03} is fine\n" * 300)
        )
        asked = claude_line("user", f"u{turn}", parent, [told], timestamp=f"{minute}:10.000Z")
        blocks = (
            [words("On."), tool_use(f"t{turn}")]
            if turn < turns - 1
            else [words("build_0f3a9c and part_004 are out.")]
        )
        usage = {"input_tokens": 10, "cache_read_input_tokens": prompt, "output_tokens": 40}
        message = {"id": f"msg_{turn}", "type": "message", "model": "claude-sonnet-4-5", "usage": usage}
        message["stop_reason"] = "end_turn"
        answer = claude_line(
            "assistant", f"a{turn}", f"u{turn}", blocks, message=message, timestamp=f"{minute}:20.000Z"
        )
        written += [asked, answer]
        parent, prompt = f"a{turn}", prompt + 2_000
    return lines(*written)


def test_recall_stands_beside_money_for_imported_sessions(tmp_path):
    url, file = f"sqlite:///{tmp_path / 'kept.db'}", tmp_path / "session.jsonl"
    file.write_bytes(claude_code_file())
    assert penstock("sessions", "import", file, "--store", url).code == 0
    kept = ("--handoff-tokens", "3k", "--tail-tokens", "3k", "--window", "60k", "--cache", "5m")
    found = replayed("--store", url, "--recall", "--limit", "5", *kept)
    assert (found["sessions"], found["requests"]) == (1, 30)
    named = policies(found["cases"][0])
    assert "recall" not in named[BEST]
    for policy in (NEVER, LATE, RULE, GATED):
        assert named[policy]["compactions"] > 0
        assert named[policy]["values_needed"] == 2  # both were said long before the last compaction
        assert named[policy]["recall"] == named[policy]["values_kept"] / 2
    assert named[RULE]["values_kept"] >= 1  # what the user asked for stands in every handoff


def test_mistakes_are_answered_in_one_line(traces, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "a", "requests": [[1, 2, 3]]}\n')
    assert_one_clear_error(penstock("bench", "replay", "--traces", bad), "bad.jsonl", "not a trace", "line 1")
    few = ("bench", "replay", "--traces", traces)
    assert_one_clear_error(penstock(*few, "--window", "40k"), "40,000", "48,000")
    assert_one_clear_error(penstock(*few, "--model", "nobody-knows-it"), "nobody-knows-it", "--model")
    assert_one_clear_error(penstock(*few, "--cache", "7m"), "'7m'")
    assert_one_clear_error(penstock(*few, "--recall"), "--recall", "--traces")
    assert_one_clear_error(penstock("bench"), "BENCHMARK", "penstock bench --help")
    empty = f"sqlite:///{tmp_path / 'empty.db'}"
    assert_one_clear_error(penstock("bench", "replay", "--store", empty), "sessions import", "--traces")
