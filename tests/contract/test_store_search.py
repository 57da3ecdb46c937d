"""Search, the same on every store."""

from __future__ import annotations

import pytest
from tests.contract.store_talk import append, compact, messages, raw_message, started

from penstock.conversation.wire import encode_wire
from penstock.errors import StoreError
from penstock.recall import Wish
from penstock.stores.values import NewSession, StoredResult


def handles(findings):
    """The first handle of each: an excerpt may quote what stands beside it, too."""
    return [finding.handles[0] for finding in findings]


def quoted(findings):
    return {handle for finding in findings for handle in finding.handles}


def test_a_word_is_found_with_its_place_its_time_and_its_conversation(store):
    started(store, "one", title="first")
    append(store, "one", "the harbour is closed", "then we sail from Kronstadt", at=7.0)
    (finding,) = store.search("kronstadt")
    assert finding.handles[0] == "m2"
    assert (finding.turn, finding.at, finding.session) == (2, 7.0, "one")
    assert "Kronstadt" in finding.excerpt


def test_words_are_ored_and_the_rarer_one_leads(store):
    started(store)
    append(store, "s", *(f"the deployment number {n} went well" for n in range(30)), "the quokka deployment")
    assert handles(store.search("quokka deployment failures nobody mentioned"))[0] == "m31"


@pytest.mark.parametrize(
    "query",
    [
        "src/billing/ledger_export.py",
        "ledger_export",
        "ledger",
        "billing",
        "exportLedgerRows",
        "rows",
        "LEDGER_EXPORT.PY",
    ],
)
def test_names_and_paths_are_found_whole_and_by_part(store, query):
    started(store)
    append(store, "s", "hello", "see src/billing/ledger_export.py, function exportLedgerRows", "bye")
    assert handles(store.search(query)) == ["m2"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("请修复登录页面的错误", "登录"),
        ("デプロイは金曜日に失敗しました", "金曜日"),
        ("결제 서버가 응답하지 않습니다", "서버"),
        ("Die Prüfung der Anhänge schlägt fehl", "prufung"),
        ("обновите конфигурацию сервера", "Конфигурацию"),
    ],
)
def test_text_of_every_writing_is_found(store, text, query):
    started(store)
    append(store, "s", "something else", text, "and more")
    assert handles(store.search(query)) == ["m2"]


@pytest.mark.parametrize(
    "query", ["", " ", "the of and", "…", '"', "'", "a" * 5_000, "AND", "NOT x OR", "\0", "\ud800"]
)
def test_any_query_is_answered(store, query):
    started(store)
    append(store, "s", "alpha beta", "gamma")
    assert list(store.search(query)) == []


@pytest.mark.parametrize(
    "text",
    [
        'he said "stop" AND left',
        "it's 'quoted' \\ back\\slash",
        "a＂wide＂quote xylitol",
        "% ? ?::text",
        "nul \0 inside alpha",
    ],
)
def test_any_text_can_be_indexed_and_found(store, text):
    started(store)
    append(store, "s", text, "neutral")
    word = text.split()[-1].strip("'\"")
    assert store.index() == 2
    assert all(finding.handles[0:1] == ("m1",) for finding in store.search(text))
    assert store.search(word) or not word.isalpha()


def test_one_conversation_is_searched_alone(store):
    started(store, "one")
    started(store, "two")
    append(store, "one", "shared word tangerine", "only one")
    append(store, "two", "another tangerine here", "only two")
    assert {finding.session for finding in store.search("tangerine")} == {"one", "two"}
    assert [finding.session for finding in store.search("tangerine", session_id="two")] == ["two"]


def test_a_branch_finds_what_it_shares_and_not_what_came_after(store):
    started(store, "one")
    append(store, "one", "the old marmalade recipe", "noted")
    store.branch("one", 2, NewSession(id="two", at=5.0))
    append(store, "one", "marmalade with ginger")
    append(store, "two", "no more marmalade")
    assert quoted(store.search("marmalade", session_id="two")) == {"m1", "m2", "m3"}
    assert "ginger" not in " ".join(
        finding.excerpt for finding in store.search("marmalade", session_id="two")
    )


