"""Our index beside those of the databases: the blocks of `penstock.stores.index`, SQLite's FTS5 and PostgreSQL's GIN.

All four take the same passages with the same terms (hashes of them, read out of a store that is filled), in the same portions, and
must find the same passages: they are compared as the layer below the ranking, which gives the newest passages of a term.
FTS5 has neither texts nor positions nor lengths that it could do without; GIN indexes a column of whole numbers.

The last passages, up to 240,000, are added as a store adds them, in small synced portions beside another writer, and
timed. Those before them are put in with large transactions, so that a million messages take minutes and not hours.
"""

import multiprocessing
import os
import random
import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import apsw
import numpy as np
import psycopg

from benchmarks.clock import note
from benchmarks.report import Figure, Table
from penstock.errors import StoreUnavailable
from penstock.stores.index import (
    SPAN,
    Look,
    PassageTerms,
    add_blocks,
    count_held_passages,
    find_next_number,
    find_purge,
    hash_term,
    join_blocks,
    pack_blocks,
    prepare_join,
    unpack_pages,
)
from penstock.stores.store import Store, open_store

__all__ = ["compare_indexes", "cut_portions", "measure_tables", "peak_memory", "quantile", "read_passages"]

TAKEN, TOGETHER = 3_000, 1_000  # as a search takes them
PORTION = 600  # passages: about those of 256 messages
REMOVED = 2_400  # about those of 1,000 messages
RUNS = 5
MOST_ADDED = 240_000  # passages, the last, that are added in portions: about those of 100,000 messages
FILLED_AT_ONCE = 24_000  # passages of those before them
_BESIDE = "penstock_beside"
_MARK = "5eed5eed"
_KILLED_AFTER = 5  # portions
_BEHIND_ALL = 1 << 40

Portion = list[tuple[int, list[str]]]


class Index(Protocol):
    """An index of passages by terms, in a database that others write to."""

    def fill(self, portion: Portion) -> None:
        """Adds many passages to an index that nobody uses yet."""

    def end_filling(self) -> None:
        """Makes the index one that can be used."""

    def add(self, portion: Portion) -> None:
        """Adds passages in one transaction."""

    def find(self, terms: Sequence[str], limit: int) -> list[int]:
        """Returns the newest passages that hold all of the terms."""

    def remove(self, numbers: Sequence[int]) -> None:
        """Removes passages until nothing of them can be read in the database."""

    def write_beside(self) -> None:
        """Commits a row of something else, as an append does."""

    def measure_room(self) -> int:
        """Returns the bytes of the index on the disk."""

    def close(self) -> None:
        """Closes its connection."""


class Blocks:
    """Ours, in a store's database."""

    def __init__(self, url: str) -> None:
        self._store = open_store(url)
        self._url = url

    def fill(self, portion: Portion) -> None:
        self.add(portion)

    def end_filling(self) -> None:
        pass

    def add(self, portion: Portion) -> None:
        database = self._store.database
        blocks = pack_blocks([terms for _, terms in portion])
        with database.writing() as do:
            number = find_next_number(do)
            add_blocks(do, blocks, number)
            do.run(
                "INSERT INTO indexed (kind, source, conversation, first, passages) VALUES (0, ?, 0, ?, ?)",
                *(number, number, len(portion)),
            )
        while True:
            with database.reading() as do:
                join = prepare_join(do)
            if join is None:
                return
            with database.writing() as do:
                join_blocks(do, join)

    def find(self, terms: Sequence[str], limit: int) -> list[int]:
        with self._store.database.reading() as do:
            return Look(do).find_newest(PassageTerms(tuple(terms)), limit).tolist()  # type: ignore[no-any-return]

    def remove(self, numbers: Sequence[int]) -> None:
        database = self._store.database
        with database.writing() as do:
            do.run_many("INSERT INTO removed (first, passages) VALUES (?, 1)", [(one,) for one in numbers])
        while True:
            with database.reading() as do:
                purge = find_purge(do)
            if purge is None:
                return
            goes_on = True
            while goes_on:
                with database.writing() as do:
                    goes_on = purge.rewrite_some(do)

    def write_beside(self) -> None:
        self._store.put_note(_BESIDE, "row", str(time.time_ns()).encode() * 80)

    def measure_room(self) -> int:
        return measure_tables(self._store, ("blocks", "postings", "removed"))

    def close(self) -> None:
        self._store.close()


