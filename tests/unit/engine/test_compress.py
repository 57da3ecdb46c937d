"""`compress` as callers see it."""

from __future__ import annotations

import asyncio
import base64
import json

import msgspec
import pytest

import penstock
from penstock.conversation.document import read_document
from penstock.engine.compress import CompressRequest, compress_document
from penstock.errors import (
    InputError,
    PenstockError,
    SettingsError,
    TargetTooSmall,
    UnknownDialect,
    UnknownHandle,
)
from penstock.testing.engine_contract import long_conversation

MESSAGES = long_conversation(30)
_PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (640).to_bytes(4, "big") + (480).to_bytes(4, "big") + bytes(16)
)
PICTURE = {
    "role": "user",
    "content": [
        {"type": "text", "text": "What is wrong here?"},
        {
            "type": "image_url",
            "image_url": {"url": f"data:image/png;base64,{base64.b64encode(_PNG).decode()}"},
        },
    ],
}


@pytest.fixture(scope="module")
def result():
    return penstock.compress(MESSAGES, target_tokens=3_000)


class TestResult:
    def test_it_has_messages_a_receipt_and_verdicts(self, result):
        assert result.receipt.tokens_after <= 3_000
        assert len(result.verdicts) == len(MESSAGES)
        assert repr(result).startswith("<Compressed compacted: ")

    def test_what_is_kept_is_the_same_object(self, result):
        assert result.messages[0] is MESSAGES[0]
        assert result.messages[-1] is MESSAGES[-1]

    def test_the_receipt_is_for_people_and_for_programs(self, result):
        told = result.receipt.to_dict()
        assert json.loads(json.dumps(told)) == told
        assert told["ratio"] == round(told["tokens_after"] / told["tokens_before"], 4)
        assert str(result.receipt).startswith(f"compressed {len(MESSAGES)} → ")

    def test_verdicts_say_why(self, result):
        assert result.verdicts[0].reason == "system prompt"
        assert result.verdicts[-1].reason == "the user's last request"
        assert all(verdict.reason for verdict in result.verdicts)
        assert {str(verdict.fate) for verdict in result.verdicts} <= {"kept", "elided", "summarised"}

    def test_the_handoff_stands_for_a_list_of_messages(self, result):
        gone = result.original("handoff")
        assert len(gone) == result.receipt.summarised
        assert all(any(message is wire for wire in MESSAGES) for message in gone)

    def test_an_unknown_handle_is_told_so(self, result):
        with pytest.raises(UnknownHandle, match="m9999"):
            result.original("m9999")


class TestLastRequest:
    @pytest.mark.parametrize("target", [1_200, 1_600, 2_500, 6_000])
    def test_a_picture_in_it_stays(self, target):
        result = penstock.compress([*MESSAGES, MESSAGES[-2], PICTURE], target_tokens=target)
        assert result.messages[-1] is PICTURE

    def test_it_stands_alone_where_the_tail_does_not_reach_it(self):
        work = long_conversation(30)[2:-1]
        asked = {"role": "user", "content": "Read all parts, then say which one names owner_17."}
        calls = [message for message in work if message["role"] != "user"]
        result = penstock.compress([*MESSAGES[:1], asked, *calls], target_tokens=2_000)
        texts = [str(message["content"]) for message in result.messages]
        at = next(place for place, text in enumerate(texts) if text.endswith(asked["content"]))
        assert result.messages[at]["role"] == "user"
        assert texts[at].startswith("<penstock-handoff")  # no role of its own could stand there
        assert 0 < at < len(result.messages) - 1

    def test_one_that_cannot_fit_keeps_its_head_its_tail_and_its_handle(self):
        giant = {
            "role": "user",
            "content": "Sort this list. " + "apples and pears, " * 3_000 + "Please sort it now.",
        }
        result = penstock.compress([*MESSAGES, MESSAGES[-2], giant], target_tokens=1_500)
        kept = result.messages[-1]["content"]
        assert "</penstock-handoff>\n\nSort this list." in kept
        assert kept.endswith("Please sort it now.")
        assert f"m{len(MESSAGES) + 2}" in kept
        assert result.original(f"m{len(MESSAGES) + 2}") is giant


