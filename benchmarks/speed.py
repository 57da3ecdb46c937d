"""How long a compaction takes: from scratch, again with a little more, as the conversation grows, by dialect."""

import copy
import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import penstock
from benchmarks.clock import Times, note, timed
from benchmarks.generate import coding_session, many_messages, window_200k
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table
from penstock.measure.tokens import expect_many_counts
from penstock.sessions.session import Session
from penstock.stores.store import open_store
from penstock.writing.compiled import HAS_CORE

__all__ = ["run"]

WINDOW_TOKENS = 200_000
MORE = 20
TURN = 4  # messages
TURNS = 15
DIALECTS = ("chat", "responses", "anthropic", "sharegpt")

WINDOW_MS = Limit(90, 50)
MANY_SECONDS = Limit(1.8, 1)
ESTIMATE_SECONDS = Limit(0.4, 0.3)
AGAIN_MS = Limit(60, 20)
PARSED_AGAIN_MS = Limit(80, 30)
ESTIMATE_MS = Limit(0.5)
APPEND_MS = Limit(0.3)
GROWTH = Limit(12)

Chat = list[dict[str, Any]]
Line = tuple[str | Figure, ...]


def run(options: Options) -> list[Table]:
    warm()
    count = 4_000 if options.quick else 20_000
    few = max(2, options.repeat // 2 + 1)
    note(f"speed: generating {count:,} messages")
    rounds = 3 * few
    more = many_messages(count + (rounds + 2) * MORE, 1_500 * (count + (rounds + 2) * MORE))
    ends = _ends(more, count, rounds)
    note("speed: a 200,000-token window")
    rows = [_window(options.repeat), _window(options.repeat, " → done")]
    note(f"speed: {count:,} messages from scratch")
    many, seconds, engine = _many(more[: ends[0]], few, None if options.quick else MANY_SECONDS)
    note(f"speed: {count:,} messages estimated")
    estimate = _estimate(more[: ends[0]], few, None if options.quick else ESTIMATE_SECONDS)
    note("speed: the same again, with 20 more messages at a time")
    again = _again(engine, more, ends, quick=options.quick)
    note("speed: estimates and appends")
    again += _appends(more, count, quick=options.quick)
    del engine, more
    small = many_messages(count // 10, 150 * count)
    little = _from_scratch(json.dumps(small).encode(), options.repeat)
    growth = Figure(seconds / little.cpu, "×", None if options.quick else GROWTH)
    rows += [
        many,
        estimate,
        *again,
        (f"growth of CPU time, {count:,} against {count // 10:,} messages", growth, "", "", ""),
    ]
    note("speed: each dialect")
    dialects = tuple(_dialects(few))
    columns = ("what", "best (floor · goal)", "median", "CPU, best", "CPU / json.loads of the same bytes")
    return [
        Table("speed", "Speed", columns, tuple(rows), _remark(options, few)),
        Table("dialects", "A 200,000-token window in each dialect", ("what", "best", *columns[2:]), dialects),
    ]


def warm() -> None:
    """Load the tokenizer and all modules, as in a process that has done this before."""
    expect_many_counts()
    penstock.ContextCompressor(8_000).compress(coding_session(12_000, seed=9))


def _remark(options: Options, few: int) -> str:
    return (
        f"One process with a loaded tokenizer; {options.repeat} runs of the window and of the small conversation, "
        f"{few} of the others. Every input is parsed anew from JSON, outside the clock, except where the row says "
        f"otherwise, and `json.loads` "
        f"is timed in between. The inner loops are {'compiled' if HAS_CORE else 'in Python'}. CPU is that of all threads; nothing waits to be indexed before a session's turns. The engine is `ContextCompressor({WINDOW_TOKENS:_})`."
    )


def _row(what: str, times: Times, limit: Limit | None, unit: str) -> Line:
    scale = 1_000 if unit == "ms" else 1
    best, median, cpu = (seconds * scale for seconds in (times.best, times.median, times.cpu))
    ratio = Figure(times.cpu / times.yardstick, "×")
    return what, Figure(best, unit, limit), Figure(median, unit), Figure(cpu, unit), ratio


def _from_scratch(data: bytes, repeat: int) -> Times:
    def work(messages: Chat) -> None:
        penstock.ContextCompressor(WINDOW_TOKENS).compress(messages)

    return timed(work, lambda: json.loads(data), repeat, data)


def _window(repeat: int, more: str = "") -> Line:
    """A window whose texts are all ASCII, as they are generated, or end with `more`: few real ones are all ASCII."""
    messages = window_200k()
    for message in messages:
        if isinstance(message.get("content"), str):
            message["content"] += more
    data = json.dumps(messages).encode()
    times = _from_scratch(data, repeat)
    what = f"200,000-token window ({len(data) / 1e6:.1f} MB), from scratch"
    return _row(f"{what}, with {more.strip()!r} in each text" if more else what, times, WINDOW_MS, "ms")


def _many(messages: Chat, repeat: int, limit: Limit | None) -> tuple[Line, float, penstock.ContextCompressor]:
    """The row, the best CPU time, and an engine that has compressed these very objects."""
    data = json.dumps(messages).encode()
    times = _from_scratch(data, max(1, repeat - 1))
    engine = penstock.ContextCompressor(WINDOW_TOKENS)
    times += timed(engine.compress, lambda: messages, 1)
    what = f"{len(messages):,} messages ({len(data) / 1e6:.0f} MB), from scratch"
    return _row(what, times, limit, "s"), times.cpu, engine


def _estimate(messages: Chat, repeat: int, limit: Limit | None) -> Line:
    """How long a host waits for the size of a list that the engine has never seen."""
    data = json.dumps(messages).encode()

    def work(messages: Chat) -> None:
        penstock.ContextCompressor(WINDOW_TOKENS).estimate(messages)

    times = timed(work, lambda: json.loads(data), repeat, data)
    return _row(f"estimate of {len(messages):,} messages never seen, exact", times, limit, "s")


def _again(engine: penstock.ContextCompressor, more: Chat, ends: list[int], *, quick: bool) -> list[Line]:
    """The same instance, each time with about 20 messages more than it has seen."""
    data = json.dumps(more[: ends[0]]).encode()
    left = iter(ends[1:])
    ways: dict[str, tuple[Callable[[Chat], Chat], Limit]] = {
        "the same objects": (list, AGAIN_MS),
        "deep copies": (copy.deepcopy, AGAIN_MS),
        "parsed anew from JSON": (lambda messages: json.loads(json.dumps(messages)), PARSED_AGAIN_MS),
    }
    rows = []
    for way, (take, limit) in ways.items():
        times = timed(engine.compress, _taker(take, more, left), len(ends) // 3, data)
        what = f"second compress, {MORE} more messages, {way}"
        rows.append(_row(what, times, None if quick else limit, "ms"))
    return rows


def _appends(more: Chat, count: int, *, quick: bool) -> list[Line]:
    """A turn of four messages behind `count` others: the engine's estimate, and a session's appends and estimates."""
    engine = penstock.ContextCompressor(WINDOW_TOKENS)
    engine.estimate(more[:count])
    places = iter(range(count, len(more) - TURN, TURN))
    estimated = timed(
        lambda place: engine.estimate(more[: place + TURN], unchanged=place),
        lambda: next(places),
        min(TURNS, (len(more) - count) // TURN - 1),
    )
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/log.db")
        session = Session.create(store, model="gpt-4.1")
        for start in range(0, count, 500):
            session.append(more[start : min(start + 500, count)])
        turns = iter(more[place : place + TURN] for place in range(0, count, TURN))
        session.estimate()
        store.index()  # what waits from the set-up is indexed by a thread, whose CPU time would count here
        appended, weighed = [], []
        gc.collect()  # once: after each turn it would empty the processor's caches, which no host does
        for _ in range(TURNS):
            appended.append(_time_once(partial(session.append, next(turns))))
            weighed.append(_time_once(session.estimate))
        store.close()
    behind = f"behind {count:,} messages"
    estimate, append = (None, None) if quick else (ESTIMATE_MS, APPEND_MS)
    return [
        _cpu_row(f"`estimate` of the engine after an append of {TURN}, {behind}", estimated, estimate),
        _cpu_row(f"`Session.estimate` after an append of {TURN}, {behind}", _join(weighed), estimate),
        _cpu_row(f"`Session.append` of a turn of {TURN}, {behind}", _join(appended), append),
    ]


def _time_once(work: Callable[[], object]) -> Times:
    start, start_cpu = time.perf_counter(), time.process_time()
    work()
    cpu = time.process_time() - start_cpu
    return Times((time.perf_counter() - start,), (cpu,))


def _join(times: list[Times]) -> Times:
    return Times(
        tuple(one for some in times for one in some.seconds),
        tuple(one for some in times for one in some.cpu_seconds),
    )


def _cpu_row(what: str, times: Times, limit: Limit | None) -> Line:
    """A row whose floor is one of CPU time: what a call waits for the disk is not in it."""
    best, median, cpu = (1_000 * seconds for seconds in (times.best, times.median, times.cpu))
    return what, Figure(best, "ms"), Figure(median, "ms"), Figure(cpu, "ms", limit), ""


def _taker(take: Callable[[Chat], Chat], messages: Chat, ends: Iterator[int]) -> Callable[[], Chat]:
    return lambda: take(messages[: next(ends)])


def _ends(messages: Chat, first: int, rounds: int) -> list[int]:
    """`first` and then steps of 20, each moved back to where no call is parted from its result."""
    ends = []
    for step in range(rounds + 1):
        end = first + step * MORE
        while messages[end]["role"] == "tool":
            end -= 1
        ends.append(end)
    return ends


def _dialects(repeat: int) -> list[Line]:
    rows = []
    for dialect in DIALECTS:
        data = json.dumps(coding_session(WINDOW_TOKENS, 1, dialect)).encode()

        def work(messages: Chat, dialect: str = dialect) -> None:
            penstock.compress(messages, context_length=WINDOW_TOKENS, dialect=dialect)

        times = timed(work, partial(json.loads, data), repeat, data)
        rows.append(_row(f"`penstock.compress`, {dialect}", times, None, "ms"))
    return rows
