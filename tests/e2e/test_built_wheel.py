"""The wheel that people install: its name, what it says of itself, and that the command runs from it alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    script = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def read_metadata(unpacked, name):
    return next(unpacked.glob("*.dist-info")).joinpath(name).read_text(encoding="utf-8")


def test_the_distribution_has_its_own_name_and_the_package_and_the_command_are_penstock(wheel, unpacked):
    told = Parser().parsestr(read_metadata(unpacked, "METADATA"))
    assert told["Name"] == "penstock-context"
    assert wheel.name.startswith("penstock_context-")
    beside = (".dist-info", ".data")
    assert {path.name for path in unpacked.iterdir() if not path.name.endswith(beside)} == {"penstock"}
    assert [path.name for path in unpacked.glob("*.data/data/share/man/man1/*")] == ["penstock.1"]
    assert "penstock = penstock.cli.main:main" in read_metadata(unpacked, "entry_points.txt")
    assert told.get_all("Project-URL") is None  # there is no home to name yet
    assert set(told.get_all("Provides-Extra")) == EXTRAS


def test_the_command_runs_as_a_module_from_the_wheel_alone(unpacked, tmp_path):
    env = {
        "PATH": os.defpath,
        "HOME": str(tmp_path),
        "PYTHONPATH": str(unpacked),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    script = (
        "import penstock, runpy, sys; sys.argv[1:] = ['--version']; print(penstock.__file__, flush=True); "
    )
    script += "runpy.run_module('penstock', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    where, version = done.stdout.splitlines()
    assert Path(where).is_relative_to(unpacked)
    assert re.fullmatch(r"penstock \d+\.\d+\.\d+", version)
    usage = subprocess.run(
        [sys.executable, "-m", "penstock", "--help"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert usage.stdout.startswith("usage: penstock ")


def test_every_extra_that_is_named_to_a_person_exists_and_has_the_name_of_the_distribution():
    places = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in places)
    named = re.findall(r"pip install ['\"]([\w.-]+)\[(\w+)\]", text)
    named += [("penstock-context", extra) for extra in re.findall(r"name_install\(['\"](\w+)['\"]", text)]
    assert {extra for _, extra in named} <= EXTRAS
    assert {name for name, _ in named} <= {"penstock-context", "."}
    assert len(named) > 10
