"""What a request must have in common with a conversation to be known as it, and what must not matter."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import conversations
from tests.strategies.respelling import respell

from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest
from penstock.gateway.matching import KnownConversation, KnownConversations, Scope

FEW = settings(max_examples=40)
each_dialect = pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])


def encode(wires):
    return json.dumps(wires).encode()


def memory(limit=1 << 20):
    forgotten = []
    return KnownConversations(limit, forgotten.append), forgotten


def learn(known_ones, name, scope, wires):
    """Takes a conversation in as the gateway does when its worker has opened it."""
    seen, _ = known_ones.read(scope, encode(wires))
    known = KnownConversation(name, scope)
    known.take(known_ones.read_anew(seen))
    read = dialect_named(scope.dialect)
    known.digests = [content_digest(read.decode(wire)) for wire in wires]
    known_ones.keep(known, seen.listed)
    return known


def send(known_ones, known, wires):
    """Takes the next request of a conversation in."""
    seen, match = known_ones.read(known.scope, encode(wires))
    assert match.known is known
    known.take(seen)
    known_ones.keep(known, seen.listed)
    return seen


def look_up(known_ones, scope, wires):
    return known_ones.read(scope, encode(wires))[1]


@each_dialect
@FEW
@given(data=st.data())
def test_the_next_request_is_known_by_all_that_was_there(dialect, data):
    wires = data.draw(conversations(dialect))
    known_ones, _ = memory()
    scope = Scope("somebody", dialect, "full")
    known = learn(known_ones, "c", scope, wires)
    match = look_up(known_ones, scope, [*wires, {"role": "user", "content": "and now?"}])
    assert match == (known, len(wires))
    assert not match.leaves


@each_dialect
@FEW
@given(data=st.data())
def test_another_spelling_is_the_same_conversation(dialect, data):
    wires = data.draw(conversations(dialect))
    known_ones, _ = memory()
    scope = Scope("somebody", dialect, "full")
    known = learn(known_ones, "c", scope, wires)
    changed = data.draw(st.integers(0, len(wires) - 1))
    respelled = [*wires[:changed], *(respell(wire) for wire in wires[changed:])]
    match = look_up(known_ones, scope, respelled)
    if (
        changed and len(wires) - changed <= 32
    ):  # what is new to this memory from further back is looked up in the store
        assert match == (known, len(wires))


@each_dialect
@FEW
@given(data=st.data())
def test_a_message_that_says_something_else_is_where_they_part(dialect, data):
    wires = data.draw(conversations(dialect))
    known_ones, _ = memory()
    scope = Scope("somebody", dialect, "full")
    learn(known_ones, "c", scope, wires)
    at = data.draw(st.integers(0, len(wires) - 1))
    other = [*wires[:at], {"role": "user", "content": "something else"}, *wires[at + 1 :]]
    match = look_up(known_ones, scope, other)
    assert match is None if at == 0 else (match.length == at and match.leaves)


@each_dialect
@FEW
@given(data=st.data())
def test_of_two_conversations_the_one_with_more_of_a_request_is_found(dialect, data):
    wires = data.draw(conversations(dialect))
    known_ones, _ = memory()
    scope = Scope("somebody", dialect, "full")
    whole = learn(known_ones, "whole", scope, wires)
    shorter = data.draw(st.integers(1, len(wires)))
    if shorter < len(
        wires
    ):  # a branch that has not grown yet is the beginning of the other, and was used last
        branch = learn(known_ones, "branch", scope, wires[:shorter])
    new = [*wires, {"role": "user", "content": "and now?"}]
    hint = data.draw(st.sampled_from(["", "whole", "branch"]))
    if len(wires) - shorter < 32:
        assert known_ones.read(scope, encode(new), hint)[1] == (whole, len(wires))
    if shorter < len(wires):
        other = [*wires[:shorter], {"role": "user", "content": "something else"}]
        assert known_ones.read(scope, encode(other), hint)[1] == (branch, shorter)


@FEW
@given(data=st.data())
def test_nobody_is_given_another_s_conversation(data):
    wires = data.draw(conversations("chat"))
    known_ones, _ = memory()
    learn(known_ones, "c", Scope("somebody", "chat", "full"), wires)
    for scope in (
        Scope("another", "chat", "full"),
        Scope("somebody", "chat", "off"),
        Scope("somebody", "anthropic", "full"),
    ):
        assert look_up(known_ones, scope, wires) is None


@FEW
@given(data=st.data())
def test_the_bytes_of_the_first_time_are_held(data):
    wires = data.draw(conversations("anthropic"))
    known_ones, _ = memory()
    known = learn(known_ones, "c", Scope("somebody", "anthropic", "full"), wires)
    first = json.dumps(wires[-1]).encode()
    respelled = [*wires[:-1], respell(wires[-1]), {"role": "user", "content": "next"}]
    seen = known_ones.read_anew(send(known_ones, known, respelled))
    same = seen.cleaned[len(wires) - 1] == first
    assert known.list_held(0, len(respelled)) == ([] if same else [(len(wires) - 1, first)])
    assert known.length == len(respelled)


@each_dialect
@FEW
@given(data=st.data())
def test_a_list_that_is_known_by_its_bytes_reads_as_one_that_is_not(dialect, data):
    wires = data.draw(conversations(dialect))
    known_ones, _ = memory()
    scope = Scope("somebody", dialect, "full")
    known = learn(known_ones, "c", scope, wires)
    grown = [*wires, {"role": "assistant", "content": "Well."}, {"role": "user", "content": "And now?"}]
    seen, match = known_ones.read(scope, encode(grown), hinted="c")
    assert match == (known, len(wires))
    assert seen.known  # only the end was looked at
    whole = known_ones.read_anew(seen)
    assert [json.loads(raw) for raw in seen.slice_all()] == grown
    assert (seen.starts, seen.ends, seen.marked) == (whole.starts, whole.ends, whole.marked)
    assert seen.chains == whole.chains[seen.known :]
    assert json.loads(b"[" + seen.span(0, len(seen)) + b"]") == grown


def test_memory_has_a_bound_and_nothing_of_what_left_stays():
    known_ones, forgotten = memory(limit=20_000)
    scope = Scope("somebody", "chat", "full")
    for number in range(40):
        wires = [{"role": "user", "content": f"{number} {turn}"} for turn in range(10)]
        learn(known_ones, f"c{number}", scope, wires)
        assert known_ones.memory_bytes <= 20_000
    assert [known.id for known in forgotten] == [f"c{number}" for number in range(40 - len(known_ones))]
    for known in list(known_ones._known.values()):
        known_ones.drop(known)
    assert not known_ones._by_chain
    assert not known_ones._alike
    assert known_ones.memory_bytes == 0


def test_many_short_conversations_are_bounded_as_well():
    known_ones = KnownConversations(1_000_000, lambda _: None)
    scope = Scope("somebody", "chat", "full")
    tracemalloc.start()
    try:
        for number in range(2_000):
            learn(known_ones, f"c{number}", scope, [{"role": "user", "content": f"{number}"}])
        assert tracemalloc.get_traced_memory()[0] < 1_300_000
    finally:
        tracemalloc.stop()


def test_chains_of_an_old_spelling_do_not_pile_up():
    known_ones, _ = memory()
    wires = [{"role": "user", "content": f"turn {number}"} for number in range(5)]
    known = learn(known_ones, "c", Scope("somebody", "anthropic", "full"), wires)
    for _ in range(20):
        send(known_ones, known, [respell(wire) for wire in wires])
        send(known_ones, known, wires)
    assert len(known_ones._by_chain) == len(wires)
    assert len(known_ones._alike) == len(known.heads)


def test_what_was_opened_anew_takes_the_place_of_what_was_known():
    known_ones, forgotten = memory()
    scope = Scope("somebody", "chat", "full")
    wires = [{"role": "user", "content": f"turn {number}"} for number in range(5)]
    old = learn(known_ones, "c", scope, [*wires, {"role": "user", "content": "lost"}])
    new = learn(known_ones, "c", scope, wires)
    known_ones.drop(old)  # nothing of it is left that could be dropped
    assert forgotten == []
    assert look_up(known_ones, scope, wires).known is new
    assert len(known_ones._by_chain) == len(wires)
