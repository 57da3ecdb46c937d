"""Without the compiled core everything is as with it: the same handoffs, the same numbers, the same words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# As where it is not installed: an import of it fails.
HIDE = "import sys; sys.modules['penstock_core'] = None; "

pytest.importorskip("penstock_core")

FAILURES = {
    "there is no compiler": (
        (
            "  error: subprocess-exited-with-error\n  building 'penstock_core' extension\n  gcc -O3 -c src/beside.c\n"
            "      error: [Errno 2] No such file or directory: 'gcc'\n  ERROR: Failed building wheel for penstock-core\n"
            "ERROR: Failed to build one or more wheels\n"
        ),
        "error: [Errno 2] No such file or directory: 'gcc'",
    ),
    "there are no headers": (
        (
            "      src/rows.h:11:10: fatal error: Python.h: No such file or directory\n      compilation terminated.\n"
            "      error: command '/usr/bin/gcc' failed with exit code 1\n  ERROR: Failed building wheel for penstock-core\n"
        ),
        "src/rows.h:11:10: fatal error: Python.h: No such file or directory",
    ),
    "there is no compiler on the path": (
        "      error: command 'gcc' failed: No such file or directory\n  ERROR: Failed building wheel for penstock-core\n",
        "error: command 'gcc' failed: No such file or directory",
    ),
    "pip says something else": ("No module named pip\n", "No module named pip"),
}


@pytest.mark.skipif(sys.platform == "win32" or shutil.which("make") is None, reason="needs make and a shell")
@pytest.mark.parametrize("failure", FAILURES)
def test_make_tells_why_the_core_was_not_built(failure, tmp_path):
    said, told = FAILURES[failure]
    (tmp_path / "said").write_text(said, "utf-8")
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\ncase "$*" in *./core*) cat {tmp_path}/said >&2; exit 1;; esac\n', "utf-8")
    python.chmod(0o755)
    alone = {name: text for name, text in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
    done = subprocess.run(
        ["make", f"VENV={tmp_path}", f"{tmp_path}/.run"],
        cwd=ROOT,
        env=alone,  # a make within another one tells its folder at the end
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [
        f"The inner loops were not compiled: {told}",
        f"Without them Penstock gives the same results, more slowly. All that was said: {tmp_path}/core.log",
    ]
    assert (tmp_path / "core.log").read_text("utf-8") == said


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout


def test_the_engines_say_how_the_inner_loops_run():
    main = "from penstock.cli.main import main; sys.exit(main(['engines']))"
    assert "inner loops: compiled" in run(f"import sys; {main}")
    assert "inner loops: in Python; with penstock-core" in run(HIDE + main)


@pytest.mark.parametrize("interface", ["penstock_core.INTERFACE += 1", "del penstock_core.INTERFACE"])
def test_a_core_of_another_version_is_left_alone_and_told(interface):
    other = f"import sys, penstock_core; {interface}; "
    main = "from penstock.cli.main import main; sys.exit(main(['engines'%s]))"
    assert "inner loops: in Python; the penstock-core that is installed is of another version" in run(
        other + main % ""
    )
    assert json.loads(run(other + main % ", '--json'"))["inner_loops"] == "python"
    run(
        other
        + "from penstock.writing.compiled import open_finder; assert type(open_finder()).__name__ == 'Finder'"
    )


def test_an_interpreter_that_is_told_to_do_without_its_lock_runs_the_loops_in_python():
    forced = "import sys; sys._is_gil_enabled = lambda: False; "
    assert "inner loops: in Python" in run(
        forced + "from penstock.cli.main import main; sys.exit(main(['engines']))"
    )
    told = "try: import penstock_core\nexcept ImportError as error: print(error)"
    assert "needs the interpreter's lock" in run(f"{forced}\n{told}")


def test_what_is_recorded_holds_without_it():
    tests = ["tests/golden", "tests/unit/writing"]
    run(HIDE + "import pytest; sys.exit(pytest.main(['-p', 'no:cacheprovider', *sys.argv[1:]]))", *tests)
