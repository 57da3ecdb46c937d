"""Whether an agent still finishes its tasks when its conversation is compacted on the way.

    python -m benchmarks tasks --model NAME --base-url URL --api-key-env VARIABLE

Each task of `benchmarks.task_list` runs through Penstock's own agent, in a folder of its own below a temporary one: once
as it is, and once for each `--keep` with compactions that are forced at fixed places. Automatic compactions are off, so
nothing else differs. Code checks what the agent did. Commands that the model asks for are run without a question.

Without a model, the scripted reader of `benchmarks.task_reader` takes its place, behind a real HTTP server on this machine:
what it cannot do, no model can do from the same view.
"""

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.clock import note
from benchmarks.options import Endpoint, Options
from benchmarks.recorded import mean
from benchmarks.report import Cell, Figure, Limit, Table, share
from benchmarks.task_list import SKILLS, Done, Task, make_tasks
from benchmarks.task_reader import SEARCH, Reader
from penstock.agent.assembly import AgentPlace, make_agent, own_tools
from penstock.engine.contract import CompactionWish
from penstock.errors import PenstockError, TargetTooSmall
from penstock.loop.agent import Agent, TurnLimits
from penstock.loop.events import AgentEvent, Compacted, Said, ToolStarted, Used
from penstock.loop.tools import Toolbox
from penstock.providers.connect import connect
from penstock.providers.model import ProviderModel
from penstock.settings import settings_from
from penstock.stores.store import open_store
from penstock.testing import PromptCache, Received, Reply, scripted_provider

__all__ = ["Arm", "Result", "run", "run_arm"]

VARIANTS = 2
STEPS = 25
"""Requests of a turn, at most."""
DEFAULT_SHARE = 0.25
SCRIPTED_SHARES = (DEFAULT_SHARE, 0.10)
OUTSIDE = frozenset({"fetch_url", "memory"})
"""Tools that reach beyond the folder of a task, and are not offered."""
READER, RECALLER = "scripted-reader", "scripted-reader-that-recalls"


class Arm(NamedTuple):
    """One way to run all tasks: a model, and what a forced compaction leaves (None: none is made)."""

    name: str
    endpoint: Endpoint
    share: float | None = None
    summaries: bool = False
    settings: tuple[tuple[str, Any], ...] = ()
    limit: Limit | None = None
    """The floor of the share of tasks that must be done."""


@dataclass
class Result:
    """How a task went. `wrong` says why it was not done, `failed` that the provider or we failed and not the model."""

    task: Task
    wrong: str = ""
    failed: bool = False
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    costs: list[float | None] = field(default_factory=list)
    compactions: int = 0
    recalls: int = 0
    seconds: float = 0.0

    @property
    def cost(self) -> float | None:
        """US dollars; None where the price of a request is not known."""
        known = [cost for cost in self.costs if cost is not None]
        return sum(known) if len(known) == len(self.costs) else None


def run(options: Options) -> list[Table]:
    tasks = [task for task in make_tasks(1 if options.quick else VARIANTS) if options.only in task.name]
    if not tasks:
        return [Table("tasks", TITLE, (), (), f"Not run: no task has {options.only!r} in its name.")]
    with _arms(options) as arms:
        note(f"tasks: {len(tasks)} tasks, {len(arms)} times, {options.jobs} at once")
        done: dict[Arm, list[Result]] = {}
        for arm in arms:
            done[arm] = run_arm(arm, tasks, options.jobs)
            if all(result.failed for result in done[arm]):
                why = done[arm][0].wrong
                return [
                    Table("tasks", TITLE, (), (), f"Not run: {arm.endpoint.model} could not be asked: {why}")
                ]
    return [_totals(done, options), _kinds(done)]


