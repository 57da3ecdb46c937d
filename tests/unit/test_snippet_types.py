"""What the README, the guides and the examples show passes mypy in strict mode, with the SDKs' own types."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Reading the types of every framework takes two minutes: tests run the blocks of these pages instead.
FRAMEWORKS = {"integrations.md", "langchain.md"}
LOOPS = ["openai_chat.py", "openai_responses.py", "anthropic_messages.py"]

# Lists as the SDKs type them, in every call that takes messages, and the results back into the client.
ACCEPTED = """
import anthropic
import openai
from anthropic.types import Message, MessageParam
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import Response, ResponseInputItemParam

import penstock


async def chat(
    client: openai.OpenAI,
    messages: list[ChatCompletionMessageParam],
    tools: list[ChatCompletionToolParam],
    reply: ChatCompletion,
) -> None:
    engine, store = penstock.ContextCompressor(model="gpt-4o"), penstock.open_store("memory:")
    engine.update_from_response(reply.usage)
    if engine.should_compress_preflight(messages) or engine.has_content_to_compress(messages):
        messages = engine.compress(messages)
        messages = await engine.acompress(messages)
    messages = penstock.compress(messages, tools=tools, settings={"compression.protect_first_n": 1}).messages
    messages = (await penstock.acompress(messages)).messages
    session = penstock.Session.create(store, settings={"compression.threshold": 0.6})
    session.append(messages)
    session.append([reply.choices[0].message])
    session.record_usage(reply.usage)
    text: str = penstock.handoff(messages, tokens=500)
    client.chat.completions.create(model="gpt-4o", messages=session.view(), tools=tools, user=text)


def respond(items: list[ResponseInputItemParam], reply: Response) -> list[ResponseInputItemParam]:
    penstock.Session.create(penstock.open_store("memory:"), dialect="responses").append(reply.output)
    return penstock.LosslessEngine(model="gpt-4o").compress(items)


def converse(messages: list[MessageParam], reply: Message) -> list[MessageParam]:
    engine = penstock.ContextCompressor(model="claude-opus-4-8")
    engine.update_from_response(reply.usage)
    return engine.compact(messages).messages
"""


@pytest.mark.outside
def test_snippets_and_examples_are_typed(tmp_path):
    folder = tmp_path / "snippets"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "accepted.py").write_text(ACCEPTED, encoding="utf-8")
    guides = [*ROOT.glob("docs/guides/*.md"), *ROOT.glob("docs/coming-from/*.md")]
    for path in [ROOT / "README.md", ROOT / "website/home.md", *guides]:
        if path.name in FRAMEWORKS:
            continue
        if found := _FENCE.findall(path.read_text(encoding="utf-8")):
            name = path.stem.lower().replace("-", "_")
            assert not (folder / f"{name}.py").exists()
            (folder / f"{name}.py").write_text("\n\n".join(found), encoding="utf-8")
    files = [*sorted(folder.glob("*.py")), *(ROOT / "examples" / name for name in LOOPS)]
    # One run for all of them, with the cache that `make check` has filled.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.stdout.startswith("Success"), checked.stdout + checked.stderr
    assert f"{len(files)} source files" in checked.stdout
