"""`sessions show` reads like a conversation, and so does its Markdown."""

from __future__ import annotations

import io
import stat

import pytest
from tests.e2e.cli_process import assert_one_clear_error, assistant, call, encoded, result, user, work

from penstock.accounts.talk import read_talk, write_markdown
from penstock.cli.screen import Screen
from penstock.cli.talk import page, talk_lines
from penstock.sessions.session import Session
from penstock.stores.store import open_store

LONG = "\n".join(f"line {number}" for number in range(40))


def talk_of(*messages, dialect="chat"):
    store = open_store("memory:")
    session = Session.create(store, dialect=dialect)
    session.append(messages)
    return read_talk(store, session.id)


def shown(entries, **screen):
    return "\n".join(talk_lines(entries, Screen(io.StringIO(), **screen)))


def test_speakers_calls_with_their_outcome_and_folded_results():
    text = shown(talk_of(user("Look."), call("c1", "terminal"), result("c1", LONG), assistant("It is long.")))
    assert [line.split(" ·")[0] for line in text.splitlines() if line[:1].strip()] == [
        "user m1",
        "assistant m2",
        "assistant m4",
    ]
    assert "  ▸ terminal  command: make\n      line 0\n" in text
    assert "… 36 more lines: --handle m3" in text
    assert "line 5" not in text


def test_a_summary_by_another_program_is_not_the_users():
    summary = "<conversation-summary>\n19 orders.\n</conversation-summary>"
    entries = talk_of(user("Count."), user(summary), user(f"{summary}\nGo on."), dialect="anthropic")
    assert [entry.speaker for entry in entries] == ["user", "summary", "user"]


def test_a_call_that_has_no_result_says_so():
    assert "terminal  command: make (no result)" in shown(talk_of(user("Go."), call("c1")))


def test_of_a_failed_call_the_last_lines_are_shown():
    failed = {"type": "tool_result", "tool_use_id": "c1", "content": LONG, "is_error": True}
    entries = talk_of(
        user("Go."),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}]},
        {"role": "user", "content": [failed]},
        dialect="anthropic",
    )
    text = shown(entries)
    assert "Bash failed" in text
    assert "line 39" in text
    assert "line 3\n" not in text
    assert "… 36 earlier lines: --handle m3" in text


def test_words_of_a_harness_are_told_from_a_persons():
    text = shown(
        talk_of(user("<system-reminder>\nBe brief.\nAlways.\nYes.\n</system-reminder>\nCount the orders."))
    )
    assert "[reminder]" in text
    assert "  Count the orders." in text
    assert "Always." not in text


def test_secrets_are_not_shown():
    key = "sk-ant-api03-" + "a1B2c3D4" * 11 + "-AAAAAAAA"
    entries = talk_of(
        user(f"Use {key}."), call("c1", arguments=f'{{"key": "{key}"}}'), result("c1", f"got {key}")
    )
    assert key not in shown(entries)
    assert key.encode() not in write_markdown("", entries)


def test_a_narrow_screen_is_not_left():
    text = shown(talk_of(*work(3), user("word " * 60)), columns=50)
    assert max(map(len, text.splitlines())) <= 50


def test_markdown_has_every_message_and_fences_that_hold():
    fence = "```\ncode\n```"
    text = write_markdown("A title", talk_of(user("Look."), call("c1"), result("c1", fence))).decode()
    assert text.startswith("# A title\n\n## user (m1)\n\nLook.\n\n## assistant (m2)\n\n**terminal**\n")
    assert f"````text\n{fence}\n````" in text


def test_the_commands(penstock, tmp_path):
    (tmp_path / "talk.json").write_bytes(encoded(work(4)))
    store = ("--store", f"sqlite:///{tmp_path}/s.db")
    assert penstock("sessions", "import", tmp_path / "talk.json", *store).code == 0
    identity = penstock("sessions", "list", *store).text.splitlines()[1].split()[0]
    text = penstock("sessions", "show", identity, *store).text
    assert "▸ read_file  path: src/report/part_0.py" in text
    written = penstock("sessions", "export", identity, "--format", "md", *store).text
    assert written.count("\n## ") == 7
    assert_one_clear_error(
        penstock("sessions", "export", identity, "--format", "md", "--view", *store), "--view"
    )


@pytest.mark.outside
def test_on_a_terminal_the_pager_of_the_user_gets_it(tmp_path, monkeypatch):
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/seen\n")
    pager.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PAGER", str(pager))
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": staticmethod(lambda: True)}))
    printed = io.StringIO()
    page(["one", "two"], Screen(printed, bars=True))
    assert (tmp_path / "seen").read_text() == "one\ntwo\n"
    assert printed.getvalue() == ""
    monkeypatch.setenv("PAGER", "no-such-pager")
    page(["one", "two"], Screen(printed, bars=True))
    assert printed.getvalue() == "one\ntwo\n"
