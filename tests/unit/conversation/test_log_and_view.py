"""The view is a fold over the log that keeps bytes and can be undone."""

from __future__ import annotations

import json

import pytest

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Role, Summary, Text
from penstock.conversation.opening import part_handoffs, without_handoff
from penstock.conversation.view import (
    Compaction,
    Handoff,
    Kept,
    Rewritten,
    encode,
    fold,
    positions_in,
    wire_text,
    write_view,
)
from penstock.errors import InputError

CHAT = DIALECTS["chat"]
WIRES = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"line {n}", "x": n} for n in range(6)]


RAWS = {
    n: f'{{"role": "{wire["role"]}", "content": "line {n}",  "x":{n}}}'.encode()
    for n, wire in enumerate(WIRES)
}


def test_without_a_compaction_the_view_is_the_log_itself():
    messages = decode_all(CHAT, WIRES)
    encoded = encode(fold(len(WIRES), None), messages, CHAT)
    assert all(wire is given for wire, given in zip(encoded, WIRES, strict=True))


def test_the_newest_compaction_and_what_came_after_it_make_the_view():
    handoff = Handoff(Summary("what happened", 1, {"after": "4+"}), covers=(1, 2), role=Role.ASSISTANT)
    first = Compaction("", 4, (Kept(0), handoff, Rewritten(3, {0: Text("short")})))
    pieces = fold(6, first)
    view = write_view(pieces, {at: RAWS[at] for at in positions_in(pieces)}, CHAT)
    assert [one.position for one in view] == [0, None, 3, 4, 5]
    assert [one.raw for one in view if one.position in (0, 4, 5)] == [RAWS[0], RAWS[4], RAWS[5]]
    assert view[1].wire == {"role": "assistant", "content": wire_text(handoff.summary)}
    assert view[2].wire == {**WIRES[3], "content": "short"}
    assert [json.loads(one.raw) for one in view] == [one.wire for one in view]
    assert encode(pieces, decode_all(CHAT, WIRES), CHAT) == [one.wire for one in view]


def test_a_message_that_holds_a_handoff_is_not_the_bytes_that_came():
    handoff = Handoff(Summary("what happened", 1, {}), covers=(0, 1), role=None)
    merged, last = write_view(fold(4, Compaction("", 3, (handoff, Kept(2)))), RAWS, CHAT)
    assert (merged.position, last.raw) == (2, RAWS[3])
    assert merged.raw != RAWS[2]
    assert json.loads(merged.raw) == merged.wire


def test_a_compaction_of_a_longer_log_is_refused():
    with pytest.raises(InputError, match="another conversation"):
        fold(3, Compaction("", 4, (Kept(0),)))


@pytest.mark.parametrize("name", ["chat", "anthropic", "sharegpt", "responses"])
def test_a_handoff_that_was_merged_is_parted_again(name):
    dialect = DIALECTS[name]
    asked = dialect.text_message(Role.USER, "And now?\n\nPlease.")
    handoff = Handoff(Summary("what happened", 1, {"after": "7+"}), covers=(0,), role=None)
    message = dialect.decode(asked)
    (merged,) = encode([handoff, Kept(0)], [message], dialect)
    assert merged != asked
    parted = part_handoffs([dialect.decode(merged)], [merged], [merged], dialect)
    assert parted.sources == [None, 0]
    assert parted.messages[0].parts == (handoff.summary,)
    assert parted.messages[1].parts == message.parts
    assert dialect.decode(without_handoff(merged)).parts == message.parts


def test_a_message_without_a_handoff_stays_the_same_object():
    messages = decode_all(CHAT, WIRES)
    parted = part_handoffs(messages, WIRES, WIRES, CHAT)
    assert parted.messages == messages
    assert all(one is given for one, given in zip(parted.origins, WIRES, strict=True))
