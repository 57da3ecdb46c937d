"""The engine inside a real Hermes Agent, found by its entry point, with a provider that follows a script."""

from __future__ import annotations

import copy
import json

import pytest

from penstock.providers.exchange import Called
from penstock.testing import EngineContract, Reply, scripted_provider
from tests.integrations import long_task as task

REQUESTS = 200
WINDOW = 64_000  # the least that Hermes takes


@pytest.fixture
def home(tmp_path, monkeypatch):
    place = tmp_path / "hermes"
    place.mkdir()
    settings = {
        "context": {"engine": "penstock"},
        "plugins": {"enabled": ["penstock"]},
        "model": {"context_length": WINDOW},
    }
    (place / "config.yaml").write_text(json.dumps(settings))
    monkeypatch.setenv("HERMES_HOME", str(place))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for number in range(1, REQUESTS + 1):
        (tmp_path / f"part_{number}.txt").write_text(
            "\n".join(task.read_part(number, half) for half in "abc")
        )
    return tmp_path


def make_agent(address):
    from run_agent import AIAgent

    return AIAgent(
        base_url=f"{address}/v1",
        api_key="none",
        provider="custom",
        api_mode="chat_completions",
        model="gpt-4o",
        max_iterations=REQUESTS + 20,
        tool_delay=0.0,
        enabled_toolsets=["file", "context_engine"],
        quiet_mode=True,
        skip_context_files=True,
    )


def test_two_hundred_requests_with_the_engine_of_the_entry_point(home):
    numbers = []

    def reply(received):
        if not received.tools:  # a title, or another errand of the host
            return Reply("Fine.")
        numbers.append(received.number)
        number = len(numbers)
        if number >= REQUESTS:
            return Reply("All parts are read.")
        if number == REQUESTS - 3:
            return Reply.calling("history_search", query="anchor depot keys")
        if number == REQUESTS - 2:
            return Reply.calling("history_expand", handle="m2")
        calls = [Called(f"c{number}", "read_file", json.dumps({"path": str(home / f"part_{number}.txt")}))]
        if number % 3 == 0:
            calls.append(
                Called(f"d{number}", "search_files", json.dumps({"pattern": "anchor", "path": str(home)}))
            )
        return Reply(f"Reading part {number}.", calls=tuple(calls))

    with scripted_provider(reply) as provider:
        agent = make_agent(provider.base_url)
        engine = agent.context_compressor
        assert (engine.name, type(engine).__name__) == ("penstock", "HermesEngine")
        assert engine.context_length == WINDOW
        result = agent.run_conversation(task.ASKED)
        assert not [one for one in provider.violations if one.rule != "route"]
        asked = [one for one in provider.received if one.tools]
    assert "All parts are read" in result["final_response"]
    assert len(asked) == REQUESTS
    assert engine.compression_count >= 3
    assert max(one.prompt_tokens for one in asked) < WINDOW
    answers = [
        message["content"]
        for one in asked[-3:]
        for message in one.messages
        if message["role"] == "tool" and message["content"].startswith('{"')
    ]
    assert any(task.SECRET_PLACE in one for one in answers)
    assert any('"handle":"m2"' in one for one in answers)
    names = {tool["function"]["name"] for tool in asked[0].tools}
    assert {"history_search", "history_expand", "history_describe", "history_entity"} <= names


class TestContract(EngineContract):
    def make_engine(self):
        from penstock.integrations.hermes import HermesEngine

        return HermesEngine(context_length=16_000)

    def test_tools_are_described_as_function_tools(self):
        names = [schema["name"] for schema in self.make_engine().get_tool_schemas()]
        assert names == ["history_search", "history_describe", "history_expand", "history_entity"]


def test_the_host_copies_it():
    from penstock.integrations.hermes import HermesEngine

    twin = copy.deepcopy(HermesEngine(context_length=20_000))
    assert (twin.name, twin.context_length) == ("penstock", 20_000)
