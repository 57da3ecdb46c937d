"""What the gateway adds: the same requests to an upstream directly and through `penstock serve`, in turn, in one run.

The upstream is a process that answers at once, the gateway another, the requests come from this one over connections that
are kept. A conversation grows by one short turn with each request, as an agent's does.

With `LITELLM_PROXY`, the path of a `litellm` program in an environment of its own, that proxy gets the same load in turn.
"""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.clock import note
from benchmarks.gateway_upstream import run_fast
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table

__all__ = ["Talk", "run"]

ROOT = Path(__file__).parents[1]
TEXT = "The harbour crane moves the ledger of tariffs past the beacon at noon. "
KB, MB = 1_000, 1_000_000
ADDED_MS = {20 * KB: Limit(1.0, 0.5), MB: Limit(5.0, 2.0)}
FIRST_BYTE_MS = {20 * KB: Limit(1.2, 0.8), MB: Limit(4.0, 2.5)}
RATE = Limit(1_500, 3_000, at_least=True)
DURABLE_MS = Limit(120, 60)
TIMES_LITELLM = Limit(20, at_least=True)
IDLE_MB, WORKER_MB = Limit(150, 80), Limit(250, 200)
AT_ONCE, ROUNDS = 32, 3
TURNS, UNKNOWN_TURNS = 40, 3
WAIT_MS = 10  # of the upstream, where added time is measured: the log is written beside its work


