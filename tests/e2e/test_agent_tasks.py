"""The agent tasks, end to end: a reader that sees all does them, and one that forgets, or a view that lost it, does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import tasks
from benchmarks.options import Endpoint, Options
from benchmarks.report import markdown
from benchmarks.task_list import MAKERS, SKILLS, Done, make_tasks
from benchmarks.task_reader import Reader, see_this_turn
from benchmarks.tasks import Arm, run_arm
from tests.unit.engine.plugin_stage import LAST_TURNS, write_plugin

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.speakers import last_request
from penstock.testing import Reply, scripted_provider

ROOT = Path(__file__).parents[2]
PRICED = "claude-sonnet-4-5"
ALL = make_tasks(1)
SOME = [task for task in ALL if task.kind in {"an id from turn 1", "work done once", "its own choice"}]


def run(reader, chosen=ALL, share=None, settings=()):
    with scripted_provider(reader) as server:
        arm = Arm("tested", Endpoint("any", "openai", server.base_url), share, settings=settings)
        results = run_arm(arm, chosen, jobs=2)
        assert server.violations == ()
    return results


def undone(results):
    assert not [result for result in results if result.failed]
    return {result.task.kind: result.wrong for result in results if result.wrong}


def test_a_reader_that_is_shown_everything_does_every_task():
    results = run(Reader(SKILLS))
    assert undone(results) == {}
    assert len(results) == len(MAKERS)
    assert all(result.compactions == 0 for result in results)


def test_a_reader_that_may_recall_does_every_task_after_compactions():
    results = run(Reader(SKILLS, recalls=True), share=0.25)
    assert undone(results) == {}
    assert {result.compactions for result in results} == {2}


def test_a_reader_that_forgets_does_no_task():
    assert undone(run(Reader(SKILLS, sees=see_this_turn))).keys() == MAKERS.keys()


def test_a_compaction_that_loses_the_beginning_fails_every_task(tmp_path):
    folder = tmp_path / "plugins"
    write_plugin(folder, text=LAST_TURNS)
    settings = (
        ("context.engine", "last-turns"),
        ("plugins.folder", str(folder)),
        ("agent.remember", False),  # what a person said to remember would outlive any engine
    )
    assert undone(run(Reader(SKILLS), share=0.25, settings=settings)).keys() == MAKERS.keys()


@pytest.mark.parametrize("provider", ["responses", "anthropic"])
def test_other_dialects_do_the_same(provider):
    with scripted_provider(Reader(SKILLS)) as server:
        for share in (None, 0.25):
            assert (
                undone(run_arm(Arm("tested", Endpoint("any", provider, server.base_url), share), SOME)) == {}
            )
        assert server.violations == ()


def test_compactions_make_the_requests_smaller():
    whole, compacted = (run(Reader(SKILLS), SOME, share) for share in (None, 0.25))
    for before, after in zip(whole, compacted, strict=True):
        assert after.requests == before.requests
        assert after.prompt_tokens < 0.8 * before.prompt_tokens


def test_a_model_that_does_nothing_fails_every_check(tmp_path):
    for number, task in enumerate(make_tasks(2)):
        folder = tmp_path / str(number)
        for name, text in task.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        turns = len(task.turns)
        assert task.check(Done(folder, ["I did it."] * turns, [[]] * turns)), task.name


def test_an_endpoint_that_cannot_be_asked_is_named_after_one_try():
    with scripted_provider(Reader(SKILLS), api_key="right") as server:
        (table,) = tasks.run(Options(endpoint=Endpoint("any", "openai", server.base_url)))
        assert len(server.received) == 1
    assert not table.columns
    assert "any could not be asked" in markdown(table)


def test_the_command_prints_success_requests_tokens_and_price_and_no_key(tmp_path):
    key, file = "key-of-nobody-4711", tmp_path / "tasks.json"
    with scripted_provider(Reader(SKILLS), api_key=key) as server:
        command = [sys.executable, "-m", "benchmarks", "tasks", "--quick", "--jobs", "2", "--json", str(file)]
        command += ["--model", PRICED, "--provider", "anthropic", "--base-url", server.base_url]
        command += [
            "--api-key-env",
            "TASKS_KEY",
            "--only",
            "an id",
            "--keep",
            "0.5",
            "--keep",
            "0.2",
            "--summaries",
        ]
        environment = {**os.environ, "TASKS_KEY": key}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=120
        )
        requests = len(server.received)
    assert done.returncode == 0, done.stderr
    assert key not in done.stdout + done.stderr + file.read_text()
    totals, kinds = json.loads(file.read_text())["tables"]
    arms = ["not compacted"] + [
        f"compacted to {share} %{more}" for share in (50, 20) for more in ("", ", with summaries")
    ]
    assert [row[0] for row in totals["rows"]] == arms
    columns = totals["columns"]
    for row in totals["rows"]:
        told = dict(zip(columns, row, strict=True))
        assert told["done (floor)"]["value"] == 100
        assert told["prompt tokens"]["value"] > 1_000
        assert told["price"].startswith("$0.")
        assert told["compactions"]["value"] == (0 if row[0] == "not compacted" else 2)
    assert sum(row[columns.index("requests")]["value"] for row in totals["rows"]) == requests
    assert kinds["rows"] == [["an id from turn 1", *["1 of 1"] * 5]]


def test_no_command_and_no_code_of_the_model_gets_the_key(monkeypatch, tmp_path):
    key = "key-of-nobody-0815"
    monkeypatch.setenv("TASKS_KEY", key)
    leaking = (
        f"import os, pathlib\npathlib.Path({str(tmp_path / 'seen')!r}).write_text(str(dict(os.environ)))\n"
    )
    seen = []

    steps = [
        Reply.calling("terminal", command="env"),
        Reply.calling("write_file", path="price.py", content=leaking),
    ]

    def leak(received):
        seen.append(received.text)
        messages = decode_all(dialect_named("chat"), received.messages)
        done = (len(messages) - 1 - last_request(messages)) // 2
        return steps[done] if done < len(steps) else "Done."

    chosen = [task for task in ALL if task.kind == "code to a description"]
    with scripted_provider(leak, api_key=key) as server:
        endpoint = Endpoint("any", "openai", server.base_url, "TASKS_KEY")
        (result,) = run_arm(Arm("tested", endpoint), chosen)
    assert result.wrong
    assert not result.failed
    assert any("PATH=" in text for text in seen)
    assert "PATH" in (tmp_path / "seen").read_text()
    assert key not in "".join(seen) + (tmp_path / "seen").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"), [(["--base-url", "http://localhost:1"], "--model"), (["--keep", "1.5"], "1.5")]
)
def test_what_cannot_be_meant_is_refused(arguments, said):
    command = [sys.executable, "-m", "benchmarks", "tasks", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr
