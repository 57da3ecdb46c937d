"""The examples run, against the scripted provider, through each framework's own client of it."""

from __future__ import annotations

import asyncio
import json

from agent_framework import AgentSession
from agent_framework.openai import OpenAIChatCompletionClient
from agents import OpenAIResponsesModel, set_tracing_disabled
from examples import agent_framework_agent, langchain_agent, openai_agents_sdk, pydantic_ai_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from openai import AsyncOpenAI, OpenAI
from pydantic import ConfigDict
from pydantic_ai import UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from penstock import open_store
from penstock.integrations.langchain import MessageTranslator
from tests.integrations import long_task as task
from tests.integrations.long_task import read


class ClientChat(BaseChatModel):
    """LangChain's way to a model, over the official client: its own package for that is not in our environment."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    client: OpenAI
    model_name: str = "gpt-4o"

    @property
    def _llm_type(self):
        return "client"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        wires = [MessageTranslator().to_wire(one) for one in messages]
        message = (
            self.client.chat.completions.create(model=self.model_name, messages=wires).choices[0].message
        )
        wire = message.model_dump(exclude_none=True)
        calls = [
            {
                "id": one["id"],
                "name": one["function"]["name"],
                "args": json.loads(one["function"]["arguments"]),
            }
            for one in wire.get("tool_calls", ())
        ]
        made = AIMessage(wire.get("content") or "", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=made)])


def test_langchain(provider):
    with OpenAI(base_url=f"{provider.base_url}/v1", api_key="none") as client:
        agent = langchain_agent.make_agent(ClientChat(client=client), read, InMemorySaver(), task.WINDOW // 2)
        config = {"configurable": {"thread_id": "7"}, "recursion_limit": 300}
        result = agent.invoke({"messages": [HumanMessage(task.ASKED)]}, config)
    assert result["messages"][-1].content == "All files are read."


def test_agents_sdk(provider, tmp_path):
    async def go():
        async with AsyncOpenAI(base_url=f"{provider.base_url}/v1", api_key="none") as client:
            model = OpenAIResponsesModel("gpt-4o", client)
            return await openai_agents_sdk.run(
                model, task.ASKED, read, f"sqlite:///{tmp_path}/s.db", task.WINDOW // 2
            )

    set_tracing_disabled(disabled=True)
    try:
        assert asyncio.run(go()) == "All files are read."
    finally:
        set_tracing_disabled(disabled=False)  # it holds for the whole process
    assert len(open_store(f"sqlite:///{tmp_path}/s.db").list()) == 1


def test_pydantic_ai(provider):
    async def go():
        async with AsyncOpenAI(base_url=f"{provider.base_url}/v1", api_key="none") as client:
            model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client))
            agent = pydantic_ai_agent.make_agent(model, read, task.WINDOW // 2)
            return await agent.run(task.ASKED, usage_limits=UsageLimits(request_limit=None))

    assert asyncio.run(go()).output == "All files are read."


def test_agent_framework(provider):
    async def go():
        async with AsyncOpenAI(base_url=f"{provider.base_url}/v1", api_key="none") as client:
            model = OpenAIChatCompletionClient(model="gpt-4o", async_client=client)
            agent = agent_framework_agent.make_agent(model, read, task.WINDOW // 2)
            return await agent.run(task.ASKED, session=AgentSession())

    assert asyncio.run(go()).text == "All files are read."
