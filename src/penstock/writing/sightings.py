"""Reads what one message says of entities: of files, commands, people, and of records such as orders, known by their ids.

A sighting depends on its message alone: so it can be kept with the message, whichever logs it stands in. What is known of
an entity is folded from the sightings of a log (`entities`).
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.message import Role, Text, ToolCall, ToolResult
from penstock.conversation.speakers import Voice, part_voices
from penstock.writing.constraints import sentences
from penstock.writing.excerpts import write_scalar
from penstock.writing.ledger import find_running, find_waited_for, read_call, read_ended_process, read_outcome
from penstock.writing.stubs import ToolFamily, arguments_of, find_path, main_argument, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.conversation.message import Message

__all__ = [
    "COMMAND",
    "FIELDS",
    "FILE",
    "LOOKED",
    "PERSON",
    "RECALL",
    "RECORD",
    "RUNNING",
    "SIGHTINGS_VERSION",
    "WAITS",
    "Sighting",
    "SightingRole",
    "sightings_in",
]

SIGHTINGS_VERSION = 2
"""Changes where `sightings_in` finds something else: what was kept before is then found anew."""

FILE, COMMAND, PERSON = "file", "command", "person"
RECORD = "record"
"""The kind of an id whose key does not say what has it."""
FIELDS, RUNNING = "fields", "running"
"""The kinds of outcomes that say more than words: fields, or the id of a process that goes on."""
LOOKED, RECALL, WAITS = "looked", "recall", "waits for "
"""What calls on no entity do: look around, read our own history, wait for the process whose id follows."""

_MOST_RECORDS = 40  # of one result: a page of search results
_MOST_FIELDS = 16
_LONGEST_FIELD = 120  # characters
_LONGEST_TEXT = 160
_LONGEST_NAME = 200
_LONGEST_SENTENCE = 600
_LONGEST_JSON = 400_000

_DECODE = msgspec.json.Decoder(float_hook=str).decode  # 3.50 stays 3.50


class SightingRole(IntEnum):
    """The part of a sighting in what happened."""

    DEED = 0
    """A call does something with the entity, and its outcome is yet to come. Without a name: a call on no entity."""
    OUTCOME = 1
    """The outcome of a call, for all entities of the call."""
    STATE = 2
    """A result, or a person, says how the entity is."""


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """One message's statement about one entity, redacted.

    `says` is the verb of a deed, the words of an outcome, or the fields of a state as lines of `key: value`. `kind` of an
    outcome is `fields` where it has such lines, `running` where it tells the id of a process that goes on. `number` is the
    message, `at` when it was logged; both are added later.
    """

    role: SightingRole
    kind: str = ""
    name: str = ""
    says: str = ""
    call_id: str = ""
    failed: bool = False
    status: int | None = None
    number: int = 0
    at: float | None = None


_PATCHED = re.compile(r"^\*\*\* (Update|Add|Delete) File: (\S.*?)\s*$", re.MULTILINE)
_PATCH_VERBS = {"Update": "edited", "Add": "created", "Delete": "deleted"}
_EDITOR_VERBS = {"view": "read", "open": "read", "create": "created", "delete": "deleted"}
_FILE_VERBS = {
    ToolFamily.READ: "read",
    ToolFamily.WRITE: "written",
    ToolFamily.PATCH: "edited",
}
_FOLDER_KEYS = ("workdir", "cwd", "working_directory", "working_dir")
_PATHLIKE = re.compile(r"~?[\w.@+/-]*(?:/[\w.@+-]+|[\w@+-]\.\w{1,8})|Makefile|Dockerfile")
_COMMAND_PIECE = re.compile(r"&&|\|\||;|\n|\|")
_SHELL_VERBS = {
    "rm": "deleted",
    "git rm": "deleted",
    "unlink": "deleted",
    "touch": "created",
    "cat": "read",
    "nl": "read",
    "head": "read",
    "tail": "read",
    "less": "read",
    "bat": "read",
    "sed -n": "read",
    "open": "read",
    "create": "created",
}
_SHELL = re.compile(
    r"(git rm|sed -n|rm|unlink|touch|cat|nl|head|tail|less|bat|open|create|(?:git )?mv|cp)\s+(\S.*)"
)
_ENTERED = re.compile(r"^(?:cd [^&;|]+(?:&&|;) ?)+")
_SET_KEYS = ("status", "state", "title", "name", "subject", "priority", "assignee")
_RECALL_TOOL = re.compile(r"history_(?:search|describe|expand|entity)$")

_ID_KEY = re.compile(r"(?:(?P<stem>\w{1,60}?)(?:_(?:id|ID|uuid)|Id|ID|Uuid|UUID)|id|ID|uuid)$")
_NUMBER_KEY = re.compile(
    r"(?P<stem>order|flight|ticket|invoice|issue|pr|pull_request|case|booking|account|tracking|reservation|confirmation)"
    r"_?(?:number|no|code|ref)$",
    re.IGNORECASE,
)
_EMAIL_KEY = re.compile(r"(?:\w+_)?e_?mail(?:_address)?$", re.IGNORECASE)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}")
_NAMED = re.compile(
    r"\b[Mm]y (?:full )?name is ((?:[A-Z][\w'’-]+ ?){1,4})|\b(?:Ich heiße|Mein Name ist) ((?:[A-Z][\w'’-]+ ?){1,4})"
)
_PLUMBING = frozenset(  # ids of the machinery, not of anything that an agent works on
    {
        *("session", "request", "process", "p", "thread", "call", "tool", "tool_call", "tool_use", "message"),
        *(
            "trace",
            "span",
            "chunk",
            "cell",
            "agent",
            "target",
            "parent",
            "event",
            "response",
            "run",
            "prompt",
        ),
        "submission",
    }
)
_PEOPLE = frozenset(
    {
        *("user", "customer", "person", "member", "employee", "patient", "contact", "client", "author"),
        *("owner", "assignee", "passenger", "guest"),
    }
)
_TELLING_KEYS = ("status", "state", "name", "title", "full_name", "email")


def sightings_in(message: Message, redact: Callable[[str], str]) -> tuple[Sighting, ...]:
    """Returns what one message says of entities, not yet numbered. All of it went through `redact`."""
    found: list[Sighting] = []
    for part in message.parts:
        match part:
            case ToolCall():
                found += _read_call(part, redact)
            case ToolResult():
                found += _read_result(part, redact)
            case Text(text=text) if message.role is Role.USER:
                found += _read_ends(text)
                found += _read_words(text, redact)
            case _:
                pass
    return tuple(dict.fromkeys(found))


def _read_call(call: ToolCall, redact: Callable[[str], str]) -> Iterator[Sighting]:
    deed = Sighting(SightingRole.DEED, call_id=call.call_id, says=call.name)
    if _RECALL_TOOL.search(call.name):
        yield msgspec.structs.replace(deed, says=RECALL)
        return
    arguments = arguments_of(call)
    if waited_for := find_waited_for(arguments):
        yield msgspec.structs.replace(deed, says=f"{WAITS}{waited_for}")
        return
    fact = read_call(call, redact)
    found: list[tuple[str, str, str]]
    if fact.family is ToolFamily.TERMINAL:
        command = main_argument(fact.family, arguments)
        folder = _folder_of(command, arguments)
        found = [
            (kind, _join_path(folder, name), says)
            for kind, name, says in _files_of_command(command, fact.path, arguments)
        ]
        if not fact.only_looks:
            found.insert(0, (COMMAND, _ENTERED.sub("", fact.text), "ran"))
    elif fact.family in _FILE_VERBS:
        found = list(_files_of_tool(fact.family, arguments))
    elif fact.family is ToolFamily.OTHER:
        found = _records_of_call(call.name, arguments)
    else:
        found = []
    yielded = False
    for kind, name, says in found:
        shown = shorten(redact(name.strip()), _LONGEST_NAME)
        if shown:
            yielded = True
            yield msgspec.structs.replace(deed, kind=kind, name=shown, says=redact(says))
    if not yielded:
        looks = fact.family not in {ToolFamily.OTHER, ToolFamily.WRITE, ToolFamily.PATCH}
        yield msgspec.structs.replace(deed, says=LOOKED if looks else call.name)


def _files_of_tool(family: ToolFamily, arguments: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    patched = list(_read_patched_files(arguments))
    if patched:
        yield from patched
        return
    path = find_path(arguments)
    if path.strip():
        yield FILE, _tidy_path(path), _EDITOR_VERBS.get(str(arguments.get("command")), _FILE_VERBS[family])


def _read_patched_files(arguments: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields the files of a patch in a call's arguments, each with what becomes of it."""
    for value in arguments.values():
        for text in value if isinstance(value, list) else (value,):
            if isinstance(text, str) and "*** " in text:
                yield from (
                    (FILE, _tidy_path(path), _PATCH_VERBS[verb]) for verb, path in _PATCHED.findall(text)
                )


