"""The gateway's side of its worker processes: gives orders, takes answers, starts again what has ended.

    workers = Workers(settings)
    await workers.start()
    answer = await workers.give(order)

A conversation belongs to the worker that has opened it, and its orders are carried out in the order in which they were
given. Nothing here raises: an order that its worker could not answer is answered `NotOpen`. `Open` and `Unseal` wait once
for the worker that takes its place, and are answered `Failed` where that ends, too, or is not started soon.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from penstock._log import log
from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest
from penstock.conversation.message import Role
from penstock.conversation.wire import parse_json
from penstock.errors import InputError
from penstock.gateway.child_processes import start_child
from penstock.gateway.orders import (
    HEADER_BYTES,
    Append,
    Failed,
    Forget,
    NotOpen,
    Open,
    OpenedConversation,
    TakeUsage,
    Unseal,
    body_size,
    read_answer,
    write_frame,
)

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Sequence
    from typing import IO, Any

    from penstock.gateway.orders import Answer, Order
    from penstock.settings import Settings

__all__ = ["Workers"]

_GATHERED_SECONDS = 0.002  # that an order for which no request waits may wait for others
_MOST_UNDER_WAY = 512  # orders of one worker; more wait
_MOST_KNOWN = 100_000  # conversations whose worker is remembered
_FIRST_REST_SECONDS, _LONGEST_REST_SECONDS = 0.1, 10.0
_NEXT_SECONDS = 2.0  # that an order waits for the next process
_HEALTHY_SECONDS = 30.0  # a worker that lived as long rests no longer than at first
_LOOKED_AT = 4  # messages that decide which worker opens a conversation
_ENDED = "the worker process ended before it could answer"
_CLOSED = "the gateway is ending"


class Workers:
    """The workers of one gateway."""

    def __init__(
        self, settings: Settings, *, command: Sequence[str] | None = None, log_file: IO[Any] | None = None
    ) -> None:
        """Makes them; `log_file` takes their log in place of standard error."""
        own = command or (sys.executable, "-m", "penstock.gateway.worker")
        self._workers = [
            _Worker(settings, own, number, log_file) for number in range(settings.gateway.workers)
        ]
        self._homes: OrderedDict[str, _Worker] = OrderedDict()
        self._drain_seconds = settings.gateway.drain_seconds

    async def start(self) -> None:
        """Starts all of them; returns when they were started, which is before they are ready."""
        await asyncio.gather(*(worker.start() for worker in self._workers))

    @property
    def pids(self) -> tuple[int | None, ...]:
        """The process id of each worker; None for one that is being started again."""
        return tuple(worker.pid for worker in self._workers)

    @property
    def under_way(self) -> int:
        """The number of orders that wait for an answer."""
        return sum(len(worker.open_orders) for worker in self._workers)

    @property
    def restarts(self) -> int:
        """The number of times that a worker has ended and was started again."""
        return sum(worker.restarts for worker in self._workers)

    async def answer(self) -> bool:
        """Returns True where all of them answer."""
        asked = Forget(conversation="")
        answers = await asyncio.gather(*(worker.give(asked) for worker in self._workers))
        return None not in self.pids and all(isinstance(answer, NotOpen) for answer in answers)

    async def give(self, order: Order) -> Answer:
        """Returns the answer to an order."""
        if isinstance(order, Open | Unseal):
            worker = self._workers[_choose(order, len(self._workers))]
            answer = await worker.give(order)
            if answer == Failed(_ENDED) and await worker.wait_for_next():
                answer = await worker.give(order)  # what was logged of it already is found there
            if isinstance(answer, OpenedConversation) and answer.conversation:
                self._remember(answer.conversation, worker)
            return answer
        home = self._homes.get(order.conversation)
        if home is None:
            return NotOpen()
        if isinstance(order, Forget):
            del self._homes[order.conversation]
        else:
            self._homes.move_to_end(order.conversation)
        return await home.give(order)

    def _remember(self, conversation: str, worker: _Worker) -> None:
        self._homes[conversation] = worker
        self._homes.move_to_end(conversation)
        while len(self._homes) > _MOST_KNOWN:
            self._homes.popitem(last=False)

    def hurry(self) -> None:
        """Sends the gathered orders now: a request waits for them."""
        for worker in self._workers:
            worker.write_gathered()

    async def aclose(self) -> None:
        """Waits for the orders that are under way, then ends the workers: what they know is written."""
        await asyncio.gather(*(worker.aclose(self._drain_seconds) for worker in self._workers))


def _choose(order: Open | Unseal, count: int) -> int:
    """Returns the worker that opens a conversation: the same for all requests that begin alike, in whatever spelling."""
    if count == 1:
        return 0
    if isinstance(order, Unseal):
        return crc32(order.owner.encode()) % count
    dialect = dialect_named(order.dialect)
    chosen = crc32(order.owner.encode())
    for raw in order.messages[:_LOOKED_AT]:
        try:
            message = dialect.decode(parse_json(raw))
        except (InputError, ValueError):
            break
        chosen = crc32(content_digest(message), chosen)
        if message.role is Role.USER:
            break
    return chosen % count


class _Worker:
    """One worker process; another takes its place where it ends."""

    def __init__(
        self, settings: Settings, command: Sequence[str], number: int, log_file: IO[Any] | None
    ) -> None:
        self._begin = write_frame(0, settings)
        self._command = command
        self._number = number
        self._log_file = log_file
        self._process: Process | None = None
        self._ready = asyncio.Event()  # there is a process to write to, or there will be none for a while
        self._room = asyncio.Semaphore(_MOST_UNDER_WAY)
        self._keeping: asyncio.Task[None] | None = None
        self._last = 0
        self._gathered: list[bytearray] = []  # frames that go out together
        self._writing_later: asyncio.TimerHandle | None = None
        self._written_at = 0.0
        self._closing = False
        self._running = asyncio.Event()  # there is a process
        self._rest_seconds = _FIRST_REST_SECONDS
        self.restarts = 0
        self.open_orders: dict[int, tuple[Order, asyncio.Future[Answer]]] = {}

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        self._keeping = asyncio.create_task(self._keep_running())
        await self._ready.wait()

    async def give(self, order: Order) -> Answer:
        async with self._room:
            await self._ready.wait()
            process = self._process
            if self._closing:
                return Failed(_CLOSED)
            if process is None or process.stdin is None:
                return _give_up(order)
            self._last += 1
            number = self._last
            answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self.open_orders[number] = order, answer
            try:
                frame = write_frame(number, order)
                self._gathered.append(frame)  # before any wait: the order of orders is kept
                if isinstance(order, Append | TakeUsage):
                    self._write_soon()
                else:
                    self.write_gathered()
                    await process.stdin.drain()
                return await answer
            except (ConnectionError, OSError):
                return _give_up(order)
            finally:
                self.open_orders.pop(number, None)

    def _write_soon(self) -> None:
        """Writes the order soon, together with others, when the request that it came with has gone upstream.

        A write wakes the worker up, which may take the core from this process; no request is to wait for that. An order
        that comes alone is written at once: by now its request has gone out, and its answer may be quick.
        """
        if self._writing_later is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._written_at > _GATHERED_SECONDS:
            self._writing_later = loop.call_later(0, self.write_gathered)
        else:
            self._writing_later = loop.call_later(_GATHERED_SECONDS, self.write_gathered)

    def write_gathered(self) -> None:
        """Writes all orders that were gathered."""
        if self._writing_later is not None:
            self._writing_later.cancel()
            self._writing_later = None
        stdin = None if self._process is None else self._process.stdin
        if self._gathered and stdin is not None and not stdin.is_closing():  # else its process has just ended
            stdin.writelines(self._gathered)
            self._written_at = asyncio.get_running_loop().time()
        self._gathered.clear()

    async def wait_for_next(self) -> bool:
        """Waits for the process after one that ended; False where that takes long, since none lives."""
        if self._rest_seconds >= _NEXT_SECONDS:
            return False
        try:
            async with asyncio.timeout(_NEXT_SECONDS):
                await self._running.wait()
        except TimeoutError:
            return False
        return True

    async def aclose(self, drain_seconds: float) -> None:
        self.write_gathered()
        waiting = [answer for _, answer in self.open_orders.values()]
        if waiting:
            await asyncio.wait(waiting, timeout=drain_seconds)
        self._closing = True
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                async with asyncio.timeout(drain_seconds):
                    await process.wait()
            except TimeoutError:
                process.kill()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])

    async def _keep_running(self) -> None:
        while True:
            started = time.monotonic()
            try:
                await self._run_once()
            except OSError as error:
                log.error("worker %d cannot be started: %s", self._number, error)
            finally:
                self._process = None
                self._gathered.clear()  # they are answered here, and not given to the next one
                self._give_up_open_orders()
            if self._closing:
                return
            if time.monotonic() - started > _HEALTHY_SECONDS:
                self._rest_seconds = _FIRST_REST_SECONDS
            rest = self._rest_seconds
            log.error("worker %d ended; it is started again in %.1f s", self._number, rest)
            self.restarts += 1
            self._ready.set()  # orders that wait are told that there is none
            await asyncio.sleep(rest)
            self._ready.clear()
            self._rest_seconds = min(2 * rest, _LONGEST_REST_SECONDS)

    async def _run_once(self) -> None:
        """Starts a process, and takes in its answers until it ends."""
        process = await start_child(self._command, self._log_file)
        try:
            if process.stdin is None or process.stdout is None:
                return
            process.stdin.write(self._begin)
            self._process = process
            self._running.set()
            self._ready.set()
            while True:
                header = await process.stdout.readexactly(HEADER_BYTES)
                number, answer = read_answer(await process.stdout.readexactly(body_size(header)))
                order = self.open_orders.get(number)
                if order is not None and not order[1].done():
                    order[1].set_result(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except (ValueError, msgspec.DecodeError) as error:  # it is ended, and started again
            log.error("worker %d wrote what is no answer: %s", self._number, error)
        finally:
            self._ready.clear()
            self._running.clear()
            if process.returncode is None and not self._closing:
                process.kill()
            await process.wait()

    def _give_up_open_orders(self) -> None:
        for order, answer in self.open_orders.values():
            if not answer.done():
                answer.set_result(_give_up(order))


def _give_up(order: Order) -> Answer:
    return Failed(_ENDED) if isinstance(order, Open | Unseal) else NotOpen()
