"""`penstock sessions import`: files of other programs, put into the store."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.failure import BAD_INPUT, failure_of
from penstock.cli.layout import plural, printable
from penstock.cli.progress import Progress
from penstock.cli.screen import Screen, screen_of
from penstock.cli.source import read_bytes, settings_of
from penstock.cli.stored import SHORT, opened_store
from penstock.engine.adopting import BRANCHED, GROWN, KNOWN, NEW, WITHOUT_PARENT, Adopted, adopt
from penstock.errors import InputError
from penstock.transfer.reading import read_recorded

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from penstock.transfer.recorded import Reading, Recorded

__all__ = ["run_import"]

_OUTCOMES = {
    NEW: "{added} imported as {id}",
    GROWN: "{added} added to {id}",
    BRANCHED: "it went another way than {id} knew: {added} more in a branch",
    KNOWN: "nothing new, it is here as {id}",
    WITHOUT_PARENT: "left out, a sub-agent of a session that is not here: import that one, too",
}


class _Taken(msgspec.Struct):
    """A file and what became of it."""

    file: str
    reading: Reading | None = None
    error: str = ""
    outcomes: list[tuple[Recorded, Adopted | str]] = []


def run_import(args: argparse.Namespace) -> int:
    """Import the files. One that cannot be read is told, the others are imported; the exit code says so."""
    settings = settings_of(args)
    with Progress("reading") as progress, opened_store(args) as store:
        taken = [_read(file, args.dialect) for file in args.files]
        progress.now("importing")
        # A sub-agent's file may stand before that of the session it worked for.
        for sub_agents in (False, True):
            for one in taken:
                for recorded in one.reading.conversations if one.reading is not None else ():
                    if bool(recorded.works_for) is sub_agents:
                        try:
                            done: Adopted | str = adopt(store, recorded, settings, _time_of(one.file))
                        except InputError as error:
                            done = failure_of(error).text
                        one.outcomes.append((recorded, done))
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps([_as_json(one) for one in taken], indent=2))
    else:
        for one in taken:
            for line in _lines(one, screen):
                screen.say(line)
    failed = any(one.error or any(isinstance(done, str) for _, done in one.outcomes) for one in taken)
    return BAD_INPUT if failed else 0


def _read(file: str, dialect: str) -> _Taken:
    try:
        return _Taken(file, read_recorded(read_bytes(file), dialect))
    except InputError as error:
        return _Taken(file, error=failure_of(error).text)


def _time_of(file: str) -> float:
    """When what has no time was said: when its file was last written."""
    try:
        return time.time() if file == "-" else Path(file).stat().st_mtime
    except OSError:
        return time.time()


def _lines(one: _Taken, screen: Screen) -> Iterator[str]:
    name = printable("standard input" if one.file == "-" else one.file)
    if one.error:
        yield f"{name}: {screen.paint('not imported', 'yellow')}: {one.error}"
    for recorded, done in one.outcomes:
        if isinstance(done, str):
            yield f"{name}: {screen.paint('not imported', 'yellow')}: {done}"
            continue
        what = "sub-agent" if recorded.works_for else recorded.format
        text = _OUTCOMES[done.outcome].format(added=plural(done.added, "message"), id=done.session[:SHORT])
        yield f"{name}: {what}, {recorded.dialect}: {text}"
        if done.added:
            yield from (
                f"  left out: {printable(kind)}, {count:,}" for kind, count in recorded.left_out.items()
            )
    for fault in one.reading.faults if one.reading is not None else ():
        yield f"  line {fault.line:,} was left out: {printable(fault.what)}"


def _as_json(one: _Taken) -> dict[str, Any]:
    return {
        "file": one.file,
        "error": one.error or None,
        "conversations": [
            {
                "format": recorded.format,
                "dialect": recorded.dialect,
                "sub_agent": bool(recorded.works_for),
                "left_out": recorded.left_out,
                **({"error": done} if isinstance(done, str) else msgspec.structs.asdict(done)),
            }
            for recorded, done in one.outcomes
        ],
        "faults": [msgspec.structs.asdict(fault) for fault in (one.reading.faults if one.reading else ())],
    }
