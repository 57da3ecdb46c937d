"""What the turns after a compaction tell of it: each way to come by an earlier value, on small conversations."""

from __future__ import annotations

import json
import time

import msgspec
import pytest

import penstock
from penstock.conversation.message import Role, Summary
from penstock.conversation.view import Compaction, Handoff, Kept
from penstock.planning.receipt import LiveQuality, Receipt
from penstock.sessions import quality
from penstock.sessions.quality import measure_qualities
from penstock.stores.values import COMPRESSION, NewCompaction, NewSession


def user(text):
    return {"role": "user", "content": text}


def agent(text):
    return {"role": "assistant", "content": text}


def call(name, number=1, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": f"c{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(text, number=1):
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


EARLIER = [
    user("Deploy to staging_host_7, please."),
    call("read_file", 90, path="deploy/config.toml"),
    result("port = 48013\nregion = eu-north-1\nbucket = artefacts_blue", 90),
    agent("The port is 48013, the region eu-north-1."),
]


def put_in_place(session, handoff, keep=(), key="k1"):
    """Compacts all that was said so far to a handoff of these words and the messages at these positions."""
    tip = session.store.log_tip(session.id)
    gone = tuple(place for place in range(tip.length) if place not in keep)
    pieces = (Handoff(Summary(handoff, 1), gone, Role.USER), *map(Kept, keep))
    newest = session.store.newest_compaction(session.id)
    at = max(entry.created for entry in session.store.read_from(session.id, 0)) + 0.001
    new = NewSession(id=f"after-{key}", at=at, kind=COMPRESSION)
    session.store.commit(
        session.id,
        NewCompaction(
            compaction=Compaction(tip.id, tip.length, pieces),
            over=newest.key if newest is not None else 0,
            receipt=Receipt(
                outcome="compacted",
                tokens_before=9,
                tokens_after=1,
                messages_before=4,
                messages_after=2,
                target_tokens=5,
                kept=1,
            ).to_dict(),
            session=new,
            key=key,
        ),
    )
    session.refresh()


def follow(store, *later, handoff="Something was deployed.", keep=(), name="s"):
    session = penstock.Session(store, store.create(NewSession(id=name, at=time.time())))
    session.append(EARLIER)
    put_in_place(session, handoff, keep)
    append_later(session, later)
    return session


def append_later(session, later):
    """Appends messages at moments after the compaction."""
    newest = session.store.newest_compaction(session.id)
    while time.time() <= newest.created:
        time.sleep(0.0005)
    for message in later:
        session.append([message])


def only(session):
    (found,) = measure_qualities(session.store, session.id).values()
    return found


def test_a_value_in_the_handoff_stood_in_the_view(store):
    session = follow(store, agent("I use port 48013."), handoff="port 48013 is open")
    assert only(session) == LiveQuality(in_view=1, in_handoff=1, answers=1)


def test_a_value_in_a_message_that_was_kept_stood_in_the_view(store):
    session = follow(store, agent("I use port 48013."), keep=(3,))
    assert only(session) == LiveQuality(in_view=1, answers=1)


def test_a_value_that_a_recall_tool_brought_was_recalled(store):
    session = follow(
        store,
        call("history_search", query="bucket of the artefacts"),
        result('{"found": [{"handle": "m3", "excerpt": "bucket = artefacts_blue"}]}'),
        call("terminal", 2, command="sync artefacts_blue"),
    )
    assert only(session) == LiveQuality(recalled=1, answers=2)


def test_a_value_that_another_tool_brought_was_read_again(store):
    session = follow(
        store,
        call("read_file", path="notes"),
        result("bucket = artefacts_blue"),
        call("terminal", 2, command="sync artefacts_blue"),
    )
    assert only(session) == LiveQuality(read_again=1, answers=2)


def test_a_value_that_the_person_told_when_asked_was_asked_again(store):
    session = follow(
        store,
        agent("Which bucket was it?"),
        user("It is artefacts_blue, as I said."),
        call("terminal", command="sync artefacts_blue"),
    )
    assert only(session) == LiveQuality(asked_again=1, answers=2)


def test_a_value_that_a_person_told_unasked_was_not_needed_from_before(store):
    session = follow(
        store,
        agent("Done."),
        user("Now sync artefacts_blue."),
        call("terminal", command="sync artefacts_blue"),
    )
    assert only(session) == LiveQuality(answers=2)


def test_a_value_that_nothing_brought_came_from_elsewhere(store):
    assert only(follow(store, agent("I use port 48013."))) == LiveQuality(otherwise=1, answers=1)


def test_a_value_that_nobody_had_said_before_does_not_count(store):
    assert only(follow(store, agent("I made new_file_9.py for it."))) == LiveQuality(answers=1)


def test_a_value_counts_once_by_its_first_use(store):
    session = follow(
        store,
        call("read_file", path="notes"),
        result("bucket = artefacts_blue"),
        agent("artefacts_blue, again artefacts_blue"),
        agent("and artefacts_blue"),
    )
    assert only(session) == LiveQuality(read_again=1, answers=3)


def test_a_path_counts_once_and_by_its_name_where_only_that_was_known(store):
    session = follow(store, call("read_file", path="deploy/config.toml"), handoff="see deploy/config.toml")
    append_later(session, [call("read_file", 2, path="/srv/app/config.toml")])
    assert only(session) == LiveQuality(in_view=2, in_handoff=2, answers=2)


def test_the_words_of_a_query_and_the_names_of_arguments_are_no_uses(store):
    session = penstock.Session.create(store)
    session.append([*EARLIER, user("the file_path and the old_string")])
    put_in_place(session, "nothing")
    append_later(
        session,
        [
            call("history_search", query="artefacts_blue staging_host_7"),
            result("{}"),
            call("patch", 2, file_path="one", old_string="two"),
        ],
    )
    assert only(session) == LiveQuality(answers=2)


def test_a_phrase_is_the_same_words_without_quotes(store):
    session = penstock.Session.create(store)
    session.append([user('Set the status to "waiting for review".')])
    put_in_place(session, "status: waiting for review")
    append_later(session, [agent('It is "waiting for review" now.')])
    assert only(session) == LiveQuality(in_view=1, in_handoff=1, answers=1)


def test_a_compaction_that_nothing_followed_has_nothing_to_tell(store):
    found = only(follow(store))
    assert found == LiveQuality()
    assert not found.settled


def test_a_conversation_without_a_compaction_has_none(store):
    session = penstock.Session.create(store)
    session.append(EARLIER)
    assert measure_qualities(store, session.id) == {}


def test_what_was_said_while_it_was_prepared_is_not_its_doing(store):
    """Until it was put in place the agent had another view; then it stands behind the handoff, whole."""
    session = penstock.Session.create(store)
    session.append(EARLIER)
    tip = store.log_tip(session.id)
    session.append([agent("I use port 48013 in artefacts_blue.")])
    pieces = (Handoff(Summary("nothing", 1), (0, 1, 2, 3), Role.USER),)
    at = store.read_from(session.id, 4)[0].created + 0.001
    new = NewSession(id="later", at=at, kind=COMPRESSION)
    made = NewCompaction(compaction=Compaction(tip.id, 4, pieces), over=0, receipt={}, session=new, key="k")
    store.commit(session.id, made)
    session.refresh()
    assert only(session) == LiveQuality()
    append_later(session, [user("Go on."), agent("Again 48013.")])
    assert only(session) == LiveQuality(in_view=1, answers=1)


def test_each_of_two_compactions_is_judged_by_its_own_turns(store):
    session = follow(store, agent("I use port 48013."), handoff="port 48013")
    put_in_place(session, "nothing", key="k2")
    append_later(session, [agent("I use port 48013 in eu-north-1.")])
    first, second = measure_qualities(store, session.id).values()
    assert first == LiveQuality(in_view=1, in_handoff=1, answers=1, settled=True)
    assert second == LiveQuality(otherwise=2, answers=1)


def test_an_undone_compaction_is_judged_by_the_turns_until_then(store):
    session = follow(store, agent("I use port 48013."), handoff="port 48013")
    assert session.undo()
    session.append([agent("And eu-north-1.")])
    assert only(session) == LiveQuality(in_view=1, in_handoff=1, answers=1, settled=True)


def test_a_branch_is_judged_by_its_own_turns(store):
    session = follow(store, agent("I use port 48013."), handoff="port 48013")
    branch = session.branch()
    assert only(branch) == LiveQuality()
    append_later(branch, [agent("I use eu-north-1 and 48013.")])
    assert only(branch) == LiveQuality(in_view=1, otherwise=1, answers=1)
    assert only(session) == LiveQuality(in_view=1, in_handoff=1, answers=1)


def test_only_the_next_turns_count_and_then_it_is_settled(store):
    session = follow(store, *(agent(f"step {n}") for n in range(29)), agent("48013"), agent("eu-north-1"))
    assert only(session) == LiveQuality(otherwise=1, answers=30, settled=True)


def test_what_is_settled_is_kept_and_the_same_as_counted_again(store, monkeypatch):
    session = follow(store, agent("I use port 48013."), handoff="port 48013")
    put_in_place(session, "nothing", key="k2")
    first = measure_qualities(store, session.id)
    append_later(session, [agent("I use port 48013 in eu-north-1.")])
    kept = measure_qualities(store, session.id)
    monkeypatch.setattr(quality, "_read_kept", lambda *_: None)
    assert measure_qualities(store, session.id) == kept
    assert next(iter(kept.values())) == next(iter(first.values()))


@pytest.mark.parametrize("name", ["s", "team/s"])
def test_a_settled_answer_needs_no_log(store, monkeypatch, name):
    session = follow(store, *(agent(f"step {n}") for n in range(31)), name=name)
    found = measure_qualities(store, session.id)
    monkeypatch.setattr(quality, "_HeardLog", None)
    assert measure_qualities(store, session.id) == found


@pytest.mark.parametrize("table", ["entries", "messages"])
def test_what_a_damaged_store_lacks_says_nothing(store, table):
    session = follow(store, agent("I use port 48013 in artefacts_blue."), handoff="port 48013")
    with store.database.writing() as do:
        do.run(f"DELETE FROM {table} WHERE {'position = 2' if table == 'entries' else 'key = 3'}")
    assert only(session) == LiveQuality(in_view=1, in_handoff=1, answers=1)


def test_it_is_deleted_with_its_conversation(store):
    session = follow(store, *(agent(f"step {n}") for n in range(31)))
    (key,) = measure_qualities(store, session.id)
    name = f"{session.row.conversation}/{key}"
    assert store.note(quality._NOTE, name)
    store.delete(session.id)
    assert store.note(quality._NOTE, name) is None


def test_the_receipt_of_a_stored_compaction_tells_it(store):
    session = follow(store, agent("I use port 48013."), handoff="port 48013")
    (receipt,) = session.receipts()
    assert receipt.quality == only(session)
    assert (
        "Of 1 earlier value the agent used next, 1 stood in the view (100%, 1 only in the handoff)."
        in str(receipt)
    )
    assert receipt.to_dict()["quality"]["used"] == 1
    assert msgspec.convert(receipt.to_dict(), Receipt) == receipt


def test_it_is_told_in_plain_words():
    found = LiveQuality(in_view=1_100, recalled=2, read_again=1, asked_again=2, otherwise=1, answers=9)
    assert str(found) == (
        "Of 1,106 earlier values the agent used next, 1,100 stood in the view (99%), 2 came back by recall, "
        "1 was read again, 2 were asked of the person again, 1 stood in the system prompt or was put together by the agent."
    )
    assert str(LiveQuality(answers=1)) == "The agent has used no earlier value so far."
    assert str(LiveQuality()) == "The agent has not answered yet."
