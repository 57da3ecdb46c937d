"""The comparison: peers are called by their names, judged by one judge, and their failures are told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import generate, peer_compactors, peers
from benchmarks.pairs import newest_that_fit

ROOT = Path(__file__).parents[2]
SESSION = generate.coding_session(12_000, seed=4)


def talk(budget=2_000):
    def judge(kept):
        tokens = generate.message_tokens(kept)
        return (1.0, 0.5, None), tokens / 10_000, tokens, True

    return peers.Talk("coding", SESSION[:20], budget, judge, newest_that_fit)


def test_every_peer_has_a_function_and_a_version():
    assert {peer.function for peer in peers.PEERS} == set(peer_compactors.PEERS)
    assert all("==" in peer.requirement and peer.unfair for peer in peers.PEERS)
    assert peers.PEERS[0].title.endswith(peers.PEERS[0].requirement.partition("==")[2])


def test_a_result_is_judged_and_a_failure_is_nothing_kept():
    results = [{"messages": SESSION[:2], "seconds": 0.5}, {"error": "TypeError: no", "seconds": 0.1}]
    kept, failed = peers._judge("a peer", [talk(), talk()], results)
    assert (kept.failed, failed.failed) == (False, True)
    assert kept.kept > failed.kept == 0
    row = peers._row("coding: a peer", [kept, failed])
    assert [str(cell) for cell in row[-4:]] == ["0", "1", "100.0 %", "0.30 s"]


def test_a_peer_that_passes_its_budget_is_counted():
    (judged,) = peers._judge("a peer", [talk(10)], [{"messages": SESSION[:8], "seconds": 0.5}])
    assert judged.over
    assert "1 of 1" in [str(cell) for cell in peers._brief_row("a peer", [judged])]


@pytest.mark.outside
def test_a_peer_that_ends_early_is_an_error_with_its_last_words():
    command = [sys.executable, "-c", "import sys; sys.exit('out of memory')"]
    with pytest.raises(RuntimeError, match="out of memory"):
        peers._run_child(command, [talk()])


@pytest.mark.outside
def test_our_side_answers_each_case_within_its_budget():
    (told,) = peers._run_child([sys.executable, "-m", "benchmarks.peers"], [talk(3_000)])
    system = generate.message_tokens([message for message in told["messages"] if message["role"] == "system"])
    assert generate.message_tokens(told["messages"]) - system <= 3_000
    assert told["seconds"] > 0


@pytest.mark.outside
def test_a_peer_answers_over_its_pipe():
    pytest.importorskip("langchain_core")
    case = json.dumps({"messages": SESSION[:20], "budget": 2_000}) + "\n"
    script = ROOT / "benchmarks" / "peer_compactors.py"
    done = subprocess.run(
        [sys.executable, script, "langchain-trim"], input=case, capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["messages"][-1]["content"] == SESSION[19]["content"]


@pytest.mark.outside  # a framework takes its time to load
@pytest.mark.parametrize("name", ["pydantic-ai", "agent-framework"])
def test_messages_survive_the_way_to_a_framework_and_back(name):
    messages = [message for message in SESSION[:20] if message["role"] != "system"]
    if name == "pydantic-ai":
        told = pytest.importorskip("pydantic_ai.messages")
        back = peer_compactors._from_pydantic_ai(told, peer_compactors._to_pydantic_ai(told, messages))
    else:
        framework = pytest.importorskip("agent_framework")
        native = peer_compactors._to_agent_framework(framework, messages)
        back = peer_compactors._from_agent_framework(native)
    assert [(m["role"], m.get("content") or None, m.get("tool_calls")) for m in back] == [
        (m["role"], m.get("content") or None, m.get("tool_calls")) for m in messages
    ]
