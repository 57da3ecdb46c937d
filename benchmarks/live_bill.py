"""What live sessions of the agent cost, by the books of the server that answers them.

Scripted sessions of 60 turns run against a provider behind a real HTTP server on this machine, which keeps its own books
(input 1, cache write 1.25, cache read 0.1, output 5): once with compaction off, once as the settings are by default.
Each runs in one process and as a script does it, with `penstock chat --resume -p TEXT` for every turn. A clock that all sides
share lets pauses outlive the cache without waiting for them.
"""

import asyncio
import contextlib
import io
import json
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.clock import note
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table, share
from benchmarks.sessions.banks import words
from penstock.accounts.usage import report_usage
from penstock.agent.assembly import AgentPlace, make_agent
from penstock.cli.main import main
from penstock.context.bookkeeping import Bookkeeper
from penstock.measure.usage import Usage
from penstock.providers.connect import connect
from penstock.providers.exchange import Called
from penstock.settings import settings_from
from penstock.stores.store import open_store
from penstock.testing import PromptCache, Received, Reply, scripted_provider

__all__ = ["SESSIONS", "WAYS", "LiveBill", "LiveSession", "run", "run_session"]

NEVER_DEARER = Limit(101)
READS = Limit(95, at_least=True)
EQUAL = Limit(0)
MINUTE = 60.0
NOUNS = words(
    "harbour crane ledger tariff beacon anchor canvas lantern quartz garnet juniper marble nettle opal"
)
VERBS = words("holds moves marks weighs lists counts joins splits guards opens closes follows")

HANDOFF = """\
## Goal
The user has the notes of the harbour read, one after the other, and wants to know what each of them says.

## Completed Actions
1. Read the notes that were asked for, with read_file, and told the user what stands in them.

## Active State
Every note that was asked for so far was read. None was changed.

## Key Decisions
- Notes are read as a whole, because the user asks for what they say and not for single lines.

## Remaining Work
More notes may be asked for."""


class LiveSession(NamedTuple):
    """A scripted session: what each turn reads, how long the answers are, and after how many seconds it is asked.

    `below` says that it never reaches the threshold of its window, so that the promise holds for it.
    """

    name: str
    window_tokens: int
    read_words: Callable[[int], int]
    answer_words: int
    pause_seconds: Callable[[int], float]
    below: bool
    provider: str = "anthropic"
    model: str = "claude-sonnet-4-5"
    turns: int = 60
    ways: tuple[str, ...] = ("one process", "-p --resume")
    engine: str = "compressor"


def _pauses(turn: int) -> float:
    return 12 * MINUTE if turn % 13 == 12 else 20.0


def _seldom(turn: int) -> float:
    return 12 * MINUTE if turn in {41, 47} else 20.0


def _steadily(_turn: int) -> float:
    return 20.0


ONE = ("one process",)
SESSIONS = (
    LiveSession("steady, 200K", 200_000, lambda _: 600, 120, _steadily, below=True, ways=ONE),
    LiveSession("pauses, 200K", 200_000, lambda _: 640, 120, _pauses, below=True),
    LiveSession(
        "floods, 200K", 200_000, lambda n: 6_000 if n % 12 == 5 else 220, 120, _seldom, below=True, ways=ONE
    ),
    LiveSession("pauses, 32K", 32_000, lambda n: 400 * (n % 3 == 0), 60, _pauses, below=True),
    LiveSession(
        "pauses, 200K, automatic cache",
        200_000,
        lambda _: 640,
        120,
        _pauses,
        below=True,
        provider="openai",
        model="gpt-5-mini",
        ways=ONE,
    ),
    LiveSession("steady, 128K", 128_000, lambda _: 900, 150, _steadily, below=False, ways=ONE),
    LiveSession(
        "steady, 128K, lossless",
        128_000,
        lambda _: 900,
        150,
        _steadily,
        below=False,
        ways=ONE,
        engine="lossless",
    ),
    LiveSession("steady, 32K", 32_000, lambda _: 350, 100, _steadily, below=False),
)


@dataclass
class SharedClock:
    """Seconds that pass only when they are told to."""

    seconds: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds


