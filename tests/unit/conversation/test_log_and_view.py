"""The log only grows; the view is a fold over it that can be undone."""

from __future__ import annotations

import pytest

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Role, Summary, Text
from penstock.conversation.opening import part_handoffs, without_handoff
from penstock.conversation.view import Compaction, Handoff, Kept, Log, Rewritten, encode, fold, wire_text
from penstock.errors import InputError

CHAT = DIALECTS["chat"]
WIRES = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"line {n}", "x": n} for n in range(6)]


def log_of(wires):
    return Log(decode_all(CHAT, wires))


def compaction_of(log, pieces):
    return Compaction(base=log.ids[-1], length=len(log), pieces=tuple(pieces))


def test_appending_gives_a_new_log_and_leaves_the_old_one():
    log = log_of(WIRES[:4])
    longer = log.append(decode_all(CHAT, WIRES[4:]))
    assert (len(log), len(longer)) == (4, 6)
    assert longer.ids == log_of(WIRES).ids


def test_logs_share_their_beginning():
    fork = [*WIRES[:3], {"role": "assistant", "content": "another way"}, *WIRES[4:]]
    assert log_of(WIRES).shared_with(log_of(fork)) == 3
    assert log_of(WIRES).shared_with(log_of(WIRES[:2])) == 2
    assert log_of(WIRES).shared_with(log_of([{"role": "user", "content": "else"}])) == 0
    assert log_of(WIRES).shared_with(log_of(WIRES)) == 6


def test_without_a_compaction_the_view_is_the_log_itself():
    log = log_of(WIRES)
    encoded = encode(fold(log, []), log.messages, CHAT)
    assert all(wire is given for wire, given in zip(encoded, WIRES, strict=True))


def test_the_newest_compaction_and_what_came_after_it_make_the_view():
    log = log_of(WIRES[:4])
    handoff = Handoff(Summary("what happened", 1, {"after": "4+"}), covers=(1, 2), role=Role.ASSISTANT)
    first = compaction_of(log, [Kept(0), handoff, Rewritten(3, {0: Text("short")})])
    log = log.append(decode_all(CHAT, WIRES[4:]))
    view = encode(fold(log, [first]), log.messages, CHAT)
    assert view[0] is WIRES[0]
    assert view[1] == {"role": "assistant", "content": wire_text(handoff.summary)}
    assert view[2] == {**WIRES[3], "content": "short"}
    assert view[3:] == WIRES[4:]
    assert encode(fold(log, []), log.messages, CHAT) == WIRES  # undone


def test_a_compaction_of_another_log_is_refused():
    other = log_of([{"role": "user", "content": "else"}])
    with pytest.raises(InputError, match="another conversation"):
        fold(log_of(WIRES), [compaction_of(other, [Kept(0)])])


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
