"""What the model is sent, kept inside its window: the view of a session, and when and how it is compacted.

The view grows in memory with the log, so that a turn costs what it adds. A compaction is made of the view as it stood
and committed over it, whatever was said meanwhile; so it can be prepared beside the work, from 85 % of the threshold
on, and only be put in place when the threshold is reached.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.agent.events import Compacted, Compacting, Noticed
from penstock.compaction.receipt import NOTHING_TO_DO
from penstock.engine.compressor import ContextCompressor
from penstock.errors import PenstockError, StoreConflict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.agent.events import AgentEvent
    from penstock.engine.compressed import Compressed
    from penstock.engine.contract import ContextEngine
    from penstock.engine.session import Session, Standing

__all__ = ["CompactionWish", "Context"]

_PREPARE_FROM = 0.85  # of the threshold


class _Prepared(msgspec.Struct, eq=False):
    """A compaction under way or ready, of the view as it stood."""

    standing: Standing
    work: asyncio.Task[Compressed]


class CompactionWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction is to be like: how small (messages only), about what, and which messages stay, by number."""

    target_tokens: int | None = None
    focus: str | None = None
    pins: frozenset[int] = frozenset()


class Context:
    """The context of one session. `outside_tokens` is what stands beside the messages: system prompt and tools."""

    def __init__(self, session: Session, engine: ContextEngine, tell: Callable[[AgentEvent], None]) -> None:
        self.session = session
        self.engine = engine
        self.outside_tokens = 0
        self.compactions = 0
        self.on_boundary: Callable[[], None] = lambda: (
            None
        )  # after a compaction: the prompt's beginning changed anyway
        self._tell = tell
        self._prepared: _Prepared | None = None
        self.view: list[Any] = []
        self.prefix_end: int | None = None  # how many messages of it the last compaction has settled
        self._counted = 0
        self._load()

    def append(self, messages: Sequence[Any], *, keep_results: bool = False) -> list[str]:
        """Log messages, and send them from now on; their handles. Results that are too large are kept in the store."""
        given = self.session.keep_results(messages) if keep_results else list(messages)
        handles = self.session.append(given)
        self.view += given
        self._counted += self.session.weigh(given)
        return handles

    @property
    def counted(self) -> int:
        """Tokens of a request with the view, as we count them."""
        return self._counted + self.outside_tokens

    def tokens(self) -> int:
        """What the provider would report for it: what it reported last, and what came since; before, as counted."""
        return self.session.expected(self.counted)

    async def fit(self) -> None:
        """Before a request: compact where the threshold is reached, and begin to prepare where it is near."""
        tokens = self.tokens()
        limit = self.engine.threshold_tokens
        if self.engine.should_compress(tokens):
            await self.compact(f"{tokens:,} tokens have reached the threshold of {limit:,}", tokens)
        elif tokens >= _PREPARE_FROM * limit and self._prepared is None:
            self._prepare()

    async def compact(
        self, reason: str, tokens: int, wish: CompactionWish | None = None
    ) -> Compressed | None:
        """Compact now; None where there was nothing to do. Raises TargetTooSmall for a target that cannot be."""
        wish = wish or CompactionWish()
        if not isinstance(self.engine, ContextCompressor):
            await self._compact_list(reason, tokens, wish.focus)
            return None
        started = time.monotonic()
        standing, result = await self._result(reason, wish)
        waited = time.monotonic() - started
        self.engine.took(result, tokens)
        if result.receipt.outcome == NOTHING_TO_DO:
            return None
        try:
            self.session.commit(standing, result)
        except StoreConflict:  # another process was quicker: its compaction is the view now
            self.session.refresh()
            self._load()
            return None
        self._load()
        self.compactions += 1
        self.on_boundary()
        self._tell(Compacted(result.receipt, reason, waited))
        return result

    def undo(self) -> bool:
        """Take the last compaction back; False where there is none."""
        self._drop_prepared()
        done = self.session.undo()
        if done:
            self.session.refresh()
            self.engine.on_session_start(self.session.id)
            self._load()
        return done

    async def aclose(self) -> None:
        """End what is being prepared."""
        prepared = self._prepared
        self._drop_prepared()
        if prepared is not None:
            await asyncio.gather(prepared.work, return_exceptions=True)

    async def _result(self, reason: str, wish: CompactionWish) -> tuple[Standing, Compressed]:
        """The compaction that was prepared, where it is what is wanted now; else one that is made now."""
        prepared = self._prepared
        self._prepared = None
        if prepared is not None and wish == CompactionWish() and not prepared.work.cancelled():
            if not prepared.work.done():
                self._tell(Compacting(reason))
            try:
                return prepared.standing, await prepared.work
            except PenstockError as error:
                self._tell(Noticed("warn", f"what was being prepared failed and is made anew: {error}"))
        elif prepared is not None:
            prepared.work.cancel()
        self._tell(Compacting(reason))
        standing = self.session.standing(with_pins=True)
        return standing, await self._made(standing, wish)

    async def _made(self, standing: Standing, wish: CompactionWish) -> Compressed:
        engine = self.engine
        assert isinstance(engine, ContextCompressor)  # noqa: S101 - the only callers have looked
        pinned = {position + 1 for position in self.session.store.pins(self.session.id)}
        engine.pins = pinned.union(wish.pins)
        view = standing.view
        return await asyncio.to_thread(
            lambda: engine.prepare(
                view.wires, wish.focus, target_tokens=wish.target_tokens, numbers=view.numbers
            )
        )

    async def _compact_list(self, reason: str, tokens: int, focus: str | None) -> None:
        """An engine that knows lists only: its view lives as long as this process, the log keeps everything."""
        self._tell(Compacting(reason))
        self.view = await asyncio.to_thread(self.engine.compress, self.view, tokens, focus)
        self._counted = self.session.weigh(self.view)
        self.compactions += 1

    def _prepare(self) -> None:
        if not isinstance(self.engine, ContextCompressor) or not self.engine.settings.compression.enabled:
            return
        standing = self.session.standing(with_pins=True)
        self._prepared = _Prepared(standing, asyncio.ensure_future(self._made(standing, CompactionWish())))

    def _drop_prepared(self) -> None:
        if self._prepared is not None:
            self._prepared.work.cancel()
            self._prepared = None

    def _load(self) -> None:
        standing = self.session.standing()
        self.view = list(standing.view.wires)
        self._counted = self.session.weigh(self.view)
        self.prefix_end = standing.prefix_end or None
