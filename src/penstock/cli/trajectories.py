"""`penstock trajectories`: reads options and a file of options, compresses a data set, shows its progress and the outcomes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.failure import BAD_INPUT, TOO_SMALL
from penstock.cli.options import tell_of_model
from penstock.cli.parser import build_parser
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import complain, printable, screen_of
from penstock.errors import SettingsError
from penstock.measure.tokens import tokenizer_for
from penstock.measure.wording import format_share, pluralise
from penstock.trajectories.journal import SummariesSeen, parts_folder
from penstock.trajectories.metrics import TrajectoryOutcome
from penstock.trajectories.options import ModelOptions, TrajectoryOptions
from penstock.trajectories.run import Run
from penstock.trajectories.run import run as run_all
from penstock.trajectories.shards import ShardJob

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.cli.screen import Screen
    from penstock.trajectories.metrics import BadRow
    from penstock.trajectories.run import RunProgress, RunResult

__all__ = ["RunLine", "progress_line", "read_run", "run"]

_LABEL_COLUMNS = 16
_SHOWN_BAD = 20
_SHOWN_REASONS = 5
_PLAIN_SECONDS = 10.0  # between two lines about how far a run is, where there is no terminal for a bar
_BAR_COLUMNS = 24
_NOT_IN_A_FILE = frozenset(
    {"file", "output", "config", "json", "debug", "command", "resume", "overwrite", "help"}
)
_ALGORITHM = (
    "target_tokens",
    "summary_tokens",
    "keep_last",
    "passes",
    "system_note",
    "tokenizer",
    "shorten_protected",
)
_MODEL = {
    "summary_provider": "provider",
    "summary_base_url": "base_url",
    "summary_api_key_env": "api_key_env",
}


def run(args: argparse.Namespace) -> int:
    """Compresses the data set. Raises what `read_run` and `penstock.trajectories.run.run` raise."""
    wanted = read_run(args).place_output()
    args.file = None  # what fails is told with the name of the file at fault, which is not the whole input
    try:
        with _silent_output(), RunLine(_summaries_of(wanted)) as progress:
            finished = run_all(wanted, on_progress=progress.update)
    except KeyboardInterrupt:
        if wanted.target is not None and sys.stderr is not None:
            print("penstock: stopped; run the same command with --resume to continue", file=sys.stderr)
        raise
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps(_as_json(wanted, finished), indent=2))
    else:
        for line in _lines(wanted, finished, screen):
            screen.say(line)
    totals = finished.totals
    if finished.damaged:
        return BAD_INPUT
    if totals.rows and totals.count(TrajectoryOutcome.BAD, TrajectoryOutcome.FAILED) == totals.rows:
        complain(
            "no row could be read: is this a file of trajectories? --column names the column that has the turns"
        )
        return BAD_INPUT
    if is_strict(args) and totals.still_over_limit:
        complain(f"{pluralise(totals.still_over_limit, 'row')} still over the target (--strict)")
        return TOO_SMALL
    return 0


def _summaries_of(wanted: Run) -> SummariesSeen | None:
    if wanted.job.model is None or wanted.target is None:
        return None
    return SummariesSeen(parts_folder(wanted.target))


@contextmanager
def _silent_output() -> Iterator[None]:
    """Keeps standard output for our report: Ray writes to it about every process that dies, whatever its settings."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


def _as_json(wanted: Run, finished: RunResult) -> dict[str, Any]:
    return {
        "dry_run": wanted.target is None,
        "sample_percent": wanted.job.sample_percent,
        "output": None if wanted.target is None else str(wanted.target),
        **msgspec.to_builtins(finished),
        "totals": finished.totals.to_dict(),
    }


def _lines(wanted: Run, finished: RunResult, screen: Screen) -> Iterator[str]:
    totals = finished.totals
    files = f" in {pluralise(len(finished.files), 'file')}" if len(finished.files) > 1 else ""
    yield screen.paint(f"{pluralise(totals.rows, 'row')}{files}, {finished.seconds:.1f} s", "bold")
    for label, text in _figures(wanted, finished, screen):
        yield f"  {screen.paint(label, 'dim')}{' ' * (_LABEL_COLUMNS - len(label))}{text}"
    yield from _rows(finished.over, totals.still_over_limit, "rows still over", finished, screen)
    unread = totals.count(TrajectoryOutcome.BAD, TrajectoryOutcome.FAILED)
    yield from _rows(finished.bad, unread, "rows not read", finished, screen)


def _rows(
    rows: Sequence[BadRow], number: int, heading: str, finished: RunResult, screen: Screen
) -> Iterator[str]:
    """Yields the first of these rows, each with its remark."""
    if rows:
        yield f"  {screen.paint(heading, 'dim')}"
    for one in rows[:_SHOWN_BAD]:
        where = f"{one.file}, row {one.row:,}" if len(finished.files) > 1 else f"row {one.row:,}"
        yield f"    {printable(where)}: {screen.clip(printable(one.reason), len(where) + 6)}"
    if (more := number - _SHOWN_BAD) > 0:
        yield f"    and {more:,} more: --metrics FILE has them all"


