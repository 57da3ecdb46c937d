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
import traceback
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock._log import log
from penstock.conversation.wire import encode_wire
from penstock.errors import PenstockError
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

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from penstock.gateway.orders import Answer

__all__ = ["main"]

_FLUSH_SECONDS = 0.3
_READ_BYTES = 1 << 20
_MOST_TOGETHER = 64  # orders that are logged in one thread
_SWITCH_SECONDS = 0.00002  # between threads: an order of milliseconds, with many calls of the store, does not wait behind a compaction at each
_GRACE_SECONDS = 10.0  # for orders that are under way when the parent has ended
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Reads the settings, and carries out orders until stdin ends."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - only there

        for number in (0, 1):  # frames are bytes: no line end of theirs is to be changed
            msvcrt.setmode(number, os.O_BINARY)
    for name in (
        "SIGINT",
        "SIGTERM",
        "SIGHUP",
        "SIGQUIT",
    ):  # they reach the whole group, and the parent decides
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_SECONDS)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library may print is no answer
    lines = logging.StreamHandler()
    lines.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    first = read_frame(partial(os.read, 0))
    if first is None:
        return
    run_in_loop(_Service(Conversations(read_settings(first)), answers).run())
    logging.shutdown()
    os._exit(0)  # a compaction that nobody waits for any more may still run in a thread


class _JsonLines(logging.Formatter):
    """A line of JSON for each, as in the gateway's own log."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "worker": os.getpid(),
            "message": record.getMessage(),
        }
        return encode_wire(line).decode()


class _Service:
    """Orders in, answers out."""

    def __init__(self, conversations: Conversations, answers: int) -> None:
        self._conversations = conversations
        self._answers_fd = answers
        self._frames = FrameSplitter()
        self._under_way: set[asyncio.Task[None]] = set()
        self._busy: Counter[str] = Counter()  # orders under way, by conversation
        self._ended = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        _follow_parent(loop, self._ended)
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
                if (
                    len(together) == 1
                ):  # it is begun before all that comes behind it, and by then it is complete
                    self._begin(self._log_together(together))
            else:
                self._begin(self._carry_out(number, order))
            self._busy[name] += 1

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _write(self, frame: bytes) -> None:
        """Writes an answer; its parent takes it at once, and one that is gone gets none."""
        view = memoryview(frame)
        try:
            while view:
                view = view[os.write(self._answers_fd, view) :]
        except OSError:
            self._ended.set()

    async def _carry_out(self, number: int, order: Order) -> None:
        try:
            answer = await self._conversations.carry_out(order)
        except Exception as error:  # noqa: BLE001 - one order that finds a fault of ours must not end all others
            answer = _tell_fault(error, order)
        self._rest(order)
        self._write(write_frame(number, answer))

    async def _log_together(self, orders: Sequence[tuple[int, Append]]) -> None:
        answers: Sequence[Answer | Exception]
        try:
            answers = await self._conversations.append_together([order for _, order in orders])
        except Exception as error:  # noqa: BLE001 - as above; those who wait for an answer would wait for ever
            answers = [error] * len(orders)
        frames = []
        for (number, order), answer in zip(orders, answers, strict=True):
            self._rest(order)
            told = _tell_fault(answer, order) if isinstance(answer, Exception) else answer
            frames.append(write_frame(number, told))
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


def _tell_fault(error: Exception, order: Order) -> Failed:
    """Logs a fault of ours, without the error's own text, which may quote a conversation; returns the answer to the order."""
    kind, where = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
    log.error("%s ended with %s\n%s", type(order).__name__, kind, where)
    return Failed(f"an internal error ({kind})")


def _follow_parent(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Ends with the parent also where a copy of the pipe in another process hides its death; Linux tells."""
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415 - only here

    parent = os.getppid()
    loop.add_signal_handler(signal.SIGUSR1, ended.set)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)
    if os.getppid() != parent:  # it ended before it could be followed
        ended.set()


if __name__ == "__main__":
    main()
