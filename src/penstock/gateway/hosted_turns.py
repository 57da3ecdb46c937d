"""Turns of hosted conversations: one at a time in each, whichever instance and device a message comes to.

    reply = await turns.say(message, tell)     # in the side loop of the gateway

A message claims the turn of its conversation, is tidied up for, logged together with the name of its delivery, and
answered. One that comes while a turn is under way waits for its end or is taken up by it, by `gateway.while_busy`. A
delivery that comes again is given the reply of the first time; where that one was cut off, the turn goes on from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock._log import log
from penstock.context.events import Compacted, Noticed
from penstock.conversation.dialects import dialect_named
from penstock.conversation.handles import name_message
from penstock.conversation.message import Role, Text, ToolCall
from penstock.conversation.wire import encode_wire, parse_json
from penstock.engine.threads import in_thread
from penstock.errors import StoreConflict, StoreError
from penstock.gateway.callers import Caller  # noqa: TC001 - a struct's field types are read at run time
from penstock.gateway.hosted_errors import HostedError
from penstock.loop.commands import CHAT_COMMANDS, explain_unknown, split_command
from penstock.loop.events import Asked, Said, TurnEnded, Used
from penstock.measure.usage import Usage
from penstock.stores.values import Delivery  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from penstock.gateway.hosted_agents import HostedAgent, HostedAgents
    from penstock.loop.agent import Agent
    from penstock.loop.events import AgentEvent
    from penstock.settings import GatewaySettings
    from penstock.stores.store import Store
    from penstock.stores.values import OpenedTurn, Standing

__all__ = ["HostedMessage", "HostedReply", "HostedTurns"]

_CLAIMED_SECONDS: Final = 8.0  # how soon the turn of a process that was killed is anybody's
_RENEW_SECONDS: Final = 2.0
_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.02, 0.4  # at a turn that another instance has
_TIDIED: Final = (
    "This conversation had nearly filled its window, so its older part was summed up: {before} → {after} tokens. "
    "Nothing is lost: /search finds it, and /undo reverts it."
)


class HostedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it came. Without text, what was said last is answered; without `answer`, it is only logged."""

    session_id: str
    caller: Caller
    credential: str = ""
    text: str = ""
    answer: bool = True
    delivery: Delivery | None = None


class HostedReply(msgspec.Struct, kw_only=True):
    """The reply to a message.

    `status` is "answered", "logged", "steered" (a turn that was under way takes it up), "command" or "steps" (the limit of
    requests was reached). `message` is the handle of what was said, empty for a command.
    """

    session: str
    status: str
    message: str = ""
    text: str = ""
    notices: list[str] = []
    compactions: list[dict[str, Any]] = []
    usage: dict[str, Any] = {}


_READ_REPLY: Final = msgspec.json.Decoder(HostedReply).decode


