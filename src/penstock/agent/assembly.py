"""An agent put together from settings, a store, a model and a folder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from penstock.agent.tools.fetch_url import FetchUrl
from penstock.agent.tools.list_files import ListFiles
from penstock.agent.tools.memory import MemoryTool
from penstock.agent.tools.patch import Patch
from penstock.agent.tools.read_file import ReadFile
from penstock.agent.tools.search_files import SearchFiles
from penstock.agent.tools.terminal import Terminal
from penstock.agent.tools.write_file import WriteFile
from penstock.config import command_environment, data_folder, read_named_variables
from penstock.context.events import tell_notice
from penstock.context.live import Context, tidy
from penstock.engine.auxiliary import summariser_for
from penstock.engine.registry import blame_engine, engine_named
from penstock.errors import EngineFailure, PenstockError, TargetTooSmall, UnknownHandle
from penstock.loop.agent import Agent, Equipment, TurnLimits
from penstock.loop.approvals import Approvals, read_rule
from penstock.loop.asking import adopt_model
from penstock.loop.events import Noticed
from penstock.loop.mcp import McpServers
from penstock.loop.memory import MemoryFiles
from penstock.loop.remembering import MemoryTaker
from penstock.loop.system_prompt import FrozenPrompt, PromptParts, Snapshot
from penstock.loop.tools import Toolbox, ToolContext
from penstock.loop.workspace import Workspace
from penstock.recall.tools import EXPAND
from penstock.sessions.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.engine.contract import ContextEngine
    from penstock.loop.approvals import Ask
    from penstock.loop.events import AgentEvent
    from penstock.loop.tools import Tool
    from penstock.providers.exchange import StreamingModel
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import NewFact

__all__ = ["AgentPlace", "make_agent", "own_tools"]


_PROMPT = "prompt"  # the name of the notes that hold frozen prompts


class AgentPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of an agent: a folder, a store, a way to ask a person (None: nobody), a listener for events.

    `before_compaction` is given the facts of the messages that are about to leave the view, and what people demand in it
    when the conversation is left, so that memory can take what must outlive it: what it writes to the memory files is in
    the system prompt from then on. Without it, memory takes what people said to remember (`agent.remember` of the settings).
    With `prepares`, compactions are prepared beside the work: a host that ends after one turn would only throw them away.
    """

    folder: Path
    store: Store
    tell: Callable[[AgentEvent], None]
    ask: Ask | None = None
    yes: bool = False
    before_compaction: Callable[[Sequence[NewFact]], None] | None = None
    limits: TurnLimits = TurnLimits()
    prepares: bool = True


def make_agent(
    place: AgentPlace,
    model: StreamingModel,
    settings: Settings,
    *,
    session_id: str | None = None,
    provider: str = "",
    listed_window: int | None = None,
) -> Agent:
    """Returns an agent in a new session, or in the one with that id, at its tip. Raises UnknownSession, SettingsError.

    `listed_window` is the window that the provider states for the model, where that is known; else it is asked. A session
    that is resumed is tidied first: one that nearly fills the window is compacted before it is used.
    """
    if session_id is None:
        session = Session.create(place.store, model=model.name, dialect=model.dialect, settings=settings)
    else:
        session = Session.resume(place.store, session_id, settings)
    adopt_model(session, model, listed_window)
    session.recall_tool = EXPAND
    engine = _engine(session, model, place, provider)
    memory = MemoryFiles(data_folder() / "memory")
    take = place.before_compaction
    if take is None and settings.agent.remember:
        take = MemoryTaker(memory, lambda text: place.tell(Noticed("warn", text)))
    tidied = None
    if session_id is not None:
        try:
            tidied = tidy(session, engine, before_compaction=_take_before(take, place))
        except (EngineFailure, TargetTooSmall) as error:
            place.tell(Noticed("warn", f"{error}; the conversation goes on as it is"))
    with blame_engine(engine.name):
        engine.on_session_start(session.id, model=model.name)
    context = Context(session, engine, place.tell)
    context.prepares = place.prepares
    workspace = Workspace.at(place.folder)
    prompt = FrozenPrompt(PromptParts(workspace=workspace, memory=memory), _read_prompt(session))
    if tidied is not None:
        prompt.renew()
    _keep_prompt(session, prompt.current)

    def renew() -> None:
        if prompt.renew():
            _keep_prompt(session, prompt.current)

    context.on_boundary = renew
    if take is not None:
        context.before_compaction = take
    equipment = Equipment(
        toolbox=Toolbox.of(own_tools()),
        tools=_tools(session, workspace, memory, settings, place),
        prompt=prompt,
        provider=provider,
        servers=_servers(settings, workspace),
        limits=place.limits,
    )
    agent = Agent(context, model, equipment, place.tell)
    agent.close_open_calls()
    return agent


def _take_before(
    take: Callable[[Sequence[NewFact]], None] | None, place: AgentPlace
) -> Callable[[Sequence[NewFact]], None] | None:
    """Returns the hook for a compaction that must not fail because memory is full."""
    if take is None:
        return None

    def try_to_take(facts: Sequence[NewFact]) -> None:
        try:
            take(facts)
        except PenstockError as error:
            place.tell(Noticed("warn", f"memory did not take what leaves the view: {error}"))

    return try_to_take


def _engine(session: Session, model: StreamingModel, place: AgentPlace, provider: str) -> ContextEngine:
    settings, window = session.settings, session.window.tokens
    engine = engine_named(
        settings.context.engine,
        settings,
        context_length=window,
        model=model.name,
        summariser=summariser_for(settings, model, window, provider),
        on_notice=lambda notice: tell_notice(notice, place.tell),
        recall_tools=True,
        store=place.store,
    )
    with blame_engine(engine.name):
        engine.update_model(model.name, window, base_url=session.endpoint, provider=provider)
    return engine


def _tools(
    session: Session, workspace: Workspace, memory: MemoryFiles, settings: Settings, place: AgentPlace
) -> ToolContext:
    rules = tuple(map(read_rule, settings.agent.allow or ()))
    approvals = Approvals(rules=rules, yes=place.yes, ask=place.ask)

    async def read_stored(handle: str) -> str | None:
        try:
            found = await asyncio.to_thread(session.original, handle)
        except UnknownHandle:
            return None
        return found if isinstance(found, str) else None

    return ToolContext(
        workspace=workspace,
        approve=approvals.approve,
        environment=command_environment(settings.agent.pass_env or ()),
        memory=memory,
        stored=read_stored,
        interrupt=asyncio.Event(),
        redact=session.workings.redact,
    )


def _servers(settings: Settings, workspace: Workspace) -> McpServers | None:
    servers = settings.agent.mcp_servers
    if not servers:
        return None
    names = {name for server in servers.values() for name in (*server.env, *server.headers.values())}
    return McpServers(servers, folder=workspace.root, variables=read_named_variables(names))


def _read_prompt(session: Session) -> Snapshot | None:
    data = session.store.note(_PROMPT, session.row.conversation)
    return msgspec.json.decode(data, type=Snapshot) if data else None


def _keep_prompt(session: Session, snapshot: Snapshot) -> None:
    session.store.put_note(_PROMPT, session.row.conversation, msgspec.json.encode(snapshot))


def own_tools() -> tuple[Tool, ...]:
    """Returns the tools that every agent has, in the order in which they are offered."""
    return (
        Terminal(),
        ReadFile(),
        WriteFile(),
        Patch(),
        SearchFiles(),
        ListFiles(),
        FetchUrl(),
        MemoryTool(),
    )
