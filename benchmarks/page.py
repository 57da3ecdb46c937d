"""How soon pages are there: a store of ten thousand conversations, and a conversation of twenty thousand messages.

Over HTTP, as a browser asks for them, packed.
"""

import asyncio
import contextlib
import gzip
import http.client
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.clock import note
from benchmarks.generate import many_messages
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table
from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest
from penstock.conversation.message import Summary
from penstock.conversation.view import Compaction, Handoff, Kept
from penstock.conversation.wire import encode_wire
from penstock.measure.usage import Usage
from penstock.settings import Settings
from penstock.stores.conversations import append_messages, create_conversation, pack_messages
from penstock.stores.keeping import book_usage
from penstock.stores.store import Store, open_store
from penstock.stores.values import NewCompaction, NewMessage, NewSession, UsageRow
from penstock.web.door import LinkDoor
from penstock.web.serving import Dashboard
from penstock.web.site import Site

__all__ = ["fill_many", "run", "serve_pages"]

FIRST_MS, FIRST_KB, TRANSCRIPT_MS = Limit(100), Limit(100), Limit(300)
ROOT = Path(__file__).parents[1]
WORDS = [
    "deploy",
    "staging",
    "migration",
    "orders",
    "invoice",
    "retry",
    "cache",
    "token",
    "window",
    "latency",
    "schema",
    "index",
    "worker",
    "queue",
    "broker",
]


def run(options: Options) -> list[Table]:
    count, length = (1_000, 2_000) if options.quick else (10_000, 20_000)
    out = ROOT / "out"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        note(f"page: a store of {count:,} conversations, and one of {length:,} messages")
        store = open_store(f"sqlite:///{folder}/page.db")
        fill_many(store, count)
        long = fill_long(store, length)
        rows = _measure(store, long, 3 * options.repeat, quick=options.quick)
        store.close()
    remark = (
        f"One process with {count:,} conversations in SQLite, each of 9 messages and 4 requests, and one conversation of "
        f"{length:,} messages with {length // 2:,} requests and three compactions; asked over HTTP with gzip, one request after the "
        "other, CPU of server and client together. *Transferred* is everything that a browser without a cache "
        "loads for the first page: HTML, styles and scripts. The filter runs after all conversations have been read."
    )
    return [Table("page", "Pages", ("what", "CPU, best (floor)", "wall clock, best"), tuple(rows), remark)]


def _measure(store: Store, long: str, repeat: int, *, quick: bool) -> list[tuple[Any, ...]]:
    def limit(one: Limit) -> Limit | None:
        return None if quick else one

    rows: list[tuple[Any, ...]] = []
    with serve_pages(store) as browser:
        first, cold, wall = browser.get("/"), *browser.time("/")
        transferred = len(first.packed) + sum(len(browser.get(path).packed) for path in first.loads)
        rows.append(
            (
                "the first page, while all conversations are still read",
                Figure(cold, "ms", limit(FIRST_MS)),
                Figure(wall, "ms"),
            )
        )
        while "Still reading" in browser.get("/?q=deploy").text:
            time.sleep(0.2)
        for what, path, bound in (
            ("the first page", "/", limit(FIRST_MS)),
            ("its rows again, as they ask every few seconds", "/?part=rows", None),
            ("a filter of two words, sorted by cost", "/?part=rows&q=deploy+cache+sort%3Acost", None),
            ("a transcript, opened at its end", f"/c/{long}", limit(TRANSCRIPT_MS)),
            ("the same, at a message in the middle", f"/c/{long}?at=m{len(store.shape(long).tokens) // 2}", limit(TRANSCRIPT_MS)),
            ("the next hundred messages, while scrolling", f"/c/{long}?part=later&from=500&to=600", None),
            ("a compaction", f"/c/{long}/s2", None),
        ):  # fmt: skip
            cpu, wall = zip(*(browser.time(path) for _ in range(repeat)), strict=True)
            rows.append((what, Figure(min(cpu), "ms", bound), Figure(min(wall), "ms")))
        rows.append(
            ("transferred for the first page, kB", Figure(transferred / 1_000, "", limit(FIRST_KB)), "")
        )
        page = len(browser.get(f"/c/{long}").packed)
        rows.append(("transferred for a transcript, without scripts, kB", Figure(page / 1_000, ""), ""))
    return rows


class _Page:
    def __init__(self, packed: bytes, text: str) -> None:
        self.packed, self.text = packed, text
        parts = text.split('"')
        self.loads = [part for part in parts if part.startswith("/assets/")]


