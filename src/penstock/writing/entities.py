"""State by entity: what is known now of a file, a command, an order, a person, and where it stands.

    sightings_in(message)  →  fold_entities(numbered sightings)  →  match_entities(states, "src/app.py")

A sighting is what one message says of one entity, and depends on that message alone: so it can be kept with the message,
whichever logs it stands in. Folding the sightings of a log in their order gives one `EntityState` for each entity: a call
meets its outcome, a file is known by what was done to it last, a command by its last outcome, a record (an order, a
person, anything with an id) by its newest fields and the last thing that was tried on it.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.handles import name_message, parse_message_handle
from penstock.conversation.message import Role, Text, ToolCall, ToolResult
from penstock.conversation.speakers import Voice, part_voices
from penstock.writing.constraints import sentences
from penstock.writing.excerpts import write_scalar
from penstock.writing.ledger import QUIET_COMMAND, read_call, read_outcome
from penstock.writing.stubs import ToolFamily, arguments_of, main_argument, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from penstock.conversation.message import Message

__all__ = [
    "COMMAND",
    "EVERYTHING",
    "FILE",
    "PERSON",
    "SIGHTINGS_VERSION",
    "EntityChange",
    "EntityState",
    "Sighting",
    "SightingRole",
    "fold_entities",
    "match_entities",
    "sightings_in",
]

SIGHTINGS_VERSION = 1
"""Changes where `sightings_in` finds something else: what was kept before is then found anew."""

FILE, COMMAND, PERSON = "file", "command", "person"

_RECORD = "record"  # an id whose key does not say what has it
_MOST_RECORDS = 40  # of one result: a page of search results
_MOST_FIELDS = 16
_LONGEST_FIELD = 120  # characters
_LONGEST_TEXT = 160
_LONGEST_NAME = 200
_LONGEST_JSON = 400_000
_MOST_CHANGES = 12

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
    """What one message says of one entity, redacted.

    `says` is the verb of a deed, the words of an outcome, or the fields of a state as lines of `key: value`. `kind` of an
    outcome is `fields` where it has such lines, `running` where it tells the id of a process that goes on. `number` is the message, `at` when it was logged; both are added later.
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


