"""`penstock sessions import` and `export`: conversations from files into the store, and from the store to a file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.accounts.conversations import find_conversation, open_conversation, title_conversation
from penstock.accounts.display import SHORT_ID_CHARS
from penstock.accounts.talk import read_talk, write_markdown
from penstock.cli.failure import BAD_INPUT, describe_failure
from penstock.cli.options import carry_store
from penstock.cli.output import write_output
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import Screen, printable, screen_of
from penstock.cli.source import read_bytes, settings_of
from penstock.cli.stored import open_store_of
from penstock.errors import InputError, SettingsError, StoreError
from penstock.measure.wording import pluralise
from penstock.sessions.exporting import export_conversation, write_document
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
from penstock.web.export import render_export

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.transfer.recorded import LineFault, RecordedConversation

__all__ = ["run_export", "run_import"]

_SESSIONS = "*.jsonl"
_OUTCOMES = {
    NEW: "{added} imported as {id}",
    GROWN: "{added} added to {id}",
    BRANCHED: "it diverged from {id}: {added} added in a branch",
    KNOWN: "nothing new, already imported as {id}",
    WITHOUT_PARENT: "skipped, a sub-agent of a session that is not in the store: import that session, too",
}


class _ImportedFile(msgspec.Struct):
    """A file and its outcome. Conversations are kept without their messages, so that only one file is in memory."""

    file: str
    folder: str = ""
    """The folder that was named, where the file was found in one."""
    error: str = ""
    outcomes: list[tuple[RecordedConversation, Adoption | str]] = []
    faults: tuple[LineFault, ...] = ()


class _WaitingAgent(msgspec.Struct, frozen=True):
    """A sub-agent whose parent session may be in a later file."""

    source: _ImportedFile
    place: int
    recorded: RecordedConversation


def run_import(args: argparse.Namespace) -> int:
    """Imports the files. One that cannot be read is reported and makes the exit code 2; the others are imported.

    What was imported before an interruption, or before the store failed, is reported, too. Raises StoreError.
    """
    settings = settings_of(args)
    imported: list[_ImportedFile] = []
    try:
        with ProgressLine("importing") as progress, open_store_of(args) as store:
            waiting: list[_WaitingAgent] = []
            files = [file for given in args.files for file in _find_files(given)]
            for number, file in enumerate(files, start=1):
                progress.now(f"importing file {number:,} of {len(files):,}")
                imported.append(file)
                waiting += _import_file(file, store, settings, args.dialect)
            for one in waiting:
                done = _adopt(store, one.recorded, settings, one.source.file)
                one.source.outcomes[one.place] = (_without_messages(one.recorded), done)
    except (StoreError, KeyboardInterrupt):
        _report_import([one for one in imported if one.error or one.outcomes], args)
        raise
    _report_import(imported, args)
    return BAD_INPUT if any(map(_has_failed, imported)) else 0


def _has_failed(one: _ImportedFile) -> bool:
    return bool(one.error) or any(isinstance(done, str) for _, done in one.outcomes)


def _find_files(given: str) -> list[_ImportedFile]:
    """Returns the file, or the session files of a folder and of all folders below it."""
    if given == "-" or not Path(given).is_dir():
        return [_ImportedFile(given)]
    found = [file for file in sorted(Path(given).rglob(_SESSIONS)) if file.is_file()]
    if not found:
        return [_ImportedFile(given)]  # then reported as a folder without any
    return [_ImportedFile(str(file), folder=given) for file in found]


def _import_file(
    one: _ImportedFile, store: Store, settings: Settings, dialect: str
) -> Iterator[_WaitingAgent]:
    """Imports the conversations of a file; yields those that must wait for another file."""
    if one.file != "-" and Path(one.file).is_dir():
        one.error = f"there is no {_SESSIONS} in this folder: name the files themselves"
        return
    try:
        data = read_bytes(one.file)
        if one.folder and not data.strip():
            return  # begun by a program that has not written to it yet
        reading = read_recorded(data, dialect)
    except InputError as error:
        one.error = describe_failure(error).text
        return
    one.faults = reading.faults
    for recorded in reading.conversations:
        done = _adopt(store, recorded, settings, one.file)
        if isinstance(done, Adoption) and done.outcome == WITHOUT_PARENT:
            yield _WaitingAgent(one, len(one.outcomes), recorded)
        one.outcomes.append((_without_messages(recorded), done))


def _adopt(store: Store, recorded: RecordedConversation, settings: Settings, file: str) -> Adoption | str:
    try:
        return adopt_conversation(store, recorded, settings, time.time(), _read_modification_time(file))
    except InputError as error:
        return describe_failure(error).text


def _without_messages(recorded: RecordedConversation) -> RecordedConversation:
    """Returns the conversation as it is reported, without its messages."""
    return msgspec.structs.replace(recorded, messages=(), requests=())


def _report_import(imported: Sequence[_ImportedFile], args: argparse.Namespace) -> None:
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps([_file_to_dict(one) for one in imported], indent=2))
        return
    for one in imported:
        if not one.folder or _has_failed(one) or _count_added(one):
            for line in _import_lines(one, screen):
                screen.say(line)
    if any(one.folder for one in imported):
        screen.say(_sum_up(imported))


def _count_added(one: _ImportedFile) -> int:
    return sum(done.added for _, done in one.outcomes if isinstance(done, Adoption))


def _sum_up(imported: Sequence[_ImportedFile]) -> str:
    """Returns the outcome of all files in one line; files of a folder with nothing new are mentioned only here."""
    added = [
        done for one in imported for _, done in one.outcomes if isinstance(done, Adoption) and done.added
    ]
    failed = sum(map(_has_failed, imported))
    empty = sum(not one.outcomes and not one.error for one in imported)
    unchanged = sum(bool(one.outcomes) and not _has_failed(one) and not _count_added(one) for one in imported)
    new = pluralise(sum(done.added for done in added), "message")
    told = [f"{new} in {pluralise(len(added), 'conversation')} imported" if added else "nothing new"]
    counts = ((unchanged, "unchanged"), (empty, "without messages"), (failed, "not imported"))
    told += [f"{count:,} {what}" for count, what in counts if count]
    return f"{pluralise(len(imported), 'file')}: {', '.join(told)}"


def _read_modification_time(file: str) -> float:
    """Returns when the file was last written: the time for messages that have none of their own."""
    try:
        return time.time() if file == "-" else Path(file).stat().st_mtime
    except OSError:
        return time.time()


def _import_lines(one: _ImportedFile, screen: Screen) -> Iterator[str]:
    name = Path(one.file).relative_to(one.folder) if one.folder else one.file
    name = printable("standard input" if one.file == "-" else str(name))
    if one.error:
        yield f"{name}: {screen.paint('not imported', 'yellow')}: {one.error}"
    elif not one.outcomes:
        yield f"{name}: this session has no messages"
    for recorded, done in one.outcomes:
        if isinstance(done, str):
            yield f"{name}: {screen.paint('not imported', 'yellow')}: {done}"
            continue
        what = "sub-agent" if recorded.works_for else recorded.format
        text = _OUTCOMES[done.outcome].format(
            added=pluralise(done.added, "message"), id=done.session[:SHORT_ID_CHARS]
        )
        yield f"{name}: {what}, {recorded.dialect}: {text}"
        if done.more_to_come:
            yield "  the last message may be incomplete: import the file again in a minute"
        if done.added:
            yield from (
                f"  skipped: {printable(kind)}, {count:,}" for kind, count in recorded.left_out.items()
            )
    for fault in one.faults:
        yield f"  line {fault.line:,} was skipped: {printable(fault.what)}"


def _file_to_dict(one: _ImportedFile) -> dict[str, Any]:
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


def run_export(args: argparse.Namespace) -> int:
    """Writes a conversation. Raises UnknownSession, and OSError if it cannot be written."""
    with ProgressLine("exporting"), open_store_of(args, must_exist=True) as store:
        session = find_conversation(store, args.id)
        to_be_read = args.format in ("md", "html")
        if to_be_read and (args.view or args.dialect):
            raise SettingsError(
                f"--format {args.format} writes the whole conversation for people to read; leave out --view and --dialect"
            )
        found = export_conversation(store, session.id, view=args.view, dialect=args.dialect)
        if args.format == "html":
            opened = open_conversation(store, session, settings_of(args))
            data = render_export(opened, read_talk(store, session.id))
        elif args.format == "md":
            data = write_markdown(title_conversation(store, session.id), read_talk(store, session.id))
        else:
            data = write_document(found.messages, args.format)
    to_file = write_output(args.output, data)
    screen = screen_of(sys.stdout if to_file else sys.stderr)
    if args.json:
        report = {"id": session.conversation, "dialect": found.dialect, "messages": len(found.messages)}
        screen.say(
            json.dumps({**report, "bytes": len(data), "lost": found.lost, "missing": found.missing}, indent=2)
        )
        return 0
    if to_file:
        messages = pluralise(len(found.messages), "message")
        screen.say(f"exported {messages} to {printable(args.output)}, {len(data):,} bytes")
    if found.missing:
        hint = carry_store("penstock doctor says which", args)
        screen.say(f"  {pluralise(found.missing, 'message')} missing from the store: {hint}")
    for what, count in found.lost.items():
        screen.say(f"  cannot be expressed in {found.dialect}: {printable(what)}, {pluralise(count, 'time')}")
    return 0
