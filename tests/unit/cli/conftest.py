"""The command in this process: as quick as a function call, and everything but the process is real."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest
from tests.e2e.cli_process import Ran, encoded, work

from penstock.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def penstock(capfdbinary, monkeypatch):
    """Runs the command with these arguments, bytes on standard input, and variables."""
    monkeypatch.setenv("HOME", "/nonexistent")

    def run(*args: str | Path, stdin: bytes = b"", **variables: str) -> Ran:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            for name, value in variables.items():
                patch.setenv(name, value)
            try:
                code = main([str(arg) for arg in args])
            except SystemExit as left:  # how argparse answers help and mistakes
                code = int(left.code or 0)
        written = capfdbinary.readouterr()
        return Ran(code, written.out, written.err.decode())

    return run


@pytest.fixture
def session(tmp_path: Path) -> Path:
    file = tmp_path / "session.json"
    file.write_bytes(encoded(work()))
    return file
