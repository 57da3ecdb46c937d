"""Other compactors, each called as its own documentation shows. Runs in the environment of one peer, without Penstock.

    .peers/litellm/bin/python benchmarks/peer_compactors.py litellm < cases > results

A case is a line of JSON with `messages` (Chat Completions) and `budget` in tokens; a result has `messages` and `seconds`, or
`error`. Peers that take a function for counting get exact counts of o200k_base, as the judge counts.
"""

import asyncio
import copy
import importlib
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

Chat = list[dict[str, Any]]
MODEL = "gpt-4o"


@cache
def count_text(text: str) -> int:
    return int(importlib.import_module("toktok").batch_count([text], "o200k_base")[0])


def count_message(message: dict[str, Any]) -> int:
    """Tokens of the text, 4 for the message and 8 for each call beside its text."""
    tokens = 4 + count_text(message.get("content") or "")
    for call in message.get("tool_calls") or ():
        tokens += 8 + count_text(call["function"]["name"]) + count_text(call["function"]["arguments"])
    return tokens


def compress_with_litellm(messages: Chat, budget: int) -> Chat:
    """`litellm.compress`: messages with few words of the last request become stubs."""
    compress = importlib.import_module("litellm").compress
    given = [
        {**message, "content": message.get("content") or ""} for message in messages
    ]  # None is an error there
    system = sum(count_message(message) for message in messages if message["role"] == "system")
    target = budget + system
    return compress(given, model=MODEL, compression_trigger=target, compression_target=target)["messages"]


def compress_with_headroom(messages: Chat, budget: int) -> Chat:
    """`headroom.compress` of the base install, without its model for text. The size of a window is all that it takes."""
    compress = importlib.import_module("headroom").compress
    return compress(messages, model=MODEL, model_limit=budget, kompress_model="disabled").messages


def trim_with_langchain(messages: Chat, budget: int) -> Chat:
    """`trim_messages`: the newest messages that fit. Agents have few requests, so a list may begin with an answer, too."""
    core = importlib.import_module("langchain_core.messages")

    def count(native: list[Any]) -> int:
        return sum(map(count_message, _openai_form(core, native)))

    native = core.convert_to_messages(messages)
    system = count([one for one in native if one.type == "system"])
    trimmed = core.trim_messages(
        native,
        max_tokens=budget + system,
        token_counter=count,
        strategy="last",
        include_system=True,
        start_on=("human", "ai"),
    )
    return _openai_form(core, trimmed)


def clear_with_langchain(messages: Chat, budget: int) -> Chat:
    """`ContextEditingMiddleware`: all but the newest three tool results are cleared."""
    core = importlib.import_module("langchain_core.messages")
    editing = importlib.import_module("langchain.agents.middleware.context_editing")
    native = core.convert_to_messages(messages)
    editing.ClearToolUsesEdit(trigger=budget).apply(
        native, count_tokens=lambda given: sum(map(count_message, _openai_form(core, given)))
    )
    return _openai_form(core, native)


def compact_with_pydantic_ai(messages: Chat, budget: int) -> Chat:
    """`TieredCompaction`: old tool results are cleared, then old messages leave, until the budget is met."""
    compaction = importlib.import_module("pydantic_ai_harness.compaction")
    told = importlib.import_module("pydantic_ai.messages")
    strategy = compaction.TieredCompaction(
        tiers=[
            compaction.ClearToolResults(max_tokens=1, tokenizer=count_text),
            compaction.SlidingWindowCompaction(max_tokens=1, keep_tokens=budget, tokenizer=count_text),
        ],
        target_tokens=budget,
        tokenizer=count_text,
    )
    context = importlib.import_module("pydantic_ai").RunContext(
        deps=None,
        model=importlib.import_module("pydantic_ai.models.test").TestModel(),
        usage=importlib.import_module("pydantic_ai.usage").RunUsage(),
    )
    system = [message for message in messages if message["role"] == "system"]
    native = _to_pydantic_ai(told, [message for message in messages if message["role"] != "system"])
    kept = asyncio.run(strategy.compact(native, context))
    return system + _from_pydantic_ai(told, kept)


def compact_with_agent_framework(messages: Chat, budget: int) -> Chat:
    """`TokenBudgetComposedStrategy`: old tool results become one line, then the oldest groups leave."""
    framework = importlib.import_module("agent_framework")

    class Tokenizer:
        def count_tokens(self, text: str) -> int:
            return count_text(text)

    system = sum(count_message(message) for message in messages if message["role"] == "system")
    strategy = framework.TokenBudgetComposedStrategy(
        token_budget=budget + system,
        tokenizer=Tokenizer(),
        strategies=[framework.ToolResultCompactionStrategy(keep_last_tool_call_groups=3)],
    )
    native = _to_agent_framework(framework, messages)
    return _from_agent_framework(asyncio.run(framework.apply_compaction(native, strategy=strategy)))


