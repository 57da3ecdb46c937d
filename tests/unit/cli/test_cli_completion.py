"""Completion in shells, and the man page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.cli.completion import write_manual
from penstock.cli.main import HOMES

PAGE = Path(__file__).parents[3] / "docs" / "penstock.1"


def test_the_man_page_is_the_one_of_the_parser():
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(write_manual(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == write_manual()


def test_the_man_page_has_every_command_and_what_its_mistakes_exit_with():
    text = write_manual()
    assert re.findall(r'\.SS "penstock (.+)"', text) == list(HOMES)
    assert "130 interrupted" in text
    assert "\\fB\\-\\-target\\-tokens\\fR \\fIN\\fR" in text


def test_it_is_troff_that_man_takes():
    for line in write_manual().splitlines():
        assert not line.startswith((".", "'")) or re.match(r"\.(TH|SH|SS|TP|PP|B|I|nf|fi)\b", line)


def test_without_the_package_the_way_to_get_it(penstock, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "shtab", None)
    ran = penstock("completion", "bash")
    assert ran.code == 2
    assert "pip install 'penstock-context[completion]'" in ran.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_script_for_each_shell_names_the_commands(penstock, shell):
    pytest.importorskip("shtab")
    ran = penstock("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert all(name in ran.text for name in ("compress", "trajectories", "target-tokens"))


@pytest.mark.outside
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_options_of_a_command(penstock, tmp_path):
    pytest.importorskip("shtab")
    script = tmp_path / "penstock.bash"
    script.write_bytes(penstock("completion", "bash").out)
    ask = (
        f"source {script}; COMP_WORDS=(penstock compress --target); COMP_CWORD=2; "
        "_shtab_penstock; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert "--target-tokens" in done.stdout.split()