class EntityChange(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to an entity, and the handle of the message that says so."""

    handle: str
    what: str


class EntityState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an entity now.

    `handle` names the message where its state stands and `at` when that was logged, where it is known. `tried` is what was
    tried on it since and failed, or has no outcome yet. `times` counts the messages that say something of it, and
    `changes` are the last of what they say, the newest first.
    """

    kind: str
    name: str
    state: str
    handle: str
    at: float | None = None
    tried: EntityChange | None = None
    times: int = 1
    changes: tuple[EntityChange, ...] = ()

    @property
    def number(self) -> int:
        """The number of the message where its state stands."""
        return parse_message_handle(self.handle)


# ─── one message ────────────────────────────────────────────────────────────────────────────────────────────────────

_PATCHED = re.compile(r"^\*\*\* (Update|Add|Delete) File: (\S.*?)\s*$", re.MULTILINE)
_PATCH_VERBS = {"Update": "edited", "Add": "created", "Delete": "deleted"}
_EDITOR_VERBS = {"view": "read", "open": "read", "create": "created", "delete": "deleted"}
_FILE_VERBS = {
    ToolFamily.READ: "read",
    ToolFamily.WRITE: "written",
    ToolFamily.PATCH: "edited",
}
_PATH_KEYS = ("file_path", "path", "filename", "file_name", "file", "notebook_path", "uri")
_FOLDER_KEYS = ("workdir", "cwd", "working_directory", "working_dir")
_PATHLIKE = re.compile(r"~?[\w.@+/-]*(?:/[\w.@+-]+|[\w@+-]\.\w{1,8})|Makefile|Dockerfile")
_COMMAND_PIECE = re.compile(r"\s*(?:&&|\|\||;|\n|\|)\s*")
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
_LOOKUP = re.compile(
    r"^(?:get|find|search|list|fetch|read|describe|show|query|lookup|look_up|check|view|calculate|count)(?=_|[A-Z]|$)"
)
_RUNNING = re.compile(r"running (?:in (?:the )?background )?with (?:session )?ID:? ?(\w+)", re.IGNORECASE)
_WAITED_FOR = ("session_id", "bash_id", "shell_id", "task_id", "process_id")
_WAITS = "waits for "
_SET_KEYS = ("status", "state", "title", "name", "subject", "priority", "assignee")
_RECALL = re.compile(r"history_(?:search|describe|expand|entity)$")

_ID_KEY = re.compile(r"(?:(?P<stem>\w*?)_?)(?:ids?|uuid|Id|ID|UUID)$")
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
    [
        "session",
        "request",
        "process",
        "p",
        "thread",
        "call",
        "tool",
        "tool_call",
        "tool_use",
        "message",
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
        "submission",
    ]
)
_PEOPLE = frozenset(
    [
        "user",
        "customer",
        "person",
        "member",
        "employee",
        "patient",
        "contact",
        "client",
        "author",
        "owner",
        "assignee",
        "passenger",
        "guest",
    ]
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
                found += _read_words(text, redact)
            case _:
                pass
    return tuple(dict.fromkeys(found))


def _read_call(call: ToolCall, redact: Callable[[str], str]) -> Iterator[Sighting]:
    deed = Sighting(SightingRole.DEED, call_id=call.call_id, says=call.name)
    if _RECALL.search(call.name):
        yield msgspec.structs.replace(deed, says="recall")
        return
    arguments = arguments_of(call)
    waited_for = next((str(arguments[key]) for key in _WAITED_FOR if key in arguments), "")
    if waited_for and "command" not in arguments and "cmd" not in arguments and "status" not in arguments:
        yield msgspec.structs.replace(deed, says=f"{_WAITS}{waited_for}")
        return
    fact = read_call(call, redact)
    found: list[tuple[str, str, str]]
    if fact.family is ToolFamily.TERMINAL:
        command = main_argument(fact.family, arguments)
        folder = _folder_of(command, arguments)
        found = [
            (kind, _join_path(folder, name), says)
            for kind, name, says in _files_of_command(command, fact.path)
        ]
        if not QUIET_COMMAND.match(fact.text):
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
        yield msgspec.structs.replace(deed, says="looked" if looks else call.name)


def _files_of_tool(family: ToolFamily, arguments: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    patched = [
        found for value in arguments.values() if isinstance(value, str) for found in _PATCHED.findall(value)
    ]
    if patched:
        yield from ((FILE, path, _PATCH_VERBS[verb]) for verb, path in patched)
        return
    path = next((arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)), "")
    if path.strip():
        yield FILE, _tidy_path(path), _EDITOR_VERBS.get(str(arguments.get("command")), _FILE_VERBS[family])


def _files_of_command(command: str, edited: str) -> Iterator[tuple[str, str, str]]:
    """Yields the files that a command reads, makes, moves and deletes, as far as its words say so."""
    if "*** Begin Patch" in command:
        yield from ((FILE, _tidy_path(path), _PATCH_VERBS[verb]) for verb, path in _PATCHED.findall(command))
        return
    yield from ((FILE, _tidy_path(path), "edited") for path in edited.split("\n") if path)
    if "<<" in command:  # what follows is the text of a file
        command = command.partition("<<")[0]
    for piece in _COMMAND_PIECE.split(command):
        found = _SHELL.match(piece)
        if found is None or ">" in piece:
            continue
        words = [word.strip("'\"") for word in found[2].split() if not word.startswith("-")]
        paths = [word for word in words if _PATHLIKE.fullmatch(word) and not word.startswith("/dev/")]
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
    if found is None or key.lower().endswith("ids"):
        return ""
    stem = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found["stem"] or "").lower().strip("_")
    if stem in _PLUMBING:
        return ""
    return PERSON if stem in _PEOPLE else stem.replace("_", " ") or _RECORD


