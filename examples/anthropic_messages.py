"""The usual loop of the `anthropic` client with tools: whole and streamed, sync and async, and stored.

The lines that name `engine` or `session` are all that Penstock adds. The client's own objects are appended as they come.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from anthropic import Anthropic, AsyncAnthropic
    from anthropic.types import ToolParam

    from penstock import ContextCompressor, Session

MODEL = "claude-opus-4-8"
TOOLS: list[ToolParam] = [
    {
        "name": "read_file",
        "description": "Returns the text of a file.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
]


def run(
    client: Anthropic, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]
) -> list[Any]:
    """Returns the conversation after the model has answered without a call."""
    messages: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(messages):
            messages = engine.compress(messages)
        response = client.messages.create(model=MODEL, max_tokens=500, tools=TOOLS, messages=messages)
        engine.update_from_response(response.usage)
        messages.append({"role": "assistant", "content": response.content})
        if response.stop_reason != "tool_use":
            return messages
        messages.append({"role": "user", "content": answer_calls(response.content, read_file)})


def stream(
    client: Anthropic, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]
) -> list[Any]:
    """As `run`, with streamed answers."""
    messages: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(messages):
            messages = engine.compress(messages)
        with client.messages.stream(model=MODEL, max_tokens=500, tools=TOOLS, messages=messages) as streaming:
            for text in streaming.text_stream:
                sys.stdout.write(text)
            response = streaming.get_final_message()
        engine.update_from_response(response.usage)
        messages.append({"role": "assistant", "content": response.content})
        if response.stop_reason != "tool_use":
            return messages
        messages.append({"role": "user", "content": answer_calls(response.content, read_file)})


async def run_async(
    client: AsyncAnthropic, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]
) -> list[Any]:
    """As `run`, without blocking the event loop."""
    messages: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(messages):
            messages = await engine.acompress(messages)
        response = await client.messages.create(model=MODEL, max_tokens=500, tools=TOOLS, messages=messages)
        engine.update_from_response(response.usage)
        messages.append({"role": "assistant", "content": response.content})
        if response.stop_reason != "tool_use":
            return messages
        messages.append({"role": "user", "content": answer_calls(response.content, read_file)})


async def stream_async(
    client: AsyncAnthropic, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]
) -> list[Any]:
    """As `stream`, without blocking the event loop."""
    messages: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(messages):
            messages = await engine.acompress(messages)
        async with client.messages.stream(
            model=MODEL, max_tokens=500, tools=TOOLS, messages=messages
        ) as streaming:
            async for text in streaming.text_stream:
                sys.stdout.write(text)
            response = await streaming.get_final_message()
        engine.update_from_response(response.usage)
        messages.append({"role": "assistant", "content": response.content})
        if response.stop_reason != "tool_use":
            return messages
        messages.append({"role": "user", "content": answer_calls(response.content, read_file)})


def run_stored(
    client: Anthropic, session: Session, read_file: Callable[[str], str], window_tokens: int, turns: int = 99
) -> None:
    """As `run`, in a session that another process may resume. Stops after so many requests."""
    for _ in range(turns):
        if session.estimate(tools=TOOLS) > 0.85 * window_tokens:
            session.compact(context_length=window_tokens, tools=TOOLS)
        response = client.messages.create(model=MODEL, max_tokens=500, tools=TOOLS, messages=session.view())
        session.record_usage(response.usage, session.count(tools=TOOLS))
        session.append([{"role": "assistant", "content": response.content}])
        if response.stop_reason != "tool_use":
            return
        session.append([{"role": "user", "content": answer_calls(response.content, read_file)}])


def answer_calls(content: Iterable[Any], read_file: Callable[[str], str]) -> list[Any]:
    """Returns the results of all calls of an answer."""
    return [
        {"type": "tool_result", "tool_use_id": block.id, "content": read_file(block.input["path"])}
        for block in content
        if block.type == "tool_use"
    ]
