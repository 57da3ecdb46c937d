"""LlamaIndex: a memory that keeps a conversation inside the window of its model, and an agent that keeps a whole run inside it.

    from penstock.integrations.llama_index import PenstockFunctionAgent, PenstockMemory

    memory = PenstockMemory("customer-7", store="sqlite:///agents.db", recall_tools=True)
    agent = PenstockFunctionAgent(llm=llm, tools=[*tools, *memory.tools])
    answer = await agent.run("…", memory=memory)

LlamaIndex's own agents keep the calls of a run outside their memory until it ends. `PenstockFunctionAgent` puts each call and
its result into the memory at once. A receipt is an event of LlamaIndex's instrumentation.
"""

from __future__ import annotations

import uuid
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Unpack

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage  # noqa: TC002  # a field's type
from llama_index.core.bridge.pydantic import BaseModel, Field, PrivateAttr, field_serializer
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.memory import BaseMemory
from llama_index.core.tools import FunctionTool, ToolMetadata
from llama_index.core.workflow import Context

from penstock.integrations.bridge import Bridge, BridgeOptions, write_options
from penstock.integrations.llama_index_messages import ChatMessageTranslator

if TYPE_CHECKING:
    from penstock.integrations.bridge import BridgedConversation, RecallTool

__all__ = ["CompactionEvent", "PenstockFunctionAgent", "PenstockMemory"]

_dispatcher = get_dispatcher(__name__)


class CompactionEvent(BaseEvent):
    """Tells a handler of LlamaIndex's instrumentation what a compaction did."""

    receipt: dict[str, Any]

    @classmethod
    def class_name(cls) -> str:
        """`PenstockCompactionEvent`."""
        return "PenstockCompactionEvent"


class PenstockMemory(BaseMemory):
    """One conversation, in memory or in a store. `get` compacts it if that is due. Serves one run at a time."""

    session_id: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    messages: list[ChatMessage] = Field(default_factory=list)
    _bridge: Bridge[ChatMessage] = PrivateAttr()

    def __init__(
        self, session_id: str | None = None, *, messages: Any = (), **options: Unpack[BridgeOptions]
    ) -> None:
        restored: Any = options.pop("options", {})  # type: ignore[typeddict-item]  # what `to_dict` wrote
        options = {**restored, **options}
        super().__init__(session_id=session_id or str(uuid.uuid4()), options=options, messages=list(messages))
        self._bridge = Bridge(ChatMessageTranslator(), "llama-index", options)
        if not messages and not self._bridge.in_memory:
            self.messages = self.conversation.read()

    @classmethod
    def class_name(cls) -> str:
        """`PenstockMemory`."""
        return "PenstockMemory"

    @classmethod
    def from_defaults(cls, **kwargs: Any) -> PenstockMemory:
        """Returns a memory; the arguments are those of the class."""
        return cls(**kwargs)

    @field_serializer("options")  # type: ignore[untyped-decorator]
    def _write_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the options that a saved context restores; the others are to be given anew."""
        return write_options(options)

    @property
    def conversation(self) -> BridgedConversation[ChatMessage]:
        """The conversation behind the memory."""
        return self._bridge.open(self.session_id)

    @property
    def tools(self) -> list[FunctionTool]:
        """The recall tools, for the agent; none unless `recall_tools` was asked for."""
        return self._bridge.make_tools(self._make_tool)

    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002, ARG002  # of the base
        """Returns the list to send: the newest handoff and what came since."""
        if self.messages:
            self.messages, _, receipt = self.conversation.fit(self.messages)
            if receipt is not None:
                _dispatcher.event(CompactionEvent(receipt=receipt.to_dict()))
        return list(self.messages)

    def get_all(self) -> list[ChatMessage]:
        """Returns the list as it stands, and compacts nothing. What has left it is in the store."""
        return list(self.messages)

    def put(self, message: ChatMessage) -> None:
        """Adds what was said."""
        self.messages.append(message)

    def set(self, messages: list[ChatMessage]) -> None:
        """Replaces the list. If it begins as the conversation does, it goes on from there."""
        self.messages = list(messages)

    def reset(self) -> None:
        """Empties the list. The store keeps what was said."""
        self.messages = []

    def _make_tool(self, tool: RecallTool) -> FunctionTool:
        class Arguments(BaseModel):
            @classmethod
            def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
                return dict(tool.parameters)

        async def answer(ctx: Context, **arguments: Any) -> str:
            held = await ctx.store.get("memory")  # in a restored context, not the one that gave the tools
            memory = held if isinstance(held, PenstockMemory) else self
            return await memory.conversation.aanswer(tool.name, arguments)

        answer.__annotations__["ctx"] = Context  # LlamaIndex looks for the class
        return FunctionTool(async_fn=answer, metadata=ToolMetadata(tool.description, tool.name, Arguments))


class PenstockFunctionAgent(FunctionAgent):
    """A `FunctionAgent` that puts every call and its result into its `PenstockMemory` at once."""

    async def take_step(self, ctx: Any, llm_input: list[ChatMessage], tools: Any, memory: BaseMemory) -> Any:
        """Asks the model, with the messages of the memory fitted to its window."""
        if not isinstance(memory, PenstockMemory):
            return await super().take_step(ctx, llm_input, tools, memory)
        memory.put_messages(await ctx.store.get(self.scratchpad_key, default=[]))
        await ctx.store.set(self.scratchpad_key, [])
        system = list(takewhile(lambda one: one.role.value == "system", llm_input))
        conversation, ask = memory.conversation, super().take_step
        conversation.name_model(self.llm.metadata.model_name)
        schemas = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
        conversation.surround("\n\n".join(one.content or "" for one in system), schemas)
        fitted = await memory.aget()
        output = await conversation.asend(fitted, lambda sent: ask(ctx, [*system, *sent], tools, memory))
        if isinstance(output.raw, dict) and output.raw.get("usage"):
            conversation.use(output.raw["usage"])
        return output
