"""The contract of engines, on the built-in one, and on engines that break it: the kit must be able to fail."""

from __future__ import annotations

import pytest

from penstock.engine.compressor import ContextCompressor
from penstock.engine.contract import ContextEngine
from penstock.engine.lossless import LosslessEngine
from penstock.testing.engine_contract import EngineContract, check_engine, long_conversation


class TestContextCompressor(EngineContract):
    def make_engine(self):
        return ContextCompressor(context_length=16_000)


class TestWideContextCompressor(EngineContract):
    def make_engine(self):
        return ContextCompressor()


class TestLosslessEngine(EngineContract):
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
        if len(messages) < 3:
            return list(messages)
        self.compression_count += 1
        return [messages[0], messages[-1]]


class TestSmallestEngine(EngineContract):
    def make_engine(self):
        return KeepsTheLastMessages()


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


@pytest.mark.parametrize(
    "engine",
    [
        Mutates,
        PartsPairs,
        ForgetsTheRequest,
        CountsCompletions,
        LeavesTheCacheOut,
        OverfullStatus,
        IgnoresTheModel,
        AnswersInProse,
        RemembersAfterReset,
    ],
)
def test_an_engine_that_breaks_the_contract_is_told_so(engine):
    with pytest.raises(AssertionError, match=r"\w"):
        check_engine(engine)


def test_an_engine_that_keeps_the_contract_passes_all_of_it():
    names = check_engine(KeepsTheLastMessages)
    assert len(names) >= 14


def test_the_conversation_of_the_kit_is_worth_compressing():
    result = ContextCompressor(context_length=16_000).compact(long_conversation())
    assert result.receipt.outcome == "compacted"
    assert result.receipt.ratio < 0.5