@contextlib.contextmanager
def _arms(options: Options) -> Iterator[list[Arm]]:
    """The ways to run the tasks; while it lasts there is a server for the scripted reader, where one is needed."""
    given = options.endpoint
    settings = (("context.engine", options.engine),)
    if given is not None:
        arms = [Arm("not compacted", given, settings=settings)]
        for kept in options.keep or (DEFAULT_SHARE,):
            arm = Arm(f"compacted to {100 * kept:.0f} %", given, kept, settings=settings)
            arms.append(arm)
            if options.summaries:
                arms.append(arm._replace(name=f"{arm.name}, with summaries", summaries=True))
        yield arms
        return
    readers = {READER: Reader(SKILLS), RECALLER: Reader(SKILLS, recalls=True)}

    def reply(received: Received) -> Reply:
        return readers[received.model](received)

    with scripted_provider(reply, prompt_cache=PromptCache(), models=tuple(readers)) as server:
        reads, recalls = (Endpoint(name, "openai", server.base_url) for name in readers)
        arms = [Arm("not compacted", reads, settings=settings, limit=ALL)]
        for kept in options.keep or SCRIPTED_SHARES:
            arm = Arm(f"compacted to {100 * kept:.0f} %", reads, kept, settings=settings)
            limit = ALL if kept >= DEFAULT_SHARE else None
            arms += [arm, arm._replace(name=f"{arm.name}, may recall", endpoint=recalls, limit=limit)]
        yield arms


def run_arm(arm: Arm, tasks: list[Task], jobs: int = 1) -> list[Result]:
    """The results of the tasks, in their order. Memory files and plugins of this machine's user are not used."""
    with tempfile.TemporaryDirectory(prefix="penstock-tasks-") as place, _data_folder(Path(place) / "data"):
        return asyncio.run(_run_all(arm, tasks, Path(place), jobs))


async def _run_all(arm: Arm, tasks: list[Task], place: Path, jobs: int) -> list[Result]:
    turnstile = asyncio.Semaphore(jobs)

    async def run_one(number: int, task: Task) -> Result:
        async with turnstile:
            result = await _run_task(arm, task, place / f"task-{number}")
        if result.wrong:
            note(
                f"tasks: {arm.name}: {task.name}: {'failed' if result.failed else 'not done'}: {result.wrong}"
            )
        return result

    first = await run_one(0, tasks[0])
    if first.failed:  # a wrong key or address fails the same way every time
        return [first]
    return [first, *await asyncio.gather(*(run_one(at, task) for at, task in enumerate(tasks[1:], 1)))]


async def _run_task(arm: Arm, task: Task, folder: Path) -> Result:
    for name, text in task.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    result, started = Result(task), time.monotonic()
    record = _Record(result)
    store = open_store("memory:")
    model: ProviderModel | None = None
    try:
        model = _connect(arm.endpoint)
        fixed = {"compression.enabled": False, "context.economics": "off"}
        settings = settings_from({**fixed, **dict(arm.settings)})
        place = AgentPlace(folder=folder, store=store, tell=record, yes=True, limits=TurnLimits(steps=STEPS))
        agent = make_agent(place, model, settings, provider=arm.endpoint.provider)
        agent.calls.toolbox = Toolbox.of(tool for tool in own_tools() if tool.name not in OUTSIDE)
        await _talk(agent, arm, task, folder, record)
        await agent.aclose()
        if not result.failed:
            done = Done(folder, record.answers, record.calls)
            result.wrong = await asyncio.to_thread(task.check, done)
    except PenstockError as error:
        result.wrong, result.failed = str(error), True
    finally:
        if model is not None:
            await model.aclose()
        store.close()
    result.seconds = time.monotonic() - started
    return result


async def _talk(agent: Agent, arm: Arm, task: Task, folder: Path, record: "_Record") -> None:
    for turn in task.turns:
        if turn.compact_first and arm.share is not None:
            await _compact(agent, arm)
        if turn.prepare is not None:
            turn.prepare(folder)
        record.begin_turn()
        ended = await agent.turn(turn.text)
        if ended.reason == "failed":
            record.result.wrong, record.result.failed = ended.what, True
            return


async def _compact(agent: Agent, arm: Arm) -> None:
    """Compacts to the share of all that has been said, also where an earlier compaction has made it less."""
    context = agent.context
    said = agent.session.workings.weigh(context.read_log())
    wish = CompactionWish(target_tokens=int((arm.share or 1) * said), may_call_model=arm.summaries)
    with contextlib.suppress(TargetTooSmall):  # nothing smaller can be made; the task goes on as it is
        await context.compact(context.policy.manual().reason, context.tokens(), wish)


