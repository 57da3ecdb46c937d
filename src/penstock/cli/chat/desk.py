"""What a chat works with: the store, the model, the agent in its conversation, and what all of it took."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from penstock.accounts.conversations import find_conversation, iterate_conversations
from penstock.accounts.display import SHORT_ID_CHARS
from penstock.accounts.spending import CompactionTotals, sum_compactions, sum_requests
from penstock.agent.assembly import AgentPlace, make_agent
from penstock.cli.chat.lines import SECOND_COMPACTION, compacted_first_line, summary_lines
from penstock.cli.chat.model import keep_route
from penstock.cli.progress import ProgressLine
from penstock.errors import SettingsError, UnknownSession
from penstock.loop.events import Compacted, Noticed, TurnEnded, Used

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.accounts.spending import Spending
    from penstock.accounts.status import Status
    from penstock.cli.chat.model import ModelChoice, ModelChooser
    from penstock.loop.agent import Agent
    from penstock.loop.approvals import Ask
    from penstock.loop.events import AgentEvent
    from penstock.settings import Settings
    from penstock.stores.values import SessionRow, Store, UsageRow

__all__ = ["Desk", "Host", "Office"]

_MANY = 2  # compactions from which on a person is told what that means


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The person's side: what hears events, and how they are asked (None: nobody is there)."""

    tell: Callable[[AgentEvent], None]
    ask: Ask | None = None
    yes: bool = False


class Office(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What stays the same for all conversations of a chat."""

    settings: Settings
    store: Store
    chooser: ModelChooser
    folder: Path


class Desk:
    """One chat: an agent at a time, in a new conversation or in one that goes on.

    `agent` is there once `open` has been called. Its status is looked up when something has changed it.
    """

    agent: Agent
    tidied: str

    def __init__(self, office: Office, choice: ModelChoice, host: Host) -> None:
        self.office = office
        self.store = office.store
        self.choice = choice
        self._host = host
        self._started = time.time()
        self._visited: set[str] = set()
        self._told: set[str] = set()
        self._status: Status | None = None

    # The conversation.

    def open(self, session_id: str | None = None) -> None:
        """Begin a conversation, or go on with the one of that session. Raises PenstockError; then nothing has changed.

        `tidied` says afterwards whether one that nearly filled the window was compacted first.
        """
        office, host = self.office, self._host
        if session_id is not None:
            self.check_dialect(self.store.session(session_id))
        place = AgentPlace(
            folder=office.folder, store=self.store, tell=self._hear, ask=host.ask, yes=host.yes
        )
        choice, opened = self.choice, time.time()
        with ProgressLine("opening the conversation"):
            agent = make_agent(
                place,
                choice.model,
                office.settings,
                session_id=session_id,
                provider=choice.provider,
                listed_window=choice.window_tokens,
            )
        keep_route(self.store, agent.session.row, choice.route)
        self._drop_empty()
        self.agent = agent
        self._status = None
        self._visited.add(self.conversation)
        newest = self.store.newest_compaction(agent.session.id)
        self.tidied = (
            "" if newest is None or newest.created < opened else compacted_first_line(newest.receipt)
        )

    def check_dialect(self, row: SessionRow) -> None:
        """Raises SettingsError where the model does not speak as that conversation is kept."""
        model = self.choice.model
        if row.dialect != model.dialect:
            raise SettingsError(
                f"{row.conversation[:SHORT_ID_CHARS]} is kept in the dialect {row.dialect}, and {model.name} "
                f"({self.choice.provider}) speaks {model.dialect}: choose another with --provider and --model, or convert "
                f"it with penstock sessions export {row.conversation[:SHORT_ID_CHARS]} --dialect {model.dialect}"
            )

    def found(self, given: str) -> str:
        """The session that an id, its beginning, or nothing at all (the conversation of last time) stands for."""
        if given:
            return find_conversation(self.store, given).id
        here = self.conversation if self._visited else ""
        for row in iterate_conversations(self.store):
            if row.id != here and row.messages:
                return row.tip.id
        raise UnknownSession("there is no earlier conversation to go on with; see penstock sessions list")

    async def use(self, choice: ModelChoice) -> None:
        """Go on with another model; one with a smaller window has the conversation compacted first.

        Raises SettingsError where it speaks another dialect and something was said already.
        """
        if len(self.agent.session) == 0:
            await self.agent.aclose()
            self.choice = choice
            self.open()
            return
        await self.agent.switch_model(choice.model, choice.provider, choice.window_tokens)
        self.choice = choice
        keep_route(self.store, self.agent.session.row, choice.route)
        self._status = None

    @property
    def conversation(self) -> str:
        """The id of the conversation, which compactions do not change."""
        return self.agent.session.row.conversation

    @property
    def status(self) -> Status:
        """Where the agent stands."""
        if self._status is None:
            self._status = self.agent.status()
        return self._status

    def changed(self) -> None:
        """Look the status up anew."""
        self._status = None

    # The end.

    async def close(self) -> None:
        """End what the agent has begun. A conversation in which nothing was said leaves no trace."""
        await self.agent.aclose()
        self._drop_empty()

    def summary(self) -> list[str]:
        """What the requests of this chat took, in lines."""
        return summary_lines(*self.spending(), self.conversation[:SHORT_ID_CHARS])

    def spending(self) -> tuple[Spending, CompactionTotals]:
        """What the requests of this chat took, and the compactions made in it."""
        requests: list[UsageRow] = []
        made = CompactionTotals()
        for conversation in filter(self._is_there, self._visited):
            tip = self.store.tip(conversation).id
            rows = self.store.usage(session_id=tip, since=self._started)
            new = [row for row in self.store.compactions(tip, undone=True) if row.created >= self._started]
            requests += rows
            made += sum_compactions(new, rows)
        return sum_requests(requests), made

    def _is_there(self, conversation: str) -> bool:
        try:
            self.store.tip(conversation)
        except UnknownSession:
            return False
        return True

    def _drop_empty(self) -> None:
        agent = getattr(self, "agent", None)
        if agent is not None and len(agent.session) == 0 and self._is_there(agent.session.id):
            self.store.delete(agent.session.id)

    def _hear(self, event: AgentEvent) -> None:
        if isinstance(event, (Used, Compacted, TurnEnded)):
            self._status = None
        self._host.tell(event)
        if not isinstance(event, Compacted) or self.conversation in self._told:
            return
        if self.status.compactions >= _MANY:
            self._told.add(self.conversation)
            self._host.tell(Noticed("warn", SECOND_COMPACTION))