class Fts5:
    """SQLite's, without texts and positions, in a file that is written as ours are."""

    def __init__(self, path: str) -> None:
        self._do = apsw.Connection(path)
        self._do.set_busy_timeout(10_000)
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "secure_delete = ON",
            "cache_size = -16384",
        ):
            self._do.execute(f"PRAGMA {pragma}")
        self._do.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS terms USING fts5("
            "own, content='', contentless_delete=1, detail=none, tokenize='ascii')"
        )
        self._do.execute("CREATE TABLE IF NOT EXISTS beside (row BLOB)")

    def fill(self, portion: Portion) -> None:
        self.add(portion)

    def end_filling(self) -> None:
        pass

    def add(self, portion: Portion) -> None:
        with self._writing():
            self._do.executemany(
                "INSERT INTO terms (rowid, own) VALUES (?, ?)",
                [(number, " ".join(terms)) for number, terms in portion],
            )

    def find(self, terms: Sequence[str], limit: int) -> list[int]:
        wanted = " AND ".join(f'"{term}"' for term in terms)
        found = self._do.execute(
            "SELECT rowid FROM terms WHERE terms MATCH ? ORDER BY rowid DESC LIMIT ?", (wanted, limit)
        )
        return [row[0] for row in found]

    def remove(self, numbers: Sequence[int]) -> None:
        with self._writing():
            self._do.executemany("DELETE FROM terms WHERE rowid = ?", [(one,) for one in numbers])
        with self._writing():  # the terms of what was deleted are there until their segments are merged
            self._do.execute("INSERT INTO terms (terms) VALUES ('optimize')")

    def write_beside(self) -> None:
        with self._writing():
            self._do.execute("INSERT INTO beside VALUES (?)", (b"x" * 1_500,))

    def measure_room(self) -> int:
        row = self._do.execute("SELECT sum(pgsize) FROM dbstat WHERE name LIKE 'terms%'").fetchone()
        return int(row[0])

    def close(self) -> None:
        self._do.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._do.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._do.execute("ROLLBACK")
            raise
        self._do.execute("COMMIT")


class Gin:
    """PostgreSQL's, over a column of the terms' hashes."""

    def __init__(self, url: str) -> None:
        self._do = psycopg.connect(url, autocommit=True)
        self._do.execute(
            "CREATE TABLE IF NOT EXISTS gin_terms (number bigint PRIMARY KEY, own integer[] NOT NULL)"
        )
        self._do.execute("CREATE TABLE IF NOT EXISTS gin_beside (row bytea)")

    def fill(self, portion: Portion) -> None:
        with self._do.cursor() as cursor, cursor.copy("COPY gin_terms FROM STDIN") as copy:
            copy.write(
                "".join(
                    f"{number}\t{{{','.join(str(_as_number(one)) for one in terms)}}}\n"
                    for number, terms in portion
                )
            )

    def end_filling(self) -> None:
        self._do.execute("SET maintenance_work_mem = '512MB'")
        self._do.execute("CREATE INDEX gin_terms_own ON gin_terms USING gin (own)")

    def add(self, portion: Portion) -> None:
        with self._do.transaction(), self._do.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO gin_terms VALUES (%s, %s)",
                [(number, list(map(_as_number, terms))) for number, terms in portion],
            )

    def find(self, terms: Sequence[str], limit: int) -> list[int]:
        rows = self._do.execute(
            "SELECT number FROM gin_terms WHERE own @> %s::integer[] ORDER BY number DESC LIMIT %s",
            (list(map(_as_number, terms)), limit),
        )
        return [row[0] for row in rows]

    def remove(self, numbers: Sequence[int]) -> None:
        self._do.execute("DELETE FROM gin_terms WHERE number = ANY(%s)", (list(numbers),))
        self._do.execute("VACUUM gin_terms")

    def write_beside(self) -> None:
        self._do.execute("INSERT INTO gin_beside VALUES (%s)", (b"x" * 1_500,))

    def measure_room(self) -> int:
        row = self._do.execute("SELECT pg_total_relation_size('gin_terms')").fetchone()
        return int(row[0]) if row is not None else 0

    def close(self) -> None:
        self._do.close()


