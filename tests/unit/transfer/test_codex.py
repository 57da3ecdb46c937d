"""Rollouts of Codex: the items that were sent, in order, and what the requests used."""

from __future__ import annotations

from tests.unit.transfer.recorded_files import (
    SESSION,
    codex_line,
    codex_message,
    codex_rollout,
    codex_tokens,
    lines,
    only,
    wires,
)

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.rules import check
from penstock.measure.usage import Usage
from penstock.transfer.reading import read_recorded


def test_the_items_that_were_sent():
    recorded = only(lines(*codex_rollout()))
    kinds = ["message", "message", "reasoning", "function_call", "function_call_output", "message"]
    assert [wire["type"] for wire in wires(recorded)] == kinds
    assert (recorded.format, recorded.dialect, recorded.source, recorded.model) == (
        "codex",
        "responses",
        SESSION,
        "gpt-5",
    )
    assert recorded.left_out == {"items of type ghost_snapshot": 1}
    dialect = DIALECTS["responses"]
    assert check(decode_all(dialect, wires(recorded)), dialect.rules) == []


def test_an_item_keeps_its_bytes():
    line = b'{"timestamp":"x","type":"response_item","payload":{ "type":"message", "role":"user","content":[]}}\n'
    assert only(line).messages[0].raw == b'{ "type":"message", "role":"user","content":[]}'


def test_requests_are_counted_once_and_without_what_was_cached():
    recorded = only(lines(*codex_rollout()))
    assert [(one.after, one.model) for one in recorded.requests] == [(4, "gpt-5"), (6, "gpt-5")]
    assert recorded.requests[1].usage == Usage(200, 10, 900, 0, 0, 3)


def test_a_compaction_goes_on_with_its_summary():
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is here?"}]}
    ]
    compacted = codex_line(
        "compacted", {"message": "Handed over: a README.", "replacement_history": history}, 6
    )
    recorded = only(lines(*codex_rollout(), compacted, codex_message("user", "And now?", 7)))
    assert [wire["content"][0]["text"] for wire in wires(recorded)[-2:]] == [
        "Handed over: a README.",
        "And now?",
    ]
    assert len(recorded.messages) == 8


def test_a_compaction_that_only_its_provider_can_read():
    sealed = {"type": "compaction", "encrypted_content": "c2VhbA=="}
    compacted = codex_line("compacted", {"message": "", "replacement_history": [sealed]}, 6)
    assert wires(only(lines(*codex_rollout(), compacted)))[-1] == sealed


def test_a_sub_agent():
    source = {"subagent": {"thread_spawn": {"parent_thread_id": SESSION, "depth": 1}}}
    meta = codex_line("session_meta", {"id": "child", "source": source})
    recorded = only(lines(meta, codex_message("user", "Help.")))
    assert (recorded.source, recorded.works_for) == ("child", SESSION)


def test_a_fork_is_known_by_its_own_head():
    own = codex_line("session_meta", {"id": "fork", "forked_from_id": SESSION, "source": "cli"})
    assert only(lines(own, *codex_rollout())).source == "fork"


def test_the_files_of_early_versions():
    head = {"id": SESSION, "timestamp": "2025-07-01T08:00:00.000Z", "instructions": None}
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    recorded = only(lines(head, {"record_type": "state"}, item))
    assert recorded.source == SESSION
    assert wires(recorded) == [item]


def test_counts_before_the_first_turn_are_no_requests():
    empty = codex_line("event_msg", {"type": "token_count", "info": None, "rate_limits": {}})
    assert only(lines(empty, codex_message("user", "Hi"))).requests == ()
    assert len(only(lines(codex_message("user", "Hi"), codex_tokens(5, 0, 1, 6), empty)).requests) == 1


def test_broken_lines_are_told():
    reading = read_recorded(lines(*codex_rollout(), b'{"timestamp":"2026'))
    assert [fault.line for fault in reading.faults] == [14]
    assert len(reading.conversations[0].messages) == 6
