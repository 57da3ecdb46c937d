"""`python -m benchmarks speed --guard`: a few seconds on fixed inputs, to compare one state of the source with another.

Times are printed as ratios to `json.loads` of the same bytes and never fail, since a busy machine changes them. What fails is
counted: how many functions Python calls to open a list that has grown, and to estimate it, which is the same in every run.
Where what is new is the same, a list twice as long may not take more of them.
"""

import cProfile
import json
from collections.abc import Callable
from typing import Any

import penstock
from benchmarks.clock import Times, json_seconds, note, timed
from benchmarks.generate import many_messages
from benchmarks.report import Figure, Limit, Table
from benchmarks.speed import warm
from penstock.engine.compress import new_notebook
from penstock.settings import Settings

__all__ = ["guard"]

FEW, MANY = 1_000, 2_000  # messages
NEW = 20
RUNS = 3
BYTES_PER_MESSAGE = 1_500
WINDOW_TOKENS = 24_000
OPENING_GROWTH = Limit(1.0)
ESTIMATE_GROWTH = Limit(1.0)

Chat = list[dict[str, Any]]


def guard() -> list[Table]:
    note("speed: the guard")
    warm()
    messages = many_messages(MANY + 3 * RUNS * NEW, BYTES_PER_MESSAGE * (MANY + 3 * RUNS * NEW))
    ends = iter([_end_before(messages, MANY + step * NEW) for step in range(3 * RUNS)])
    data = json.dumps(messages[:MANY]).encode()
    yardstick = json_seconds(data, 5)
    engine = penstock.ContextCompressor(WINDOW_TOKENS)
    seen = messages[: next(ends)]
    first = timed(engine.compress, lambda: seen, 1)
    again = timed(engine.compress, lambda: messages[: next(ends)], RUNS)
    parsed = timed(engine.compress, lambda: json.loads(json.dumps(messages[: next(ends)])), RUNS)
    beyond = timed(penstock.ContextCompressor(WINDOW_TOKENS).compress, lambda: _go_beyond_ascii(seen), 1)
    engine.estimate(messages[:MANY])
    appended = timed(lambda end: engine.estimate(messages[: end + NEW], unchanged=end), lambda: MANY, 1)
    opening, estimate = zip(*(_count_calls(messages, many) for many in (FEW, MANY)), strict=True)

    def ratio(times: Times) -> Figure:
        return Figure(times.cpu / yardstick, "×")

    rows: tuple[tuple[str, Figure], ...] = (
        (f"first compaction of {MANY:,} messages / json.loads", ratio(first)),
        (
            "the same with a character beyond ASCII in each text / without",
            Figure(beyond.cpu / first.cpu, "×"),
        ),
        (f"next, {NEW} more messages, the same objects / json.loads", ratio(again)),
        (f"next, {NEW} more messages, parsed anew / json.loads", ratio(parsed)),
        (f"estimate after an append of {NEW} / json.loads", ratio(appended)),
        (
            f"calls of functions to open a list with {NEW} more, {MANY:,} against {FEW:,} messages",
            Figure(opening[1] / opening[0], "×", OPENING_GROWTH),
        ),
        (
            f"calls of functions for an estimate after an append, {MANY:,} against {FEW:,} messages",
            Figure(estimate[1] / estimate[0], "×", ESTIMATE_GROWTH),
        ),
    )
    return [Table("guard", "Guard of speed", ("what", "measured (floor)"), rows)]


def _go_beyond_ascii(messages: Chat) -> Chat:
    """Returns the messages with such a character at the end of each text: a block of text is seldom without one."""
    return [
        message | {"content": message["content"] + " →"}
        if isinstance(message.get("content"), str)
        else message
        for message in messages
    ]


def _end_before(messages: Chat, end: int) -> int:
    """Returns the last place up to `end` where no call is parted from its result."""
    while messages[end]["role"] == "tool":
        end -= 1
    return end


def _count_calls(messages: Chat, many: int) -> tuple[int, int]:
    """Returns how many functions are called for the same new messages behind so many others: to open, and to estimate."""
    seen = messages[: _end_before(messages, many)]
    new = messages[_end_before(messages, MANY) :][:NEW]
    book = new_notebook(None, Settings())
    book.open(seen)
    engine = penstock.ContextCompressor(WINDOW_TOKENS)
    engine.estimate(seen)
    return (
        _profile(lambda: book.open([*seen, *new])),
        _profile(lambda: engine.estimate([*seen, *new], unchanged=len(seen))),
    )


def _profile(work: Callable[[], object]) -> int:
    """Returns how many functions the work calls, Python's own included."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())