class HostedTurns:
    """The turns of one process. All of its methods run in one event loop."""

    def __init__(self, settings: GatewaySettings, agents: HostedAgents) -> None:
        self._settings = settings
        self._agents = agents
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def say(self, said: HostedMessage, tell: Callable[[AgentEvent], None]) -> HostedReply:
        """Takes a message in and returns the reply; `tell` hears of the turn as it goes. Raises HostedError, PenstockError."""
        store, delivery = self._agents.store_of(said.caller.owner), said.delivery
        command = split_command(said.text)
        if self._settings.while_busy == "steer" and said.answer and said.text and command is None:
            steered = await asyncio.to_thread(_steer, store, said)
            if steered is not None:
                return steered
        name = delivery.name if delivery is not None else ""
        async with self._hold(store, said.session_id, name) as turn:
            known = turn.opened.delivery
            if (reply := _replay(known, delivery)) is not None:
                return reply
            row = turn.opened.row
            hosted = await self._agents.open(row, turn.opened.standing, said.caller, said.credential)
            report = _Report(row.conversation, tell)
            try:
                hosted.listen = report.hear
                await self._tidy(hosted.agent, report)
                if command is not None:
                    reply = await _run_command(hosted.agent, *command, report)
                elif (
                    known is not None and (answered := _read_answer(hosted.agent, known.position)) is not None
                ):
                    reply = report.reply("answered", known.position, answered)
                else:
                    reply = await self._converse(said, hosted, report, turn)
                if not turn.closed:
                    hosted.standing = await turn.end(_settle(delivery, reply))
            except BaseException:  # whatever it is, what is in memory may not be what is in the store
                await self._agents.drop(said.caller.owner, row.conversation)
                raise
            finally:
                hosted.listen = None
            return reply

    async def change(
        self, session_id: str, caller: Caller, credential: str, work: Callable[[Agent], Any]
    ) -> Any:
        """Does something to a conversation between two turns, such as a compaction. Raises HostedError, PenstockError."""
        store = self._agents.store_of(caller.owner)
        async with self._hold(store, session_id) as turn:
            row = turn.opened.row
            hosted = await self._agents.open(row, turn.opened.standing, caller, credential)
            try:
                done = await work(hosted.agent)
                hosted.standing = await turn.end()
            except BaseException:  # as above
                await self._agents.drop(caller.owner, row.conversation)
                raise
            return done

    async def forget(self, owner: str, conversation: str) -> None:
        """Drops what is kept of a conversation that was deleted."""
        await self._agents.drop(owner, conversation)

    async def wake(self, owner: str, conversation: str) -> None:
        """Has a turn that waits for approval look for the answer at once."""
        hosted = self._agents.find(owner, conversation)
        if hosted is not None:
            hosted.answered.set()

    async def aclose(self) -> None:
        """Ends the agents."""
        await self._agents.aclose()

    # A turn.

    async def _tidy(self, agent: Agent, report: _Report) -> None:
        """Compacts before the agent sees anything, where it is time to; the person is told once."""
        before = agent.context.tokens()
        if await agent.context.tidy() is None:
            return
        words = self._settings.hygiene_notice or _TIDIED
        after = agent.context.tokens()
        report.hear(
            Noticed("info", words.replace("{before}", f"{before:,}").replace("{after}", f"{after:,}"))
        )

    async def _converse(
        self, said: HostedMessage, hosted: HostedAgent, report: _Report, turn: _Turn
    ) -> HostedReply:
        agent = hosted.agent

        def hear_more() -> None:
            for queued in turn.store.queued_messages(agent.session.id):
                agent.hear(parse_json(queued.raw)["text"], queued_upto=queued.key)

        if self._settings.while_busy == "steer":
            agent.hear_more = hear_more
        if turn.opened.has_queued:  # what a turn that was cut off has left
            await in_thread(hear_more)
        position = await in_thread(_take_in, agent, said, turn.opened.delivery)
        if not said.answer:
            return report.reply("logged", position, "")
        while True:
            ended = await agent.answer()
            if ended.reason == "failed":
                if await asyncio.to_thread(agent.session.workings.is_behind):
                    raise StoreConflict("the conversation went on elsewhere meanwhile")
                raise _explain_ending(ended)
            reply = report.reply("answered" if ended.reason == "done" else ended.reason, position)
            hosted.standing = await turn.close(_settle(said.delivery, reply))
            if turn.closed:
                return reply
            await in_thread(hear_more)

    # Whose turn it is.

    @contextlib.asynccontextmanager
    async def _hold(self, store: Store, session_id: str, delivery: str = "") -> AsyncIterator[_Turn]:
        """Waits for the turn of a conversation and keeps it. Raises HostedError where it takes too long."""
        name = f"{store.owner}/{session_id}"
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        turn = _Turn(store, session_id)
        try:
            async with asyncio.timeout(self._settings.turn_wait_seconds):
                await lock.acquire()
                with contextlib.ExitStack() as undo:
                    undo.callback(lock.release)
                    await turn.open(delivery)
                    undo.pop_all()
        except TimeoutError:
            raise HostedError(
                409,
                "busy",
                f"another turn of this conversation took longer than {self._settings.turn_wait_seconds:g} seconds",
                "send it again later, with the same idempotency key",
                headers={"retry-after": "5"},
            ) from None
        renewing = asyncio.create_task(turn.keep())
        try:
            yield turn
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            with contextlib.suppress(StoreError):  # it runs out by itself
                await turn.end()
            lock.release()


