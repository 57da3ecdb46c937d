"""Microsoft Agent Framework: a context provider that keeps every model call of an agent inside the window of its model.

    from agent_framework import Agent
    from penstock.integrations.agent_framework import PenstockContextProvider

    agent = Agent(client, context_providers=[PenstockContextProvider(recall_tools=True)])

Each model call is fitted, however many tools a run calls. The history of the session stays whole, since the framework keeps it,
and so it may be stored and resumed as ever; the conversation is the one of the session. A receipt is a span of the framework's
tracer. A request that the provider refuses as too long is compacted and sent again, unless it streams.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Unpack

from agent_framework import ChatMiddleware, Content, ContextProvider, FunctionTool, Message
from agent_framework.observability import get_tracer

from penstock.integrations.bridge import Bridge, BridgeOptions, trace_compaction
from penstock.integrations.translators import PartsTranslator, read_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from agent_framework import AgentSession, ChatContext, SessionContext

    from penstock.integrations.bridge import RecallTool

__all__ = ["ContentsTranslator", "PenstockContextProvider"]

_COUNTS = (
    "input_token_count",
    "output_token_count",
    "cache_read_input_token_count",
    "cache_creation_input_token_count",
)


class ContentsTranslator(PartsTranslator[Message, Content]):
    """The framework's messages, which are lists of contents, in the dialect of Anthropic's API."""

    def is_system(self, message: Message) -> bool:
        """Returns True for a system message."""
        return message.role == "system"

    def read_message(self, message: Message) -> tuple[str, Sequence[Content]]:
        """Returns the role, in which results of tools are the user's, and the contents."""
        return "assistant" if message.role == "assistant" else "user", message.contents

    def make_message(self, role: str, parts: list[Content], original: Message | None) -> Message:
        """Returns a copy of the original with these contents, or a new message."""
        if original is None:
            return Message("tool" if any(one.type == "function_result" for one in parts) else role, parts)
        made = copy.copy(original)
        made.contents, made.additional_properties = parts, dict(original.additional_properties)
        return made

    def write_part(self, part: Content) -> list[dict[str, Any]]:
        """Returns the block that says what the content says; none for an empty text and for usage."""
        match part.type:
            case "text":
                return self.write_text(part.text)
            case "usage":
                return []
            case "text_reasoning":
                return self.write_thinking(part.text, part.protected_data)
            case "function_call":
                return self.write_call(part.call_id, part.name, part.parse_arguments() or {})
            case "function_result":
                told = self.write_parts(part.items or ())
                return self.write_result(part.call_id, told or "", failed=part.exception is not None)
            case "data" if part.uri and part.media_type:
                return self.write_media(part.media_type, part.uri.partition(",")[2])
        return self.write_opaque(part.type, part.to_dict())

    def rewrite_part(self, part: Content, blocks: list[dict[str, Any]]) -> Content:
        """Returns a copy of the content with what it says now."""
        made = copy.copy(part)
        if part.type == "function_call":
            made.arguments = blocks[0]["input"]
        elif part.type == "function_result":
            made.result = read_text(blocks[0])
            made.items = [Content.from_text(made.result)]
        else:
            made.text = read_text(blocks[0])
        return made

    def make_part(self, text: str, role: str, call: str | None) -> Content:  # noqa: ARG002  # of the base
        """Returns the result of a call, or a text."""
        return Content.from_function_result(call, result=text) if call else Content.from_text(text)


class PenstockContextProvider(ContextProvider, ChatMiddleware):
    """Compacts the messages of a model call, if that is due. One instance serves any number of sessions."""

    def __init__(self, source_id: str = "penstock", **options: Unpack[BridgeOptions]) -> None:
        super().__init__(source_id)
        self._bridge: Bridge[Message] = Bridge(ContentsTranslator(), "agent-framework", options)

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Puts itself around the model calls of the run, and adds the recall tools if they were asked for."""
        del agent, state
        context.extend_middleware(self.source_id, [self])
        tools = self._bridge.make_tools(lambda tool: self._make_tool(tool, session))
        context.extend_tools(self.source_id, tools)

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Sends the messages of a model call compacted if that is due, and learns what the provider counted."""
        options = context.options or {}
        if options.get("conversation_id"):  # the service keeps the messages
            await call_next()
            return
        tools = [tool for tool in options.get("tools") or () if isinstance(tool, FunctionTool)]
        conversation = self._bridge.open(
            context.session.session_id if context.session else None,
            context.messages,
            model=str(options.get("model") or getattr(context.client, "model", None) or ""),
            system=options.get("instructions"),
            tools=[tool.to_json_schema_spec() for tool in tools],
        )

        def take_usage(response: Any) -> None:
            used = getattr(response, "usage_details", None) or {}
            conversation.use_counts(*map(used.get, _COUNTS))

        async def ask(sent: list[Message]) -> None:
            context.messages = sent
            await call_next()

        fitted = await conversation.afit(context.messages)
        trace_compaction(fitted.receipt, get_tracer())
        context.stream_result_hooks.append(take_usage)
        await conversation.asend(fitted.messages, ask)
        if not context.stream:
            take_usage(context.result)

    def _make_tool(self, tool: RecallTool, session: AgentSession) -> FunctionTool:
        async def answer(**arguments: Any) -> str:
            return await self._bridge.open(session.session_id).aanswer(tool.name, arguments)

        name, description, parameters = tool
        return FunctionTool(name=name, description=description, input_model=parameters, func=answer)
