"""Threads end before anybody goes on with what they worked on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.engine.threads import gather_all, in_thread


def test_what_the_function_gives_and_raises():
    assert asyncio.run(in_thread(divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(divmod, 7, 0))


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("fails", [False, True])
def test_cancelled_it_waits_for_the_end_of_the_function(fails, times):
    begun, ended = threading.Event(), []
    may_end = threading.Event()

    def work():
        begun.set()
        may_end.wait(10)
        ended.append(True)
        if fails:
            raise ValueError("nobody hears of this")

    async def go():
        task = asyncio.ensure_future(in_thread(work))
        assert await asyncio.to_thread(begun.wait, 10)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.02)
            assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]

    asyncio.run(go())


@pytest.mark.parametrize("ends", ["by a failure", "by a cancellation"])
def test_what_is_gathered_has_ended_before_its_caller_goes_on(ends):
    begun, ended = threading.Semaphore(0), []
    may_end = threading.Event()

    def work():
        begun.release()
        may_end.wait(10)
        ended.append(True)

    async def fail():
        await asyncio.to_thread(begun.acquire)
        await asyncio.to_thread(begun.acquire)
        if ends == "by a failure":
            raise ValueError("the others are to be stopped")
        task.cancel()

    async def go():
        nonlocal task
        task = asyncio.ensure_future(gather_all([in_thread(work), fail(), in_thread(work)]))
        asyncio.get_running_loop().call_later(0.1, may_end.set)
        with pytest.raises((ValueError, asyncio.CancelledError)):
            await task
        assert ended == [True, True]

    task = None
    asyncio.run(go())
