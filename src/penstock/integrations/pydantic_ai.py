"""pydantic-ai: a capability that keeps the messages of a run inside the window of its model.

    from pydantic_ai import Agent
    from penstock.integrations.pydantic_ai import PenstockCapability

    agent = Agent(model, capabilities=[PenstockCapability(recall_tools=True)])

A compaction replaces the history of the run, so that `result.all_messages()` is the compacted one. The conversation is the
one of the run's `conversation_id`. A receipt is a span of the run's tracer. A request that the provider refuses as too long is
compacted and sent again. The capability is a `CompactionStrategy` of pydantic-ai-harness, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from pydantic_ai import Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.toolsets import FunctionToolset

from penstock.engine.threads import in_thread
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
    from collections.abc import Sequence

    from pydantic_ai import RunContext
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import ModelRequestContext

    from penstock.integrations.bridge import BridgedConversation, FittedMessages

__all__ = ["HistoryTranslator", "PenstockCapability"]


class HistoryTranslator(PartsTranslator["ModelMessage", Any]):
    """pydantic-ai's messages in the dialect of Anthropic's API."""

    def read_message(self, message: ModelMessage) -> tuple[str, Sequence[Any]]:
        """Returns the role and the parts."""
        return "user" if isinstance(message, ModelRequest) else "assistant", message.parts

    def make_message(self, role: str, parts: list[Any], original: ModelMessage | None) -> ModelMessage:
        """Returns a request or a response."""
        if isinstance(original, ModelRequest):
            return replace(original, parts=parts)
        if original is not None:
            return replace(original, parts=parts)
        return ModelRequest(parts=parts) if role == "user" else ModelResponse(parts=parts)

    def write_part(self, part: Any) -> list[dict[str, Any]]:
        """Returns a block, or one for each item of what a person said."""
        match part:
            case UserPromptPart(content=several) if not isinstance(several, str):
                return [_write_item(item) for item in several]
            case UserPromptPart(content=str(text)) | TextPart(content=text) | SystemPromptPart(content=text):
                return [write_text(text)] if text else []
            case ThinkingPart(content=text, signature=signature):
                return [write_thinking(text, signature)]
        return [_write_other(part)]

    def rewrite_part(self, part: Any, blocks: list[dict[str, Any]]) -> Any:
        """Returns the part with what the blocks say now."""
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            pairs = zip(part.content, blocks, strict=True)
            items = [item if block == _write_item(item) else read_text(block) for item, block in pairs]
            return replace(part, content=items)
        if isinstance(part, ToolCallPart):
            return replace(part, args=blocks[0]["input"])
        return replace(part, content=read_text(blocks[0]))

    def make_part(self, block: dict[str, Any], role: str) -> Any:
        """Returns the result of a call, or a text."""
        if block["type"] == "tool_result":
            return ToolReturnPart("unknown", read_text(block), block["tool_use_id"])
        return UserPromptPart(read_text(block)) if role == "user" else TextPart(read_text(block))


class PenstockCapability(AbstractCapability[Any]):
    """Compacts the history of a run before a model request, where that is due. One instance serves any number of runs."""

    def __init__(self, **options: Unpack[BridgeOptions]) -> None:
        self._bridge: Bridge[ModelMessage] = Bridge(HistoryTranslator(), "pydantic-ai", options)

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """Returns the recall tools, where they were asked for."""
        tools = [self._make_tool(schema["function"]) for schema in self._bridge.recall_schemas]
        return FunctionToolset(tools) if tools else None

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Replaces the messages of the request and of the run where they were compacted."""
        system, messages = _part_system(request_context.messages)
        conversation = self._bridge.open(ctx.conversation_id, messages)
        conversation.name_model(request_context.model.model_name)
        parameters = request_context.model_request_parameters
        instructions = [part.content for part in (*system, *(parameters.instruction_parts or ()))]
        schemas = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema}
            for tool in parameters.function_tools
        ]
        conversation.surround("\n\n".join(instructions), schemas)
        fitted = await conversation.afit(messages)
        return _replace(ctx, request_context, fitted, system) if fitted.changed else request_context

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Sends a request that the provider refused as too long again, smaller; raises other errors as they are."""
        system, messages = _part_system(request_context.messages)
        conversation = self._bridge.open(ctx.conversation_id, messages)
        fitted = await in_thread(conversation.recover, messages, error)
        if fitted is None:
            raise error
        again = _replace(ctx, request_context, fitted, system)
        return await again.model.request(again.messages, again.model_settings, again.model_request_parameters)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Takes note of what the provider counted."""
        used, conversation = response.usage, self._open(ctx, request_context.messages)
        conversation.use_counts(
            used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens
        )
        return response

    async def compact(self, messages: list[ModelMessage], ctx: RunContext[Any]) -> list[ModelMessage]:
        """Returns the messages compacted now, whatever they take: a strategy of pydantic-ai-harness."""
        system, rest = _part_system(messages)
        fitted = await in_thread(self._bridge.open(ctx.conversation_id, rest).compact, rest)
        trace_compaction(fitted.receipt, ctx.tracer)
        return _join_system(system, fitted.messages) if fitted.changed else messages

    def _open(
        self, ctx: RunContext[Any], messages: Sequence[ModelMessage]
    ) -> BridgedConversation[ModelMessage]:
        return self._bridge.open(ctx.conversation_id, _part_system(messages)[1])

    def _make_tool(self, function: dict[str, Any]) -> Tool[Any]:
        async def answer(ctx: RunContext[Any], **arguments: Any) -> str:
            return await self._open(ctx, ctx.messages).aanswer(function["name"], arguments)

        return Tool.from_schema(
            answer, function["name"], function["description"], function["parameters"], takes_ctx=True
        )


