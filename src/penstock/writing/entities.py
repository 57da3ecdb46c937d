"""State by entity: what is known now of a file, a command, an order, a person, and where it stands.

    sightings_in(message)  →  fold_entities(numbered sightings)  →  match_entities(states, "src/app.py")

Folding the sightings of a log in their order gives one `EntityState` for each entity: a call meets its outcome, a file is
known by what was done to it last, a command by its last outcome, a record (an order, a person, anything with an id) by
its newest fields and the last thing that was tried on it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.handles import name_message, parse_message_handle
from penstock.writing.sightings import (
    COMMAND,
    FIELDS,
    FILE,
    LOOKED,
    PERSON,
    RECALL,
    RECORD,
    RUNNING,
    WAITS,
    Sighting,
    SightingRole,
)
from penstock.writing.stubs import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

__all__ = ["EVERYTHING", "EntityChange", "EntityState", "fold_entities", "match_entities"]

_MOST_CHANGES = 12
_LONGEST_CHANGE = 160  # characters
_LOOKUP = re.compile(
    r"^(?:get|find|search|list|fetch|read|describe|show|query|lookup|look_up|check|view|calculate|count)(?=_|[A-Z]|$)"
)


class EntityChange(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to an entity, and the handle of the message that says so."""

    handle: str
    what: str


class EntityState(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of an entity now.

    `handle` names the message where its state stands and `at` when that was logged, if it is known. `tried` is what was
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
        if change not in self.changes[-4:]:
            self.changes.append(change)
            # More than are shown: a call is noted when it ends, at its own place, which others may stand behind.
            del self.changes[: -2 * _MOST_CHANGES]

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
                if deeds and deeds[0].says.startswith(WAITS):
                    deeds = running.get(deeds[0].says.removeprefix(WAITS), ())
                if one.kind == RUNNING:
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
    """Returns True if a result only shows a file or our own history: ids in it say nothing of how things are."""
    return any(
        (one.kind == FILE and one.says == "read") if one.name else one.says in {RECALL, LOOKED}
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
    if outcome.kind == RUNNING:
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
    if outcome.kind == FIELDS and alone:
        _state(entity, outcome)
    elif outcome.kind != FIELDS:
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
        entity.note(told.number, shorten(", ".join(changed), _LONGEST_CHANGE))


def _merge_ids(entities: Iterable[_Known]) -> list[_Known]:
    """Returns the entities, with what is known of a bare id joined to the one thing of a kind that has this id."""
    found = list(entities)
    by_name: dict[str, list[_Known]] = {}
    for one in found:
        if one.kind not in {RECORD, FILE, COMMAND}:
            by_name.setdefault(one.name.casefold(), []).append(one)
    return [
        one
        for one in found
        if one.kind != RECORD
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
