"""Every command of the README and the guides runs as it is printed: against a scripted provider, in a home of its own.

The commands of a document run one after the other in one folder, as a reader types them. `STAND_INS` says what a reader has in the
place of an example's name; `NOT_RUN` lists what no test can run, each with its reason. A command that is in neither, and fails,
fails the test of its document.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from tests.e2e.chat_screen import CTRL_D, ChatScreen
from tests.e2e.cli_process import COMMAND, environment, penstock
from tests.integrations.recorded_sessions import write_claude_session, write_codex_session

from penstock.config import load_settings
from penstock.local import missing
from penstock.testing import scripted_provider

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "website/*.md", "docs/**/*.md", "examples/*.md")
    for path in ROOT.glob(pattern)
    if path.parent.name not in {"adr", "benchmarks"}  # which tell what was, and how it was measured
)
# A pattern of commands that no test runs, and why.
NOT_RUN = {
    r"pip install ": "installs from a registry; test_built_wheel.py installs the wheel, and every extra is one that there is",
    r"make run$|\. \.venv/bin/activate": "makes the environment in which this test runs",
    r"docker ": "needs a daemon of Docker; test_deploy.py has Compose judge its file",
    r"python3 -m venv /opt|install -|systemctl ": "changes the system; test_deploy.py has systemd judge the unit",
    r"/opt/penstock/bin/penstock keys create me --store sqlite:////var": "writes where only the service may; other keys are created here",
    r"hermes plugins ": "is Hermes' own command; tests/integrations/test_hermes.py runs the engine in the real agent",
    r"python -m benchmarks ": "measures for minutes; tests/unit/test_benchmarks.py runs them with --quick",
    r".* --engine ray --ray-address auto": "needs a Ray cluster; test_trajectory_ray.py starts one",
    r"curl .*/approvals ": "needs a call that waits for approval; tests/gateway/test_hosted_tools.py has one",
}
# Servers run until they are stopped; the chat waits for a person.
SERVERS = r"penstock (serve|dashboard)|python -m penstock\.local"
CHATS = r"penstock chat( --resume( \w+)?)?$"
ANSWER = "They are 4411 and 4417."

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_TYPED = re.compile(
    r"(penstock [^\d]|python |pip |make |git |cat |curl |docker |install |systemctl |hermes |export |\. )"
)


class Printed(NamedTuple):
    """A command as a document has it; `fails` where what is printed below it is an error."""

    line: str
    fails: bool


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def read_commands(name):
    """The commands of a document: all lines of shells, those behind `$` of consoles, or those that are commands."""
    commands = []
    for language, body in _FENCE.findall(read(name)):
        lines = body.replace("\\\n", " ").splitlines()
        prompts = any(line.startswith("$ ") for line in lines)
        for line, below in pairwise([*lines, ""]):
            typed = line.startswith("$ ") if prompts else _TYPED.match(line) or language in {"sh", "bash"}
            if language in {"sh", "bash", "console"} and typed and line and not line.startswith("#"):
                command = re.split(r" +# ", line.removeprefix("$ "))[0].strip()
                commands.append(Printed(command, prompts and below.startswith("penstock: ")))
    return commands


WITH_COMMANDS = [name for name in DOCUMENTS if read_commands(name)]


def find_reason(command):
    return next((reason for pattern, reason in NOT_RUN.items() if re.match(pattern, command)), None)


class Reader:
    """A person who tries a document: a home with sessions of clients, a folder with files of the names in the examples."""

    def __init__(self, folder, provider):
        self.home, self.work, self.bin = folder / "home", folder / "work", folder / "bin"
        self.provider = provider
        for one in (self.home, self.work, self.bin, self.home / ".zfunc", self.work / "out"):
            one.mkdir()
        (self.home / ".local/share/bash-completion/completions").mkdir(parents=True)
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{self.bin}:{os.defpath}:/usr/local/bin",
            "BROWSER": "true",
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_API_KEY": "none",
            "PENSTOCK_GATEWAY_PORT": "0",
        }
        self._make_programs()
        self._make_settings()
        self._make_files()
        turns = [(f"Which parts of shelf {number} are missing?", ANSWER) for number in range(4)]
        write_claude_session(self.home, self.work, "claude-1", turns)
        write_codex_session(self.home, self.work, "codex-1", turns)
        self.stand_ins = {
            "https://api.openai.com/v1": f"{provider.base_url}/v1",
            "http://127.0.0.1:8080/v1": f"{provider.base_url}/v1",
            "--port 8900": "--port 0",
        }
        self.servers = []
        self.hosted_session = None

    def _make_programs(self):
        for name, start in (("penstock", COMMAND), ("python", sys.executable)):
            (self.bin / name).write_text(f'#!/bin/sh\nexec "{start}" "$@"\n')
        for client in ("claude", "codex"):  # which ask nothing, and end well
            (self.bin / client).write_text("#!/bin/sh\nexit 0\n")
        for program in self.bin.iterdir():
            program.chmod(0o755)

    def _make_settings(self):
        folder = self.home / ".config/penstock"
        folder.mkdir(parents=True)
        address = f"{self.provider.base_url}/v1"
        settings = {
            "model": {"name": "gpt-4.1", "base_url": address, "api_key_env": "OPENAI_API_KEY"},
            "auxiliary": {"compression": {"base_url": self.provider.base_url}},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(settings))

    def _make_files(self):
        session = (ROOT / "examples/long_session.json").read_text()
        messages = json.loads(session)["messages"]
        (self.work / "examples").symlink_to(ROOT / "examples")
        for name in ("session.json", "transcript.json"):
            (self.work / name).write_text(session)
        (self.work / "session.jsonl").write_text("".join(json.dumps(one) + "\n" for one in messages))
        (self.work / "cut-off.json").write_text('[{"role": "user", "content": "Hello, you."},\n')
        (self.work / "question.txt").write_text("Which orders are they?")
        run = {"conversations": [{"from": "human", "value": "Which?"}, {"from": "gpt", "value": ANSWER}]}
        rows = (json.dumps(run) + "\n") * 3
        (self.work / "data").mkdir()
        for name in ("runs.jsonl", "training.jsonl", "data/a.jsonl"):
            (self.work / name).write_text(rows)
        (self.work / "runs.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
        turns = [("Compare the reports.", "They agree.")]
        shutil.copy(write_claude_session(self.home, self.work, "c", turns), self.work / "c.jsonl")
        shutil.copy(write_codex_session(self.home, self.work, "r", turns), self.work / "rollout.jsonl")
        git = ["git", "-C", str(self.work), "-c", "user.name=Reader", "-c", "user.email=reader@example.org"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "question.txt"], check=True)
        subprocess.run([*git, "commit", "-qm", "A question"], check=True)
        (self.work / "question.txt").write_text("Which orders are they? The last two.")
        penstock(
            "sessions", "import", "session.json", "--store", "sqlite:///work.db", cwd=self.work, **self.env
        )
        self._make_parquet(run)
        self._make_tokenizer()

    def _make_parquet(self, run):
        parquet = pytest.importorskip("pyarrow.parquet")
        table = pytest.importorskip("pyarrow").Table.from_pylist([run] * 3)
        parquet.write_table(table, self.work / "runs.parquet")

    def _make_tokenizer(self):
        tokenizers = pytest.importorskip("tokenizers")
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "which": 1}, unk_token="[UNK]"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        (self.work / "my-model").mkdir()
        made.save(str(self.work / "my-model/tokenizer.json"))

    def type(self, command):
        """Runs a command. Returns its exit code and what it wrote."""
        for printed, real in self.stand_ins.items():
            command = command.replace(printed, real)
        command = re.sub(r"\bID\b|\b5930795f\b", lambda _: self.find_session(), command)
        command = re.sub(r"\b3f9k\b", lambda _: self.find_key(), command)
        if re.match(SERVERS, command):
            return self._serve(command)
        if re.match(CHATS, command):
            return self._chat(command)
        if command.startswith("penstock sessions delete"):
            return self._delete(command)
        if name := re.match(r"export (\w+)=(\S+)$", command):
            self.env[name[1]] = name[2]
            return 0, ""
        if command.startswith("penstock ") and not re.search(r"[|<>~$*;&]", command):
            ran = penstock(*shlex.split(command)[1:], cwd=self.work, **self.env)
            return ran.code, ran.text + ran.err
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.work,
            env=environment(**self.env),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if command.startswith("curl"):
            answer = json.loads(done.stdout)
            assert "error" not in answer, answer
            self.hosted_session = self.hosted_session or answer["id"]
        return done.returncode, done.stdout + done.stderr

    def find_session(self):
        if self.hosted_session:
            return self.hosted_session
        listed = penstock("sessions", "list", "--json", cwd=self.work, **self.env)
        found = json.loads(listed.text)
        if not found:
            penstock("chat", "-p", "Hello.", cwd=self.work, **self.env)
            return self.find_session()
        return found[0]["id"]

    def find_key(self):
        return json.loads(penstock("keys", "list", "--json", cwd=self.work, **self.env).text)[0]["id"][:4]

    def _chat(self, command):
        with ChatScreen(*shlex.split(command)[2:], columns=100, cwd=self.work, **self.env) as chat:
            chat.wait_idle()
            chat.say("Which orders are they?")
            chat.wait(re.escape(ANSWER))
            chat.wait_idle()
            chat.type(CTRL_D)
            return chat.wait_end(), chat.text

    def _delete(self, command):
        """Says yes at a terminal, and imports the conversation again: the document goes on with it."""
        with ChatScreen(command=(COMMAND, *shlex.split(command)[1:]), cwd=self.work, **self.env) as screen:
            screen.wait(r"\?")
            screen.say("y")
            code, said = screen.wait_end(), screen.text
        penstock("sessions", "import", "examples/long_session.json", cwd=self.work, **self.env)
        return code, said

    def _serve(self, command):
        """Starts a server, and asks it for something at the address that it prints. It runs until the end of the document."""
        if "penstock.local" in command and missing():
            return 0, ""
        server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.work,
            env=environment(**self.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.servers.append(server)
        said = ""
        for line in server.stdout:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:\d+\S*", line):
                break
        else:
            return server.wait(20), said
        address = found[0]
        with urllib.request.urlopen(
            f"{address}/models" if address.endswith("/v1") else address, timeout=60
        ) as page:
            assert page.status == 200
        if command.startswith("penstock serve"):
            self.stand_ins["http://127.0.0.1:8787"] = address
        return 0, said

    def stop(self):
        """Stops the servers as Ctrl-C does. Returns their exit codes."""
        for server in self.servers:
            server.send_signal(signal.SIGINT)
        try:
            return [(server.communicate(timeout=60), server.returncode)[1] for server in self.servers]
        finally:
            for server in self.servers:
                server.kill()


@pytest.fixture
def reader(tmp_path):
    with scripted_provider([ANSWER], repeat_last=True) as provider:
        person = Reader(tmp_path, provider)
        yield person
        assert set(person.stop()) <= {0, 130}
        assert provider.violations == ()


@pytest.mark.skipif(not shutil.which("jq"), reason="needs jq")
@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_commands_of_a_document_run_as_printed(name, reader):
    wrong = []
    for command in read_commands(name):
        if find_reason(command.line) is None:
            code, said = reader.type(command.line)
            if bool(code) != command.fails or "Traceback" in said:
                wrong.append(f"{command.line}\n  → {code}: {said[-800:]}")
    assert not wrong, "\n".join(wrong)


def test_the_list_of_what_is_not_run_has_nothing_that_no_document_shows():
    lines = [command.line for name in WITH_COMMANDS for command in read_commands(name)]
    assert len(lines) > 80
    unused = [pattern for pattern in NOT_RUN if not any(re.match(pattern, line) for line in lines)]
    assert unused == []
    assert sum(find_reason(line) is not None for line in lines) < len(lines) / 3
    for reason in NOT_RUN.values():
        for file in re.findall(r"(?:tests/\w+/)?(test_\w+\.py)", reason):
            assert list(ROOT.glob(f"tests/**/{file}")), file


def test_every_extra_that_a_document_installs_is_one_that_there_is():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        extra
        for name in DOCUMENTS
        for extra in re.findall(r"(?:penstock-context|'\.)\[([\w-]+)\]", read(name))
    }
    table = re.search(
        r"install `penstock-context\[…\]`.*?\n\n", read("docs/guides/integrations.md"), re.DOTALL
    )[0]
    named |= set(re.findall(r"^\| [^|]+ \| `([\w-]+)` \|", table, re.MULTILINE))
    assert {"chat", "mcp", "langchain"} <= named <= extras.keys()


def settings_of_documents():
    """The blocks of YAML that are Penstock's settings: all but those of other programs."""
    others = ("litellm_settings", "# ~/.hermes")
    for name in DOCUMENTS:
        for language, body in _FENCE.findall(read(name)):
            if language == "yaml" and not body.startswith(others):
                yield pytest.param(body, id=f"{name}: {body.split()[0]}")


@pytest.mark.parametrize("body", list(settings_of_documents()))
def test_settings_of_a_document_are_read_as_printed(body, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(body)
    settings = load_settings(file, environ={})
    for section in yaml.safe_load(body):
        assert getattr(settings, section) != getattr(load_settings(environ={}), section)
