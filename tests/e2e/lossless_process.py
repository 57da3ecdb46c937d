"""A process that compacts a conversation with a model and is killed while the model writes."""

from __future__ import annotations

import os
import signal

from penstock.lossless.engine import LosslessEngine
from penstock.stores.store import open_store
from penstock.testing.engine_contract import agent_turns
from penstock.testing.scripted_model import ScriptedModel

__all__ = ["NOTES", "TURNS", "compact_until_killed"]

TURNS = 90
NOTES = "## Active State\n- All parts were looked at.\n"


def compact_until_killed(url, session_id, answers):
    """Compact; the process is killed when the model is asked for more answers than that."""

    def reply(received):
        if received.number > answers:
            os.kill(os.getpid(), signal.SIGKILL)
        return NOTES

    engine = LosslessEngine(40_000, summariser=ScriptedModel(reply), store=open_store(url))
    engine.on_session_start(session_id)
    engine.compact(agent_turns(0, TURNS))
