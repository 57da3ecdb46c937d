"""Replies as each provider's API writes them: whole bodies, events of a stream, errors. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.testing.provider_wire import anthropic, chat, responses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.testing.provider_wire.served import Frame, Served
    from penstock.testing.scripted import Failure

__all__ = ["Wire", "stream_frames", "wire_named"]


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """The functions that write an answer as one API does.

    A stream is `content`, then `closing` or, if it fails, `failing`. `wires` is what the answer adds to
    the conversation.
    """

    body: Callable[[Served], dict[str, Any]]
    wires: Callable[[Served], tuple[Any, ...]]
    content: Callable[[Served], Iterator[Frame]]
    closing: Callable[[Served], Iterator[Frame]]
    failing: Callable[[Served, Failure], Iterator[Frame]]
    finish: Callable[[Iterator[Frame]], Iterator[Frame]] = iter


_WIRES: Mapping[str, Wire] = {
    "chat": Wire(
        body=chat.body, wires=chat.wires, content=chat.content, closing=chat.closing, failing=chat.failing
    ),
    "responses": Wire(
        body=responses.body,
        wires=responses.wires,
        content=responses.content,
        closing=responses.closing,
        failing=responses.failing,
        finish=responses.number,
    ),
    "anthropic": Wire(
        body=anthropic.body,
        wires=anthropic.wires,
        content=anthropic.content,
        closing=anthropic.closing,
        failing=anthropic.failing,
    ),
}


def wire_named(dialect: str) -> Wire:
    """Returns the API of that dialect."""
    return _WIRES[dialect]


def stream_frames(served: Served, dialect: str) -> list[Frame]:
    """Returns every event of the stream, up to the cut if there is one."""
    wire = _WIRES[dialect]
    reply = served.reply
    frames = list(wire.content(served))
    if reply.stream_failure is not None:
        kept = frames if reply.cut_after_chunks is None else frames[: reply.cut_after_chunks]
        return list(wire.finish(iter([*kept, *wire.failing(served, reply.stream_failure)])))
    frames += wire.closing(served)
    return list(wire.finish(iter(frames[: reply.cut_after_chunks])))