def test_the_same_messages_in_two_conversations_are_found_in_each(store):
    for name in ("one", "two"):
        started(store, name)
        append(store, name, "a shared opening about walnuts", "yes")
    assert store.index() == 2  # stored and indexed once
    for name in ("one", "two"):
        (finding,) = store.search("walnuts", session_id=name)
        assert finding.session == name
    store.delete("one")
    (finding,) = store.search("walnuts")
    assert finding.session == "two"
    (finding,) = store.search("walnuts", session_id="two")
    assert finding.handles[0:1] == ("m1",)


def test_what_waited_for_a_conversation_that_is_gone_is_still_indexed(store):
    for name in ("one", "two"):
        started(store, name)
        append(store, name, "a shared opening about walnuts", "yes")
    store.delete("one")
    (finding,) = store.search("walnuts", session_id="two")
    assert finding.session == "two"


def test_what_the_asker_sees_is_not_found(store):
    started(store)
    append(store, "s", *(f"note {n} about the penguin" for n in range(6)))
    seen = store.search("penguin", session_id="s", hidden={1, 2, 5})
    assert quoted(seen) == {"m1", "m4", "m5"}


def test_a_summary_is_found_once_it_is_no_longer_in_the_view(store):
    started(store)
    append(store, "s", "first", "second")
    compact(store, "s", "s2", text="we agreed on the word albatross")
    assert list(store.search("albatross", session_id="s")) == []
    append(store, "s2", "third")
    compact(store, "s2", "s3", text="nothing of it here")
    (finding,) = store.search("albatross", session_id="s")
    assert finding.handles[0:1] == ("s1",)


def test_a_stored_result_is_found_by_its_handle(store):
    started(store)
    append(store, "s", "run it")
    store.put_result(
        StoredResult(
            id="r-1", session="s", tool="terminal", text="lots of output\n" * 50 + "chinchilla", created=4.0
        )
    )
    (finding,) = store.search("chinchilla", session_id="s")
    assert finding.handles[0:1] == ("r-1",)
    assert finding.session == "s"


def test_calls_and_results_are_found_in_the_turn_that_made_them(store):
    started(store)
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "grep", "arguments": '{"pattern": "wombat"}'},
    }
    wires = [
        {"role": "user", "content": "look for it"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "src/zoo.py:12: capybara = 1"},
    ]
    store.append("s", [raw_message(encode_wire(wire)) for wire in wires], "", 3.0)
    (finding,) = store.search("capybara")
    assert finding.turn == 2
    assert "m3" in finding.handles
    assert handles(store.search("wombat"))[0] == "m2"


def test_what_is_deleted_is_found_no_more(store):
    started(store, "one")
    append(store, "one", "the xylophone is out of tune")
    store.put_result(StoredResult(id="r-1", session="one", tool="t", text="xylophone", created=4.0))
    compact(store, "one", "one-b", text="xylophone")
    started(store, "two")
    append(store, "two", "something about a zither")
    assert store.search("xylophone")
    store.delete("one")
    assert list(store.search("xylophone")) == []
    assert store.search("zither")
    with store.database.reading() as do:
        assert do.rows("SELECT count(*) FROM indexed") == [(1,)]
        assert do.rows("SELECT count(*) FROM unindexed") == [(0,)]
    assert list(store.faults()) == []


def test_only_what_is_new_is_indexed(store):
    started(store)
    append(store, "s", "one", "two", "three")
    assert store.count_unindexed() > 0
    assert store.index() == 3
    assert (store.count_unindexed(), store.index()) == (0, 0)
    append(store, "s", "four")
    assert (store.count_unindexed(), store.index()) == (1, 1)


def test_an_index_made_in_another_way_is_made_anew(store):
    started(store)
    append(store, "s", "alpha centauri", "beta")
    compact(store, "s", "s2", text="a summary")
    assert store.index() == 3
    with store.database.writing() as do:
        do.run("UPDATE index_version SET version = 0")
    assert store.count_unindexed() == 3
    assert handles(store.search("centauri")) == ["m1"]
    with store.database.reading() as do:
        assert do.rows("SELECT count(*) FROM indexed") == [(3,)]


def test_hits_and_excerpts_keep_to_what_is_wished(store):
    started(store)
    append(store, "s", *(f"line about heron number {n} " + "x" * 400 for n in range(40)))
    findings = store.search("heron", Wish(hits=3, characters=150))
    assert len(findings) == 3
    assert all(len(finding.excerpt) <= 150 for finding in findings)