class _Turn:
    """The claim of one turn. `opened` is what the store knew when it began."""

    opened: OpenedTurn

    def __init__(self, store: Store, session_id: str) -> None:
        self.store = store
        self.closed = False
        self._session_id = session_id
        self._holder = secrets.token_hex(8)
        self._writing = asyncio.Lock()

    async def open(self, delivery: str) -> None:
        """Waits until the turn is this one's."""
        pause = _FIRST_LOOK_SECONDS
        while (opened := await in_thread(self._open, delivery)) is None:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK_SECONDS)
        self.opened = opened

    def _open(self, delivery: str) -> OpenedTurn | None:
        now = time.time()
        return self.store.open_turn(self._session_id, self._holder, now, now + _CLAIMED_SECONDS, delivery)

    async def keep(self) -> None:
        """Renews it until it is cancelled."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            async with self._writing:  # a claim that comes after the end would begin it anew
                if self.closed:
                    return
                try:
                    held = await in_thread(self._renew)
                except StoreError:
                    continue
            if not held:
                log.warning("the turn of a hosted conversation ran out before it ended")
                return  # its next write fails, where another has it by now

    def _renew(self) -> bool:
        now = time.time()
        return self.store.claim_turn(self._session_id, self._holder, now, now + _CLAIMED_SECONDS)

    async def close(self, delivery: Delivery | None = None) -> Standing | None:
        """Ends it and settles its delivery; None, with the turn kept, where messages came meanwhile."""
        async with self._writing:
            standing = await in_thread(self._close, delivery)
            self.closed = standing is not None
            return standing

    def _close(self, delivery: Delivery | None) -> Standing | None:
        # The notes of a conversation bear its own id, whichever of its sessions was named.
        conversation = self.opened.row.conversation
        return self.store.close_turn(conversation, self._holder, time.time(), delivery)

    async def end(self, delivery: Delivery | None = None) -> Standing | None:
        """Ends it in any case, where that was not done; what came meanwhile is taken up by the next turn."""
        if self.closed:
            return None
        standing = await self.close(delivery)
        if standing is None:
            async with self._writing:
                self.closed = True
                await in_thread(self._let_go, delivery)
        return standing

    def _let_go(self, delivery: Delivery | None) -> None:
        now = time.time()
        if delivery is not None:
            self.store.settle_delivery(self._session_id, delivery, now)
        self.store.claim_turn(self._session_id, self._holder, now, now)


class _Report:
    """Takes down what a turn tells, and passes it on."""

    def __init__(self, conversation: str, tell: Callable[[AgentEvent], None]) -> None:
        self._conversation = conversation
        self._tell = tell
        self._texts: list[list[str]] = [[]]
        self._notices: list[str] = []
        self._compactions: list[dict[str, Any]] = []
        self._usage = Usage()
        self._requests = 0
        self._cost: float | None = 0.0

    def hear(self, event: AgentEvent) -> None:
        """Takes an event down."""
        match event:
            case Asked():
                self._texts.append([])
            case Said(text=text):
                self._texts[-1].append(text)
            case Noticed(level=level, text=text) if level != "log":
                self._notices.append(text)
            case Compacted(receipt=receipt, reason=reason):
                made = {"tokens_before": receipt.tokens_before, "tokens_after": receipt.tokens_after}
                self._compactions.append({"reason": reason, **made})
            case Used(usage=usage, cost=cost):
                self._usage += usage
                self._requests += 1
                self._cost = None if self._cost is None or cost is None else self._cost + cost
        self._tell(event)

    def reply(self, status: str, position: int | None, text: str | None = None) -> HostedReply:
        """Returns the reply of the turn: with all that the model said, unless another text is given."""
        if text is None:
            text = "\n\n".join(filter(None, ("".join(one).strip() for one in self._texts)))
        return HostedReply(
            session=self._conversation,
            status=status,
            message="" if position is None else name_message(position + 1),
            text=text,
            notices=self._notices,
            compactions=self._compactions,
            usage={
                "requests": self._requests,
                "prompt_tokens": self._usage.prompt_tokens,
                "output_tokens": self._usage.output_tokens,
                "total_tokens": self._usage.total_tokens,
                "cost": self._cost if self._requests else None,
            },
        )


async def _run_command(agent: Agent, word: str, argument: str, report: _Report) -> HostedReply:
    command = CHAT_COMMANDS.get(word)
    if command is None:
        text = explain_unknown(word, {name: one.about for name, one in CHAT_COMMANDS.items()})
    elif argument and not command.takes:
        text = f"/{word} takes nothing after it; nothing was done."
    else:
        text = await command.act(agent, argument)
    return report.reply("command", None, text)


def _steer(store: Store, said: HostedMessage) -> HostedReply | None:
    """Has the turn that is under way take the message up; None where there is none, or where that was done before."""
    delivery, now = said.delivery, time.time()
    known = None if delivery is None else store.delivery(said.session_id, delivery.name)
    if known is not None:
        return _replay(known, delivery)
    reply = HostedReply(session=store.session(said.session_id).conversation, status="steered")
    queued = store.queue_message(
        said.session_id, encode_wire({"text": said.text}), now, _settle(delivery, reply)
    )
    return reply if queued else None


def _settle(delivery: Delivery | None, reply: HostedReply) -> Delivery | None:
    """Returns the delivery with its reply."""
    if delivery is None:
        return None
    return msgspec.structs.replace(delivery, answer=msgspec.json.encode(reply))


def _replay(known: Delivery | None, delivery: Delivery | None) -> HostedReply | None:
    """Returns the reply that a delivery was given before; None where there is none.

    Raises HostedError where its name was used for something else.
    """
    if known is None or delivery is None:
        return None
    if known.digest != delivery.digest:
        raise HostedError(
            422,
            "idempotency_key_reused",
            "this idempotency key was used for another message",
            "use a new key for each message, and the same one only to send it again",
        )
    return None if known.answer is None else _READ_REPLY(known.answer)


def _take_in(agent: Agent, said: HostedMessage, known: Delivery | None) -> int:
    """Logs a message, unless it was logged before, and returns its position. Raises HostedError where nothing waits for an answer."""
    if known is None and said.text:
        agent.hear(said.text, delivery=said.delivery)
        return len(agent.session) - 1
    if not _waits_for_answer(agent):
        raise HostedError(
            409, "nothing_to_answer", "there is nothing to answer", 'send a message with "text"'
        )
    return len(agent.session) - 1 if known is None else known.position


def _read_answer(agent: Agent, position: int) -> str | None:
    """Returns what the model has said since a message, where its answer is complete; None where it is not."""
    session = agent.session
    dialect, said, complete = dialect_named(session.row.dialect), [], False
    for entry in session.store.read_from(session.id, position + 1):
        message = dialect.decode(parse_json(entry.raw))
        if message.role is Role.ASSISTANT:
            said += [part.text for part in message.parts if isinstance(part, Text)]
            complete = not any(isinstance(part, ToolCall) for part in message.parts)
    return "\n\n".join(filter(None, (text.strip() for text in said))) if complete else None


def _waits_for_answer(agent: Agent) -> bool:
    """Returns True where the model has not had the last word."""
    messages = agent.context.messages
    if not messages:
        return False
    return dialect_named(agent.session.row.dialect).decode(messages[-1].wire).role is not Role.ASSISTANT


def _explain_ending(ended: TurnEnded) -> HostedError:
    return HostedError(
        503 if ended.may_pass else 502,
        "model_failed",
        ended.what,
        "what was said is logged: send the same with its idempotency key again, or an empty message to have it answered",
        headers={"retry-after": "1"} if ended.may_pass else None,
    )
