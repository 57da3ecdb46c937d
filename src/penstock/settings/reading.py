"""Reads settings from mappings: nested sections or dotted keys, with values or their spelling as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from penstock._structs import read_early
from penstock.errors import SettingsError
from penstock.settings.keys import Key, check_value, keys_of, sections_of
from penstock.settings.sections import Settings

__all__ = ["find_most_alike", "known_keys", "read_values", "settings_from"]

read_early(Settings)


def settings_from(mapping: Mapping[str, Any]) -> Settings:
    """Returns the settings from nested sections (`{"compression": {"threshold": 0.6}}`), dotted keys, or both.

    A missing key has its default. Raises SettingsError for an unknown key (with the nearest known one), a key given twice,
    or a value of the wrong type or out of range.
    """
    sections: dict[str, Any] = {}
    for name, value in read_values(mapping).items():
        *path, field = name.split(".")
        inner = sections
        for part in path:
            inner = inner.setdefault(part, {})
        inner[field] = value
    return msgspec.convert(sections, Settings)


def read_values(mapping: Mapping[str, Any], *, texts: bool = False) -> dict[str, Any]:
    """Returns the checked values of a nested or dotted mapping, by dotted key.

    With `texts`, a string is parsed: `"0.6"` as a number, `"yes"` as a boolean, `"null"`
    (or nothing, if null is allowed) as null. Raises SettingsError as `settings_from` does.
    """
    values: dict[str, Any] = {}
    for name, value in _flatten(mapping):
        if name in values:
            raise SettingsError(f"{name} is given twice; keep one of the two")
        key = known_keys()[name]
        values[name] = check_value(key, _read_meant(key, value, texts=texts))
    return values


@cache
def known_keys() -> Mapping[str, Key]:
    """Returns every setting by its dotted name, in the order of the reference."""
    return {key.name: key for section in sections_of(Settings) for key in keys_of(section)}


def find_most_alike(name: str, known: Mapping[str, Any]) -> str:
    """Returns the known name that is most like `name`, or an empty string if none is like it."""
    import difflib  # noqa: PLC0415 - only a mistake needs it

    last = name.rpartition(".")[2]
    namesakes = [candidate for candidate in known if candidate.rpartition(".")[2] == last]
    matches = difflib.get_close_matches(name, namesakes or known, n=1, cutoff=0 if namesakes else 0.5)
    return matches[0] if matches else ""


def _flatten(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields dotted keys and their values. Only known sections are entered, so the depth is bounded."""
    for part, value in mapping.items():
        name = f"{prefix}{part}"
        if name in known_keys():
            yield name, value
            continue
        inside = [key for key in known_keys() if key.startswith(f"{name}.")]
        if not inside:
            raise SettingsError(f"{name} is not a setting; {_suggestion(name)}")
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{name}.")
        elif value is not None and value != "":  # a section left empty in a file says nothing
            raise SettingsError(f"{name} is a section, not a setting; it holds {', '.join(inside)}")


def _suggestion(name: str) -> str:
    near = find_most_alike(name, known_keys())
    if near:
        return f"did you mean {near}?"
    sections = dict.fromkeys(key.partition(".")[0] for key in known_keys())
    return f"the sections are {', '.join(sections)}"


_YES = ("true", "yes", "on", "1")
_NO = ("false", "no", "off", "0")


def _read_meant(key: Key, value: Any, *, texts: bool) -> Any:
    if texts and isinstance(value, str):
        return _read_text(key, value)
    if isinstance(value, bool) and isinstance(key.kinds[0], msgspec.inspect.LiteralType):
        return "on" if value else "off"  # YAML 1.1 readers make booleans of these two words
    return value


def _read_text(key: Key, text: str) -> Any:
    """Reads a text as this key's type; returns the text itself if it does not fit, for the check to refuse."""
    word = text.strip()
    kind = key.kinds[0]
    if len(key.kinds) > 1 and word.lower() in {"", "null", "none", "~"}:
        return None
    if key.structured:
        try:
            return msgspec.json.decode(word)
        except msgspec.DecodeError:
            return text
    if isinstance(kind, msgspec.inspect.BoolType):
        return word.lower() in _YES if word.lower() in _YES + _NO else text
    if isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        try:
            return int(word) if isinstance(kind, msgspec.inspect.IntType) else float(word)
        except ValueError:
            return text
    return word
