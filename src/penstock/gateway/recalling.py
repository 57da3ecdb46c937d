"""Recall for the models behind the gateway: puts the tools into requests, answers their calls, and keeps what the client did not see.

The tools stand at the end of the request's own, the same bytes each time, from the first request of a conversation on: tools
come first in a prompt, so that to add them later would cost the cache of all that follows. A request that brings no tools is a
side call of its client, or a plain talk; it gets them once something was compacted. `weaving` hides the calls from the client,
`inner_turns` sends them again with its later requests.

The relay runs the `Rounds` of an answer: it gives the first answer, a way to ask upstream and a way to show something to the
caller. The fitter gives the `Recaller`, which has a worker look things up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.conversation.wire import encode_wire
from penstock.gateway.event_streams import read_whole
from penstock.gateway.inner_turns import write_round, write_turn
from penstock.gateway.orders import KeepInner, LookedUp, LookUp
from penstock.gateway.splicing import RequestBody, read_body, write_body
from penstock.gateway.usage_tap import MOST_ANSWER_BYTES, BadPacking, Unpacker
from penstock.gateway.weaving import new_weaver
from penstock.loop.wire import tools_in
from penstock.providers.bodies import provider_error
from penstock.providers.classify import classify_error
from penstock.providers.exchange import Finish
from penstock.providers.failures import malformed_answer
from penstock.providers.sse import OversizedEvent
from penstock.recall.tools import TOOL_NAMES, tool_schemas

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.errors import ErrorClass
    from penstock.gateway.exchange import Recalling, WireDialect
    from penstock.gateway.tracking import Ticket, Tracker
    from penstock.gateway.upstream_client import ArrivingAnswer
    from penstock.gateway.weaving import WovenRound
    from penstock.gateway.workers import Workers
    from penstock.measure.usage import Usage
    from penstock.providers.exchange import Called

__all__ = ["MOST_ROUNDS", "READABLE", "Recaller", "Rounds", "UpstreamAnswer", "may_recall", "offer_tools"]

MOST_ROUNDS: Final = 6
"""The rounds in which a model may look something up before it has to answer."""

_MOST_STREAM_BYTES: Final = 4 * MOST_ANSWER_BYTES  # of a round; what it says is held until it ends
_ERROR_BYTES: Final = 1 << 20
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
        """Returns the result of each call. Does not raise: after a failure, the result says so."""
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


# The rounds of an answer.

READABLE: Final = frozenset({"", "identity"}) | Unpacker.ENCODINGS
"""The encodings of an answer in which calls can be found."""


class UpstreamAnswer(msgspec.Struct, frozen=True):
    """An answer to one round, and what had to be read of it to know whether it was refused for its size."""

    answer: Any
    held: bytes
    refusal: ErrorClass | None = None


class Rounds:
    """The rounds of one answer in which the model looks things up: read, answered inside, and asked again, until it is done.

    What the caller sees is woven while it comes; the end of it is left to the relay, behind the log.

    `ask` sends a body upstream and raises ProviderError where nothing comes; `show` gives the caller a piece of a stream.
    """

    def __init__(
        self,
        dialect: WireDialect,
        recalling: Recalling,
        ask: Callable[[bytes], Awaitable[UpstreamAnswer]],
        show: Callable[[bytes], Awaitable[None]],
        *,
        streamed: bool,
    ) -> None:
        self._recalling = recalling
        self._ask = ask
        self._show = show
        self._streamed = streamed
        self._weaver = new_weaver(dialect, TOOL_NAMES, streamed=streamed)
        self._rounds: list[tuple[WovenRound, Sequence[str]]] = []

    async def run(self, first: UpstreamAnswer, body: bytes) -> bytes:
        """Returns the end of the answer, or all of it where it is not streamed; what was hidden is kept by then.

        Raises ProviderError where a later round fails, and what the HTTP client raises where an answer breaks off.
        """
        got = first
        try:
            while await self._take(got):
                got.answer.close()
                got, body = await self._ask_next(body)
        finally:
            got.answer.close()
        if self._rounds:
            await self._recalling.keep(self._rounds)
        return self._weaver.close()

    async def _take(self, got: UpstreamAnswer) -> bool:
        """Takes in the answer to a round, and returns True where another one follows."""
        await self._weave(got)
        woven = self._weaver.end_round()
        if woven is None:
            return False
        wanted = woven.ours if woven.answer.finish is Finish.TOOL_CALLS else ()
        results = await self._recalling.look_up(wanted, rounds=len(self._rounds)) if wanted else []
        self._rounds.append((woven, results))
        return woven.goes_on and len(self._rounds) <= MOST_ROUNDS + 1

    async def _weave(self, got: UpstreamAnswer) -> None:
        answer: ArrivingAnswer = got.answer
        encoding = answer.headers.get("content-encoding", "").lower()
        unpacker = Unpacker(encoding) if encoding in Unpacker.ENCODINGS else None
        left = _MOST_STREAM_BYTES if self._streamed else MOST_ANSWER_BYTES
        chunk = got.held or await answer.content.readany()
        try:
            while chunk:
                left -= len(chunk)
                if left < 0:
                    raise malformed_answer("it does not end")
                for piece in (chunk,) if unpacker is None else unpacker.feed(chunk):
                    if seen := self._weaver.feed(piece):
                        await self._show(seen)
                chunk = await answer.content.readany()
        except (OversizedEvent, BadPacking) as error:
            raise malformed_answer(str(error)) from None

    async def _ask_next(self, body: bytes) -> tuple[UpstreamAnswer, bytes]:
        """Returns the answer to the next round, and its body. Where results do not fit any more, the model is told so."""
        woven, results = self._rounds[-1]
        following = self._recalling.write_next(body, woven, results)
        got = await self._ask(following)
        if got.refusal is not None:
            got.answer.close()
            results = self._recalling.refuse_room(woven.ours)
            self._rounds[-1] = (woven, results)
            following = self._recalling.write_next(body, woven, results)
            got = await self._ask(following)
        answer: ArrivingAnswer = got.answer
        if got.refusal is not None or answer.status >= 400:
            failure = classify_error(
                answer.status, got.held or await read_whole(answer, _ERROR_BYTES), answer.headers
            )
            answer.close()
            raise provider_error(failure, "the upstream, in a round in which the model looked something up,")
        return got, following

    @property
    def usages(self) -> list[Usage]:
        """The usage of each round, as far as it was reported."""
        return [woven.answer.usage for woven in self._weaver.rounds]

    @property
    def names_cache(self) -> bool:
        """True where the first report has a field for cached tokens."""
        return bool(self._weaver.rounds) and self._weaver.rounds[0].answer.names_cache
