"""How fast sessions are kept and opened again, and how much room they take.

A commit that is durable cannot be faster than the disk's own sync, so that is measured in the same run.
"""

import gc
import json
import os
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.clock import note, timed
from benchmarks.generate import many_messages
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table
from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest
from penstock.conversation.wire import encode_wire
from penstock.sessions.session import Session
from penstock.stores.store import Store, open_store
from penstock.stores.values import NewMessage, NewSession

__all__ = ["run"]

TURN, TURN_BYTES = 4, 6_000
OTHERS_PER_SECOND = 60  # messages per second of the best-known implementation, on a disk of this class
APPENDS = Limit(30 * OTHERS_PER_SECOND, at_least=True)
OPENING_MS = Limit(50)
SIZE = Limit(1.6)
ROOT = Path(__file__).parents[1]


def run(options: Options) -> list[Table]:
    count = 2_000 if options.quick else 20_000
    out = ROOT / "out"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        note("stores: durable appends, one turn at a time")
        rows = _appends(Path(folder), options)
        note(f"stores: opening a conversation of {count:,} messages")
        rows += _opening(Path(folder), count, options)
    remark = (
        f"SQLite in a file, `synchronous = FULL`: a call returns when its transaction is on the disk. A turn is {TURN} "
        f"messages of {TURN_BYTES:,} bytes together, in one transaction; syncs are writes of 8 KB, each followed by "
        "`fdatasync`, measured in turns with the appends: a disk with fewer than 450 in a second cannot reach the floor "
        "with one sync for each turn. The conversation is opened from its file, in a process that has loaded the modules, down "
        "to the list of messages that a model is sent."
    )
    return [Table("stores", "Stores", ("what", "measured (floor)"), tuple(rows), remark)]


def _appends(folder: Path, options: Options) -> list[tuple[str, Figure]]:
    parts = 3 * options.repeat
    seconds = (0.5 if options.quick else 4.0) / parts
    store = open_store(f"sqlite:///{folder}/appends.db")
    store.create(NewSession(id="s", at=0.0))
    turns = _turns(20_000)
    _append_for(store, turns, 0.2)
    rates, syncs = [], []
    for _ in range(parts):  # in turns, so that both meet the same neighbours on the disk
        syncs.append(_syncs_per_second(folder, seconds / 2))
        rates.append(_append_for(store, turns, seconds))
    store.close()
    ratio = statistics.median(rate / sync for rate, sync in zip(rates, syncs, strict=True))
    limit = None if options.quick else APPENDS
    return [
        ("messages appended per second, at best", Figure(TURN * max(rates), "", limit)),
        ("messages appended per second, median", Figure(TURN * statistics.median(rates))),
        ("transactions per second, at best", Figure(max(rates))),
        ("the disk's own syncs per second, at best", Figure(max(syncs))),
        ("the disk's own syncs per second, median", Figure(statistics.median(syncs))),
        ("transactions to a sync, median", Figure(100 * ratio, "%")),
    ]


def _turns(most: int) -> Iterator[list[NewMessage]]:
    """Turns of a working session, each cut to size."""
    session = many_messages(400, 400 * 3_000)
    size = TURN_BYTES // TURN
    for number in range(most):
        turn = []
        for place in range(TURN):
            text = json.dumps(session[(number * TURN + place) % len(session)])
            text = f"{number}.{place} {(text * (size // len(text) + 1))[: size - 60]}"
            turn.append({"role": "user" if place % 2 == 0 else "assistant", "content": text})
        yield [_new(wire) for wire in turn]


def _new(wire: dict[str, Any]) -> NewMessage:
    message = dialect_named("chat").decode(wire)
    return NewMessage(encode_wire(wire), content_digest(message), message.role.value, 100)


def _append_for(store: Store, turns: Iterator[list[NewMessage]], seconds: float) -> float:
    """Turns per second, by the time inside of the store."""
    tip, count, inside = store.log_tip("s").id, 0, 0.0
    while inside < seconds:
        turn = next(turns)
        start = time.perf_counter()
        tip = store.append("s", turn, tip, 1.0).tip.id
        inside += time.perf_counter() - start
        count += 1
    return count / inside


def _syncs_per_second(folder: Path, seconds: float) -> float:
    file = os.open(folder / "syncs", os.O_CREAT | os.O_WRONLY)
    sync = getattr(os, "fdatasync", os.fsync)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        os.write(file, b"x" * 8_192)
        sync(file)
        count += 1
    passed = time.perf_counter() - start
    os.close(file)
    return count / passed


def _opening(folder: Path, count: int, options: Options) -> list[tuple[str, Figure]]:
    url = f"sqlite:///{folder}/long.db"
    messages = [encode_wire(message) for message in many_messages(count, 1_500 * count)]
    raw = sum(map(len, messages))
    store = open_store(url)
    session = Session.create(store, model="gpt-4.1")
    session_id = session.id
    for start in range(0, count, 500):
        session.append(messages[start : start + 500])
    session.compact(context_length=200_000, target_tokens=40_000)
    store.close()
    size = (folder / "long.db").stat().st_size
    times = timed(_open, lambda: (url, session_id), max(5, options.repeat))
    gc.collect()
    tracemalloc.start()
    view = _open((url, session_id))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    shown = sum(len(encode_wire(message)) for message in view)
    limit = None if options.quick else OPENING_MS
    return [
        (f"opening {count:,} messages to their view, at best", Figure(1_000 * times.best, "ms", limit)),
        ("the same, median", Figure(1_000 * times.median, "ms")),
        ("messages in that view", Figure(len(view))),
        ("bytes of that view", Figure(shown)),
        ("bytes of memory for opening it, at the peak", Figure(peak)),
        ("bytes of the log", Figure(raw)),
        ("size of the file, against the bytes of the messages", Figure(size / raw, "×", SIZE)),
    ]


def _open(place: tuple[str, str]) -> list[Any]:
    store = open_store(place[0])
    view = Session.resume(store, place[1]).view()
    store.close()
    return view
