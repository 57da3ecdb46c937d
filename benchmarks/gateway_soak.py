"""The gateway for a long time, and beside a busy neighbour: does memory stay flat, and do others wait while one compacts?

`penstock serve` with its worker and an upstream that answers at once, each in a process of its own. 500 conversations begin,
go on and end, some of them at a time. Then a few clients ask at a steady pace, in turn alone and while another has a long
conversation compacted every second.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator

from benchmarks.clock import note
from benchmarks.gateway import KB, WAIT_MS, Client, Talk, children, connect, resident_mb, stage
from benchmarks.gateway_upstream import run_fast
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table, share

__all__ = ["run"]

CONVERSATIONS = 500
AT_ONCE = 16
MEMORY_MB = 16
CHECKS = 4  # looks at the memory, at equal distances
FLAT = Limit(115)  # of what it was at the first look, in per cent
NO_ERRORS = Limit(0)
NEIGHBOURS = 8
PACE_SECONDS = 0.05
SPELLS = 5  # of quiet and of compactions, in turn
LONG = 300 * KB
WAIT = Limit(2.0, 1.3)


def run(options: Options) -> list[Table]:
    """The tables of the gateway over time."""
    requests = 1_000 if options.quick else options.requests
    note(f"gateway: {requests:,} requests over {CONVERSATIONS} conversations")
    # As little memory for conversations as may be set: it is full before the first look, and what grows then is a leak.
    with stage("--set", f"gateway.memory_mb={MEMORY_MB}") as (_, gateway, pid):
        load = run_fast(_load(gateway, pid, requests))
    note("gateway: others while one compacts each second")
    rows: list[tuple[str | Figure, ...]] = []
    with stage() as (_, gateway, pid):
        seconds = 5.0 if options.quick else 25.0
        for wait_ms in (0, WAIT_MS):
            rows += _neighbour_rows(wait_ms, *run_fast(_neighbours(gateway, seconds, wait_ms)))
        workers = children(pid)
        compactors = [one for worker in workers for one in children(worker)]
        resident = [sum(map(resident_mb, some)) for some in (workers, compactors)]
    return [
        Table(
            "gateway-soak",
            "The gateway over many requests",
            ("what", "value"),
            _load_rows(load),
            f"{CONVERSATIONS} conversations, {AT_ONCE} at a time, each from its beginning to its end, with `gateway.memory_mb: "
            f"{MEMORY_MB}`; resident memory after a quarter, half, three quarters and all of the requests.",
        ),
        Table(
            "gateway-neighbours",
            "Others while one conversation compacts each second",
            ("requests of others", "p50", "p99", "p99 / alone (floor · goal)"),
            tuple(rows),
            f"{NEIGHBOURS} clients with 20 KB each, one request every {PACE_SECONDS * 1_000:.0f} ms; another client "
            f"sends {LONG // KB} KB of new messages with a target of 10,000 tokens. Periods with and without it alternate. "
            "An answer ends only when the messages of its request are durable; a model takes longer than that. One compaction "
            "comes before all: it starts the process for the others. Resident at the end: worker "
            f"{resident[0]:.0f} MB, its compactor {resident[1]:.0f} MB.",
        ),
    ]


def _neighbour_rows(
    wait_ms: int, alone: list[float], beside: list[float], compactions: int
) -> list[tuple[str | Figure, ...]]:
    upstream = f"upstream of {wait_ms} ms" if wait_ms else "upstream at once"
    return [
        (f"{upstream}: alone", _ms(statistics.median(alone)), _ms(_late(alone)), ""),
        (
            f"{upstream}: beside {compactions} compactions",
            _ms(statistics.median(beside)),
            _ms(_late(beside)),
            Figure(_late(beside) / _late(alone), "×", WAIT),
        ),
    ]


def _load_rows(
    load: tuple[int, int, float, list[tuple[float, float]]],
) -> tuple[tuple[str, str | Figure], ...]:
    answered, errors, seconds, looks = load
    gateway, worker = (list(column) for column in zip(*looks, strict=True))
    return (
        ("requests", Figure(answered)),
        ("errors (floor)", Figure(errors, "", NO_ERRORS)),
        ("requests a second", Figure(answered / seconds)),
        ("gateway's process", " → ".join(f"{mb:.0f}" for mb in gateway) + " MB"),
        ("worker", " → ".join(f"{mb:.0f}" for mb in worker) + " MB"),
        ("gateway's process, last look / first (floor)", share(gateway[-1] / gateway[0], FLAT)),
        ("worker, last look / first (floor)", share(worker[-1] / worker[0], FLAT)),
    )


async def _load(port: int, pid: int, requests: int) -> tuple[int, int, float, list[tuple[float, float]]]:
    """Requests that were answered, errors, seconds, and the memory of gateway and worker at each look."""
    each = max(2, requests // CONVERSATIONS)
    answered = errors = 0
    looks: list[tuple[float, float]] = []
    numbers = iter(range(CONVERSATIONS))

    def look() -> None:
        looks.append((resident_mb(pid), sum(resident_mb(child) for child in children(pid))))

    async def work(client: Client, rest: Iterator[int]) -> None:
        nonlocal answered, errors
        for number in rest:
            talk = Talk(4 * KB, f"conversation {number}", streams=number % 2 == 1)
            for _ in range(each):
                try:
                    await client.ask(talk.next_request())
                    answered += 1
                except (RuntimeError, ConnectionError):
                    errors += 1
                    client = await connect(port)
                if answered >= (len(looks) + 1) * each * CONVERSATIONS // CHECKS:
                    look()

    start = time.perf_counter()
    await asyncio.gather(*[work(await connect(port), numbers) for _ in range(AT_ONCE)])
    return answered, errors, time.perf_counter() - start, looks


async def _neighbours(port: int, seconds: float, wait_ms: int) -> tuple[list[float], list[float], int]:
    """Seconds of each request of the neighbours, alone and beside compactions, and the number of those."""
    names = (f"neighbour {number} of {wait_ms} ms" for number in range(NEIGHBOURS))
    clients = [(await connect(port), Talk(20 * KB, name, wait_ms=wait_ms)) for name in names]
    for _ in range(3):
        await asyncio.gather(*(client.ask(talk.next_request()) for client, talk in clients))
    alone: list[float] = []
    beside: list[float] = []
    made = 0

    def write_wish(name: str) -> bytes:
        wish = b"\r\nX-Penstock-Target-Tokens: 10000\r\n\r\n"
        return Talk(LONG, f"busy {wait_ms} {name}").next_request().replace(b"\r\n\r\n", wish, 1)

    async def compact(wishes: list[bytes]) -> None:
        nonlocal made
        busy = await connect(port)
        for wish in wishes:
            _, taken = await busy.ask(wish)
            made += b"x-penstock-compacted: now" in bytes(busy.got).lower()
            await asyncio.sleep(max(0.0, 1.0 - taken))

    await compact([write_wish("first")])
    made = 0
    for spell in range(SPELLS):
        alone += await _keep_pace(clients, seconds / SPELLS)
        # Written before: the process that measures is not to be busy with it.
        wishes = [write_wish(f"{spell} {number}") for number in range(int(seconds / SPELLS))]
        compacting = asyncio.ensure_future(compact(wishes))
        beside += await _keep_pace(clients, seconds / SPELLS)
        await compacting
    return alone, beside, made


async def _keep_pace(clients: list[tuple[Client, Talk]], seconds: float) -> list[float]:
    end = time.perf_counter() + seconds
    found: list[float] = []

    async def work(client: Client, talk: Talk, offset: float) -> None:
        await asyncio.sleep(offset)
        while time.perf_counter() < end:
            _, taken = await client.ask(talk.next_request())
            found.append(taken)
            await asyncio.sleep(max(0.0, PACE_SECONDS - taken))

    offsets = (PACE_SECONDS * number / len(clients) for number in range(len(clients)))
    await asyncio.gather(*(work(*one, offset) for one, offset in zip(clients, offsets, strict=True)))
    return found


def _late(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[-1]


def _ms(seconds: float) -> Figure:
    return Figure(1_000 * seconds, "ms")
