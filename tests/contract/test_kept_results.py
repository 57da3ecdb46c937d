"""Large tool results of a session, in every store and every dialect: previews in the log, all of it by handle."""

from __future__ import annotations

import copy
import json
import random
import resource
import signal

import pytest

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import ToolResult
from penstock.conversation.wire import parse_json
from penstock.errors import StoreUnavailable, UnknownHandle
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.stores.store import open_store

IMAGE = "iVBORw0KGgo="


def log_lines(count, word="line"):
    return "".join(f"{word} {n} of the log says nothing of note\n" for n in range(count))


def call(dialect, call_id, tool="terminal", **arguments):
    text = json.dumps(arguments)
    match dialect:
        case "chat":
            function = {"name": tool, "arguments": text}
            return {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            }
        case "responses":
            return {"type": "function_call", "call_id": call_id, "name": tool, "arguments": text}
        case "anthropic":
            return {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": call_id, "name": tool, "input": arguments}],
            }
        case _:
            return {
                "from": "gpt",
                "value": f'<tool_call>\n{{"name": "{tool}", "arguments": {text}}}\n</tool_call>',
            }


def result(dialect, call_id, text, tool="terminal"):
    match dialect:
        case "chat":
            return {"role": "tool", "tool_call_id": call_id, "content": text, "extra": [1]}
        case "responses":
            return {"type": "function_call_output", "call_id": call_id, "output": text, "id": "fco_1"}
        case "anthropic":
            block = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": True}
            return {"role": "user", "content": [block, {"type": "text", "text": "That is all."}]}
        case _:
            content = json.dumps({"name": tool, "content": text})
            return {"from": "tool", "value": f"<tool_response>\n{content}\n</tool_response>"}


def shown(session):
    """The texts of all results in the log."""
    wires = [parse_json(entry.raw) for entry in session.store.read_from(session.id, 0)]
    messages = decode_all(DIALECTS[session.row.dialect], wires)
    return [part.text for message in messages for part in message.parts if isinstance(part, ToolResult)]


def handle_in(text):
    return text.rpartition("stored as ")[2].partition("]")[0].partition(";")[0]


@pytest.fixture
def session(store):
    return Session.create(store, settings=settings_from({"model": {"context_length": 200_000}}))


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_a_large_result_is_stored_and_all_of_it_is_there_by_its_handle(store, dialect):
    session = Session.create(
        store, dialect=dialect, settings=settings_from({"model": {"context_length": 200_000}})
    )
    text = log_lines(3_000)
    session.append([call(dialect, "c1", command="make")])
    large = result(dialect, "c1", text)
    before = copy.deepcopy(large)
    (kept,) = session.keep_results([large])
    assert large == before
    session.append([kept])
    (preview,) = shown(session)
    assert len(preview) < 1_700
    assert text.startswith(preview.rpartition("\n")[0])
    assert session.original(handle_in(preview)) == text
    assert session.original("m2") == kept
    (here,) = decode_all(DIALECTS[dialect], [kept])
    (there,) = decode_all(DIALECTS[dialect], [large])
    assert [part if not isinstance(part, ToolResult) else part.call_id for part in here.parts] == [
        part if not isinstance(part, ToolResult) else part.call_id for part in there.parts
    ]
    if dialect != "sharegpt":
        assert {key for key in kept if kept[key] != large[key]} <= {"content", "output"}
    assert not store.faults()


def test_small_results_are_what_was_given(session):
    given = [call("chat", "c1"), result("chat", "c1", log_lines(100))]
    assert all(one is other for one, other in zip(session.keep_results(given), given, strict=True))
    raw = b'{ "role":"tool",  "tool_call_id":"c1", "content":"sp\\u0061ces" }'
    session.append([given[0], raw], keep_results=True)
    assert session.store.read(session.id, [1])[0].raw == raw


