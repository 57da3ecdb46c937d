"""How a chat begins where something is missing."""

from __future__ import annotations

import sys

import pytest
from tests.e2e.chat_screen import CTRL_D, ChatScreen

from penstock.local import missing

_WITHOUT = """
import importlib.util as util, sys
real = util.find_spec
util.find_spec = lambda name, *more: None if name == "rich" else real(name, *more)
from penstock.cli.main import main
sys.exit(main(["chat", "--model", "gpt-4.1"]))
"""


def test_without_the_extra_the_line_that_installs_it(tmp_path):
    command = (sys.executable, "-c", _WITHOUT)
    with ChatScreen(command=command, columns=120, HOME=str(tmp_path)) as chat:
        assert chat.wait_end() == 2
        assert "needs rich: pip install 'penstock[chat]'; -p TEXT works without" in chat.text
        assert "Traceback" not in chat.text


@pytest.mark.skipif(missing() is not None, reason="the local model is not installed")
def test_without_a_key_the_model_on_this_machine_answers(tmp_path):
    with ChatScreen("--store", f"sqlite:///{tmp_path}/s.db", columns=100, HOME=str(tmp_path)) as chat:
        chat.wait("no key is set: the small model on this machine answers", seconds=40)
        chat.wait_idle()
        assert "of 8,192" in chat.lines[-1] + chat.text
        chat.type(CTRL_D)
        assert chat.wait_end() == 0
