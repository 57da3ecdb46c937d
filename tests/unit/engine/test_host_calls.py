"""The engine as hosts use it: by the model's name alone, copied deep, with what the newest of them pass and write."""

from __future__ import annotations

import asyncio
import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.engine.compressor import ContextCompressor
from penstock.errors import UnknownHandle
from penstock.lossless.engine import LosslessEngine
from penstock.planning.pressure import Level
from penstock.stores.store import open_store
from penstock.testing.engine_contract import long_conversation

ENGINES = [ContextCompressor, LosslessEngine]


class TestWindow:
    @pytest.mark.parametrize("engine", ENGINES)
    def test_it_is_that_of_the_model(self, engine):
        assert engine(model="gpt-4").context_length == 8_192
        assert engine(model="gpt-4o").context_length == 128_000
        assert engine(50_000, model="gpt-4").context_length == 50_000

    def test_the_settings_know_better(self):
        settings = {"model.context_length": 30_000}
        assert ContextCompressor(model="gpt-4", settings=settings).context_length == 30_000

    def test_a_store_knows_what_the_provider_said(self):
        store = open_store("memory:")
        session = penstock.Session.create(store, model="some-model")
        said = "This model's maximum context length is 20000 tokens. However, you requested 30000 tokens."
        session.learn_window(penstock.classify_error(400, {"error": {"message": said}}))
        assert ContextCompressor(model="some-model", store=store).context_length == 20_000

    def test_an_unknown_model_says_so_once(self):
        notices = []
        engine = ContextCompressor(model="nobody-knows-it", on_notice=notices.append)
        copy.deepcopy(engine)
        assert engine.context_length == 128_000
        assert [notice.level for notice in notices] == [Level.WARN]
        assert "'nobody-knows-it' is not known" in notices[0].text
        assert "context_length" in notices[0].text

    def test_no_model_is_no_unknown_one(self):
        notices = []
        ContextCompressor(on_notice=notices.append)
        ContextCompressor(9_000, model="nobody-knows-it", on_notice=notices.append)
        assert notices == []

    def test_settings_may_be_a_dict_as_for_compress(self):
        engine = ContextCompressor(10_000, settings={"compression": {"threshold": 0.9}})
        assert engine.threshold_tokens == 9_000


class TestDeepCopy:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("engine", ENGINES)
    def test_it_is_a_fresh_engine_of_the_same_settings(self, engine):
        options = {"model": "gpt-4o", "threshold_percent": 0.9, "recall_tools": True}
        first = engine(16_000, **options)
        first.pins.add(3)
        first.update_from_response({"prompt_tokens": 15_000, "completion_tokens": 5})
        made = first.compress(long_conversation())
        twin = copy.deepcopy(first)
        assert (twin.context_length, twin.threshold_tokens) == (first.context_length, first.threshold_tokens)
        assert twin.settings is first.settings
        assert (twin.last_prompt_tokens, twin.compression_count, twin.pins) == (0, 0, set())
        assert twin.get_tool_schemas() == first.get_tool_schemas()
        with pytest.raises(UnknownHandle):
            twin.original("m4")
        assert first.original("m4")
        assert first.pins == {3}
        fresh = engine(16_000, **options)
        assert twin.compress(long_conversation()) == fresh.compress(long_conversation())
        assert first.compress(made) == made

    @pytest.mark.parametrize("engine", ENGINES)
    def test_store_summariser_and_model_are_the_same(self, engine):
        store = open_store("memory:")
        asked = []

        def write(prompt):
            asked.append(prompt)
            raise RuntimeError

        first = engine(16_000, store=store, summariser=write)
        first.update_model("gpt-4o", 8_000)
        first.on_session_start(penstock.Session.create(store).id)
        twin = copy.deepcopy(first)
        assert twin.context_length == 8_000
        twin.compress(long_conversation())
        assert asked

    def test_what_a_subclass_adds_is_copied(self):
        class Own(ContextCompressor):
            def __init__(self):
                super().__init__(16_000)
                self.topics = ["one"]

        first = Own()
        twin = copy.deepcopy(first)
        twin.topics.append("two")
        assert first.topics == ["one"]


