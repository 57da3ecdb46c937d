"""The contract of engines: on those built in, on a third party's as a file and as a package, and on engines that break it."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.engine.plugin_stage import install, write_plugin

import penstock
from penstock.engine.compressor import ContextCompressor
from penstock.engine.contract import ContextEngine
from penstock.engine.registry import engine_named
from penstock.lossless.engine import LosslessEngine
from penstock.settings import settings_from
from penstock.testing import EngineContract, check_engine
from penstock.testing.engine_contract import long_conversation


class TestContextCompressor(EngineContract):
    converges = True

    def make_engine(self):
        return ContextCompressor(context_length=16_000)


class TestWideContextCompressor(EngineContract):
    def make_engine(self):
        return ContextCompressor()


class TestLosslessEngine(EngineContract):
    converges = True

    def make_engine(self):
        return LosslessEngine(context_length=16_000)


class TestWideLosslessEngine(EngineContract):
    def make_engine(self):
        return LosslessEngine()


class KeepsTheLastMessages(ContextEngine):
    """The smallest engine that keeps the contract."""

    def __init__(self, context_length=16_000):
        self.context_length = context_length
        self.threshold_tokens = int(context_length * self.threshold_percent)

    @property
    def name(self):
        return "last"

    def update_from_response(self, usage):
        from penstock.measure.usage import normalise_usage

        reported = normalise_usage(usage)
        self.last_prompt_tokens = reported.prompt_tokens
        self.last_completion_tokens = reported.output_tokens
        self.last_total_tokens = reported.total_tokens

    def should_compress(self, prompt_tokens=None):
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return tokens >= self.threshold_tokens

    def compress(self, messages, current_tokens=None, focus_topic=None):
        asked = max((place for place, one in enumerate(messages) if one["role"] == "user"), default=0)
        head = [one for one in messages[:1] if one["role"] == "system"]
        if asked <= len(head):
            return list(messages)
        self.compression_count += 1
        return [*head, *messages[asked:]]


class TestSmallestEngine(EngineContract):
    def make_engine(self):
        return KeepsTheLastMessages()


class TestCopiedDeep(EngineContract):
    """An engine at work, copied: as a host does with the one that a plugin registered."""

    converges = True

    def make_engine(self):
        engine = ContextCompressor(16_000)
        engine.compress(long_conversation(60))
        return copy.deepcopy(engine)


class TestLosslessCopiedDeep(EngineContract):
    def make_engine(self):
        engine = LosslessEngine(16_000)
        engine.compress(long_conversation(60))
        return copy.deepcopy(engine)


class AtTheNewestHost(ContextCompressor):
    """An engine whose every compression is driven by the calls that the newest known host makes around it."""

    def compress(self, messages, current_tokens=None, focus_topic=None):
        usage = {"prompt_tokens": max(0, self.last_prompt_tokens), "completion_tokens": 1, "total_tokens": 1}
        self.should_compress_info(current_tokens)
        pruned, _ = self.prune_tool_results_only(messages, current_tokens=current_tokens)
        assert self.select_context(
            pruned, conversation_messages=messages, incoming_message={}, budget_tokens=self.context_length
        ) in (None, pruned)
        made = super().compress(
            pruned,
            current_tokens=current_tokens,
            focus_topic=focus_topic,
            force=True,
            memory_context="The user likes short answers.",
        )
        self.last_prompt_tokens = -1
        self.on_turn_complete(made, usage, turn_id="1", api_call_count=1, interrupted=False, failed=False)
        return made

    def update_model(self, model, context_length, base_url="", api_key="", provider=""):
        super().update_model(model, context_length, base_url, api_key, provider, api_mode="chat_completions")


class TestDrivenByTheNewestHost(EngineContract):
    converges = True

    def make_engine(self):
        return AtTheNewestHost(16_000)


class TestPluginFile(EngineContract):
    """The engine of a third party, as a file in the plugin folder."""

    @pytest.fixture(autouse=True)
    def _plugin(self, tmp_path):
        write_plugin(tmp_path / "plugins")
        self.settings = settings_from({"plugins.folder": str(tmp_path / "plugins")})

    def make_engine(self):
        return engine_named("last-turns", self.settings)


def test_an_engine_of_an_installed_package_keeps_the_contract_in_a_process_of_its_own(tmp_path):
    site = install(tmp_path / "site", {"last-turns": "acme_engines:LastTurns"})
    source = Path(penstock.__file__).parents[1]
    code = (
        "from penstock.engine.registry import engine_named\n"
        "from penstock.testing import check_engine\n"
        "print(len(check_engine(lambda: engine_named('last-turns'))))\n"
    )
    environ = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{source}", "XDG_DATA_HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, check=False, timeout=60
    )
    assert ran.stderr.decode() == ""
    assert int(ran.stdout) >= 20


class TestDefaults:
    def test_class_defaults_are_those_of_the_contract(self):
        assert (ContextEngine.threshold_percent, ContextEngine.protect_first_n) == (0.75, 3)
        assert ContextEngine.protect_last_n == 6

    def test_the_four_required_members_are_required(self):
        assert ContextEngine.__abstractmethods__ == {
            "name",
            "update_from_response",
            "should_compress",
            "compress",
        }
        with pytest.raises(TypeError, match="abstract"):
            ContextEngine()

    def test_optional_questions_have_their_defaults(self):
        engine = KeepsTheLastMessages()
        assert engine.should_compress_preflight([]) is False
        assert engine.has_content_to_compress([]) is True
        assert engine.get_tool_schemas() == []


class Mutates(KeepsTheLastMessages):
    def compress(self, messages, current_tokens=None, focus_topic=None):
        messages[0]["content"] = "changed"
        return list(messages)


class PartsPairs(KeepsTheLastMessages):
    def compress(self, messages, current_tokens=None, focus_topic=None):
        return [message for message in messages if message["role"] != "assistant"][-20:]


class ForgetsTheRequest(KeepsTheLastMessages):
    def compress(self, messages, current_tokens=None, focus_topic=None):
        return list(messages[:1])


class CountsCompletions(KeepsTheLastMessages):
    def should_compress(self, prompt_tokens=None):
        tokens = self.last_total_tokens if prompt_tokens is None else prompt_tokens
        return tokens >= self.threshold_tokens


class LeavesTheCacheOut(KeepsTheLastMessages):
    def update_from_response(self, usage):
        super().update_from_response(usage)
        self.last_prompt_tokens = usage.get("prompt_tokens") or usage.get("input_tokens") or 0


class OverfullStatus(KeepsTheLastMessages):
    def get_status(self):
        return {**super().get_status(), "usage_percent": 300.0}


class IgnoresTheModel(KeepsTheLastMessages):
    def update_model(self, model, context_length, base_url="", api_key="", provider=""):
        pass


class AnswersInProse(KeepsTheLastMessages):
    def handle_tool_call(self, name, args, **context):
        return '{"answer": "I do not know that tool"}'


class RemembersAfterReset(KeepsTheLastMessages):
    def on_session_reset(self):
        pass


class DoesNotCount(KeepsTheLastMessages):
    def compress(self, messages, current_tokens=None, focus_topic=None):
        result = super().compress(messages)
        self.compression_count = 0
        return result


class PartsBatches(KeepsTheLastMessages):
    """Keeps each call with the first of its results."""

    def compress(self, messages, current_tokens=None, focus_topic=None):
        if len(messages) < 3:
            return list(messages)
        self.compression_count += 1
        kept = [one for one in messages if not one.get("tool_call_id", "_0").endswith(("_1", "_2"))]
        return (
            kept[-60:]
            if any("_1" in one.get("tool_call_id", "") for one in messages)
            else super().compress(messages)
        )


class KnowsNoFocus(KeepsTheLastMessages):
    def compress(self, messages):
        return super().compress(messages)


class TakesNoContext(KeepsTheLastMessages):
    def on_session_start(self, session_id):
        pass


class TidiesUpAtTheEnd(KeepsTheLastMessages):
    def on_session_end(self, session_id, messages):
        messages.clear()


class HasTools(KeepsTheLastMessages):
    schema = {  # noqa: RUF012 - of a test
        "type": "function",
        "function": {
            "name": "peek",
            "description": "Look.",
            "parameters": {"type": "object", "properties": {"at": {}}},
        },
    }

    def get_tool_schemas(self):
        return [self.schema]

    def handle_tool_call(self, name, args, **context):
        return '{"text": "…"}' if name == "peek" else super().handle_tool_call(name, args)


class NamesTwoToolsAlike(HasTools):
    def get_tool_schemas(self):
        return [self.schema, self.schema]


class DescribesAnthropicTools(HasTools):
    def get_tool_schemas(self):
        return [{"name": "peek", "description": "Look.", "input_schema": {"type": "object"}}]


class FailsWithoutArguments(HasTools):
    def handle_tool_call(self, name, args, **context):
        return json.dumps(args["at"]) if name == "peek" else super().handle_tool_call(name, args)


class AnswersWithWords(HasTools):
    def handle_tool_call(self, name, args, **context):
        return "You see nothing." if name == "peek" else super().handle_tool_call(name, args)


class ShowsMinusOne(KeepsTheLastMessages):
    def get_status(self):
        return {**super().get_status(), "last_prompt_tokens": self.last_prompt_tokens}


class PrunesMessages(KeepsTheLastMessages):
    def prune_tool_results_only(self, messages, current_tokens=None):
        return messages[:1], len(messages) - 1


class SharesItsCopies(KeepsTheLastMessages):
    def __deepcopy__(self, memo):
        return self


LEGAL = "test_the_result_is_a_legal_conversation_and_no_longer"
BROKEN = {
    Mutates: "test_compressing_changes_nothing_that_was_given",
    PartsPairs: LEGAL,
    PartsBatches: "test_conversations_of_every_shape_stay_legal",
    ForgetsTheRequest: LEGAL,
    DoesNotCount: "test_a_compression_is_counted",
    CountsCompletions: "test_it_compresses_at_the_threshold_and_not_at_once",
    LeavesTheCacheOut: "test_usage_of_every_provider_is_understood",
    OverfullStatus: "test_the_status_has_its_keys_and_no_share_over_100",
    IgnoresTheModel: "test_a_smaller_model_lowers_the_threshold",
    AnswersInProse: "test_calls_are_answered_in_json_whatever_a_model_sends",
    RemembersAfterReset: "test_sessions_may_start_switch_reset_and_end",
    TidiesUpAtTheEnd: "test_sessions_may_start_switch_reset_and_end",
    NamesTwoToolsAlike: "test_tools_are_described_as_function_tools",
    ShowsMinusOne: "test_a_host_may_forget_the_size_of_the_last_prompt",
    PrunesMessages: "test_what_newer_hosts_ask_is_answered",
    SharesItsCopies: "test_an_engine_can_be_copied_deep",
    DescribesAnthropicTools: "test_tools_are_described_as_function_tools",
}


@pytest.mark.parametrize("engine", BROKEN)
def test_an_engine_that_breaks_the_contract_is_told_what_it_breaks(engine):
    class Contract(EngineContract):
        def make_engine(self):
            return engine()

    with pytest.raises(AssertionError):
        getattr(Contract(), BROKEN[engine])()
    with pytest.raises(AssertionError, match=r"^test_"):
        check_engine(engine)


@pytest.mark.parametrize(
    ("engine", "error"),
    [
        (KnowsNoFocus, TypeError),
        (TakesNoContext, TypeError),
        (FailsWithoutArguments, KeyError),
        (AnswersWithWords, ValueError),
    ],
)
def test_what_an_engine_raises_against_the_contract_is_not_hidden(engine, error):
    with pytest.raises(error):
        check_engine(engine)


def test_convergence_is_asked_of_those_who_promise_it():
    check_engine(HasTools)
    with pytest.raises(AssertionError, match="the threshold is 12,000"):
        check_engine(KeepsTheLastMessages, converges=True)


def test_an_engine_that_keeps_the_contract_passes_all_of_it():
    names = check_engine(KeepsTheLastMessages)
    assert len(names) >= 20


def test_the_conversation_of_the_kit_is_worth_compressing():
    result = ContextCompressor(context_length=16_000).compact(long_conversation())
    assert result.receipt.outcome == "compacted"
    assert result.receipt.ratio < 0.5