def _read_result(result: ToolResult, redact: Callable[[str], str]) -> Iterator[Sighting]:
    fact = read_outcome(result, redact)
    text = result.text
    data = _parse(text)
    says, kind, name = fact.text, "", ""
    if running := _RUNNING.search(text[:300]):
        kind, name = "running", running[1]
    elif not fact.failed and not fact.suspect:
        if isinstance(data, dict):
            says, kind = redact(_write_fields(data)), "fields"
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
            if kind == _RECORD and singular and not any(map(str.isdigit, singular)):
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


def _read_words(text: str, redact: Callable[[str], str]) -> Iterator[Sighting]:
    """Yields the people whom a person names, with the sentence."""
    if "@" not in text and "name is" not in text and "heiße" not in text and "Name ist" not in text:
        return
    for voiced in part_voices(text):
        if voiced.voice is not Voice.PERSON:
            continue
        for sentence in sentences(redact(voiced.text)):
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


# ─── the conversation ───────────────────────────────────────────────────────────────────────────────────────────────


_DONE = "done"  # the field for what was done to a record, where its result tells no fields


class _Known(msgspec.Struct):
    """An entity while the sightings are folded."""

    kind: str
    name: str
    state: str = ""
    number: int = 0
    at: float | None = None
    fields: dict[str, str] = {}
    verbs: dict[str, int] = {}
    tried: EntityChange | None = None
    times: int = 0
    changes: list[EntityChange] = []

    def note(self, number: int, what: str) -> None:
        change = EntityChange(name_message(number), what)
        if change not in self.changes:
            self.changes.append(change)

    def stand(self, sighting: Sighting, state: str) -> None:
        """Takes a new state, which what was tried before it no longer belongs to."""
        self.state, self.number, self.at, self.tried = state, sighting.number, sighting.at, None


def fold_entities(sightings: Iterable[Sighting]) -> list[EntityState]:
    """Returns one state for each entity, from numbered sightings in the order of their messages; the newest first."""
    known: dict[tuple[str, str], _Known] = {}
    calls: dict[str, list[Sighting]] = {}
    owners: dict[str, int] = {}  # of a call's id, the message: ids may come again
    running: dict[str, Sequence[Sighting]] = {}  # the commands that go on, by the id that their outcome told
    for one in sightings:
        match one.role:
            case SightingRole.DEED:
                if owners.get(one.call_id) != one.number:
                    calls[one.call_id], owners[one.call_id] = [], one.number
                calls[one.call_id].append(one)
                if one.name:
                    _begin(_entity(known, one), one)
            case SightingRole.OUTCOME:
                deeds: Sequence[Sighting] = calls.get(one.call_id, ())
                if deeds and deeds[0].says.startswith(_WAITS):
                    deeds = running.get(deeds[0].says.removeprefix(_WAITS), ())
                if one.kind == "running":
                    running[one.name] = deeds
                _finish(known, deeds, one)
            case SightingRole.STATE:
                deeds = calls.get(one.call_id, ())
                if not _shows_what_is_stored(deeds):
                    entity = _entity(known, one)
                    entity.times += not any(deed.name == one.name for deed in deeds)
                    _state(entity, one)
    merged = _merge_paths(_merge_ids(known.values()))
    states = [_build_state(entity) for entity in merged if entity.number]
    return sorted(states, key=lambda one: one.number, reverse=True)


def _entity(known: dict[tuple[str, str], _Known], sighting: Sighting) -> _Known:
    key = sighting.kind, sighting.name.casefold()
    if key not in known:
        known[key] = _Known(sighting.kind, sighting.name)
    return known[key]


def _shows_what_is_stored(deeds: Sequence[Sighting]) -> bool:
    """Returns whether a result only shows a file or our own history: ids in it say nothing of how things are."""
    return any(
        (one.kind == FILE and one.says == "read") if one.name else one.says in {"recall", "looked"}
        for one in deeds
    )