@dataclass
class Talk:
    """A conversation as a client sends it: all of it in each request, one turn longer each time."""

    size: int
    name: str = ""
    streams: bool = False
    wait_ms: int = 0
    messages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        share = max(400, self.size // 600)
        for number in range(max(2, self.size // share)):
            role = "assistant" if number % 2 else "user"
            text = f"{self.name} {number}: " + TEXT * (share // len(TEXT))
            self.messages.append(json.dumps({"role": role, "content": text}))

    def next_request(self) -> bytes:
        """The next request, with its headers."""
        number = len(self.messages)
        self.messages.append(f'{{"role":"assistant","content":"Noted {number}."}}')
        self.messages.append(f'{{"role":"user","content":"And {number}?"}}')
        begin = b'{"stream":true,"model":"m","messages":[' if self.streams else b'{"model":"m","messages":['
        body = begin + ",".join(self.messages).encode() + b"]}"
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer made-up-key\r\nContent-Length: %d\r\n%b\r\n"
        )
        wait = b"X-Wait-Ms: %d\r\n" % self.wait_ms if self.wait_ms else b""
        return head % (len(body), wait) + body


class Client(asyncio.Protocol):
    """One connection. An answer is complete with its length, or with the last chunk."""

    def __init__(self) -> None:
        self.waiter: asyncio.Future[None] | None = None
        self.got = bytearray()
        self.first = 0.0

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        if not self.first and b"\r\n\r\n" in self.got and not self.got.endswith(b"\r\n\r\n"):
            self.first = time.perf_counter()
        if self.waiter is not None and not self.waiter.done() and self._complete():
            self.waiter.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(error or ConnectionResetError())

    def _complete(self) -> bool:
        end = self.got.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = self.got[:end].lower()
        at = head.find(b"content-length:")
        if at < 0:
            return self.got.endswith(b"0\r\n\r\n")
        length = int(head[at + 15 :].split(b"\r", 1)[0])
        return len(self.got) >= end + 4 + length

    async def ask(self, request: bytes) -> tuple[float, float]:
        """Seconds until the first byte of the answer's body, and until its end."""
        self.got.clear()
        self.first = 0.0
        self.waiter = asyncio.get_running_loop().create_future()
        start = time.perf_counter()
        self.transport.write(request)
        await self.waiter
        end = time.perf_counter()
        if not self.got.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(bytes(self.got[:400]).decode(errors="replace"))
        return (self.first or end) - start, end - start


async def connect(port: int) -> Client:
    """A connection to a port of this machine."""
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client


@contextlib.contextmanager
def process(*command: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A process that prints its port, or the address with it, in its first line."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    with tempfile.TemporaryFile("w+") as complaints:
        child = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        )
        try:
            line = child.stdout.readline() if child.stdout else ""
            if not line:
                complaints.seek(0)
                raise RuntimeError(complaints.read())
            yield int(line.strip().rpartition(":")[2]), child
        finally:
            child.terminate()
            child.wait(30)
            if child.stdout:
                child.stdout.close()


@contextlib.contextmanager
def stage(*options: str) -> Iterator[tuple[int, int, int]]:
    """The port of an upstream, that of a gateway in front of it, and the gateway's process."""
    with (
        tempfile.TemporaryDirectory() as folder,
        process("-m", "benchmarks.gateway_upstream") as (upstream, _),
    ):
        serve = ("-m", "penstock", "serve", "--port", "0", "--upstream", f"http://127.0.0.1:{upstream}/v1")
        with process(*serve, "--store", f"sqlite:///{folder}/gateway.db", *options) as (gateway, child):
            _wait_until_ready(gateway)
            yield upstream, gateway, child.pid


def _wait_until_ready(gateway: int) -> None:
    """Waits until the worker has loaded what it needs."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", gateway, timeout=10)) as asked:
            asked.request("GET", "/ready")
            if asked.getresponse().status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError("the gateway does not become ready")


@contextlib.contextmanager
def litellm_proxy(program: str, upstream: int) -> Iterator[int]:
    """The port of LiteLLM's proxy, with one process, in front of the same upstream."""
    model = {
        "model_name": "m",
        "litellm_params": {
            "model": "openai/m",
            "api_base": f"http://127.0.0.1:{upstream}/v1",
            "api_key": "made-up",
        },
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        settings = {"dangerously_permit_weak_or_unset_master_key": True}  # it need not look keys up
        config.write_text(json.dumps({"model_list": [model], "general_settings": settings}))
        child = subprocess.Popen(
            [
                program,
                "--config",
                str(config),
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--num_workers",
                "1",
            ],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for(port, child)
            yield port
        finally:
            child.terminate()
            child.wait(30)


def _wait_for(port: int, child: subprocess.Popen[bytes]) -> None:
    """Waits until a process listens. Raises RuntimeError where it ends, or takes minutes."""
    end = time.monotonic() + 180
    while child.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise RuntimeError("LiteLLM's proxy does not listen")


async def measure_unseen(gateway: int, size: int, count: int) -> list[float]:
    """Seconds until the end of the answer to requests whose messages were never seen: then they are durable."""
    through = await connect(gateway)
    seconds = [
        (await through.ask(Talk(size, f"unseen {number}").next_request()))[1] for number in range(count)
    ]
    through.transport.close()
    return seconds


async def measure_added(
    upstream: int, gateway: int, size: int, count: int, *, streams: bool
) -> tuple[list[float], ...]:
    """Seconds to the first byte and to the end: directly and through the gateway, request by request, either first in turn.

    Only requests of a conversation that is known count. After some turns another one begins, so that it stays of its size.
    """
    direct, through = await connect(upstream), await connect(gateway)
    seconds: tuple[list[float], ...] = ([], [], [], [])
    while len(seconds[0]) < count:
        talk = Talk(size, f"{streams} {len(seconds[0])}", streams, WAIT_MS)
        for turn in range(TURNS):
            request = talk.next_request()
            if turn % 2:
                pair = (await direct.ask(request), await through.ask(request))
            else:
                late = await through.ask(request)
                pair = (await direct.ask(request), late)
            if turn >= UNKNOWN_TURNS:
                for column, value in zip(seconds, (*pair[0], *pair[1]), strict=True):
                    column.append(value)
    direct.transport.close()
    through.transport.close()
    return seconds


async def measure_rate(port: int, seconds: float) -> tuple[float, int]:
    """Requests in a second, of so many clients at once, and how many there were.

    Each conversation is known by then, and of this round alone: what a request brings is logged.
    """
    began = time.time()
    clients = [(await connect(port), Talk(20 * KB, f"client {number} {began}")) for number in range(AT_ONCE)]
    for _ in range(2):
        await asyncio.gather(*(client.ask(talk.next_request()) for client, talk in clients))
    start = time.perf_counter()
    end = start + seconds
    count = 0

    async def work(client: Client, talk: Talk) -> None:
        nonlocal count
        while time.perf_counter() < end:
            await client.ask(talk.next_request())
            count += 1

    await asyncio.gather(*(work(*one) for one in clients))
    rate = count / (time.perf_counter() - start)
    for client, _ in clients:
        client.transport.close()
    return rate, count


def run(options: Options) -> list[Table]:
    """The tables of the gateway."""
    note("gateway: added time, first byte, throughput")
    count = 40 if options.quick else 300
    rows = []
    wide = (
        "--set",
        "model.context_length=2_000_000",
    )  # so that nothing is compacted, and 1 MB is sent on as 1 MB
    with stage(*wide) as (upstream, gateway, pid), contextlib.ExitStack() as stack:
        idle, workers_idle = resident_mb(pid), _workers_mb(pid)
        for size, label in ((20 * KB, "20 KB"), (MB, "1 MB")):
            few = count if size < MB else count // 3
            before = cpu_seconds(pid)
            _, direct, _, through = run_fast(measure_added(upstream, gateway, size, few, streams=False))
            cpu_ms = 1_000 * (cpu_seconds(pid) - before) / len(direct)
            rows.append(_row(f"{label}, whole answer", direct, through, ADDED_MS[size], cpu_ms))
            before = cpu_seconds(pid)
            first, _, late, _ = run_fast(measure_added(upstream, gateway, size, few, streams=True))
            cpu_ms = 1_000 * (cpu_seconds(pid) - before) / len(first)
            rows.append(_row(f"{label}, first streamed byte", first, late, FIRST_BYTE_MS[size], cpu_ms))
        unseen = run_fast(measure_unseen(gateway, MB, 5 if options.quick else 20))
        ports = {"direct": upstream, "gateway": gateway}
        if program := os.environ.get("LITELLM_PROXY"):
            note("gateway: beside LiteLLM's proxy")
            ports["litellm"] = stack.enter_context(litellm_proxy(program, upstream))
        rates, cpu_ms = _measure_rates(ports, pid, 1.0 if options.quick else 4.0)
        loaded, workers = resident_mb(pid), _workers_mb(pid)
    added = Table(
        "gateway-added",
        "What the gateway adds to a request",
        (
            "request, one at a time",
            "direct p50",
            "through p50",
            "added p50 (floor · goal)",
            "added p95",
            "gateway's CPU",
        ),
        tuple(rows),
        "Time to the end of the answer, or to the first byte of a streamed one; each request is sent both ways, either first "
        "in turn, and *added p50* is the median of the differences. CPU is that of the gateway's process, for each request. "
        f"The upstream takes {WAIT_MS} ms for each, less than any model: the messages of a request are logged "
        "meanwhile.",
    )
    beside = ()
    if "litellm" in rates:
        beside = (
            ("LiteLLM's proxy, the same in turn", Figure(rates["litellm"])),
            ("gateway / LiteLLM's proxy", Figure(rates["gateway"] / rates["litellm"], "×", TIMES_LITELLM)),
        )
    load = Table(
        "gateway-load",
        "The gateway under load",
        ("what", "value"),
        (
            (f"{AT_ONCE} clients, 20 KB: requests a second", Figure(rates["gateway"], "", RATE)),
            ("the same directly", Figure(rates["direct"])),
            *beside,
            ("CPU of the gateway's process for each", Figure(cpu_ms, "ms")),
            (
                "1 MB never seen, one at a time: until durable, p50",
                Figure(1_000 * statistics.median(unseen), "ms", DURABLE_MS),
            ),
            ("resident, gateway's process, idle", Figure(idle, "MB", IDLE_MB)),
            ("resident, worker process, idle", Figure(workers_idle, "MB", WORKER_MB)),
            ("resident, gateway's process, after it all", Figure(loaded, "MB")),
            ("resident, worker process, after it all", Figure(workers, "MB")),
        ),
        f"Clients, upstream, gateway and worker share the cores of this machine. Requests a second are the best of {ROUNDS} "
        "rounds, each with conversations of its own, so that everything in them is logged.",
    )
    return [added, load]


def _measure_rates(ports: dict[str, int], pid: int, seconds: float) -> tuple[dict[str, float], float]:
    """Requests a second by name, the best of some rounds in turn, and the gateway's CPU for each request in ms."""
    best = dict.fromkeys(ports, 0.0)
    cpu_seconds_used, served = 0.0, 0
    for _ in range(ROUNDS):
        for name, port in ports.items():
            before = cpu_seconds(pid)
            rate, count = run_fast(measure_rate(port, seconds))
            best[name] = max(best[name], rate)
            if name == "gateway":
                cpu_seconds_used += cpu_seconds(pid) - before
                served += count
    return best, 1_000 * cpu_seconds_used / served


def _workers_mb(pid: int) -> float:
    return sum(resident_mb(child) for child in children(pid))


def _row(
    what: str, direct: list[float], through: list[float], limit: Limit, cpu_ms: float
) -> tuple[str | Figure, ...]:
    middle = [1_000 * statistics.median(column) for column in (direct, through)]
    added = 1_000 * statistics.median(after - before for before, after in zip(direct, through, strict=True))
    late = [1_000 * statistics.quantiles(column, n=20)[-1] for column in (direct, through)]
    return (
        what,
        Figure(middle[0], "ms"),
        Figure(middle[1], "ms"),
        Figure(added, "ms", limit),
        Figure(late[1] - late[0], "ms"),
        Figure(cpu_ms, "ms"),
    )


def resident_mb(pid: int) -> float:
    """What a process has resident, by /proc; 0 where there is none."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


def cpu_seconds(pid: int) -> float:
    """What a process has used of the CPU, by /proc; 0 where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
