"""`penstock config`, `penstock engines` and `penstock doctor`: shows the set-up, and checks that it works."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.options import carry_store
from penstock.cli.output import write_file
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import Screen, align, printable, screen_of, wrap
from penstock.cli.source import settings_of
from penstock.config import (
    Sourced,
    config_path,
    plugins_folder,
    read_given_values,
    redactor_of_process,
    require_config_path,
    set_in_file,
)
from penstock.errors import EngineFailure, SettingsError
from penstock.measure.wording import pluralise
from penstock.settings import Key, known_keys, settings_from

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.redaction import Redactor
    from penstock.settings import Settings
    from penstock.stores.values import StoreFault

__all__ = [
    "ListedEngine",
    "ShownSetting",
    "engine_lines",
    "list_engines",
    "list_settings",
    "run_config",
    "run_doctor",
    "run_engines",
    "setting_lines",
]

_NOT_SHOWN = "(set, not shown)"
_ENGINE_HEADINGS = ["name", "kind", "from"]
_FAULTS_REMAIN = 1


class ShownSetting(msgspec.Struct, frozen=True):
    """A setting as it is shown; private values are hidden."""

    key: str
    value: Any
    source: str


def run_config(args: argparse.Namespace) -> int:
    """Shows every setting, its value and its source. Raises SettingsError for an invalid one."""
    path = Path(args.config) if args.config else None
    given = read_given_values(path, flags=dict(args.settings))
    settings_from({key: found.value for key, found in given.items()})
    shown = list_settings(given, redactor_of_process())
    file = config_path(path)
    screen = screen_of(sys.stdout)
    if args.json:
        listed = {one.key: {"value": one.value, "source": one.source} for one in shown}
        screen.say(json.dumps({"file": str(file) if file else None, "settings": listed}, indent=2))
        return 0
    screen.say(f"settings file: {printable(str(file)) if file else 'none'}")
    for line in setting_lines(shown, screen):
        screen.say(line)
    return 0


def list_settings(given: dict[str, Sourced], redactor: Redactor) -> list[ShownSetting]:
    """Returns every setting, in the order of the reference."""
    return [
        ShownSetting(name, _show_value(key, given[name].value, redactor), given[name].source)
        if name in given
        else ShownSetting(name, key.default, "default")
        for name, key in known_keys().items()
    ]


def setting_lines(shown: Sequence[ShownSetting], screen: Screen) -> Iterator[str]:
    """Yields a line for each setting; defaults are dimmed."""
    rows = [[one.key, _setting_text(one.value), printable(one.source)] for one in shown]
    for cells, one in zip(align(rows), shown, strict=True):
        line = "  ".join(cells).rstrip()
        yield screen.paint(line, "dim") if one.source == "default" else line


def _show_value(key: Key, value: Any, redactor: Redactor) -> Any:
    if value is None:
        return None
    if key.private:
        return _NOT_SHOWN
    if isinstance(value, tuple):
        return [redactor.redact(one) for one in value]
    return redactor.redact(value) if isinstance(value, str) else value


def _setting_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        return printable(", ".join(value))
    return printable(value) if isinstance(value, str) else f"{value:,}"


def _describe_inner_loops() -> str:
    from penstock.writing.compiled import HAS_CORE, HAS_OTHER_CORE  # noqa: PLC0415 - config does without any engine

    if HAS_CORE:
        return "compiled"
    if HAS_OTHER_CORE:
        return "in Python; the penstock-core that is installed is of another version than Penstock"
    return "in Python; with penstock-core they give the same results in less time"


class ListedEngine(msgspec.Struct, frozen=True, kw_only=True):
    """An engine as it is shown; `problem` says why it cannot be loaded."""

    name: str
    kind: str
    where: str
    active: bool
    problem: str = ""


def run_engines(args: argparse.Namespace) -> int:
    """Lists the engines, or chooses one. Raises SettingsError if the active one is missing or cannot be loaded."""
    settings = settings_of(args)
    if args.step == "enable":
        return _enable(args, settings)
    if args.name is not None:
        raise SettingsError(f"list takes no name; did you mean penstock engines enable {args.name}?")
    from penstock.engine.registry import explain_trouble  # noqa: PLC0415 - config does without any engine
    from penstock.writing.compiled import HAS_CORE  # noqa: PLC0415 - as above

    shown = list_engines(settings)
    folder = plugins_folder(settings.plugins.folder)
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(
            json.dumps(
                _engines_to_dict(shown, settings, str(folder), explain_trouble(folder))
                | {"inner_loops": "compiled" if HAS_CORE else "python"},
                indent=2,
            )
        )
    else:
        for line in engine_lines(shown, screen):
            screen.say(line)
        screen.say(f"inner loops: {_describe_inner_loops()}")
        trouble = explain_trouble(folder)
        screen.say(printable(f"plugin folder: {folder}{f' ({trouble})' if trouble else ''}"))
    _require_active(shown, settings.context.engine)
    return 0


def _enable(args: argparse.Namespace, settings: Settings) -> int:
    """Loads the engine, then writes its name to the settings file. Raises SettingsError if it cannot be loaded."""
    if args.name is None:
        raise SettingsError(
            "no engine was named; penstock engines lists them, penstock engines enable NAME chooses one"
        )
    chosen = next((one for one in list_engines(settings) if one.name == args.name), None)
    if chosen is None:
        raise SettingsError(f"there is no engine {args.name!r}; penstock engines lists them")
    if chosen.problem:
        raise SettingsError(f"the engine {args.name!r} cannot be used: {chosen.problem}")
    path = Path(args.config) if args.config else None
    file = require_config_path(path)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    write_file(str(file), set_in_file(text, "context.engine", args.name, str(file)).encode())
    given = read_given_values(path, flags=dict(args.settings))["context.engine"]
    overruled = given.source if given.value != args.name else ""
    screen = screen_of(sys.stdout)
    if args.json:
        told = {"engine": args.name, "file": str(file), "overruled_by": overruled or None}
        screen.say(json.dumps(told, indent=2))
        return 0
    screen.say(printable(f"context.engine is {args.name} from now on, in {file}"))
    if overruled:
        screen.say(f"{overruled} says {printable(str(given.value))}, which takes precedence while it is set")
    return 0


def list_engines(settings: Settings) -> list[ListedEngine]:
    """Returns all engines. Loads each one, which runs its code, to see whether it works."""
    from penstock.engine.registry import offers  # noqa: PLC0415 - as above

    redact = redactor_of_process().redact
    active = settings.context.engine
    shown: list[ListedEngine] = []
    for offer in offers(settings):
        first = offer.name not in {one.name for one in shown}
        try:
            with redirect_stdout(sys.stderr):  # the output is ours, whatever a plugin prints
                offer.load()
        except EngineFailure as error:
            problem = redact(str(error))
        else:
            problem = ""
        shown.append(
            ListedEngine(
                name=offer.name,
                kind=offer.kind,
                where=offer.where,
                active=first and offer.name == active,
                problem=problem,
            )
        )
    return shown


def engine_lines(shown: Sequence[ListedEngine], screen: Screen) -> Iterator[str]:
    """Yields the table; the active engine has a star, and a problem stands below its engine."""
    rows = [_ENGINE_HEADINGS, *([printable(one.name), one.kind, printable(one.where)] for one in shown)]
    marks = [" ", *("*" if one.active else " " for one in shown)]
    table = [f"{mark} {'  '.join(cells)}".rstrip() for mark, cells in zip(marks, align(rows), strict=True)]
    yield screen.paint(table[0], "dim")
    for one, line in zip(shown, table[1:], strict=True):
        yield screen.paint(line, "bold") if one.active else line
        if one.problem:
            for part in wrap(f"    cannot be loaded: {printable(one.problem)}", screen.columns, indent=6):
                yield screen.paint(part, "yellow")


def _require_active(shown: Sequence[ListedEngine], name: str) -> None:
    active = next((one for one in shown if one.active), None)
    if active is None:
        raise SettingsError(
            f"context.engine is {name!r}, but there is no such engine; choose one from the table"
        )
    if active.problem:
        raise SettingsError(f"context.engine is {name!r}, but that engine cannot be used: {active.problem}")


def _engines_to_dict(
    shown: Sequence[ListedEngine], settings: Settings, folder: str, trouble: str
) -> dict[str, Any]:
    return {
        "active": settings.context.engine,
        "folder": folder,
        "folder_problem": trouble or None,
        "engines": [{**msgspec.structs.asdict(one), "problem": one.problem or None} for one in shown],
    }


def run_doctor(args: argparse.Namespace) -> int:
    """Checks the store, and repairs it with `--repair`. The exit code is 1 if faults remain."""
    from penstock.cli.stored import open_store_of  # noqa: PLC0415 - config does without any store

    with open_store_of(args, keep_expired=True, must_exist=True) as store:
        with ProgressLine("repairing" if args.repair else "checking"):
            repaired = list(store.repair()) if args.repair else []
        with ProgressLine("checking"):
            faults = list(store.faults())
        url = store.url
    screen = screen_of(sys.stdout)
    if args.json:
        report = {"store": url, "mended": repaired, "faults": faults}
        screen.say(json.dumps(msgspec.to_builtins(report), indent=2))
        return _FAULTS_REMAIN if faults else 0
    for fault in repaired:
        screen.say(f"repaired  {_fault_text(fault)}")
    for fault in faults:
        screen.say(
            f"{screen.paint('fault', 'yellow')}     {_fault_text(fault)}{' (can be repaired)' if fault.mendable else ''}"
        )
    if not faults:
        screen.say(f"{printable(url)} is sound")
        return 0
    mendable = sum(fault.mendable for fault in faults)
    hint = carry_store(f"; penstock doctor --repair repairs {mendable:,} of them", args) if mendable else ""
    screen.say(f"{pluralise(len(faults), 'fault')} in {printable(url)}{hint}")
    return _FAULTS_REMAIN


def _fault_text(fault: StoreFault) -> str:
    return printable(f"{fault.where}: {fault.what}")
