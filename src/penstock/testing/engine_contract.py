"""The contract of `ContextEngine`, as tests that any engine can be held to.

    from penstock.testing.engine_contract import EngineContract

    class TestMyEngine(EngineContract):
        def make_engine(self):
            return MyEngine(context_length=32_000)

pytest finds the methods by their names; without pytest, `check_engine(make_engine)` runs them all. Nothing here
imports a test framework.
"""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.rules import check
from penstock.engine.contract import ContextEngine

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EngineContract", "agent_turns", "check_engine", "long_conversation"]

Chat = list[dict[str, Any]]

_STATUS = {
    "last_prompt_tokens",
    "threshold_tokens",
    "context_length",
    "usage_percent",
    "compression_count",
}
_USAGES: tuple[dict[str, Any], ...] = (
    {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050},
    {"input_tokens": 1_000, "output_tokens": 50, "input_tokens_details": {"cached_tokens": 400}},
    {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 900},
)
_RUBBISH: tuple[dict[str, Any], ...] = (
    {},
    {"prompt_tokens": None},
    {"prompt_tokens": -5, "completion_tokens": "many"},
    {"input_tokens": float("nan"), "output_tokens": []},
)


def long_conversation(turns: int = 30) -> Chat:
    """A chat of an agent at work, with a system prompt and a last request."""
    system = {"role": "system", "content": "You are a coding agent."}
    return [system, *agent_turns(0, turns), {"role": "user", "content": "Which part names owner_17?"}]


def agent_turns(first: int, end: int) -> Chat:
    """Turns of that chat, from the one with the number `first` on: each a request, a call with a long result, and an answer."""
    messages: Chat = []
    for turn in range(first, end):
        call_id = f"call_{turn}"
        function = {"name": "read_file", "arguments": json.dumps({"path": f"src/part_{turn}.py"})}
        lines = [f"def step_{turn}_{line}(job): return job.owner_{line}" for line in range(60)]
        messages += [
            {"role": "user", "content": f"Look at part {turn}."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call_id, "content": "\n".join(lines)},
            {"role": "assistant", "content": f"Part {turn} is fine."},
        ]
    return messages