class TestNothingToDo:
    def test_a_conversation_within_its_target_comes_back_as_it_is(self):
        result = penstock.compress(MESSAGES, target_tokens=10**6)
        assert result.receipt.outcome == "nothing_to_do"
        assert result.messages == MESSAGES
        assert result.messages is not MESSAGES
        assert str(result.receipt).startswith("nothing to compress: ")
        with pytest.raises(UnknownHandle):
            result.original("handoff")

    def test_an_empty_list_is_a_conversation(self):
        assert penstock.compress([], target_tokens=10).messages == []

    def test_no_target_and_no_window_is_the_models_window(self):
        of_the_model = penstock.compress(MESSAGES, model="gpt-4")
        named = penstock.compress(MESSAGES, model="gpt-4", context_length=8_192)
        assert of_the_model.receipt.target_tokens == named.receipt.target_tokens
        assert of_the_model.messages == named.messages

    def test_less_than_a_tenth_is_not_worth_it_without_a_target(self):
        short = [{"role": "user", "content": "word " * 900}, {"role": "assistant", "content": "ok"}]
        assert penstock.compress(short, context_length=1_024).receipt.tokens_after <= 1_024


class TestWishes:
    def test_a_window_bounds_what_stands_in_it(self):
        result = penstock.compress(MESSAGES, context_length=12_000)
        assert result.receipt.outcome == "compacted"
        assert result.receipt.tokens_after <= result.receipt.target_tokens < 12_000

    def test_tools_and_system_take_their_part_of_the_window(self):
        tools = [
            {"type": "function", "function": {"name": f"tool_{n}", "description": "does " * 60}}
            for n in range(15)
        ]
        plain = penstock.compress(MESSAGES, context_length=2_000)
        beside = penstock.compress(MESSAGES, context_length=2_000, tools=tools, system="Be brief. " * 30)
        assert beside.receipt.target_tokens < plain.receipt.target_tokens
        assert beside.receipt.tokens_after <= beside.receipt.target_tokens

    def test_settings_may_be_a_mapping(self):
        result = penstock.compress(
            MESSAGES, target_tokens=3_000, settings={"compression": {"protect_first_n": 0}}
        )
        assert result.receipt.outcome == "compacted"

    def test_a_model_chooses_the_tokenizer(self):
        assert (
            penstock.compress(MESSAGES, target_tokens=3_000, model="gpt-4").receipt.tokenizer == "cl100k_base"
        )


class TestErrors:
    @pytest.mark.parametrize("target", [0, -1, 2.5, "many", True])
    def test_a_target_is_a_whole_number(self, target):
        with pytest.raises(SettingsError, match="target_tokens"):
            penstock.compress(MESSAGES, target_tokens=target)

    @pytest.mark.parametrize("messages", ["text", b"bytes", {"role": "user", "content": "x"}])
    def test_messages_are_a_list(self, messages):
        with pytest.raises(InputError, match="list"):
            penstock.compress(messages, target_tokens=100)

    def test_a_role_nobody_knows_is_named_with_its_place(self):
        with pytest.raises(InputError, match=r"'robot'.*message 2"):
            penstock.compress(
                [{"role": "user", "content": "x"}, {"role": "robot", "content": "y"}], target_tokens=9
            )

    def test_a_dialect_nobody_knows_is_told_the_names(self):
        with pytest.raises(UnknownDialect, match="sharegpt"):
            penstock.compress(MESSAGES, target_tokens=100, dialect="gemini")

    def test_a_setting_nobody_knows_is_named(self):
        with pytest.raises(SettingsError, match=r"compression\.treshold"):
            penstock.compress(MESSAGES, target_tokens=100, settings={"compression": {"treshold": 0.5}})

    def test_a_summariser_is_not_there_yet(self):
        with pytest.raises(SettingsError, match="summariser"):
            penstock.compress(MESSAGES, target_tokens=100, summariser=object())

    def test_a_target_that_is_too_small_names_the_parts(self):
        with pytest.raises(TargetTooSmall, match="system prompt") as told:
            penstock.compress(MESSAGES, target_tokens=5)
        assert told.value.target_tokens == 5
        assert told.value.parts["system prompt"] > 0

    def test_all_are_ours(self):
        assert all(
            issubclass(error, PenstockError)
            for error in (InputError, SettingsError, TargetTooSmall, UnknownHandle)
        )


