"""OpenAI Agents SDK: a session that keeps a conversation, and keeps every model call of a run inside the window.

    from agents import Runner
    from penstock.integrations.openai_agents import PenstockSession

    session = PenstockSession("customer-7", store="sqlite:///agents.db")
    result = await Runner.run(agent, "…", session=session, run_config=session.run_config())

The session stores what was said, and gives a compacted view to the next run. The filter in its run configuration compacts
within a run, however many tools it calls. A receipt is a span of the SDK's tracing. With `recall_tools=True`, add
`session.tools` to the tools of the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from agents import FunctionTool, RunConfig, custom_span
from agents.memory.session import SessionABC
from agents.run import ModelInputData

from penstock.engine.threads import in_thread
from penstock.integrations.bridge import Bridge, BridgeOptions
from penstock.integrations.translators import WireTranslator

if TYPE_CHECKING:
    from agents import RunContextWrapper, TResponseInputItem
    from agents.memory import SessionSettings
    from agents.memory.session import OpenAIResponsesCompactionArgs
    from agents.run import CallModelData

    from penstock.integrations.bridge import FittedMessages, RecallTool

__all__ = ["PenstockSession"]


class PenstockSession(SessionABC):
    """A conversation of the Agents SDK. One instance serves one run at a time."""

    session_settings: SessionSettings | None = None

    def __init__(self, session_id: str, **options: Unpack[BridgeOptions]) -> None:
        self.session_id = session_id
        self._bridge: Bridge[TResponseInputItem] = Bridge(
            WireTranslator("responses"), "openai-agents", options
        )
        self._conversation = self._bridge.open(session_id)

    @property
    def tools(self) -> list[FunctionTool]:
        """The recall tools, for the agent; none unless `recall_tools` was asked for."""
        return self._bridge.make_tools(self._make_tool)

    def run_config(self, **settings: Any) -> RunConfig:
        """Returns a run configuration with these settings in which every model call is fitted."""
        return RunConfig(call_model_input_filter=self.fit_input, **settings)

    async def fit_input(self, data: CallModelData[Any]) -> ModelInputData:
        """Returns the input of a model call, compacted if that is due: a `call_model_input_filter`."""
        given = data.model_data
        model = data.agent.model
        conversation = self._bridge.open(
            self.session_id,
            model=model if isinstance(model, str) else "",
            system=given.instructions,
            tools=[tool.params_json_schema for tool in data.agent.tools if isinstance(tool, FunctionTool)],
        )
        fitted = await conversation.afit(given.input)
        _trace(fitted)
        return ModelInputData(input=fitted.messages, instructions=given.instructions)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Returns the view: the newest handoff and what came since; with a limit, its last items."""
        items = await in_thread(self._conversation.read)
        return items if limit is None else items[len(items) - min(len(items), limit) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Stores what was said."""
        await in_thread(self._conversation.extend, items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Takes the last item back."""
        gone = await in_thread(self._conversation.take_back)
        return gone[0] if gone else None

    async def clear_session(self) -> None:
        """Empties the view. The store keeps what was said."""
        await in_thread(self._conversation.clear)

    async def run_compaction(
        self,
        args: OpenAIResponsesCompactionArgs | None = None,
        *,
        wrapper: RunContextWrapper[Any] | None = None,
    ) -> None:
        """Compacts after a turn if that is due, or in any case with `force`. No model of OpenAI is asked."""
        if wrapper is not None and (entries := wrapper.usage.request_usage_entries):
            self._conversation.use(entries[-1])
        if (args or {}).get("force") and wrapper is None:
            _trace(await self._conversation.acompact(await self.get_items()))
        else:
            _trace(await in_thread(self._conversation.refit))

    def _make_tool(self, tool: RecallTool) -> FunctionTool:
        async def answer(_context: Any, arguments: str) -> str:
            return await self._conversation.aanswer(tool.name, arguments)

        name, description, parameters = tool
        return FunctionTool(name, description, parameters, on_invoke_tool=answer, strict_json_schema=False)


def _trace(fitted: FittedMessages[Any]) -> None:
    if fitted.receipt is not None:
        with custom_span("penstock.compaction", fitted.receipt.to_dict()):
            pass
