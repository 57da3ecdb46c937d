"""Penstock beside other compactors, on the same conversations, scored in the same way; no model is asked.

Each peer is installed from PyPI into an environment of its own under `.peers/`, at the version named here, and is called as its
documentation shows (`benchmarks/peer_compactors.py`). The recorded compactions add the summary that the product's own model
wrote, as it stands in the recording.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.clock import note
from benchmarks.corpora import Case, Compactor, budget_of, counts_exactly, load_scorer, recorded_cases
from benchmarks.fidelity import compactor
from benchmarks.generate import coding_session, cut_at, message_tokens, needles, recalled, service_session
from benchmarks.goals import METRICS, REAL, ROWS
from benchmarks.options import Options
from benchmarks.pairs import legal, newest_that_fit
from benchmarks.recorded import INEXACT, mean
from benchmarks.report import Cell, Figure, Table, share
from benchmarks.speed import warm

__all__ = ["PEERS", "Peer", "install", "run"]

Chat = list[dict[str, Any]]
ROOT = Path(__file__).parents[1]
HOMES = ROOT / ".peers"
PART = 0.20
COUNTER = "toktok-rs"  # exact counts for peers that take a function for counting
MODEL_SUMMARY = "the product's own model summary"


class Peer(NamedTuple):
    """A compactor of somebody else: what to install, which function of `peer_compactors.py` calls it, and a fair word."""

    name: str
    requirement: str
    function: str
    unfair: str

    @property
    def home(self) -> Path:
        return HOMES / self.requirement.partition("==")[0]

    @property
    def title(self) -> str:
        return f"{self.name} {self.requirement.partition('==')[2]}"


PEERS = (
    Peer(
        "LiteLLM `compress`",
        "litellm==1.106.2",
        "litellm",
        "to LiteLLM: it can also rank by an embedding model, which is not used here, and gives the model a tool to "
        "restore stubs",
    ),
    Peer(
        "Headroom `compress`",
        "headroom-ai==0.42.0",
        "headroom",
        "to Headroom: it rewrites single results and has no target for a conversation; its own text model, which is "
        "not on PyPI, and its store of originals are not used",
    ),
    Peer(
        "LangChain `trim_messages`",
        "langchain==1.4.7",
        "langchain-trim",
        "to LangChain: its summarisation middleware asks a model, so this is what it offers without one",
    ),
    Peer(
        "LangChain `ClearToolUsesEdit`",
        "langchain==1.4.7",
        "langchain-clear",
        "to LangChain: the edit has a trigger and no target, and is meant for results that can be fetched again",
    ),
    Peer(
        "pydantic-ai-harness `TieredCompaction`",
        "pydantic-ai-harness==0.62.0",
        "pydantic-ai",
        "to pydantic-ai: its last tier is usually a summary by a model; here it is its sliding window, whose target is "
        "a minimum",
    ),
    Peer(
        "agent-framework `TokenBudgetComposedStrategy`",
        "agent-framework-core==1.23.0",
        "agent-framework",
        "to agent-framework: its budget counts the JSON of a message, which is larger than its text",
    ),
)
COLUMNS = (
    "conversations: compactor",
    "cases",
    "tokens kept",
    *METRICS,
    "over budget",
    "failed",
    "legal",
    "s / case",
)
BRIEF = ("without a model, asked for 20 %", "tokens kept", "values kept", "over budget", "time")
UNFAIR_TO_ALL = (
    "Unfair to everyone but us: the scorer counts literal values that the agent uses later, which is what our views are "
    "made for. Unfair to us: a compactor that exceeds the budget keeps more."
)
NEWEST = "newest messages that fit"


class Judged(NamedTuple):
    """One compaction of one conversation, by one compactor."""

    kind: str
    compactor: str
    recalls: tuple[float | None, ...]
    kept: float
    over: bool
    legal: bool
    failed: bool
    seconds: float | None


class Talk(NamedTuple):
    """A conversation to compact and its judge: recalls, share of tokens kept, tokens, legality of a view."""

    kind: str
    messages: Chat
    budget: int
    judge: Callable[[Chat], tuple[tuple[float | None, ...], float, int, bool]]
    newest: Compactor
    """Keeps the newest messages that fit."""
    summary: Chat | None = None
    """The recorded summary of a model, where there is one."""


def run(options: Options) -> list[Table]:
    """The comparison on recorded conversations where there are some, else on generated ones."""
    for peer in PEERS:
        install(peer)
    folder = options.corpora
    if folder is not None and not counts_exactly(folder):
        return [Table("peers", "Beside other compactors", (), (), INEXACT)]
    talks = list(_recorded(folder, options)) if folder else list(_generated(options))
    done = list(_judge_all(talks))
    kinds = dict.fromkeys(talk.kind for talk in talks)
    names = dict.fromkeys(judged.compactor for judged in done)
    rows = tuple(
        _row(f"{kind}: {name}", own)
        for kind in kinds
        for name in names
        if (own := [one for one in done if (one.kind, one.compactor) == (kind, name)])
    )
    source = "recorded" if folder else "generated"
    remark = (
        f"{source.capitalize()} conversations, cut and scored as in the tables of fidelity. No model is asked, except "
        f"for the summaries that the product wrote when the compactions were recorded. {UNFAIR_TO_ALL} "
        + " ".join(f"Unfair {reason}." for reason in dict.fromkeys(peer.unfair for peer in PEERS))
    )
    first = next(iter(kinds))
    brief = tuple(
        _brief_row(name, [one for one in done if (one.kind, one.compactor) == (first, name)])
        for name in names
    )
    if not folder:
        return [Table("peers-generated", "Beside other compactors, generated", COLUMNS, rows, remark)]
    return [
        Table("peers", "Beside other compactors", COLUMNS, rows, remark),
        Table("compared", f"The comparison in short: {first}", BRIEF, tuple(filter(None, brief)), ""),
        _summaries(done),
    ]


def install(peer: Peer) -> None:
    """Makes the environment of a peer, where it is missing or of another version. Raises CalledProcessError."""
    stamp = peer.home / ".installed"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == peer.requirement:
        return
    note(f"peers: installing {peer.requirement} into {peer.home.relative_to(ROOT)}")
    shutil.rmtree(peer.home, ignore_errors=True)
    venv.create(peer.home, with_pip=True)
    command = [_python(peer), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*command, peer.requirement, COUNTER], check=True)
    stamp.write_text(peer.requirement, encoding="utf-8")


def _python(peer: Peer) -> str:
    folder = "Scripts" if os.name == "nt" else "bin"
    return str(peer.home / folder / "python")


def _recorded(folder: Path, options: Options) -> Iterator[Talk]:
    with ProcessPoolExecutor(options.jobs, initializer=warm) as pool:
        cases = recorded_cases(folder, options, pool)
    wanted = [row for row in ROWS if row.share in {PART, None}]
    for row in wanted:
        for case in (case for case in cases if case.group == row.group):
            yield Talk(
                row.name,
                case.scored["prefix"],
                budget_of(folder, case, row.share),
                _judge_recorded(folder, case),
                load_scorer(folder, "future_recall").BASELINES["last_k"],
                case.scored["summary"] if row.group == REAL else None,
            )


def _judge_recorded(folder: Path, case: Case) -> Callable[[Chat], Any]:
    def judge(kept: Chat) -> tuple[tuple[float | None, ...], float, int, bool]:
        found = load_scorer(folder, "future_recall").score(case.scored, kept)
        recalls = tuple(
            found[metric][0] / found[metric][1] if found[metric][1] else None for metric in METRICS
        )
        return recalls, found["kept"], found["size"], found["legal"]

    return judge


def _generated(options: Options) -> Iterator[Talk]:
    seeds = range(1, 2 if options.quick else 13)
    for kind, make, tokens in (("coding", coding_session, 60_000), ("service", service_session, 9_000)):
        for seed in seeds:
            session = make(tokens, seed)
            cut = cut_at(session)
            prefix = session[:cut]
            system = message_tokens([message for message in prefix if message["role"] == "system"])
            size = message_tokens(prefix) - system
            wanted = needles(session, cut)

            def judge(
                kept: Chat, wanted: Any = wanted, cut: int = cut, system: int = system, size: int = size
            ) -> Any:
                found, own = recalled(wanted, cut, kept), message_tokens(kept) - system
                return (found.recall, found.context, found.far), own / size, own, legal(kept)

            yield Talk(f"{kind}, {100 * PART:.0f} %", prefix, int(PART * size), judge, newest_that_fit)


def _judge_all(talks: list[Talk]) -> Iterator[Judged]:
    """Returns the results of all compactors, run one after the other, so that none slows another down."""
    note(f"peers: {len(talks)} conversations")
    own = _run_child([sys.executable, "-m", "benchmarks.peers"], talks)
    yield from _judge("Penstock", talks, own)
    newest = ({"messages": talk.newest(talk.messages, talk.budget), "seconds": None} for talk in talks)
    yield from _judge(NEWEST, talks, newest)
    summed = [talk for talk in talks if talk.summary is not None]
    yield from _judge(MODEL_SUMMARY, summed, ({"messages": talk.summary, "seconds": None} for talk in summed))
    for peer in PEERS:
        note(f"peers: {peer.title}")
        command = [_python(peer), str(Path(__file__).with_name("peer_compactors.py")), peer.function]
        yield from _judge(peer.title, talks, _run_child(command, talks))


def _run_child(command: list[str], talks: list[Talk]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps({"messages": talk.messages, "budget": talk.budget}) + "\n" for talk in talks)
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1", "HEADROOM_TELEMETRY": "off"}
    done = subprocess.run(
        command,
        input=lines,
        cwd=ROOT,
        env=os.environ | quiet,
        capture_output=True,
        text=True,
        check=False,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    if len(told) != len(talks):
        raise RuntimeError(
            f"{command[-1]} ended after {len(told)} of {len(talks)} cases:\n{done.stderr[-2000:]}"
        )
    return told


def _judge(name: str, talks: list[Talk], results: Any) -> Iterator[Judged]:
    for talk, told in zip(talks, results, strict=True):
        if error := told.get("error"):
            note(f"peers: {name}: {error}")
        recalls, kept, size, is_legal = talk.judge(told.get("messages", []))
        yield Judged(
            kind=talk.kind,
            compactor=name,
            recalls=recalls,
            kept=kept,
            over=size > talk.budget,
            legal=is_legal,
            failed="error" in told,
            seconds=told["seconds"],
        )


def _row(what: str, own: list[Judged]) -> tuple[Cell, ...]:
    return (
        what,
        Figure(len(own)),
        share(mean(one.kept for one in own)),
        *map(share, _recalls(own)),
        Figure(sum(one.over for one in own)),
        Figure(sum(one.failed for one in own)),
        share(mean(one.legal for one in own)),
        _seconds(own),
    )


def _brief_row(name: str, own: list[Judged]) -> tuple[Cell, ...] | None:
    if not own:
        return None
    over = sum(one.over for one in own)
    return (
        name,
        f"{100 * mean(one.kept for one in own):.0f} %",
        f"{100 * _recalls(own)[0]:.0f} %",
        f"{over} of {len(own)}" if over else "never",
        _seconds(own),
    )


def _summaries(done: list[Judged]) -> Table:
    """Our view beside the summary that a model wrote, of the same size, case by case."""
    ours, theirs = (
        [one for one in done if one.kind.startswith(REAL) and one.compactor == name]
        for name in ("Penstock", MODEL_SUMMARY)
    )
    better = sum((a.recalls[0] or 0) > (b.recalls[0] or 0) for a, b in zip(ours, theirs, strict=True))
    equal = sum((a.recalls[0] or 0) == (b.recalls[0] or 0) for a, b in zip(ours, theirs, strict=True))
    rows = tuple(
        (name, share(mean(one.kept for one in own)), *map(share, _recalls(own)))
        for name, own in (("Penstock, no model", ours), (MODEL_SUMMARY, theirs))
    )
    remark = (
        f"{len(ours)} compactions that a coding agent made with its own model, as recorded; our view has the size of its "
        f"summary. Ours holds more of the values used later in {better}, as many in {equal}. Unfair to the summary: it "
        "explains, and an explanation holds few literal values."
    )
    return Table(
        "summary-beside-ours",
        "Beside a model's own summary of the same size",
        ("view", "tokens kept", *METRICS),
        rows,
        remark,
    )


def _recalls(own: list[Judged]) -> list[float]:
    return [
        mean(one.recalls[metric] for one in own if one.recalls[metric] is not None)  # type: ignore[misc]
        for metric in range(len(METRICS))
    ]


def _seconds(own: list[Judged]) -> Cell:
    known = [one.seconds for one in own if one.seconds is not None]
    return Figure(mean(known), "s") if known else ""


def _answer_cases() -> None:
    """Our own side of the protocol of `peer_compactors.py`, with weights that never saw the conversation."""
    import time  # noqa: PLC0415

    warm()
    for line in sys.stdin:
        case = json.loads(line)
        start = time.perf_counter()
        kept = compactor(case["messages"], case["budget"])
        print(json.dumps({"messages": kept, "seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    _answer_cases()
