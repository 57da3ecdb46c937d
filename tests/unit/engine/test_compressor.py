"""The built-in engine: when it compresses, what it says to people, and what it remembers."""

from __future__ import annotations

import copy
import logging
from types import SimpleNamespace

import pytest

from penstock.engine.compressor import ContextCompressor
from penstock.engine.summariser import Summariser
from penstock.errors import InputError, SettingsError, UnknownHandle
from penstock.planning.pressure import Level
from penstock.settings import Settings, settings_from
from penstock.testing.engine_contract import agent_turns, long_conversation
from penstock.testing.scripted_model import ScriptedModel
from penstock.writing.work import WorkMaker

SHORT = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]


def reported(prompt, completion=10):
    return {"prompt_tokens": prompt, "completion_tokens": completion}


@pytest.fixture
def notices():
    return []


@pytest.fixture
def engine(notices):
    return ContextCompressor(200_000, on_notice=notices.append)


class TestDefaults:
    def test_they_are_those_of_the_contract(self):
        engine = ContextCompressor()
        assert (engine.threshold_percent, engine.protect_first_n, engine.protect_last_n) == (0.50, 3, 20)
        assert (engine.name, engine.context_length, engine.threshold_tokens) == (
            "compressor",
            128_000,  # what is assumed where neither a window nor a model is named, as for `compress`
            64_000,
        )

    def test_a_small_window_fires_later(self):
        assert ContextCompressor(32_000).threshold_tokens == 27_200
        assert ContextCompressor(100_000).threshold_tokens == 64_000

    def test_what_is_wished_by_name_wins_over_settings(self):
        settings = settings_from({"compression": {"threshold": 0.8, "protect_last_n": 5}})
        engine = ContextCompressor(200_000, settings=settings, threshold_percent=0.6)
        assert (engine.threshold_percent, engine.protect_last_n) == (0.6, 5)
        assert engine.threshold_tokens == 120_000
        assert ContextCompressor.threshold_percent == 0.50

    @pytest.mark.parametrize(
        "wrong", [{"threshold_percent": 7}, {"protect_last_n": 0}, {"protect_first_n": -1}]
    )
    def test_a_value_out_of_range_is_refused(self, wrong):
        with pytest.raises(SettingsError, match="allowed"):
            ContextCompressor(**wrong)

    def test_a_window_without_room_is_refused(self):
        with pytest.raises(SettingsError):
            ContextCompressor(0)


class TestStatus:
    def test_it_has_the_five_keys(self, engine):
        engine.update_from_response(reported(50_000))
        assert engine.get_status() == {
            "last_prompt_tokens": 50_000,
            "threshold_tokens": 100_000,
            "context_length": 200_000,
            "usage_percent": 25.0,
            "compression_count": 0,
        }

    def test_no_share_is_over_100(self, engine):
        engine.update_from_response(reported(900_000))
        assert engine.get_status()["usage_percent"] == 100.0


class TestUsage:
    @pytest.mark.parametrize(
        "usage",
        [
            {"prompt_tokens": 1_000, "completion_tokens": 50},
            {
                "prompt_tokens": 1_000,
                "completion_tokens": 50,
                "prompt_tokens_details": {"cached_tokens": 900},
            },
            {"input_tokens": 1_000, "output_tokens": 50, "input_tokens_details": {"cached_tokens": 900}},
            {
                "input_tokens": 40,
                "output_tokens": 50,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 60,
            },
            SimpleNamespace(prompt_tokens=1_000, completion_tokens=50),
            {"input_tokens": 100, "cache_read_tokens": 900, "output_tokens": 50},
        ],
    )
    def test_every_shape_counts_the_whole_prompt(self, engine, usage):
        engine.update_from_response(usage)
        assert (engine.last_prompt_tokens, engine.last_completion_tokens) == (1_000, 50)
        assert engine.last_total_tokens == 1_050

    def test_completion_tokens_never_decide(self, engine):
        engine.update_from_response(reported(99_999, 90_000))
        assert not engine.should_compress()
        engine.update_from_response(reported(100_000, 0))
        assert engine.should_compress()