def _begin(entity: _Known, deed: Sighting) -> None:
    entity.times += 1
    if not _is_lookup(deed):
        done = deed.says.partition("\n")[0]
        entity.tried = EntityChange(name_message(deed.number), f"{done}, no outcome yet")
    if not entity.number:
        entity.number, entity.at = deed.number, deed.at


def _is_lookup(deed: Sighting) -> bool:
    return deed.kind not in {FILE, COMMAND} and _LOOKUP.match(deed.says) is not None


def _finish(known: dict[tuple[str, str], _Known], deeds: Sequence[Sighting], outcome: Sighting) -> None:
    """Lets the entities of a call have its outcome."""
    records = [deed for deed in deeds if deed.name and deed.kind not in {FILE, COMMAND}]
    runs = any(deed.kind == COMMAND for deed in deeds)
    for deed in deeds:
        if not deed.name:
            continue
        entity = _entity(known, deed)
        if deed.kind == COMMAND:
            entity.stand(outcome, _write_exit(outcome))
            entity.note(outcome.number, entity.state)
        elif deed.kind == FILE:
            # That a command failed need not be because of this file: it may have been the next one in the pipe.
            _finish_file(entity, deed, outcome, failed=outcome.failed and not runs)
        else:
            _finish_record(entity, deed, outcome, alone=len(records) == 1)


def _write_exit(outcome: Sighting) -> str:
    if outcome.kind == "running":
        return "still running"
    if outcome.status is not None:
        why = f": {outcome.says}" if outcome.failed and outcome.says else ""
        return f"exit {outcome.status}{why}"
    return f"failed: {outcome.says}" if outcome.failed else "done"


def _finish_file(entity: _Known, deed: Sighting, outcome: Sighting, *, failed: bool) -> None:
    if failed:
        what = f"not {deed.says}: {outcome.says}" if outcome.says else f"not {deed.says}"
        entity.tried = EntityChange(name_message(outcome.number), what)
        entity.note(outcome.number, what)
        return
    told = outcome if deed.says == "read" else deed  # where the text of the file, or of the change, stands
    if deed.says.startswith(("deleted", "moved to")):
        entity.verbs.clear()
    elif deed.says != "read":
        entity.verbs = {
            verb: at for verb, at in entity.verbs.items() if not verb.startswith(("deleted", "moved to"))
        }
    entity.verbs.pop(deed.says, None)
    entity.verbs[deed.says] = told.number
    entity.stand(told, "")
    entity.note(told.number, deed.says)


def _finish_record(entity: _Known, deed: Sighting, outcome: Sighting, *, alone: bool) -> None:
    done, _, given = deed.says.partition("\n")
    if outcome.failed:
        what = f"{done} failed: {outcome.says}".rstrip(": ")
        entity.tried = EntityChange(name_message(outcome.number), what)
        entity.note(outcome.number, what)
        return
    if outcome.kind == "fields" and alone:
        _state(entity, outcome)
    elif outcome.kind != "fields":
        said = f"{given}\n{_DONE}: {done} → {outcome.says or 'done'}"
        _state(entity, msgspec.structs.replace(outcome, says=said))
    entity.tried = None
    if not _is_lookup(deed):
        entity.note(outcome.number, done)


def _state(entity: _Known, told: Sighting) -> None:
    """Takes what a message says of a record: its fields, which hold until another message says otherwise."""
    said = (line.partition(": ")[::2] for line in told.says.split("\n") if line)
    fields = {key: value for key, value in said if value.casefold() != entity.name.casefold()}
    changed = [
        f"{key} {value}" for key, value in fields.items() if entity.fields.get(key) != value and key != _DONE
    ]
    older = {key: value for key, value in entity.fields.items() if key not in fields}
    entity.fields = {**fields, **older}
    entity.stand(told, "")
    if changed:
        entity.note(told.number, shorten(", ".join(changed), _LONGEST_TEXT))


