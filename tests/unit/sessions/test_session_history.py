"""The history of a stored session: what left its view is found and read, what stands in it is not repeated."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

import penstock
from penstock.errors import UnknownHandle
from penstock.recall import Wish
from penstock.settings import RecallSettings, Settings
from penstock.stores.indexing import IndexKeeper
from penstock.stores.store import open_store
from penstock.stores.values import StoredResult

PORT = "the staging database listens on port 50817"


@pytest.fixture
def session():
    store = open_store("memory:")
    made = penstock.Session.create(store, model="gpt-4.1")
    made.append([{"role": "user", "content": f"Remember: {PORT}. Then look through the files."}])
    for number in range(40):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        body = "\n".join(
            f"line {n} of src/part{number}/file{n}.py holds value_{number}_{n}" for n in range(30)
        )
        made.append(
            [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{number}", "content": body},
            ]
        )
    made.append([{"role": "user", "content": "Which port was it?"}])
    yield made
    store.close()


def test_before_a_compaction_everything_is_in_the_view(session):
    assert session.search("staging database port") == []


def test_an_agent_is_told_how_much_is_not_searched_yet(session, monkeypatch):
    session.compact(target_tokens=3_000)
    monkeypatch.setattr(IndexKeeper, "catch_up", lambda *_: None)  # others keep the store busy
    answer = json.loads(session.handle_tool_call("history_search", {"query": "value_3_7"}))
    in_view = sum(number > 0 for number in session.workings.read_view_base().view.numbers)
    assert answer["not_searched_yet"] == len(session) - in_view
    session.store.index()
    assert "not_searched_yet" not in json.loads(
        session.handle_tool_call("history_search", {"query": "value_3_7"})
    )


def test_what_left_the_view_is_found_and_read(session):
    session.compact(target_tokens=3_000)
    view = json.dumps(session.view())
    gone = next(
        f"value_{n}_{k}"
        for n in range(40)
        for k in range(30)
        if f"value_{n}_{k} " not in view and f"value_{n}_{k}\\n" not in view
    )
    found = session.search(gone)
    assert gone in found[0].excerpt
    assert gone in session.history.text(found[0].handles[0])
    answer = json.loads(session.handle_tool_call("history_search", {"query": gone}))
    assert any(gone in one["excerpt"] for one in answer["found"])


def test_a_history_that_was_asked_before_finds_what_a_new_one_finds(session):
    """It keeps the values of the view between searches, and reads only the newest messages for what was said last."""
    queries = [f"line 8 of part{part} holds which value" for part in (3, 5, 7, 9)]

    def say(part):
        for answer in (f"Line 8 of src/part{part}/file8.py holds value_{part}_8.", "It is done."):
            session.append([{"role": "assistant", "content": answer}, {"role": "user", "content": "And?"}])

    steps = {
        "compacted": lambda: session.compact(target_tokens=3_000),
        "more said": lambda: say(3),
        "said behind it": lambda: say(5),
        "nothing new": lambda: None,
        "much read since": lambda: session.append([{"role": "tool", "content": "read"} for _ in range(12)]),
        "rewound": lambda: session.rewind(1),
        "undone": session.undo,
        "said again": lambda: say(7),
        "compacted again": lambda: session.compact(target_tokens=2_500),
        "and more": lambda: say(9),
    }
    for name, take in steps.items():
        take()
        asked = [session.search(query) for query in queries]
        anew = penstock.Session.resume(session.store, session.id)
        assert asked == [anew.search(query) for query in queries], name
        assert any(asked), name


def test_no_finding_quotes_a_message_that_stands_in_the_view(session):
    session.compact(target_tokens=3_000)
    newest = session.store.newest_compaction(session.id)
    whole = {
        f"m{piece.position + 1}"
        for piece in newest.compaction.pieces
        if hasattr(piece, "position") and not hasattr(piece, "parts")
    }
    for query in ("line holds value", "src/part39/file3.py", "port"):
        for finding in session.search(query, hits=20):
            assert not whole.intersection(finding.handles)


@pytest.mark.outside  # takes long
def test_every_message_is_reachable_by_its_handle(session):
    session.compact(target_tokens=3_000)
    for position in range(len(session)):
        place = session.history.describe(f"m{position + 1}")
        text = session.history.text(place.handle)
        original = session.original(place.handle)
        assert (place.kind, place.characters) == ("message", len(text))
        assert (original["content"] or "") in text or text.startswith("[read_file]")


def test_a_summary_says_what_is_inside_it(session):
    session.compact(target_tokens=3_000)
    place = session.history.describe("s1")
    assert place.kind == "summary"
    assert place.in_view
    assert "m4" in place.inside
    assert session.history.text("s1").strip()


def test_a_stored_result_belongs_to_its_conversation(session):
    store = session.store
    store.put_result(
        StoredResult(id="r-9", session=session.id, tool="terminal", text="much\noutput", created=3.0)
    )
    assert session.history.text("r-9") == "much\noutput"
    assert session.history.describe("r-9").kind == "result"
    other = penstock.Session.create(store)
    with pytest.raises(UnknownHandle):
        other.history.text("r-9")


@pytest.mark.parametrize("handle", ["m0", "m500", "s1", "x", "", "m", "m1.5", "\0"])
def test_a_handle_that_names_nothing_is_refused(session, handle):
    with pytest.raises(UnknownHandle):
        session.history.describe(handle)
    with pytest.raises(UnknownHandle):
        session.history.text(handle)


def test_excerpts_hold_no_secret_even_where_it_runs_over_several_lines():
    store = open_store("memory:")
    session = penstock.Session.create(store)
    block = "\n".join(
        [
            "-----BEGIN RSA PRIVATE KEY-----",
            *["QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" * 2] * 30,
            "-----END RSA PRIVATE KEY-----",
        ]
    )
    session.append(
        [{"role": "user", "content": f"the deployment key follows\n{block}\nuse the deployment key wisely"}]
    )
    session.append([{"role": "assistant", "content": "x" * 9_000}, {"role": "user", "content": "go on"}])
    found = store.search("deployment key", Wish(hits=20), redact=session.workings.notebook.redactor.redact)
    assert found
    assert not any("QUJDREVG" in finding.excerpt for finding in found)
    store.close()


def test_what_the_recall_tools_gave_is_not_found_again(session):
    session.compact(target_tokens=3_000)
    question = {
        "id": "h1",
        "type": "function",
        "function": {"name": "history_search", "arguments": '{"query": "port"}'},
    }
    answer = session.handle_tool_call("history_search", {"query": "staging port"})
    session.append(
        [
            {"role": "assistant", "content": None, "tool_calls": [question]},
            {"role": "tool", "tool_call_id": "h1", "content": answer + " quoted from before: narwhal"},
        ]
    )
    assert list(session.store.search("narwhal")) == []
    assert session.history.text("m84").endswith("narwhal")


@pytest.mark.parametrize("has_tools", [True, False])
def test_the_view_names_the_tool_only_where_the_agent_has_it(session, has_tools):
    session.recall_tool = "history_expand" if has_tools else None
    session.compact(target_tokens=3_000)
    assert ("history_expand" in json.dumps(session.view())) is has_tools


@pytest.mark.outside  # takes long
def test_a_lossless_session_is_opened_node_by_node_down_to_its_messages(tmp_path):
    from penstock.settings import settings_from

    settings = settings_from({"context.engine": "lossless"})
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    session = penstock.Session.create(store, model="gpt-4.1", settings=settings)
    for number in range(60):
        session.append(
            [
                {
                    "role": ("user", "assistant")[number % 2],
                    "content": f"note {number}: " + f"value_{number} stands here. " * 40,
                }
            ]
        )
    session.compact(target_tokens=4_000)
    session.append([{"role": "user", "content": "and now?"}])
    session.compact(target_tokens=3_500)
    store.close()
    again = open_store(f"sqlite:///{tmp_path}/s.db")
    resumed = penstock.Session.resume(again, session.id, settings)
    assert "n1" in json.dumps(resumed.view())
    reached, waiting = set(), ["n1", "n2", "n3"]
    while waiting:
        for handle in resumed.history.describe(waiting.pop()).inside:
            if handle.startswith("n"):
                waiting.append(handle)
            else:
                reached.add(handle)
    assert "m2" in reached or "m4" in reached
    assert "value_" in resumed.history.text("n1")
    answer = json.loads(resumed.handle_tool_call("history_describe", {"handle": "n1"}))
    assert answer["kind"] == "segment"
    again.close()


@pytest.mark.parametrize("written", ["(m1)", "[m1]", "M1", " m1 ", "m01"])
def test_a_handle_is_read_alike_everywhere(session, written):
    assert PORT in session.original(written)["content"]
    assert PORT in session.history.text(written)
    assert session.history.describe(written).handle == "m1"


def read_all(call, handle):
    """Everything that a recall tool gives for a handle, page by page."""
    pages, offset = [], 0
    while offset is not None:
        page = json.loads(call("history_expand", {"handle": handle, "offset": offset}))
        pages.append(page["text"])
        offset = page.get("next_offset")
    return "".join(pages)


@pytest.mark.outside  # takes long
def test_the_handoff_is_the_messages_that_it_stands_for_by_every_way(session):
    said = session.view()
    result = session.compact(target_tokens=3_000)
    covered = result.original("handoff")
    assert session.original("Handoff") == covered
    place = session.history.describe("[handoff]")
    assert [said[int(handle[1:]) - 1] for handle in place.inside] == covered
    text = session.history.text("handoff")
    assert (place.handle, place.in_view, place.characters) == ("handoff", False, len(text))
    assert text == "\n\n".join(
        f"[{handle} {session.history.describe(handle).role}]\n{session.history.text(handle)}"
        for handle in place.inside
    )
    assert read_all(session.handle_tool_call, "handoff") == text


def test_after_a_second_compaction_the_handoff_stands_for_all_that_is_gone(session):
    session.compact(target_tokens=3_000)
    first = session.history.describe("handoff").inside
    session.append(
        [{"role": "user", "content": f"Note {n}: " + "look at the quay. " * 60} for n in range(20)]
    )
    session.compact(target_tokens=3_000)
    second = session.history.describe("handoff").inside
    assert set(first) < set(second)
    assert session.original("handoff") == [session.original(handle) for handle in second]


def test_where_no_handoff_stands_in_the_view_there_is_none_to_read(session):
    for ask in (session.original, session.history.describe, session.history.text):
        with pytest.raises(UnknownHandle, match="no original 'handoff'"):
            ask("handoff")
    session.compact(target_tokens=3_000)
    session.undo()
    with pytest.raises(UnknownHandle):
        session.original("handoff")


# The person's other conversations.

SECRET = "sk-proj-Qm9vdHN0cmFw7U2VjcmV0S2V5T3WF0ZXJpYWw9xL"
EVERYWHERE = Settings(recall=RecallSettings(other_conversations=True))


def talk(store, text, settings=None, **more):
    made = penstock.Session.create(store, model="gpt-4.1", settings=settings, **more)
    made.append([{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}])
    return made


def ask(session, tool, **arguments):
    return json.loads(session.handle_tool_call(tool, arguments))


def test_other_conversations_are_searched_and_read_only_where_the_settings_allow_it():
    with closing(open_store("memory:")) as store:
        other = talk(store, f"The depot gate opens with code 4417-Z. Its API key: {SECRET}")
        own = talk(store, "Which code opens the depot gate?", EVERYWHERE)
        (found,) = ask(own, "history_search", query="depot gate code")["found"]
        handle = f"{other.id[:8]}/m1"
        assert found["handles"] == [handle]
        assert "4417-Z" in found["excerpt"]
        assert "4417-Z" in ask(own, "history_expand", handle=handle)["text"]
        assert SECRET not in ask(own, "history_expand", handle=handle)["text"]
        assert ask(own, "history_describe", handle=handle)["handle"] == handle
        shut = talk(store, "Which code opens the gate of the depot?")
        assert ask(shut, "history_search", query="depot gate code")["found"] == []
        assert "error" in ask(shut, "history_expand", handle=handle)


def test_conversations_of_other_people_are_not_there():
    with closing(open_store("memory:")) as store:
        theirs = talk(store.for_owner("mallory"), "The depot gate opens with code 4417-Z.")
        own = talk(store.for_owner("alice"), "Which code opens the depot gate?", EVERYWHERE)
        assert ask(own, "history_search", query="depot gate code")["found"] == []
        assert "error" in ask(own, "history_expand", handle=f"{theirs.id[:8]}/m1")
        unbound = penstock.Session.resume(store, own.id, settings=EVERYWHERE)
        assert ask(unbound, "history_search", query="depot gate code")["found"] == []
        assert "error" in ask(unbound, "history_expand", handle=f"{theirs.id[:8]}/m1")


def test_what_a_branch_shares_is_not_found_as_anothers():
    with closing(open_store("memory:")) as store:
        first = talk(store, "The depot gate opens with code 4417-Z.")
        branch = penstock.Session.resume(store, first.branch().id, settings=EVERYWHERE)
        assert ask(branch, "history_search", query="depot gate code")["found"] == []


def test_own_findings_keep_most_of_the_places(session):
    session.compact(target_tokens=3_000)
    for number in range(12):
        talk(session.store, f"Another talk, {number}: line 3 of src/part3/file3.py holds nothing")
    own = penstock.Session.resume(session.store, session.id, settings=EVERYWHERE)
    found = own.search("line of src/part3/file3.py holds", hits=9)
    alone = session.search("line of src/part3/file3.py holds", hits=9)
    theirs = [one for one in found if "/" in one.handles[0]]
    assert len(theirs) in (1, 2, 3)
    assert found[-len(theirs) :] == theirs
    kept = len(found) - len(theirs)
    assert kept >= 5
    assert [one.handles for one in alone[:kept]] == [one.handles for one in found[:kept]]