def _connect(endpoint: Endpoint) -> ProviderModel:
    return connect(
        endpoint.provider, endpoint.model, base_url=endpoint.base_url, api_key_env=endpoint.api_key_env
    )


class _Record:
    """Hears what an agent does: the answer and the calls of each turn, and what requests and compactions cost."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.answers: list[str] = []
        self.calls: list[list[tuple[str, str]]] = []

    def begin_turn(self) -> None:
        self.answers.append("")
        self.calls.append([])

    def __call__(self, event: AgentEvent) -> None:
        result = self.result
        match event:
            case Said(text):
                self.answers[-1] += text
            case ToolStarted(_, name, about):
                self.answers[-1] = ""  # what was said before a call is not the answer
                self.calls[-1].append((name, about))
                result.recalls += name == SEARCH
            case Used(usage, cost):
                result.requests += 1
                result.prompt_tokens += usage.prompt_tokens
                result.cached_tokens += usage.cache_read_tokens
                result.output_tokens += usage.output_tokens
                result.costs.append(cost)
            case Compacted(receipt):
                result.compactions += 1
                result.requests += receipt.model_calls
                result.prompt_tokens += receipt.model_prompt_tokens
                result.cached_tokens += receipt.model_cached_tokens
                result.output_tokens += receipt.model_output_tokens
                if receipt.model_calls:
                    result.costs.append(receipt.cost)
            case _:
                pass


@contextlib.contextmanager
def _data_folder(folder: Path) -> Iterator[None]:
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("XDG_DATA_HOME")
        if before is not None:
            os.environ["XDG_DATA_HOME"] = before


TITLE = "Tasks of an agent"
ALL = Limit(100, at_least=True)
COLUMNS = (
    "conversation",
    "tasks",
    "done (floor)",
    "ended by an error",
    "requests",
    "prompt tokens",
    "of which cached",
    "answer tokens",
    "compactions",
    "recalls",
    "price",
    "s / task",
)


def _totals(done: dict[Arm, list[Result]], options: Options) -> Table:
    rows = tuple(_row(arm, results) for arm, results in done.items())
    model = (
        options.endpoint.model
        if options.endpoint
        else "the scripted reader, which only knows what it is shown"
    )
    remark = (
        f"By {model}. A task fills the context with {sum(len(text) for text in _some(done).files.values()) // 1000:,} kB of "
        "files that are read; compactions are forced in the middle and before the last request, to the share of all that "
        "was said. Prices are those of Penstock's table, for the tokens that the provider reported."
    )
    return Table("tasks", TITLE, COLUMNS, rows, remark)


def _some(done: dict[Arm, list[Result]]) -> Task:
    return next(iter(done.values()))[0].task


def _row(arm: Arm, results: list[Result]) -> tuple[Cell, ...]:
    def total(count: Callable[[Result], float]) -> Figure:
        return Figure(sum(map(count, results)))

    costs = [result.cost for result in results]
    known = [cost for cost in costs if cost is not None]
    return (
        arm.name,
        Figure(len(results)),
        share(mean(not result.wrong for result in results), arm.limit),
        total(lambda result: result.failed),
        total(lambda result: result.requests),
        total(lambda result: result.prompt_tokens),
        total(lambda result: result.cached_tokens),
        total(lambda result: result.output_tokens),
        total(lambda result: result.compactions),
        total(lambda result: result.recalls),
        f"${sum(known):.4f}" if len(known) == len(costs) else "unknown",
        Figure(mean(result.seconds for result in results), "s"),
    )


def _kinds(done: dict[Arm, list[Result]]) -> Table:
    kinds = list(dict.fromkeys(result.task.kind for results in done.values() for result in results))
    rows: list[tuple[Cell, ...]] = []
    for kind in kinds:
        own = [[result for result in results if result.task.kind == kind] for results in done.values()]
        rows.append(
            (kind, *(f"{sum(not one.wrong for one in results)} of {len(results)}" for results in own))
        )
    columns = ("what the task needs", *(arm.name for arm in done))
    return Table("tasks-kinds", f"{TITLE}, by what they need", columns, tuple(rows))