def _merge_ids(entities: Iterable[_Known]) -> list[_Known]:
    """Returns the entities, with what is known of a bare id joined to the one thing of a kind that has this id."""
    found = list(entities)
    by_name: dict[str, list[_Known]] = {}
    for one in found:
        if one.kind not in {_RECORD, FILE, COMMAND}:
            by_name.setdefault(one.name.casefold(), []).append(one)
    return [
        one
        for one in found
        if one.kind != _RECORD
        or len(same := by_name.get(one.name.casefold(), [])) != 1
        or not _join(same[0], one)
    ]


def _merge_paths(entities: Sequence[_Known]) -> list[_Known]:
    """Returns the entities, with a file that was named from its folder joined to the one whole path that ends so."""
    whole = [one for one in entities if one.kind == FILE and one.name.startswith(("/", "~"))]
    kept: list[_Known] = []
    for one in entities:
        if one.kind == FILE and "/" in one.name and not one.name.startswith(("/", "~")):
            same = [other for other in whole if other.name.endswith(f"/{one.name}")]
            if len(same) == 1 and _join(same[0], one):
                continue
        kept.append(one)
    return kept


def _join(entity: _Known, other: _Known) -> bool:
    """Adds what is known under another name. Returns True."""
    newer = other.number > entity.number
    entity.fields = {**other.fields, **entity.fields} if not newer else {**entity.fields, **other.fields}
    for verb, number in other.verbs.items():
        entity.verbs[verb] = max(number, entity.verbs.get(verb, 0))
    if newer:
        entity.state, entity.number, entity.at, entity.tried = (
            other.state,
            other.number,
            other.at,
            other.tried,
        )
    entity.times += other.times
    entity.changes += other.changes
    return True


def _build_state(entity: _Known) -> EntityState:
    if entity.kind == FILE:
        verbs = sorted(entity.verbs.items(), key=lambda pair: pair[1], reverse=True)
        newest = verbs[0] if verbs else None
        if newest is not None and newest[0].startswith(("deleted", "moved to")):
            verbs = verbs[:1]
        state = ", ".join(f"{verb} {name_message(number)}" for verb, number in verbs)
    elif entity.kind == COMMAND:
        state = entity.state
    else:
        state = ", ".join(value if key == _DONE else f"{key} {value}" for key, value in entity.fields.items())
    changes = sorted(entity.changes, key=lambda change: parse_message_handle(change.handle))
    return EntityState(
        kind=entity.kind,
        name=entity.name,
        state=state or "named",
        handle=name_message(entity.number),
        at=entity.at,
        tried=entity.tried,
        times=max(1, entity.times),
        changes=tuple(reversed(changes[-_MOST_CHANGES:])),
    )


# ─── asking ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_WORD = re.compile(r"[^\W_]+")
EVERYTHING = "*"


def match_entities(states: Collection[EntityState], asked: str) -> list[EntityState]:
    """Returns the entities that a name means, the newest first: the first of these ways that finds any.

    The very name, or the end of a path; a kind ("file", "orders"); names that hold it; names that have all of its words;
    what is known having them. `*` means all.
    """
    key = " ".join(asked.casefold().split()).strip("`'\"").removeprefix("./")
    if not key:
        return []
    if key == EVERYTHING:
        return list(states)
    words = set(_WORD.findall(key))
    ways: tuple[Callable[[EntityState], bool], ...] = (
        lambda one: (
            one.name.casefold().lstrip("#") == key.lstrip("#")
            or (one.kind == FILE and one.name.casefold().endswith(f"/{key}"))
        ),
        lambda one: key in {one.kind, f"{one.kind}s", "people" if one.kind == PERSON else one.kind},
        lambda one: re.search(rf"(?<![^\W_]){re.escape(key)}(?![^\W_])", one.name.casefold()) is not None,
        lambda one: bool(words) and words <= set(_WORD.findall(one.name.casefold())),
        lambda one: bool(words) and words <= set(_WORD.findall(f"{one.name} {one.state}".casefold())),
    )
    for way in ways:
        found = [one for one in states if way(one)]
        if found:
            return found
    return []