class Till(PromptCache):
    """The provider's cache with its books: what every request used."""

    def __init__(self, clock: SharedClock) -> None:
        super().__init__(clock=clock)
        self.requests: list[tuple[Received, Usage]] = []

    def split(self, usage: Usage, received: Received, weights: Sequence[int]) -> Usage:
        parted = super().split(usage, received, weights)
        self.requests.append((received, parted))
        return parted

    @property
    def total(self) -> Usage:
        return sum((usage for _, usage in self.requests), Usage())

    @property
    def summaries(self) -> Usage:
        return sum((usage for received, usage in self.requests if _asks_for_handoff(received)), Usage())

    @property
    def units(self) -> float:
        total = self.total
        return (
            total.input_tokens
            + 1.25 * total.cache_write_tokens
            + 0.1 * total.cache_read_tokens
            + 5 * total.output_tokens
        )


@dataclass
class LiveBill:
    """The bill of one session after each turn, what its summaries used, and what `penstock usage` says of all."""

    units: list[float] = field(default_factory=list)
    total: Usage = field(default_factory=Usage)
    summaries: Usage = field(default_factory=Usage)
    booked: Usage = field(default_factory=Usage)
    compactions: int = 0
    largest_prompt: int = 0

    def worst_of(self, other: "LiveBill") -> float:
        """The highest ratio of this bill to another one, over all turns."""
        return max(own / theirs for own, theirs in zip(self.units, other.units, strict=True))

    @property
    def unbooked_tokens(self) -> int:
        """By how many tokens the two sides differ, over all kinds of tokens."""
        pairs = ((getattr(self.total, name), getattr(self.booked, name)) for name in Usage.__struct_fields__)
        return sum(abs(theirs - ours) for theirs, ours in pairs)


def run_session(session: LiveSession, way: str, *, compacts: bool, turns: int | None = None) -> LiveBill:
    """Runs a session, and returns what it cost by the server's books."""
    clock, bill = SharedClock(), LiveBill()
    till = Till(clock)
    count = turns or session.turns
    values = {
        "model.context_length": session.window_tokens,
        "compression.enabled": compacts,
        "context.engine": session.engine,
    }
    with (
        tempfile.TemporaryDirectory() as name,
        scripted_provider(_Script(session), prompt_cache=till) as server,
        _at_home(Path(name), clock),
    ):
        folder = Path(name)
        _write_notes(folder / "work", session, count)
        url = server.base_url + ("" if session.provider == "anthropic" else "/v1")
        place = _Place(folder, f"sqlite:///{folder}/sessions.db", url, values)

        def after_turn(turn: int) -> None:
            bill.units.append(till.units)
            clock.seconds += session.pause_seconds(turn)

        WAYS[way](session, place, count, after_turn)
        assert server.violations == (), server.violations[:3]
        with contextlib.closing(open_store(place.store)) as store:
            found = report_usage(store)
    bill.total, bill.summaries, bill.booked = till.total, till.summaries, found.total.usage
    bill.compactions = found.compactions.count
    bill.largest_prompt = max(
        (usage.prompt_tokens for received, usage in till.requests if not _asks_for_handoff(received)),
        default=0,
    )
    return bill


class _Place(NamedTuple):
    """Where a session runs: its folder and store, the server, and the settings."""

    folder: Path
    store: str
    url: str
    values: dict[str, Any]


def _run_in_one_process(
    session: LiveSession, place: _Place, turns: int, after_turn: Callable[[int], None]
) -> None:
    async def talk() -> None:
        model = connect(session.provider, session.model, base_url=place.url)
        with contextlib.closing(open_store(place.store)) as store:
            home = AgentPlace(folder=place.folder / "work", store=store, tell=lambda _: None, yes=True)
            agent = make_agent(home, model, settings_from(place.values), provider=session.provider)
            for turn in range(turns):
                ended = await agent.turn(_ask(turn))
                assert ended.reason == "done", ended
                await agent.context.wait_prepared()  # the person reads meanwhile
                after_turn(turn)
            await agent.aclose()
        await model.aclose()

    asyncio.run(talk())


def _run_as_script(
    session: LiveSession, place: _Place, turns: int, after_turn: Callable[[int], None]
) -> None:
    settings = {
        f"PENSTOCK_{key.upper().replace('.', '_')}": str(value).lower() for key, value in place.values.items()
    }
    where = ("--provider", session.provider, "--model", session.model, "--base-url", place.url)
    with contextlib.chdir(place.folder / "work"), _environment(settings):
        for turn in range(turns):
            resume = ("--resume",) if turn else ()
            said, told = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
                code = main(["chat", "--store", place.store, *where, "--yes", "-p", _ask(turn), *resume])
            if code:
                told.flush()
                raise AssertionError(told.buffer.getvalue().decode())  # type: ignore[attr-defined]
            after_turn(turn)


WAYS: dict[str, Callable[[LiveSession, _Place, int, Callable[[int], None]], None]] = {
    "one process": _run_in_one_process,
    "-p --resume": _run_as_script,
}


