"""`penstock search` as people use it: real processes, a real file."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.e2e.cli_process import encoded, penstock, work

from penstock.sessions.session import Session
from penstock.stores.store import open_store

EXAMPLE = Path(__file__).parents[2] / "examples" / "long_session.json"
KEY = (
    "sk-" + base64.b64encode(hashlib.sha512(b"no key").digest(), b"xy").decode()[:48]
)  # looks like one, is none


@pytest.fixture
def store(tmp_path):
    url = f"sqlite:///{tmp_path / 'kept' / 'sessions.db'}"
    opened = open_store(url)
    for name, word in (("first", "quokka"), ("second", "wombat")):
        session = Session.create(opened, title=f"the {name} one")
        session.append(
            [
                {"role": "user", "content": f"Look for the {word} in src/zoo/{word}_house.py"},
                {
                    "role": "assistant",
                    "content": f"The {word} sleeps on line 41.\nThe key is {KEY}, the door open.",
                },
            ]
        )
    opened.close()

    def run(*args, **more):
        return penstock(*args, PENSTOCK_STORE_URL=url, TZ="UTC", **more)

    run.url = url
    return run


def test_what_was_said_is_found_and_read_whole(store):
    found = store("search", "wombat", "line")
    assert found.code == 0
    assert "sleeps on line 41" in found.text
    assert "the second one" in found.text
    assert KEY not in found.text
    session, handle = found.text.splitlines()[0].split()[:2]
    whole = store("sessions", "show", session, "--handle", handle)
    assert "The wombat sleeps on line 41." in whole.text


def test_programs_get_all_of_it(store):
    findings = json.loads(store("search", "house.py", "--json", "--limit", "9").out)
    assert {one["title"] for one in findings} == {"the first one", "the second one"}
    assert all({"session", "handles", "turn", "at", "score", "excerpt"} <= one.keys() for one in findings)
    assert KEY not in json.dumps(findings)
    read = store("sessions", "show", findings[0]["session"], "--handle", findings[0]["handles"][0], "--json")
    assert json.loads(read.out)["kind"] == "message"


def test_the_title_is_the_one_that_the_list_shows(store):
    """Also where the conversation was compacted: its present session is another one than that with the title."""
    opened = open_store(store.url)
    session = Session.create(opened, title="the third one")
    session.append(work())
    session.compact(target_tokens=700)
    opened.close()
    listed = {row["id"]: row["title"] for row in json.loads(store("sessions", "list", "--json").out)}
    findings = json.loads(store("search", "migrations", "folder", "--json", "--limit", "1").out)
    assert [one["title"] for one in findings] == ["the third one"]
    assert "the third one" in listed.values()


def test_one_conversation_is_searched_alone(store):
    session = json.loads(store("search", "quokka", "--json").out)[0]["session"]
    assert json.loads(store("search", "wombat", "--session", session[:6], "--json").out) == []
    assert "nothing found" in store("search", "wombat", "--session", session[:6]).text


def test_a_search_is_kept_to_a_role_and_a_time_and_says_who_spoke(store):
    asked = ("search", "wombat", "--json")
    assert [one["role"] for one in json.loads(store(*asked, "--role", "assistant").out)] == ["assistant"]
    assert json.loads(store(*asked, "--role", "tool").out) == []
    assert json.loads(store(*asked, "--since", "2d").out)
    assert json.loads(store(*asked, "--since", "2999-01-01").out) == []
    assert json.loads(store(*asked, "--path", "src/zoo/wombat_house.py").out)
    assert json.loads(store(*asked, "--tool", "terminal").out) == []
    assert "  user  " in store("search", "wombat", "--role", "user").text


def test_a_search_that_finds_nothing_names_the_options_that_narrow_it(store):
    found = store("search", "wombat", "--role", "tool", "--path", "other.py")
    assert found.code == 0
    assert found.text.rstrip().endswith("; or search without --role, --path")
    assert "without" not in store("search", "zebra").text
    assert "'5' is not a whole number from 100" in store("search", "wombat", "--characters", "5").err


def test_what_several_conversations_say_alike_is_one_hit(store):
    opened = open_store(store.url)
    for place in ("north", "south", "west"):
        session = Session.create(opened)
        session.append(
            [
                {"role": "user", "content": f"go {place}"},
                {"role": "assistant", "content": "the numbat is awake"},
            ]
        )
    opened.close()
    (hit,) = json.loads(store("search", "numbat", "--json").out)
    assert "the numbat is awake" in hit["excerpt"]


def test_an_imported_file_is_found_at_once(store, tmp_path):
    file = tmp_path / "work.json"
    file.write_bytes(encoded([*work(), {"role": "user", "content": "remember the heliotrope"}]))
    assert store("sessions", "import", file).code == 0
    assert "heliotrope" in store("search", "heliotrope").text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("search",), "QUERY"),
        (("search", "x", "--limit", "0"), "--limit"),
        (("search", "x", "--since", "soon"), "--since"),
        (("search", "x", "--session", "nobody"), "no conversation has the id 'nobody'"),
        (("sessions", "show", "nobody", "--handle", "m1"), "no conversation has the id"),
    ],
)
def test_mistakes_are_told_in_one_line(store, args, said):
    failed = store(*args)
    assert failed.code != 0
    assert said in failed.err
    assert len(failed.err.strip().splitlines()) == 1


def test_a_handle_that_names_nothing_is_told(store):
    session = json.loads(store("search", "quokka", "--json").out)[0]["session"]
    failed = store("sessions", "show", session, "--handle", "m77")
    assert failed.code != 0
    assert "m77" in failed.err


def test_recall_is_measured_on_own_sessions(store):
    report = json.loads(penstock("bench", "recall", EXAMPLE, "--json").out)
    assert report["asked"] > 3
    assert 0.5 < report["found"]["10"] <= 1.0
    failed = store("bench", "recall")
    assert failed.code != 0
    assert "penstock sessions import" in failed.err


@pytest.mark.skipif(find_spec("wordllama") is None, reason="the extra `semantic` is not installed")
def test_other_words_are_enough_where_the_setting_is_on(store):
    opened = open_store(store.url)
    Session.create(opened, title="third").append(
        [{"role": "user", "content": "authentication fails with 401 for every user since the upgrade"}]
    )
    opened.close()
    assert "nothing found" in store("search", "login", "problem").text
    found = store("search", "login", "problem", PENSTOCK_RECALL_SEMANTIC="true")
    assert (found.code, found.err) == (0, "")
    assert "authentication fails" in found.text
