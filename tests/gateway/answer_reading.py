"""Reads answers as strict clients of each API do: one that is not valid fails."""

from __future__ import annotations

import json


def read_answer(body, dialect, *, streamed):
    """The answer as a client puts it together: what it appends to its list, the calls in it, and the reason to stop."""
    if dialect == "anthropic":
        message = read_anthropic(body) if streamed else json.loads(body)
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        return [{"role": "assistant", "content": message["content"]}], calls, message["stop_reason"]
    if dialect == "responses":
        response = read_responses(body) if streamed else json.loads(body)
        calls = [item for item in response["output"] if item["type"] == "function_call"]
        return response["output"], calls, response["status"]
    choice = read_chat(body) if streamed else json.loads(body)["choices"][0]
    message = choice["message"]
    return [message], message.get("tool_calls") or [], choice["finish_reason"]


def read_events(body):
    return [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]


def read_anthropic(body):
    """Checks the order and the counting of all events, as strict clients do."""
    events = read_events(body)
    assert [event["type"] for event in events].count("message_start") == 1
    assert events[0]["type"] == "message_start"
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    message, open_block = events[0]["message"], None
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert open_block is None
            assert event["index"] == len(message["content"])
            open_block = {**event["content_block"]}
            written = ""
        elif event["type"] == "content_block_delta":
            assert event["index"] == len(message["content"])
            delta = event["delta"]
            if delta["type"] == "input_json_delta":
                written += delta["partial_json"]
            for name in ("text", "thinking", "signature"):
                if name in delta:
                    open_block[name] = open_block.get(name, "") + delta[name]
        elif event["type"] == "content_block_stop":
            assert event["index"] == len(message["content"])
            if open_block["type"] == "tool_use":
                open_block["input"] = json.loads(written)
            assert open_block.get("text") != ""
            message["content"].append(open_block)
            open_block = None
        else:
            assert event["type"] == "ping"
    assert open_block is None
    return {**message, **events[-2]["delta"], "usage": {**message["usage"], **events[-2]["usage"]}}


def read_responses(body):
    events = read_events(body)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds.count("response.created") == 1
    assert kinds[-1] in {"response.completed", "response.incomplete"}
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    assert added == list(range(len(added)))
    assert events[-1]["response"]["output"] == done
    return events[-1]["response"]


def read_chat(body):
    assert body.rstrip().endswith(b"data: [DONE]")
    events = read_events(body)
    assert len({event["id"] for event in events}) == 1
    message, finish = {"role": "assistant", "content": ""}, None
    calls = {}
    for event in events:
        for choice in event["choices"]:
            delta = choice["delta"]
            assert finish is None
            message["content"] += delta.get("content") or ""
            if delta.get("reasoning_content"):
                message["reasoning_content"] = (
                    message.get("reasoning_content", "") + delta["reasoning_content"]
                )
            for call in delta.get("tool_calls") or ():
                if call["index"] not in calls:
                    assert call["index"] == len(calls)
                    calls[call["index"]] = {
                        "id": call["id"],
                        "type": "function",
                        "function": {**call["function"]},
                    }
                else:
                    calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            finish = choice["finish_reason"] or finish
    if calls:
        message["tool_calls"] = list(calls.values())
    return {"message": message, "finish_reason": finish}
