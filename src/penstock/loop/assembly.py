"""Assembles an agent: a session at its tip, its engine and live context, the frozen prompt, approvals and tools.

Hosts pass what differs between them as `AgentParts`: the terminal agent has its own tools and a folder, a hosted
conversation has neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence  # noqa: TC003 - a struct's field types are read at run time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.context.events import tell_notice
from penstock.context.hygiene import tidy
from penstock.context.live import Context
from penstock.engine.auxiliary import summariser_for
from penstock.engine.registry import blame_engine, engine_named
from penstock.errors import EngineFailure, PenstockError, TargetTooSmall, UnknownHandle
from penstock.loop.agent import Agent, Equipment, TurnLimits
from penstock.loop.approvals import Approvals  # noqa: TC001 - as above
from penstock.loop.asking import adopt_model
from penstock.loop.events import Noticed
from penstock.loop.mcp import McpServers  # noqa: TC001 - as above
from penstock.loop.memory import MemoryTaker
from penstock.loop.system_prompt import FrozenPrompt, PromptParts, Snapshot
from penstock.loop.tools import Tool, Toolbox, ToolContext
from penstock.loop.workspace import Workspace  # noqa: TC001 - as above
from penstock.recall.tools import EXPAND
from penstock.stores.values import NewFact  # noqa: TC001 - as above

if TYPE_CHECKING:
    from penstock.engine.contract import ContextEngine
    from penstock.providers.exchange import StreamingModel
    from penstock.sessions.session import Session

__all__ = ["AgentParts", "assemble_agent"]

_READ_PROMPT = msgspec.json.Decoder(Snapshot).decode
_PROMPT = "prompt"  # the name of the notes that hold frozen prompts


class AgentParts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a host passes in. `tell` receives every event.

    `workspace` is for tools; `prompt` decides whether the model is told of it, and has the memory that tools may change.
    `before_compaction` gets the facts of the messages that are about to leave the view, and, when the conversation is left,
    what people demanded in it, so that memory can take what must outlive it: what it writes there is in the system prompt
    from then on. Without it, memory takes what people said to remember (`agent.remember` of the settings). With `prepares`,
    compactions are prepared in the background: a host that ends after one turn would only throw them away. With
    `summarises`, models write summaries as the settings say.
    """

    tell: Callable[[Any], None]
    workspace: Workspace
    prompt: PromptParts
    approvals: Approvals
    tools: Sequence[Tool] = ()
    environment: Mapping[str, str] = {}
    servers: McpServers | None = None
    before_compaction: Callable[[Sequence[NewFact]], None] | None = None
    limits: TurnLimits = TurnLimits()
    prepares: bool = True
    summarises: bool = True


def assemble_agent(
    session: Session,
    model: StreamingModel,
    parts: AgentParts,
    *,
    tidies: bool = False,
    provider: str = "",
    listed_window: int | None = None,
) -> Agent:
    """Returns an agent in the session. Raises SettingsError.

    With `tidies`, a session that nearly fills the window is compacted before it is used. `listed_window` is the window that
    the provider states for the model, if known; otherwise the provider is asked.
    """
    adopt_model(session, model, listed_window)
    session.recall_tool = EXPAND
    engine = _make_engine(session, model, parts, provider)
    memory, take = parts.prompt.memory, parts.before_compaction
    if take is None and memory is not None and session.settings.agent.remember:
        take = MemoryTaker(memory, lambda text: parts.tell(Noticed("warn", text)))
    tidied = None
    if tidies:
        try:
            tidied = tidy(session, engine, before_compaction=_take_before(take, parts))
        except (EngineFailure, TargetTooSmall) as error:
            parts.tell(Noticed("warn", f"{error}; the conversation continues unchanged"))
    with blame_engine(engine.name):
        engine.on_session_start(session.id, model=model.name)
    context = Context(session, engine, parts.tell)
    context.prepares = parts.prepares
    prompt = FrozenPrompt(parts.prompt, kept := _read_prompt(session))
    if tidied is not None:
        prompt.renew()
    if prompt.current != kept:
        _keep_prompt(session, prompt.current)

    def renew() -> None:
        if prompt.renew():
            _keep_prompt(session, prompt.current)

    context.on_boundary = renew
    if take is not None:
        context.before_compaction = take
    equipment = Equipment(
        toolbox=Toolbox.of(parts.tools),
        tools=_make_tool_context(session, parts),
        approvals=parts.approvals,
        prompt=prompt,
        provider=provider,
        servers=parts.servers,
        limits=parts.limits,
    )
    agent = Agent(context, model, equipment, parts.tell)
    agent.close_open_calls()
    return agent


def _take_before(
    take: Callable[[Sequence[NewFact]], None] | None, parts: AgentParts
) -> Callable[[Sequence[NewFact]], None] | None:
    """Returns the hook that lets memory take facts before a compaction; a full memory does not make it fail."""
    if take is None:
        return None

    def try_to_take(facts: Sequence[NewFact]) -> None:
        try:
            take(facts)
        except PenstockError as error:
            parts.tell(Noticed("warn", f"memory could not take what leaves the view: {error}"))

    return try_to_take


def _make_engine(session: Session, model: StreamingModel, parts: AgentParts, provider: str) -> ContextEngine:
    settings, window = session.settings, session.window.tokens
    engine = engine_named(
        settings.context.engine,
        settings,
        context_length=window,
        model=model.name,
        summariser=summariser_for(settings, model, window, provider) if parts.summarises else None,
        on_notice=lambda notice: tell_notice(notice, parts.tell),
        recall_tools=True,
        store=session.store,
    )
    with blame_engine(engine.name):
        engine.update_model(model.name, window, base_url=session.endpoint, provider=provider)
        if not parts.summarises:  # else it would connect to the model that it was told of by itself
            engine.hosting.use_summariser(None)
    return engine


def _make_tool_context(session: Session, parts: AgentParts) -> ToolContext:
    async def read_stored(handle: str) -> str | None:
        try:
            found = await asyncio.to_thread(session.original, handle)
        except UnknownHandle:
            return None
        return found if isinstance(found, str) else None

    return ToolContext(
        workspace=parts.workspace,
        approve=parts.approvals.approve,
        environment=parts.environment,
        memory=parts.prompt.memory,
        stored=read_stored,
        interrupt=asyncio.Event(),
        redact=session.workings.redact,
    )


def _read_prompt(session: Session) -> Snapshot | None:
    data = session.store.note(_PROMPT, session.row.conversation)
    return _READ_PROMPT(data) if data else None


def _keep_prompt(session: Session, snapshot: Snapshot) -> None:
    name = session.row.conversation
    session.store.put_note(_PROMPT, name, msgspec.json.encode(snapshot), session_id=name)
