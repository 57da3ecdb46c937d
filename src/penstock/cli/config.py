"""`penstock config`: every setting, its value and where that comes from. Private values are never shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.layout import aligned, printable
from penstock.cli.screen import Screen, screen_of
from penstock.config import Sourced, config_path, own_secrets, read_given_values
from penstock.redaction import Redactor
from penstock.settings import Key, known_keys, settings_from

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

__all__ = ["ShownSetting", "lines", "run", "shown_settings"]

NOT_SHOWN = "(set, not shown)"


class ShownSetting(msgspec.Struct, frozen=True):
    """A setting as it may be shown."""

    key: str
    value: Any
    source: str


def run(args: argparse.Namespace) -> int:
    """Show the settings. Raises SettingsError where they are wrong."""
    path = Path(args.config) if args.config else None
    given = read_given_values(path, flags=dict(args.settings))
    settings_from({key: found.value for key, found in given.items()})
    shown = shown_settings(given, Redactor(own_secrets()))
    file = config_path(path)
    screen = screen_of(sys.stdout)
    if args.json:
        listed = {one.key: {"value": one.value, "source": one.source} for one in shown}
        screen.say(json.dumps({"file": str(file) if file else None, "settings": listed}, indent=2))
        return 0
    screen.say(f"settings file: {printable(str(file)) if file else 'none'}")
    for line in lines(shown, screen):
        screen.say(line)
    return 0


def shown_settings(given: dict[str, Sourced], redactor: Redactor) -> list[ShownSetting]:
    """Every setting in the order of the reference."""
    return [
        ShownSetting(name, _shown_value(key, given[name].value, redactor), given[name].source)
        if name in given
        else ShownSetting(name, key.default, "default")
        for name, key in known_keys().items()
    ]


def lines(shown: Sequence[ShownSetting], screen: Screen) -> Iterator[str]:
    """One line for each setting; what was given stands out."""
    rows = [[one.key, _text(one.value), printable(one.source)] for one in shown]
    for cells, one in zip(aligned(rows), shown, strict=True):
        line = "  ".join(cells).rstrip()
        yield screen.paint(line, "dim") if one.source == "default" else line


def _shown_value(key: Key, value: Any, redactor: Redactor) -> Any:
    if value is None:
        return None
    if key.private:
        return NOT_SHOWN
    if isinstance(value, tuple):
        return [redactor.redact(one) for one in value]
    return redactor.redact(value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        return printable(", ".join(value))
    return printable(value) if isinstance(value, str) else f"{value:,}"
