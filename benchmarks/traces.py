"""Traces of requests, the same on every machine: what sessions of coding agents do to their context, made up.

Sizes and gaps follow those of recorded sessions: most requests append a little, some a lot; most come within seconds,
one in thirty after more than five minutes, when the user was away.
"""

import json
import math
import random

from penstock.replay.traces import Trace, read_traces

__all__ = ["generated_traces", "trace_file"]


def generated_traces(sessions: int, seed: int = 1) -> list[Trace]:
    """That many sessions, short ones and long ones."""
    return read_traces(trace_file(sessions, seed))


def trace_file(sessions: int, seed: int = 1) -> bytes:
    """The same as a file: a session a line."""
    chance = random.Random(seed)
    lines = [{"id": f"generated-{number}", "requests": _requests(chance)} for number in range(sessions)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _requests(chance: random.Random) -> list[list[int]]:
    count = min(1_000, 4 + int(chance.lognormvariate(math.log(60), 1.1)))
    rows, output = [], 0
    for number in range(count):
        asked = number == 0 or chance.random() < 0.1
        results = 0 if asked else min(40_000, int(chance.lognormvariate(math.log(500), 1.6)))
        other = output + (int(chance.lognormvariate(math.log(150), 1.0)) if asked else 60)
        output = min(16_000, int(chance.lognormvariate(math.log(220), 1.1)))
        rows.append([results, other, output, _gap(chance, asked) if number else 0, int(asked)])
    return rows


def _gap(chance: random.Random, asked: bool) -> int:
    if asked and chance.random() < 0.3:
        return int(chance.lognormvariate(math.log(1_500), 1.3))
    return 2 + int(chance.lognormvariate(math.log(6), 1.0))
