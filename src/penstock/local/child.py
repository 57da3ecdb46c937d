"""The process that holds the model: serves until its parent is gone.

It is told what to serve by one line of JSON on stdin and answers with one line of JSON on stdout. The end of stdin is
the order to stop; it comes even from a parent that was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from importlib import import_module
from typing import Any

import msgspec

from penstock.local.order import Order, Serving

__all__ = ["serve"]

_PARENT_CHECK_SECONDS = 0.5
_ERRORS_ONLY = 1


def serve() -> None:
    """Reads the order, loads the model, says where it answers, and stays."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group, and the parent decides
    parent = os.getppid()
    # What the engine may print goes with its complaints, not into a pipe that is read only once.
    answer = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    # The engine holds the interpreter while it loads: an order to stop that comes meanwhile is obeyed right after.
    threading.Thread(target=_leave_with_stdin, daemon=True).start()
    try:
        server = _start(order)
    except (ImportError, RuntimeError) as error:
        sys.exit(f"{order.name}: {error}")
    with answer:
        answer.write(msgspec.json.encode(Serving(server.listening_address)) + b"\n")
    # A copy of the pipe's other end in a process that the parent forked would hide its death from stdin.
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(0)


def _leave_with_stdin() -> None:
    """Ends the process at once: there is nothing here to put in order."""
    while os.read(0, 4_096):  # not by sys.stdin: its lock must be free when the interpreter ends
        pass
    os._exit(0)


def _start(order: Order) -> Any:
    # Threads that wait by spinning starve each other when cores are shared: 0.5 tokens a second against 40.
    os.environ["OMP_WAIT_POLICY"] = "passive"  # read once, when the library is loaded
    engine = import_module("xllamacpp")
    params = engine.CommonParams()
    params.model.path = order.path
    params.model_alias = {order.name}
    params.hostnames = ["127.0.0.1"]
    params.port = order.port
    params.n_ctx = order.context_tokens
    params.n_predict = order.answer_tokens
    params.n_parallel = 1  # the whole window for each request; others wait their turn
    params.cache_ram_mib = 0  # the last prompt is remembered all the same; this one would grow to 8 GiB
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = order.threads
        cpu.poll = 0
    params.fit_params = False  # trying out what fits takes seconds, and the window is given
    params.warmup = False
    params.verbosity = _ERRORS_ONLY
    # Nothing for the web pages that are open on this machine: no page of its own, no origin that may read answers,
    # no view of what others asked.
    params.ui = False
    params.cors_origins = ""
    params.cors_origins_explicit = True
    params.cors_credentials = False
    params.endpoint_slots = False
    return engine.Server(params)


if __name__ == "__main__":
    serve()