class _Browser:
    """Asks a dashboard as a browser does: with a cookie, packed, over one connection."""

    def __init__(self, address: str) -> None:
        host, _, token = address.removeprefix("http://").partition("/?token=")
        self._connection = http.client.HTTPConnection(host, timeout=60)
        self._connection.request("GET", f"/?token={token}")
        answer = self._connection.getresponse()
        answer.read()
        self._cookie = (answer.getheader("set-cookie") or "").split(";")[0]

    def get(self, path: str) -> _Page:
        self._connection.request("GET", path, headers={"cookie": self._cookie, "accept-encoding": "gzip"})
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}")
        plain = gzip.decompress(body) if answer.getheader("content-encoding") == "gzip" else body
        return _Page(body, plain.decode("utf-8", "replace"))

    def time(self, path: str) -> tuple[float, float]:
        """Milliseconds of CPU, of the server and of this browser, and by the wall clock."""
        started, worked = time.perf_counter(), time.process_time()
        self.get(path)
        return 1_000 * (time.process_time() - worked), 1_000 * (time.perf_counter() - started)


@contextlib.contextmanager
def serve_pages(store: Store, settings: Settings | None = None) -> Iterator[_Browser]:
    """A dashboard over the store, in a thread of this process, and a browser at it."""
    loop = asyncio.new_event_loop()
    started, ended = threading.Event(), asyncio.Event()
    found: list[str] = []

    async def serve() -> None:
        async with Dashboard(Site(store, settings or Settings()), LinkDoor(), 0) as dashboard:
            found.append(dashboard.address)
            started.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    started.wait()
    try:
        yield _Browser(found[0])
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


# Stores to look at, written in one transaction: what is measured is reading.


def fill_many(store: Store, count: int, seed: int = 7) -> None:
    """Conversations of nine messages and four requests each, over the last days."""
    rng, now = random.Random(seed), time.time()
    with store.database.writing() as do:
        for number in range(count):
            name, at = f"{rng.getrandbits(64):016x}", now - 86_400 * 25 * rng.random()
            model = rng.choice(("claude-sonnet-4-5", "gpt-5-mini", "gpt-4.1"))
            create_conversation(do, NewSession(id=name, at=at, model=model))
            said = [{"role": "system", "content": "You are a careful engineer."}]
            for _ in range(4):
                about = " ".join(rng.sample(WORDS, 4))
                said.append({"role": "user", "content": f"Please look at {about}, number {number}."})
                said.append({"role": "assistant", "content": "I did. " + " ".join(rng.choices(WORDS, k=40))})
            new = pack_messages([_new(one, at) for one in said], "")
            append_messages(do, name, new, at, store.database.words)
            booked = [_use(name, at + n, model, 1_000 + n, 5_000, 0.004) for n in range(4)]
            book_usage(do, booked, store.database.words.hold_session)


def fill_long(store: Store, length: int) -> str:
    """One conversation of that many messages, half as many requests, and three compactions; returns its id."""
    name, start = "a" * 16, time.time() - 86_400
    wires = many_messages(length, 1_500 * length)[:length]
    step = 80_000 / length
    with store.database.writing() as do:
        create_conversation(do, NewSession(id=name, at=start, model="claude-sonnet-4-5"))
        new = [_new(one, start + n * step) for n, one in enumerate(wires)]
        append_messages(do, name, pack_messages(new, ""), start, store.database.words)
        booked = [
            _use(name, start + n * step, "claude-sonnet-4-5", 2_000, 20_000 + 10 * (n % 5_000), 0.01)
            for n in range(0, length, 2)
        ]
        book_usage(do, booked, store.database.words.hold_session)
    ids, over = store.ids(name), 0
    for number in (1, 2, 3):
        upto = number * length // 4
        handoff = Handoff(
            Summary("## Goal\n- m2 go on\n## Critical Context\n[m4 tool]\nport 5433", 1),
            tuple(range(5, upto - 40)),
        )
        pieces = (*(Kept(n) for n in range(5)), handoff, *(Kept(n) for n in range(upto - 40, upto)))
        receipt = {"tokens_before": 120_000, "tokens_after": 20_000, "cost": 0.0}
        row = store.commit(
            name,
            NewCompaction(
                compaction=Compaction(ids[upto - 1], upto, pieces),
                over=over,
                receipt=receipt,
                session=NewSession(id=f"{name}{number}", at=start + upto * step, model="claude-sonnet-4-5"),
            ),
        )
        over = row.key
    return name


def _new(wire: dict[str, Any], at: float) -> NewMessage:
    message, raw = dialect_named("chat").decode(wire), encode_wire(wire)
    return NewMessage(raw, content_digest(message), message.role.value, max(5, len(raw) // 4), at)


def _use(session: str, at: float, model: str, fresh: int, cached: int, cost: float) -> UsageRow:
    usage = Usage(input_tokens=fresh, output_tokens=200, cache_read_tokens=cached)
    return UsageRow(session=session, at=at, model=model, task="turn", usage=usage, cost=cost)
