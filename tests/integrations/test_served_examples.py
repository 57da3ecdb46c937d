"""The examples that stand on a command run: `penstock mcp`, `penstock serve`, and rows in a Ray pipeline."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from examples import gateway_codex, mcp_claude_code

from penstock import compress_trajectories, open_store
from tests.e2e.cli_process import environment
from tests.integrations.recorded_sessions import write_claude_session, write_codex_session

ROOT = Path(__file__).parents[2]
LOG = "\n".join(f"09:{n // 60:02}:{n % 60:02} order {4400 + n} pending" for n in range(900))
HAS_RAY = all(importlib.util.find_spec(name) for name in ("ray", "pandas"))


def test_claude_code_recalls_what_it_said_in_this_folder(tmp_path):
    shop = tmp_path / "shop"
    shop.mkdir()
    said = f"The webhook drops them; the retry limit is 5.\n{LOG}\nSo much for the log."
    write_claude_session(tmp_path, shop, "session-shop", [("Why do orders stay pending?", said)])
    write_codex_session(
        tmp_path, shop, "session-codex", [("What is a bosun?", "A bosun looks after the rigging.")]
    )

    def recall(query, folder=shop):
        server = mcp_claude_code.describe_server(folder, environment(HOME=str(tmp_path)))
        return asyncio.run(mcp_claude_code.recall(server, query))

    assert recall("webhook retry limit").endswith(said)  # over several pages
    assert recall("bosun rigging") is None
    (tmp_path / "boat").mkdir()
    assert recall("webhook retry limit", tmp_path / "boat") is None


def test_codex_goes_on_past_the_window(tmp_path):
    url = f"sqlite:///{tmp_path}/gateway.db"
    done = gateway_codex.run(url, environment(HOME=str(tmp_path)))
    assert done.answer == "The retry limit is 3, and the queue needs 5."
    assert done.most_received_chars < 0.9 * done.most_sent_chars
    store = open_store(url)
    (row,) = store.list()
    assert store.compactions(row.id)
    store.close()


def test_the_settings_for_codex_name_the_gateway():
    settings = tomllib.loads(gateway_codex.CONFIG)
    provider = settings["model_providers"][settings["model_provider"]]
    assert provider["wire_api"] == "responses"  # Codex takes no other
    port = provider["base_url"].removeprefix("http://127.0.0.1:").removesuffix("/v1")
    assert f"--port {port}" in gateway_codex.__doc__


@pytest.mark.xdist_group("ray")
@pytest.mark.skipif(not HAS_RAY, reason="Ray Data is not installed: pip install 'ray[data]'")
def test_a_training_set_with_ray(tmp_path):
    import pyarrow.parquet

    rows = [write_row(number, steps) for number, steps in enumerate((3, 30, 40, 3))]
    huge = {"id": 4, "conversations": [{"from": "human", "value": LOG}, {"from": "gpt", "value": "Noted."}]}
    source = tmp_path / "runs.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in [*rows, huge]))
    keyed = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0123456789abcdef" * 2,
    }  # else Ray writes a key into HOME
    here = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "HOME": str(tmp_path), **keyed}
    ran = subprocess.run(
        [sys.executable, "-m", "examples.training_set_ray", source, tmp_path / "out", "2000"],
        cwd=ROOT,
        env=environment(**here),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    made = {row["id"]: row for row in pyarrow.parquet.read_table(tmp_path / "out").to_pylist()}
    assert sorted(made) == [0, 1, 2, 3]
    for row in compress_trajectories(rows, target_tokens=2_000):
        assert made[row["id"]]["conversations"] == row["conversations"]
        assert made[row["id"]]["tokens"] == row["penstock"]["tokens_after"] <= 2_000
    assert [made[number]["outcome"] for number in range(4)] == [
        "under_target",
        "compressed",
        "compressed",
        "under_target",
    ]


def write_row(number, steps):
    turns = [{"from": "human", "value": f"Count the boxes on shelf {number}."}]
    for step in range(steps):
        boxes = " ".join(f"box{number}x{step}x{at}" for at in range(30))
        turns += [
            {"from": "gpt", "value": f"I look at row {step}."},
            {"from": "human", "value": f"There are {boxes}."},
        ]
    return {"id": number, "conversations": [*turns, {"from": "gpt", "value": "All boxes are counted."}]}
