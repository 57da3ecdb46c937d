"""Puts the terminal agent together from settings, a store, a model and a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.agent.project_approvals import ProjectApprovals
from penstock.agent.tools.fetch_url import FetchUrl
from penstock.agent.tools.list_files import ListFiles
from penstock.agent.tools.patch import Patch
from penstock.agent.tools.read_file import ReadFile
from penstock.agent.tools.search_files import SearchFiles
from penstock.agent.tools.terminal import Terminal
from penstock.agent.tools.write_file import WriteFile
from penstock.config import command_environment, data_folder, read_named_variables
from penstock.loop.agent import TurnLimits
from penstock.loop.approvals import Approvals, read_rule
from penstock.loop.assembly import AgentParts, assemble_agent
from penstock.loop.events import Noticed
from penstock.loop.installed_tools import find_installed_tools
from penstock.loop.mcp import McpServers
from penstock.loop.memory import MemoryFiles
from penstock.loop.memory_tool import MemoryTool
from penstock.loop.system_prompt import PromptParts
from penstock.loop.workspace import Workspace
from penstock.recall.tools import TOOL_NAMES
from penstock.sessions.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.loop.agent import Agent
    from penstock.loop.approvals import Ask
    from penstock.loop.events import AgentEvent
    from penstock.loop.tools import Tool
    from penstock.providers.exchange import StreamingModel
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import NewFact

__all__ = ["AgentPlace", "make_agent", "own_tools"]


class AgentPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of an agent: a folder, a store, a way to ask a person (None without one), a listener for events.

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

    `listed_window` is the window that the provider states for the model, if that is known; else it is asked. A session
    that is resumed is tidied first: one that nearly fills the window is compacted before it is used.
    """
    if session_id is None:
        session = Session.create(place.store, model=model.name, dialect=model.dialect, settings=settings)
    else:
        session = Session.resume(place.store, session_id, settings)
    workspace = Workspace.at(place.folder)
    approvals = Approvals(
        rules=tuple(map(read_rule, settings.agent.allow or ())),
        yes=place.yes,
        ask=place.ask,
        project=ProjectApprovals.of(data_folder(), workspace.root),
    )
    parts = AgentParts(
        tell=place.tell,
        workspace=workspace,
        prompt=PromptParts(workspace=workspace, memory=MemoryFiles(data_folder() / "memory")),
        approvals=approvals,
        tools=(*own_tools(), *_installed_tools(place)),
        environment=command_environment(settings.agent.pass_env or ()),
        servers=_servers(settings, workspace),
        before_compaction=place.before_compaction,
        limits=place.limits,
        prepares=place.prepares,
    )
    return assemble_agent(
        session,
        model,
        parts,
        tidies=session_id is not None,
        provider=provider,
        listed_window=listed_window,
    )


def _servers(settings: Settings, workspace: Workspace) -> McpServers | None:
    servers = settings.agent.mcp_servers
    if not servers:
        return None
    names = {name for server in servers.values() for name in (*server.env, *server.headers.values())}
    return McpServers(servers, folder=workspace.root, variables=read_named_variables(names))


def _installed_tools(place: AgentPlace) -> tuple[Tool, ...]:
    """Returns the tools of installed packages; tells the person about those that cannot be used."""
    taken = {tool.name for tool in own_tools()} | TOOL_NAMES
    found = find_installed_tools(taken)
    for reason in found.failures:
        place.tell(Noticed("warn", reason))
    return found.tools


def own_tools() -> tuple[Tool, ...]:
    """Returns the terminal agent's own tools, in the order in which they are offered."""
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
