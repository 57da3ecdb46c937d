"""Work in a thread that has an end before anybody else goes on with what it worked on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["in_thread"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def in_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Runs the function beside the event loop, and returns its result.

    A thread cannot be cancelled. Where this is, it waits for the end of the function all the same: notebooks
    are not shared between threads, and the next compaction would read in the same one.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # its caller has left
        raise
