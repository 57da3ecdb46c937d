"""Ctrl-C, and keys that come while something else is going on."""

from __future__ import annotations

import time

import pytest
from tests.e2e.chat_screen import CTRL_C, CTRL_D, ENTER
from tests.e2e.chat_stage import calling, stage

from penstock.providers.exchange import Called
from penstock.testing import Reply


def test_ctrl_c_stops_the_turn_keeps_the_conversation_and_twice_leaves(tmp_path):
    script = [Reply("word " * 400, chunk_delay_seconds=0.1), "I was interrupted, and go on."]
    with stage(tmp_path, script) as at, at.screen() as chat:
        chat.wait_idle()
        chat.say("Count.")
        chat.wait("word word")
        chat.type("half a", CTRL_C)
        chat.wait("stopped; the conversation is kept\n\n› half a")
        chat.type(CTRL_C)
        chat.wait_idle()
        chat.say("Go on.")
        chat.wait("and go on")
        chat.wait_idle()
        said = at.server.received[-1].body["messages"]
        assert [one["role"] for one in said[-3:]] == ["user", "assistant", "user"]
        assert "[interrupted by the user]" in said[-2]["content"]
        chat.type("half a thought", CTRL_C)  # clears what was typed
        chat.wait_idle()
        chat.type(CTRL_C)
        chat.wait("press Ctrl-C again, or Ctrl-D, to exit")
        assert chat.process.poll() is None
        chat.type(CTRL_C)
        assert chat.wait_end() == 0


@pytest.mark.alone
def test_ctrl_c_ends_a_running_command_and_every_call_has_its_result(tmp_path):
    script = [calling("", "terminal", '{"command": "echo begun; sleep 60"}'), "Fine."]
    with stage(tmp_path, script) as at, at.screen("--yes") as chat:
        chat.wait_idle()
        chat.say("Wait a minute.")
        chat.wait("begun")
        started = time.monotonic()
        chat.type(CTRL_C)
        chat.wait("stopped; the conversation")
        assert time.monotonic() - started < 5
        assert "✗ terminal" in chat.text
        chat.wait_idle()
        chat.say("And now?")
        chat.wait("Fine.")  # the provider checks that the call has a result


def test_killed_in_the_middle_of_a_call_it_loses_nothing_and_goes_on(tmp_path):
    script = [
        "The first answer.",
        calling("", "terminal", '{"command": "echo begun; sleep 3"}'),
        "All is there.",
    ]
    with stage(tmp_path, script) as at:
        with at.screen("--yes") as chat:
            chat.wait_idle()
            chat.say("One.")
            chat.wait("The first answer.")
            chat.wait_idle()
            chat.say("Two.")
            chat.wait("begun")
            chat.process.kill()
            chat.process.wait()
        assert at.command("doctor").code == 0
        done = at.script("-p", "Three.", "--resume")
        assert done.text == "All is there.\n", done.err
        said = at.server.received[-1].body["messages"]  # that every call has a result, the provider checks
        assert [one["content"] for one in said if one["role"] == "user"][-3:] == ["One.", "Two.", "Three."]
        assert "The first answer." in [one["content"] for one in said]


def test_what_is_typed_during_a_turn_waits_for_its_end(tmp_path):
    with (
        stage(tmp_path, [Reply("slow " * 20, chunk_delay_seconds=0.1), "Second."]) as at,
        at.screen() as chat,
    ):
        chat.wait_idle()
        chat.say("first")
        chat.wait("slow slow")
        chat.say("typed ahead")
        chat.wait("› typed ahead\n\ngpt-4.1")  # below what is going on, above the status line
        chat.wait("Second.")
        assert at.server.received[1].body["messages"][-1]["content"] == "typed ahead"
        assert chat.everything.count("typed ahead") == 1  # what showed meanwhile is gone


def test_a_paste_during_a_turn_stays_one_input_and_waits_for_enter(tmp_path):
    script = [
        Reply("slow " * 20, chunk_delay_seconds=0.1),
        Reply("more " * 20, chunk_delay_seconds=0.1),
        "Third.",
    ]
    with stage(tmp_path, script) as at, at.screen() as chat:
        chat.wait_idle()
        chat.say("first")
        chat.wait("slow slow")
        chat.paste("def f():\n    return 1\n\nprint(f())")
        chat.type(" # what is it?")
        chat.wait(r"› print\(f\(\)\) # what is it\?\n\ngpt-4.1")
        chat.wait("slow\n\n› def f")  # the turn is over: it stands in the prompt, not sent
        assert len(at.server.received) == 1
        chat.type(ENTER)
        chat.wait("more more")
        pasted = "def f():\n    return 1\n\nprint(f()) # what is it?"
        assert at.server.received[1].body["messages"][-1]["content"] == pasted
        chat.paste("a\nb")
        chat.type(ENTER)
        chat.wait("Third.")
        assert at.server.received[2].body["messages"][-1]["content"] == "a\nb"
        chat.wait_idle()
        chat.type(CTRL_D)
        assert chat.wait_end() == 0
        assert not chat.takes_pastes  # the terminal is left as it was


def test_typed_before_the_question_is_no_answer(tmp_path):
    script = [
        Reply("", calls=(Called("c", "terminal", '{"command": "touch made"}'),), delay_seconds=1.0),
        "Ok.",
    ]
    with stage(tmp_path, script) as at, at.screen() as chat:
        chat.wait_idle()
        chat.say("Go.")
        chat.wait("waiting for the model")
        chat.type("yyyy")
        chat.wait("allow this")
        time.sleep(0.3)
        assert not (at.work / "made").exists()
        chat.type("n")
        chat.wait("Ok.")


def test_no_key_but_those_of_the_question_answers_it(tmp_path):
    keys = [chr(at) for at in range(1, 32) if chr(at) not in "\x03\x04\x1b"]  # Ctrl-C, Ctrl-D and Esc mean no
    with (
        stage(tmp_path, [calling("", "terminal", '{"command": "touch made"}'), "Ok."]) as at,
        at.screen() as chat,
    ):
        chat.wait_idle()
        chat.say("Go.")
        chat.wait("allow this")
        chat.wait_quiet()
        for key in [*keys, "x", "\x1b[A", "\x1b[3~"]:
            chat.type(key)
        chat.paste("yes")
        chat.wait_quiet()
        assert chat.process.poll() is None, chat.text
        assert not (at.work / "made").exists()
        chat.type("y")
        chat.wait("Ok.")
        assert (at.work / "made").exists()
        assert "search" not in chat.text


def test_ctrl_c_at_a_question_refuses_and_stops_the_turn(tmp_path):
    script = [calling("", "terminal", '{"command": "touch made"}'), "Fine."]
    with stage(tmp_path, script) as at, at.screen() as chat:
        chat.wait_idle()
        chat.say("Go.")
        chat.wait("allow this")
        chat.wait_quiet()
        chat.type(CTRL_C)
        chat.wait(r"✗ terminal touch made → stopped\nstopped; the conversation is kept")
        chat.wait_idle()
        assert len(at.server.received) == 1
        assert not (at.work / "made").exists()
        chat.say("And now?")
        chat.wait("Fine.")  # the provider checks that the call has a result
