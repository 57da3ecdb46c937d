"""A conversation in a store: the view is the log folded over its compactions, and nothing is ever lost."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.strategies.long_sessions import long_conversations

import penstock
from penstock.conversation import mark
from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.rules import check
from penstock.errors import InputError, StoreConflict, TargetTooSmall, UnknownHandle, UnknownSession
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.stores.store import open_store


def talk(rounds, first=0):
    """Chat messages: in each round a call with a long result, and a word of the user."""
    messages = []
    for n in range(first, first + rounds):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "read_file", "arguments": f'{{"path": "part_{n}.py"}}'},
        }
        text = "\n".join(f"def handle_{n}_{line}(event): return route_{line}(event)" for line in range(20))
        messages += [
            {"role": "user", "content": f"Step {n}, please; never drop step_{n}."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": text},
            {"role": "assistant", "content": f"Step {n} is done.", "extra": {"kept": n}},
        ]
    return messages


@pytest.fixture
def session(store):
    return Session.create(store, model="gpt-4.1", title="parts")


def legal(messages):
    return check(decode_all(DIALECTS["chat"], messages), DIALECTS["chat"].rules) == []


def test_without_a_compaction_the_view_is_the_log(session):
    messages = talk(5)
    assert session.append(messages) == [f"m{n}" for n in range(1, 21)]
    assert session.view() == messages
    assert len(session) == 20


def test_bytes_of_any_kind(session, store):
    raw = '{ "role":"user","content":"x" }'
    session.append([raw, raw.encode(), bytearray(raw.encode())])
    assert len({entry.raw for entry in store.read_from(session.id, 1)}) == 1
    assert session.view() == [{"role": "user", "content": "x"}] * 3
    assert store.faults() == []


def test_bytes_are_kept(session, store):
    raw = b'{ "role":"user",  "content":"sp\\u0061ces", "x": 1.50 }'
    session.append([raw])
    assert store.read(session.id, [0])[0].raw == raw


def test_a_compaction_is_the_view_that_was_returned(session):
    messages = talk(20)
    session.append(messages)
    result = session.compact(target_tokens=2_500)
    assert session.view() == result.messages
    assert legal(session.view())
    later = talk(3, first=20)
    session.append(later)
    assert session.view() == [*result.messages, *later]


def test_compactions_build_on_each_other_and_handles_mean_the_same_message(session):
    messages = talk(60)
    for start in range(0, 240, 80):
        session.append(messages[start : start + 80])
        result = session.compact(target_tokens=3_000)
        assert session.view() == result.messages
        assert legal(session.view())
    for number in (1, 14, 99, 200):
        assert session.original(f"m{number}") == messages[number - 1]
    (handoff,) = [m for m in session.view() if mark.OPENING in str(m.get("content"))]
    assert "m235" in handoff["content"] or "m230" in handoff["content"] or "[m2" in handoff["content"]


def test_undo_leads_back_step_by_step(session):
    messages = talk(40)
    session.append(messages[:80])
    first = session.compact(target_tokens=2_500)
    session.append(messages[80:])
    before = session.view()
    session.compact(target_tokens=2_500)
    assert session.undo()
    assert session.view() == before == [*first.messages, *messages[80:]]
    assert session.undo()
    assert session.view() == messages
    assert not session.undo()
    again = session.compact(target_tokens=2_500)
    assert session.view() == again.messages


def test_a_compaction_opens_a_continuation_and_resume_finds_it(session, store):
    first = session.id
    session.append(talk(20))
    session.compact(target_tokens=2_500)
    assert session.id != first
    assert store.session(first).end_reason == "compression"
    assert session.row.parent == first
    resumed = Session.resume(store, first)
    assert resumed.id == session.id
    assert resumed.view() == session.view()
    (listed,) = store.list()
    assert (listed.tip.id, listed.compactions, listed.messages, listed.title) == (session.id, 1, 80, "parts")


def test_nothing_to_docommits_nothing(session, store):
    session.append(talk(2))
    before = session.id
    assert session.compact(target_tokens=50_000).receipt.outcome == "nothing_to_do"
    assert session.id == before
    assert store.newest_compaction(session.id) is None


def test_pins_stay_whole(session):
    messages = talk(30)
    session.append(messages)
    session.pin("m7")
    session.compact(target_tokens=3_000)
    assert messages[6] in session.view()
    session.append(talk(10, first=30))
    session.compact(target_tokens=3_000)
    assert messages[6] in session.view()
    session.unpin("m7")
    session.append(talk(10, first=40))
    session.compact(target_tokens=3_000)
    assert messages[6] not in session.view()


def test_two_compactors_one_result(session, store):
    session.append(talk(20))
    other = Session.resume(store, session.id)
    late = other.workings.read_view_base()
    result = session.compact(target_tokens=2_500)
    with pytest.raises(StoreConflict):
        other.workings.commit(late, result)
    other.refresh()
    assert other.view() == result.messages
    assert len(store.compactions(session.id)) == 1


def test_a_compaction_that_was_prepared_is_committed_after_more_was_said(session):
    session.append(talk(20))
    standing = session.workings.read_view_base()
    prepared = penstock.compress(standing.view.wires, target_tokens=2_500)
    later = talk(2, first=60)
    session.append(later)
    assert session.workings.commit(standing, prepared)
    assert session.view() == [*prepared.messages, *later]
    assert session.workings.read_view_base().prefix_end == len(prepared.messages)


def test_messages_that_arrive_meanwhile_stay(session, store):
    session.append(talk(20))
    other = Session.resume(store, session.id)

    def slow(prompt):
        other.append(talk(1, first=20))
        return "## Goal\nThe steps.\n"

    result = session.compact(target_tokens=3_000, summariser=slow)
    session.refresh()
    assert session.view() == [*result.messages, *talk(1, first=20)]


def test_two_writers_never_fork(session, store):
    other = Session.resume(store, session.id)
    session.append(talk(1))
    with pytest.raises(StoreConflict):
        other.append(talk(1, first=7))
    other.refresh()
    other.append(talk(1, first=7))
    assert [m["content"] for m in other.view() if m["role"] == "user"][-1].startswith("Step 7")


def test_the_same_append_again_changes_nothing(session, store):
    other = Session.resume(store, session.id)
    session.append(talk(1))
    other.append(talk(1))
    assert len(other) == 4
    assert other.view() == talk(1)


def test_a_branch_shares_and_goes_its_own_way(session, store):
    messages = talk(5)
    session.append(messages)
    branch = session.branch("m8")
    branch.append([{"role": "user", "content": "Another way."}])
    assert branch.view() == [*messages[:8], {"role": "user", "content": "Another way."}]
    assert session.view() == messages
    assert Session.resume(store, session.id).id == session.id
    assert branch.original("m3") == messages[2]


def test_wrong_handles_ids_and_messages(session, store):
    session.append(talk(1))
    for handle in ("m0", "m5", "x"):
        with pytest.raises(UnknownHandle):
            session.original(handle)
    with pytest.raises(UnknownSession):
        Session.resume(store, "no-such-session")
    with pytest.raises(InputError, match="message 1"):
        session.append([{"role": "nobody", "content": "x"}])
    assert len(session) == 4


def test_ids_do_not_depend_on_how_messages_were_handed_over(store):
    wires = [
        {"from": "human", "value": "Look it up."},
        {"from": "gpt", "value": '<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call>'},
        {"from": "tool", "value": "found"},
    ]
    whole, single = Session.create(store, dialect="sharegpt"), Session.create(store, dialect="sharegpt")
    whole.append(wires)
    for wire in wires:
        single.append([wire])
    assert store.ids(whole.id) == store.ids(single.id)
    assert store.faults() == []


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@settings(max_examples=8, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(data=st.data())
def test_every_dialect(dialect, data):
    wires = data.draw(long_conversations(dialect))
    store = open_store("memory:")
    session = Session.create(store, dialect=dialect)
    session.append(wires)
    assert session.view() == wires
    size = sum(entry.tokens for entry in store.read_from(session.id, 0))
    try:
        result = session.compact(target_tokens=max(400, size // 2))
    except TargetTooSmall:
        return
    assert session.view() == result.messages
    assert check(decode_all(DIALECTS[dialect], session.view()), DIALECTS[dialect].rules) == []
    store.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([{"role": "user", "content": "x"}, b'{"role": "user", "con'], "message 2"),
        (["no JSON"], "message 1"),
        ({"role": "user", "content": "x"}, "list"),
        (b'{"role": "user", "content": "x"}', "list"),
    ],
)
@pytest.mark.parametrize("keep_results", [False, True])
def test_what_is_no_list_of_messages_is_refused_whole(session, given, words, keep_results):
    with pytest.raises(InputError, match=words):
        session.append(given, keep_results=keep_results)
    assert len(session) == 0


@pytest.mark.parametrize("odd", [("a", "b"), 10**400, "\ud800", None])
def test_a_message_is_known_by_what_the_log_has_of_it(session, store, odd):
    """Also where JSON cannot say what was given."""
    session.append([{"role": "user", "content": "x", "odd": odd}])
    assert store.faults() == []
    assert session.view() == [session.original("m1")]


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), {"deep": [None, -float("inf")]}])
def test_a_number_that_json_cannot_say_is_refused_not_nulled(session, odd):
    with pytest.raises(InputError, match=r"no NaN and no infinity.*message 2"):
        session.append([{"role": "user", "content": "x"}, {"role": "user", "content": "y", "odd": odd}])
    assert len(session) == 0


def test_everything_with_a_handle_can_be_had(session, store):
    session.append(talk(12))
    session.compact(target_tokens=2_000)
    assert session.original("M2") == session.original("[m2]") == session.original("m2")
    assert session.original("s1").startswith("Notes by another assistant")
    for handle in ("s2", "n1", "r000000000000", "m999", "m0", "", "x", "m٣"):
        with pytest.raises(UnknownHandle):
            session.original(handle)


def test_nodes_can_be_read_whatever_the_settings_are_now(store):
    outlines = settings_from({"context.engine": "lossless"})
    made = Session.create(store, settings=outlines)
    made.append(talk(40))
    made.compact(target_tokens=3_000)
    session = Session.resume(store, made.id)
    assert session.original("n1") == made.original("n1")
    opened = session.handle_tool_call("history_expand", {"handle": "n1"})
    assert "[m3 tool]" in opened
    assert "handle_0_0(event)" in opened


def test_a_title_goes_on_with_the_conversation(session, store):
    session.append(talk(12))
    session.compact(target_tokens=2_000)
    assert session.row.title == "parts"
    store.update(session.id, title="renamed")  # by somebody else: this object has not read it
    session.append(talk(12, first=12))
    session.compact(target_tokens=2_000)
    assert (session.row.title, store.list()[0].title) == ("renamed", "renamed")


def test_a_session_is_there_while_it_is_empty(session):
    assert len(session) == 0
    assert session


def test_what_a_session_looks_like_in_a_shell(session):
    session.append(talk(1))
    assert repr(session) == f"<Session {session.id}: 4 messages, chat, in memory:>"
