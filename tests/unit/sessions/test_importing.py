"""Taking over what other programs recorded: once, with its times and costs, and more of it when there is more."""

from __future__ import annotations

import json

import pytest
from tests.unit.transfer.recorded_files import (
    SESSION,
    answer,
    claude_line,
    claude_session,
    codex_rollout,
    lines,
    words,
)

from penstock.conversation.wire import encode_wire
from penstock.measure.usage import Usage
from penstock.sessions import importing as adopting
from penstock.sessions import quality
from penstock.sessions.exporting import export_conversation
from penstock.sessions.handovers import HandedOver, HandoverOrigin, keep_handover, keep_origin
from penstock.sessions.importing import BRANCHED, GROWN, KNOWN, NEW, WITHOUT_PARENT, adopt_conversation
from penstock.sessions.session import Session
from penstock.settings import Settings
from penstock.stores.store import open_store
from penstock.transfer.reading import read_recorded
from penstock.transfer.recorded import RecordedConversation, RecordedMessage, RecordedUsage

NOW = 2_000_000_000.0


@pytest.fixture(params=["memory:", "postgresql"])
def store(request):
    opened = open_store(
        request.getfixturevalue("postgres_url") if request.param == "postgresql" else request.param
    )
    yield opened
    opened.close()


def take(store, *values):
    data = values[0] if len(values) == 1 and isinstance(values[0], bytes) else lines(*values)
    return [adopt_conversation(store, one, Settings(), NOW) for one in read_recorded(data).conversations]


def log(store, session):
    return [entry.raw for entry in store.read_from(session, 0)]


def test_a_file_twice_adds_nothing(store):
    (first,) = take(store, *claude_session())
    (again,) = take(store, *claude_session())
    assert (first.outcome, first.added) == (NEW, 4)
    assert (again.outcome, again.added, again.session) == (KNOWN, 0, first.session)
    assert len(store.list()) == 1
    assert len(store.usage()) == 2
    assert store.faults() == []


def test_the_id_follows_from_the_file_not_from_the_store(store):
    other = open_store("memory:")
    assert take(store, *codex_rollout())[0].session == take(other, *codex_rollout())[0].session
    other.close()


def test_what_was_said_has_its_time_and_what_was_used_its_price(store):
    (taken,) = take(store, *claude_session())
    row = store.list()[0]
    assert (row.title, row.tip.model, row.tip.dialect) == (
        "Comparing reports",
        "claude-sonnet-4-5",
        "anthropic",
    )
    times = [1_773_480_361.5, 1_773_480_362.5, 1_773_480_365.5, 1_773_480_367.5]
    assert [entry.created for entry in store.read_from(taken.session, 0)] == times
    assert (row.started, row.updated) == (times[0], times[-1])
    assert row.usage.cache_read_tokens == 1_800
    assert row.cost == pytest.approx(2 * (4 * 3 + 100 * 3.75 + 900 * 0.3) / 1e6 + (41 + 7) * 15 / 1e6)


def test_turns_keep_their_times(store):
    later = {"timestamp": "2026-03-14T11:00:00Z"}
    (taken,) = take(
        store,
        *claude_session(),
        claude_line("user", "u8", "a7", "Thanks.") | later,
        answer("a9", "u8", "msg_3", words("Welcome.")) | later,
    )
    times = [entry.created for entry in store.read_from(taken.session, 0)]
    assert times == [*sorted(times[:4]), 1_773_486_000.0, 1_773_486_000.0]
    assert store.list()[0].updated == 1_773_486_000.0


def test_what_has_no_time_has_that_of_what_was_said_before(store):
    messages = tuple(
        RecordedMessage(encode_wire({"role": ("user", "assistant")[n % 2], "content": f"{n}"}), at)
        for n, at in enumerate([None, 50.0, None, 40.0, None])
    )
    spent = (RecordedUsage(2, None, "m", Usage(1)), RecordedUsage(5, 60.0, "m", Usage(2)))
    taken = adopt_conversation(
        store,
        RecordedConversation(format="x", dialect="chat", messages=messages, requests=spent),
        Settings(),
        NOW,
    )
    assert [entry.created for entry in store.read_from(taken.session, 0)] == [50.0, 50.0, 50.0, 40.0, 40.0]
    assert [row.at for row in store.usage()] == [50.0, 60.0]


def test_a_price_that_is_not_known_is_not_0(store):
    session = [
        json.loads(json.dumps(line).replace("claude-sonnet-4-5", "unheard-of")) for line in claude_session()
    ]
    take(store, *session)
    assert [row.cost for row in store.usage()] == [None, None]