def _replace(
    ctx: RunContext[Any],
    request: ModelRequestContext,
    fitted: FittedMessages[ModelMessage],
    system: list[SystemPromptPart],
) -> ModelRequestContext:
    """Returns the request with the fitted messages, which are the run's from now on."""
    trace_compaction(fitted.receipt, ctx.tracer)
    ctx.messages[:] = _join_system(system, fitted.messages)
    return replace(request, messages=list(ctx.messages))


def _part_system(messages: Sequence[ModelMessage]) -> tuple[list[SystemPromptPart], list[ModelMessage]]:
    """Returns the system prompt at the beginning, which is never compacted, and the rest."""
    if not messages or not isinstance(first := messages[0], ModelRequest):
        return [], list(messages)
    system = [part for part in first.parts if isinstance(part, SystemPromptPart)]
    if not system:
        return [], list(messages)
    rest = [part for part in first.parts if not isinstance(part, SystemPromptPart)]
    return system, [*([replace(first, parts=rest)] if rest else []), *messages[1:]]


def _join_system(system: list[SystemPromptPart], messages: list[ModelMessage]) -> list[ModelMessage]:
    """Returns the messages with the system prompt at their beginning again."""
    if not system:
        return messages
    if messages and isinstance(first := messages[0], ModelRequest):
        return [replace(first, parts=[*system, *first.parts]), *messages[1:]]
    return [ModelRequest(parts=system), *messages]


def _write_other(part: Any) -> dict[str, Any]:
    match part:
        case ToolCallPart(tool_call_id=call, tool_name=tool):
            return write_call(call, tool, part.args_as_dict())
        case NativeToolCallPart(tool_call_id=call, tool_name=tool):
            return {**write_call(call, tool, part.args_as_dict()), "type": "server_tool_use"}
        case NativeToolReturnPart(tool_call_id=call, tool_name=tool):
            return {**write_result(call, part.model_response_str()), "type": f"{tool}_tool_result"}
        case ToolReturnPart(tool_call_id=call):
            return write_result(call, part.model_response_str(), failed=part.outcome != "success")
        case RetryPromptPart(tool_name=str(), tool_call_id=call):
            return write_result(call, part.model_response(), failed=True)
        case RetryPromptPart() | RetryFeedbackPart():
            return write_text(part.model_response())
        case CompactionPart(content=text):
            return {"type": "compaction", "content": text}
    return {"type": part.part_kind, "value": repr(part)}  # kept with its message, and never read


def _write_item(item: Any) -> dict[str, Any]:
    match item:
        case str():
            return write_text(item)
        case ImageUrl(url=url):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case BinaryContent():
            return write_media(item.media_type, item.base64)
    return {"type": getattr(item, "kind", "content"), "value": repr(item)}
