"""The callback inside a real proxy of LiteLLM, in front of a provider that follows a script."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices

from penstock import open_store
from penstock.integrations.litellm import PenstockCallback
from penstock.providers.exchange import Called
from penstock.testing import Reply, scripted_provider
from tests.integrations import long_task as task

ROOT = Path(__file__).parents[2]
KEY = f"sk-{secrets.token_hex(32)}"  # without one the proxy does not start


@contextmanager
def run_proxy(folder, upstream, port, store):
    (folder / "penstock_callback.py").write_text(
        "from penstock.integrations.litellm import PenstockCallback\n"
        f"callback = PenstockCallback(context_length={task.WINDOW}, store={store!r})\n"
    )
    (folder / "config.yaml").write_text(
        json.dumps(
            {
                "model_list": [
                    {
                        "model_name": "reader",
                        "litellm_params": {
                            "model": "openai/gpt-4o",
                            "api_base": f"{upstream}/v1",
                            "api_key": "none",
                        },
                    }
                ],
                "litellm_settings": {"callbacks": "penstock_callback.callback"},
            }
        )
    )
    variables = {**os.environ, "LITELLM_MASTER_KEY": KEY, "PYTHONPATH": f"{ROOT / 'src'}:{folder}"}
    command = [str(Path(sys.executable).parent / "litellm"), "--config", "config.yaml", "--port", str(port)]
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log)
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=2).close()
                break
            except (urllib.error.URLError, OSError):
                assert process.poll() is None, (folder / "proxy.log").read_text()[-3000:]
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def ask(address, messages):
    body = json.dumps({"model": "reader", "messages": messages}).encode()
    request = urllib.request.Request(
        f"{address}/v1/chat/completions",
        body,
        {"content-type": "application/json", "authorization": f"Bearer {KEY}"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["choices"][0]["message"]


def find_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_stateless_client_of_a_real_proxy_that_is_started_again(tmp_path):
    """The client sends the whole conversation each time; the proxy sends what fits, and goes on after a restart."""
    store, steps = f"sqlite:///{tmp_path}/s.db", iter(range(1, task.CALLS + 1))
    numbers = []

    def reply(received):
        numbers.append(next(steps))
        step = task.next_step(numbers[-1], recall=False)
        return Reply(
            step.text, calls=tuple(Called(call, name, json.dumps(args)) for call, name, args in step.calls)
        )

    messages = [{"role": "system", "content": "Be careful."}, {"role": "user", "content": task.ASKED}]
    with scripted_provider(reply) as provider:
        for rounds in (22, task.CALLS - 22):
            with run_proxy(tmp_path, provider.base_url, find_port(), store) as address:
                for number in range(rounds):
                    messages[0] = {"role": "system", "content": f"Be careful. It is {number} o'clock."}
                    message = ask(address, messages)
                    messages.append(
                        {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key)}
                    )
                    messages += [
                        {
                            "role": "tool",
                            "tool_call_id": call["id"],
                            "content": task.read_part(**json.loads(call["function"]["arguments"])),
                        }
                        for call in message.get("tool_calls") or ()
                    ]
        sent = [one.messages for one in provider.received]
        assert not provider.violations
    assert len(sent) == task.CALLS
    assert max(map(task.count_tokens, sent)) < task.WINDOW < task.count_tokens(messages)
    assert all(one[0]["content"].startswith("Be careful. It is") for one in sent)
    stored = open_store(store)
    (only,) = stored.list()
    assert only.compactions >= 3
    assert only.usage.total_tokens > 0
    # Between two compactions the beginning is the same bytes, also across the restart.
    same = sum(json.dumps(a[1:]) == json.dumps(b[1 : len(a)]) for a, b in pairwise(sent))
    assert same >= task.CALLS - 1 - only.compactions


@pytest.mark.parametrize(
    ("call_type", "data"),
    [
        ("aembedding", {"input": ["a", "b"]}),
        ("acompletion", {"messages": "rubbish"}),
        ("acompletion", {"messages": [{"role": "user"}, "text"]}),
        ("acompletion", {"messages": [{"role": "nobody", "content": 5}]}),
        ("aresponses", {"input": "Hello."}),
        ("acompletion", {}),
    ],
)
def test_requests_that_it_does_not_understand_pass(call_type, data):
    before = json.dumps(data)
    assert (
        json.dumps(asyncio.run(PenstockCallback().async_pre_call_hook(None, None, data, call_type))) == before
    )


@pytest.mark.parametrize(
    ("dialect", "call_type"), [("anthropic", "anthropic_messages"), ("responses", "aresponses")]
)
def test_other_dialects(dialect, call_type):
    async def go():
        receipts = []
        callback = PenstockCallback(context_length=task.WINDOW, on_receipt=receipts.append)
        field = "input" if dialect == "responses" else "messages"
        messages, largest = [{"role": "user", "content": task.ASKED}], 0
        for number in range(1, task.CALLS):
            data = {"model": "m", field: list(messages), "metadata": {"session_id": "s"}}
            data = await callback.async_pre_call_hook(None, None, data, call_type)
            task.require_legal(data[field], dialect)
            largest = max(largest, task.count_tokens(data[field]))
            step = task.next_step(number, recall=False)
            if dialect == "anthropic":
                calls = [{"type": "tool_use", "id": c, "name": n, "input": a} for c, n, a in step.calls]
                results = [
                    {"type": "tool_result", "tool_use_id": c, "content": task.read_part(**a)}
                    for c, _, a in step.calls
                ]
                messages += [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
            else:
                for c, n, a in step.calls:
                    messages.append(
                        {"type": "function_call", "call_id": c, "name": n, "arguments": json.dumps(a)}
                    )
                for c, _, a in step.calls:
                    messages.append(
                        {"type": "function_call_output", "call_id": c, "output": task.read_part(**a)}
                    )
        assert len(receipts) >= 3
        assert largest < task.WINDOW
        assert "penstock" not in json.dumps(messages)

    asyncio.run(go())
