"""A process that is killed while a model writes on nodes: what was written is found again, and never asked for twice."""

from __future__ import annotations

import multiprocessing
import signal

import lossless_process

import penstock
from penstock.conversation import mark
from penstock.lossless.engine import LosslessEngine
from penstock.lossless.outline import parse_outline
from penstock.stores.store import open_store
from penstock.testing.engine_contract import agent_turns
from penstock.testing.scripted_model import ScriptedModel

_PROCESSES = multiprocessing.get_context("spawn")
_AT_ONCE = 3  # requests on the way when the process is killed


def compacted(url, session_id):
    """The result of a new process's first compaction, and how often it asked its model."""
    store = open_store(url)
    model = ScriptedModel(lambda received: lossless_process.NOTES)
    engine = LosslessEngine(40_000, summariser=model, store=store)
    engine.on_session_start(session_id)
    result = engine.compact(agent_turns(0, lossless_process.TURNS))
    store.close()
    return result, len(model.received)


def test_nodes_are_found_again_after_a_kill_and_nothing_is_asked_twice(tmp_path):
    url = f"sqlite:///{tmp_path}/penstock.db"
    store = open_store(url)
    session = penstock.Session.create(store)
    store.close()
    answers = 5
    child = _PROCESSES.Process(
        target=lossless_process.compact_until_killed, args=(url, session.id, answers), daemon=True
    )
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    result, calls = compacted(url, session.id)
    handoff = next(m["content"] for m in result.messages if mark.OPENING in str(m["content"]))
    nodes = parse_outline(handoff)
    assert all(node.text.startswith("- All parts") for node in nodes)
    assert len(nodes) - answers <= calls <= len(nodes) - answers + _AT_ONCE
    again, calls_again = compacted(url, session.id)
    assert calls_again == 0
    assert again.messages == result.messages
    assert again.receipt.model_calls == 0
