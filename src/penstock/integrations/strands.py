"""Strands Agents: a conversation manager that keeps an agent's messages inside the window of its model.

    from strands import Agent
    from penstock.integrations.strands import PenstockConversationManager

    agent = Agent(model, tools=tools, conversation_manager=PenstockConversationManager(recall_tools=True))

Messages are compacted in place before a model call, within a run as well as between runs, and again where the provider refuses
them as too long. A session manager restores the compacted list; the conversation is the one of its session. A receipt is a span
of the global OpenTelemetry tracer. One manager serves one agent.
"""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING, Any, Unpack

from opentelemetry import trace
from strands.agent.conversation_manager import ConversationManager
from strands.hooks import AfterModelCallEvent, AgentInitializedEvent, BeforeModelCallEvent
from strands.tools.tools import PythonAgentTool

from penstock.conversation.wire import json_text
from penstock.integrations.bridge import Bridge, BridgeOptions, trace_compaction
from penstock.integrations.translators import (
    PartsTranslator,
    read_text,
    write_call,
    write_media,
    write_result,
    write_text,
    write_thinking,
)

if TYPE_CHECKING:
    from strands import Agent
    from strands.hooks import HookRegistry

    from penstock.integrations.bridge import BridgedConversation, FittedMessages

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
                return [write_text(text)] if text else []
            case {"toolUse": {"toolUseId": call, "name": tool, "input": arguments}}:
                return [write_call(call, tool, arguments)]
            case {"toolResult": {"toolUseId": call, "content": content, **rest}}:
                told = [block for one in content for block in self._write_inner(one)]
                return [write_result(call, told, failed=rest.get("status") == "error")]
            case {"reasoningContent": {"reasoningText": thought}}:
                return [write_thinking(thought.get("text", ""), thought.get("signature"))]
            case {"image": {"format": kind, "source": {"bytes": data}}}:
                return [write_media(f"image/{kind}", base64.b64encode(data).decode())]
            case {"document": {"format": kind, "source": {"bytes": data}}}:
                return [write_media(f"application/{kind}", base64.b64encode(data).decode())]
        return [
            {"type": next(iter(part), "content"), "value": repr(part)}
        ]  # kept with its message, and never read

    def rewrite_part(self, part: dict[str, Any], blocks: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the content block with what it says now."""
        match part:
            case {"toolUse": call}:
                return {**part, "toolUse": {**call, "input": blocks[0]["input"]}}
            case {"toolResult": result}:
                return {**part, "toolResult": {**result, "content": [{"text": read_text(blocks[0])}]}}
        return {"text": read_text(blocks[0])}

    def make_part(self, block: dict[str, Any], role: str) -> dict[str, Any]:  # noqa: ARG002  # of the base
        """Returns the result of a call, or a text."""
        text = {"text": read_text(block)}
        if block["type"] != "tool_result":
            return text
        return {"toolResult": {"toolUseId": block["tool_use_id"], "status": "error", "content": [text]}}

    def _write_inner(self, part: dict[str, Any]) -> list[dict[str, Any]]:
        return [write_text(json_text(part["json"]))] if "json" in part else self.write_part(part)


class PenstockConversationManager(ConversationManager):
    """Compacts the messages of an agent before a model call, where that is due."""

    def __init__(self, **options: Unpack[BridgeOptions]) -> None:
        super().__init__()
        self._bridge: Bridge[dict[str, Any]] = Bridge(ConverseTranslator(), "strands", options)
        self._compacted: list[dict[str, Any]] = []  # the list after the last compaction, for the session
        self._refusals = 0

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Subscribes to what happens around a model call, and adds the recall tools where they were asked for."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._add_tools)
        registry.add_callback(BeforeModelCallEvent, self._fit)
        registry.add_callback(AfterModelCallEvent, self._take_usage)

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Does nothing after a run: the next model call looks at what it was given."""

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Compacts what the provider refused, and raises its error where that cannot help; without one, compacts now."""
        conversation = self._open(agent)
        if e is None:
            self._replace(agent, conversation.compact(agent.messages))
            return
        self._refusals += 1
        fitted = conversation.recover(agent.messages, e, self._refusals, too_long=True)
        if fitted is None or not fitted.changed:
            raise e
        self._replace(agent, fitted)

    def get_state(self) -> dict[str, Any]:
        """Returns the compacted list, and how many messages of the session it stands for."""
        return {**super().get_state(), "messages": self._compacted}

    def restore_from_session(self, state: dict[str, Any]) -> list[Any] | None:
        """Returns the compacted list: the session puts what was said since behind it."""
        super().restore_from_session(state)
        self._compacted = list(state.get("messages") or ())
        return list(self._compacted) or None

    def _add_tools(self, event: AgentInitializedEvent) -> None:
        for schema in self._bridge.recall_schemas:
            event.agent.tool_registry.register_tool(self._make_tool(schema["function"]))

    async def _fit(self, event: BeforeModelCallEvent) -> None:
        self._replace(event.agent, await self._open(event.agent).afit(event.agent.messages))

    def _replace(self, agent: Agent, fitted: FittedMessages[dict[str, Any]]) -> None:
        trace_compaction(fitted.receipt, trace.get_tracer("penstock"))
        if fitted.changed:
            self.removed_message_count += len(agent.messages) - len(self._compacted)
            self._compacted = list(fitted.messages)
            agent.messages[:] = fitted.messages

    def _take_usage(self, event: AfterModelCallEvent) -> None:
        answer = event.stop_response
        if answer is not None and (usage := answer.message.get("metadata", {}).get("usage")):
            self._refusals = 0
            read, written = usage.get("cacheReadInputTokens"), usage.get("cacheWriteInputTokens")
            # Some models count what was cached in the input, some beside it.
            prompt = max(usage["inputTokens"], usage["totalTokens"] - usage["outputTokens"])
            self._open(event.agent).use_counts(prompt, usage["outputTokens"], read, written)

    def _open(self, agent: Agent) -> BridgedConversation[dict[str, Any]]:
        """Returns the conversation: that of the session, or without one the one that the messages continue."""
        stored = getattr(getattr(agent, "_session_manager", None), "session_id", None)
        if not self._bridge.options.get("context_length"):
            self._bridge.options["context_length"] = agent.model.context_window_limit
        conversation = self._bridge.open(stored and f"{stored}/{agent.agent_id}", agent.messages)
        config: Any = agent.model.get_config()
        conversation.name_model(str(config.get("model_id") or "") if isinstance(config, dict) else "")
        conversation.surround(agent.system_prompt, agent.tool_registry.get_all_tool_specs())
        return conversation

    def _make_tool(self, function: dict[str, Any]) -> PythonAgentTool:
        async def answer(tool_use: Any, agent: Agent, **_: Any) -> dict[str, Any]:
            text = await self._open(agent).aanswer(function["name"], tool_use["input"])
            return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": text}]}

        spec = {"name": function["name"], "description": function["description"]}
        return PythonAgentTool(
            function["name"], {**spec, "inputSchema": {"json": function["parameters"]}}, answer
        )