def run(options: Options) -> list[Table]:
    sessions = [SESSIONS[1], SESSIONS[-1]] if options.quick else SESSIONS
    turns = 12 if options.quick else None
    below, beyond = [], []
    for session in sessions:
        for way in session.ways:
            note(f"live bill: {session.name}, {way}")
            never = run_session(session, way, compacts=False, turns=turns)
            gated = run_session(session, way, compacts=True, turns=turns)
            row = (
                f"{session.name}, {way}",
                Figure(len(gated.units)),
                Figure(gated.largest_prompt),
                Figure(gated.compactions),
                share(gated.worst_of(never), NEVER_DEARER if session.below else None),
                share(gated.units[-1] / never.units[-1]),
            )
            booked = Figure(gated.unbooked_tokens, "", EQUAL)
            if session.below:
                below.append((*row, booked))
            else:
                asked = gated.summaries
                read = asked.cache_read_tokens / asked.prompt_tokens if asked.prompt_tokens else 1.0
                floor = READS if session.engine == "compressor" else None
                beyond.append((*row, Figure(asked.output_tokens), share(read, floor), booked))
    columns = (
        "session",
        "turns",
        "largest prompt",
        "compactions",
        "dearest turn / never",
        "at the end / never",
    )
    about = (
        "Default settings (`context.economics: gated`, the session's own model writes summaries) against "
        "`compression.enabled: false`, by the server's own books: input 1, cache write 1.25, cache read 0.1, output 5. "
    )
    return [
        Table(
            "live-bill",
            "Live bill of sessions below the threshold",
            (*columns[:4], "dearest turn / never (floor)", columns[5], "tokens not booked (floor)"),
            tuple(below),
            about + "*Dearest turn* is the highest ratio of the two bills so far, over all turns.",
        ),
        Table(
            "live-bill-beyond",
            "Live bill of sessions beyond the threshold, with summaries by the model",
            (
                *columns,
                "written for summaries",
                "summaries read from the cache (floor)",
                "tokens not booked (floor)",
            ),
            tuple(beyond),
            about
            + "Beyond the threshold a compaction always runs, so the ratios have no floor. The engine `lossless` "
            "asks for notes on each part separately, which reads nothing from the cache.",
        ),
    ]


class _Script:
    """Answers as the session says: reads the note of the turn where it has one, then tells what it says."""

    def __init__(self, session: LiveSession) -> None:
        self._session = session

    def __call__(self, received: Received) -> Reply:
        if _asks_for_handoff(received):
            return Reply(text=HANDOFF)
        asked = re.findall(r"turn (\d+): what", json.dumps(received.messages[-1]))
        if asked and self._session.read_words(turn := int(asked[-1])):
            call = Called(f"call_{turn}", "read_file", json.dumps({"path": f"note_{turn}.txt"}))
            return Reply(text="", calls=(call,))
        last = re.findall(r"turn (\d+): what", json.dumps(received.messages))[-1]
        return Reply(text=f"Note {last} says: " + _prose(f"answer {last}", self._session.answer_words))


def _asks_for_handoff(received: Received) -> bool:
    last = json.dumps(received.messages[-1]) if received.messages else ""
    return "Write the handoff now." in last or "Write notes on this part alone." in last


def _ask(turn: int) -> str:
    return f"turn {turn}: what does note {turn} say of {NOUNS[turn % len(NOUNS)]} and {NOUNS[turn // 3 % len(NOUNS)]}?"


def _write_notes(folder: Path, session: LiveSession, turns: int) -> None:
    folder.mkdir()
    for turn in range(turns):
        if count := session.read_words(turn):
            (folder / f"note_{turn}.txt").write_text(_prose(f"note {turn}", count), encoding="utf-8")


def _prose(seed: str, count: int) -> str:
    """So many words in short lines; the same seed gives the same text."""
    chance = random.Random(seed)
    lines = (
        f"the {chance.choice(NOUNS)} {chance.choice(VERBS)} {chance.choice(NOUNS)} {chance.randrange(10_000)}."
        for _ in range(count // 5 + 1)
    )
    return "\n".join(lines)


@contextlib.contextmanager
def _at_home(folder: Path, clock: SharedClock) -> Iterator[None]:
    """Settings and memory are looked for in a folder of the session's own; books go by its clock."""
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), "ANTHROPIC_API_KEY": "any"}
    with _environment({**home, "OPENAI_API_KEY": "any"}), patch.object(Bookkeeper, "now", clock):
        yield


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    held = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in held.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
