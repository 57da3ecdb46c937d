"""Codex through `penstock serve`: what to set, and the same requests against a provider that needs no key.

For one run nothing is set: `penstock wrap codex -- exec "Fix the build."`. To share one gateway, start it and name it in
Codex' settings, as CONFIG has it:

    penstock serve --upstream https://api.openai.com/v1 --port 8790
    OPENAI_API_KEY=… codex

`python -m examples.gateway_codex` shows what happens then. The scripted provider stands in for the model, and a loop for
Codex: it streams Responses, stores nothing with the provider, and sends everything again with each request. The requests
that the provider gets stay small, and the work goes on past its window.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from openai import OpenAI

from penstock.testing import Reply, scripted_provider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from openai.types.responses import ToolParam

CONFIG = """\
# ~/.codex/config.toml
model_provider = "penstock"

[model_providers.penstock]
name = "Penstock"
base_url = "http://127.0.0.1:8790/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""
MODEL = "gpt-5-codex"
TOOLS: list[ToolParam] = [
    {
        "type": "function",
        "name": "shell",
        "description": "Runs a command and returns its output.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
        "strict": False,
    }
]
ASKED = "Find out why orders stay pending. Never touch migrations/."
COMMANDS = 24
WINDOW_TOKENS = 16_000


class Work(NamedTuple):
    """The last answer, and the longest conversation in characters: as it was sent, and as the provider got it."""

    answer: str
    most_sent_chars: int
    most_received_chars: int


@contextmanager
def serve(
    upstream: str, store: str, window_tokens: int, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Runs `penstock serve` on a free port and gives its address; stops it at the end."""
    command = [
        sys.executable,
        "-m",
        "penstock",
        "serve",
        "--port",
        "0",
        "--upstream",
        upstream,
        "--store",
        store,
    ]
    with subprocess.Popen(  # noqa: S603 - our own command
        [*command, "--set", f"model.context_length={window_tokens}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=dict(os.environ if environment is None else environment),
    ) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else ""
        finally:
            process.terminate()


def work(client: OpenAI, asked: str, run_command: Callable[[str], str], thread: str) -> tuple[str, int]:
    """Sends requests as Codex does, until the model calls nothing; returns its answer and the most characters sent."""
    items: list[Any] = [
        {"role": "developer", "content": "You are a coding agent in the user's terminal."},
        {"role": "user", "content": asked},
    ]
    most_sent = 0
    while True:
        most_sent = max(most_sent, len(json.dumps(items)))
        with client.responses.stream(
            model=MODEL,
            input=items,
            tools=TOOLS,
            store=False,
            include=["reasoning.encrypted_content"],
            prompt_cache_key=thread,
            extra_headers={"session-id": thread, "thread-id": thread},
        ) as streaming:
            response = streaming.get_final_response()
        items += [item.model_dump(mode="json", exclude_none=True) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text, most_sent
        items += [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": run_command(json.loads(call.arguments)["command"]),
            }
            for call in calls
        ]


def run(store: str, environment: Mapping[str, str] | None = None) -> Work:
    """Has a model that is played by a script read one log after the other, through a gateway with a small window."""
    asked = iter(range(1, COMMANDS + 2))

    def reply(_received: Any) -> Any:
        number = next(asked)
        if number > COMMANDS:
            return "The retry limit is 3, and the queue needs 5."
        return Reply.calling("shell", command=f"tail -40 log/orders.{number}")

    with (
        scripted_provider(reply, window_tokens=WINDOW_TOKENS) as provider,
        serve(provider.base_url, store, WINDOW_TOKENS, environment) as address,
        OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
    ):
        answer, most_sent = work(client, ASKED, write_log, "0199-example-thread")
        return Work(answer, most_sent, max(len(json.dumps(one.messages)) for one in provider.received))


def write_log(command: str) -> str:
    """Returns the output of the command, made up."""
    number = int(command.rpartition(".")[2])
    return "\n".join(
        f"09:{number:02}:{line:02} order {number * 7919 + line * 31} pending, attempt {line % 3 + 1} of 3"
        for line in range(40)
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        done = run(f"sqlite:///{Path(folder) / 'gateway.db'}")
    sys.stdout.write(
        f"{CONFIG}\n{COMMANDS + 1} requests. The longest conversation had {done.most_sent_chars:,} characters when it "
        f"was sent, and {done.most_received_chars:,} when it arrived.\n{done.answer}\n"
    )
