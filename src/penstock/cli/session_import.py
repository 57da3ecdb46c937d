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
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import Screen, screen_of
from penstock.cli.source import read_bytes, settings_of
from penstock.cli.stored import SHORT, opened_store
from penstock.errors import InputError, StoreError
from penstock.sessions.importing import (
    BRANCHED,
    GROWN,
    KNOWN,
    NEW,
    WITHOUT_PARENT,
    Adoption,
    adopt_conversation,
)
from penstock.transfer.reading import read_recorded

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.transfer.recorded import LineFault, RecordedConversation

__all__ = ["run_import"]

_SESSIONS = "*.jsonl"
_OUTCOMES = {
    NEW: "{added} imported as {id}",
    GROWN: "{added} added to {id}",
    BRANCHED: "it went another way than {id} knew: {added} more in a branch",
    KNOWN: "nothing new, it is here as {id}",
    WITHOUT_PARENT: "left out, a sub-agent of a session that is not here: import that one, too",
}


class _Taken(msgspec.Struct):
    """A file and what became of it: of its conversations only what is told about them, so that memory holds one file."""

    file: str
    error: str = ""
    outcomes: list[tuple[RecordedConversation, Adoption | str]] = []
    faults: tuple[LineFault, ...] = ()


class _Waiting(msgspec.Struct, frozen=True):
    """A sub-agent whose session may be in a file that comes later."""

    taken: _Taken
    place: int
    recorded: RecordedConversation


def run_import(args: argparse.Namespace) -> int:
    """Import the files. One that cannot be read is told, the others are imported; the exit code says so.

    What was imported before an interruption, or before the store failed, is told, too. Raises StoreError.
    """
    settings = settings_of(args)
    taken: list[_Taken] = []
    try:
        with ProgressLine("importing") as progress, opened_store(args) as store:
            waiting: list[_Waiting] = []
            files = [file for given in args.files for file in _files_of(given)]
            for number, file in enumerate(files, start=1):
                progress.now(f"importing file {number:,} of {len(files):,}")
                taken.append(_Taken(file))
                waiting += _take(taken[-1], store, settings, args.dialect)
            for one in waiting:
                done = _adopted(store, one.recorded, settings, one.taken.file)
                one.taken.outcomes[one.place] = (_told(one.recorded), done)
    except (StoreError, KeyboardInterrupt):
        _report([one for one in taken if one.error or one.outcomes], args)
        raise
    _report(taken, args)
    failed = any(one.error or any(isinstance(done, str) for _, done in one.outcomes) for one in taken)
    return BAD_INPUT if failed else 0


def _files_of(given: str) -> list[str]:
    """The file, or those of a folder and of all below it that programs write their sessions to."""
    if given == "-" or not Path(given).is_dir():
        return [given]
    found = [str(file) for file in sorted(Path(given).rglob(_SESSIONS)) if file.is_file()]
    return found or [given]  # which is then told as a folder that has none


def _take(one: _Taken, store: Store, settings: Settings, dialect: str) -> Iterator[_Waiting]:
    """Import the conversations of a file; those that have to wait for another file."""
    if one.file != "-" and Path(one.file).is_dir():
        one.error = f"there is no {_SESSIONS} in this folder: give its files by their names"
        return
    try:
        reading = read_recorded(read_bytes(one.file), dialect)
    except InputError as error:
        one.error = failure_of(error).text
        return
    one.faults = reading.faults
    for recorded in reading.conversations:
        done = _adopted(store, recorded, settings, one.file)
        if isinstance(done, Adoption) and done.outcome == WITHOUT_PARENT:
            yield _Waiting(one, len(one.outcomes), recorded)
        one.outcomes.append((_told(recorded), done))


def _adopted(store: Store, recorded: RecordedConversation, settings: Settings, file: str) -> Adoption | str:
    try:
        return adopt_conversation(store, recorded, settings, time.time(), _time_of(file))
    except InputError as error:
        return failure_of(error).text


def _told(recorded: RecordedConversation) -> RecordedConversation:
    """What is told of a conversation, without what it holds."""
    return msgspec.structs.replace(recorded, messages=(), requests=())


def _report(taken: Sequence[_Taken], args: argparse.Namespace) -> None:
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps([_as_json(one) for one in taken], indent=2))
        return
    for one in taken:
        for line in _lines(one, screen):
            screen.say(line)


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
    elif not one.outcomes:
        yield f"{name}: nothing was said in this session"
    for recorded, done in one.outcomes:
        if isinstance(done, str):
            yield f"{name}: {screen.paint('not imported', 'yellow')}: {done}"
            continue
        what = "sub-agent" if recorded.works_for else recorded.format
        text = _OUTCOMES[done.outcome].format(added=plural(done.added, "message"), id=done.session[:SHORT])
        yield f"{name}: {what}, {recorded.dialect}: {text}"
        if done.more_to_come:
            yield "  its last message may not be complete yet: import it again in a minute"
        if done.added:
            yield from (
                f"  left out: {printable(kind)}, {count:,}" for kind, count in recorded.left_out.items()
            )
    for fault in one.faults:
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
        "faults": [msgspec.structs.asdict(fault) for fault in one.faults],
    }
