"""The blocks of the guide run as printed, section by section, where the framework of the section is installed."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "integrations.md"
PACKAGES = {
    "LangChain and LangGraph": "langchain",
    "OpenAI Agents SDK": "agents",
    "pydantic-ai": "pydantic_ai",
    "Microsoft Agent Framework": "agent_framework",
    "Strands Agents": "strands",
    "LlamaIndex": "llama_index",
    "LiteLLM proxy": "litellm",
    "Hermes Agent": "hermes_cli",
    "OpenHands SDK": "openhands",
}
SECTIONS = dict(
    re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
)


def test_every_section_is_run():
    assert SECTIONS.keys() == PACKAGES.keys()


@pytest.mark.parametrize("section", [name for name, package in PACKAGES.items() if find_spec(package)])
def test_blocks_run_as_printed(section, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = re.findall(r"^```python\n(.*?)^```$", SECTIONS[section], re.DOTALL | re.MULTILINE)
    assert found
    namespace = {"__name__": "__main__"}
    for number, body in enumerate(found, start=1):
        exec(compile(body, f"{section}, block {number}", "exec"), namespace)
