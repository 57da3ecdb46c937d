"""Recall for the models behind the gateway: puts the tools into requests, answers their calls, and keeps what the client did not see.

The tools stand at the end of the request's own, the same bytes each time, from the first request of a conversation on: tools
come first in a prompt, so that to add them later would cost the cache of all that follows. A request that brings no tools is a
side call of its client, or a plain talk; it gets them once something was compacted. `weaving` hides the calls from the client,
`inner_turns` sends them again with its later requests.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.conversation.wire import encode_wire
from penstock.gateway.inner_turns import write_round, write_turn
from penstock.gateway.orders import KeepInner, LookedUp, LookUp
from penstock.gateway.splicing import RequestBody, read_body, write_body
from penstock.loop.wire import tools_in
from penstock.recall.tools import TOOL_NAMES, tool_schemas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.gateway.exchange import WireDialect
    from penstock.gateway.tracking import Ticket, Tracker
    from penstock.gateway.weaving import WovenRound
    from penstock.gateway.workers import Workers
    from penstock.providers.exchange import Called

__all__ = ["MOST_ROUNDS", "Recaller", "may_recall", "offer_tools"]

MOST_ROUNDS: Final = 6
"""How often a model may look something up before it has to answer."""

_NO_MORE: Final = encode_wire(
    {"error": "nothing more can be looked up in this answer; go on with what you have"}
).decode()
_NOT_NOW: Final = encode_wire(
    {"error": "the history cannot be read now; go on without it, or try again later"}
).decode()
_NO_ROOM: Final = encode_wire({"error": "there is no room left for this; go on with what you have"}).decode()


class Recaller:
    """Answers the calls of recall tools in the answer to one request."""

    def __init__(self, tracker: Tracker, workers: Workers, ticket: Ticket) -> None:
        self._tracker = tracker
        self._workers = workers
        self._ticket = ticket
        self._dialect = ticket.request.body.dialect

    async def look_up(self, calls: Sequence[Called], *, rounds: int) -> list[str]:
        """Returns what each call gives. Raises nothing: what fails is an answer that says so."""
        if rounds >= MOST_ROUNDS:
            return [_NO_MORE for _ in calls]
        known = self._ticket.known
        if known.writing is not None and not known.writing.done():
            await asyncio.wait([known.writing])
        order = LookUp(conversation=known.id, calls=tuple((call.name, call.arguments) for call in calls))
        answer = await self._workers.give(order)
        return list(answer.texts) if isinstance(answer, LookedUp) else [_NOT_NOW for _ in calls]

    def write_next(self, body: bytes, woven: WovenRound, results: Sequence[str]) -> bytes:
        """Returns the body of the next round: that of the last one, with its answer and our results behind it."""
        last = read_body(body, self._dialect) or self._ticket.request.body
        more = b",".join(write_round(self._dialect, woven, results))
        return write_body(last.put_list(last.listed.rstrip()[:-1] + b"," + more + b"]"))

    def refuse_room(self, calls: Sequence[Called]) -> list[str]:
        """Returns results that take next to no room, for a round that was refused for its size."""
        return [_NO_ROOM for _ in calls]

    async def keep(self, rounds: Sequence[tuple[WovenRound, Sequence[str]]]) -> None:
        """Keeps what the client did not see of an answer, to send it again with its later requests."""
        known = self._ticket.known
        turn = write_turn(self._dialect, len(self._ticket.request.seen), rounds)
        if turn is None or len(self._ticket.request.seen) < known.length:
            return  # nothing was hidden, or the client has gone another way meanwhile
        known.keep_turn(turn)
        self._tracker.keep(known)
        await self._workers.give(KeepInner(conversation=known.id, turns=tuple(known.inner.values())))


_NAMES: Final = tuple(f'"{name}"'.encode() for name in sorted(TOOL_NAMES))


def _write_tools(dialect: WireDialect) -> bytes:
    tools = tools_in(dialect, tool_schemas())
    if dialect == "responses":  # without a word, this API takes every argument for required
        tools = [{**tool, "strict": False} for tool in tools]
    return b",".join(map(encode_wire, tools))


_TOOLS: Final[dict[WireDialect, bytes]] = {
    "chat": _write_tools("chat"),
    "responses": _write_tools("responses"),
    "anthropic": _write_tools("anthropic"),
}


def may_recall(body: RequestBody) -> bool:
    """Returns False for a request that already has a tool of such a name, or wants several answers at once."""
    several = body.fields.get("n", b"1") not in {b"1", b"null"}
    return not several and not any(name in body.tools for name in _NAMES)


def offer_tools(body: RequestBody) -> RequestBody:
    """Returns the body with our tools behind its own."""
    own = body.tools.strip()
    inside = own[1:-1].strip() if own.startswith(b"[") else b""
    ours = _TOOLS[body.dialect]
    tools = b"[" + (inside + b"," if inside else b"") + ours + b"]"
    return RequestBody(body.dialect, {**body.fields, "tools": tools})
