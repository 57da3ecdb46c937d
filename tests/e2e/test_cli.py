"""The command as people use it: files and pipes in, files and pipes out, reports, exit codes."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.e2e.cli_process import (
    COMMAND,
    assert_one_clear_error,
    encoded,
    environment,
    penstock,
    work,
)

import penstock as package
from penstock import __version__

EXAMPLE = Path(__file__).parents[2] / "examples" / "long_session.json"


@pytest.fixture
def session(tmp_path: Path) -> Path:
    file = tmp_path / "session.json"
    file.write_bytes(encoded(work()))
    return file


class TestCompress:
    def test_with_a_file_for_the_result_the_report_goes_to_stdout(self, session, tmp_path):
        out = tmp_path / "new" / "folder" / "out.json"
        ran = penstock("compress", session, "--target-tokens", "600", "-o", out)
        assert ran.code == 0
        assert ran.err == ""
        assert ran.text.startswith("compressed 63 → ")
        assert str(out) in ran.text
        smaller = json.loads(out.read_bytes())
        assert len(smaller) < 63
        assert smaller[-1] == work()[-1]

    def test_without_one_the_result_goes_to_stdout_and_the_report_to_stderr(self, session):
        ran = penstock("compress", session, "--target-tokens", "600")
        assert ran.code == 0
        assert json.loads(ran.out)[-1] == work()[-1]
        assert ran.err.startswith("compressed 63 → ")

    def test_it_is_a_filter(self, session):
        by_name = penstock("compress", session, "--target-tokens", "600")
        piped = penstock("compress", "-", "--target-tokens", "600", stdin=session.read_bytes())
        assert piped.out == by_name.out

    def test_the_input_may_be_the_output(self, session):
        assert penstock("compress", session, "--target-tokens", "600", "-o", session).code == 0
        assert len(json.loads(session.read_bytes())) < 63
        assert [file.name for file in session.parent.iterdir()] == [session.name]


class TestWriting:
    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path):
        out = tmp_path / "out.json"
        out.write_text("old")
        ran = penstock("compress", "-", "-o", out, stdin=b'[{"role": "user", ')
        assert_one_clear_error(ran, "standard input")
        assert out.read_text() == "old"
        assert list(tmp_path.iterdir()) == [out]

    def test_a_disk_that_fills_up_leaves_no_partial_file(self, session, tmp_path):
        """The limit on file size makes the write itself fail half-way, as a full disk does."""
        out = tmp_path / "results" / "out.json"
        done = subprocess.run(
            [COMMAND, "compress", session, "--target-tokens", "600", "-o", out],
            capture_output=True,
            text=True,
            env=environment(
                PYTHONDONTWRITEBYTECODE="1"
            ),  # whose files would be cut off, and break every later start
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)),
        )
        assert done.returncode == 2
        assert done.stderr.startswith(f"penstock: {out} cannot be written: ")
        assert list(out.parent.iterdir()) == []

    def test_a_kill_in_the_middle_of_writing_leaves_nothing_behind(self, tmp_path):
        """The process waits just before it puts the finished file in place: there the signal meets it."""
        script = (
            "import sys, time; from penstock.cli.output import write_file; "
            "sys.addaudithook(lambda event, _: time.sleep(20) if event == 'os.rename' else None); "
            "write_file(sys.argv[1], bytes(1_000_000))"
        )
        process = subprocess.Popen([sys.executable, "-c", script, tmp_path / "out.json"], env=environment())
        limit = time.monotonic() + 20
        while not list(tmp_path.iterdir()) and time.monotonic() < limit:
            time.sleep(0.001)
        process.terminate()
        assert process.wait(timeout=20) == 143
        assert list(tmp_path.iterdir()) == []

    def test_permissions_of_an_existing_file_stay(self, session, tmp_path):
        out = tmp_path / "out.json"
        out.write_text("old")
        out.chmod(0o640)
        penstock("compress", session, "--target-tokens", "600", "-o", out)
        assert stat.S_IMODE(out.stat().st_mode) == 0o640

    def test_a_link_is_followed(self, session, tmp_path):
        real, link = tmp_path / "real.json", tmp_path / "link.json"
        real.write_text("old")
        link.symlink_to(real)
        penstock("compress", session, "--target-tokens", "600", "-o", link)
        assert link.is_symlink()
        assert json.loads(real.read_bytes())

    def test_places_that_cannot_be_written(self, session, tmp_path):
        for place in (tmp_path, session / "x", "/dev/full"):
            ran = penstock("compress", session, "--target-tokens", "600", "-o", place)
            assert_one_clear_error(ran, str(place), "cannot be written")

    def test_a_full_stdout(self, session):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [COMMAND, "tokens", session], stdout=full, stderr=-1, env=environment(), check=False
            )
        assert done.returncode == 2
        assert done.stderr.decode().startswith("penstock: the output cannot be written: No space")
        assert done.stderr.count(b"\n") == 1

    @pytest.mark.parametrize(("name", "code"), [("session.json", 0), ("missing.json", 2)])
    def test_a_full_stderr_does_not_change_the_exit_code(self, session, name, code):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [COMMAND, "compress", session.with_name(name), "--target-tokens", "600"],
                stdout=subprocess.PIPE,
                stderr=full,
                env=environment(),
                check=False,
            )
        assert done.returncode == code
        assert bool(done.stdout) == (code == 0)

    def test_a_reader_that_goes_away_is_no_error(self, session):
        ours, theirs = os.pipe()
        os.close(ours)
        done = subprocess.run(
            [COMMAND, "compress", session], stdout=theirs, stderr=-1, env=environment(), check=False
        )
        os.close(theirs)
        assert done.returncode == 141
        assert done.stderr == b""


class TestUsage:
    def test_version_and_help(self):
        assert penstock("--version").text == f"penstock {__version__}\n"
        shown = penstock("--help")
        assert shown.code == 0
        for command in ("compress", "explain", "tokens", "sessions", "usage", "insights", "doctor", "config"):
            assert command in shown.text
            assert penstock(command, "--help").code == 0

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (("compres", "x"), ("compres", "compress")),
            (("compress",), ("FILE", "penstock compress --help")),
            (("compress", "x", "--dialect", "gemini"), ("--dialect", "gemini", "sharegpt")),
            (
                ("compress", "x", "--target-tokens", "5", "--context-length", "9"),
                ("cannot be combined with",),
            ),
            (("compress", "x", "--target-tokens", "-5"), ("--target-tokens",)),
            (("compress", "x", "--target", "5"), ("--target",)),
            (("compress", "x", "--set", "threshold"), ("KEY=VALUE",)),
            (("compress", "x\x1b[31m\ny", "--foo\n"), ("\\n",)),
        ],
    )
    def test_mistakes_are_one_line_with_the_next_step(self, args, words):
        assert_one_clear_error(penstock(*args), *words)

    def test_a_target_too_small_has_its_own_exit_code(self, session, tmp_path):
        out = tmp_path / "out.json"
        ran = penstock("compress", session, "--target-tokens", "5", "-o", out)
        assert_one_clear_error(ran, "target of 5 tokens", "raise the target", code=3)
        assert not out.exists()

    def test_debug_shows_the_traceback_before_the_line(self, tmp_path):
        ran = penstock("compress", tmp_path / "none.json", "--debug")
        assert ran.code == 2
        assert ran.err.startswith("Traceback")
        assert ran.err.splitlines()[-1].startswith("penstock: ")


def test_a_command_runs_the_code_that_these_tests_import():
    script = "import penstock; print(penstock.__file__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment(), check=True)
    assert done.stdout.decode().strip() == package.__file__


_LOADED = """
import sys
from penstock.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}), *sys.modules)
"""


@pytest.mark.parametrize(
    "args",
    [("--help",), ("--version",), (), ("compress",), ("compress", "--help"), ("sessions", "list", "--help")],
)
def test_help_and_mistakes_load_nothing_heavy(args):
    """What is loaded decides how fast the command starts; a clock in a test would only measure the machine."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, *args], capture_output=True, text=True, env=environment(), check=True
    )
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    heavy = {
        "numpy",
        "msgspec",
        "asyncio",
        "toktok",
        "splintr",
        "genai_prices",
        "yaml",
        "ahocorasick_rs",
        "json",
        "logging",
    }
    assert not loaded & heavy
    ours = {name for name in loaded if name.startswith("penstock")}
    assert ours <= {
        "penstock", "penstock.errors", "penstock.cli", "penstock.cli.main", "penstock.cli.parser", "penstock.cli.screen",
        "penstock.cli.command_parser", "penstock.cli.options",
    }  # fmt: skip
