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
from pydantic_ai import messages as native
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.toolsets import FunctionToolset

from penstock.integrations.bridge import Bridge, BridgeOptions, trace_compaction
from penstock.integrations.translators import PartsTranslator, read_text

if TYPE_CHECKING:
    from pydantic_ai import RunContext

    from penstock.integrations.bridge import FittedMessages, RecallTool

__all__ = ["HistoryTranslator", "PenstockCapability"]


class HistoryTranslator(PartsTranslator[ModelMessage, Any]):
    """pydantic-ai's messages in the dialect of Anthropic's API. The items of what a person said are parts, too."""

    system_parts = (native.SystemPromptPart,)

    def read_message(self, message: ModelMessage) -> tuple[str, Any]:
        """Returns the role and the parts."""
        return "user" if message.kind == "request" else "assistant", message.parts

    def make_message(self, role: str, parts: list[Any], original: Any) -> ModelMessage:
        """Returns a request or a response, with all else of the original."""
        made: Any = original or (native.ModelRequest(parts) if role == "user" else ModelResponse(parts))
        return replace(made, parts=parts)  # type: ignore[no-any-return]  # mypy does not know of which class

    def write_part(self, part: Any) -> list[dict[str, Any]]:  # noqa: C901, PLR0911, PLR0912  # each kind
        """Returns a block, or one for each item of what a person said."""
        match part:
            case native.UserPromptPart(content=several) if not isinstance(several, str):
                return self.write_parts(several)
            case str(text) | native.TextPart(text) | native.SystemPromptPart(text):
                return self.write_text(text)
            case native.UserPromptPart(text):
                return self.write_text(text)
            case native.ThinkingPart(content=text, signature=signature):
                return self.write_thinking(text, signature)
            case native.ToolCallPart(tool_call_id=call, tool_name=tool):
                return self.write_call(call, tool, part.args_as_dict())
            case native.NativeToolCallPart(tool_call_id=call, tool_name=tool):
                return self.write_call(call, tool, part.args_as_dict(), "server_tool_use")
            case native.NativeToolReturnPart(tool_call_id=call, tool_name=tool):
                return self.write_result(call, part.model_response_str(), kind=f"{tool}_tool_result")
            case native.ToolReturnPart(tool_call_id=call):
                return self.write_result(call, part.model_response_str(), failed=part.outcome != "success")
            case native.RetryPromptPart(tool_name=str(), tool_call_id=call):
                return self.write_result(call, part.model_response(), failed=True)
            case native.RetryPromptPart() | native.RetryFeedbackPart():
                return self.write_text(part.model_response())
            case native.CompactionPart(content=text):
                return [{"type": "compaction", "content": text}]
            case native.ImageUrl(url=url):
                return [{"type": "image", "source": {"type": "url", "url": url}}]
            case native.BinaryContent():
                return self.write_media(part.media_type, part.base64)
        return self.write_opaque(getattr(part, "part_kind", "content"), part)

    def rewrite_part(self, part: Any, blocks: list[dict[str, Any]]) -> Any:
        """Returns the part with what the blocks say now."""
        match part:
            case native.UserPromptPart(content=several) if not isinstance(several, str):
                return replace(part, content=self.rewrite_parts(several, blocks, "user"))
            case native.ToolCallPart():
                return replace(part, args=blocks[0]["input"])
        text = read_text(blocks[0])
        return replace(part, content=text) if hasattr(part, "part_kind") else text

    def make_part(self, text: str, role: str, call: str | None) -> Any:
        """Returns the result of a call, or a text."""
        if call is not None:
            return native.ToolReturnPart("unknown", text, call)
        return (native.UserPromptPart if role == "user" else native.TextPart)(text)


class PenstockCapability(AbstractCapability[Any]):
    """Compacts the history of a run before a model request, if that is due. One instance serves any number of runs."""

    def __init__(self, **options: Unpack[BridgeOptions]) -> None:
        self._bridge: Bridge[ModelMessage] = Bridge(HistoryTranslator(), "pydantic-ai", options)

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """Returns the recall tools, if they were asked for."""
        return FunctionToolset(tools) if (tools := self._bridge.make_tools(self._make_tool)) else None

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """Replaces the messages of the request and of the run if they were compacted."""
        beside = request_context.model_request_parameters
        conversation = self._bridge.open(
            ctx.conversation_id,
            request_context.messages,
            model=request_context.model.model_name,
            system="\n\n".join(part.content for part in beside.instruction_parts or ()),
            tools=[(one.name, one.description, one.parameters_json_schema) for one in beside.function_tools],
        )
        fitted = await conversation.afit(request_context.messages)
        return _replace(ctx, request_context, fitted) if fitted.changed else request_context

    async def on_model_request_error(self, ctx: Any, *, request_context: Any, error: Exception) -> Any:
        """Sends a request that the provider refused as too long again, smaller; raises other errors as they are."""
        refused = request_context.messages
        fitted = await self._bridge.open(ctx.conversation_id, refused).arecover(refused, error)
        again = _replace(ctx, request_context, fitted)
        return await again.model.request(again.messages, again.model_settings, again.model_request_parameters)

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        """Records what the provider counted."""
        conversation = self._bridge.open(ctx.conversation_id, request_context.messages)
        conversation.use(response.usage, includes_cache=True)
        return response

    async def compact(self, messages: list[ModelMessage], ctx: RunContext[Any]) -> list[ModelMessage]:
        """Returns the messages compacted now, whatever they take: a strategy of pydantic-ai-harness."""
        fitted = await self._bridge.open(ctx.conversation_id, messages).acompact(messages)
        trace_compaction(fitted.receipt, ctx.tracer)
        return fitted.messages

    def _make_tool(self, tool: RecallTool) -> Tool[Any]:
        async def answer(ctx: RunContext[Any], **arguments: Any) -> str:
            return await self._bridge.open(ctx.conversation_id, ctx.messages).aanswer(tool.name, arguments)

        return Tool.from_schema(answer, *tool, takes_ctx=True)


def _replace(ctx: RunContext[Any], request: Any, fitted: FittedMessages[Any]) -> Any:
    """Returns the request with the fitted messages, which are the run's from now on."""
    trace_compaction(fitted.receipt, ctx.tracer)
    ctx.messages[:] = fitted.messages
    return replace(request, messages=list(fitted.messages))
