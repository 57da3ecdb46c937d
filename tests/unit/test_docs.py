"""The documents are true: their code runs, their links lead somewhere, what they name exists."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
RUNNABLE = (
    "README.md",
    "docs/guides/agent-tools.md",
    "docs/guides/engines.md",
    "docs/guides/library.md",
    "docs/guides/bring-your-own-agent.md",
    "docs/guides/prompt-caching.md",
    "docs/guides/providers.md",
    "docs/guides/recall.md",
    "docs/guides/sessions.md",
    "docs/guides/testing.md",
    "docs/guides/trajectories.md",
    "docs/concepts/economics.md",
    "docs/concepts/redaction.md",
    "docs/reference/settings.md",
    "docs/reference/stores.md",
)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text, language):
    return [body for word, body in _FENCE.findall(text) if word == language]


def prose(text):
    return _FENCE.sub("", text)


def anchors(text):
    """The fragments by which the headings of a document are linked to."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(text)))
    return {word.replace(" ", "-") for word in words}


def commands_of_readme():
    lines = "".join(blocks(read("README.md"), "sh")).splitlines()
    return [line for line in lines if line.startswith("penstock ")]


@pytest.mark.outside
@pytest.mark.parametrize("name", RUNNABLE)
def test_python_blocks_run_as_printed_one_after_the_other(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = blocks(read(name), "python")
    assert found
    namespace = {"__name__": "__main__"}
    for number, body in enumerate(found, start=1):
        exec(compile(body, f"{name}, block {number}", "exec"), namespace)


@pytest.mark.outside
@pytest.mark.parametrize("line", commands_of_readme())
def test_commands_of_the_readme_run_as_printed(line, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    command = [sys.executable, "-m", "penstock", *shlex.split(line)[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")


def test_the_readme_shows_commands():
    assert len(commands_of_readme()) >= 3


def test_the_receipt_in_the_readme_looks_like_a_real_one():
    import penstock

    shown = blocks(read("README.md"), "text")[0]
    messages = json.loads(read("examples/long_session.json"))["messages"]
    real = str(penstock.compress(messages, target_tokens=6_000).receipt)
    figures = re.compile(r"\d[\d,.]*")
    assert figures.sub("N", shown).strip() == figures.sub("N", real).strip()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_relative_links_resolve(path):
    text = path.read_text(encoding="utf-8")
    broken = []
    for target in _LINK.findall(prose(text)):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        file, _, fragment = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        if not linked.exists() or (fragment and fragment not in anchors(linked.read_text(encoding="utf-8"))):
            broken.append(target)
    assert broken == []


def test_there_are_documents_with_links():
    assert sum(len(_LINK.findall(path.read_text(encoding="utf-8"))) for path in DOCUMENTS) > 50


def test_the_readme_is_short_and_has_one_figure():
    text = read("README.md")
    assert len(text.splitlines()) < 200
    assert text.count("![") == 1


def test_the_figure_is_well_formed_and_fits_light_and_dark():
    text = read("docs/before-after.svg")
    root = ET.fromstring(text)
    assert root.tag.endswith("svg")
    assert "prefers-color-scheme: dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")  # it loads nothing


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_make_targets_that_are_named_exist(path):
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"`make (\w+)`", text))
    named |= set(re.findall(r"^make (\w+)$", "".join(blocks(text, "sh")), re.MULTILINE))
    targets = set(re.findall(r"^(\w+):", read("Makefile"), re.MULTILINE))
    assert named <= targets


def test_every_decision_record_is_in_the_index_by_its_title():
    index = read("docs/adr/README.md")
    for path in ROOT.glob("docs/adr/0*.md"):
        number, title = re.match(r"# (\d+)\. (.+)\n", path.read_text(encoding="utf-8")).groups()
        assert f"| [{number}]({path.name}) | {title} |" in index


def test_architecture_names_the_layers_that_are_checked():
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    drawn = re.search(r"## Import layers\n\n```text\n(.*?)```", read("ARCHITECTURE.md"), re.DOTALL)[1]
    assert drawn.splitlines() == [layer.replace("penstock.", "") for layer in layers]


def test_architecture_names_the_rooms_that_there_are():
    table = re.search(r"## The rooms\n\n(.*?)\n\n", read("ARCHITECTURE.md"), re.DOTALL)[1]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    package = ROOT / "src" / "penstock"
    rooms = {path.name.removesuffix(".py") for path in package.glob("[!_.]*") if path.name != "py.typed"}
    assert named == rooms


def test_architecture_starts_readers_at_files_that_there_are():
    table = re.search(r"## Where to start reading\n\n(.*)", read("ARCHITECTURE.md"), re.DOTALL)[1]
    for name in re.findall(r"`(\w+(?:/\w+)+\.py)`", table):
        assert (ROOT / "src" / "penstock" / name).is_file(), name


def test_the_glossary_is_in_order_and_says_each_word_once():
    words = re.findall(r"^\| \*\*([\w\- ]+)\*\* \|", read("docs/glossary.md"), re.MULTILINE)
    assert len(words) > 40
    assert words == sorted(set(words))
