"""The built-in engine with the session's own model, and the command with one: real HTTP, real processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import penstock
from penstock.settings import settings_from
from penstock.testing import PromptCache, Reply, scripted_provider

GOOD = "## Goal\nFinish the parts one by one.\n## Active State\n- Work goes on.\n"


def talk(rounds=40):
    """Chat messages with a call and a long result in each round."""
    messages = [{"role": "user", "content": "Never touch migrations/. Go through the parts, please."}]
    for n in range(rounds):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "read_file", "arguments": f'{{"path": "part_{n}.py"}}'},
        }
        text = "\n".join(f"def handle_{n}_{line}(event): return route_{line}(event)" for line in range(30))
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": text},
        ]
    return [
        *messages,
        {"role": "assistant", "content": "All read."},
        {"role": "user", "content": "Now part_7.py."},
    ]


def engine(**settings):
    return penstock.ContextCompressor(64_000, settings=settings_from(settings))


def handoff_of(messages):
    return next(
        str(message["content"]) for message in messages if "<penstock-handoff" in str(message["content"])
    )


def test_the_session_s_own_model_writes_at_the_end_of_the_conversation():
    messages = talk()
    with scripted_provider([GOOD]) as server:
        compressor = engine()
        compressor.update_model("big-model", 64_000, base_url=server.base_url, provider="openai")
        result = compressor.compact(messages, target_tokens=2_000)
        (received,) = server.received
        assert not server.violations
    assert "Finish the parts one by one." in handoff_of(result.messages)
    assert received.body["messages"][: len(messages)] == messages
    assert received.body["model"] == "big-model"
    assert result.receipt.model == "big-model"
    assert result.receipt.model_calls == 1


def test_a_key_goes_to_the_model_and_nowhere_else(caplog):
    key = "sk-" + "synthetic" * 4
    with scripted_provider([GOOD], api_key=key) as server:
        compressor = engine()
        compressor.update_model("big-model", 64_000, base_url=server.base_url, api_key=key)
        result = compressor.compact(talk(), target_tokens=4_000)
    assert result.receipt.outcome == "compacted"
    assert (
        key not in repr(vars(compressor)) + str(result.receipt) + str(result.receipt.to_dict()) + caplog.text
    )


def test_a_model_that_fails_loses_nothing():
    messages = talk()
    with scripted_provider([Reply.unauthorised()]) as server:
        compressor = engine()
        compressor.update_model("big-model", 64_000, base_url=server.base_url)
        result = compressor.compact(messages, target_tokens=2_000)
        asked = len(server.received)
        again = compressor.compact(messages, target_tokens=2_000)
        assert len(server.received) == asked  # it rests
    assert result.receipt.outcome == again.receipt.outcome == "degraded"
    assert "auth" in result.receipt.reason
    for number, message in enumerate(messages, 1):
        assert compressor.original(f"m{number}") == message


def test_in_an_emergency_no_model_is_asked():
    with scripted_provider([GOOD]) as server:
        compressor = engine()
        compressor.update_model("big-model", 64_000, base_url=server.base_url)
        compressor.update_from_response({"prompt_tokens": 62_000, "completion_tokens": 1})
        result = compressor.compact(talk(), target_tokens=4_000)
        assert server.received == ()
    assert result.receipt.outcome == "compacted"
    assert result.receipt.model_calls == 0


def test_asking_whether_there_is_something_to_compress_asks_no_model():
    with scripted_provider([GOOD]) as server:
        compressor = engine()
        compressor.update_model("big-model", 64_000, base_url=server.base_url)
        compressor.has_content_to_compress(talk())
        assert server.received == ()


def test_a_provider_that_is_not_known_leaves_the_session_without_a_summariser():
    compressor = engine()
    compressor.update_model("big-model", 64_000, provider="no-such-provider")
    assert compressor.compact(talk(), target_tokens=4_000).receipt.outcome == "compacted"


def run(*args, cwd, **variables):
    return subprocess.run(
        [sys.executable, "-m", "penstock", "compress", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd), **variables},
    )


@pytest.fixture
def session(tmp_path):
    path = tmp_path / "session.json"
    path.write_text(json.dumps(talk()))
    return path


@pytest.mark.parametrize("provider", ["openai", "responses", "anthropic"])
def test_the_command_asks_a_model(session, provider):
    with scripted_provider([GOOD]) as server:
        done = run(
            *(
                "session.json",
                "--target-tokens",
                "20%",
                "--summary-model",
                "claude-haiku-4-5",
                "-o",
                "small.json",
            ),
            *("--summary-provider", provider, "--summary-base-url", server.base_url, "--json"),
            cwd=session.parent,
        )
        assert not server.violations
        assert len(server.received) == 1
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)
    assert receipt["model"] == "claude-haiku-4-5"
    assert receipt["cost"] > 0
    assert receipt["attempts"][0]["way"] == "from the turns"
    assert "Finish the parts one by one." in (session.parent / "small.json").read_text()


def test_the_command_tells_what_degraded(session):
    with scripted_provider([Reply.overloaded()], repeat_last=True) as server:
        done = run(
            *("session.json", "--target-tokens", "20%", "--summary-model", "m", "-o", "small.json"),
            *("--summary-base-url", server.base_url),
            cwd=session.parent,
        )
    assert done.returncode == 0
    assert "degraded" in done.stdout
    assert "overload" in done.stdout
    assert (session.parent / "small.json").exists()


def test_a_missing_key_is_one_clear_line(session):
    done = run(
        "session.json",
        "--target-tokens",
        "20%",
        "--summary-model",
        "gpt-4.1-mini",
        "-o",
        "s.json",
        cwd=session.parent,
    )
    assert done.returncode == 2
    assert "OPENAI_API_KEY" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (session.parent / "s.json").exists()


def test_a_provider_without_a_model_is_a_mistake(session):
    done = run("session.json", "--summary-provider", "openai", cwd=session.parent)
    assert done.returncode == 2
    assert "--summary-model" in done.stderr


def test_the_settings_name_the_model_too(session):
    with scripted_provider([GOOD]) as server:
        done = run(
            *("session.json", "--target-tokens", "20%", "-o", "small.json", "--json"),
            cwd=session.parent,
            PENSTOCK_AUXILIARY_MODE="custom",
            PENSTOCK_AUXILIARY_COMPRESSION_MODEL="small-model",
            PENSTOCK_AUXILIARY_COMPRESSION_BASE_URL=server.base_url,
        )
        assert len(server.received) == 1, done.stderr
    assert json.loads(done.stdout)["model"] == "small-model"


def anthropic_talk(marks):
    text = "def handle(event): return route(event)\n" * 40
    turns = [{"role": "user", "content": "Read the parts, please."}]
    for n in range(30):
        use = {"type": "tool_use", "id": f"c{n}", "name": "read_file", "input": {"path": f"part_{n}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"part_{n}\n{text}"}
        if n < marks:
            result["cache_control"] = {"type": "ephemeral"}
        turns += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return [*turns, {"role": "assistant", "content": "Read."}, {"role": "user", "content": "Now part_7."}]


@pytest.mark.parametrize("marks", [0, 3, 4])
def test_the_prefix_is_read_from_the_cache_and_no_mark_is_one_too_many(marks):
    with scripted_provider([GOOD], prompt_cache=PromptCache()) as server:
        compressor = engine()
        compressor.update_model("claude-x", 64_000, base_url=server.base_url, provider="anthropic")
        compressor.compact(anthropic_talk(marks), target_tokens=1_500)
        (received,) = server.received
        assert not server.violations
    assert json.dumps(received.body).count('"cache_control"') == min(4, marks + 1)