class TestEstimate:
    def test_without_a_report_it_is_the_count(self, engine):
        messages = long_conversation(5)
        assert engine.estimate(messages) == engine.compact(messages).receipt.tokens_before

    def test_a_report_is_extended_by_what_came_since(self, engine):
        messages = long_conversation(5)
        counted = engine.estimate(messages)
        engine.update_from_response(reported(counted + 3_000))
        more = [*messages, *SHORT]
        fresh = ContextCompressor(200_000)
        assert engine.estimate(more) == fresh.estimate(more) + 3_000

    def test_what_a_host_says_is_unchanged_is_not_looked_at_again(self):
        messages = long_conversation(20)
        engine, fresh = ContextCompressor(8_000), ContextCompressor(8_000)
        engine.estimate(messages[:20])
        for start, end in ((20, 24), (24, 25), (25, 40)):
            unseen = [object()] * start  # whoever looks at them finds no message
            counted = engine.estimate([*unseen, *messages[start:end]], unchanged=start)
            assert counted == fresh.estimate(messages[:end])
        assert engine.estimate(messages[:10], unchanged=10) == fresh.estimate(
            messages[:10]
        )  # it was cut short
        assert engine.compress(messages) == ContextCompressor(8_000).compress(messages)

    def test_what_comes_behind_unchanged_messages_may_tell_the_dialect(self):
        plain = [{"role": "user", "content": "Which port does staging use?"}]
        block = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "staging.yaml"}}
        more = [*plain, {"role": "assistant", "content": [block]}]
        engine = ContextCompressor(8_000)
        engine.estimate(plain)
        assert engine.estimate(more, unchanged=1) == ContextCompressor(8_000).estimate(more)

    def test_a_message_that_cannot_be_read_is_named_by_its_number(self):
        engine = ContextCompressor(8_000)
        engine.estimate([{"role": "user", "content": "Hello"}])
        with pytest.raises(InputError, match="message 2"):
            engine.estimate(
                [{"role": "user", "content": "Hello"}, {"role": "nobody", "content": "Hello"}], unchanged=1
            )

    def test_preflight_fires_on_it(self, engine):
        messages = long_conversation(5)
        engine.estimate(messages)
        assert not engine.should_compress_preflight(messages)
        engine.update_from_response(reported(99_990))
        assert engine.should_compress_preflight([*messages, *long_conversation(1)])

    def test_preflight_catches_a_switch_to_a_smaller_window(self, engine):
        messages = long_conversation(40)
        assert not engine.should_compress_preflight(messages)
        engine.update_model("gpt-4o", engine.estimate(messages) + 100)
        assert engine.should_compress_preflight(messages)

    @pytest.mark.parametrize("factor", [1.0, 1.5])
    def test_windows_are_in_the_tokens_of_the_provider(self, factor):
        engine, messages = ContextCompressor(24_000), long_conversation()
        count = ContextCompressor().estimate
        for length in range(4, len(messages), len(messages) // 8):
            engine.estimate(messages[:length])
            engine.update_from_response(reported(round(factor * count(messages[:length]))))
        sent = engine.estimate(messages)
        assert sent == pytest.approx(factor * count(messages), rel=0.01)
        result = engine.compact(messages, sent)
        assert engine.last_prompt_tokens == pytest.approx(factor * result.receipt.tokens_after, rel=0.01)
        assert engine.last_prompt_tokens <= engine.hosting.kept_tokens + factor * count(
            messages[:4]
        )  # and the head


class TestCompact:
    def test_it_says_what_it_did_and_counts(self, notices):
        engine = ContextCompressor(16_000, on_notice=notices.append)
        result = engine.compact(long_conversation())
        assert result.receipt.outcome == "compacted"
        assert engine.compression_count == 1
        assert engine.last_prompt_tokens == result.receipt.tokens_after

    def test_what_is_outside_the_list_stays_in_the_count(self):
        engine = ContextCompressor(32_000)
        messages = long_conversation()
        before = engine.estimate(messages)
        result = engine.compact(messages, current_tokens=before + 5_000)
        assert engine.last_prompt_tokens == result.receipt.tokens_after + 5_000

    def test_compress_gives_the_messages_alone(self):
        messages = long_conversation()
        assert (
            ContextCompressor(16_000).compress(messages)
            == ContextCompressor(16_000).compact(messages).messages
        )

    def test_nothing_to_do_returns_the_same_messages(self, engine):
        result = engine.compact(SHORT)
        assert result.receipt.outcome == "nothing_to_do"
        assert all(a is b for a, b in zip(result.messages, SHORT, strict=True))
        assert engine.compression_count == 0

    def test_a_focus_keeps_more_of_its_topic(self):
        messages = [
            {
                "role": role,
                "content": f"The {topic} of job_{n} waits in table_{n} for step_{n} of {topic}_{n}.",
            }
            for n in range(150)
            for role, topic in (("user", "billing"), ("assistant", "shipping"))
        ]
        shares = []
        for focus in (None, "billing"):
            said = str(
                ContextCompressor(200_000).compact(messages, focus_topic=focus, target_tokens=1_500).messages
            )
            shares.append(said.count("billing_") / said.count("ing_"))
        assert shares[1] > max(0.55, shares[0] + 0.1)

    def test_a_focus_on_a_file_keeps_what_was_read_of_it(self):
        messages = long_conversation(40)
        focused = ContextCompressor(200_000).compact(messages, focus_topic="part_3.py", target_tokens=3_000)
        assert str(focused.messages).count("step_3_") > 10
        assert focused.receipt.tokens_after <= 3_000

    def test_pinned_messages_stay(self):
        engine = ContextCompressor(200_000)
        messages = long_conversation(40)
        engine.pins.add(8)
        result = engine.compact(messages, target_tokens=4_000)
        assert any(message is messages[7] for message in result.messages)

    def test_it_knows_whether_there_is_anything_to_compress(self, engine):
        assert not engine.has_content_to_compress(SHORT)
        assert ContextCompressor(16_000).has_content_to_compress(long_conversation())


class TestOriginals:
    def test_every_round_can_be_asked_for(self):
        engine = ContextCompressor(200_000)
        log = long_conversation(40)
        view = engine.compact(log, target_tokens=3_000).messages
        more = [
            {"role": "assistant", "content": "It is part 17."},
            {"role": "user", "content": "And owner_18?"},
        ]
        engine.compact([*view, *more], target_tokens=2_000)
        for number, message in enumerate([*log, *more], start=1):
            assert engine.original(f"m{number}") == message

    @pytest.mark.parametrize("before", [2, 5])
    def test_the_first_object_of_a_number_stays_its_original(self, engine, before):
        first = long_conversation(40)
        engine.compact(first[:-before], target_tokens=4_000)
        again = copy.deepcopy(first)
        engine.compact(again, target_tokens=4_000)
        for place, message in enumerate(first):
            known = message if place < len(first) - before else again[place]
            assert engine.original(f"m{place + 1}") is known

    def test_handles_may_be_copied_with_their_brackets(self):
        engine = ContextCompressor(200_000)
        log = long_conversation(40)
        engine.compact(log, target_tokens=3_000)
        assert engine.original("(m4)") is engine.original(" [m4] ") is log[3]

    @pytest.mark.parametrize("handle", ["m9999", "m0", "4", "", "handoff!"])
    def test_an_unknown_handle_is_told_so(self, handle):
        engine = ContextCompressor(200_000)
        engine.compact(long_conversation(40), target_tokens=3_000)
        with pytest.raises(UnknownHandle, match=r"handle|original"):
            engine.original(handle)

    def test_a_reset_forgets_them(self):
        engine = ContextCompressor(200_000)
        engine.compact(long_conversation(40), target_tokens=3_000)
        engine.pins.add(2)
        engine.on_session_reset()
        with pytest.raises(UnknownHandle):
            engine.original("m4")
        assert engine.pins == set()


class TestThrash:
    """A prompt that is large for what stands beside the messages: compacting them saves nothing."""

    def rested(self, engine):
        engine.update_from_response(reported(105_000))
        assert engine.should_compress()
        engine.compact(SHORT, current_tokens=105_000)
        assert engine.should_compress(), "one ineffective pass is not enough"
        engine.compact(SHORT, current_tokens=105_000)

    def test_two_ineffective_passes_rest_and_say_so(self, engine, notices):
        self.rested(engine)
        assert not engine.should_compress()
        said = [notice.text for notice in notices if "rests" in notice.text]
        assert len(said) == 1
        assert "saved too little" in said[0]

    def test_it_opens_when_the_conversation_has_grown(self, engine):
        self.rested(engine)
        assert not engine.should_compress(114_999)
        assert engine.should_compress(115_000)

    def test_an_emergency_is_no_time_to_rest(self, engine):
        self.rested(engine)
        assert engine.should_compress(190_000)

    def test_an_effective_pass_starts_the_count_anew(self, notices):
        engine = ContextCompressor(200_000, on_notice=notices.append)
        engine.compact(SHORT, current_tokens=105_000)
        engine.compact(long_conversation(40), target_tokens=3_000)
        engine.compact(SHORT, current_tokens=105_000)
        assert engine.should_compress(105_000)

    def test_another_model_and_a_new_session_open_it(self, engine):
        self.rested(engine)
        engine.update_model("gpt-4o", 200_000)
        assert engine.should_compress(105_000)
        self.rested(engine)
        engine.on_session_start("again")
        assert engine.should_compress(105_000)


class TestPressure:
    def test_each_level_is_said_once_per_crossing(self, engine, notices):
        for tokens in (10_000, 66_000, 70_000, 86_000, 90_000, 100_000, 110_000, 191_000):
            engine.update_from_response(reported(tokens))
        assert [notice.level for notice in notices] == [
            Level.LOG,
            Level.WARN,
            Level.AUTOMATIC,
            Level.EMERGENCY,
        ]
        assert "86,000 of 100,000 tokens" in notices[1].text

    def test_falling_pressure_clears_it(self, engine, notices):
        for tokens in (66_000, 10_000, 66_000):
            engine.update_from_response(reported(tokens))
        assert [notice.level for notice in notices] == [Level.LOG, Level.LOG]

    def test_a_compaction_clears_it(self, notices):
        engine = ContextCompressor(32_000, on_notice=notices.append)
        engine.update_from_response(reported(28_000))
        said = len(notices)
        engine.compact(long_conversation(), current_tokens=28_000)
        engine.update_from_response(reported(28_000))
        assert len(notices) > said

    def test_without_a_listener_they_go_to_the_log(self, caplog):
        engine = ContextCompressor(200_000)
        with caplog.at_level(logging.INFO, logger="penstock"):
            engine.update_from_response(reported(86_000))
        assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]

    def test_none_of_them_stands_in_a_prompt(self, notices):
        engine = ContextCompressor(16_000, on_notice=notices.append)
        engine.update_from_response(reported(15_800))
        result = engine.compress(long_conversation())
        assert notices
        assert not any(notice.text in str(result) for notice in notices)


