from __future__ import annotations

from functools import partial

import pytest

from penstock.conversation import mark
from penstock.engine.compress import CompressRequest, compress_list
from penstock.lossless.outline import Node, NodeTexts, parse_outline, render_outline
from penstock.lossless.writer import OutlineWriter, nodes_of, segment_size
from penstock.testing.engine_contract import long_conversation
from penstock.writing.handoff import HandoffEntry, HandoffSection, parse_handoff, render_handoff

NODES = (
    Node((3,), ((2, 61),), "[m14 read_file]\nDATABASE_PORT = 5433"),
    Node((4,), ((62, 80), (83, 83)), "- m71 the port was wrong"),
)
TEXT = """\
## Outline
[n3 m2-61]
[m14 read_file]
DATABASE_PORT = 5433
[n4 m62-80 83]
- m71 the port was wrong"""


def test_an_outline_as_text():
    assert render_outline(NODES) == TEXT
    assert parse_outline(f"a note\n{TEXT}\n## Goal\n- m2 repair it") == NODES
    assert render_outline([]) == ""
    assert parse_outline("no outline\n[n3 m2-61]") == ()


def test_neighbours_without_a_text_share_a_header():
    bare = [Node((handle,), ((first, first + 9),)) for handle, first in ((1, 2), (2, 12), (4, 22))]
    assert render_outline(bare) == "## Outline\n[n3 n4 m2-31]"
    assert parse_outline("## Outline\n[n3 n4 m2-31]") == (Node((3, 4), ((2, 31),)),)
    assert "[n1 m2-11]\n[n2 m12-21]\nwords" not in render_outline([*bare, NODES[0]])


def test_other_readers_of_a_handoff_take_it_for_critical_context():
    assert parse_handoff(TEXT) == (
        HandoffEntry(HandoffSection.CONTEXT, 14, "DATABASE_PORT = 5433", "read_file"),
        HandoffEntry(HandoffSection.CONTEXT, 62, "- m71 the port was wrong", "notes"),
    )


def test_a_line_that_looks_like_a_header_of_ours_is_told_from_one():
    entry = HandoffEntry(HandoffSection.CONTEXT, 5, "[n3 m2-61]\nplain", "user")
    text = render_handoff([entry])
    assert "\n\\[n3 m2-61]\n" in text
    assert parse_handoff(text) == (entry,)


def test_segments_are_as_long_as_the_handoff_allows():
    assert segment_size(15_000, 3_000) == 2_000
    assert segment_size(90_000, 10_000) == 4_000
    assert segment_size(700_000, 30_000) == 8_000
    assert segment_size(60_000, 200) == 64_000  # one header for all of it


def outlined(messages, target, known=lambda key: None):
    return compress_list(
        messages,
        CompressRequest(target_tokens=target, make_writer=partial(OutlineWriter, known=NodeTexts(known))),
    )


def handoff_of(result):
    return next(m["content"] for m in result.messages if mark.OPENING in str(m["content"]))


def test_what_is_known_of_a_node_is_used_letter_for_letter():
    messages = long_conversation(40)
    fresh = outlined(messages, 3_000)
    key = nodes_of(fresh.plan)[1].key
    told = outlined(messages, 3_000, {key: "[m40 user]\nkept words"}.get)
    assert "[m40 user]\nkept words\n[n" in handoff_of(told)
    assert nodes_of(told.plan)[1].fresh is False
    assert told.receipt.tokens_after <= 3_000


@pytest.mark.outside
def test_a_text_that_is_far_too_long_gives_way_to_its_header():
    messages = long_conversation(40)
    keys = {node.key: "words " * 9_000 for node in nodes_of(outlined(messages, 3_000).plan)}
    result = outlined(messages, 3_000, keys.get)
    assert result.receipt.tokens_after <= 3_000
    covered = {n for node in parse_outline(handoff_of(result)) for a, b in node.runs for n in range(a, b + 1)}
    assert len(covered) == result.receipt.summarised


@pytest.mark.outside  # takes long
def test_the_handoff_of_the_other_engine_is_taken_up_as_a_node():
    messages = long_conversation(40)
    first = compress_list(messages, CompressRequest(target_tokens=3_000))
    again = outlined(first.messages + long_conversation(30)[1:], 3_000)
    nodes = parse_outline(handoff_of(again))
    gone = sorted(n for node in nodes for a, b in node.runs for n in range(a, b + 1))
    assert nodes[0].handles == (1,)
    assert gone[0] <= 5
    assert gone == list(range(gone[0], gone[-1] + 1))
    back = compress_list(again.messages + long_conversation(30)[1:], CompressRequest(target_tokens=3_000))
    assert "## Outline" not in handoff_of(back)
    assert back.receipt.tokens_after <= 3_000


@pytest.mark.outside  # takes long
def test_an_outline_from_anywhere_does_no_harm():
    text = mark.wrap("## Outline\n[n999999999 m1-999999999]\nwords\n[n1 n7 m5]\n[m0]\nx", {"after": "4+"}, 2)
    for given in (text, text.replace("4+", "999999000+"), text + text):
        messages = [{"role": "user", "content": given}, *long_conversation(30)[1:]]
        result = outlined(messages, 4_000)
        assert result.receipt.tokens_after <= 4_000
        assert parse_outline(handoff_of(result))


def test_what_the_user_said_is_quoted_also_where_parents_are_told():
    messages = long_conversation(40)
    first = outlined(messages, 3_000)
    more = long_conversation(30)[1:]
    more[4 * 28]["content"] = "The ledger of the harbour office was balanced to the penny on Friday."
    again = outlined(first.messages + more, 5_000)
    assert any(not node.fresh for node in nodes_of(again.plan))
    assert "harbour office" in handoff_of(again).split("## Active Task", maxsplit=1)[0]
