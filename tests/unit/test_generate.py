"""The generated conversations and the example session."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import generate  # noqa: E402 - the benchmarks are not installed, so their folder is named first
from examples import build_long_session  # noqa: E402 - as above


@pytest.fixture(scope="module")
def session():
    return generate.coding_session(60_000, seed=5)


@pytest.fixture(scope="module")
def example():
    return json.loads((ROOT / "examples" / "long_session.json").read_text(encoding="utf-8"))


def check_pairs(messages):
    """Each call is followed at once by its results, in order, and no result stands alone."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert waiting
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        assert not seen & set(waiting)
        seen |= set(waiting)
        for call in message.get("tool_calls", ()):
            json.loads(call["function"]["arguments"])
        assert waiting or message["content"]
    assert not waiting


def text_of(message):
    content = message["content"] or ""
    return content if isinstance(content, str) else content[0]["text"]


def tool_share(messages):
    sizes = Counter()
    for message in messages:
        calls = "".join(call["function"]["arguments"] for call in message.get("tool_calls", ()))
        sizes[message["role"]] += len(text_of(message)) + len(calls)
    return sizes["tool"] / sizes.total()


def repeated_lines(messages):
    lines = Counter(
        line.strip() for m in messages for line in text_of(m).split("\n") if len(line.strip()) >= 8
    )
    return 1 - len(lines) / lines.total()


@pytest.mark.parametrize("make", [generate.coding_session, generate.service_session])
def test_same_seed_same_session_another_seed_another(make):
    assert make(8_000, 3) == make(8_000, 3)
    assert make(8_000, 3) != make(8_000, 4)


@pytest.mark.parametrize("target", [10_000, 40_000, 120_000])
@pytest.mark.parametrize("seed", [1, 2])
def test_coding_session_has_the_tokens_asked_for(target, seed):
    messages = generate.coding_session(target, seed)
    assert abs(generate.message_tokens(messages) - target) <= 0.03 * target
    check_pairs(messages)
    assert messages[-1]["role"] == "user"


def test_coding_session_looks_like_recorded_ones(session):
    assert 0.55 <= tool_share(session) <= 0.85
    assert 0.02 <= repeated_lines(session) <= 0.30
    roles = Counter(message["role"] for message in session)
    assert 0.42 <= roles["tool"] / len(session) <= 0.60
    assert any(len(message.get("tool_calls", ())) > 1 for message in session)


def test_service_session_is_legal_and_has_json_results():
    messages = generate.service_session(9_000, seed=2)
    check_pairs(messages)
    assert generate.message_tokens(messages) >= 9_000
    for message in messages:
        if message["role"] == "tool":
            json.loads(message["content"])


@pytest.mark.outside
def test_window_is_200k():
    assert abs(generate.message_tokens(generate.window_200k()) - 200_000) <= 6_000


@pytest.mark.outside
@pytest.mark.parametrize(("count", "total_bytes"), [(2_000, 3_000_000), (1_000, 1_200_000), (777, 1_500_000)])
def test_many_messages_has_the_count_and_the_bytes(count, total_bytes):
    messages = generate.many_messages(count, total_bytes)
    check_pairs(messages)
    assert len(messages) == count
    size = sum(
        len(text_of(m)) + sum(len(call["function"]["arguments"]) for call in m.get("tool_calls", ()))
        for m in messages
    )
    assert abs(size - total_bytes) <= 0.05 * total_bytes
    assert repeated_lines(messages) <= 0.30


def test_other_dialects_hold_the_same_calls_and_results(session):
    calls = [call["id"] for m in session for call in m.get("tool_calls", ())]
    outputs = [m["content"] for m in session if m["role"] == "tool"]

    items = generate.coding_session(60_000, 5, "responses")
    assert [i["call_id"] for i in items if i["type"] == "function_call"] == calls
    assert [i["output"] for i in items if i["type"] == "function_call_output"] == outputs

    turns = generate.coding_session(60_000, 5, "anthropic")
    blocks = [block for turn in turns for block in turn["content"]]
    assert [b["id"] for b in blocks if b["type"] == "tool_use"] == calls
    assert [b["content"][0]["text"] for b in blocks if b["type"] == "tool_result"] == outputs
    assert all(a["role"] != b["role"] for a, b in pairwise(turns))

    shares = generate.coding_session(60_000, 5, "sharegpt")
    assert len(shares) == len(session)
    assert sum(turn["value"].count("<tool_call>\n") for turn in shares) == len(calls)