class TestHostThatWritesMinusOne:
    def test_the_estimate_keeps_what_stands_beside_the_messages(self):
        engine, messages = ContextCompressor(64_000), long_conversation(60)
        beside = 3_550
        engine.update_from_response(
            {"prompt_tokens": engine.estimate(messages) + beside, "completion_tokens": 1}
        )
        made = engine.compact(messages)
        engine.last_prompt_tokens = -1
        assert engine.estimate(made.messages) == made.receipt.tokens_after + beside
        again = engine.compact([*made.messages, *long_conversation(60)[1:]], current_tokens=-1)
        engine.last_prompt_tokens = -1
        assert engine.estimate(again.messages) == again.receipt.tokens_after + beside

    def test_it_decides_by_its_own_estimate_and_shows_no_negative_number(self):
        engine = ContextCompressor(16_000)
        engine.estimate(long_conversation())
        engine.last_prompt_tokens = -1
        assert engine.should_compress()
        assert engine.get_status()["last_prompt_tokens"] == 0
        assert engine.get_status()["usage_percent"] == 0


class TestNewestHosts:
    def test_the_reason_is_told_where_a_compaction_that_is_due_has_to_wait(self):
        engine = ContextCompressor(100_000, on_notice=lambda _: None)
        tight = [{"role": "user", "content": "hello"}]
        for _ in range(2):
            engine.compress(tight, current_tokens=86_000)
        assert engine.should_compress_info(10) == (False, None)
        due, reason = engine.should_compress_info(86_000)
        assert (due, "saved too little" in reason) == (False, True)
        engine.compress(tight, 86_000, None, force=True)
        assert engine.should_compress_info(86_000) == (True, None)

    def test_a_model_is_reached_as_the_host_says(self):
        engine = ContextCompressor(16_000)
        engine.update_model(
            "claude-x",
            16_000,
            base_url="https://llm.example.org",
            api_key="k",
            provider="acme",
            api_mode="anthropic_messages",
        )
        assert engine._summariser is not None

    def test_a_host_that_has_chosen_who_writes_is_not_overruled_by_what_it_tells_of_the_model(self):
        engine = ContextCompressor(16_000)
        engine.hosting.use_summariser(None)
        engine.update_model(
            "gpt-4o", 8_000, base_url="https://llm.example.org", api_key="k", provider="openai"
        )
        assert engine._summariser is None

    def test_what_is_not_asked_for_changes_nothing(self):
        engine, messages = ContextCompressor(16_000), long_conversation()
        assert engine.select_context(messages, budget_tokens=5, incoming_message=messages[-1]) is None
        assert engine.on_turn_complete(messages, {"prompt_tokens": 1}, turn_id="t") is None
        pruned, count = engine.prune_tool_results_only(messages, current_tokens=9_000)
        assert (pruned is messages, count) == (True, 0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ENGINES)
def test_async_twins_give_what_the_others_give(engine):
    async def work():
        one = await engine(16_000).acompress(long_conversation())
        two = await engine(16_000).acompact(long_conversation(), target_tokens=3_000)
        return one, two.messages

    one, two = asyncio.run(work())
    assert one == engine(16_000).compress(long_conversation())
    assert two == engine(16_000).compact(long_conversation(), target_tokens=3_000).messages


def test_an_async_compaction_is_counted():
    engine = ContextCompressor(16_000)
    asyncio.run(engine.acompress(long_conversation()))
    assert engine.compression_count == 1


def test_usage_may_be_an_object_of_an_sdk():
    class Reported:
        prompt_tokens, completion_tokens = 1_000, 50

    engine = ContextCompressor(16_000)
    engine.update_from_response(Reported())
    assert engine.last_total_tokens == 1_050


@pytest.mark.outside
def test_nothing_is_printed_unasked():
    code = (
        "from penstock.engine.compressor import ContextCompressor\n"
        "engine = ContextCompressor(model='nobody-knows-it')\n"
        "engine.update_from_response({'prompt_tokens': 127_900, 'completion_tokens': 1})\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