def _as_number(term: str) -> int:
    return int(term, 16) - (1 << 31)


class Words(NamedTuple):
    """Terms to ask for; `together` stand in one passage, as the words of a phrase do."""

    rare: str
    common: tuple[str, str]
    together: tuple[str, ...]
    chinese: str


class Measured(NamedTuple):
    """What one index did."""

    filled: int
    filling_seconds: float
    seconds: float
    waits: list[float]
    times: dict[str, float]
    found: tuple[tuple[int, ...], ...]
    removing: float
    removing_waits: list[float]
    room: int
    memory: int
    survived: bool


def compare_indexes(store: Store, raw: int, chinese: str, folder: Path, postgres: str) -> Table:
    """The table of all four, on the passages of a store; `chinese` is a term that it holds."""
    kinds: dict[str, tuple[Callable[[str], Index], str]] = {
        "blocks, SQLite": (Blocks, f"sqlite:///{folder}/blocks.db"),
        "FTS5": (Fts5, f"{folder}/fts5.db"),
    }
    if postgres:
        kinds["blocks, PostgreSQL"] = (Blocks, postgres)
        kinds["GIN"] = (Gin, postgres)
    with store.database.reading() as do:
        passages = count_held_passages(do)
    words = _choose_words(store, chinese)
    measured: dict[str, Measured] = {}
    for name, (make, url) in kinds.items():
        note(f"search: {name}, {passages:,} passages")
        measured[name] = _run_apart(_measure, make, url, store.url, words, passages)
        note(f"search: {name}: {_summarise(measured[name])}")
    if len({one.found for one in measured.values()}) > 1:
        raise RuntimeError("the indexes do not find the same passages")
    return _tabulate(measured, passages, raw)


def _summarise(one: Measured) -> str:
    """Returns the figures of one index, for a person who waits for the others."""
    times = ", ".join(f"{what} {1_000 * seconds:.2f} ms" for what, seconds in one.times.items())
    return (
        f"filled in {one.filling_seconds:.0f} s, added in {one.seconds:.0f} s, p99 beside {1_000 * quantile(one.waits, 0.99):.0f} ms; "
        f"{times}; removed in {one.removing:.1f} s, longest beside {1_000 * max(one.removing_waits, default=0.0):.0f} ms; "
        f"{one.room / 1e6:,.0f} MB"
    )


def _tabulate(measured: dict[str, Measured], passages: int, raw: float) -> Table:
    columns = ("what", *measured)
    own = list(measured.values())

    def row(what: str, get: Callable[[Measured], Figure]) -> tuple[str | Figure, ...]:
        return (what, *map(get, own))

    filled = own[0].filled
    rows = [
        *(
            [row(f"filling it with {filled:,} passages", lambda one: Figure(one.filling_seconds, "s"))]
            if filled
            else []
        ),
        row(f"adding {passages - filled:,}, the terms given", lambda one: Figure(one.seconds, "s")),
        row(
            "a row of another writer meanwhile, median",
            lambda one: Figure(1_000 * quantile(one.waits, 0.5), "ms"),
        ),
        row("the same, p99", lambda one: Figure(1_000 * quantile(one.waits, 0.99), "ms")),
        row("the same, longest", lambda one: Figure(1_000 * max(one.waits), "ms")),
        *(row(what, lambda one, what=what: Figure(1_000 * one.times[what], "ms")) for what in own[0].times),
        row(f"removing {REMOVED:,} passages for good", lambda one: Figure(one.removing, "s")),
        row(
            "a row of another writer meanwhile, longest",
            lambda one: Figure(1_000 * max(one.removing_waits, default=0.0), "ms"),
        ),
        row("room, of the raw bytes", lambda one: Figure(100 * one.room / raw, "%")),
        row("memory that the queries needed", lambda one: Figure(one.memory / 1e6, "MB")),
        ("whole after kill -9 while adding", *("yes" if one.survived else "no" for one in own)),
    ]
    remark = (
        f"The same {passages:,} passages with the same hashes of terms, added {PORTION} in a transaction that is synced, each index in a "
        f"process of its own. Where there are more, an index is first filled with large transactions, GIN's made after them; all find the same passages. A query gives the newest {TAKEN:,} passages of a term, {TOGETHER:,} of "
        "two. Removing ends when no page holds a removed term: FTS5 has to merge all of its index for that, GIN to be "
        "vacuumed. Room for GIN is with the column that it indexes; memory is that of a new process that asks, so not that of "
        "PostgreSQL's server. Times are by the wall clock, for queries the best of five."
    )
    return Table("search-rivals", "Indexes of passages beside each other", columns, tuple(rows), remark)