def _figures(wanted: Run, finished: RunResult, screen: Screen) -> Iterator[tuple[str, str]]:
    """Yields the outcomes in labelled lines."""
    totals = finished.totals
    if wanted.job.sample_percent < 100:
        share = f"about {wanted.job.sample_percent:g} % of the rows, seed {wanted.job.seed}"
        yield "sample", f"{share}; {pluralise(totals.left_out, 'row')} left out"
    if finished.resumed_rows:
        yield "resumed", f"{pluralise(finished.resumed_rows, 'row')} done before by an earlier run"
    yield from _outcomes(wanted, finished, screen)
    yield (
        "tokens",
        f"{totals.tokens_before:,} {screen.arrow} {totals.tokens_after:,} ({format_share(totals.ratio)})",
    )
    yield "turns", f"{totals.turns_before:,} {screen.arrow} {totals.turns_after:,}"
    if totals.model_calls:
        rows = pluralise(totals.cost_unknown_rows, "row")
        unknown = f", and {rows} of unknown price" if totals.cost_unknown_rows else ""
        yield "model", f"{pluralise(totals.model_calls, 'request')}, ${totals.cost:,.4f}{unknown}"
    if wanted.target is None:
        yield "written", "nothing (dry run)"
    else:
        yield "written", f"{printable(str(wanted.target))}, {finished.written_bytes:,} bytes"
    if wanted.metrics is not None:
        yield "metrics", printable(str(wanted.metrics))
    if wanted.report is not None:
        yield "report", printable(str(wanted.report))


def _explain_still_over(finished: RunResult, wanted: Run) -> str:
    """Returns how many rows are still over the target, why, and what would help."""
    over, kept = finished.totals.still_over_limit, finished.totals.count(TrajectoryOutcome.NOT_COMPRESSIBLE)
    if not over:
        return "0"
    unchanged = f", {kept:,} of them unchanged" if kept else ""
    hint = "" if wanted.job.options.shorten_protected else "; --shorten-protected cuts them"
    return f"{over:,}: the turns that must stay are too large{unchanged}{hint}"


def _outcomes(wanted: Run, finished: RunResult, screen: Screen) -> Iterator[tuple[str, str]]:
    totals = finished.totals
    yield "under target", f"{totals.count(TrajectoryOutcome.UNDER_TARGET):,}, unchanged"
    yield "compressed", f"{totals.compressed:,}"
    yield "still over", _explain_still_over(finished, wanted)
    if degraded := totals.count(TrajectoryOutcome.DEGRADED):
        yield "degraded", f"{degraded:,} rows without the model's words"
        elsewhere = {bad.reason for bad in finished.bad}  # told with the number of the row
        reasons = [one for one in totals.reasons.items() if one[0] not in elsewhere]
        for reason, number in sorted(reasons, key=lambda one: -one[1])[:_SHOWN_REASONS]:
            yield "", f"{number:,}: {screen.clip(printable(reason), _LABEL_COLUMNS + 10)}"
    if bad := totals.count(TrajectoryOutcome.BAD):
        yield "bad rows", f"{bad:,}, copied unchanged"
    if failed := totals.count(TrajectoryOutcome.FAILED):
        yield "failed", f"{failed:,}, copied unchanged: a fault in Penstock, please report it"


class RunLine(ProgressLine):
    """Shows the progress of a run while the block runs. `summaries` are those that models have written so far."""

    def __init__(self, summaries: SummariesSeen | None = None) -> None:
        super().__init__("starting", plain_seconds=_PLAIN_SECONDS)
        self._summaries = summaries
        self._latest: RunProgress | None = None

    def update(self, progress: RunProgress) -> None:
        """Records the progress of the run."""
        self._latest = progress

    def describe(self, seconds: float, screen: Screen) -> str:
        """Returns the line after that many seconds."""
        seen = self._summaries.look() if self._summaries is not None else None
        return progress_line(self._latest, seconds, screen, seen)


def progress_line(
    progress: RunProgress | None, seconds: float, screen: Screen, summaries: SummariesSeen | None = None
) -> str:
    """Returns the line: a bar if there can be one, rows, their pace, time left, summaries, cost so far.

    Rows are reported a shard at a time. A model may take minutes for one, so its summaries are counted one by one.
    """
    words: list[str] = []
    if summaries is not None:
        unknown = " and more" if summaries.cost_unknown else ""
        words = [f"{summaries.count:,} summaries", f"${summaries.cost:,.2f}{unknown}"]
    if progress is None:
        stage = "at work" if summaries is not None and summaries.count else "starting"
        return ", ".join([f"penstock: {stage}, {seconds:.0f} s", *words])
    share = min(1.0, progress.read_bytes / progress.total_bytes) if progress.total_bytes else 1.0
    totals = progress.totals
    fresh = max(0, totals.rows - progress.resumed_rows)
    words = [
        f"{share:4.0%}",
        f"{totals.rows:,} rows",
        f"{_shorten(fresh / seconds)} rows/s",
        f"{_shorten((totals.tokens_before - progress.resumed_tokens) / seconds)} tokens/s",
        f"{_clock(progress.seconds_left(seconds))} left",
        *words,
    ]
    if not screen.bars:
        return f"penstock: {' · '.join(words).strip()}" if screen.unicode else f"penstock: {', '.join(words)}"
    full = screen.bar(share, _BAR_COLUMNS)
    return f"{screen.paint(full, 'cyan')}{' ' * (_BAR_COLUMNS - len(full))} {' · '.join(words)}"


