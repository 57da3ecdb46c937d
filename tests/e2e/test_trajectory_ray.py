"""`penstock trajectories --engine ray` on a real cluster of several processes: the same bytes, whatever happens to it.

With PENSTOCK_CLUSTER set, runs are also stopped and resumed, a model writes, and there is a cluster of several nodes, to which
more happens, and one that people start: `make soak` does that. Starting a cluster takes half a minute of all cores.
"""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.trajectory_rows import sharegpt_row
from cli_process import COMMAND, assert_one_clear_error, environment, penstock
from ray_sessions import processes_of
from trajectory_runs import alive_in_session, has_done_a_shard, started, wait_for

pytestmark = pytest.mark.xdist_group("ray")  # one cluster at a time

SIZES = (1_500, 2_500, 6_000, 9_000)
TARGET = ("--target-tokens", "3000", "--summary-tokens", "400")
LONG = bool(os.environ.get("PENSTOCK_CLUSTER"))
HAS_RAY = all(importlib.util.find_spec(name) for name in ("ray", "pandas"))
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="Ray Data is not installed: pip install 'ray[data]'")
takes_long = pytest.mark.skipif(not LONG, reason="takes long: `make soak`")


@pytest.fixture(scope="module")
def rows():
    return [sharegpt_row(number + 1, SIZES[number % len(SIZES)]) for number in range(24)] * 7


def lines_of(rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def orders():
    """Rows for a model, each of them too large."""
    for number in range(1, 11):
        turns = [{"from": "human", "value": f"Carry out the work order row-{number}, please."}]
        for step in range(12):
            boxes = " ".join(f"box{number}x{step}x{at}" for at in range(20))
            turns.append({"from": "gpt", "value": f"I look at shelf S{number}-{step}."})
            turns.append({"from": "human", "value": f"There are {boxes}."})
        yield {"conversations": [*turns, {"from": "gpt", "value": f"The order row-{number} is done."}]}


@pytest.fixture(scope="module")
def ray_runs(rows, tmp_path_factory):
    """What `ray_process.py` saw, and the folder with its files."""
    folder = tmp_path_factory.mktemp("ray")
    (folder / "in.jsonl").write_bytes(lines_of(rows))
    (folder / "orders.jsonl").write_bytes(lines_of(orders()))
    names = ("in.jsonl", "out.jsonl", "orders.jsonl", "orders.out.jsonl", "seen.json")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("ray_process.py"), *(folder / name for name in names)],
        env=environment(),
        capture_output=True,
        timeout=120,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads((folder / "seen.json").read_bytes()), folder


def shown_in(page):
    """The rows that a report shows side by side."""
    return re.findall(
        r'<details class="sample".*?</summary>', page.read_text(encoding="utf-8").replace(' open=""', "")
    )


