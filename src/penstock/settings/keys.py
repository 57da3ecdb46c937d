"""Single settings: the name, type and default of each, the check of a value, and the allowed values in words.

A key's dotted name is its section and its field (`compression.threshold`). The allowed values are written once, in the
field's type; the texts of errors and the parsing of text are derived from it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Struct

from penstock.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Key", "SettingsSection", "check_sections", "check_value", "keys_of", "sections_of"]


class SettingsSection(Struct, frozen=True, kw_only=True):
    """Settings under one name. Raises SettingsError for a value that its field does not allow."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_sections(self)
        for key in keys_of(type(self)):
            value = getattr(self, key.field)
            if (
                value is not key.default
            ):  # a look at the type of a setting takes longer than most compactions need for one
                check_value(key, value)


class Key(Struct, frozen=True):
    """One setting: its dotted name, its field in the section, its type and its default."""

    name: str
    field: str
    type: Any
    default: Any

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        return ", or ".join(_in_words(kind) for kind in self.kinds)

    @property
    def private(self) -> bool:
        """True if a value may hold a secret, so that no error shows it."""
        return any(
            (kind.extra or {}).get("private")
            for kind in self.kinds
            if isinstance(kind, msgspec.inspect.Metadata)
        )

    @property
    def structured(self) -> bool:
        """True if a value is a list or a mapping, which is written as JSON in text."""
        return any(
            isinstance(kind.type, msgspec.inspect.VarTupleType | msgspec.inspect.DictType)
            for kind in self.kinds
            if isinstance(kind, msgspec.inspect.Metadata)
        )

    @property
    def kinds(self) -> tuple[msgspec.inspect.Type, ...]:
        """The types that a value may have; more than one if it may be null."""
        info = msgspec.inspect.type_info(self.type)
        return info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)


@cache
def keys_of(section: type[SettingsSection]) -> tuple[Key, ...]:
    """Returns the settings of a section, without those of sections inside it."""
    return tuple(
        Key(f"{section.section}.{field.name}", field.name, field.type, field.default)
        for field in msgspec.structs.fields(section)
        if not _is_section(field.type)
    )


def sections_of(group: type[Struct]) -> Iterator[type[SettingsSection]]:
    """Yields the sections in a group of settings, each followed by the sections inside it."""
    for _, section in _sections_in(group):
        yield section
        yield from sections_of(section)


def check_sections(group: Struct) -> None:
    """Raises SettingsError if a section holds something else."""
    for name, section in _sections_in(type(group)):
        value = getattr(group, name)
        if not isinstance(value, section):
            raise SettingsError(
                f"{section.section} is a {type(value).__name__}; allowed: {section.__name__} "
                "(settings_from reads plain mappings)"
            )


@cache
def _sections_in(group: type[Struct]) -> tuple[tuple[str, type[SettingsSection]], ...]:
    """Returns the fields of a group that hold a section."""
    return tuple(
        (field.name, field.type) for field in msgspec.structs.fields(group) if _is_section(field.type)
    )


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, SettingsSection)


def check_value(key: Key, value: Any) -> Any:
    """Returns the value as its field's type. Raises SettingsError that names the key, the value and the allowed values."""
    try:
        # Inside of lists and mappings of a file every scalar is text.
        return msgspec.convert(value, key.type, strict=not key.structured)
    except msgspec.ValidationError as error:
        where = f" ({error})" if key.structured else ""  # says the place and the type, never the value
        raise SettingsError(f"{key.name} {_quote(key, value)}{where}; allowed: {key.allowed}") from None


def _quote(key: Key, value: Any) -> str:
    if key.private:
        return "has a value that is not allowed (not shown: it may hold a secret)"
    text = repr(value)
    return f"is {text if len(text) <= 60 else text[:59] + '…'}"


def _in_words(kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.Metadata(extra=dict(extra)):
            return str(extra["allowed"])
        case msgspec.inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            noun = "a whole number" if isinstance(kind, msgspec.inspect.IntType) else "a number"
            return noun + _range_in_words(kind)
        case msgspec.inspect.NoneType():
            return "null"
        case _:
            return "true or false"


def _range_in_words(kind: msgspec.inspect.IntType | msgspec.inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge:,} to {kind.le:,}"
    if kind.gt is not None:
        return f" above {kind.gt:,} and at most {kind.le:,}"
    return f" of at least {kind.ge:,}"
