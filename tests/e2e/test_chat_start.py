"""How a chat begins: where something is missing, with a prompt on the command line, with a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing

import pytest
from tests.e2e.chat_screen import CTRL_C, CTRL_D, ChatScreen
from tests.e2e.chat_stage import calling, stage
from tests.e2e.cli_process import COMMAND, environment, penstock

from penstock.cli.chat.model import ModelRoute, keep_route
from penstock.local import missing
from penstock.sessions.session import Session
from penstock.stores.store import open_store

_WITHOUT = """
import importlib.util as util, sys
real = util.find_spec
util.find_spec = lambda name, *more: None if name == "rich" else real(name, *more)
from penstock.cli.main import main
sys.exit(main(["chat", "--model", "gpt-4.1"]))
"""


def test_without_the_extra_the_line_that_installs_it(tmp_path):
    command = (sys.executable, "-c", _WITHOUT)
    with ChatScreen(command=command, columns=160, HOME=str(tmp_path)) as chat:
        assert chat.wait_end() == 2
        text = " ".join(chat.text.split())
        assert "needs rich: pip install 'penstock-context[chat]' (in a clone: pip install '.[chat]'" in text
        assert "-p TEXT works without it" in text
        assert "Traceback" not in chat.text


@pytest.mark.skipif(missing() is not None, reason="the local model is not installed")
def test_without_a_key_the_model_on_this_machine_answers(tmp_path):
    with ChatScreen("--store", f"sqlite:///{tmp_path}/s.db", columns=100, HOME=str(tmp_path)) as chat:
        chat.wait("no key is set: the small model on this machine answers", seconds=40)
        chat.wait_idle()
        assert "of 8,192" in chat.lines[-1] + chat.text
        chat.type(CTRL_D)
        assert chat.wait_end() == 0


def test_one_answer_at_a_terminal_asks_there_and_can_be_stopped(tmp_path):
    script = [
        calling("", "terminal", '{"command": "touch made"}'),
        "Done.",
        calling("", "terminal", '{"command": "ls"}'),
    ]
    with stage(tmp_path, script) as at:
        with at.screen("-p", "Make it.") as chat:
            chat.wait("allow this")
            chat.say("y")
            assert chat.wait_end() == 0
            assert "✓ terminal touch made" in chat.text
            assert "\nDone.\n" in chat.text
            assert (at.work / "made").exists()
        with at.screen("-p", "List it.", "--resume") as chat:
            chat.wait("allow this")
            chat.type(CTRL_C)
            assert chat.wait_end() == 130
            assert "stopped; the conversation is kept" in chat.text


def test_a_pipe_that_nobody_writes_to_does_not_keep_a_script_waiting(tmp_path):
    with stage(tmp_path, ["Yes."]) as at:
        reading, writing = os.pipe()
        try:
            done = subprocess.run(
                [COMMAND, "chat", *at.args("-p", "Are you there?")],
                stdin=reading,
                capture_output=True,
                env=environment(HOME=str(tmp_path)),
                timeout=30,
                check=True,
            )
        finally:
            os.close(reading)
            os.close(writing)
        assert done.stdout == b"Yes.\n"


def test_a_pipe_is_read_after_the_prompt_and_no_terminal_is_needed(tmp_path):
    with stage(tmp_path, ["Yes."]) as at:
        assert at.script("-p", "Sum up:", stdin=b"one\ntwo\n").text == "Yes.\n"
        assert at.server.received[0].body["messages"][-1]["content"] == "Sum up:\n\none\ntwo"


def test_the_model_of_the_settings_and_a_conversation_that_goes_on_where_it_was(tmp_path):
    """Nobody types --model every time, nor --base-url to go on."""
    with stage(tmp_path, ["One.", "Two.", "Three."], api_key="not-a-real-key") as at:
        config = tmp_path / "config.yaml"
        config.write_text(
            f"model:\n  name: usual-model\n  base_url: {at.server.base_url}\n  api_key_env: OWN_SERVER_KEY\n"
            f"store:\n  url: {at.store}\n"
        )
        env = {"PENSTOCK_CONFIG": str(config), "OWN_SERVER_KEY": "not-a-real-key", "HOME": str(tmp_path)}
        assert penstock("chat", "-p", "one", **env).text == "One.\n"
        assert penstock("chat", "-p", "two", "--model", "other-model", **env).text == "Two.\n"
        assert penstock("chat", "-p", "three", "--resume", **env).text == "Three.\n"
        models = [request.body["model"] for request in at.server.received]
        assert models == ["usual-model", "other-model", "other-model"]


def test_a_server_that_was_given_by_an_option_is_found_again(tmp_path):
    with stage(tmp_path, ["One.", "Two."]) as at:
        assert at.script("-p", "one", "--model", "own-model").text == "One.\n"
        done = penstock("chat", "-p", "two", "--resume", "--store", at.store, HOME=str(tmp_path))
        assert (done.text, done.code) == ("Two.\n", 0)
        assert at.server.received[1].body["model"] == "own-model"


def test_a_key_that_the_settings_name_and_nobody_has_set(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        "model:\n  name: usual-model\n  base_url: https://models.example/v1\n  api_key_env: OWN_SERVER_KEY\n"
    )
    done = penstock("chat", "-p", "one", PENSTOCK_CONFIG=str(config), HOME=str(tmp_path))
    assert done.code == 2
    assert "OWN_SERVER_KEY is not set; set it to the key for models.example" in done.err


_LOADED = """
import sys, penstock.cli.screen as screen
from penstock.cli.main import main
say = screen.Screen.say
def first(self, text):
    say(self, f"{text} before the agent: {'penstock.loop' not in sys.modules and 'numpy' not in sys.modules}")
    screen.Screen.say = say
