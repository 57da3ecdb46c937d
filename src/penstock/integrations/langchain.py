"""LangChain and LangGraph: middleware that keeps an agent's messages inside the window of its model.

    from langchain.agents import create_agent
    from penstock.integrations.langchain import PenstockMiddleware

    agent = create_agent(model, tools, middleware=[PenstockMiddleware(recall_tools=True)])

A compaction is written to the agent's state, and so to its checkpoint. The conversation is the one of the `thread_id`. Each
receipt goes to the stream mode `custom` as `{"penstock": {…}}`. A request that the provider refuses as too long is compacted
and sent again. Place it before any middleware that summarises.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Unpack

from langchain.agents.middleware import AgentMiddleware
from langchain_core import messages as native
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from penstock.integrations.bridge import Bridge, BridgeOptions
from penstock.integrations.translators import ChatMessageParts, ChatTranslator, write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain.agents.middleware import AgentState, ModelRequest
    from langgraph.runtime import Runtime

    from penstock.integrations.bridge import BridgedConversation, FittedMessages, RecallTool

__all__ = ["MessageTranslator", "PenstockMiddleware"]

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_CALL_BLOCKS = ("tool_use", "tool_call", "function_call", "input_json_delta")  # calls, once more


class MessageTranslator(ChatTranslator[BaseMessage]):
    """LangChain's messages, in the Chat Completions dialect."""

    def read_message(self, message: BaseMessage) -> ChatMessageParts:
        """Returns what the message says; calls that stand in its content, too, are read once."""
        role, answers = _ROLES.get(message.type, "user"), getattr(message, "tool_call_id", None)
        content: Any = message.content
        if not isinstance(content, str):
            content = [
                write_text(one) if isinstance(one, str) else one for one in content if not _is_call(one)
            ]
        calls = [*message.tool_calls, *message.invalid_tool_calls] if isinstance(message, AIMessage) else ()
        told = [(call["id"] or "", call["name"] or "", call["args"]) for call in calls]
        return ChatMessageParts(role, content, told, answers)

    def make_message(self, told: ChatMessageParts) -> BaseMessage:
        """Returns a message with an id of its own, marked as LangChain marks summaries."""
        (made,) = native.convert_to_messages([told.to_wire()])
        made.id, made.additional_kwargs = str(uuid.uuid4()), {"lc_source": "summarization"}
        return made

    def rewrite_message(self, original: BaseMessage, content: Any, arguments: dict[str, Any]) -> BaseMessage:
        """Returns a copy; its calls have their new arguments wherever they stand."""
        if not isinstance(original, AIMessage):
            return original.model_copy(update={"content": content})
        calls = [{**call, "args": arguments[call["id"] or ""]} for call in original.tool_calls]
        if not isinstance(original.content, str):
            said = [content] if isinstance(content, str) and content else content
            inside: list[Any] = [block for block in original.content if _is_call(block)]
            for place, call in enumerate(inside):
                if "input" in call:
                    inside[place] = {**call, "input": arguments.get(call.get("id"), call["input"])}
            content = [*said, *inside]
        return original.model_copy(update={"content": content, "tool_calls": calls})


class PenstockMiddleware(AgentMiddleware[Any, Any, Any]):
    """Compacts the state of an agent before a model call, if that is due. One instance serves any number of threads."""

    def __init__(self, **options: Unpack[BridgeOptions]) -> None:
        super().__init__()
        self._bridge: Bridge[Any] = Bridge(MessageTranslator(), "langchain", options)
        self.tools = self._bridge.make_tools(self._make_tool)

    def before_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Replaces the messages of the state if they were compacted."""
        return _replace(self._open(state["messages"]).fit(state["messages"]), runtime)

    async def abefore_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """As `before_model`, without blocking the event loop."""
        return _replace(await self._open(state["messages"]).afit(state["messages"]), runtime)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        """Learns what stands beside the messages; sends a request that was too long again, smaller."""
        opened = self._open_request(request)
        return opened.send(request.messages, lambda sent: handler(request.override(messages=sent)))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        """As `wrap_model_call`, without blocking the event loop."""
        opened = self._open_request(request)
        return await opened.asend(request.messages, lambda sent: handler(request.override(messages=sent)))

    def after_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:  # noqa: ARG002  # of the interface
        """Records what the provider counted."""
        last = state["messages"][-1]
        if isinstance(last, AIMessage) and last.usage_metadata:
            self._open(state["messages"]).use(last.usage_metadata)

    def _open(self, messages: Sequence[BaseMessage], **beside: Any) -> BridgedConversation[Any]:
        return self._bridge.open(_read_thread(), messages, **beside)

    def _open_request(self, request: ModelRequest[Any]) -> BridgedConversation[Any]:
        return self._open(
            request.messages,
            model=str(getattr(request.model, "model_name", "") or getattr(request.model, "model", "") or ""),
            system=request.system_message and request.system_message.text,
            tools=[one if isinstance(one, dict) else convert_to_openai_tool(one) for one in request.tools],
        )

    def _make_tool(self, tool: RecallTool) -> StructuredTool:
        def answer(runtime: Any, **arguments: Any) -> str:
            return self._open(runtime.state["messages"]).answer(tool.name, arguments)

        name, description, parameters = tool
        return StructuredTool(name=name, description=description, args_schema=parameters, func=answer)


def _replace(fitted: FittedMessages[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
    if fitted.receipt is not None:
        runtime.stream_writer({"penstock": fitted.receipt.to_dict()})
    messages = [native.RemoveMessage(id=REMOVE_ALL_MESSAGES), *fitted.messages]
    return {"messages": messages} if fitted.changed else None


def _read_thread() -> str | None:
    """Returns the name of the conversation; a graph inside another graph of the thread has its own."""
    try:
        configurable = get_config().get("configurable", {})
    except RuntimeError:  # outside of a graph
        return None
    around = str(configurable.get("checkpoint_ns", "")).rpartition("|")[0]
    thread = configurable.get("thread_id")
    return None if not thread else f"{thread}|{around}" if around else str(thread)


def _is_call(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _CALL_BLOCKS