def _measure(make: Callable[[str], Index], url: str, source: str, words: Words, passages: int) -> Measured:
    index = make(url)
    filled, filling, spent, count = max(0, passages - MOST_ADDED), 0.0, 0.0, 0
    store = open_store(source)
    given = read_passages(store)
    for portion in cut_portions(islice(given, filled), FILLED_AT_ONCE):
        filling += _time(index.fill, portion)
    filling += _time(index.end_filling)
    with _writing_beside(make, url) as waits:
        for portion in cut_portions(given, PORTION):
            spent += _time(index.add, portion)
            count = portion[-1][0]
    store.close()
    times, found, memory = _run_apart(_ask, make, url, words)
    room = index.measure_room()
    gone = random.Random(1).randrange(1, max(2, count - REMOVED))
    with _writing_beside(make, url) as removing_waits:
        removing = _time(index.remove, range(gone, min(count, gone + REMOVED)))
    index.close()
    survived = _survives(make, url)
    return Measured(
        filled, filling, spent, waits, times, found, removing, removing_waits, room, memory, survived
    )


def _time(work: Callable[..., object], *args: Any) -> float:
    start = time.perf_counter()
    work(*args)
    return time.perf_counter() - start


def _ask(
    make: Callable[[str], Index], url: str, words: Words
) -> tuple[dict[str, float], tuple[tuple[int, ...], ...], int]:
    """Returns the seconds of each query, what was found, and the memory that the process needed for them."""
    before = peak_memory()
    index = make(url)
    asked: dict[str, tuple[list[str], int]] = {
        "a rare term": ([words.rare], TAKEN),
        "a common term": ([words.common[0]], TAKEN),
        "two common terms together": (list(words.common), TOGETHER),
        "five terms of a phrase together": (list(words.together), TOGETHER),
        "a pair of Chinese characters": ([words.chinese], TAKEN),
    }
    times, found = {}, []
    for what, (terms, limit) in asked.items():
        runs = []
        for _ in range(RUNS):
            start = time.perf_counter()
            answer = index.find(terms, limit)
            runs.append(time.perf_counter() - start)
        times[what] = min(runs)
        found.append(tuple(answer))
    index.close()
    return times, tuple(found), peak_memory() - before