def _shorten(number: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.1f}{unit}"
    return f"{number:.1f}" if number < 10 else f"{number:.0f}"


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# The run that was asked for.


def read_run(args: argparse.Namespace) -> Run:
    """Returns the run that was asked for. Raises SettingsError."""
    given = {name: value for name, value in vars(args).items() if value is not None}
    if args.config is not None:
        given = {**_from_file(Path(args.config)), **given}
    if "ray_address" in given and given.get("engine") != "ray":
        raise SettingsError("--ray-address is for the engine ray; add --engine ray")
    if "note_text" in given:
        given["system_note"] = given["note_text"]
    if not args.json:
        tell_of_model(given.get("model"), given.get("summary_model"))
    if "model" in given:
        given.setdefault("tokenizer", tokenizer_for(given["model"]).name)
    dry_run = bool(given.get("dry_run"))
    if args.output is None and not dry_run:
        raise SettingsError("no output; give a file or folder after the input, or --dry-run")
    job = ShardJob(
        options=TrajectoryOptions(**{name: given[name] for name in _ALGORITHM if name in given}),
        model=_model(given),
        column=given.get("column"),
        per_turn=tuple(given.get("per_turn", ())),
        sample_percent=given.get("sample_percent", 100.0),
        seed=given.get("seed", 0),
    )
    return Run(
        source=Path(args.file),
        target=None if dry_run else Path(args.output),
        job=job,
        workers=given.get("workers", 0),
        resume=args.resume,
        metrics=Path(given["metrics"]) if given.get("metrics") else None,
        report=Path(given["report"]) if given.get("report") else None,
        engine=given.get("engine", "local"),
        ray_address=given.get("ray_address"),
        overwrite=args.overwrite,
    )


def is_strict(args: argparse.Namespace) -> bool:
    """Returns True if a row that stays over the target counts as a failure, by option or by file."""
    if args.strict is not None or args.config is None:
        return bool(args.strict)
    return bool(_from_file(Path(args.config)).get("strict"))


def _model(given: dict[str, Any]) -> ModelOptions | None:
    if "summary_model" not in given:
        if lone := [name for name in (*_MODEL, "concurrency", "timeout") if name in given]:
            option = lone[0].replace("_", "-")
            raise SettingsError(f"--{option} needs a model; add --summary-model NAME")
        return None
    options: dict[str, Any] = {field: given[name] for name, field in _MODEL.items() if name in given}
    if "timeout" in given:
        options["timeout_seconds"] = given["timeout"]
    if "concurrency" in given:
        options["concurrency"] = given["concurrency"]
    return ModelOptions(name=given["summary_model"], **options)


def _from_file(path: Path) -> dict[str, Any]:
    """Returns the options that a file gives, read as if they had been typed."""
    actions = _actions()
    options: dict[str, Any] = {}
    for name, value in _read_mapping(path).items():
        key = str(name).replace("-", "_")
        action = actions.get(key)
        if action is None:
            near = get_close_matches(key, actions, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(sorted(actions))}"
            raise SettingsError(f"{path}: unknown option {name}; {hint}")
        options[key] = _value(path, action, value)
    return options


def _actions() -> dict[str, argparse.Action]:
    """Returns the options of the command that a file may give, by name."""
    commands = next(a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001 - the only way to ask a parser what it knows
    parser: argparse.ArgumentParser = commands.choices["trajectories"]
    return {action.dest: action for action in parser._actions if action.dest not in _NOT_IN_A_FILE}  # noqa: SLF001 - as above


def _value(path: Path, action: argparse.Action, value: Any) -> Any:
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise SettingsError(f"{path}: {action.dest} is {value!r}; give true or false")
        return value
    if isinstance(action, argparse._AppendAction):  # noqa: SLF001 - told by its class alone
        return [str(one) for one in (value if isinstance(value, list) else [value])]
    if isinstance(value, (dict, list, bool)) or value is None:
        raise SettingsError(f"{path}: {action.dest} is {value!r}; give a number or a text")
    try:
        read = action.type(str(value)) if callable(action.type) else str(value)
    except argparse.ArgumentTypeError as error:
        raise SettingsError(f"{path}: {action.dest}: {error}") from None
    if action.choices is not None and read not in action.choices:
        raise SettingsError(f"{path}: {action.dest} is {read!r}; use one of {', '.join(action.choices)}")
    return read


def _read_mapping(path: Path) -> dict[Any, Any]:
    try:
        found = msgspec.yaml.decode(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}; name another file") from None
    except msgspec.DecodeError as error:
        said = " ".join(str(error).split())
        raise SettingsError(f"{path} is not valid YAML: {said}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: give options as `target_tokens: 15250`, one per line")
    return found
