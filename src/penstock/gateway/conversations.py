"""The open conversations of one worker process, and the orders on them.

    conversations = Conversations(settings)
    answer = await conversations.carry_out(order)

Each conversation is a session in the store with its live context. The messages of a request decide which conversation it
belongs to, by their chained digests and only among the conversations of its owner. The log keeps the bytes that came; the
messages that are sent have no cache marks of older requests. Reading, counting and writing run in threads, and orders on
one conversation run one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from penstock._log import log
from penstock.conversation.dialects import decode_each, dialect_named
from penstock.conversation.identity import chain, content_digest, extends
from penstock.conversation.message import Role
from penstock.conversation.wire import encode_wire
from penstock.errors import (
    InputError,
    PenstockError,
    ProviderError,
    StoreConflict,
    StoreError,
    UnknownSession,
)
from penstock.gateway.attending import Attended, CompactionRecords
from penstock.gateway.compactor import carry_out_handoff
from penstock.gateway.handoffs import ask_for_handoff, hand_over, unseal
from penstock.gateway.inner_turns import keep_turns, read_turns
from penstock.gateway.matching import is_shortened
from penstock.gateway.orders import (
    Append,
    Appended,
    Failed,
    Fit,
    Fitted,
    Forget,
    KeepInner,
    LookedUp,
    LookUp,
    NotOpen,
    Open,
    OpenedConversation,
    Outside,
    Recover,
    TakeUsage,
    Unseal,
    ViewPrefix,
    ViewStanding,
    Write,
)
from penstock.gateway.running import LARGE_BYTES, give_memory_back
from penstock.gateway.sealing import read_keys
from penstock.gateway.write_behind import WriteBehindStore
from penstock.providers.cache_marks import strip_marks
from penstock.recall.tools import limit_answer
from penstock.sessions.appending import PreparedMessages, describe_messages, encode_given, read_given
from penstock.sessions.branches import branch_off
from penstock.sessions.handovers import HandoverOrigin, find_origin, keep_origin
from penstock.sessions.metering import price_request
from penstock.sessions.session import Session
from penstock.sessions.workings import new_session_id
from penstock.stores.store import open_store
from penstock.stores.values import BRANCH, NewSession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.conversation.dialects import Dialect
    from penstock.conversation.message import Message
    from penstock.gateway.compacting import Compactor
    from penstock.gateway.exchange import StoreMode
    from penstock.gateway.orders import Answer, Order
    from penstock.gateway.sealing import SealKeys
    from penstock.measure.tokens import Tokenizer
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow

__all__ = ["Conversations", "ReadMessages", "read_messages"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_THREADS = 16
_MOST_OPEN = 2_000
# That a conversation stays which was opened for a request that waits for its compaction.
_AWAITED_SECONDS = 10.0
_GIVEN_BACK_SECONDS = 1.0  # after a large conversation was let go
_READ_AT_ONCE = 32  # messages of a log, to compare with a request


class ReadMessages(NamedTuple):
    """Messages of a request, each read once: their bytes, their objects, decoded messages, and digests of their content."""

    raws: list[bytes]
    wires: list[Any]
    messages: list[Message]
    digests: list[bytes]

    def chain_ids(self) -> list[str]:
        """Returns the chained ids that these messages have as the first ones of a log."""
        found: list[str] = []
        for digest in self.digests:
            found.append(chain(found[-1] if found else "", digest))
        return found

    def take(self, length: int) -> ReadMessages:
        """Returns the first `length` messages."""
        return ReadMessages(
            self.raws[:length], self.wires[:length], self.messages[:length], self.digests[:length]
        )

    def drop(self, length: int) -> ReadMessages:
        """Returns all but the first `length` messages."""
        return ReadMessages(
            self.raws[length:], self.wires[length:], self.messages[length:], self.digests[length:]
        )

    def replace(self, place: int, other: ReadMessages) -> ReadMessages:
        """Returns the messages with the one at `place` replaced by the only message of `other`."""
        before, behind = self.take(place), self.drop(place + 1)
        return ReadMessages(
            [*before.raws, *other.raws, *behind.raws],
            [*before.wires, *other.wires, *behind.wires],
            [*before.messages, *other.messages, *behind.messages],
            [*before.digests, *other.digests, *behind.digests],
        )

    def prepare(self, dialect: Dialect, tokenizer: Tokenizer) -> PreparedMessages:
        """Returns the messages prepared for a log."""
        new = describe_messages(self.raws, self.messages, self.digests, dialect, tokenizer)
        return PreparedMessages(self.raws, self.wires, new)


class _Place(NamedTuple):
    """The conversation of some messages, and the messages as its log has them."""

    conversation: str
    read: ReadMessages


def read_messages(given: Sequence[bytes], dialect: Dialect) -> ReadMessages:
    """Reads the messages of a request. Raises InputError for anything but a message."""
    raws, wires = encode_given(given, read_given(given))
    messages = decode_each(dialect, wires)
    return ReadMessages(raws, wires, messages, [content_digest(message) for message in messages])


class Conversations:
    """Carries out orders: on each conversation one at a time, in the order of their arrival.

    Holds about `most_bytes` at most. The conversation that was not used for the longest time goes first; the next order
    on it opens it again from the store.
    """

    def __init__(
        self, settings: Settings, *, most_bytes: int | None = None, compactor: Compactor | None = None
    ) -> None:
        """Makes an empty set. Without a `compactor`, compactions run in threads of this process."""
        self._settings = settings
        self._compactor = compactor
        megabytes = settings.gateway.memory_mb / settings.gateway.workers
        self._most_bytes = int(megabytes * 1_000_000) if most_bytes is None else most_bytes
        self._open: OrderedDict[str, Attended] = OrderedDict()
        self._opening: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._sizes: dict[str, int] = {}
        self._held_bytes = 0
        self._threads = ThreadPoolExecutor(_THREADS, "penstock-order")
        self._stores: dict[StoreMode, WriteBehindStore] = {}
        self._keys: SealKeys | None = None
        self._giving_back: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def warm_up(self) -> None:
        """Loads everything that the first order would wait for: tables, rules, the engine, and the store."""
        said = "line 17 of src/main.py: timeout_seconds = 30\n" * 40
        talk = [
            {"role": ("user", "assistant")[turn % 2], "content": f"step {turn}: {said}"} for turn in range(12)
        ]
        order = Open(
            owner="",
            dialect="chat",
            endpoint="",
            store="off",
            messages=tuple(map(encode_wire, talk)),
            outside=Outside(model="claude-sonnet-4-5"),
        )
        await self._in_thread(self._store, "full")
        opened = await self.carry_out(order)
        if isinstance(opened, OpenedConversation):
            name = opened.conversation
            if self._compactor is None:
                await self.carry_out(
                    Fit(conversation=name, length=len(talk), messages=(), outside=None, target_tokens=3_000)
                )
            await self.carry_out(Forget(conversation=name))

    async def carry_out(self, order: Order) -> Answer:
        """Returns the answer to an order. Never raises an error that a conversation or a store can cause."""
        try:
            if isinstance(order, Append):
                (answer,) = await self.append_together([order])
                if isinstance(answer, Exception):
                    raise answer
                return answer
            if isinstance(order, Open):
                return await self._open_conversation(order)
            if isinstance(order, Unseal):
                return await self._in_thread(unseal, self._store("full"), self._seal_keys(), order)
            return await self._carry_out_on(order)
        except PenstockError as error:
            return _explain(error)

    async def _carry_out_on(
        self, order: Fit | TakeUsage | Recover | Forget | Write | LookUp | KeepInner
    ) -> Answer:
        """Carries out an order on an open conversation."""
        found = self._open.get(order.conversation)
        if found is None:
            return await self._answer_released(order)
        async with found.line.join():
            if self._open.get(order.conversation) is not found:
                return await self._answer_released(order)
            self._open.move_to_end(order.conversation)
            try:
                match order:
                    case Fit():
                        return await self._fit(found, order)
                    case TakeUsage():
                        return await self._take_usage(found, order)
                    case Recover():
                        return await self._recover(found, order)
                    case Write():
                        return await self._write(found, order)
                    case LookUp() | KeepInner():
                        return await self._in_thread(self._serve, found, order)
                    case Forget():
                        await self._drop(order.conversation)
            except (StoreConflict, UnknownSession):  # another process has written to or deleted it
                await self._drop(order.conversation)
            finally:
                await self._make_room(order.conversation)
        return NotOpen()

    async def append_together(
        self, orders: Sequence[Append], tell: Callable[[Mapping[int, Appended]], None] | None = None
    ) -> list[Answer | Exception]:
        """Carries out orders to log, each on another conversation, in one thread and one transaction; returns the answers.

        With many busy conversations, an order by itself would mostly cost waking a thread and waiting for the disk. An
        exception among the answers is a fault of ours that concerns only that order. `tell` hears which of the orders are
        durable as soon as they are, in that thread: answers to requests wait for it.
        """
        answers: list[Answer | Exception] = [NotOpen()] * len(orders)
        with ExitStack() as places:
            joined, released = [], []
            for at, order in enumerate(orders):
                found = self._open.get(order.conversation)
                if found is None:
                    released.append(order)
                else:
                    place = found.line.join()
                    places.callback(place.leave)
                    joined.append((at, found, order, place))
            # No later order may overtake any of these, however long one of them waits.
            held: list[tuple[int, Attended, Append]] = []
            for at, found, order, place in joined:
                await place.wait()
                if self._open.get(order.conversation) is found:
                    self._open.move_to_end(order.conversation)
                    held.append((at, found, order))
                else:
                    released.append(order)

            def log_all() -> list[Appended | Exception]:
                logged = _log_together([(found, order) for _, found, order in held])
                if tell is not None:
                    done = zip(held, logged, strict=True)
                    tell({at: one for (at, _, _), one in done if isinstance(one, Appended)})
                return logged

            logged = await self._in_thread(log_all) if held else []
            for (at, found, order), one in zip(held, logged, strict=True):
                answers[at] = await self._answer_append(found, order, one)
        for order in released:
            await self._answer_released(order)
        return answers

    async def _answer_released(self, order: Order) -> NotOpen:
        """Answers an order on a conversation that is no longer open. Books its usage, since the provider has billed it."""
        used = order.used if isinstance(order, Append) else order
        if isinstance(used, TakeUsage):
            await self._in_thread(self._book, used)
        return NotOpen()

    def _book(self, used: TakeUsage) -> None:
        store, now = self._store("full"), time.time()
        try:
            row = store.tip(used.conversation)
            store.book_all([price_request(row.id, usage, row.model, at=now) for usage in used.usages])
        except UnknownSession:  # deleted, or never stored
            return
        except StoreError as error:
            log.warning("usage of a conversation cannot be booked: %s", error)

    async def _answer_append(
        self, found: Attended, order: Append, logged: Appended | Exception
    ) -> Answer | Exception:
        if isinstance(logged, StoreConflict | UnknownSession):  # as above
            await self._drop(order.conversation)
        elif isinstance(logged, Appended):
            self._expect_compaction(found, logged.standing)
            if order.used is not None:
                found.context.prepare()
        await self._make_room(order.conversation)
        if isinstance(logged, StoreConflict | UnknownSession):
            return NotOpen()
        return _explain(logged) if isinstance(logged, PenstockError) else logged

    # Opening.

    async def _open_conversation(self, order: Open) -> Answer:
        dialect = dialect_named(order.dialect)
        read = await self._in_thread(read_messages, order.messages, dialect)
        ids = await self._in_thread(read.chain_ids)
        if not order.logs:
            return await self._look(order, read, ids)
        # Two simultaneous requests that begin one conversation must not begin two.
        key = order.owner, ids[_find_beginning(read.messages)] if ids else ""
        lock = self._opening.get(key) or self._opening.setdefault(key, asyncio.Lock())
        async with lock:
            try:
                return await self._open_logged(order, read, ids)
            except StoreConflict:  # another process was quicker
                return await self._open_logged(order, read, ids)

    async def _open_logged(self, order: Open, read: ReadMessages, ids: Sequence[str]) -> Answer:
        place = await self._in_thread(self._find_place, order, read, ids)
        came, read, conversation = read, place.read, place.conversation
        ids = ids if read is came else read.chain_ids()
        found = self._open.get(conversation)
        if found is None:
            found = await self._in_thread(self._attend, order, conversation, read)
            self._open[found.id] = found
            if order.store == "digests":
                found.records = CompactionRecords(
                    self._store("full"), order.owner, ids[_find_beginning(read.messages)] if ids else ""
                )
                if not found.digests:
                    found.use(order.outside)
                    await found.compact_again(read, ids)
        self._open.move_to_end(found.id)
        async with found.line.join():
            first_sent = await self._in_thread(_list_first_sent, found, came)
            try:
                await self._in_thread(self._log, found, order, read)
            except (StoreConflict, UnknownSession):
                await self._drop(found.id)
                raise
        standing = found.report()
        if standing.tokens >= standing.ask_from_tokens:
            found.awaited_until = time.monotonic() + _AWAITED_SECONDS
        await self._make_room(found.id)
        self._expect_compaction(found, standing)
        return OpenedConversation(
            conversation=found.id,
            digests=b"".join(read.digests),
            prefix=found.prefix,
            standing=standing,
            inner=await self._in_thread(read_turns, found.session.store, found.id),
            first_sent=first_sent,
        )

    def _expect_compaction(self, found: Attended, standing: ViewStanding) -> None:
        """Starts the process that compacts, once the conversation fills half of what a request may take."""
        compactor = self._compactor
        if compactor is None or compactor.pid is not None or 2 * standing.tokens < standing.ask_from_tokens:
            return
        if found.context.engine.hosting.describe is not None:
            compactor.start_soon()

    def _find_place(self, order: Open, read: ReadMessages, ids: Sequence[str]) -> _Place:
        """Returns the conversation that these messages belong to; a new one if there is none."""
        store = self._store(order.store).for_owner(order.owner)
        found = store.find_known_prefix(ids)
        row = None if found is None else store.session(found[0])
        if found is not None and row is not None and row.dialect == order.dialect:
            length = found[1]
            logged = _find_logged(store, row, read, length)
            if logged is not None:
                return _Place(row.conversation, logged)
            if any(message.role is Role.ASSISTANT for message in read.messages[:length]):
                return _Place(self._branch(store, row.id, read, ids[:length]), read)
        session = Session.create(
            store, model=order.outside.model, dialect=order.dialect, settings=self._settings
        )
        name = session.row.conversation
        origin = find_origin(store, read.raws) if order.store == "full" else None
        if origin is None and order.continues:
            with suppress(UnknownSession):  # another owner's, or deleted
                origin = HandoverOrigin(store.session(order.continues).conversation, 0, 0)
        if origin is not None and origin.conversation != name:
            keep_origin(store, name, origin)
        return _Place(name, read)

    def _branch(self, store: Store, session_id: str, read: ReadMessages, ids: Sequence[str]) -> str:
        """Returns a branch of another conversation after these messages: one that has not grown yet, or a new one."""
        length = len(ids)
        row = store.tip(session_id)
        for child in store.list_children(session_id):
            tip = store.log_tip(child.id)
            if (tip.length, tip.id) == (length, ids[-1]) and child.dialect == row.dialect:
                return child.conversation
        new = NewSession(
            id=new_session_id(), at=time.time(), dialect=row.dialect, model=row.model, kind=BRANCH
        )
        same = _says_the_same(store, row, read, length)
        branch = branch_off(store, row, length, new, new_session_id(), shortens=same).conversation
        if turns := [turn for turn in read_turns(store, row.conversation) if turn.at < length]:
            keep_turns(store, branch, turns)
        return branch

    def _attend(self, order: Open, conversation: str, read: ReadMessages) -> Attended:
        """Opens the conversation with its live context, as it is in the store."""
        store = self._store(order.store).for_owner(order.owner)
        session = Session.resume(store, conversation, self._settings)
        session.endpoint = order.endpoint
        found = Attended(session, order, digests=read.digests[: len(session)], raws=read.raws[: len(session)])
        found.context.drafter = self._compactor
        return found

    @staticmethod
    def _log(found: Attended, order: Open, read: ReadMessages) -> None:
        """Logs the messages that the conversation does not have yet."""
        found.require_standing(read)
        found.move(order.endpoint)
        found.use(order.outside)
        found.log(read.drop(len(found.digests)))
        found.expect_request()

    async def _look(self, order: Open, read: ReadMessages, ids: Sequence[str]) -> Answer:
        """Returns the view for a request that is only counted, without its size; writes nothing."""
        place = await self._in_thread(self._find_whole, order, read, ids)
        prefix = ViewPrefix()
        if place is not None:
            held = self._open.get(place.conversation)
            if held is None:
                held = await self._in_thread(self._attend, order, place.conversation, place.read)
            prefix, read = held.prefix, place.read
        digests = b"".join(read.digests)
        return OpenedConversation(conversation="", digests=digests, prefix=prefix, standing=ViewStanding())

    def _find_whole(self, order: Open, read: ReadMessages, ids: Sequence[str]) -> _Place | None:
        """Returns the conversation whose whole log is the beginning of these messages."""
        store = self._store(order.store).for_owner(order.owner)
        found = store.find_known_prefix(ids)
        row = None if found is None else store.session(found[0])
        if found is None or row is None or row.dialect != order.dialect:
            return None
        logged = _find_logged(store, row, read, found[1])
        return None if logged is None else _Place(row.conversation, logged)

    # Orders on an open conversation, whose turn has come.

    async def _fit(self, found: Attended, order: Fit) -> Answer:
        found.awaited_until = 0.0
        digests = await self._in_thread(self._log_behind, found, order)
        before = found.context.compactions
        notice = await found.fit(order)
        found.require_alone()
        return Fitted(
            digests=digests,
            prefix=found.prefix,
            standing=found.report(),
            compacted=found.context.compactions > before,
            notice=notice,
        )

    @staticmethod
    def _log_behind(found: Attended, order: Fit) -> bytes:
        """Logs messages after the first `length`, unless they are there. Raises StoreConflict if the log has others."""
        read, new = _read_behind(found, order)
        found.use(order.outside)
        found.log(new)
        return b"".join(read.digests)

    async def _take_usage(self, found: Attended, order: TakeUsage) -> Answer:
        await self._in_thread(found.take_usage, order)
        found.context.prepare()
        return Appended(digests=b"", standing=found.report())

    async def _recover(self, found: Attended, order: Recover) -> Answer:
        await self._in_thread(found.use, order.outside)
        before = found.context.compactions
        try:
            cap = await found.recover(order)
            found.require_alone()
        except ProviderError as error:
            return Failed(str(error))
        return Fitted(
            digests=b"",
            prefix=found.prefix,
            standing=found.report(),
            compacted=found.context.compactions > before,
            max_output_tokens=cap,
        )

    async def _write(self, found: Attended, order: Write) -> Answer:
        asked = await self._in_thread(ask_for_handoff, found, order)
        if self._compactor is None:
            written = await self._in_thread(carry_out_handoff, asked.order)
        else:
            written = await self._compactor.write(asked.order)
        return await self._in_thread(self._hand_over, found, order, asked.length, written)

    def _hand_over(self, found: Attended, order: Write, length: int, written: str) -> Answer:
        return hand_over(found, order, length, written, self._seal_keys())

    @staticmethod
    def _serve(found: Attended, order: LookUp | KeepInner) -> Answer:
        """Carries out an order that does not change the view."""
        if isinstance(order, LookUp):
            return LookedUp(_look_up(found, order))
        keep_turns(found.session.store, found.id, order.turns)
        return LookedUp(())

    def _seal_keys(self) -> SealKeys:
        if self._keys is None:
            self._keys = read_keys(self._store("full"), self._settings.gateway.seal_key_file)
        return self._keys

    # Holding and letting go.

    async def _make_room(self, conversation: str) -> None:
        """Releases the conversations that were not used for the longest time, now that this one may have grown."""
        found = self._open.get(conversation)
        if found is not None:
            self._held_bytes += found.size - self._sizes.get(conversation, 0)
            self._sizes[conversation] = found.size
        if self._held_bytes <= self._most_bytes and len(self._open) <= _MOST_OPEN:
            return
        now = time.monotonic()
        for name, held in list(self._open.items())[:-1]:  # never the present one
            if self._held_bytes <= self._most_bytes and len(self._open) <= _MOST_OPEN:
                return
            if not held.line.busy and held.awaited_until < now:
                await self._drop(name)

    async def _drop(self, conversation: str) -> None:
        found = self._open.pop(conversation, None)
        if found is None:
            return
        size = self._sizes.pop(conversation, 0)
        self._held_bytes -= size
        await found.aclose()
        if found.mode != "full":
            await self._in_thread(found.session.store.delete, found.session.id)
        if size > LARGE_BYTES and self._giving_back is None:  # once nobody holds it any more
            loop = asyncio.get_running_loop()
            self._giving_back = loop.call_later(_GIVEN_BACK_SECONDS, self._give_memory_back)

    def _give_memory_back(self) -> None:
        self._giving_back = None
        self._threads.submit(give_memory_back)

    def _store(self, mode: StoreMode) -> WriteBehindStore:
        """Returns the store of that mode. Only `full` keeps anything on disk."""
        kept: StoreMode = "full" if mode == "full" else "off"
        if kept not in self._stores:
            url = self._settings.store.url if kept == "full" else "memory:"
            self._stores[kept] = WriteBehindStore(open_store(url).database)
        return self._stores[kept]

    async def _in_thread(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))

    async def flush(self) -> None:
        """Writes everything that waits to be written. Call it often."""
        for store in self._stores.values():
            await self._in_thread(store.flush)

    async def aclose(self) -> None:
        """Stops preparations, writes everything that waits, and closes the stores."""
        if self._giving_back is not None:
            self._giving_back.cancel()
        for found in self._open.values():
            await found.aclose()
        self._open.clear()
        if self._compactor is not None:
            await self._compactor.aclose()
        self._threads.shutdown()
        for store in self._stores.values():
            store.close()


def _read_behind(found: Attended, order: Append | Fit) -> tuple[ReadMessages, ReadMessages]:
    """Returns the messages after the first `length`, and those of them that are not logged yet.

    Raises StoreConflict if the log has others in their place.
    """
    read = read_messages(order.messages, found.dialect)
    there = found.digests[order.length :]
    if order.length > len(found.digests) or read.digests[: len(there)] != there:
        raise StoreConflict("the log has other messages there")
    return read, read.drop(len(there))


class _Logging(NamedTuple):
    """Messages that are about to be logged: all messages of an order, and the new ones, read and prepared."""

    found: Attended
    read: ReadMessages
    new: ReadMessages
    prepared: PreparedMessages


def _log_together(orders: Sequence[tuple[Attended, Append]]) -> list[Appended | Exception]:
    """Logs the new messages of several conversations in one transaction, and books that their requests go out unchanged.

    Returns for each its new state, or the reason why it failed.
    """
    begun = [_try(_begin_log, found, order) for found, order in orders]
    for one in begun:
        if isinstance(one, _Logging):
            one.found.announce(one.prepared)
    return [one if isinstance(one, Exception) else _try(_finish_log, one) for one in begun]


def _begin_log(found: Attended, order: Append) -> _Logging:
    if order.used is not None:
        found.take_usage(order.used)
    read, new = _read_behind(found, order)
    found.use(order.outside)
    return _Logging(found, read, new, found.prepare(new))


def _finish_log(logging: _Logging) -> Appended:
    found = logging.found
    found.log_prepared(logging.new, logging.prepared)
    found.pass_on()
    return Appended(digests=b"".join(logging.read.digests), standing=found.report())


def _try(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | Exception:
    try:
        return function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - it is one conversation's, and is told where that is answered
        return error


def _explain(error: PenstockError) -> Failed:
    """Returns the answer to an order that failed."""
    if isinstance(error, InputError):
        return Failed(f"{error.position or 'a message'} cannot be read")  # its text may quote it
    return Failed(str(error))


def _look_up(found: Attended, order: LookUp) -> tuple[str, ...]:
    """Returns the results of calls of recall tools, each within a share of the window."""
    tokens = limit_answer(found.context.engine.context_length)
    return tuple(
        found.session.handle_tool_call(name, arguments, tokens=tokens) for name, arguments in order.calls
    )


def _find_logged(store: Store, row: SessionRow, read: ReadMessages, length: int) -> ReadMessages | None:
    """Returns the messages as the log has them, if they begin with the whole log; None if they do not.

    The first `length` are the same. After those, the log may have a longer text of a message than the client sends now,
    because the client has shortened it since.
    """
    dialect = dialect_named(row.dialect)
    while entries := store.read_from(row.id, length, _READ_AT_ONCE):
        for entry in entries:
            if length >= len(read.raws):
                return None
            logged = read_messages([entry.raw], dialect)
            if logged.digests[0] != read.digests[length]:
                answered = length + 1 < len(read.raws)
                if not answered or not is_shortened(logged.messages[0], *read.messages[length : length + 2]):
                    return None
                read = read.replace(length, logged)
            length += 1
    return read


def _list_first_sent(found: Attended, came: ReadMessages) -> dict[int, bytes]:
    """Returns the messages after the compacted ones that the log has in other bytes than this request."""
    covers, dialect = found.prefix.covers, found.dialect.name
    entries = found.session.store.read_from(found.session.id, covers, max(0, len(found.digests) - covers))
    logged = ((entry.position, strip_marks(entry.raw, dialect)) for entry in entries)
    return {
        place: first
        for place, first in logged
        if place < len(came.raws) and first != strip_marks(came.raws[place], dialect)
    }


def _says_the_same(store: Store, row: SessionRow, read: ReadMessages, length: int) -> bool:
    """Returns True if the message at which a request departs from a log is the logged one, shortened or extended."""
    entries = store.read_from(row.id, length, 1)
    if not entries or length >= len(read.messages):
        return False
    (logged,) = read_messages([entries[0].raw], dialect_named(row.dialect)).messages
    return extends(read.messages[length], logged) or extends(logged, read.messages[length])


def _find_beginning(messages: Sequence[Message]) -> int:
    """Returns the place of the first words of a person, or else of the last message. Many conversations are alike before it."""
    return next(
        (at for at, message in enumerate(messages) if message.role is Role.USER), max(0, len(messages) - 1)
    )