PEERS: dict[str, Callable[[Chat, int], Chat]] = {
    "litellm": compress_with_litellm,
    "headroom": compress_with_headroom,
    "langchain-trim": trim_with_langchain,
    "langchain-clear": clear_with_langchain,
    "pydantic-ai": compact_with_pydantic_ai,
    "agent-framework": compact_with_agent_framework,
}


def _openai_form(core: Any, native: list[Any]) -> Chat:
    return [
        {
            **message,
            "content": message.get("content") or None if message.get("tool_calls") else message["content"],
        }
        for message in core.convert_to_openai_messages(native)
    ]


def _to_pydantic_ai(told: Any, messages: Chat) -> list[Any]:
    native: list[Any] = []
    names: dict[str, str] = {}
    for message in messages:
        text = message.get("content") or ""
        if message["role"] == "assistant":
            parts = [told.TextPart(text)] if text else []
            for call in message.get("tool_calls") or ():
                names[call["id"]] = call["function"]["name"]
                parts.append(
                    told.ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"])
                )
            native.append(told.ModelResponse(parts=parts))
            continue
        if message["role"] == "tool":
            name = names.get(message["tool_call_id"], "unknown")
            part = told.ToolReturnPart(name, text, message["tool_call_id"])
        else:
            part = told.UserPromptPart(text)
        if native and isinstance(native[-1], told.ModelRequest) and message["role"] == "tool":
            native[-1].parts.append(part)  # the results of one step are one request
        else:
            native.append(told.ModelRequest(parts=[part]))
    return native


def _from_pydantic_ai(told: Any, native: list[Any]) -> Chat:
    messages: Chat = []
    for one in native:
        if isinstance(one, told.ModelResponse):
            text = "".join(part.content for part in one.parts if isinstance(part, told.TextPart))
            calls = [
                _call(
                    part.tool_call_id,
                    part.tool_name,
                    part.args if isinstance(part.args, str) else part.args_as_json_str(),
                )
                for part in one.parts
                if isinstance(part, told.ToolCallPart)
            ]
            messages.append(_assistant(text, calls))
            continue
        for part in one.parts:
            if isinstance(part, told.ToolReturnPart):
                text = part.model_response_str()
                messages.append({"role": "tool", "tool_call_id": part.tool_call_id, "content": text})
            else:
                messages.append({"role": "user", "content": str(part.content)})
    return messages


def _to_agent_framework(framework: Any, messages: Chat) -> list[Any]:
    make = framework.Content
    native = []
    for message in messages:
        text = message.get("content") or ""
        if message["role"] == "tool":
            contents = [make.from_function_result(message["tool_call_id"], result=text)]
        else:
            contents = [make.from_text(text)] if text else []
            contents += [
                make.from_function_call(
                    call["id"], call["function"]["name"], arguments=call["function"]["arguments"]
                )
                for call in message.get("tool_calls") or ()
            ]
        native.append(framework.Message(message["role"], contents))
    return native


def _from_agent_framework(native: list[Any]) -> Chat:
    messages: Chat = []
    for one in native:
        results = [part for part in one.contents if part.type == "function_result"]
        if results:
            messages += [
                {"role": "tool", "tool_call_id": part.call_id, "content": str(part.result)}
                for part in results
            ]
            continue
        text = "".join(part.text for part in one.contents if part.type == "text")
        calls = [
            _call(
                part.call_id,
                part.name,
                part.arguments if isinstance(part.arguments, str) else json.dumps(part.arguments),
            )
            for part in one.contents
            if part.type == "function_call"
        ]
        messages.append(
            _assistant(text, calls) if one.role == "assistant" else {"role": one.role, "content": text}
        )
    return messages


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _assistant(text: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}


def main() -> None:
    """One result for each case, in order."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # peers print as they like
    compact = PEERS[sys.argv[1]]
    compact([{"role": "user", "content": "Hello."}], 1_000)  # imports are not what is timed
    for line in sys.stdin:
        case = json.loads(line)
        given = copy.deepcopy(case["messages"])
        start = time.perf_counter()
        try:
            told: dict[str, Any] = {"messages": compact(given, case["budget"])}
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is its result
            told = {"error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(told | {"seconds": time.perf_counter() - start}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
