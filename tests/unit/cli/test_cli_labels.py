"""The handles that the command shows are those of a compaction, whatever had to be mended."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from tests.e2e.cli_process import assistant, call, encoded, result, user, work
from tests.strategies.conversations import broken_conversations, conversations

from penstock.cli.labels import label_messages, number_input
from penstock.conversation.document import read_document
from penstock.conversation.wire import encode_wire
from penstock.engine.compress import CompressRequest, compress_document

DIALECTS = ("chat", "responses", "anthropic", "sharegpt")


def document_of(messages, dialect="auto"):
    return read_document(b"[" + b",".join(map(encode_wire, messages)) + b"]", dialect)


def handles_of_a_compaction(document):
    """By the place of the message, as the library tells them."""
    done = compress_document(document, CompressRequest(target_tokens=10**9))
    return {one.position: one.number for one in done.verdicts if one.fate != "repaired"}


def assert_same_handles(document):
    numbers = number_input(document).numbers
    mine = {place: number for place, number in enumerate(numbers) if number is not None}
    assert mine == handles_of_a_compaction(document)


@pytest.mark.outside
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("strategy", [conversations, broken_conversations])
def test_numbers_are_those_of_a_compaction(dialect, strategy):
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy(dialect))
    def run(messages):
        assert_same_handles(document_of(messages, dialect))

    run()


def test_a_result_without_a_call_has_no_number_and_a_stub_has_no_place():
    messages = [*work(2)[:3], call("lost"), result("nobody", "stray"), *work(2)[3:]]
    numbered = number_input(document_of(messages))
    assert numbered.numbers == [1, 2, 3, 4, None, 6, 7, 8, 9]
    assert numbered.added == {5}


@pytest.mark.parametrize("target", [300, 600, 900])
def test_a_compressed_document_goes_on_counting(target):
    document = document_of(work())
    once = compress_document(document, CompressRequest(target_tokens=target))
    again = read_document(document.with_messages(once.messages), "auto")
    numbers = number_input(again).numbers
    assert numbers[-1] == 63
    assert_same_handles(again)
    for raw, number in zip(again.raws, numbers, strict=True):
        if number and raw in document.raws:
            assert document.raws[number - 1] == raw


def test_a_handoff_inside_a_message_leaves_it_its_number():
    turns = [m for n in range(60) for m in (user(f"Look at file_{n}.py."), assistant(f"Line {n} is fine."))]
    body = {"system": "Be exact.", "messages": [*turns[1:], user("Sum up.")]}
    document = read_document(encoded(body), "anthropic")
    for target in (150, 300, 500):
        once = compress_document(document, CompressRequest(target_tokens=target))
        again = read_document(document.with_messages(once.messages), "anthropic")
        assert_same_handles(again)
        labels = label_messages(again.messages, number_input(again).numbers)
        assert labels[-1].handle == f"m{len(json.loads(encoded(body))['messages']) + 1}"
