"""Strands Agents: a conversation manager that keeps an agent's messages inside the window of its model.

    from strands import Agent
    from penstock.integrations.strands import PenstockConversationManager

    agent = Agent(model, tools=tools, conversation_manager=PenstockConversationManager(recall_tools=True))

Messages are compacted in place before a model call, within a run as well as between runs, and again if the provider refuses
them as too long. A session manager restores the compacted list; the conversation is the one of its session. A receipt is a span
of the global OpenTelemetry tracer. One manager serves one agent.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Unpack

from opentelemetry import trace
from strands.agent.conversation_manager import ConversationManager
from strands.hooks import AfterModelCallEvent, AgentInitializedEvent, BeforeModelCallEvent
from strands.tools.tools import PythonAgentTool

from penstock.conversation.wire import json_text
from penstock.integrations.bridge import Bridge, BridgeOptions, trace_compaction
from penstock.integrations.translators import PartsTranslator, read_text

if TYPE_CHECKING:
    from strands import Agent
    from strands.hooks import HookRegistry

    from penstock.integrations.bridge import BridgedConversation, FittedMessages, RecallTool

__all__ = ["ConverseTranslator", "PenstockConversationManager"]


class ConverseTranslator(PartsTranslator[dict[str, Any], dict[str, Any]]):
    """The messages of Bedrock's Converse API, which are those of Strands, in the dialect of Anthropic's."""

    def read_message(self, message: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
        """Returns the role and the content."""
        return message["role"], message["content"]

    def make_message(self, role: str, parts: list[Any], original: dict[str, Any] | None) -> dict[str, Any]:
        """Returns a message with the tracking id and the metadata of the original."""
        return {"tracking_id": str(uuid.uuid4()), **(original or {}), "role": role, "content": parts}

    def write_part(self, part: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the block that says what the content block says; none for an empty text."""
        match part:
            case {"text": str(text)}:
                return self.write_text(text)
            case {"json": value}:  # of a result
                return self.write_text(json_text(value))
            case {"toolUse": {"toolUseId": call, "name": tool, "input": arguments}}:
                return self.write_call(call, tool, arguments)
            case {"toolResult": {"toolUseId": call, "content": told, **rest}}:
                return self.write_result(call, self.write_parts(told), failed=rest.get("status") == "error")
            case {"reasoningContent": {"reasoningText": thought}}:
                return self.write_thinking(thought.get("text"), thought.get("signature"))
            case {"image": {"format": kind, "source": {"bytes": data}}}:
                return self.write_media(f"image/{kind}", data)
            case {"document": {"format": kind, "source": {"bytes": data}}}:
                return self.write_media(f"application/{kind}", data)
        return self.write_opaque(next(iter(part), "content"), part)

    def rewrite_part(self, part: dict[str, Any], blocks: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the content block with what it says now."""
        match part:
            case {"toolUse": call}:
                return {**part, "toolUse": {**call, "input": blocks[0]["input"]}}
            case {"toolResult": result}:
                return {**part, "toolResult": {**result, "content": [{"text": read_text(blocks[0])}]}}
        return {"text": read_text(blocks[0])}

    def make_part(self, text: str, role: str, call: str | None) -> dict[str, Any]:  # noqa: ARG002  # of the base
        """Returns the result of a call, or a text."""
        if call is None:
            return {"text": text}
        return {"toolResult": {"toolUseId": call, "status": "error", "content": [{"text": text}]}}


class PenstockConversationManager(ConversationManager):
    """Compacts the messages of an agent before a model call, if that is due."""

    def __init__(self, **options: Unpack[BridgeOptions]) -> None:
        super().__init__()
        self._bridge: Bridge[dict[str, Any]] = Bridge(ConverseTranslator(), "strands", options)
        self._compacted: list[dict[str, Any]] = []  # the list after the last compaction, for the session

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Subscribes to what happens around a model call, and adds the recall tools if they were asked for."""
        super().register_hooks(registry, **kwargs)
        tools = self._bridge.make_tools(self._make_tool)
        registry.add_callback(AgentInitializedEvent, lambda new: new.agent.tool_registry.process_tools(tools))
        registry.add_callback(BeforeModelCallEvent, self._fit)
        registry.add_callback(AfterModelCallEvent, self._take_usage)

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Does nothing after a run: the next model call looks at what it was given."""

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Compacts what the provider refused, and raises its error if that cannot help; without one, compacts now."""
        given, conversation = agent.messages, self._open(agent)
        fitted = conversation.recover(given, e, too_long=True) if e else conversation.compact(given)
        self._replace(agent, fitted)

    def get_state(self) -> dict[str, Any]:
        """Returns the compacted list, and how many messages of the session it stands for."""
        return {**super().get_state(), "messages": self._compacted}

    def restore_from_session(self, state: dict[str, Any]) -> list[Any] | None:
        """Returns the compacted list: the session puts what was said since behind it."""
        super().restore_from_session(state)
        self._compacted = list(state.get("messages") or ())
        return list(self._compacted) or None

    async def _fit(self, event: BeforeModelCallEvent) -> None:
        self._replace(event.agent, await self._open(event.agent).afit(event.agent.messages))

    def _replace(self, agent: Agent, fitted: FittedMessages[dict[str, Any]]) -> None:
        trace_compaction(fitted.receipt, trace.get_tracer("penstock"))
        if fitted.changed:
            self.removed_message_count += len(agent.messages) - len(self._compacted)
            self._compacted = list(fitted.messages)
            agent.messages[:] = fitted.messages

    def _take_usage(self, event: AfterModelCallEvent) -> None:
        if (answer := event.stop_response) is not None:
            self._open(event.agent).use(answer.message.get("metadata", {}).get("usage"))

    def _open(self, agent: Agent) -> BridgedConversation[dict[str, Any]]:
        """Returns the conversation: that of the session, or without one the one that the messages continue."""
        stored = getattr(getattr(agent, "_session_manager", None), "session_id", None)
        config: Any = agent.model.get_config()
        return self._bridge.open(
            stored and f"{stored}/{agent.agent_id}",
            agent.messages,
            model=str(config.get("model_id") or "") if isinstance(config, dict) else "",
            window=agent.model.context_window_limit,
            system=agent.system_prompt,
            tools=agent.tool_registry.get_all_tool_specs(),
        )

    def _make_tool(self, tool: RecallTool) -> PythonAgentTool:
        async def answer(tool_use: Any, agent: Agent, **_: Any) -> dict[str, Any]:
            text = await self._open(agent).aanswer(tool.name, tool_use["input"])
            return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": text}]}

        spec = {"name": tool.name, "description": tool.description, "inputSchema": {"json": tool.parameters}}
        return PythonAgentTool(tool.name, spec, answer)
