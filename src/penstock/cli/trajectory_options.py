"""Makes a run from the command line and a file of options."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from penstock.cli.options import tell_of_model
from penstock.cli.parser import build_parser
from penstock.errors import SettingsError
from penstock.measure.tokens import tokenizer_for
from penstock.trajectories.options import ModelOptions, TrajectoryOptions
from penstock.trajectories.run import Run
from penstock.trajectories.shards import ShardJob

__all__ = ["is_strict", "run_of"]

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


def run_of(args: argparse.Namespace) -> Run:
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
        said = str(error).splitlines()[0]
        raise SettingsError(f"{path} is not YAML: {said}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: give options as `target_tokens: 15250`, one in each line")
    return found
