"""The files of deploy/, as far as they can be tried without a Docker engine: what they name exists, what they start runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from penstock.cli.parser import build_parser
from penstock.config import load_settings, variable_name
from penstock.gateway.operations import require_safe_address
from penstock.gateway.upstreams import read_upstreams
from penstock.settings import known_keys

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "penstock-gateway.service"


def find_compose():
    """Returns the command that reads a file of Compose, as a plugin of docker or as a program of its own; None without one."""
    plugin = ["docker", "compose"]
    if (
        shutil.which("docker")
        and subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode == 0
    ):
        return plugin
    return ["docker-compose"] if shutil.which("docker-compose") else None


COMPOSE = find_compose()
SECRET = re.compile(r"password|secret|token|api_key", re.IGNORECASE)
PORT = "8787"


def read_dockerfile():
    """The instructions of the Dockerfile: each its word and its text."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def read_variables():
    """What `ENV` sets in the last stage."""
    return dict(
        pair.split("=", 1) for word, text in read_dockerfile() if word == "ENV" for pair in text.split()
    )


class TestDockerfile:
    def test_every_stage_is_slim_and_the_last_runs_as_nobody_in_particular(self):
        instructions = read_dockerfile()
        bases = [text.split()[0] for word, text in instructions if word == "FROM"]
        assert len(bases) == 2
        assert all(re.fullmatch(r"python:3\.\d+-slim", base) for base in bases)
        last = instructions[max(place for place, (word, _) in enumerate(instructions) if word == "FROM") :]
        (user,) = (text for word, text in last if word == "USER")
        assert int(user.split(":")[0]) >= 1_000
        after_user = [word for word, _ in last][[word for word, _ in last].index("USER") :]
        assert "RUN" not in after_user

    def test_no_secret_is_built_in(self):
        for word, text in read_dockerfile():
            if word in ("ENV", "ARG"):
                assert not SECRET.search(text)

    def test_its_variables_are_settings_and_its_command_is_one(self):
        ours = {name for name in read_variables() if name.startswith("PENSTOCK_")}
        assert ours <= {variable_name(key) for key in known_keys()}
        settings = load_settings(environ={name: read_variables()[name] for name in ours})
        assert settings.gateway.require_keys
        told = dict(read_dockerfile())
        command = [*json.loads(told["ENTRYPOINT"]), *json.loads(told["CMD"])]
        assert command[0] == "penstock"
        assert build_parser().parse_args(command[1:]).command == "serve"
        assert told["EXPOSE"] == str(settings.gateway.port) == PORT

    def test_what_it_copies_is_enough_to_build_the_wheel(self, built):
        assert built.name.startswith("penstock_context-")

    def test_its_command_starts_and_its_health_check_says_so(self, built, tmp_path):
        code = tmp_path / "unpacked"
        zipfile.ZipFile(built).extractall(code)
        environ = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environ |= {
            name: value
            for name, value in read_variables().items()
            if name.startswith(("PENSTOCK_", "PYTHON"))
        }
        environ |= {
            "PYTHONPATH": str(code),
            "XDG_DATA_HOME": str(tmp_path),
            "PENSTOCK_GATEWAY_HOST": "127.0.0.1",
            "PENSTOCK_GATEWAY_PORT": "0",
        }
        told = dict(read_dockerfile())
        serve = [
            sys.executable,
            "-m",
            "penstock",
            *json.loads(told["CMD"]),
            "--upstream",
            "http://127.0.0.1:9",
        ]
        with subprocess.Popen(serve, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True) as process:
            try:
                port = process.stdout.readline().strip().rpartition(":")[2]
                check = json.loads(told["HEALTHCHECK"].partition("CMD ")[2])
                check = [sys.executable, *(one.replace(PORT, port) for one in check[1:])]
                assert subprocess.run(check, check=False, env=environ).returncode == 0
                process.terminate()
                assert process.wait(20) == 0
                assert subprocess.run(check, check=False, env=environ, stderr=subprocess.DEVNULL).returncode
            finally:
                process.kill()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel, made of nothing but what the Dockerfile copies."""
    folder, wheels = tmp_path_factory.mktemp("context"), tmp_path_factory.mktemp("wheels")
    stage = next(place for place, (word, _) in enumerate(read_dockerfile()) if word == "RUN")
    for word, text in read_dockerfile()[:stage]:
        if word == "COPY":
            *sources, target = text.split()
            for source in sources:
                to = folder / (source if target == "./" else target)
                to.parent.mkdir(parents=True, exist_ok=True)
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / source, to)
    script = f"from hatchling.build import build_wheel; print(build_wheel({str(wheels)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True
    )
    return wheels / done.stdout.splitlines()[-1]


class TestCompose:
    TEXT = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    FILE = yaml.safe_load(TEXT)

    def test_no_secret_has_a_default(self):
        for name, rest in re.findall(r"\$\{(\w+)([^}]*)\}", self.TEXT):
            assert rest == ":-" or rest.startswith(":?"), name
        for service in self.FILE["services"].values():
            for name, value in service["environment"].items():
                if SECRET.search(name) or "://" in value:
                    assert "${" in value, name

    def test_what_it_names_exists_and_waits_long_enough(self):
        gateway = self.FILE["services"]["gateway"]
        assert (DEPLOY / gateway["build"]["context"] / gateway["build"]["dockerfile"]).resolve().is_file()
        for volume in gateway["volumes"]:
            assert (DEPLOY / volume.split(":")[0]).is_file()
        assert gateway["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
        args = build_parser().parse_args(gateway["command"])
        settings = load_settings(path=DEPLOY / "config.yaml", environ={})
        assert args.config == "/etc/penstock/config.yaml"
        assert int(gateway["stop_grace_period"].removesuffix("s")) > settings.gateway.drain_seconds
        ours = {name for name in gateway["environment"] if name.startswith("PENSTOCK_")}
        assert ours <= {variable_name(key) for key in known_keys()}

    def test_its_settings_need_keys_and_name_upstreams_with_keys_of_their_own(self):
        gateway = self.FILE["services"]["gateway"]
        settings = load_settings(path=DEPLOY / "config.yaml", environ={})
        require_safe_address(settings)
        assert settings.gateway.require_keys
        named = {one.api_key_env for one in settings.gateway.upstreams.values()}
        assert named == {name for name in gateway["environment"] if name.endswith("_API_KEY")}
        assert len(list(read_upstreams(settings.gateway, environ=dict.fromkeys(named, "made-up-key")))) == 2

    @pytest.mark.skipif(not COMPOSE, reason="there is no docker compose")
    def test_compose_itself_reads_it_and_asks_for_the_password(self):
        command = [*COMPOSE, "-f", str(DEPLOY / "compose.yaml"), "config", "-q"]
        plain = {name: value for name, value in os.environ.items() if name != "POSTGRES_PASSWORD"}
        assert subprocess.run(command, env=plain, capture_output=True, check=False).returncode != 0
        assert (
            subprocess.run(command, env={**plain, "POSTGRES_PASSWORD": "made-up"}, check=False).returncode
            == 0
        )


class TestUnit:
    TEXT = UNIT.read_text(encoding="utf-8")

    def test_its_command_is_one_and_it_waits_long_enough(self):
        (start,) = re.findall(r"^ExecStart=(.+)$", self.TEXT, re.MULTILINE)
        program, *rest = start.split()
        assert program.endswith("/bin/penstock")
        assert build_parser().parse_args(rest).command == "serve"
        (wait,) = re.findall(r"^TimeoutStopSec=(\d+)$", self.TEXT, re.MULTILINE)
        assert int(wait) > load_settings(environ={}).gateway.drain_seconds

    @pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
    def test_systemd_reads_it_and_finds_it_hardened(self, tmp_path):
        here = tmp_path / UNIT.name
        here.write_text(
            self.TEXT.replace("/opt/penstock/bin/penstock", sys.executable).replace(
                "man:penstock(1)", "man:sh(1)"
            )
        )
        read = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", here], capture_output=True, text=True, check=False
        )
        assert (read.returncode, read.stderr) == (0, "")
        judged = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--threshold=20", here],
            capture_output=True,
            check=False,
        )
        assert judged.returncode == 0  # an exposure of at most 2.0 in 10
