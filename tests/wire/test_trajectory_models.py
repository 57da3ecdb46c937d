"""Summaries of trajectories by a model, over real HTTP: good ones, and every way to fail. No row is lost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import penstock
from penstock.errors import ProviderError
from penstock.providers.connect import connect
from penstock.providers.exchange import Finish
from penstock.testing import Reply, scripted_provider
from penstock.trajectories.options import ModelOptions, TrajectoryOptions
from penstock.trajectories.run import Run, SerialEngine, run
from penstock.trajectories.shards import ShardJob

COMMAND = str(Path(sys.executable).parent / "penstock")
OPTIONS = TrajectoryOptions(target_tokens=900, summary_tokens=300)


def trajectory(number, steps=12):
    turns = [{"from": "human", "value": f"Carry out the work order row-{number}, please."}]
    for step in range(steps):
        asked = json.dumps({"name": "look", "arguments": {"shelf": f"S{number}-{step}"}})
        seen = json.dumps({"content": " ".join(f"box{number}x{step}x{at}" for at in range(20))})
        turns += [
            {"from": "gpt", "value": f"<tool_call>\n{asked}\n</tool_call>"},
            {"from": "tool", "value": f"<tool_response>\n{seen}\n</tool_response>"},
        ]
    return [*turns, {"from": "gpt", "value": f"The order row-{number} is done."}]


def saved(path, numbers):
    lines = [json.dumps({"id": number, "conversations": trajectory(number)}) for number in numbers]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def number_of(received):
    return int(re.search(r"row-(\d+)", received.text)[1])


def handoff(received):
    number = number_of(received)
    return Reply(
        f"## Goal\nThe work order row-{number} is to be carried out.\n\n## Completed Actions\n"
        f"1. Looked at shelf S{number}-3 with look (m8).\n2. Looked at the moon with NASA-9000.\n"
    )


def compress_file(folder, server, count, *, concurrency=4, timeout_seconds=20.0):
    source = saved(folder / "in.jsonl", range(1, count + 1))
    model = ModelOptions(
        name="writer-1",
        base_url=server.base_url,
        window_tokens=32_000,
        concurrency=concurrency,
        timeout_seconds=timeout_seconds,
    )
    wanted = Run(
        source=source,
        target=folder / "out.jsonl",
        job=ShardJob(options=OPTIONS, model=model),
        workers=1,
        metrics=folder / "metrics.json",
    )
    finished = run(wanted, SerialEngine())
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    metrics = [row["metrics"] for row in json.loads((folder / "metrics.json").read_bytes())["rows"]]
    return finished, rows, metrics


def excerpts_alone(number):
    return penstock.compress_trajectory(trajectory(number), target_tokens=900, summary_tokens=300)[0]


def test_a_models_words_stand_in_the_summary_checked_and_booked(tmp_path):
    with scripted_provider(handoff) as server:
        finished, rows, metrics = compress_file(tmp_path, server, 3)
    assert finished.totals.outcomes == {"compressed": 3}
    for number, (row, one) in enumerate(zip(rows, metrics, strict=True), start=1):
        text = row["conversations"][3]["value"]
        assert 'by="model"' in text
        assert f"The work order row-{number} is to be carried out." in text
        assert f"S{number}-3" in text
        assert "NASA" not in text  # what the turns do not say is struck
        assert one["model"] == "writer-1"
        assert one["model_calls"] == 1
        assert one["tokens_after"] <= 900
        assert one["summary_tokens"] <= 300
    assert finished.totals.model_prompt_tokens > 500
    assert finished.totals.cost_unknown_rows == 3  # nobody knows the price of this model


FAILURES = {
    "late": (Reply("## Goal\nToo late.", delay_seconds=30), "timeout"),
    "refuses": (Reply("I cannot help with that.", finish=Finish.REFUSED), "it refused"),
    "rubbish": (Reply("lorem ipsum dolor sit amet"), "none of the sections of a handoff"),
    "empty": (Reply(""), "empty"),
    "wrong key": (Reply.unauthorised(), "auth"),
    "broken": (Reply.server_error(), "overload"),
    "invents": (Reply("## Goal\nReach NASA-9000 by ZX-81 via `warp_core`.\n"), "struck"),
}


@pytest.mark.alone
@pytest.mark.parametrize("name", FAILURES)
def test_a_model_that_fails_leaves_excerpts_and_the_reason(name, tmp_path):
    reply, reason = FAILURES[name]
    with scripted_provider([reply], repeat_last=True) as server:
        started = time.monotonic()
        finished, rows, metrics = compress_file(tmp_path, server, 3, timeout_seconds=1.5)
        assert time.monotonic() - started < 8
    assert finished.totals.outcomes == {"degraded": 3}
    assert [row["id"] for row in rows] == [1, 2, 3]
    for number, (row, one) in enumerate(zip(rows, metrics, strict=True), start=1):
        assert row["conversations"] == excerpts_alone(number)
        assert reason in one["reason"]
        assert "model" not in one


def test_one_row_that_fails_does_not_touch_the_others(tmp_path):
    def replies(received):
        if number_of(received) % 3 == 0:
            return Reply("no", delay_seconds=30)
        return handoff(received)

    with scripted_provider(replies) as server:
        finished, rows, _ = compress_file(tmp_path, server, 9, timeout_seconds=1.5)
    assert finished.totals.outcomes == {"compressed": 6, "degraded": 3}
    modelled = ['by="model"' in row["conversations"][3]["value"] for row in rows]
    assert modelled == [True, True, False] * 3


def test_no_more_rows_wait_than_were_allowed(tmp_path):
    def slow(received):
        return Reply(handoff(received).text, delay_seconds=0.25)

    with scripted_provider(slow) as server:
        started = time.monotonic()
        finished, _, _ = compress_file(tmp_path, server, 8, concurrency=2)
        seconds = time.monotonic() - started
    assert finished.totals.outcomes == {"compressed": 8}
    assert seconds >= 4 * 0.25


def test_one_trajectory_with_a_model_and_with_a_function():
    def write(prompt):
        assert "row-5" in prompt
        return "## Goal\nThe work order row-5 is to be carried out.\n"

    turns, metrics = penstock.compress_trajectory(
        trajectory(5), target_tokens=900, summary_tokens=300, summariser=write
    )
    assert metrics.model == "write"
    assert "The work order row-5 is to be carried out." in turns[3]["value"]

    async def ask(server):
        async with connect("openai", "writer-1", base_url=server.base_url) as model:
            return await penstock.acompress_trajectory(
                trajectory(5), target_tokens=900, summary_tokens=300, summariser=model
            )

    with scripted_provider(handoff) as server:
        turns, metrics = asyncio.run(ask(server))
    assert metrics.model == "writer-1"


@pytest.mark.alone
def test_a_function_that_never_ends_is_not_waited_for():
    async def asleep(_prompt):
        await asyncio.sleep(60)

    started = time.monotonic()
    turns, metrics = penstock.compress_trajectory(
        trajectory(5), target_tokens=900, summary_tokens=300, summariser=asleep, timeout_seconds=0.3
    )
    assert time.monotonic() - started < 10
    assert metrics.outcome == "degraded"
    assert turns == excerpts_alone(5)
    assert not isinstance(metrics.reason, ProviderError)


def test_after_a_kill_no_row_is_asked_for_that_was_answered(tmp_path):
    def steady(received):
        return Reply(handoff(received).text, delay_seconds=0.1)

    source, target = saved(tmp_path / "in.jsonl", range(1, 25)), tmp_path / "out.jsonl"
    options = (
        "--target-tokens",
        "900",
        "--summary-tokens",
        "300",
        "--concurrency",
        "3",
        "--workers",
        "1",
        "--resume",
    )
    with scripted_provider(steady) as server:
        command = [COMMAND, "trajectories", source, target, *options]
        command += ["--summary-model", "writer-1", "--summary-base-url", server.base_url]
        environ = {"PATH": os.defpath, "HOME": "/nonexistent", "LANG": "C.UTF-8"}
        process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while len(server.received) < 10:
            time.sleep(0.01)
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kept = [
            json.loads(line)[1]["row"]
            for path in (tmp_path / "out.jsonl.parts").glob("summaries-*.jsonl")
            for line in path.read_text().splitlines()
        ]
        assert len(kept) >= 4
        done = subprocess.run([*command, "--json"], env=environ, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        asked = [number_of(one) for one in server.received if one.messages]
    assert json.loads(done.stdout)["totals"]["outcomes"] == {"compressed": 24}
    assert [asked.count(number) for number in kept] == [1] * len(kept)
    assert set(asked) == set(range(1, 25))
    assert len(asked) <= 24 + 3  # those that were under way when it was killed
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["id"] for row in rows] == list(range(1, 25))
    assert all('by="model"' in row["conversations"][3]["value"] for row in rows)
