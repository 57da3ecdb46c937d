"""Connects code that waits and code that does not: sync work beside an event loop, and a coroutine from sync code.

Nothing continues after its caller has left, except in `in_daemon_thread`.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

__all__ = ["gather_all", "in_daemon_thread", "in_thread", "run_sync"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def in_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Runs the function beside the event loop, and returns its result.

    A thread cannot be cancelled. If this call is cancelled, it still waits for the function to end: notebooks
    are not shared between threads, and the next compaction would read in the same one.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):  # it may be cancelled again meanwhile
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # its caller has left
        raise


async def gather_all(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Returns all results, in order. If one fails or this is cancelled, first stops the others and waits for them."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def in_daemon_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Runs a function that may never end beside the event loop, and returns its result.

    Its thread is abandoned when its caller leaves, even when the process ends.
    """
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[_T] = loop.create_future()

    def settle(done: Future[_T]) -> None:
        if not waiting.done():
            error = done.exception()
            waiting.set_result(done.result()) if error is None else waiting.set_exception(error)

    def work() -> None:
        done: Future[_T] = Future()
        try:
            done.set_result(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            done.set_exception(error)
        with suppress(RuntimeError):  # the loop is closed: the caller has left
            loop.call_soon_threadsafe(settle, done)

    threading.Thread(target=work, daemon=True).start()
    return await waiting


def run_sync(work: Coroutine[Any, Any, _T]) -> _T:
    """Returns the result of the coroutine, from sync code, even if an event loop already runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result()
