"""What a person types in a chat: lines, pastes, keys that answer a question, history and completion."""

from __future__ import annotations

import stat

from tests.e2e.chat_screen import ALT_ENTER, CTRL_C, CTRL_D, ENTER, ESCAPE, TAB
from tests.e2e.chat_stage import calling, stage


def test_paste_stays_one_input_and_lines_can_be_broken(tmp_path):
    with stage(tmp_path, ["One.", "Two."]) as at, at.screen() as chat:
        chat.wait_idle()
        chat.paste("first line\n/help\nthird line")
        chat.wait("third line")
        chat.type(ENTER)
        chat.wait("One.")
        chat.wait_idle()
        assert at.server.received[0].body["messages"][-1]["content"] == "first line\n/help\nthird line"
        chat.type("a", ALT_ENTER, "b\\", ENTER, "c", ENTER)
        chat.wait("Two.")
        assert at.server.received[1].body["messages"][-1]["content"] == "a\nb\nc"


def test_a_difference_is_shown_before_it_is_written_and_no_means_no(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("one\ntwo\nthree\n")
    long = '{"path": "b.txt", "content": "' + "word\\n" * 40 + 'the end"}'
    patch = '{"path": "a.txt", "old": "two", "new": "TWO\\u202e\\u001b[2J"}'
    script = [
        calling("", "patch", patch),
        calling("", "write_file", long),
        calling("", "terminal", '{"command": "echo again"}'),
        calling("", "terminal", '{"command": "echo again"}'),
        "Done.",
    ]
    with stage(tmp_path, script) as at, at.screen() as chat:
        chat.wait_idle()
        chat.say("Change it.")
        chat.wait("allow this")
        assert "patch wants to write:" in chat.text
        assert "│ -two" in chat.text
        assert "│ +TWO\\u202e\\x1b[2J" in chat.text  # nothing that moves the cursor or turns the text around
        chat.type("x", ENTER)  # neither is an answer
        chat.type(ESCAPE)
        chat.wait("✗ patch a.txt → refused: the user said no")
        chat.wait("more lines\nallow this. .v.iew all of it")
        assert "the end" not in chat.text
        chat.type("v")
        chat.wait("the end\nallow this")
        chat.type("n")
        chat.wait("✗ write_file b.txt")
        chat.wait("echo again\nallow this")
        chat.type("a")
        chat.wait("Done.")
        chat.wait_idle()
        assert chat.everything.count("wants to run") == 1  # the second time it is the same
        assert chat.everything.count("✓ terminal echo again") == 2
        assert (tmp_path / "work" / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_what_is_allowed_in_a_project_is_not_asked_in_the_next_chat_until_it_is_taken_back(tmp_path):
    run = calling("", "terminal", '{"command": "echo made"}')
    home = tmp_path / "home"  # the work is not in it
    home.mkdir()
    with stage(tmp_path, [run, "One.", run, "Two.", run, "Three."]) as at:
        with at.screen(HOME=str(home), columns=60, rows=20) as chat:
            chat.wait_idle()
            chat.say("Go.")
            chat.wait(r"allow this\? .y.es, .a.lways in this session, always in")
            chat.type("p")
            chat.wait("allowed in this project")
            chat.wait("One.")
        with at.screen(HOME=str(home), columns=60, rows=20) as chat:
            chat.wait_idle()
            chat.say("Again.")
            chat.wait("Two.")
            assert "wants to run" not in chat.everything
            chat.wait_idle()
            chat.say("/approvals")
            chat.wait(r"  1  terminal\(echo made\)")
            chat.wait_idle()
            chat.say("/approvals forget 1")
            chat.wait(r"will ask again before terminal\(echo made\)")
            chat.wait_idle()
            chat.say("And again.")
            chat.wait("allow this")
            chat.type("n")
            chat.wait("Three.")


def test_history_is_private_and_comes_back(tmp_path):
    with stage(tmp_path, ["One."]) as at:
        with at.screen() as chat:
            chat.wait_idle()
            chat.say("remember these words")
            chat.wait("One.")
            chat.wait_idle()
            chat.type(CTRL_D)
            chat.wait_end()
        history = tmp_path / ".local" / "share" / "penstock" / "chat_history"
        assert stat.S_IMODE(history.stat().st_mode) == 0o600
        with at.screen() as chat:
            chat.wait_idle()
            chat.type("\x1b[A")
            chat.wait("› remember these words")
            chat.type(CTRL_C)
            chat.type("/se", TAB)
            chat.wait(r"/search QUERY +search all")
            chat.wait(r"/sessions .WORDS. +list conversations")