def test_many_messages_are_searched_as_in_memory(store):
    """The same query finds the same places, whichever index holds them."""
    from penstock.conversation.dialects import dialect_named
    from penstock.conversation.wire import parse_json
    from penstock.recall import MemoryIndex

    texts = [
        f"step {n}: file src/mod{n % 7}/part{n % 11}.py line {n * 37 % 101} code E{n % 13:03}"
        for n in range(120)
    ]
    new = messages(*texts)
    started(store)
    store.append("s", new, "", 2.0)
    memory = MemoryIndex()
    memory.add_all(dialect_named("chat").decode(parse_json(one.raw)) for one in new)
    for query in ("mod3 part5 E007", "line 74", "step 99 src/mod1"):
        expected = [tuple(f"m{number}" for number in hit.messages) for hit in memory.search(query)]
        assert [finding.handles for finding in store.search(query)] == expected


def test_a_damaged_index_is_told_and_made_anew(store):
    started(store)
    append(store, "s", "the old pelican", "yes", "no")
    store.index()
    assert list(store.faults()) == []
    with store.database.writing() as do:
        do.run("DELETE FROM indexed WHERE source = (SELECT min(source) FROM indexed)")
    whats = [fault.what for fault in store.faults()]
    assert any("lacks 1 messages" in what for what in whats)
    assert all(fault.mendable and fault.where == "search index" for fault in store.faults())
    store.repair()
    assert handles(store.search("pelican")) == ["m1"]
    assert list(store.faults()) == []


@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_recall_tool_gave_is_not_found_beside_what_it_quotes(store, at_once):
    started(store)
    append(store, "s", "the manatee code is 5512")
    call = {"id": "c1", "type": "function", "function": {"name": "history_search", "arguments": "{}"}}
    wires = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "m1: the manatee code is 5512"},
    ]
    for wire in wires:  # as an agent does that logs a call before it carries it out
        store.append("s", [raw_message(encode_wire(wire))], store.log_tip("s").id, 3.0)
        if not at_once:
            store.index()
    assert handles(store.search("manatee")) == ["m1"]


def test_long_texts_are_indexed_a_few_at_a_time(store, monkeypatch):
    monkeypatch.setattr("penstock.stores.indexing._ENOUGH", 40)
    started(store)
    append(store, "s", "run them")
    for number in range(4):
        lines = "".join(f"{n} of pile{number}\n" for n in range(2_500))
        store.put_result(StoredResult(id=f"r-{number}", session="s", tool="t", text=lines, created=4.0))
    assert store.count_unindexed() == 5
    assert store.index(1) == 3  # the message, and of the results as many as there is room for
    assert (store.count_unindexed(), store.index()) == (2, 2)
    assert store.count_unindexed() == 0
    assert {handles(store.search(f"pile{number}"))[0] for number in range(4)} == {"r-0", "r-1", "r-2", "r-3"}


@pytest.mark.parametrize("indexed_before", [True, False])
def test_a_damaged_message_or_result_does_not_stop_a_search(store, indexed_before):
    started(store, "a")
    append(store, "a", "the lighthouse of Skagen " * 40, "the lighthouse of Hanstholm")
    store.put_result(StoredResult(id="r1", session="a", tool="t", text="a lighthouse " * 60, created=1.0))
    if indexed_before:
        store.index()
    with store.database.writing() as do:
        do.run("UPDATE results SET raw = ?", b"\x78\x9c\x00\xff")
        do.run("UPDATE messages SET raw = ? WHERE packed = 1", b"\x78\x9c\x00\xff")
    found = store.search("lighthouse")
    assert [hit.handles for hit in found] == [("m2",)]
    with pytest.raises(StoreError, match="doctor"):
        store.result("r1")


@pytest.mark.parametrize("indexed_before", [True, False])
def test_a_summary_that_was_taken_back_is_not_found(store, indexed_before):
    started(store, "a")
    append(store, "a", "one", "two")
    compact(store, "a", "a2", text="The lighthouse stands at Skagen.")
    if indexed_before:
        assert [hit.handles for hit in store.search("lighthouse")] == [("s1",)]
    store.undo("a2", 11.0)
    assert store.search("lighthouse") == []