class TestOff:
    @pytest.fixture
    def off(self, notices):
        settings = settings_from({"compression.enabled": False})
        return ContextCompressor(200_000, settings=settings, on_notice=notices.append)

    def test_off_means_off_even_in_an_emergency(self, off):
        assert not off.should_compress(199_999)
        off.update_from_response(reported(199_999))
        assert not off.should_compress()
        assert not off.should_compress_preflight(long_conversation(5))

    def test_but_not_for_what_is_asked_by_hand(self, off):
        assert off.compact(long_conversation(), target_tokens=2_000).receipt.outcome == "compacted"

    def test_notices_promise_nothing(self, off, notices):
        off.update_from_response(reported(90_000))
        assert notices
        assert all("automatic compaction is off" in notice.text for notice in notices)


class TestModels:
    def test_a_smaller_window_fires_at_once(self, engine):
        engine.update_from_response(reported(60_000))
        assert not engine.should_compress()
        engine.update_model("gpt-4o", 64_000)
        assert (engine.context_length, engine.threshold_tokens) == (64_000, 54_400)
        assert engine.should_compress()

    def test_another_tokenizer_counts_anew(self, engine):
        messages = [{"role": "user", "content": "这是一个测试，订单编号是88213。" * 50}]
        before = engine.estimate(messages)
        engine.update_model("gpt-4", 128_000)
        assert engine.estimate(messages) != before

    def test_what_was_read_stays_read_for_a_model_with_the_same_tokenizer(self, engine):
        book = engine._notebook
        engine.update_model("gpt-4o", 128_000)
        assert engine._notebook is book


