"""The state of a chat: its agent and model, the conversations it has been in, and what they cost."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import msgspec

from penstock.accounts.conversations import find_conversation, iterate_conversations
from penstock.accounts.display import SHORT_ID_CHARS
from penstock.accounts.spending import CompactionTotals, sum_compactions, sum_requests
from penstock.agent.assembly import AgentPlace, make_agent
from penstock.agent.attachments import attach_files, takes_pictures
from penstock.cli.chat.lines import SECOND_COMPACTION, compacted_first_line, summary_lines
from penstock.cli.chat.model import keep_route
from penstock.cli.progress import ProgressLine
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Image
from penstock.errors import SettingsError, UnknownSession
from penstock.loop.events import Compacted, Noticed, TurnEnded, Used
from penstock.loop.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from penstock.accounts.spending import Spending
    from penstock.accounts.status import Status
    from penstock.cli.chat.model import ModelChoice
    from penstock.cli.chat.setup import ChatSetup
    from penstock.loop.agent import Agent
    from penstock.loop.approvals import Ask
    from penstock.loop.events import AgentEvent
    from penstock.stores.values import UsageRow

__all__ = ["Chat", "ChatHost"]

_MANY = 2  # compactions after which the person is told what that means


class ChatHost(msgspec.Struct, frozen=True, kw_only=True):
    """The person's side: the function that receives events, and the one that asks (None if nobody can be asked).

    `one_turn` where the chat ends with its first answer.
    """

    tell: Callable[[AgentEvent], None]
    ask: Ask | None = None
    yes: bool = False
    one_turn: bool = False


class Chat:
    """One chat: one agent at a time, in a new conversation or in a resumed one.

    `agent` exists once `open` has been called. Its status is read again when something has changed it.
    """

    agent: Agent
    opening_note: str

    def __init__(self, setup: ChatSetup, choice: ModelChoice, host: ChatHost) -> None:
        self.setup = setup
        self.store = setup.store
        self.choice = choice
        self._host = host
        self._started = time.time()
        self._visited: set[str] = set()
        self._warned: set[str] = set()
        self._status: Status | None = None

    # The conversation.

    async def ask(self, text: str, *, typed: str | None = None, dragged: Collection[str] = ()) -> TurnEnded:
        """Has the agent answer a message, with the files that it names with `@`.

        Raises InputError if one of them cannot be attached; then nothing was sent. `typed` and `dragged` are as those of
        `attach_files`.
        """
        agent = self.agent
        given = await attach_files(
            text,
            agent.calls,
            Workspace.at(self.setup.folder),
            typed=typed,
            dragged=dragged,
            blind=self._explain_blindness(),
        )
        return await agent.turn(given.text, given.pictures)

    def _explain_blindness(self) -> str:
        """Returns why no picture is sent to the model; empty if it takes them."""
        model = self.choice.model.name
        takes = self._takes_pictures(model)
        if takes:
            return ""
        why = (
            f"{model} takes no pictures"
            if takes is False
            else f"it is not known whether {model} takes pictures"
        )
        return f"{why}; /model NAME switches to one that does, or set model.pictures: true if this one does"

    def _takes_pictures(self, model: str) -> bool | None:
        said = self.setup.settings.model.takes_pictures(model)
        return takes_pictures(model) if said is None else said

    def open(self, session_id: str | None = None, *, behind_prompt: bool = False) -> None:
        """Starts a conversation, or resumes that session's. Raises PenstockError; then nothing has changed.

        With `behind_prompt`, nothing is shown meanwhile. Afterwards `opening_note` says so if the conversation nearly filled the window and was compacted first.
        """
        setup, host = self.setup, self._host
        place = AgentPlace(
            folder=setup.folder,
            store=self.store,
            tell=self._hear,
            ask=host.ask,
            yes=host.yes,
            prepares=not host.one_turn,
        )
        choice, opened = self.choice, time.time()
        with nullcontext() if behind_prompt else ProgressLine("opening the conversation"):
            agent = make_agent(
                place,
                choice.model,
                choice.settle_window(setup.settings),
                session_id=session_id,
                provider=choice.provider,
                listed_window=choice.window_tokens,
            )
        self._drop_empty()
        self.agent = agent
        self._keep_route()
        self._status = None
        self._visited.add(self.conversation)
        newest = self.store.newest_compaction(agent.session.id)
        self.opening_note = (
            "" if newest is None or newest.created < opened else compacted_first_line(newest.receipt)
        )

    def find(self, given: str) -> str:
        """Returns the session with that id or prefix; for an empty id, the previous conversation's."""
        if given:
            return find_conversation(self.store, given).id
        here = self.conversation if self._visited else ""
        for row in iterate_conversations(self.store):
            if row.id != here and row.messages:
                return row.tip.id
        raise UnknownSession(
            self.setup.carry("there is no earlier conversation to resume; see penstock sessions list")
        )

    async def switch_model(self, choice: ModelChoice) -> None:
        """Switches to another model; for a smaller window, the conversation is compacted first.

        Raises SettingsError if it speaks another dialect and something was said already, or if it takes no pictures and some
        were attached. If cancelled, it goes back.
        """
        if self._takes_pictures(choice.model.name) is False and self._has_pictures():
            raise SettingsError(
                f"{choice.model.name} takes no pictures, and this conversation has some; /new starts one without"
            )
        if len(self.agent.session) == 0:
            await self.agent.aclose()
            self.choice = choice
            self.open()
            return
        try:
            await self.agent.switch_model(choice.model, choice.provider, choice.window_tokens)
        except asyncio.CancelledError:
            before = self.choice
            await self.agent.switch_model(before.model, before.provider, before.window_tokens)
            raise
        self.choice = choice
        self._keep_route()
        self._status = None

    def _has_pictures(self) -> bool:
        view = decode_all(dialect_named(self.agent.session.row.dialect), self.agent.context.view)
        return any(isinstance(part, Image) for message in view for part in message.parts)

    @property
    def conversation(self) -> str:
        """Returns the id of the conversation, which compactions do not change."""
        return self.agent.session.row.conversation

    @property
    def status(self) -> Status:
        """Returns the status of the agent."""
        if self._status is None:
            self._status = self.agent.status()
        return self._status

    def refresh(self) -> None:
        """Makes `status` be read again."""
        self._status = None

    # The end.

    async def close(self) -> None:
        """Stops the agent. An empty conversation leaves no trace."""
        await self.agent.aclose()
        self._keep_route()  # a server may have told its window meanwhile
        self._drop_empty()

    def summary(self) -> list[str]:
        """Returns what the requests of this chat used and cost, as lines."""
        return summary_lines(*self.sum_spending(), self.resume_command)

    @property
    def resume_command(self) -> str:
        """The command that continues this conversation."""
        return self.setup.carry(f"penstock chat --resume {self.conversation[:SHORT_ID_CHARS]}")

    def sum_spending(self) -> tuple[Spending, CompactionTotals]:
        """Returns what the requests of this chat used and cost, and the compactions made in it."""
        requests: list[UsageRow] = []
        made = CompactionTotals()
        for conversation in filter(self._exists, self._visited):
            tip = self.store.tip(conversation).id
            rows = self.store.usage(session_id=tip, since=self._started)
            new = [row for row in self.store.compactions(tip, undone=True) if row.created >= self._started]
            requests += rows
            made += sum_compactions(new, rows)
        return sum_requests(requests), made

    def _keep_route(self) -> None:
        route = self.choice.make_route(self.agent.context.engine.context_length)
        keep_route(self.store, self.agent.session.row, route)

    def _exists(self, conversation: str) -> bool:
        try:
            self.store.tip(conversation)
        except UnknownSession:
            return False
        return True

    def _drop_empty(self) -> None:
        agent = getattr(self, "agent", None)
        if agent is not None and len(agent.session) == 0 and self._exists(agent.session.id):
            self.store.delete(agent.session.id)

    def _hear(self, event: AgentEvent) -> None:
        if isinstance(event, (Used, Compacted, TurnEnded)):
            self._status = None
        self._host.tell(event)
        if not isinstance(event, Compacted) or self.conversation in self._warned:
            return
        if self.status.compactions >= _MANY:
            self._warned.add(self.conversation)
            self._host.tell(Noticed("warn", SECOND_COMPACTION))
