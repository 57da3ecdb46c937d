"""The documents are true: their code runs, their links lead somewhere, what they name exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import penstock
from penstock.cli.main import HOMES
from penstock.cli.parser import build_parser
from penstock.testing import scripted_provider

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "website/*.md")
    for path in ROOT.glob(pattern)
)
RUNNABLE = (
    "README.md",
    "website/home.md",
    "docs/coming-from/headroom.md",
    "docs/coming-from/langchain.md",
    "docs/coming-from/memories.md",
    "docs/guides/agent-tools.md",
    "docs/guides/engines.md",
    "docs/guides/library.md",
    "docs/guides/bring-your-own-agent.md",
    "docs/guides/model-summaries.md",
    "docs/guides/plugins.md",
    "docs/guides/prompt-caching.md",
    "docs/guides/providers.md",
    "docs/guides/recall.md",
    "docs/guides/sessions.md",
    "docs/guides/testing.md",
    "docs/guides/trajectories.md",
    "docs/concepts/economics.md",
    "docs/concepts/lossless.md",
    "docs/concepts/redaction.md",
    "docs/reference/errors.md",
    "docs/reference/settings.md",
    "docs/reference/stores.md",
)
RUN_ELSEWHERE = {
    "docs/guides/integrations.md": "integrations/test_guide.py",
    "docs/guides/local-model.md": "e2e/test_local_model.py",
}

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
    with scripted_provider(["They are 4411 and 4417."], repeat_last=True) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.base_url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            monkeypatch.setenv(variable, "none")
        for number, body in enumerate(found, start=1):
            exec(compile(body, f"{name}, block {number}", "exec"), namespace)
        for client in ("client", "claude"):
            if hasattr(namespace.get(client), "close"):
                namespace[client].close()
        assert server.violations == ()


def test_every_document_with_python_in_it_is_run():
    with_python = {name_of(path) for path in DOCUMENTS if blocks(path.read_text(encoding="utf-8"), "python")}
    assert with_python == {*RUNNABLE, *RUN_ELSEWHERE}
    for name, test in RUN_ELSEWHERE.items():
        assert Path(name).name in read(f"tests/{test}")


def commands_of_documents():
    """Every command line of Penstock's that is printed in a block or in a text, up to a pipe, a redirection or a comment.

    A text may name a command without its arguments (`penstock search`), which is no line to type.
    """
    bare = {f"penstock {name}" for name in HOMES}
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for language in ("sh", "console", "bash"):
            for line in "".join(blocks(text, language)).replace("\\\n", " ").splitlines():
                if re.match(r"penstock [^\d]", line):  # and not what it prints, which begins with its version
                    yield re.split(r" +[|>#]", line)[0].strip()
        if path.name != "CHANGELOG.md" and path.parent.name != "adr":  # those tell what was
            yield from set(re.findall(r"`(penstock [^`…]+)`", prose(text))) - bare


@pytest.mark.parametrize("line", sorted(set(commands_of_documents())))
def test_a_command_that_is_printed_is_one_that_there_is(line):
    if line in {"penstock --version", "penstock --help"}:
        return
    given = line.replace("wrap CLIENT", "wrap claude").replace("--processes N", "--processes 2")
    assert build_parser().parse_args(shlex.split(given)[1:]).command == line.split()[1]


def test_the_readme_shows_commands():
    assert len(commands_of_readme()) >= 3


def compare_or_write(name, wrong):
    """Says where a document shows what is not so; with UPDATE_GOLDEN, puts it right. `wrong` has pairs of texts."""
    if os.environ.get("UPDATE_GOLDEN"):
        text = read(name)
        for shown, now in wrong:
            text = text.replace(shown, now)
        (ROOT / name).write_text(text, encoding="utf-8")
    else:
        assert [shown for shown, _ in wrong] == [now for _, now in wrong]


def test_receipts_of_the_example_are_those_that_it_gives():
    messages = json.loads(read("examples/long_session.json"))["messages"]
    told = str(penstock.compress(messages, target_tokens=6_000).receipt)
    shown = next(one for one in blocks(read("README.md"), "text") if one.startswith("compressed"))
    took = re.search(r"^  took .*$", shown, re.MULTILINE)[0]  # another time on every machine
    compare_or_write("README.md", [(shown, re.sub(r"(?m)^  took .*$", took, told) + "\n")])
    sizes = re.search(r"32,499 → ([\d,]+ tokens)", told)
    for path in (path for path in DOCUMENTS if path.name != "CHANGELOG.md"):
        text = path.read_text(encoding="utf-8")
        wrong = {(one, sizes[0]) for one in re.findall(r"32,499 → [\d,]+ tokens", text)}
        wrong |= {(one, f"7 messages, {sizes[1]}") for one in re.findall(r"7 messages, [\d,]+ tokens", text)}
        compare_or_write(name_of(path), sorted(wrong))


@pytest.mark.outside
@pytest.mark.parametrize("name", ["docs/guides/command-line.md"])
def test_consoles_show_what_the_commands_print(name, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "cut-off.json").write_text('[{"role": "user", "content": "Hello, you."},\n', encoding="utf-8")
    shown = re.findall(r"^\$ (penstock .*)\n((?:(?!\$ |```).*\n)+)", read(name), re.MULTILINE)
    assert len(shown) > 4
    wrong = []
    for line, output in shown:
        command = [sys.executable, "-m", "penstock", *shlex.split(line)[1:]]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        printed = (done.stdout + done.stderr).decode().splitlines()
        lines = [line for line in output.splitlines() if line.strip() != "…"]
        for place, (one, now) in enumerate(zip(lines, printed, strict=False)):
            if one != now and not (one.startswith("  took ") and now.startswith("  took ")):
                wrong.append((lines[place], now))
        assert len(lines) == len(printed) or output.rstrip().endswith("…"), line
    compare_or_write(name, wrong)


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


def test_the_readme_is_short_and_shows_the_idea_the_chat_and_the_page():
    text = read("README.md")
    assert len(text.splitlines()) < 220
    assert re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text) == [
        "docs/before-after.svg",
        "docs/chat.svg",
        "docs/page.png",
    ]


@pytest.mark.parametrize("name", ["docs/before-after.svg", "docs/chat.svg"])
def test_a_drawing_is_well_formed_and_fits_light_and_dark(name):
    text = read(name)
    root = ET.fromstring(text)
    assert root.tag.endswith("svg")
    assert (
        "prefers-color-scheme: dark" in text or 'rx="10" fill="#111416"' in text
    )  # a terminal is dark for everybody
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