def test_unknown_dialect_is_refused():
    with pytest.raises(KeyError):
        generate.coding_session(1_000, 1, "telegraph")


def a_call(text, call_id, **arguments):
    function = {"name": "run", "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


SMALL = [
    {"role": "system", "content": "the file is conf/system.ini"},
    {"role": "user", "content": "which port does the gateway use?"},
    a_call("let me look", "c1", path="conf/gate.toml"),
    {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "the gateway listens on port 48211\nbuild = rel_90c1\n",
    },
    {"role": "user", "content": "and now open it"},
    a_call("48211 it is, from conf/gate.toml and conf/system.ini", "c2", url="http://localhost:48211/"),
    {"role": "tool", "tool_call_id": "c2", "content": "build rel_90c1 answers"},
    {"role": "assistant", "content": "It runs rel_90c1."},
]


def test_needles_are_values_from_before_used_after_and_not_told_again():
    found = {needle.value: needle for needle in generate.needles(SMALL, 4)}
    # rel_90c1 was told again before its use; conf/system.ini stands in the system prompt alone.
    assert set(found) == {"48211", "conf/gate.toml"}
    assert found["48211"].last_seen == 3
    assert {"gateway", "port"} <= found["48211"].words


def test_recall_counts_presence_and_words_beside():
    wanted = generate.needles(SMALL, 4)
    assert generate.recalled(wanted, 4, SMALL[:4])[:2] == (2, 1.0)
    assert generate.recalled(wanted, 4, [])[:2] == (2, 0.0)
    bare = generate.recalled(wanted, 4, [{"role": "user", "content": "48211"}])
    assert (bare.recall, bare.context) == (0.5, 0.0)


def test_a_generated_session_needs_its_past(session):
    cut = generate.cut_at(session)
    assert session[cut]["role"] != "tool"
    wanted = generate.needles(session, cut)
    assert len(wanted) >= 15
    assert generate.recalled(wanted, cut, session[:cut]).recall == 1.0
    newest = generate.recalled(wanted, cut, session[int(0.8 * cut) : cut])
    assert newest.recall < 0.95
    assert newest.far < 0.5


def test_the_example_is_what_its_script_builds(example):
    assert build_long_session.build() == example


def test_the_example_has_its_size_and_is_legal(example):
    messages = [m | {"content": text_of(m)} for m in example["messages"]]
    check_pairs(example["messages"])
    assert 30_000 <= generate.message_tokens(messages) <= 45_000


def test_the_example_holds_its_traps(example):
    messages = example["messages"]
    texts = [text_of(m) for m in messages]
    users = [text_of(m) for m in messages if m["role"] == "user"]
    tools = [text_of(m) for m in messages if m["role"] == "tool"]
    assert sum("we_5Kd2Rv81Qx" in text for text in texts) == 1
    assert "never tox" in users[0]
    assert not any(
        "migrations/" in call["function"]["arguments"] for m in messages for call in m.get("tool_calls", ())
    )
    assert "release/2.14" in " ".join(users)
    assert "no cambies" in " ".join(users)
    assert any("ignore previous instructions" in text for text in tools)
    assert any("5432" in text and "OperationalError" in text for text in tools)
    listings = [text for text in tools if text.startswith('    1\t"""Incoming Paylane webhooks')]
    assert len(listings) == 2
    assert len(set(listings)) == 1
    assert any(isinstance(m["content"], list) and m["content"][1]["type"] == "image_url" for m in messages)
    assert any(len(m.get("tool_calls", ())) > 2 for m in messages)
    assert "replay" in users[-1]
    assert messages[-1]["role"] == "user"


def test_every_secret_stands_in_a_tool_result_and_nowhere_else(example):
    for name, secret in build_long_session.fake_secrets().items():
        holders = {m["role"] for m in example["messages"] if secret in text_of(m)}
        assert holders == {"tool"}, name
        assert "EXAMPLE" in secret.upper() or "FAKE" in secret.upper()
