"""The handles that the command shows are those of a compaction, whatever had to be mended."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from tests.e2e.cli_process import assistant, call, encoded, result, user, work
from tests.strategies.conversations import broken_conversations, conversations

from penstock.cli.labels import labels_of, mending_of
from penstock.conversation.document import read_document
from penstock.conversation.wire import encode_wire
from penstock.engine.compress import CompressRequest, compress_document

DIALECTS = ("chat", "responses", "anthropic", "sharegpt")


def document_of(messages, dialect="auto"):
    return read_document(b"[" + b",".join(map(encode_wire, messages)) + b"]", dialect)


def handles_of_a_compaction(document):
    """By the place of the message, as the library tells them; a message that repair put in has no bytes."""
    done = compress_document(document, CompressRequest(target_tokens=10**9))
    known = {number for number, origin in done.originals if origin is not None}
    return {one.position: one.number for one in done.verdicts if one.number in known or not one.number}


def assert_same_handles(document):
    numbers = mending_of(document).numbers
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
    mending = mending_of(document_of(messages))
    assert mending.numbers == [1, 2, 3, 4, None, 6, 7, 8, 9]
    assert mending.added == {5: "tool"}
    assert mending.changed == frozenset()


def test_two_calls_with_one_id_are_told_as_changed():
    both = call("x")
    both["tool_calls"] *= 2
    messages = [user("a"), both, result("x", "1"), result("x", "2"), user("b")]
    mending = mending_of(document_of(messages))
    assert mending.numbers == [1, 2, 3, 4, 5]
    assert mending.changed == {1, 3}


@pytest.mark.parametrize("target", [300, 600, 900])
def test_a_compressed_document_goes_on_counting(target):
    document = document_of(work())
    once = compress_document(document, CompressRequest(target_tokens=target))
    again = read_document(document.with_messages(once.messages), "auto")
    numbers = mending_of(again).numbers
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
        labels = labels_of(again.messages, mending_of(again).numbers)
        assert labels[-1].handle == f"m{len(json.loads(encoded(body))['messages']) + 1}"