class TestAsync:
    def test_it_gives_the_same(self, result):
        awaited = asyncio.run(penstock.acompress(MESSAGES, target_tokens=3_000))
        assert awaited.messages == result.messages

    def test_the_sync_one_works_inside_a_loop(self, result):
        async def inside():
            return penstock.compress(MESSAGES, target_tokens=3_000)

        assert asyncio.run(inside()).messages == result.messages

    @pytest.mark.outside  # takes long
    def test_many_at_once_do_not_meet(self, result):
        async def many():
            return await asyncio.gather(
                *(penstock.acompress(MESSAGES, target_tokens=3_000) for _ in range(4))
            )

        assert all(one.messages == result.messages for one in asyncio.run(many()))


class TestDocuments:
    def test_bytes_in_give_the_same_bytes_out(self, result):
        data = json.dumps({"model": "gpt-4o", "messages": MESSAGES}, indent=2).encode()
        document = read_document(data)
        compressed = compress_document(document, CompressRequest(target_tokens=3_000))
        written = document.with_messages(compressed.messages)
        assert json.loads(written) == {"model": "gpt-4o", "messages": result.messages}
        assert document.raws[0] in written
        assert document.raws[-1] in written

    def test_originals_are_bytes_too(self):
        document = read_document(json.dumps(MESSAGES).encode())
        compressed = compress_document(document, CompressRequest(target_tokens=3_000))
        original = compressed.original("m4")
        assert isinstance(original, bytes | msgspec.Raw)
        assert json.loads(bytes(original)) == MESSAGES[3]


def test_what_was_broken_before_is_mended_and_counted():
    orphan = {"role": "tool", "tool_call_id": "nobody", "content": "an orphan"}
    result = penstock.compress([*MESSAGES[:5], orphan, *MESSAGES[5:]], target_tokens=3_000)
    assert result.receipt.repaired == 1
    assert "repaired   1" in str(result.receipt)


CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}],
}
STRAY = {"role": "tool", "tool_call_id": "nobody", "content": "stray words " * 20}


class TestVerdictsOnABrokenList:
    """Repair works before planning; what it did is told with the rest."""

    def verdicts(self, messages):
        result = penstock.compress(messages, target_tokens=10**6)
        assert [verdict.position for verdict in result.verdicts] == list(range(len(messages)))
        return result.verdicts

    def test_a_message_that_repair_removed_is_told(self):
        messages = [{"role": "user", "content": "Go."}, STRAY, {"role": "user", "content": "On."}]
        removed = self.verdicts(messages)[1]
        assert (removed.fate, removed.number, removed.tokens_after) == ("repaired", 0, 0)
        assert removed.reason == "left out by repair: a result without its call"
        assert removed.tokens_before > 20

    def test_a_stub_in_its_place_does_not_make_it_kept(self):
        messages = [
            {"role": "user", "content": "Go."},
            CALL,
            STRAY,
            {"role": "user", "content": "On."},
        ]
        verdicts = self.verdicts(messages)
        assert [verdict.fate for verdict in verdicts] == ["kept", "kept", "repaired", "kept"]
        assert [verdict.number for verdict in verdicts] == [1, 2, 0, 4]

    def test_a_message_that_repair_changed_says_so(self):
        twice = {**CALL, "tool_calls": CALL["tool_calls"] * 2}
        messages = [{"role": "user", "content": "Go."}, twice, {"role": "user", "content": "On."}]
        assert self.verdicts(messages)[1].reason == "nothing to do; repaired first"
