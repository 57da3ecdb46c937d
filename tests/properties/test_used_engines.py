"""An engine that has lived through much gives the bytes that a new one gives.

Its lists shrink, change in the middle, begin with a handoff, repeat themselves and their ids of calls, or are of another
conversation; compactions have a focus or none, and end midway. What paths are made of is named later, or elsewhere.

Bare values count a half here, whose multiples are exact. With the real 0.6, sums depend in their last bit on the order of
their values, which is that of their numbers, and so on what was met before: then of two excerpts that add the same, another
one may be chosen, in one of some hundred such lives. The choice runs in Python, since the level cannot be set in C.
"""

from __future__ import annotations

import copy
import json
import random

import pytest
from compaction_claims import claim
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.engine.compressor import ContextCompressor
from penstock.errors import TargetTooSmall
from penstock.writing import choice, compiled, greedy
from penstock.writing.choice import ExcerptChoice, _Counted
from penstock.writing.reading import Index

pytestmark = pytest.mark.sampled(4)

FILES = [f"src/app_{i}/mod_{j}/handler_{k}.py" for i in range(3) for j in range(3) for k in range(3)]
REFUSAL = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how to proceed."
)
FOCUSES = [None, None, "order #W10003", "handler retry", "ports"]
STEPS = [
    "append",
    "append",
    "shrink",
    "edit",
    "leave",
    "adopt",
    "repeat",
    "copy",
    "insert",
    "end midway",
    "recall",
]


def result_of(call, chance):
    """What a tool brings: paths, parts of paths, data, a log, a refusal, or an error."""
    count, one = chance.randrange(1, 40), chance.randrange(8)
    places = [(chance.choice(FILES), chance.randrange(3)) for _ in range(count)]
    return [
        "\n".join(f"{path}:{n}: call route_{n} of order #W{one}{n:04}" for path, n in places),
        "\n".join(
            f"app_{n}/mod_{n} and {path[10:15]} serve handler_{n} at port {5_000 + n}" for path, n in places
        ),
        json.dumps([{"order_id": f"#W{one}{n:04}", "file": path, "call": call} for path, n in places]),
        "\n".join(
            f"2024-05-01 worker-{one} job {1_000 + n} took {n * 3} ms in step_{n % 5}" for n in range(count)
        ),
        REFUSAL,
        f"ValueError: job {one} has no owner in {places[0][0]}\nexit code 1",
    ][chance.randrange(6)]


def turns(count, ids, chance):
    for _ in range(count):
        path = chance.choice(FILES)
        asked = [
            "Fix the retry in worker/queue.py.",
            "continue",
            f"Look at {path}.",
            "No, I refuse.",
            "Which port is it?",
        ]
        yield {"role": "user", "content": chance.choice(asked)}
        for _ in range(chance.randrange(3)):
            tool, arguments = chance.choice(["read_file", "grep", "write_file"]), json.dumps({"path": path})
            call = {
                "id": chance.choice(ids),
                "type": "function",
                "function": {"name": tool, "arguments": arguments},
            }
            yield {"role": "assistant", "content": None, "tool_calls": [call]}
            yield {"role": "tool", "tool_call_id": call["id"], "content": result_of(call["id"], chance)}
        yield {"role": "assistant", "content": f"The port is 50{chance.randrange(50)} in {path[4:15]}."}


def compact(engine, messages, share, focus):
    """What a compaction says, and its messages."""
    target = max(1, int(share * engine.estimate(messages)))
    try:
        result = engine.compact(copy.deepcopy(messages), focus_topic=focus, target_tokens=target)
    except TargetTooSmall as error:
        return str(error), []
    receipt = result.receipt
    facts = receipt.facts_kept, receipt.facts_reachable, receipt.facts_struck
    return json.dumps([result.messages, [one.reason for one in result.verdicts], facts]), result.messages


def end_midway(engine, messages, chance):
    """Compacts, and is interrupted by Ctrl-C somewhere on the way, if it comes there."""
    owner, name = chance.choice(
        [(_Counted, "_add"), (_Counted, "_join_parts"), (Index, "_add_values"), (ExcerptChoice, "fill")]
    )
    whole, left = getattr(owner, name), chance.randrange(1, 4)

    def interrupted(*args):
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        return whole(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        try:
            engine.compact(messages, target_tokens=900)
        except (KeyboardInterrupt, TargetTooSmall):
            return


def change(last, view, other, more, chance):
    """The next list, made of the last one, by the name of the step."""
    at = chance.randrange(len(last))
    return {
        "append": [*last, *more],
        "shrink": last[: max(1, at)],
        "edit": [*last[:at], *more, *last[at + 1 :]],
        "insert": [*more, *last],
        "leave": other,
        "adopt": [*(view or last), *more],
        "repeat": [*last, *last[at : at + 6]],
    }


@pytest.fixture(scope="module", autouse=True)
def half():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "HAS_CORE", False)
        patch.setattr(greedy, "BARE", 0.5)
        patch.setattr(choice, "BARE", 0.5)
        yield


@claim(40)
@given(seed=st.integers(0, 2**32 - 1))
@example(
    seed=8_080
)  # a list with nothing to do holds the values of its own messages, not those of lists before
def test_a_used_engine_gives_what_a_new_one_gives(seed):
    chance = random.Random(seed)
    ids = [f"call_{n}" for n in range(chance.choice([2, 99]))]
    last, other = (list(turns(chance.randrange(2, 12), ids, chance)) for _ in range(2))
    engine = ContextCompressor(100_000, recall_tools=True)
    for _ in range(chance.randrange(3, 8)):
        share, focus = chance.uniform(0.08, 0.9), chance.choice(FOCUSES)
        found, view = compact(engine, last, share, focus)
        assert found == compact(ContextCompressor(100_000, recall_tools=True), last, share, focus)[0]
        step, more = chance.choice(STEPS), list(turns(chance.randrange(1, 4), ids, chance))
        if step == "copy":
            engine = copy.deepcopy(engine)
        elif step == "end midway":
            end_midway(engine, [*last, *other], chance)
        elif step == "recall":
            engine.handle_tool_call("history_search", {"query": "order of a handler"}, messages=last[:5])
        else:
            lists = change(last, view, other, more, chance)
            last, other = lists[step], last if step == "leave" else other
