"""The worker process of the gateway: carries out orders until its parent ends, however that ends.

It is given frames on stdin, the settings first, and answers on stdout. The end of stdin is the order to stop: what is
under way is finished and written. It comes also from a parent that was killed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock._log import log
from penstock.errors import PenstockError
from penstock.gateway.child_processes import begin_child, follow_parent, log_fault
from penstock.gateway.compacting import Compactor
from penstock.gateway.conversations import Conversations
from penstock.gateway.orders import (
    Append,
    Failed,
    FrameSplitter,
    Open,
    Order,
    Unseal,
    read_frame,
    read_order,
    read_settings,
    write_frame,
)
from penstock.gateway.running import run_in_loop
from penstock.measure.tokens import expect_many_counts

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from penstock.gateway.orders import Answer, Appended

__all__ = ["main"]

_FLUSH_SECONDS = 0.3
_READ_BYTES = 1 << 20
_MOST_TOGETHER = 64  # orders that are logged in one thread
_SWITCH_SECONDS = 0.00002  # between threads: an order of milliseconds, with many calls of the store, does not wait behind a compaction at each
_GRACE_SECONDS = 10.0  # for orders that are under way when the parent has ended


def main() -> None:
    """Reads the settings, and carries out orders until stdin ends."""
    answers = begin_child()
    sys.setswitchinterval(_SWITCH_SECONDS)
    expect_many_counts()  # the other tokenizer would be loaded while requests wait: 0.2 s, and nothing else runs
    first = read_frame(partial(os.read, 0))
    if first is None:
        return
    settings = read_settings(first)
    compactor = None if sys.platform == "win32" else Compactor(settings.gateway)
    run_in_loop(_Service(Conversations(settings, compactor=compactor), answers).run())
    logging.shutdown()
    os._exit(0)  # a compaction that nobody waits for any more may still run in a thread


class _Service:
    """Orders in, answers out."""

    def __init__(self, conversations: Conversations, answers: int) -> None:
        self._conversations = conversations
        self._answers_fd = answers
        self._loop: asyncio.AbstractEventLoop
        self._writing = threading.Lock()  # what was logged is told by the thread that has logged it
        self._frames = FrameSplitter()
        self._under_way: set[asyncio.Task[None]] = set()
        self._busy: Counter[str] = Counter()  # orders under way, by conversation
        self._ended = asyncio.Event()

    async def run(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        if sys.platform == "linux":
            loop.add_signal_handler(signal.SIGUSR1, self._ended.set)
            if not follow_parent(signal.SIGUSR1):
                self._ended.set()
        await self._warm_up()  # first, so that a worker that answers is ready
        self._listen(loop)
        flushing = asyncio.create_task(self._flush_often())
        await self._ended.wait()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_GRACE_SECONDS)
        flushing.cancel()
        await self._conversations.aclose()

    async def _warm_up(self) -> None:
        """Makes ready while nobody waits. A store that cannot be opened is told with each order that needs it."""
        try:
            await self._conversations.warm_up()
        except PenstockError as error:
            log.error("%s", error)
        gc.collect()
        gc.freeze()  # tables stay until the end: a full collection would look through them for 10 to 20 ms, and all wait

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has orders taken as they come: by the loop itself, or in a thread where it cannot wait for a pipe."""
        if sys.platform == "win32":
            threading.Thread(target=self._read_in_thread, args=(loop,), daemon=True).start()
        else:
            os.set_blocking(0, False)
            loop.add_reader(0, self._read_now, loop)

    def _read_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        while data := os.read(0, _READ_BYTES):
            loop.call_soon_threadsafe(self._take, data)
        loop.call_soon_threadsafe(self._ended.set)

    def _read_now(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            data = os.read(0, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._take(data)
        else:
            loop.remove_reader(0)
            self._ended.set()

    def _take(self, data: bytes) -> None:
        """Begins to carry out orders. Those that only log, for conversations that are at rest, are carried out together."""
        together: list[tuple[int, Append]] = []
        for number, order in map(read_order, self._frames.feed(data)):
            name = _name_conversation(order)
            if isinstance(order, Append) and not self._busy[name] and len(together) < _MOST_TOGETHER:
                together.append((number, order))
                if len(together) == 1:  # it is begun before all that comes after it, and is complete by then
                    self._begin(self._log_together(together))
            else:
                self._begin(self._carry_out(number, order))
            self._busy[name] += 1

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _write(self, frame: bytes | bytearray) -> None:
        """Writes an answer; its parent takes it at once, and one that is gone gets none."""
        view = memoryview(frame)
        try:
            with self._writing:
                while view:
                    view = view[os.write(self._answers_fd, view) :]
        except OSError:
            self._loop.call_soon_threadsafe(self._ended.set)

    async def _carry_out(self, number: int, order: Order) -> None:
        try:
            answer = await self._conversations.carry_out(order)
        except Exception as error:  # noqa: BLE001 - one order that finds a fault of ours must not end all others
            answer = Failed(log_fault(error, order))
        self._rest(order)
        self._write(write_frame(number, answer))

    async def _log_together(self, orders: Sequence[tuple[int, Append]]) -> None:
        told: set[int] = set()

        def tell(logged: Mapping[int, Appended]) -> None:
            told.update(logged)
            self._write(b"".join(write_frame(orders[at][0], answer) for at, answer in logged.items()))

        answers: Sequence[Answer | Exception]
        try:
            answers = await self._conversations.append_together([order for _, order in orders], tell)
        except Exception as error:  # noqa: BLE001 - as above; those who wait for an answer would wait for ever
            answers = [error] * len(orders)
        frames = []
        for at, ((number, order), answer) in enumerate(zip(orders, answers, strict=True)):
            self._rest(order)
            if at not in told:
                said = Failed(log_fault(answer, order)) if isinstance(answer, Exception) else answer
                frames.append(write_frame(number, said))
        self._write(b"".join(frames))

    def _rest(self, order: Order) -> None:
        """Notes that an order was carried out."""
        name = _name_conversation(order)
        self._busy[name] -= 1
        if not self._busy[name]:
            del self._busy[name]

    async def _flush_often(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            await self._conversations.flush()


def _name_conversation(order: Order) -> str:
    return "" if isinstance(order, Open | Unseal) else order.conversation


if __name__ == "__main__":
    main()
