"""Starts `penstock` commands by forking: each is a process of its own that has read the program's modules already.

    python command_server.py CONTROL COMMAND

CONTROL is the number of a connected socket. Every byte that comes there brings four descriptors: standard input, output and
error of a new process, and a socket that first says what to run, as a line of JSON, and is then told the exit code. It ends
when the socket is closed.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
from importlib import import_module


def load():
    """Imports what the commands import and loads the tokenizer. Nothing is read that differs between two processes."""
    from penstock.cli.main import HOMES
    from penstock.measure.tokens import tokenizer_for

    for home in HOMES.values():
        import_module("penstock.cli." + home.partition(":")[0])
    for name in (
        "aiohttp",
        "genai_prices.data",
        "numpy.ma",
        "penstock.lossless.engine",
        "penstock.stores.sqlite",
    ):
        import_module(name)
    tokenizer_for(None).count("loads it")


def serve(control):
    """Forks for every request. Returns what to run, in each of the new processes, and None where nothing more will come."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries those that watch
    while True:
        asked, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        if not asked:
            return None
        if os.fork() == 0:
            control.close()
            return watch(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def watch(stdin, stdout, stderr, reply):
    """Starts the process and tells how it ended; returns in the new one alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=reply) as asker:
        with asker.makefile("rb") as lines:
            request = json.loads(lines.readline())
        child = os.fork()
        if child:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
            _, status = os.waitpid(child, 0)
            asker.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # as Python begins
    signal.alarm(request["seconds"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    return request["args"]


if __name__ == "__main__":
    command = sys.argv[2]
    sys.path[0] = os.path.dirname(command)  # noqa: PTH120 - as the command itself has it
    load()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        arguments = serve(control)
    if arguments is not None:
        from penstock.cli.main import main

        sys.argv = [command, *arguments]
        sys.exit(main())