screen.Screen.say = first
sys.exit(main(["chat", "--model", "gpt-4.1", *sys.argv[1:]]))
"""


def test_the_banner_stands_before_anything_slow_and_what_is_typed_meanwhile_is_not_lost(tmp_path):
    with stage(tmp_path, ["Heard."]) as at:
        command = (sys.executable, "-c", _LOADED)
        with ChatScreen(*at.args(), command=command, cwd=at.work, HOME=str(tmp_path)) as chat:
            chat.wait(r"penstock \d")
            chat.say("early words")
            chat.wait(r"penstock \d\S+ before the agent: True\ngpt-4.1")
            chat.wait("› early words\n\nHeard.")
            assert chat.everything.count("early words") == 1  # the terminal itself showed nothing of it


_PAINTED = """
import sys
from prompt_toolkit.renderer import Renderer
from penstock.cli.main import main
render, loaded = Renderer.render, []
def note(self, *args, **more):
    loaded.append([name for name in ("penstock.loop.agent", "genai_prices", "rich") if name in sys.modules])
    return render(self, *args, **more)
Renderer.render = note
code = main(["chat", "--model", "gpt-4.1", *sys.argv[1:]])
print(f"loaded before the prompt: {loaded[0]}")
sys.exit(code)
"""


def test_the_prompt_stands_before_the_agent_is_loaded_and_the_status_follows(tmp_path):
    with stage(tmp_path, ["Heard."]) as at:
        command = (sys.executable, "-c", _PAINTED)
        with ChatScreen(*at.args(), command=command, cwd=at.work, HOME=str(tmp_path)) as chat:
            chat.wait("›")
            chat.wait("0% of 1M")
            chat.type(CTRL_D)
            assert chat.wait_end() == 0
            assert "loaded before the prompt: []" in chat.text


def test_an_agent_that_cannot_be_made_ends_the_chat_with_one_line(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("context:\n  engine: nobodys\n")
    with stage(tmp_path, []) as at, at.screen(PENSTOCK_CONFIG=str(config)) as chat:
        assert chat.wait_end() == 2
        assert "penstock: context.engine is 'nobodys', but there is no such engine" in chat.text
        assert "Traceback" not in chat.text


def test_who_leaves_before_the_agent_is_there_leaves_no_conversation(tmp_path):
    with stage(tmp_path, []) as at:
        with at.screen() as chat:
            chat.wait("›")
            chat.type(CTRL_D)
            assert chat.wait_end() == 0
        with closing(open_store(at.store)) as store:
            assert not store.list()


def test_an_address_that_only_the_store_names_is_asked_about_before_anything_is_sent(tmp_path):
    url = f"sqlite:///{tmp_path}/s.db"
    store = open_store(url)
    session = Session.create(store, model="gpt-4.1")
    session.append([{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}])
    keep_route(store, session.row, ModelRoute("openai", "https://stranger.invalid/v1"))
    store.close()
    resume = ("--resume", "--store", url)
    home = {"HOME": str(tmp_path), "OPENAI_API_KEY": "not-a-real-key"}
    with ChatScreen(*resume, columns=200, **home) as chat:
        chat.wait("stranger.invalid")
        chat.wait("Continue there")
        chat.say("n")
        assert chat.wait_end() == 2
        assert "--base-url" in chat.text
    with ChatScreen(*resume, columns=200, **home) as chat:
        chat.wait("Continue there")
        chat.say("y")
        chat.wait_idle()
        chat.say("/model")
        chat.wait("openai, at stranger.invalid")
        chat.type(CTRL_D)
        assert chat.wait_end() == 0
