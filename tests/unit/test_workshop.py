"""What contributors meet first: workflows, hooks and templates name only what is there."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def read_yaml(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(workflow):
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


def test_every_supported_version_of_python_is_tested_and_named():
    matrix = read_yaml(ROOT / ".github/workflows/test.yml")["jobs"]["systems"]["strategy"]["matrix"]
    named = [
        line.rsplit(" :: ", 1)[1]
        for line in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    ]
    assert matrix["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_the_newest_release_of_each_framework_is_tested():
    matrix = read_yaml(ROOT / ".github/workflows/test.yml")["jobs"]["newest"]["strategy"]["matrix"]
    tested = {path.stem.removeprefix("test_") for path in (ROOT / "tests/integrations").glob("test_*.py")}
    named = {extra.replace("-", "_") for extra in matrix["extra"]}
    assert named <= tested
    assert named == {path.stem for path in (ROOT / "src/penstock/integrations").glob("*.py")} & {
        extra.replace("-", "_") for extra in PROJECT["optional-dependencies"]
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_is_there(path):
    run = commands(read_yaml(path))
    assert run
    for command in run:
        assert set(re.findall(r"\bmake ([a-z-]+)", command)) <= TARGETS
        for word in re.findall(r"(?:^| )((?:\.ci|examples|tests|requirements)[\w./*-]*)", command):
            assert list(ROOT.glob(word)), word


def test_a_release_gets_no_stored_token():
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    assert read_yaml(ROOT / ".github/workflows/release.yml")["jobs"]["publish"]["permissions"] == {
        "id-token": "write"
    }


def test_hooks_run_tools_of_the_lock():
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    hooks = [hook for repo in read_yaml(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    tools = {hook["entry"].split()[0].rpartition("/")[2] for hook in hooks}
    packages = {"lint-imports": "import-linter"}
    assert tools
    for tool in tools:
        assert re.search(rf"^{packages.get(tool, tool)}==", locked, re.MULTILINE), tool


def test_the_container_makes_what_the_makefile_has():
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert container["postCreateCommand"].removeprefix("make ") in TARGETS


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name
)
def test_templates_are_forms(path):
    form = read_yaml(path)
    if path.name == "config.yml":
        return
    assert {"name", "description", "body"} <= form.keys()
    assert any(part.get("validations", {}).get("required") for part in form["body"])


def test_placeholders_stand_in_one_file():
    holders = [
        path.relative_to(ROOT).as_posix()
        for folder in (".github", "docs", "src", "deploy", "website")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".md", ".py", ".yml", ".yaml", ".toml", ".json"}
        and "PLACEHOLDER" in path.read_text(encoding="utf-8")
    ]
    assert holders == [".github/HOME.md"]
