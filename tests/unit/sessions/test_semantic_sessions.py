"""`recall.semantic` in sessions and engines, with the real model of the extra."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

import penstock
from penstock.settings import RecallSettings, Settings

SETTINGS = Settings(recall=RecallSettings(semantic=True))
TALK = [
    {"role": ("user", "assistant")[n % 2], "content": f"berth {n} holds {n * 7} crates of oranges " * 12}
    for n in range(60)
]
TALK[8] = {"role": "user", "content": "authentication fails with 401 for every user since the upgrade"}


@pytest.fixture(autouse=True)
def _model():
    if find_spec("wordllama") is None:
        pytest.skip("the extra `semantic` is not installed")


@pytest.mark.parametrize("settings", [SETTINGS, Settings()])
def test_a_session_searches_by_meaning_where_the_setting_is_on(settings):
    store = penstock.open_store("memory:")
    session = penstock.Session.create(store, settings=settings)
    session.append(TALK)
    session.compact(target_tokens=2_000)
    found = session.search("login problem", hits=3)
    answer = json.loads(session.handle_tool_call("history_search", {"query": "login problem"}))
    by_meaning = any("authentication" in finding.excerpt for finding in found)
    assert by_meaning == ("authentication" in json.dumps(answer)) == settings.recall.semantic
    store.close()


@pytest.mark.parametrize("settings", [SETTINGS, Settings()])
def test_the_recall_tools_of_an_engine_do_so_too(settings):
    engine = penstock.ContextCompressor(context_length=4_000, recall_tools=True, settings=settings)
    messages = engine.compress(TALK)
    assert TALK[8] not in messages
    answer = engine.handle_tool_call("history_search", {"query": "login problem"}, messages=messages)
    assert ("authentication" in answer) == settings.recall.semantic


@pytest.mark.outside
def test_off_loads_nothing():
    script = (
        "import sys, penstock\n"
        "store = penstock.open_store('memory:')\n"
        "session = penstock.Session.create(store)\n"
        "session.append([{'role': 'user', 'content': 'hello'}])\n"
        "session.search('login problem')\n"
        "print([name for name in ('wordllama', 'tokenizers', 'safetensors') if name in sys.modules])\n"
        "store.close()\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
