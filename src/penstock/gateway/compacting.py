"""A worker's side of its compactor: has orders carried out there, and answers for one that ends or hangs.

    compactor = Compactor(settings.gateway)
    drafted = await compactor.draft(order)

The process is started when the first order is near, and ended when none has come for a while. One that ends by itself is
started again, and what it was asked is asked once more. One that takes far longer than any order should is killed. Where
there is no answer after that, the order fails: the conversation goes on as it is.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock._log import log
from penstock.context.drafting import CompletedView, DraftedView
from penstock.conversation.wire import parse_json
from penstock.errors import EngineFailure, TargetTooSmall
from penstock.gateway.child_processes import start_child
from penstock.gateway.compactor import (
    AT_ONCE,
    HandoffOrder,
    TooSmall,
    WrittenText,
    read_compactor_answer,
)
from penstock.gateway.orders import HEADER_BYTES, Failed, body_size, write_frame

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Coroutine, Sequence

    from penstock.context.drafting import CompletionOrder, DraftOrder
    from penstock.gateway.compactor import CompactorAnswer, CompactorOrder
    from penstock.settings import GatewaySettings

__all__ = ["Compactor"]

_T = TypeVar("_T")
_Answer = TypeVar("_Answer")

_MEMORY_SHARE = 0.5  # of what a worker's conversations may take: what was read of those that were compacted
_LEAST_SECONDS = 15.0  # that an order may take,
_SECONDS_A_MEGABYTE = 15.0  # and for each megabyte of it
_FIRST_REST_SECONDS, _LONGEST_REST_SECONDS = 0.1, 10.0
_TRIES = 2
_IDLE_SECONDS = 900.0  # then the process is ended: it takes 120 MB and more, and starts in a second
_ENDED = "the process that compacts ended"
_HANGS = "the process that compacts did not answer in time"


class Compactor:
    """The compactor of one worker. It belongs to the event loop."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        command: Sequence[str] | None = None,
        least_seconds: float = _LEAST_SECONDS,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        most_bytes = int(_MEMORY_SHARE * settings.memory_mb * 1_000_000 / settings.workers)
        own = command or (sys.executable, "-m", "penstock.gateway.compactor")
        self._command = (*own, str(most_bytes))
        self._least_seconds, self._idle_seconds = least_seconds, idle_seconds
        self._ending: asyncio.TimerHandle | None = None
        self._places = asyncio.Semaphore(AT_ONCE)
        self._starting = asyncio.Lock()
        self._running: _RunningProcess | None = None
        self._failures = 0  # since the last answer
        self._rests_until = 0.0
        self._closed = False
        self._under_way: set[asyncio.Task[Any]] = set()

    @property
    def pid(self) -> int | None:
        """The process id; None while there is no process."""
        return None if self._running is None else self._running.pid

    def start_soon(self) -> None:
        """Starts the process beside all else: an order is near."""
        if self._running is None and not self._starting.locked():
            self._run(self._start())

    async def draft(self, order: DraftOrder) -> DraftedView:
        """Returns the compaction of a view. Raises TargetTooSmall, and EngineFailure where it is not made."""
        return _require(await self._give(order, _count_bytes(order)), DraftedView)

    async def complete(self, order: CompletionOrder) -> CompletedView:
        """Returns a draft completed. Raises EngineFailure where it is not."""
        return _require(await self._give(order, _count_bytes(order)), CompletedView)

    async def write(self, order: HandoffOrder) -> str:
        """Returns messages as one handoff. Raises TargetTooSmall, and EngineFailure where it is not written."""
        written = _require(await self._give(order, sum(map(len, order.messages))), WrittenText)
        return str(parse_json(written.text))

    async def _give(self, order: CompactorOrder, size: int) -> CompactorAnswer:
        """Returns the answer to an order. One that nobody waits for any more is carried out all the same.

        Its place is taken until then, and a process that hangs with it is noticed.
        """
        return await asyncio.shield(self._run(self._carry_out(order, size)))

    def _run(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Runs it to its end."""
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._rest)
        return task

    def _rest(self, task: asyncio.Task[Any]) -> None:
        """Has the process ended where nothing follows."""
        self._under_way.discard(task)
        if self._ending is not None:
            self._ending.cancel()
        if not self._under_way and not self._closed:
            self._ending = asyncio.get_running_loop().call_later(self._idle_seconds, self._end_idle)

    def _end_idle(self) -> None:
        if self._running is not None and not self._under_way:
            self._running.kill()
            self._running = None

    async def _carry_out(self, order: CompactorOrder, size: int) -> CompactorAnswer:
        seconds = self._least_seconds + _SECONDS_A_MEGABYTE * size / 1_000_000
        async with self._places:
            for _ in range(_TRIES):
                running = await self._start()
                if running is None:
                    break
                try:
                    async with asyncio.timeout(seconds):
                        answer = await running.give(order)
                except TimeoutError:
                    log.error("%r was not carried out in %.0f s: its process is killed", order, seconds)
                    running.kill()
                    return Failed(_HANGS)
                if answer is not None:
                    self._failures = 0
                    return answer
        return Failed(_ENDED)

    async def _start(self) -> _RunningProcess | None:
        """Returns the process, which is started where there is none; None where it cannot be, or has ended too often."""
        async with self._starting:
            if self._closed:
                return None
            if self._running is not None and self._running.ended:
                self._running = None
                self._failures += 1
                rest = min(_FIRST_REST_SECONDS * (2 ** (self._failures - 1) - 1), _LONGEST_REST_SECONDS)
                self._rests_until = time.monotonic() + rest  # none after the first: it may have been killed
                log.error(
                    "the process that compacts ended; it is started again in %.1f s at the earliest", rest
                )
            if self._running is None and time.monotonic() >= self._rests_until:
                try:
                    self._running = await _RunningProcess.start(self._command)
                except OSError as error:
                    log.error("the process that compacts cannot be started: %s", error)
            return self._running

    async def aclose(self) -> None:
        """Ends the process, whatever it does: nothing is lost with it. What still waits is answered."""
        self._closed = True
        if self._ending is not None:
            self._ending.cancel()
        async with self._starting:
            if self._running is not None:
                await self._running.aclose()
        if self._under_way:
            await asyncio.wait(self._under_way)


class _RunningProcess:
    """One process, and the orders that it has."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._last = 0
        self._answers: dict[int, asyncio.Future[CompactorAnswer | None]] = {}
        self._reading = asyncio.ensure_future(self._read())
        self.pid = process.pid
        self._ended = False

    @classmethod
    async def start(cls, command: Sequence[str]) -> _RunningProcess:
        """Starts it. Raises OSError."""
        return cls(await start_child(command))

    @property
    def ended(self) -> bool:
        """True where it answers no more. A closed pipe tells before anything else does."""
        return self._ended or self._process.stdin is None or self._process.stdin.is_closing()

    def kill(self) -> None:
        """Kills it. What it was asked is answered by None."""
        if self._process.returncode is None:
            self._process.kill()

    async def give(self, order: CompactorOrder) -> CompactorAnswer | None:
        """Returns the answer to an order; None where the process has ended before."""
        stdin = self._process.stdin
        if self.ended or stdin is None:
            return None
        self._last += 1
        number = self._last
        answer: asyncio.Future[CompactorAnswer | None] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            stdin.write(write_frame(number, order))
            return await answer
        finally:
            del self._answers[number]

    async def _read(self) -> None:
        """Takes in answers until the process ends."""
        stdout = self._process.stdout
        try:
            while stdout is not None:
                header = await stdout.readexactly(HEADER_BYTES)
                number, answer = read_compactor_answer(await stdout.readexactly(body_size(header)))
                if (waiting := self._answers.get(number)) is not None and not waiting.done():
                    waiting.set_result(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (ValueError, msgspec.DecodeError) as error:
            log.error("the process that compacts wrote what is no answer: %s", error)
        finally:
            self._ended = True
            self.kill()
            for waiting in self._answers.values():
                if not waiting.done():
                    waiting.set_result(None)
        await self._process.wait()

    async def aclose(self) -> None:
        """Kills it, and waits for its end."""
        self.kill()
        await asyncio.wait([self._reading])


def _count_bytes(order: DraftOrder | CompletionOrder) -> int:
    return sum(map(len, order.base.raws.values()))


def _require(answer: CompactorAnswer, kind: type[_Answer]) -> _Answer:
    """Returns an answer of that kind. Raises what the order has failed with."""
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, TooSmall):
        raise TargetTooSmall(answer.text, target_tokens=answer.target_tokens, parts=answer.parts)
    raise EngineFailure(
        answer.text if isinstance(answer, Failed) else f"an answer is a {type(answer).__name__}"
    )