class EngineContract(ABC):
    """What a host relies on. Subclass it and say how the engine is made.

    The engine that `make_engine` returns is fresh each time and may know nothing of earlier ones.
    """

    @abstractmethod
    def make_engine(self) -> ContextEngine:
        """A fresh engine."""

    def conversation(self) -> Chat:
        """A legal conversation that the engine can make smaller."""
        return long_conversation()

    def test_it_is_an_engine_with_a_name(self) -> None:
        """A host chooses engines by name."""
        engine = self.make_engine()
        _require(isinstance(engine, ContextEngine), "an engine is a ContextEngine")
        _require(bool(engine.name) and engine.name == engine.name.strip(), "its name is a plain word")
        _require(engine.name == self.make_engine().name, "its name does not change")

    def test_a_fresh_engine_has_seen_nothing(self) -> None:
        """All counters start at 0."""
        engine = self.make_engine()
        counters = (engine.last_prompt_tokens, engine.last_completion_tokens, engine.last_total_tokens)
        _require(counters == (0, 0, 0), "no tokens are known before a response")
        _require(engine.compression_count == 0, "nothing was compressed")
        _require(not engine.should_compress(), "without tokens there is no need to compress")

    def test_limits_are_sensible(self) -> None:
        """The threshold lies inside the window."""
        engine = self.make_engine()
        _require(0 < engine.threshold_tokens <= engine.context_length, "0 < threshold ≤ window")
        _require(0 < engine.threshold_percent <= 1, "the threshold is a share")
        _require(engine.protect_first_n >= 0 and engine.protect_last_n >= 1, "counts of messages")

    def test_usage_of_every_provider_is_understood(self) -> None:
        """Prompt tokens include what was read from a cache."""
        for usage in _USAGES:
            engine = self.make_engine()
            given = copy.deepcopy(usage)
            engine.update_from_response(usage)
            _require(engine.last_prompt_tokens == 1_000, f"the prompt of {usage} is 1,000 tokens")
            _require(engine.last_completion_tokens == 50, f"the completion of {usage} is 50 tokens")
            _require(engine.last_total_tokens == 1_050, f"the total of {usage} is 1,050 tokens")
            _require(usage == given, "what was reported is not changed")

    def test_usage_that_says_nothing_does_no_harm(self) -> None:
        """Missing, null and negative numbers never raise and never count below 0."""
        for usage in _RUBBISH:
            engine = self.make_engine()
            engine.update_from_response(usage)
            _require(engine.last_prompt_tokens >= 0, f"no negative prompt from {usage}")
            _require(engine.last_completion_tokens >= 0, f"no negative completion from {usage}")

    def test_it_compresses_at_the_threshold_and_not_at_once(self) -> None:
        """The last reported prompt decides where no number is given."""
        engine = self.make_engine()
        _require(not engine.should_compress(1), "one token is no reason")
        _require(engine.should_compress(engine.context_length), "a full window is one")
        engine.update_from_response({"prompt_tokens": engine.context_length, "completion_tokens": 1})
        _require(engine.should_compress(), "the reported prompt counts where no number is given")
        engine.update_from_response({"prompt_tokens": 1, "completion_tokens": engine.context_length})
        _require(not engine.should_compress(), "completion tokens never decide")

    def test_compressing_changes_nothing_that_was_given(self) -> None:
        """Neither the list nor a message in it."""
        messages = self.conversation()
        before = copy.deepcopy(messages)
        self.make_engine().compress(messages)
        _require(messages == before, "the messages are the host's")

    def test_the_result_is_a_legal_conversation_and_no_longer(self) -> None:
        """Every result has its call, roles fit, and the last word of the user is still there."""
        messages = self.conversation()
        result = self.make_engine().compress(messages)
        _require(isinstance(result, list), "the result is a list")
        _require(all(isinstance(message, dict) for message in result), "of OpenAI-format dicts")
        _require(len(json.dumps(result)) <= len(json.dumps(messages)), "it is not longer than before")
        chat = DIALECTS["chat"]
        broken = check(decode_all(chat, result), chat.rules)
        _require(broken == [], f"no rule is broken: {broken}")
        asked = [message["content"] for message in messages if message["role"] == "user"][-1]
        _require(asked in json.dumps(result, ensure_ascii=False), "the last request stands in the result")

    def test_nothing_to_compress_is_no_error(self) -> None:
        """Empty and short lists come back as they are."""
        short = [{"role": "user", "content": "Hello."}]
        _require(self.make_engine().compress([]) == [], "an empty list stays empty")
        _require(self.make_engine().compress(short) == short, "one message stays one message")

    def test_the_same_messages_give_the_same_result(self) -> None:
        """Fresh engines agree."""
        first, second = (self.make_engine().compress(self.conversation()) for _ in range(2))
        _require(first == second, "the result depends on the messages alone")

    def test_the_status_has_its_keys_and_no_share_over_100(self) -> None:
        """What a status line shows."""
        engine = self.make_engine()
        engine.update_from_response({"prompt_tokens": 3 * engine.context_length, "completion_tokens": 1})
        status = engine.get_status()
        _require(status.keys() >= _STATUS, f"the status has {', '.join(sorted(_STATUS))}")
        _require(0 <= status["usage_percent"] <= 100, "a share of the window is at most 100 %")
        json.dumps(status)

    def test_a_smaller_model_lowers_the_threshold(self) -> None:
        """A host that switches models tells the engine."""
        engine = self.make_engine()
        window = max(1_024, engine.context_length // 4)
        engine.update_model("a-smaller-model", window, base_url="", api_key="", provider="")
        _require(engine.context_length == window, "the window is the new model's")
        _require(0 < engine.threshold_tokens <= window, "the threshold follows")
        _require(engine.should_compress(window), "a full window is full for the new model")

    def test_sessions_may_start_switch_reset_and_end(self) -> None:
        """No hook raises; a reset forgets the conversation and keeps the model."""
        engine = self.make_engine()
        window = engine.context_length
        engine.on_session_start("one", model="some-model")
        engine.update_from_response({"prompt_tokens": 1_000, "completion_tokens": 10})
        engine.compress(self.conversation())
        engine.on_session_switch("one", "two", "compression")
        engine.on_session_end("two", self.conversation())
        engine.on_session_reset()
        counters = (engine.last_prompt_tokens, engine.last_completion_tokens, engine.compression_count)
        _require(counters == (0, 0, 0), "a reset forgets what was counted")
        _require(engine.context_length == window, "a reset keeps the model")

    def test_tools_are_described_and_answered_in_json(self) -> None:
        """A tool nobody knows is an answer, not an exception."""
        engine = self.make_engine()
        schemas = engine.get_tool_schemas()
        _require(isinstance(schemas, list), "schemas come as a list")
        json.dumps(schemas)
        answer = json.loads(engine.handle_tool_call("no_such_tool", {}))
        _require("error" in answer, "an unknown tool is answered with an error")

    def test_questions_before_a_request_are_answered(self) -> None:
        """Both optional questions have an answer and change nothing."""
        engine = self.make_engine()
        messages = self.conversation()
        before = copy.deepcopy(messages)
        _require(isinstance(engine.should_compress_preflight(messages), bool), "yes or no")
        _require(isinstance(engine.has_content_to_compress(messages), bool), "yes or no")
        _require(messages == before, "asking changes nothing")


def check_engine(make_engine: Callable[[], ContextEngine]) -> list[str]:
    """Run the whole contract against an engine. Returns the names of what was tested; raises AssertionError."""

    class Contract(EngineContract):
        def make_engine(self) -> ContextEngine:
            return make_engine()

    names = [name for name in dir(Contract) if name.startswith("test_")]
    for name in names:
        getattr(Contract(), name)()
    return names


def _require(holds: bool, claim: str) -> None:
    if not holds:
        raise AssertionError(claim)