def test_of_a_turn_that_is_too_large_the_largest_are_stored(session):
    sizes = [1_000, 2_300, 500, 2_200, 100]
    calls = [call("chat", f"c{n}") for n in range(len(sizes))]
    turn = [result("chat", f"c{n}", log_lines(size)) for n, size in enumerate(sizes)]
    session.append([*calls, *turn], keep_results=True)
    texts = shown(session)
    assert ["stored as" in text for text in texts] == [False, True, False, False, False]
    assert sum(map(len, texts)) <= 200_000
    assert session.original(handle_in(texts[1])) == log_lines(2_300)


def test_results_that_come_one_by_one_are_one_turn(session):
    session.append([call("chat", f"c{n}") for n in range(6)])
    for n in range(6):
        session.append([result("chat", f"c{n}", log_lines(1_000, f"part{n}"))], keep_results=True)
    texts = shown(session)
    assert sum(map(len, texts)) <= 200_000
    assert ["stored as" in text for text in texts] == [False] * 4 + [True] * 2
    session.append([{"role": "assistant", "content": "Done."}, call("chat", "next")])
    session.append([result("chat", "next", log_lines(2_000))], keep_results=True)
    assert "stored as" not in shown(session)[-1]  # another turn


def test_a_small_window_has_small_limits(store):
    session = Session.create(store, settings=settings_from({"model": {"context_length": 8_000}}))
    session.append([call("chat", "c1"), result("chat", "c1", log_lines(250))], keep_results=True)
    assert "stored as" in shown(session)[0]


def test_a_tool_may_have_its_own_limit(session):
    session.tool_limits |= {"chatty": 500, "quiet": None}
    given = [
        *(call("chat", f"c{n}", tool) for n, tool in enumerate(["chatty", "quiet", "terminal"])),
        result("chat", "c0", log_lines(50)),
        result("chat", "c1", log_lines(3_000)),
        result("chat", "c2", log_lines(50)),
    ]
    session.append(given, keep_results=True)
    first, second, third = shown(session)
    assert len(first) <= 500
    assert session.original(handle_in(first)) == log_lines(50)
    assert (second, third) == (log_lines(3_000), log_lines(50))


def test_reading_back_is_never_stored_again(session):
    session.recall_tool = "history_expand"
    session.append([call("chat", "c1"), result("chat", "c1", log_lines(6_000))], keep_results=True)
    handle = handle_in(shown(session)[0])
    assert f"stored as {handle}; history_expand reads it]" in shown(session)[0]
    for n, (tool, arguments) in enumerate(
        [
            ("history_expand", {"handle": handle}),
            ("read_file", {"path": f"/tmp/results/{handle}.txt"}),
            ("Read", {"file_path": handle}),
        ]
    ):
        session.append(
            [call("chat", f"r{n}", tool, **arguments), result("chat", f"r{n}", log_lines(6_000))],
            keep_results=True,
        )
        assert shown(session)[-1] == log_lines(6_000)
    session.append(
        [call("chat", "r9", "Read", file_path="r0123456789ab"), result("chat", "r9", log_lines(6_000))],
        keep_results=True,
    )
    assert "stored as" in shown(session)[-1]  # no stored result has that handle


def test_a_file_that_is_read_has_no_limit_of_its_own_but_that_of_its_turn(session):
    session.append(
        [call("chat", "c1", "read_file", path="a.txt"), result("chat", "c1", log_lines(4_000))],
        keep_results=True,
    )
    assert shown(session)[-1] == log_lines(4_000)
    session.append(
        [
            *(call("chat", f"d{n}", tool) for n, tool in enumerate(["read_file", "terminal", "terminal"])),
            result("chat", "d0", log_lines(2_400)),
            result("chat", "d1", log_lines(1_500)),
            result("chat", "d2", log_lines(1_400)),
        ],
        keep_results=True,
    )
    assert ["stored as" in text for text in shown(session)[-3:]] == [False, True, False]


def test_pictures_stay(session):
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}
    content = [{"type": "text", "text": log_lines(3_000)}, picture]
    session.append([call("chat", "c1"), result("chat", "c1", content)], keep_results=True)
    assert picture in session.view()[1]["content"]
    assert len(shown(session)[0]) < 1_700


