"""`penstock engines`: the engines there are, where each comes from, which one is active, and why one cannot be loaded."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.layout import aligned, printable, wrapped
from penstock.cli.screen import Screen, screen_of
from penstock.cli.source import settings_of
from penstock.config import own_secrets, plugins_folder
from penstock.engine.registry import offers, trouble_with
from penstock.errors import EngineFailure, SettingsError
from penstock.redaction import Redactor

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.settings import Settings

__all__ = ["ListedEngine", "lines", "listed", "run"]

_HEADINGS = ["name", "kind", "from"]


class ListedEngine(msgspec.Struct, frozen=True, kw_only=True):
    """An engine as it is shown; `problem` says why it cannot be loaded."""

    name: str
    kind: str
    where: str
    active: bool
    problem: str = ""


def run(args: argparse.Namespace) -> int:
    """Show the engines. Raises SettingsError where the active one is not there or cannot be loaded."""
    settings = settings_of(args)
    shown = listed(settings)
    folder = plugins_folder(settings.plugins.folder)
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps(_as_json(shown, settings, str(folder), trouble_with(folder)), indent=2))
    else:
        for line in lines(shown, screen):
            screen.say(line)
        trouble = trouble_with(folder)
        screen.say(printable(f"plugin folder: {folder}{f' ({trouble})' if trouble else ''}"))
    _require_active(shown, settings.context.engine)
    return 0


def listed(settings: Settings) -> list[ListedEngine]:
    """All engines, each loaded to see whether it can be. An engine's code runs for that."""
    redact = Redactor(own_secrets()).redact
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


def lines(shown: Sequence[ListedEngine], screen: Screen) -> Iterator[str]:
    """The table; the active engine has a star, and what is wrong with one stands below it."""
    rows = [_HEADINGS, *([printable(one.name), one.kind, printable(one.where)] for one in shown)]
    marks = [" ", *("*" if one.active else " " for one in shown)]
    table = [f"{mark} {'  '.join(cells)}".rstrip() for mark, cells in zip(marks, aligned(rows), strict=True)]
    yield screen.paint(table[0], "dim")
    for one, line in zip(shown, table[1:], strict=True):
        yield screen.paint(line, "bold") if one.active else line
        if one.problem:
            for part in wrapped(f"    cannot be loaded: {printable(one.problem)}", screen.columns, indent=6):
                yield screen.paint(part, "yellow")


def _require_active(shown: Sequence[ListedEngine], name: str) -> None:
    active = next((one for one in shown if one.active), None)
    if active is None:
        raise SettingsError(
            f"context.engine is {name!r}, and there is no such engine; choose one of the table"
        )
    if active.problem:
        raise SettingsError(f"context.engine is {name!r}, and that engine cannot be used: {active.problem}")


def _as_json(shown: Sequence[ListedEngine], settings: Settings, folder: str, trouble: str) -> dict[str, Any]:
    return {
        "active": settings.context.engine,
        "folder": folder,
        "folder_problem": trouble or None,
        "engines": [{**msgspec.structs.asdict(one), "problem": one.problem or None} for one in shown],
    }
