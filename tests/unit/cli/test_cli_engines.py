"""`penstock engines`: what there is, from where, which is active, and what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.engine.plugin_stage import install, write_plugin

import penstock as package
from penstock.writing.compiled import HAS_CORE

SOURCE = str(Path(package.__file__).parents[1])


def folder_of(path):
    return ("--set", f"plugins.folder={path}")


def test_the_table_names_all_and_marks_the_active_one(penstock, tmp_path):
    write_plugin(tmp_path / "plugins")
    write_plugin(tmp_path / "plugins", "broken.py", "print('noise')\nraise RuntimeError('no licence')\n")
    ran = penstock("engines", *folder_of(tmp_path / "plugins"), "--set", "context.engine=lossless")
    assert ran.code == 0
    out = ran.out.decode().splitlines()
    assert out[0].split() == ["name", "kind", "from"]
    assert out[1].split() == ["compressor", "built", "in", "penstock"]
    assert out[2].split()[:2] == ["*", "lossless"]
    assert out[3].split()[:2] == ["broken", "file"]
    assert (
        out[4]
        .strip()
        .startswith("cannot be loaded: the engine 'broken.py' failed with RuntimeError: no licence")
    )
    assert out[5].split() == ["last-turns", "file", str(tmp_path / "plugins" / "last_turns.py")]
    assert out[6].startswith(f"inner loops: {'compiled' if HAS_CORE else 'in Python'}")
    assert out[7] == f"plugin folder: {tmp_path / 'plugins'}"
    assert ran.err == "noise\n"


def test_as_json(penstock, tmp_path):
    path = write_plugin(tmp_path / "plugins")
    path.chmod(0o666)
    ran = penstock("engines", "--json", *folder_of(tmp_path / "plugins"))
    told = json.loads(ran.out)
    assert (ran.code, told["active"], told["folder_problem"]) == (0, "compressor", None)
    assert [(one["name"], one["kind"], one["active"]) for one in told["engines"]] == [
        ("compressor", "built in", True),
        ("lossless", "built in", False),
        ("last-turns", "file", False),
    ]
    assert told["engines"][0]["problem"] is None
    assert "chmod go-w" in told["engines"][2]["problem"]


def test_an_active_engine_that_is_not_there_or_broken_is_an_error_after_the_table(penstock, tmp_path):
    write_plugin(tmp_path / "plugins", "broken.py", "x = 1\n")
    for name, reason in (("nobody", "there is no such engine"), ("broken", "defines no engine")):
        ran = penstock("engines", *folder_of(tmp_path / "plugins"), "--set", f"context.engine={name}")
        assert ran.code == 2
        assert b"compressor" in ran.out
        assert f"context.engine is '{name}'" in ran.err
        assert reason in ran.err


def test_a_folder_that_is_not_there_is_said(penstock, tmp_path):
    ran = penstock("engines", XDG_DATA_HOME=str(tmp_path))
    assert ran.code == 0
    assert (
        ran.out.decode().splitlines()[-1] == f"plugin folder: {tmp_path}/penstock/plugins (it does not exist)"
    )


def test_enable_writes_the_engine_into_the_settings_file_and_leaves_the_rest(penstock, tmp_path):
    file = tmp_path / "penstock" / "config.yaml"
    write_plugin(tmp_path / "plugins")
    ran = penstock("engines", "enable", "lossless", XDG_CONFIG_HOME=str(tmp_path))
    assert (ran.code, ran.err) == (0, "")
    assert file.read_text() == "context:\n  engine: lossless\n"
    file.write_text(
        f"plugins:\n  folder: {tmp_path}/plugins  # mine\ncontext:\n  engine: 'lossless'  # for now\n"
    )
    ran = penstock("engines", "enable", "last-turns", "--json", XDG_CONFIG_HOME=str(tmp_path))
    assert json.loads(ran.out) == {"engine": "last-turns", "file": str(file), "overruled_by": None}
    assert "  # mine\ncontext:\n  engine: last-turns  # for now\n" in file.read_text()
    told = json.loads(penstock("engines", "--json", XDG_CONFIG_HOME=str(tmp_path)).out)
    assert told["active"] == "last-turns"
    ran = penstock(
        *("engines", "enable", "compressor"),
        XDG_CONFIG_HOME=str(tmp_path),
        PENSTOCK_CONTEXT_ENGINE="lossless",
    )
    assert b"PENSTOCK_CONTEXT_ENGINE says lossless, which takes precedence" in ran.out


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nobody", "there is no engine 'nobody'"),
        ("broken", "defines no engine"),
        (None, "no engine was named"),
    ],
)
def test_enable_writes_nothing_for_an_engine_that_cannot_be_used(penstock, tmp_path, name, told):
    write_plugin(tmp_path / "plugins", "broken.py", "x = 1\n")
    words = [word for word in ("engines", "enable", name) if word]
    ran = penstock(*words, *folder_of(tmp_path / "plugins"), XDG_CONFIG_HOME=str(tmp_path))
    assert ran.code == 2
    assert told in ran.err
    assert not (tmp_path / "penstock").exists()


@pytest.mark.outside
def test_a_package_that_is_installed_is_there_in_a_process_of_its_own(tmp_path):
    """A real interpreter with the package on its path, as an installer would leave it."""
    site = install(tmp_path / "site", {"last-turns": "acme_engines:LastTurns", "gone": "acme_engines:Gone"})
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), SOURCE]),
        "XDG_DATA_HOME": str(tmp_path),
    }
    environ["PENSTOCK_CONTEXT_ENGINE"] = "last-turns"
    command = [sys.executable, "-m", "penstock", "engines", "--json"]
    ran = subprocess.run(command, env=environ, capture_output=True, check=True, timeout=60)
    told = {one["name"]: one for one in json.loads(ran.stdout)["engines"]}
    assert told["last-turns"] == {
        "name": "last-turns",
        "kind": "entry point",
        "where": "acme-engines 1.2",
        "active": True,
        "problem": None,
    }
    assert "Gone" in told["gone"]["problem"]


def test_a_name_without_an_action_is_not_ignored(penstock):
    ran = penstock("engines", "list", "lossless")
    assert ran.code == 2
    assert "did you mean penstock engines enable lossless?" in ran.err
