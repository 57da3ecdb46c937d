"""The recall tools with the official clients: they take the schemas, and a model's calls find what left the view."""

from __future__ import annotations

import json

import anthropic
import openai
import pydantic
from anthropic.types import ToolParam
from openai.types.chat import ChatCompletionFunctionToolParam

from penstock.engine.compressor import ContextCompressor
from penstock.testing.engine_contract import long_conversation
from penstock.testing.provider_server import scripted_provider
from penstock.testing.scripted import Reply

SCRIPT = [
    Reply.calling("history_search", query="owner of step_3_17 in part_3"),
    Reply.calling("history_expand", handle="m16", limit=400),
    "It is owner_17.",
]


def recalling():
    """An engine after a compaction, and its view without the system prompt."""
    engine = ContextCompressor(16_000, recall_tools=True)
    view = engine.compact(long_conversation(), target_tokens=2_500).messages
    assert "step_3_17" not in json.dumps(view)
    return engine, view


def test_the_schemas_are_what_the_openai_client_sends():
    tools = ContextCompressor(recall_tools=True).get_tool_schemas()
    adapter = pydantic.TypeAdapter(ChatCompletionFunctionToolParam)
    assert [adapter.validate_python(tool, strict=True) for tool in tools] == tools


def test_a_conversation_with_the_openai_client():
    engine, messages = recalling()
    results = []
    with (
        scripted_provider(SCRIPT) as server,
        openai.OpenAI(base_url=server.base_url, api_key="no-real-key", max_retries=0) as client,
    ):
        while True:
            answer = client.chat.completions.create(
                model="gpt-x", messages=messages, tools=engine.get_tool_schemas()
            )
            reply = answer.choices[0].message
            messages.append(reply.model_dump(exclude_none=True))
            if not reply.tool_calls:
                break
            call = reply.tool_calls[0]
            result = engine.handle_tool_call(call.function.name, call.function.arguments, messages=messages)
            results.append(json.loads(result))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    assert server.violations == ()
    assert server.received[0].body["tools"] == engine.get_tool_schemas()
    assert "step_3_17" in results[0]["found"][0]["excerpt"]
    assert "m16" in results[0]["found"][0]["handles"]
    assert results[1]["text"].startswith("def step_3_0(job)")
    assert results[1]["next_offset"] > 0


def test_a_conversation_with_the_anthropic_client():
    engine, view = recalling()
    tools = [
        {
            "name": tool["function"]["name"],
            "description": tool["function"]["description"],
            "input_schema": tool["function"]["parameters"],
        }
        for tool in engine.get_tool_schemas()
    ]
    adapter = pydantic.TypeAdapter(ToolParam)
    for tool in tools:
        adapter.validate_python(tool)
    messages = [{"role": "user", "content": "Which part names owner_17?"}]
    with (
        scripted_provider(SCRIPT[:1] + SCRIPT[2:]) as server,
        anthropic.Anthropic(base_url=server.base_url, api_key="no-real-key", max_retries=0) as client,
    ):
        wishes = {"model": "claude-x", "max_tokens": 500, "tools": tools}
        call = client.messages.create(messages=messages, **wishes).content[-1]
        result = engine.handle_tool_call(call.name, call.input, messages=view)
        given = {"type": "tool_result", "tool_use_id": call.id, "content": result}
        messages.append({"role": "assistant", "content": [call.model_dump(exclude_none=True)]})
        messages.append({"role": "user", "content": [given]})
        last = client.messages.create(messages=messages, **wishes)
    assert server.violations == ()
    assert server.received[0].body["tools"] == tools
    assert "step_3_17" in result
    assert last.content[0].text == "It is owner_17."