def listening(processes):
    """The addresses on which these processes can be reached over a network."""
    inodes = set()
    for pid in processes:
        try:
            links = [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                found.add(address_of(words[1].partition(":")[0]))
    return found


def assert_only_ours(told):
    """Ray says nothing, not even of its dead."""
    assert [line for line in told.splitlines() if not line.startswith("penstock: ")] == []


def address_of(text):
    packed = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


@needs_ray
@pytest.mark.skipif(sys.platform != "linux", reason="processes are watched through /proc")
def test_several_processes_make_the_same_files_as_the_local_engine_one_killed_and_nobody_else_can_reach_them(
    rows, tmp_path
):
    import pyarrow as pa
    import pyarrow.parquet

    source = tmp_path / "in"
    source.mkdir()
    (source / "a.jsonl").write_bytes(lines_of(rows[:20]) + b'{"broken\n' + lines_of(rows[20:]))
    (source / "b.jsonl.gz").write_bytes(gzip.compress(lines_of(rows[:30])))
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows[:30]), source / "c.parquet", row_group_size=20)
    options = (*TARGET, "--workers", "2", "--report")
    ran = penstock("trajectories", source, tmp_path / "local", *options, tmp_path / "local.html")
    assert ran.code == 0, ran.err
    home = tmp_path / "home"
    home.mkdir()
    options = (*options, tmp_path / "ray.html", "--engine", "ray", "--json")
    command = ["trajectories", source, tmp_path / "ray", *options]
    with subprocess.Popen(
        [COMMAND, *map(str, command)],
        env=environment(HOME=str(home)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        at_work, reached, killed = set(), set(), None
        until = time.monotonic() + 120
        for look in itertools.count():
            if process.poll() is not None or time.monotonic() > until:
                break
            running = processes_of(process.pid)
            at_work |= {pid for pid, name in running.items() if name == "ray::MapBatches(_compress)"}
            if look % 5 == 0:  # who listens goes on listening, and it takes long to find out
                reached |= listening(running)
            if killed is None and len(at_work) == 2:
                killed = at_work.copy().pop()
                os.kill(killed, signal.SIGKILL)
            time.sleep(0.05)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err.decode()
    assert all(
        line.startswith(b"penstock: ") for line in err.splitlines()
    )  # Ray says nothing, not even of the dead
    assert [(one["file"], one["row"]) for one in json.loads(out)["bad"]] == [("a.jsonl", 21)]
    for path in source.iterdir():
        assert (tmp_path / "ray" / path.name).read_bytes() == (tmp_path / "local" / path.name).read_bytes()
    samples = [shown_in(tmp_path / name) for name in ("local.html", "ray.html")]
    assert len(samples[0]) > 3
    assert samples[0] == samples[1]
    assert len(at_work) >= 2
    assert killed is not None
    assert reached
    assert reached <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert not (tmp_path / "ray.parts").exists()
    assert list(home.iterdir()) == []  # Ray leaves no key there


@needs_ray
@takes_long
def test_stopped_and_resumed_with_a_worker_killed_on_the_way_it_ends_in_the_same_file(ray_runs, rows):
    seen, folder = ray_runs[0]["stopped"], ray_runs[1]
    assert seen["killed"]
    assert seen["in_journal"] == 2
    assert 0 < seen["resumed_rows"] < seen["rows"] == len(rows)
    ran = penstock("trajectories", folder / "in.jsonl", folder / "local.jsonl", *TARGET, "--workers", "1")
    assert ran.code == 0
    assert (folder / "out.jsonl").read_bytes() == (folder / "local.jsonl").read_bytes()


@needs_ray
@takes_long
def test_a_worker_that_is_killed_while_a_model_writes_has_no_row_written_twice(ray_runs):
    seen, folder = ray_runs[0]["model"], ray_runs[1]
    assert seen["outcomes"] == {"compressed": 10}, seen["reasons"]
    assert sorted(set(seen["asked"])) == list(range(1, 11))
    assert len(seen["asked"]) == 11  # the answer that the killed worker waited for was lost, and no other
    assert len((folder / "orders.out.jsonl").read_bytes().splitlines()) == 10


@needs_ray
@takes_long
def test_a_file_that_cannot_be_read_is_told_in_our_own_words(ray_runs):
    (told,), folder = ray_runs[0]["broken"], ray_runs[1]
    assert told.startswith("broken.jsonl.gz cannot be read after row ")
    assert told.endswith("; repair or replace the file")
    assert list(folder.glob("mended*")) == [folder / "mended.jsonl.gz"]


@needs_ray
@takes_long
def test_a_dataset_of_ones_own_has_the_same_rows(ray_runs):
    found, folder = ray_runs[0]["dataset"], ray_runs[1]
    with (folder / "out.jsonl").open("rb") as lines:
        expected = [json.loads(line) for line, _ in zip(lines, range(12), strict=False)]
    assert {row.pop("penstock")["outcome"] for row in found} == {"under_target", "compressed"}
    assert found == sorted(expected, key=lambda row: row["id"])


def test_an_address_needs_the_engine_and_a_cluster_behind_it(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"")
    ran = penstock("trajectories", source, tmp_path / "out.jsonl", "--ray-address", "auto")
    assert_one_clear_error(ran, "--engine ray")
    for address, word in (("ray://127.0.0.1:10001", "HOST:PORT"), (f"127.0.0.1:{unused_port()}", "refused")):
        ran = penstock("trajectories", source, tmp_path / "o", "--engine", "ray", "--ray-address", address)
        assert_one_clear_error(ran, word)


def unused_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@needs_ray
@takes_long
def test_a_cluster_that_people_start_is_used_and_goes_on(rows, tmp_path):
    source, port = tmp_path / "in.jsonl", unused_port()
    source.write_bytes(lines_of(rows[:24]))
    env = {
        "HOME": str(tmp_path),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "made-up-for-this-test-alone-0123",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the loopback address
    }
    options = ("--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats", "--block")
    ray = str(Path(COMMAND).with_name("ray"))
    with subprocess.Popen(
        [ray, "start", "--head", "--node-ip-address=127.0.0.1", f"--port={port}", *options],
        env=environment(**env),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as cluster:
        try:
            wait_for_nodes(port, cluster)
            options = (*TARGET, "--engine", "ray", "--ray-address", f"127.0.0.1:{port}")
            here = {"cwd": tmp_path, **env}  # which is not the folder of the cluster
            ran = penstock("trajectories", "in.jsonl", "ray.jsonl", *options, **here)
            assert ran.code == 0, ran.err
            assert_only_ours(ran.err)
            assert cluster.poll() is None
        finally:
            cluster.terminate()
            cluster.wait(timeout=60)
    assert penstock("trajectories", source, tmp_path / "local.jsonl", *TARGET, "--workers", "1").code == 0
    assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "local.jsonl").read_bytes()


@needs_ray
@takes_long
@pytest.mark.skipif(sys.platform != "linux", reason="processes are watched through /proc")
def test_several_nodes_make_the_same_file_while_nodes_and_processes_go_away_and_by_their_address(
    rows, tmp_path
):
    times = 40  # more than the cluster has room for
    (tmp_path / "rows.jsonl").write_bytes(lines_of(rows))
    (tmp_path / "in.jsonl").write_bytes(lines_of(rows) * times)
    (tmp_path / "orders.jsonl").write_bytes(lines_of(orders()))
    names = ("in.jsonl", "out.jsonl", "seen.json", "orders.jsonl")
    done = subprocess.run(
        [
            sys.executable,
            Path(__file__).with_name("ray_nodes_process.py"),
            *(tmp_path / name for name in names),
        ],
        env=environment(HOME=str(tmp_path)),
        capture_output=True,
        timeout=600,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    seen = json.loads((tmp_path / "seen.json").read_bytes())
    assert seen["rows"] == len(rows) * times
    assert (seen["removed"], seen["added"], seen["cutters"]) == (2, 1, 1)
    assert seen["workers"] >= 1
    assert penstock("trajectories", tmp_path / "rows.jsonl", tmp_path / "local.jsonl", *TARGET).code == 0
    expected = (tmp_path / "local.jsonl").read_bytes() * times
    assert (tmp_path / "out.jsonl").read_bytes() == expected
    assert seen["by_address"]["code"] == 0, seen["by_address"]["told"]
    assert_only_ours(seen["by_address"]["told"])
    assert (tmp_path / "by-address.jsonl").read_bytes() == expected
    assert "rows 1 to 10 of input file 1 is killed" in seen["poisoned"]["told"]
    assert seen["poisoned"]["asked"] == 4


@needs_ray
@takes_long
def test_an_interruption_ends_the_cluster_too_and_another_engine_goes_on(rows, tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines_of(rows) * 10)
    process = started(("trajectories", source, target, *TARGET, "--workers", "2", "--engine", "ray"))
    wait_for(lambda: has_done_a_shard(tmp_path / "out.jsonl.parts"), 120)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: Ray's processes too
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert_only_ours(told.decode())
    assert told.decode().endswith("penstock: stopped; run the same command with --resume to continue\n")
    wait_for(lambda: not alive_in_session(process.pid), 30)
    ran = penstock("trajectories", source, target, *TARGET, "--workers", "2", "--resume", "--json")
    assert json.loads(ran.text)["resumed_rows"] > 0
    (tmp_path / "once.jsonl").write_bytes(lines_of(rows))
    assert penstock("trajectories", tmp_path / "once.jsonl", tmp_path / "local.jsonl", *TARGET).code == 0
    assert target.read_bytes() == (tmp_path / "local.jsonl").read_bytes() * 10


def wait_for_nodes(port, cluster, seconds=60):
    """Until the cluster has started its node, whose processes come after its port."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and cluster.poll() is None:
        names = processes_of(cluster.pid).values()
        if any(name.endswith("/raylet") for name in names) and any("Agent" in name for name in names):
            return
        time.sleep(0.1)
    pytest.fail("the cluster did not start")


def test_without_the_package_it_is_told_how_to_get_it(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"")
    (tmp_path / "ray.py").write_text('raise ImportError("not installed here")\n')
    path = f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"
    ran = penstock("trajectories", source, tmp_path / "out.jsonl", "--engine", "ray", PYTHONPATH=path)
    assert_one_clear_error(ran, "pip install 'penstock-context[ray]'")
