"""Threads end before anybody goes on with what they worked on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.engine.threads import in_thread


def test_what_the_function_gives_and_raises():
    assert asyncio.run(in_thread(divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(divmod, 7, 0))


@pytest.mark.parametrize("fails", [False, True])
def test_cancelled_it_waits_for_the_end_of_the_function(fails):
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
        task.cancel()
        await asyncio.sleep(0.02)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]

    asyncio.run(go())