def test_a_copy_of_the_conversation_gives_the_same():
    messages = long_conversation(20)
    engine = ContextCompressor(200_000)
    first = engine.compact(messages, target_tokens=3_000)
    second = engine.compact(copy.deepcopy(messages), target_tokens=3_000)
    assert first.messages == second.messages
    assert Settings() == ContextCompressor(200_000).settings


def test_reserved_output_comes_off_the_window():
    engine = ContextCompressor(200_000, reserved_output_tokens=60_000)
    assert (engine.threshold_tokens, engine.context_length) == (70_000, 200_000)
    engine.update_model("gpt-4o", 128_000)
    assert engine.threshold_tokens == 57_800  # of the 68,000 that are left: the floor of small windows
    engine.hosting.reserve_output(0)
    assert engine.threshold_tokens == 64_000


@pytest.mark.parametrize(
    "where",
    ["writing.vocabulary.Vocabulary._add", "writing.reading.Index.extend", "writing.choice.find_path_parts"],
)
def test_an_interrupted_compaction_leaves_nothing_half_done(where, monkeypatch):
    """As by Ctrl-C in the middle: values that have numbers and no looks ended every later compaction of the engine."""

    def interrupt(*args):
        raise KeyboardInterrupt

    messages = long_conversation(60)
    engine, fresh = ContextCompressor(20_000), ContextCompressor(20_000)
    engine.compress(messages[:30], force=True)
    with monkeypatch.context() as patched:
        patched.setattr(f"penstock.{where}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.compress(messages, force=True)
    assert engine.compress(messages, force=True) == fresh.compress(messages, force=True)


def run_out(*args):
    raise MemoryError


def test_what_ends_while_lines_are_chosen_for_a_model_leaves_nothing_half_done(monkeypatch):
    """For want of memory, say: the costs of excerpts were counted then, and not their words."""
    lines = "\n".join(f"shelf_{line}/box.txt holds item_{line}" for line in range(200))
    messages = [
        {**one, "content": f"{one['content']}\n{lines}"} if one["role"] == "tool" else one
        for one in agent_turns(0, 30)
    ]
    model = ScriptedModel(lambda received: "## Active State\n- All parts were looked at.\n")
    engine, fresh = (
        ContextCompressor(6_000, summariser=Summariser(model, window_tokens=2_600)) for _ in range(2)
    )
    choose = WorkMaker._choose_needed_lines

    def choose_and_run_out(*args):
        patched.setattr("penstock.writing.choice.count_known_words", run_out)
        return choose(*args)

    with monkeypatch.context() as patched:
        patched.setattr(WorkMaker, "_choose_needed_lines", choose_and_run_out)
        with pytest.raises(MemoryError):
            engine.compress(messages, force=True)
    assert engine.compress(messages, force=True) == fresh.compress(messages, force=True)


def test_what_ends_while_a_tool_looks_at_the_view_leaves_nothing_half_done(monkeypatch):
    messages = long_conversation(60)
    engine, fresh = (ContextCompressor(20_000, recall_tools=True) for _ in range(2))
    engine.compress(messages[:30], force=True)
    with monkeypatch.context() as patched:
        patched.setattr("penstock.writing.vocabulary.Vocabulary._add", run_out)
        with pytest.raises(MemoryError):
            engine.handle_tool_call("history_search", {"query": "part"}, messages=messages)
    assert engine.compress(messages, force=True) == fresh.compress(messages, force=True)
