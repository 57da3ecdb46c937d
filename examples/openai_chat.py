"""The usual loop of the `openai` client with tools, Chat Completions: whole and streamed, sync and async, and stored.

The lines that name `engine` or `session` are all that Penstock adds. The client's own objects are appended as they come.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from openai import AsyncOpenAI, OpenAI
    from openai.types.chat import ChatCompletionMessage, ChatCompletionToolParam

    from penstock import ContextCompressor, Session

MODEL = "gpt-4o"
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Returns the text of a file.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
]


def run(client: OpenAI, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]) -> list[Any]:
    """Returns the conversation after the model has answered without a call."""
    messages: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(messages):
            messages = engine.compress(messages)
        completion = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
        engine.update_from_response(completion.usage)
        message = completion.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return messages
        messages += answer_calls(message, read_file)


def stream(
    client: OpenAI, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]
) -> list[Any]:
    """As `run`, with streamed answers."""
    messages: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(messages):
            messages = engine.compress(messages)
        with client.chat.completions.stream(
            model=MODEL, messages=messages, tools=TOOLS, stream_options={"include_usage": True}
        ) as streaming:
            for event in streaming:
                if event.type == "content.delta":
                    sys.stdout.write(event.delta)
            completion = streaming.get_final_completion()
        engine.update_from_response(completion.usage)
        message = completion.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return messages
        messages += answer_calls(message, read_file)


async def run_async(
    client: AsyncOpenAI, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]
) -> list[Any]:
    """As `run`, without blocking the event loop."""
    messages: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(messages):
            messages = await engine.acompress(messages)
        completion = await client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
        engine.update_from_response(completion.usage)
        message = completion.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return messages
        messages += answer_calls(message, read_file)


async def stream_async(
    client: AsyncOpenAI, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]
) -> list[Any]:
    """As `stream`, without blocking the event loop."""
    messages: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(messages):
            messages = await engine.acompress(messages)
        async with client.chat.completions.stream(
            model=MODEL, messages=messages, tools=TOOLS, stream_options={"include_usage": True}
        ) as streaming:
            async for event in streaming:
                if event.type == "content.delta":
                    sys.stdout.write(event.delta)
            completion = await streaming.get_final_completion()
        engine.update_from_response(completion.usage)
        message = completion.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return messages
        messages += answer_calls(message, read_file)


def run_stored(
    client: OpenAI, session: Session, read_file: Callable[[str], str], window_tokens: int, turns: int = 99
) -> None:
    """As `run`, in a session that another process may resume. Stops after so many requests."""
    for _ in range(turns):
        if session.estimate(tools=TOOLS) > 0.85 * window_tokens:
            session.compact(context_length=window_tokens, tools=TOOLS)
        completion = client.chat.completions.create(model=MODEL, messages=session.view(), tools=TOOLS)
        if completion.usage:
            session.record_usage(completion.usage, session.count(tools=TOOLS))
        message = completion.choices[0].message
        session.append([message])
        if not message.tool_calls:
            return
        session.append(answer_calls(message, read_file))


def answer_calls(message: ChatCompletionMessage, read_file: Callable[[str], str]) -> list[Any]:
    """Returns the results of all calls of an answer."""
    return [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": read_file(json.loads(call.function.arguments)["path"]),
        }
        for call in message.tool_calls or []
        if call.type == "function"
    ]
