"""A process that compacts a conversation with a model and is killed while the model writes."""

from __future__ import annotations

import json
import os
import signal

from penstock.engine.lossless import LosslessEngine
from penstock.stores.opening import open_store
from penstock.testing.scripted_model import ScriptedModel

__all__ = ["NOTES", "compact_until_killed", "conversation"]

NOTES = "## Active State\n- All parts were looked at.\n"


def conversation(turns=90):
    messages = []
    for turn in range(turns):
        call = {"name": "read_file", "arguments": json.dumps({"path": f"src/part_{turn}.py"})}
        lines = "\n".join(f"def step_{turn}_{line}(job): return job.owner_{line}" for line in range(60))
        calls = [{"id": f"c{turn}", "type": "function", "function": call}]
        messages += [
            {"role": "user", "content": f"Look at part {turn}."},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": lines},
            {"role": "assistant", "content": f"Part {turn} is fine."},
        ]
    return messages


def compact_until_killed(url, session_id, answers):
    """Compact; the process is killed when the model is asked for more answers than that."""

    def reply(received):
        if received.number > answers:
            os.kill(os.getpid(), signal.SIGKILL)
        return NOTES

    engine = LosslessEngine(64_000, summariser=ScriptedModel(reply), store=open_store(url))
    engine.on_session_start(session_id)
    engine.compact(conversation())