def test_a_session_that_has_grown(store):
    (first,) = take(store, *claude_session())
    more = [claude_line("user", "u8", "a7", "Thanks."), answer("a9", "u8", "msg_3", words("Welcome."))]
    (second,) = take(store, *claude_session(), *more)
    assert (second.outcome, second.added, second.session) == (GROWN, 2, first.session)
    assert len(store.usage()) == 3
    assert take(store, *claude_session(), *more)[0].outcome == KNOWN
    assert take(store, *claude_session())[0].outcome == KNOWN
    assert store.faults() == []


def test_a_message_that_is_still_being_written_is_left_for_the_next_time(store):
    """Blocks of an answer and results of a batch are lines of one message. Taken too early it could only become a branch."""
    session = claude_session()[:-1]
    session[-1]["message"]["stop_reason"] = None

    def imported(count, age):
        (recorded,) = read_recorded(lines(*session[:count])).conversations
        return adopt_conversation(store, recorded, Settings(), NOW, NOW - age)

    assert (imported(4, 5).added, len(store.usage())) == (1, 0)  # two of three blocks of the first answer
    assert (imported(5, 5).outcome, imported(5, 5).more_to_come) == (
        KNOWN,
        True,
    )  # all of them, which nobody can tell yet
    assert imported(6, 5).added == 1  # one result of two: the answer is complete
    assert imported(7, 5).added == 1
    assert imported(8, 5).outcome == KNOWN
    assert (imported(8, 100).added, len(store.usage()), len(store.list())) == (
        1,
        2,
        1,
    )  # nobody goes on with it


def test_a_session_that_went_on_here_stays_as_it_is(store):
    (first,) = take(store, *claude_session())
    Session.resume(store, first.session).append([{"role": "user", "content": "From here on in Penstock."}])
    assert take(store, *claude_session())[0].outcome == KNOWN
    assert store.log_tip(first.session).length == 5


def test_what_is_new_goes_to_the_tip_of_a_conversation_that_was_compacted(store):
    talk = [
        {"role": ("user", "assistant")[n % 2], "content": f"word_{n} at line {n * 7} " * 20}
        for n in range(41)
    ]
    (first,) = take(store, json.dumps(talk[:40]).encode())
    Session.resume(store, first.session).compact(target_tokens=1_500)
    (grown,) = take(store, json.dumps(talk).encode())
    assert (grown.outcome, grown.session) == (GROWN, first.session)
    view = export_conversation(store, first.session, view=True).messages
    assert len(view) < 40
    assert json.loads(view[-1]) == talk[-1]
    assert store.faults() == []


def test_a_session_that_went_another_way_is_a_branch(store):
    (first,) = take(store, *claude_session())
    other = [
        claude_line("user", "u8", "u6", "Stop. Only the first."),
        answer("a9", "u8", "msg_3", words("Twelve.")),
    ]
    (branch,) = take(store, *claude_session(), *other)
    assert (branch.outcome, branch.added) == (BRANCHED, 2)
    assert branch.session != first.session
    assert log(store, branch.session)[:3] == log(store, first.session)[:3]
    assert take(store, *claude_session(), *other)[0].outcome == KNOWN
    more = claude_line("user", "u10", "a9", "Thanks.")
    (grown,) = take(store, *claude_session(), *other, more)
    assert (grown.outcome, grown.session, grown.added) == (GROWN, branch.session, 1)
    assert take(store, *claude_session())[0].outcome == KNOWN
    assert store.faults() == []


def test_sub_agents_work_for_their_session(store):
    agent = claude_line("user", "s1", None, "Look for sums.", isSidechain=True, agentId="a1b2")
    assert [one.outcome for one in take(store, agent)] == [WITHOUT_PARENT]
    assert store.list() == []
    main, sub = take(store, *claude_session(), agent)
    assert [main.outcome, sub.outcome] == [NEW, NEW]
    assert len(store.list()) == 1
    (child,) = store.list_children(main.session)
    assert (child.id, child.kind) == (sub.session, "subagent")
    assert [one.outcome for one in take(store, *claude_session(), agent)] == [KNOWN, KNOWN]
    store.delete(main.session)
    assert store.faults() == []


def test_a_plain_file_that_has_grown(store):
    talk = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]
    (first,) = take(store, json.dumps(talk).encode())
    assert store.list()[0].updated == NOW
    talk.append({"role": "user", "content": "Bye"})
    (second,) = take(store, json.dumps(talk).encode())
    assert (first.outcome, second.outcome, second.added) == (NEW, GROWN, 1)
    assert second.session == first.session


