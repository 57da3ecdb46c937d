"""The usual loop of the `openai` client with tools, Responses: whole and streamed, sync and async, and stored.

The lines that name `engine` or `session` are all that Penstock adds. The client's own objects are appended as they come.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from openai import AsyncOpenAI, OpenAI
    from openai.types.responses import ToolParam

    from penstock import ContextCompressor, Session

MODEL = "gpt-4o"
TOOLS: list[ToolParam] = [
    {
        "type": "function",
        "name": "read_file",
        "description": "Returns the text of a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        "strict": False,
    }
]


def run(client: OpenAI, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]) -> list[Any]:
    """Returns the conversation after the model has answered without a call."""
    items: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(items):
            items = engine.compress(items)
        response = client.responses.create(model=MODEL, input=items, tools=TOOLS, store=False)
        engine.update_from_response(response.usage)
        items += response.output
        results = answer_calls(response.output, read_file)
        if not results:
            return items
        items += results


def stream(
    client: OpenAI, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]
) -> list[Any]:
    """As `run`, with streamed answers."""
    items: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(items):
            items = engine.compress(items)
        with client.responses.stream(model=MODEL, input=items, tools=TOOLS, store=False) as streaming:
            for event in streaming:
                if event.type == "response.output_text.delta":
                    sys.stdout.write(event.delta)
            response = streaming.get_final_response()
        engine.update_from_response(response.usage)
        items += response.output
        results = answer_calls(response.output, read_file)
        if not results:
            return items
        items += results


async def run_async(
    client: AsyncOpenAI, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]
) -> list[Any]:
    """As `run`, without blocking the event loop."""
    items: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(items):
            items = await engine.acompress(items)
        response = await client.responses.create(model=MODEL, input=items, tools=TOOLS, store=False)
        engine.update_from_response(response.usage)
        items += response.output
        results = answer_calls(response.output, read_file)
        if not results:
            return items
        items += results


async def stream_async(
    client: AsyncOpenAI, engine: ContextCompressor, asked: str, read_file: Callable[[str], str]
) -> list[Any]:
    """As `stream`, without blocking the event loop."""
    items: list[Any] = [{"role": "user", "content": asked}]
    while True:
        if engine.should_compress_preflight(items):
            items = await engine.acompress(items)
        async with client.responses.stream(model=MODEL, input=items, tools=TOOLS, store=False) as streaming:
            async for event in streaming:
                if event.type == "response.output_text.delta":
                    sys.stdout.write(event.delta)
            response = await streaming.get_final_response()
        engine.update_from_response(response.usage)
        items += response.output
        results = answer_calls(response.output, read_file)
        if not results:
            return items
        items += results


def run_stored(
    client: OpenAI, session: Session, read_file: Callable[[str], str], window_tokens: int, turns: int = 99
) -> None:
    """As `run`, in a session that another process may resume. Stops after so many requests."""
    for _ in range(turns):
        if session.estimate(tools=TOOLS) > 0.85 * window_tokens:
            session.compact(context_length=window_tokens, tools=TOOLS)
        response = client.responses.create(model=MODEL, input=session.view(), tools=TOOLS, store=False)
        if response.usage:
            session.record_usage(response.usage, session.count(tools=TOOLS))
        session.append(response.output)
        results = answer_calls(response.output, read_file)
        if not results:
            return
        session.append(results)


def answer_calls(output: Iterable[Any], read_file: Callable[[str], str]) -> list[Any]:
    """Returns the results of all calls of an answer."""
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": read_file(json.loads(item.arguments)["path"]),
        }
        for item in output
        if item.type == "function_call"
    ]
