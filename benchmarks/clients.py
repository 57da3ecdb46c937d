"""Real command-line clients through `penstock serve` and `penstock wrap`: a task of many requests that does not fit the window.

The provider is scripted: it has the client run one command after the other, each with a long output, and refuses what
breaks a rule of its API or does not fit its window. When all is done, the client is started again with the same conversation and
asked for the rule of the first message and a value of an early result; the script says what it finds in the request. In
the rows with recall it is asked for one of thousands of values, which the script has to look up. `make test-clients`
installs the clients and runs this.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.clock import note
from benchmarks.gateway import process
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table
from penstock.sessions.handovers import read_handovers
from penstock.stores.store import open_store
from penstock.testing.provider_server import scripted_provider
from penstock.testing.scripted import Received, Reply

__all__ = ["run"]

ROOT = Path(__file__).parents[1]
BIN = Path(os.environ.get("CLIENTS_FOLDER") or ROOT / ".clients") / "node_modules" / ".bin"
WINDOW = 120_000
STEPS = 45
OUTPUT_LINES = 450
RULE = "never touch the branch release-7"
TASK = (
    f"A rule for all you do: {RULE}. Now run the steps one after the other, and say DONE when all are done."
)
SHELLS = ("Bash", "bash", "exec_command", "shell_command", "shell", "local_shell")
SECONDS = 900
KEY = "made-up-key-for-the-scripted-provider"
EARLY, VALUE = 3, "kx-88417"
SOUGHT = "entry-7-17"  # near the beginning: clients cut the middle of long results out
SOUGHT_VALUE = str(7 * 7_919 + 17 * 104_729)
QUESTION = f"What is the rule for all you do, which build was step {EARLY}, and what is {SOUGHT}?"
BY_TRIGGER, BY_ITSELF, WITH_RECALL = "by trigger", "by itself", "with recall"
NONE, ENOUGH = Limit(0), Limit(2, at_least=True)

Runs = tuple[tuple[list[str], dict[str, str]], tuple[list[str], dict[str, str]]]
"""The commands of a client, each with its environment: for the task, and for the question at the end."""
Ran = tuple[subprocess.CompletedProcess[bytes], subprocess.CompletedProcess[bytes]]
Start = Callable[[str, Path], Runs]
Through = Callable[[str, Start, Path, str], Ran]


WAYS = {"_serve": "`penstock serve`", "_wrap": "`penstock wrap`", "_join": "`penstock wrap`, which joins"}


def run(_options: Options) -> list[Table]:
    """Drives each client that is installed; nothing where none is."""
    chosen = {name: start for name, start in STARTS.items() if (BIN / _program(name)).exists()}
    ways = {name: (_serve,) if "," in name else (_serve, _wrap, _join) for name in chosen}
    rows = [_drive(name, start, drive) for name, start in chosen.items() for drive in ways[name]]
    if not rows:
        note("no client is installed: run make test-clients")
        return []
    columns = (
        "client",
        "through",
        "requests",
        "compactions",
        "illegal",
        "refused",
        "without the rule",
        "without the value",
        "missing at the end",
        "ended",
    )
    text = (
        f"Each runs {STEPS} commands in one task, with a window of {WINDOW:,} tokens. Illegal: requests that the API would "
        "refuse for their form; refused: for their size; without the rule: requests behind the first compaction that no "
        "longer have the rule of the first message; without the value: those that lack what one line of step "
        f"{EARLY} said; missing at the end: of both, and of the value that has to be looked up, what the last request did not "
        "have when it was asked for. By trigger: the client asks the gateway to compact; by itself: it asks the model for a "
        "summary, and the gateway answers (Claude Code does so only when it was refused); with recall: results are "
        f"{OUTPUT_LINES} values each, and a look-up is one request more."
    )
    return [Table("clients", "Real clients through the gateway", columns, tuple(rows), text)]


class _Script:
    """A model that runs the steps one by one; what has no shell among its tools is a side call, and gets a word."""

    def __init__(self, *, recalls: bool) -> None:
        self.step = 0
        self.look_ups = 0
        self._recalls = recalls

    def __call__(self, received: Received) -> Reply:
        tools = received.body.get("tools") or []
        shell = _find_shell(tools)
        if shell is None:
            return Reply(text="A title")
        if self.step >= STEPS:
            return self._end(json.dumps(received.body), json.dumps(tools))
        self.step += 1
        command = _write_command(self.step, recalls=self._recalls)
        name, takes = shell
        arguments = {"cmd": command} if "cmd" in takes else {"command": command}
        if takes.get("command", {}).get("type") == "array":
            arguments = {"command": ["bash", "-lc", command]}
        if "description" in takes:
            arguments["description"] = f"step {self.step}"
        return Reply.calling(name, **arguments)

    def _end(self, body: str, tools: str) -> Reply:
        """Says that all is done; asked at the end, what it finds in the request, or looks up."""
        if QUESTION not in body:
            return Reply(text="DONE")
        if self._recalls and SOUGHT_VALUE not in body and "history_search" in tools and not self.look_ups:
            self.look_ups += 1
            return Reply.calling("history_search", query=SOUGHT)
        return Reply(text="; ".join(["ANSWER", *(one for one in _list_asked(self._recalls) if one in body)]))


def _list_asked(recalls: bool) -> tuple[str, ...]:
    return (RULE, SOUGHT_VALUE) if recalls else (RULE, VALUE)


def _write_command(step: int, *, recalls: bool) -> str:
    if recalls:
        value = f"$(({step} * 7919 + i * 104729))"
        return f"for i in $(seq {OUTPUT_LINES}); do echo entry-{step}-$i is {value}; done"
    command = f"for i in $(seq {OUTPUT_LINES}); do echo step {step} line $i of {OUTPUT_LINES} is fine; done"
    return f"{command}; echo the build of step {EARLY} is {VALUE}" if step == EARLY else command


def _find_shell(tools: list) -> tuple[str, dict] | None:
    """The tool that runs commands, and what it takes."""
    for tool in tools:
        inner = tool.get("function", tool)
        if inner.get("name") in SHELLS:
            schema = inner.get("parameters") or inner.get("input_schema") or {}
            return inner["name"], schema.get("properties", {})
    return None


def _drive(name: str, start: Start, through: Through) -> tuple:
    way = WAYS[through.__name__]
    note(f"clients: {name} through {way}")
    recalls, itself = WITH_RECALL in name, BY_ITSELF in name
    with (
        tempfile.TemporaryDirectory() as folder,
        scripted_provider(_Script(recalls=recalls), window_tokens=WINDOW) as provider,
    ):
        home, url = Path(folder), f"sqlite:///{folder}/gateway.db"
        (home / "work").mkdir()
        ended, asked = through(name, start, home, provider.base_url)
        said = b"DONE" in ended.stdout
        missing = [one for one in _list_asked(recalls) if one.encode() not in asked.stdout]
        for one in () if said and not missing else (ended, asked):
            note((one.stdout + one.stderr)[-2_000:].decode(errors="replace"))
        received = provider.received
        bodies = [json.dumps(one.body) for one in received if _find_shell(one.body.get("tools") or [])]
        compacted = [body for body in bodies if "penstock-handoff" in body]
        for breach in provider.violations[:5]:
            note(f"{name}: {breach}")
        return (
            name,
            way,
            str(len(received)),
            Figure(_count_compactions(url, name), limit=ENOUGH),
            Figure(len({breach.request for breach in provider.violations}), limit=NONE),
            Figure(
                sum(one.prompt_tokens > WINDOW for one in received),
                limit=None if itself and _program(name) == "claude" else NONE,
            ),
            Figure(sum(RULE not in body for body in compacted), limit=NONE),
            "–" if recalls else Figure(sum(VALUE not in body for body in compacted)),
            Figure(len(missing), limit=NONE),
            "DONE" if said else f"exit {ended.returncode}",
        )


def _serve(name: str, start: Start, home: Path, upstream: str) -> Ran:
    """Runs a client that is set up for a gateway, and asks it at the end."""
    serve = ("serve", "--port", "0", "--upstream", upstream)
    with process("-m", "penstock", *serve, *_gateway_options(home, name)) as (port, _):
        program = str(BIN / _program(name))
        runs = start(f"http://127.0.0.1:{port}", home)
        first, last = (_run_in(home, [program, *command[1:]], more) for command, more in runs)
    return first, last


def _wrap(name: str, start: Start, home: Path, upstream: str) -> Ran:
    """Runs a client that is set up for the provider itself: the wrapper has to find that out."""
    program = _program(name)
    wrap = ("wrap", program, "--program", str(BIN / program), *_gateway_options(home, name), "--")
    first, last = (
        _run_in(home, [sys.executable, "-m", "penstock", *wrap, *command[1:]], more)
        for command, more in start(upstream, home)
    )
    return first, last


def _join(name: str, start: Start, home: Path, upstream: str) -> Ran:
    """Runs a client as `_wrap` does, through a gateway that runs already: its base URL then has a path."""
    options = _gateway_options(home, name)
    serve = ("serve", "--port", "0", "--upstream", upstream)
    with process("-m", "penstock", *serve, *options) as (port, _):
        program = _program(name)
        wrap = ("wrap", program, "--program", str(BIN / program), *options, "--set", f"gateway.port={port}")
        penstock = [sys.executable, "-m", "penstock", *wrap]
        ran = []
        for command, more in start(upstream, home):
            shown = json.loads(_run_in(home, [*penstock, "--print", "--json"], more).stdout)
            if not shown["joins"]:
                raise RuntimeError(f"{name} would not join the gateway at port {port}")
            ran.append(_run_in(home, [*penstock, "--", *command[1:]], more))
    first, last = ran
    return first, last


def _gateway_options(home: Path, name: str) -> tuple[str, ...]:
    options = ("--store", f"sqlite:///{home}/gateway.db", "--set", f"model.context_length={WINDOW}")
    if WITH_RECALL in name:
        return (*options, "--recall")
    if BY_ITSELF not in name:
        return options
    # Claude Code compacts where it was refused: the gateway must not mend that itself.
    alone = ("--set", "compression.enabled=false") if _program(name) == "claude" else ()
    return (*options, "--answer-client-compactions", *alone)


def _run_in(home: Path, command: list[str], more: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "PYTHONPATH") if key in os.environ}
    return subprocess.run(
        command,
        cwd=home / "work",
        env={**kept, "HOME": str(home), **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


def _program(name: str) -> str:
    return name.split(",", maxsplit=1)[0]


def _count_compactions(url: str, name: str) -> int:
    """Those that the gateway made by itself, or those that the client asked for."""
    store = open_store(url)
    try:
        rows = store.list()
        if BY_TRIGGER in name or BY_ITSELF in name:
            names = {store.session(row.id).conversation for row in rows}
            return sum(len(read_handovers(store, one)) for one in names)
        return sum(len(store.compactions(row.id)) for row in rows)
    finally:
        store.close()


def _start_claude(address: str, _home: Path) -> Runs:
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY")
    environ = dict.fromkeys((*quiet, "DISABLE_ERROR_REPORTING", "IS_SANDBOX"), "1")
    environ |= {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": KEY}
    command = ["claude", "--model", "claude-sonnet-4-5", "--dangerously-skip-permissions"]
    return ([*command, "-p", TASK], environ), ([*command, "-c", "-p", QUESTION], environ)


def _start_codex(address: str, home: Path) -> Runs:
    return _configure_codex(address, home, "Gateway")


def _start_codex_by_trigger(address: str, home: Path) -> Runs:
    """Under this name Codex has its provider compact, before the gateway would do it by itself."""
    return _configure_codex(address, home, "OpenAI", _CODEX_LIMIT)


def _start_codex_by_itself(address: str, home: Path) -> Runs:
    return _configure_codex(address, home, "Gateway", _CODEX_LIMIT)


_CODEX_LIMIT = f"model_auto_compact_token_limit={WINDOW // 3}\n"


def _configure_codex(address: str, home: Path, named: str, more: str = "") -> Runs:
    (home / "config.toml").write_text(
        f'{more}model="gpt-stub"\nmodel_provider="gateway"\napproval_policy="never"\n'
        'sandbox_mode="danger-full-access"\ncheck_for_update_on_startup=false\n'
        f'[model_providers.gateway]\nname="{named}"\nbase_url="{address}/v1"\nenv_key="GATEWAY_KEY"\n'
        'wire_api="responses"\n[analytics]\nenabled=false\n'
    )
    environ = {"CODEX_HOME": str(home), "GATEWAY_KEY": KEY}
    first = ["codex", "exec", "--skip-git-repo-check", TASK]
    return (first, environ), (
        ["codex", "exec", "resume", "--last", "--skip-git-repo-check", QUESTION],
        environ,
    )


def _start_opencode(address: str, home: Path) -> Runs:
    return _configure_opencode(address, home, 10 * WINDOW)


def _start_opencode_by_itself(address: str, home: Path) -> Runs:
    """With this window opencode compacts before the gateway would."""
    return _configure_opencode(address, home, WINDOW // 2)


def _configure_opencode(address: str, home: Path, window: int) -> Runs:
    model = {"limit": {"context": window, "output": 4_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{address}/v1", "apiKey": KEY},
        "models": {"stub": model},
    }
    settings = {
        "provider": {"gateway": provider},
        "model": "gateway/stub",
        "permission": {"*": "allow"},
        "autoupdate": False,
        "share": "disabled",
    }
    (home / "work" / "opencode.json").write_text(json.dumps(settings))
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    environ = {f"OPENCODE_DISABLE_{name}": "1" for name in off}
    return (["opencode", "run", TASK], environ), (["opencode", "run", "-c", QUESTION], environ)


STARTS: dict[str, Start] = {
    "claude": _start_claude,
    f"claude, {BY_ITSELF}": _start_claude,
    f"claude, {WITH_RECALL}": _start_claude,
    "codex": _start_codex,
    f"codex, {BY_TRIGGER}": _start_codex_by_trigger,
    f"codex, {BY_ITSELF}": _start_codex_by_itself,
    f"codex, {WITH_RECALL}": _start_codex,
    "opencode": _start_opencode,
    f"opencode, {BY_ITSELF}": _start_opencode_by_itself,
    f"opencode, {WITH_RECALL}": _start_opencode,
}
