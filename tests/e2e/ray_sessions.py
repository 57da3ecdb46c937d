"""What runs in a session of processes, as the system tells it."""

from __future__ import annotations

import os
from pathlib import Path


def processes_of(leader):
    """The processes of a session, by number, with the names they give themselves."""
    found = {}
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdecimal() and os.getsid(int(path.name)) == leader:
                found[int(path.name)] = path.joinpath("cmdline").read_bytes().partition(b"\0")[0].decode()
        except OSError:
            continue
    return found