def test_the_same_result_again_is_stored_once(session):
    for n in range(2):
        session.append([call("chat", f"c{n}"), result("chat", f"c{n}", log_lines(3_000))], keep_results=True)
    first, second = shown(session)
    assert handle_in(first) == handle_in(second)


def test_previews_are_redacted_and_what_is_stored_is_not(session):
    text = "password=hunter2-and-more\n" + log_lines(3_000)
    session.append([call("chat", "c1"), result("chat", "c1", text)], keep_results=True)
    (preview,) = shown(session)
    assert "hunter2" not in preview
    assert session.original(handle_in(preview)) == text


def test_results_belong_to_their_conversation_and_its_branches(session, store):
    session.append([call("chat", "c1"), result("chat", "c1", log_lines(3_000))], keep_results=True)
    handle = handle_in(shown(session)[0])
    branch = session.branch("m2")
    early = session.branch("m1")
    other = Session.create(store)
    assert branch.original(handle) == log_lines(3_000)
    assert branch.history.text(handle) == log_lines(3_000)
    for stranger in (early, other):
        with pytest.raises(UnknownHandle):
            stranger.original(handle)
    store.delete(session.id)
    assert branch.original(handle) == log_lines(3_000)
    assert not store.faults()
    store.delete(branch.id)
    assert store.result(handle) is None


def test_results_are_found_wherever_their_message_stands(session, store):
    text = log_lines(1_500) + "the zebra_7731 is late\n" + log_lines(1_500)
    session.append([call("chat", "c1"), result("chat", "c1", text)], keep_results=True)
    handle = handle_in(shown(session)[0])
    branch, early = session.branch("m2"), session.branch("m1")

    def found(findings):
        return {one.handles for one in findings}

    assert found(session.search("zebra_7731")) == found(branch.search("zebra_7731")) == {(handle,)}
    assert found(early.search("zebra_7731")) == set()
    anywhere = store.search("zebra_7731")
    assert {(one.handles, one.session) for one in anywhere} == {((handle,), session.row.conversation)}
    store.delete(session.id)
    assert found(branch.search("zebra_7731")) == {(handle,)}
    anywhere = store.search("zebra_7731")
    assert {(one.handles, one.session) for one in anywhere} == {((handle,), branch.row.conversation)}
    assert not store.faults()


def test_odd_characters_come_back(session):
    text = "a\0b \ud800 é 🧭\r\n" * 10_000
    session.append([call("chat", "c1"), result("chat", "c1", text)], keep_results=True)
    assert session.original(handle_in(shown(session)[0])) == text


class TestWhereStoringFails:
    """A store that cannot be written to: what is shown says so, and nothing pretends to be kept."""

    def test_the_preview_says_so(self, tmp_path, caplog):
        path = tmp_path / "s.db"
        store = open_store(f"sqlite:///{path}", wait_seconds=0.1)
        session = Session.create(store)
        session.append([call("chat", "c1")])
        other = open_store(f"sqlite:///{path}")
        with other.database.writing():  # somebody holds the file for longer than anybody waits
            (kept,) = session.keep_results([result("chat", "c1", log_lines(3_000))])
            with pytest.raises(StoreUnavailable):
                session.append([kept])
        assert kept["content"].endswith("characters in 3,001 lines; the rest could not be kept]")
        assert "stored as" not in kept["content"]
        assert "could not be kept" in caplog.text
        assert "says nothing of note" not in caplog.text
        session.append([kept])  # the conversation goes on as soon as the store does
        assert shown(session) == [kept["content"]]
        other.close()
        store.close()

    def test_a_disk_that_is_too_full_for_the_result_takes_the_preview(self, tmp_path):
        store = open_store(f"sqlite:///{tmp_path}/s.db")
        session = Session.create(store)
        session.append([call("chat", "c1")])
        text = random.Random(1).randbytes(1_000_000).hex()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, before[1]))
            session.append([result("chat", "c1", text)], keep_results=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert shown(session)[0].endswith("2,000,000 characters in 1 line; the rest could not be kept]")
        assert not store.faults()
        session.append([call("chat", "c2"), result("chat", "c2", text)], keep_results=True)
        assert session.original(handle_in(shown(session)[1])) == text
        store.close()