def test_a_plain_file_is_never_put_at_the_end_of_a_conversation_of_ours(store):
    ours = Session.create(store)
    ours.append([{"role": "user", "content": "Hello"}])
    (taken,) = take(
        store, json.dumps([{"role": "user", "content": "Hello"}, {"role": "user", "content": "Bye"}]).encode()
    )
    assert taken.outcome == NEW
    assert len(ours.view()) == 1


def test_an_import_that_was_cut_short_goes_on(store, monkeypatch):
    """As after a kill: the session is there, and some of its messages."""
    monkeypatch.setattr(adopting, "_AT_ONCE", 4)
    late = claude_line("user", "u8", "a7", "Thanks.") | {"timestamp": "2026-03-14T11:00:00Z"}
    more = [late, answer("a9", "u8", "msg_3", words("Welcome."))]
    (recorded,) = read_recorded(lines(*claude_session(), *more)).conversations

    class Cut(Exception):
        pass

    class OneTurn:
        """The store, until its second append."""

        def __init__(self):
            self.left = 1

        def __getattr__(self, name):
            if name == "append":
                if not self.left:
                    raise Cut
                self.left -= 1
            return getattr(store, name)

    with pytest.raises(Cut):
        adopt_conversation(OneTurn(), recorded, Settings(), NOW)
    assert store.log_tip(store.list()[0].id).length == 4
    assert (adopt_conversation(store, recorded, Settings(), NOW).outcome, len(store.list())) == (GROWN, 1)
    assert len(store.usage()) == 3


def test_an_import_that_was_cut_short_before_its_costs_books_them_the_next_time(store):
    """As after a kill between the two: the messages are there, and what they cost is not."""
    (recorded,) = read_recorded(lines(*claude_session())).conversations

    class Cut(Exception):
        pass

    class WithoutBooks:
        def book_all(self, rows):
            raise Cut

        def __getattr__(self, name):
            return getattr(store, name)

    with pytest.raises(Cut):
        adopt_conversation(WithoutBooks(), recorded, Settings(), NOW)
    assert (store.list()[0].messages, store.usage()) == (4, [])
    assert adopt_conversation(store, recorded, Settings(), NOW + 1).outcome == KNOWN
    assert store.usage() == []  # whoever has appended them may be about to book them
    for later in (60, 120):
        assert adopt_conversation(store, recorded, Settings(), NOW + later).outcome == KNOWN
        assert len(store.usage()) == 2
    assert store.list()[0].cost == pytest.approx(0.0020, abs=5e-5)


def test_a_title_holds_no_secret(store):
    secret = "sk-" + "test" + "A1b2C3d4E5f6G7h8I9j0K1l2"
    take(
        store, *claude_session()[:-1], {"type": "summary", "summary": f"Use {secret} here", "leafUuid": "a7"}
    )
    assert secret not in store.list()[0].title


def test_the_view_is_exported_with_the_bytes_of_what_is_kept(store):
    session = Session.create(store)
    odd = b'{ "role":"user",  "content":"the very l\\u0061st words" }'
    filler = [
        {"role": ("user", "assistant")[n % 2], "content": f"word_{n} said at line {n * 7} " * 20}
        for n in range(60)
    ]
    session.append([*filler, odd])
    session.compact(target_tokens=1_500)
    found = export_conversation(store, session.id, view=True)
    assert found.messages[-1] == odd
    assert [json.loads(raw) for raw in found.messages] == session.view()
    assert export_conversation(store, session.id).messages[-1] == odd
    assert len(export_conversation(store, session.id).messages) == 61


def test_the_source_is_not_the_name_of_another(store):
    """Two programs may give the same id."""
    claude, codex = take(store, *claude_session()), take(store, *codex_rollout())
    assert SESSION in json.dumps(codex_rollout())
    assert claude[0].session != codex[0].session
    assert codex[0].outcome == NEW


def test_nothing_is_noted_on_a_conversation_that_was_deleted_meanwhile(store):
    """An import, a handoff or a judgement that is under way when its conversation is deleted leaves nothing behind."""
    (done,) = take(store, claude_session())
    row = store.session(done.session)
    (recorded,) = read_recorded(lines(claude_session())).conversations
    store.delete(done.session)
    adopting._sign(store, row, recorded)
    keep_origin(store, row.conversation, HandoverOrigin("another", 3, 1))
    receipt = HandedOver(created=NOW, client="", messages=3, tokens_before=9, tokens_after=4)
    keep_handover(store, row.conversation, receipt)
    quality._keep(store, f"{row.conversation}/1", quality.LiveQuality())
    with store.database.reading() as do:
        assert do.rows("SELECT name FROM notes WHERE key = ? OR key LIKE ?", row.conversation, "%/1") == []