def peak_memory() -> int:
    """Returns the bytes that this process had at its peak, without what the one that started it had, where that is known."""
    status = Path("/proc/self/status")
    if status.is_file():
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found is not None:
            return 1_024 * int(found[1])
    return 1_024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _run_apart(work: Callable[..., Any], *args: Any) -> Any:
    """Returns what a function returns in a new process, whose memory holds nothing else."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_send_result, args=(theirs, work, args))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def _send_result(pipe: Any, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    pipe.send(work(*args))
    pipe.close()


@contextmanager
def _writing_beside(make: Callable[[str], Index], url: str) -> Iterator[list[float]]:
    """Has another connection write a row every few milliseconds; yields how long each took."""
    waits: list[float] = []
    done = threading.Event()
    other = make(url)

    def write() -> None:
        while not done.wait(0.01):
            start = time.perf_counter()
            with suppress(apsw.BusyError, StoreUnavailable):  # who gave up has waited, too
                other.write_beside()
            waits.append(time.perf_counter() - start)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield waits
    finally:
        done.set()
        thread.join()
        other.close()


def _survives(make: Callable[[str], Index], url: str) -> bool:
    """Kills a process that adds passages, and returns whether the index then has whole portions, and all that were acknowledged."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_add_until_killed, args=(theirs, make, url))
    child.start()
    theirs.close()
    acknowledged = 0
    try:
        while True:
            acknowledged = ours.recv()
            if acknowledged == _KILLED_AFTER and child.pid is not None:
                os.kill(child.pid, signal.SIGKILL)
    except EOFError:
        child.join()
    index = make(url)
    found = len(index.find([_MARK], 1 << 20))
    index.close()
    return found >= acknowledged * PORTION and found % PORTION == 0


def _add_until_killed(pipe: Any, make: Callable[[str], Index], url: str) -> None:
    index = make(url)
    for number in range(10 * _KILLED_AFTER):
        first = _BEHIND_ALL + number * PORTION
        index.add([(first + place, [_MARK, f"{place:08x}"]) for place in range(PORTION)])
        pipe.send(number + 1)


def read_passages(store: Store) -> Iterator[tuple[int, list[str]]]:
    """Yields the passages of a store, numbered from 1, with the hashes of their terms as text."""
    number = 1
    with store.database.reading() as do:
        for first, span, pages in do.rows("SELECT first, span, pages FROM blocks ORDER BY first"):
            rows = do.rows(
                "SELECT page FROM postings WHERE place >= ? AND place < ? ORDER BY place",
                *(first * SPAN, first * SPAN + min(pages, SPAN)),
            )
            pairs = unpack_pages([row[0] for row in rows])
            places = (pairs & np.uint64(SPAN - 1)).astype(np.int64)
            order = np.argsort(places, kind="stable")
            hashes = (pairs >> np.uint64(16))[order].tolist()
            ends = np.cumsum(np.bincount(places, minlength=span)).tolist()
            begin = 0
            for end in ends:
                if end > begin:
                    yield number, [f"{one:08x}" for one in hashes[begin:end]]
                    number += 1
                begin = end


def cut_portions(passages: Iterator[tuple[int, list[str]]], size: int) -> Iterator[Portion]:
    """Yields passages, so many at a time."""
    while portion := list(islice(passages, size)):
        yield portion


def _choose_words(store: Store, chinese: str) -> Words:
    """Returns terms by how many of the first passages hold them; those that nearly all hold are marks, not words."""
    held: dict[str, int] = {}
    passages = list(islice(read_passages(store), 40 * PORTION))
    for _, terms in passages:
        for term in terms:
            held[term] = held.get(term, 0) + 1
    words = sorted(
        (term for term in held if held[term] < 0.5 * len(passages)), key=lambda term: (-held[term], term)
    )
    rare = min(words, key=lambda term: (abs(held[term] - 3), term))
    said = set(max(passages, key=lambda passage: len(passage[1]))[1])
    together = tuple(term for term in words if term in said)[:5]
    return Words(rare, (words[0], words[1]), together, f"{hash_term(chinese):08x}")


def measure_tables(store: Store, tables: Sequence[str]) -> int:
    """Returns the bytes that tables take on the disk, with their indexes."""
    marks = ", ".join("?" * len(tables))
    with store.database.reading() as do:
        if store.url.startswith("sqlite:"):
            row = do.one(
                f"SELECT sum(pgsize) FROM dbstat WHERE aggregate = TRUE AND name IN "
                f"(SELECT name FROM sqlite_master WHERE tbl_name IN ({marks}))",
                *tables,
            )
        else:
            row = do.one(
                "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                f"WHERE n.nspname = current_schema() AND c.relkind = 'r' AND c.relname IN ({marks})",
                *tables,
            )
    return int(row[0]) if row is not None and row[0] is not None else 0


def quantile(values: Sequence[float], part: float) -> float:
    """Returns the value that so large a part of them does not pass."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