def _files_of_command(command: str, edited: str, arguments: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields the files that a command reads, makes, moves and deletes, as far as its words say so."""
    if "*** Begin Patch" in command:
        yield from _read_patched_files(arguments)
        return
    yield from ((FILE, _tidy_path(path), "edited") for path in edited.split("\n") if path)
    if "<<" in command:  # what follows is the text of a file
        command = command.partition("<<")[0]
    for piece in _COMMAND_PIECE.split(command):
        found = _SHELL.match(piece.strip())
        if found is None or ">" in piece:
            continue
        words = [word.strip("'\"") for word in found[2].split() if not word.startswith("-")]
        paths = [
            word
            for word in words
            if len(word) <= _LONGEST_NAME and _PATHLIKE.fullmatch(word) and not word.startswith("/dev/")
        ]
        verb = found[1]
        if verb.endswith("mv") or verb == "cp":
            if len(paths) == len(words) == 2:
                if verb != "cp":
                    yield FILE, _tidy_path(paths[0]), f"moved to {paths[1]}"
                yield FILE, _tidy_path(paths[1]), f"{'copied' if verb == 'cp' else 'moved'} from {paths[0]}"
            continue
        yield from ((FILE, _tidy_path(path), _SHELL_VERBS[verb]) for path in paths)


def _folder_of(command: str, arguments: dict[str, Any]) -> str:
    """Returns the whole path of the folder that a command runs in, where its words or arguments say so."""
    entered = re.match(r"\s*cd (/[^\s;&|]+)\s*(?:&&|;)", command)
    given = next((arguments[key] for key in _FOLDER_KEYS if isinstance(arguments.get(key), str)), "")
    folder = entered[1] if entered is not None else given
    return folder.rstrip("/") if folder.startswith("/") else ""


def _join_path(folder: str, path: str) -> str:
    if not folder or path.startswith(("/", "~", "../")):
        return path
    return f"{folder}/{path}"


def _tidy_path(path: str) -> str:
    return path.strip().removeprefix("file://").removeprefix("./")


def _records_of_call(tool: str, arguments: dict[str, Any]) -> list[tuple[str, str, str]]:
    named = [
        (kind, str(value), key)
        for key, value in arguments.items()
        if isinstance(value, (str, int)) and not isinstance(value, bool) and (kind := _kind_of_key(key))
    ]
    keys = {key for _, _, key in named}
    others = [
        f"{key} {_brief(value)}"
        for key, value in arguments.items()
        if key not in keys and value not in (None, "", [], {})
    ]
    says = f"{tool}({shorten(', '.join(others))})" if others else tool
    given = [
        f"{key}: {_brief(arguments[key])}" for key in _SET_KEYS if arguments.get(key) and key not in keys
    ]
    says = "\n".join([says, *given])
    return [(kind, name, says) for kind, name, _ in named]


def _kind_of_key(key: str) -> str:
    """Returns what has its id under such a key: "order" for `order_id`, "person" for `customerId`; empty for other keys."""
    if _EMAIL_KEY.match(key):
        return PERSON
    found = _ID_KEY.match(key) or _NUMBER_KEY.match(key)
    if found is None:
        return ""
    stem = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found["stem"] or "").lower().strip("_")
    if stem in _PLUMBING:
        return ""
    return PERSON if stem in _PEOPLE else stem.replace("_", " ") or RECORD


def _read_result(result: ToolResult, redact: Callable[[str], str]) -> Iterator[Sighting]:
    fact = read_outcome(result, redact)
    text = result.text
    data = _parse(text)
    says, kind, name = fact.text, "", ""
    if running := find_running(text):
        kind, name = RUNNING, running
    elif not fact.failed and not fact.suspect:
        if isinstance(data, dict):
            says, kind = redact(_write_fields(data)), FIELDS
        elif data is None:
            first = next((line.strip() for line in text[:2_000].split("\n") if line.strip()), "")
            says = shorten(redact(first), _LONGEST_TEXT)
    yield Sighting(
        SightingRole.OUTCOME,
        kind=kind,
        name=name,
        says=says,
        call_id=result.call_id,
        failed=fact.failed or fact.suspect,
        status=fact.status,
    )
    if data is not None and not fact.failed:
        records: list[tuple[str, str, dict[str, Any]]] = []
        _find_records(data, "", records, 0)
        for record_kind, name, fields in records:
            yield Sighting(
                SightingRole.STATE,
                kind=record_kind,
                name=shorten(redact(name), _LONGEST_NAME),
                says=redact(_write_fields(fields)),
                call_id=result.call_id,
            )


def _parse(text: str) -> Any:
    """Returns the JSON that the text is; None for any other text."""
    if text.lstrip()[:1] not in {"{", "["} or len(text) > _LONGEST_JSON:
        return None
    try:
        return _DECODE(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def _find_records(data: Any, parent: str, found: list[tuple[str, str, dict[str, Any]]], depth: int) -> None:
    """Adds every object that has an id of its own, with what it is."""
    if len(found) >= _MOST_RECORDS or depth > 6:
        return
    if isinstance(data, list):
        for item in data:
            _find_records(item, parent, found, depth + 1)
        return
    if not isinstance(data, dict):
        return
    own = _own_id(data, parent)
    if own is not None:
        found.append((own[0], own[1], data))
    for key, value in data.items():
        if isinstance(value, (dict, list)):
            _find_records(value, parent if key.isdigit() else str(key), found, depth + 1)


def _own_id(data: dict[str, Any], parent: str) -> tuple[str, str] | None:
    """Returns what an object is and its id: that of the key that names it, else its first."""
    singular = parent.lower().removesuffix("s").replace("_", " ")
    ids: list[tuple[str, str]] = []
    for key, value in data.items():
        kind = "" if _EMAIL_KEY.match(key) else _kind_of_key(key)
        if kind and isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip():
            if kind == RECORD and singular and not any(map(str.isdigit, singular)):
                kind = PERSON if singular in _PEOPLE else singular
            if kind == singular:
                return kind, str(value)
            ids.append((kind, str(value)))
    if ids:
        return ids[0]
    number = data.get("number")
    if isinstance(number, int) and ("title" in data or "state" in data):
        return singular or "issue", f"#{number}"
    return None


def _write_fields(data: dict[str, Any]) -> str:
    """Returns what an object says in lines of `key: value`, the most telling first; what is large is left out."""
    lines: dict[str, str] = {}
    for key in (*_TELLING_KEYS, *data):
        value = data.get(key)
        if key in lines or value is None or value in ("", [], {}):
            continue
        written = _brief(value)
        if written and len(lines) < _MOST_FIELDS:
            lines[key] = written
    return "\n".join(f"{key}: {value}" for key, value in lines.items())


def _brief(value: Any) -> str:
    """Returns a value on one line; a list or an object only where it is small, else how many things it holds."""
    if isinstance(value, dict):
        if any(isinstance(item, (dict, list)) for item in value.values()):
            return f"{len(value)} entries"
        value = " ".join(write_scalar(item) for item in value.values() if item not in (None, ""))
    elif isinstance(value, list):
        if any(isinstance(item, (dict, list)) for item in value):
            return f"{len(value)} entries"
        value = " ".join(map(write_scalar, value))
    return shorten(" ".join(write_scalar(value).split()), _LONGEST_FIELD)


def _read_ends(text: str) -> Iterator[Sighting]:
    """Yields the ends of processes that a client reports, each as a wait for the process and its outcome."""
    if "<task-id>" not in text:
        return
    for voiced in part_voices(text):
        if (ended := read_ended_process(voiced)) is not None:
            wait = f"{WAITS}{ended.process}"
            yield Sighting(SightingRole.DEED, call_id=wait, says=wait)
            yield Sighting(SightingRole.OUTCOME, call_id=wait, failed=ended.failed, status=ended.status)


def _read_words(text: str, redact: Callable[[str], str]) -> Iterator[Sighting]:
    """Yields the people whom a person names, with the sentence."""
    if "@" not in text and "name is" not in text and "heiße" not in text and "Name ist" not in text:
        return
    for voiced in part_voices(text):
        if voiced.voice is not Voice.PERSON:
            continue
        for sentence in sentences(redact(voiced.text)):
            if len(sentence) > _LONGEST_SENTENCE:
                continue
            names = [
                *_EMAIL.findall(sentence),
                *(one.strip() for pair in _NAMED.findall(sentence) for one in pair),
            ]
            for name in filter(None, names[:4]):
                yield Sighting(
                    SightingRole.STATE,
                    kind=PERSON,
                    name=name,
                    says=f"said: {shorten(sentence, _LONGEST_TEXT)}",
                )
