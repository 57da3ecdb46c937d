"""Search in a store of many conversations: how fast, and how much room the index takes.

A million messages take a quarter of an hour to make, so `--messages` says how many; fewer are measured by default.
"""

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.clock import note, timed
from benchmarks.generate import many_messages
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table
from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest
from penstock.conversation.wire import encode_wire
from penstock.recall import index_terms, terms_of
from penstock.stores.base import NewMessage, NewSession, Store
from penstock.stores.index import Terms
from penstock.stores.opening import open_store
from penstock.stores.sql import SqlStore

__all__ = ["run"]

CONVERSATION = 1_000  # messages
MESSAGE_BYTES = 1_500
RARE_MS, COMMON_MS, SIZE = Limit(20), Limit(150), Limit(1.6)
ROOT = Path(__file__).parents[1]

Ask = Callable[[], object]


def run(options: Options) -> list[Table]:
    count = 2_000 if options.quick else options.messages
    out = ROOT / "out"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        path = Path(folder) / "sessions.db"
        store = open_store(f"sqlite:///{path}")
        assert isinstance(store, SqlStore)
        raw, seconds = _fill(store, count, options.jobs)
        rows: list[tuple[str, Figure]] = [("indexing", Figure(raw / 1e6 / seconds, "MB/s"))]
        rows += _searches(store, options)
        store.close()
        rows.append(("file with its index, of the raw bytes", Figure(path.stat().st_size / raw, "×", SIZE)))
    remark = (
        f"{count:,} generated messages ({raw / 1e6:,.0f} MB) in {count // CONVERSATION:,} conversations, SQLite in a file. A "
        "search gives ten findings with excerpts, in a process that has searched before; nothing is remembered between "
        "searches but the terms of single words. `--messages 1000000` measures a million."
    )
    return [Table("search", "Search", ("what", "measured (floor)"), tuple(rows), remark)]


def _fill(store: Store, count: int, jobs: int) -> tuple[int, float]:
    """Raw bytes, and the seconds that indexing took."""
    raw, seconds = 0, 0.0
    conversations = range(count // CONVERSATION)
    with ProcessPoolExecutor(jobs) as pool:
        for number, messages in enumerate(pool.map(_conversation, conversations)):
            raw += sum(len(message.raw) for message in messages)
            store.create(NewSession(id=f"c{number}", at=float(number)))
            store.append(f"c{number}", messages, "", float(number))
            start = time.perf_counter()
            store.index()
            seconds += time.perf_counter() - start
            if number % 50 == 49:
                note(f"search: {(number + 1) * CONVERSATION:,} messages")
    return raw, seconds


def _conversation(number: int) -> list[NewMessage]:
    dialect = dialect_named("chat")
    made = []
    for wire in many_messages(CONVERSATION, MESSAGE_BYTES * CONVERSATION, seed=number + 1):
        message, raw = dialect.decode(wire), encode_wire(wire)
        made.append(NewMessage(raw, content_digest(message), message.role.value, len(raw) // 4))
    return made


def _searches(store: SqlStore, options: Options) -> list[tuple[str, Figure]]:
    texts = [entry.raw.decode() for entry in store.read_from("c0", 300, 60)]
    found = {word for text in texts for word in index_terms(text)}
    words = sorted(word for word in found if terms_of(word) == (word,))  # not one of several parts
    with store.database.reading() as do:
        held = {word: store.database.index.spread(do, Terms((word,)), 20_000).passages for word in words}
    rare = min(words, key=lambda word: (abs(held[word] - 3), word))
    common = max(words, key=lambda word: (held[word], word))
    two = sorted(words, key=lambda word: (-held[word], word))[:2]
    inside = f"{common}, in one conversation"
    asked: list[tuple[str, Ask, Limit | None]] = [
        (f"a rare word, in {held[rare]:,} passages", lambda: store.search(rare), RARE_MS),
        (f"a common word, in {held[common]:,} passages or more", lambda: store.search(common), COMMON_MS),
        (f"two common words ({' '.join(two)})", lambda: store.search(" ".join(two)), COMMON_MS),
        (f"a common word ({inside})", lambda: store.search(common, session_id="c0"), None),
        ("800 characters of what was said", lambda: store.search(texts[3][:800]), None),
    ]
    return [
        (
            what,
            Figure(
                1_000 * timed(lambda _, go=go: go(), lambda: None, max(5, options.repeat)).best, "ms", limit
            ),
        )
        for what, go, limit in asked
    ]
