"""The rounds of one answer in which the model looks things up: read, answered inside, and asked again, until it is done.

The relay gives the first answer, a way to ask upstream and a way to show something to the caller. What the caller sees is
woven while it comes; the end of it is left to the relay, behind the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.gateway.recalling import MOST_ROUNDS
from penstock.gateway.usage_tap import new_unpacker
from penstock.gateway.weaving import new_weaver
from penstock.providers.bodies import provider_error
from penstock.providers.classify import classify_error
from penstock.providers.exchange import Finish
from penstock.recall.tools import TOOL_NAMES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import aiohttp

    from penstock.errors import ErrorClass
    from penstock.gateway.exchange import Recalling, WireDialect
    from penstock.gateway.weaving import WovenRound
    from penstock.measure.usage import Usage

__all__ = ["READABLE", "Rounds", "UpstreamAnswer"]

READABLE: Final = frozenset({"", "identity", "gzip", "deflate"})
"""The encodings of an answer in which calls can be found."""


class UpstreamAnswer(msgspec.Struct, frozen=True):
    """An answer to one round, and what had to be read of it to know whether it was refused for its size."""

    answer: Any
    held: bytes
    refusal: ErrorClass | None = None


class Rounds:
    """One answer to a caller.

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
        answer: aiohttp.ClientResponse = got.answer
        unpack = new_unpacker(answer.headers.get("content-encoding", "").lower())
        chunk = got.held or await answer.content.readany()
        while chunk:
            seen = self._weaver.feed(chunk if unpack is None else unpack.decompress(chunk))
            if seen:
                await self._show(seen)
            chunk = await answer.content.readany()

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
        answer: aiohttp.ClientResponse = got.answer
        if got.refusal is not None or answer.status >= 400:
            failure = classify_error(answer.status, got.held or await answer.content.read(), answer.headers)
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
