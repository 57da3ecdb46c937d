"""The settings: every key with its type, default and range, as frozen values.

Pure: nothing here reads a file or the environment (`penstock.config` does). A section checks itself when it
is made, whichever way it is made, so a `Settings` that exists is a valid one.

A key's dotted name is its section and its field (`compression.threshold`). What is allowed is written once,
in the field's type; the texts of errors and the parsing of text are derived from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.errors import SettingsError

__all__ = [
    "AgentSettings",
    "AuxiliaryCompressionSettings",
    "AuxiliarySettings",
    "CompressionSettings",
    "ContextSettings",
    "Key",
    "McpServer",
    "ModelSettings",
    "PluginsSettings",
    "PressureSettings",
    "RecallSettings",
    "RedactionSettings",
    "Settings",
    "StoreSettings",
    "ToolsSettings",
    "known_keys",
    "nearest",
    "read_values",
    "settings_from",
]

Share = Annotated[float, Meta(gt=0, le=1)]
WindowTokens = Annotated[int, Meta(ge=1_024, le=10_000_000)]
Name = Annotated[str, Meta(min_length=1, extra={"allowed": "text that is not empty"})]
HTTPAddress = Annotated[
    str,
    Meta(
        pattern=r"\Ahttps?://\S+\Z",
        extra={"allowed": "an address that starts with http:// or https://", "private": True},
    ),
]
# In capitals, because a key pasted here by mistake has small letters far more often than a variable's name.
VariableName = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Z_][A-Z0-9_]{0,127}\Z",
        extra={
            "allowed": "the name of an environment variable, in capitals (never the key itself)",
            "private": True,
        },
    ),
]
StoreAddress = Annotated[
    str,
    Meta(
        pattern=r"\A(sqlite://.+|postgres(ql)?://\S+|memory:)\Z",
        extra={"allowed": "sqlite:///FILE, postgresql://… or memory:", "private": True},
    ),
]


ServerName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9-]{1,32}\Z")]


class _Section(Struct, frozen=True, kw_only=True):
    """Settings under one name. Raises SettingsError for a value that its field does not allow."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _check_sections(self)
        for key in _keys_of(type(self)):
            _checked(key, getattr(self, key.field))


class CompressionSettings(_Section, frozen=True, kw_only=True):
    """When and how far a conversation is compacted."""

    section: ClassVar[str] = "compression"

    enabled: bool = True
    threshold: Share = 0.50
    target_ratio: Annotated[float, Meta(ge=0.10, le=0.80)] = 0.20
    protect_last_n: Annotated[int, Meta(ge=1)] = 20
    protect_first_n: Annotated[int, Meta(ge=0)] = 3
    summary_budget: Literal["flat", "scaled"] = "flat"
    system_note: bool = False
    summary_model: Name | None = None
    hygiene_threshold: Share = 0.85
    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 3


class ContextSettings(_Section, frozen=True, kw_only=True):
    """Which engine is active, and how it weighs the price of a rewrite."""

    section: ClassVar[str] = "context"

    engine: Name = "compressor"
    economics: Literal["off", "gated", "on"] = "gated"


class ModelSettings(_Section, frozen=True, kw_only=True):
    """What is known of the session's model beyond what is detected."""

    section: ClassVar[str] = "model"

    context_length: WindowTokens | None = None
    cache_ttl: Literal["5m", "1h", "off"] = "5m"


class AuxiliaryCompressionSettings(_Section, frozen=True, kw_only=True):
    """The model that writes summaries when `auxiliary.mode` is `custom`. `timeout` is in seconds."""

    section: ClassVar[str] = "auxiliary.compression"

    provider: Name | None = None
    model: Name | None = None
    base_url: HTTPAddress | None = None
    api_key_env: VariableName | None = None
    timeout: Annotated[float, Meta(gt=0, le=3_600)] = 120.0
    context_length: WindowTokens | None = None


class AuxiliarySettings(_Section, frozen=True, kw_only=True):
    """Which model serves side tasks."""

    section: ClassVar[str] = "auxiliary"

    mode: Literal["auto", "same-as-main", "custom"] = "auto"
    compression: AuxiliaryCompressionSettings = msgspec.field(default_factory=AuxiliaryCompressionSettings)


class ToolsSettings(_Section, frozen=True, kw_only=True):
    """How much tool output may enter the context before it is stored and previewed."""

    section: ClassVar[str] = "tools"

    result_chars: Annotated[int, Meta(ge=1_000, le=100_000_000)] = 100_000
    turn_chars: Annotated[int, Meta(ge=1_000, le=100_000_000)] = 200_000
    preview_chars: Annotated[int, Meta(ge=100, le=100_000)] = 1_500


class PressureSettings(_Section, frozen=True, kw_only=True):
    """Where people are told: `log` and `warn` as shares of the threshold, `emergency` of the window."""

    section: ClassVar[str] = "pressure"

    log: Share = 0.65
    warn: Share = 0.85
    emergency: Share = 0.95


class RedactionSettings(_Section, frozen=True, kw_only=True):
    """Who looks for secrets beside our own rules, which always do."""

    section: ClassVar[str] = "redaction"

    detector: Literal["own", "kingfisher"] = "own"


class RecallSettings(_Section, frozen=True, kw_only=True):
    """How what was said is found again: by its words, or by what it means as well."""

    section: ClassVar[str] = "recall"

    semantic: bool = False


class StoreSettings(_Section, frozen=True, kw_only=True):
    """Where sessions are kept and for how long; null means the default file, and for ever."""

    section: ClassVar[str] = "store"

    url: StoreAddress | None = None
    retention_days: Annotated[int, Meta(ge=1, le=36_500)] | None = None


class PluginsSettings(_Section, frozen=True, kw_only=True):
    """Where engines of third parties are looked for; null means the default folder."""

    section: ClassVar[str] = "plugins"

    folder: Name | None = None


class McpServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MCP server: a `command` with `args` that is started, or the `url` of one that runs.

    `env` names the variables whose values the command gets although they are secret; `headers` maps the names of HTTP
    headers to the names of the variables that hold their values.
    """

    command: Name | None = None
    args: tuple[str, ...] = ()
    env: tuple[VariableName, ...] = ()
    url: HTTPAddress | None = None
    headers: dict[str, VariableName] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has a command or a url, and not both")

    def __repr__(self) -> str:
        return (
            f"McpServer({'command' if self.command else 'url'})"  # arguments and addresses may hold a secret
        )


class AgentSettings(_Section, frozen=True, kw_only=True):
    """What the agent's tools may do without asking, which secrets its commands get, and foreign tools."""

    section: ClassVar[str] = "agent"

    allow: (
        Annotated[tuple[Name, ...], Meta(extra={"allowed": "a list of rules such as terminal(git status*)"})]
        | None
    ) = None
    pass_env: (
        Annotated[
            tuple[VariableName, ...],
            Meta(extra={"allowed": "a list of names of environment variables, in capitals", "private": True}),
        ]
        | None
    ) = None
    mcp_servers: (
        Annotated[
            dict[ServerName, McpServer],
            Meta(
                extra={
                    "allowed": "names, each with command (and args, env) or url (and headers)",
                    "private": True,
                }
            ),
        ]
        | None
    ) = None


class Settings(Struct, frozen=True, kw_only=True):
    """All settings. `Settings()` holds the defaults."""

    compression: CompressionSettings = msgspec.field(default_factory=CompressionSettings)
    context: ContextSettings = msgspec.field(default_factory=ContextSettings)
    model: ModelSettings = msgspec.field(default_factory=ModelSettings)
    auxiliary: AuxiliarySettings = msgspec.field(default_factory=AuxiliarySettings)
    tools: ToolsSettings = msgspec.field(default_factory=ToolsSettings)
    pressure: PressureSettings = msgspec.field(default_factory=PressureSettings)
    redaction: RedactionSettings = msgspec.field(default_factory=RedactionSettings)
    recall: RecallSettings = msgspec.field(default_factory=RecallSettings)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    plugins: PluginsSettings = msgspec.field(default_factory=PluginsSettings)
    agent: AgentSettings = msgspec.field(default_factory=AgentSettings)

    def __post_init__(self) -> None:
        _check_sections(self)


class Key(Struct, frozen=True):
    """One setting: its dotted name, its field in the section, its type and its default."""

    name: str
    field: str
    type: Any
    default: Any

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        return ", or ".join(_in_words(kind) for kind in self.kinds)

    @property
    def private(self) -> bool:
        """Whether a value may hold a secret, so that no error shows it."""
        return any(
            (kind.extra or {}).get("private")
            for kind in self.kinds
            if isinstance(kind, msgspec.inspect.Metadata)
        )

    @property
    def structured(self) -> bool:
        """Whether a value is a list or mapping; as text it is JSON."""
        return any(
            isinstance(kind.type, msgspec.inspect.VarTupleType | msgspec.inspect.DictType)
            for kind in self.kinds
            if isinstance(kind, msgspec.inspect.Metadata)
        )

    @property
    def kinds(self) -> tuple[msgspec.inspect.Type, ...]:
        """The types that a value may have; more than one where it may be null."""
        info = msgspec.inspect.type_info(self.type)
        return info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)


def settings_from(mapping: Mapping[str, Any]) -> Settings:
    """Settings from nested sections (`{"compression": {"threshold": 0.6}}`), dotted keys, or both.

    What is not given has its default. SettingsError for an unknown key (with the nearest known one), a key
    given twice, or a value of the wrong type or out of range.
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
    """The checked values of a nested or dotted mapping, by dotted key.

    With `texts`, a string stands for what it spells: `"0.6"` for a number, `"yes"` for a boolean, `"null"`
    (or nothing, where null is allowed) for null. Raises SettingsError as `settings_from` does.
    """
    values: dict[str, Any] = {}
    for name, value in _flat(mapping):
        if name in values:
            raise SettingsError(f"{name} is given twice; keep one of the two")
        key = known_keys()[name]
        values[name] = _checked(key, _meant(key, value, texts=texts))
    return values


@cache
def known_keys() -> Mapping[str, Key]:
    """Every setting by its dotted name, in the order of the reference."""
    return {key.name: key for section in _sections_of(Settings) for key in _keys_of(section)}


def nearest(name: str, known: Mapping[str, Any]) -> str:
    """The known name that is most like `name`, or an empty string where none is like it."""
    import difflib  # noqa: PLC0415 - only a mistake needs it

    last = name.rpartition(".")[2]
    namesakes = [candidate for candidate in known if candidate.rpartition(".")[2] == last]
    matches = difflib.get_close_matches(name, namesakes or known, n=1, cutoff=0 if namesakes else 0.5)
    return matches[0] if matches else ""


@cache
def _keys_of(section: type[_Section]) -> tuple[Key, ...]:
    return tuple(
        Key(f"{section.section}.{field.name}", field.name, field.type, field.default)
        for field in msgspec.structs.fields(section)
        if not _is_section(field.type)
    )


def _sections_of(group: type[Struct]) -> Iterator[type[_Section]]:
    """The sections in a group of settings, each followed by the sections inside it."""
    for field in msgspec.structs.fields(group):
        if _is_section(field.type):
            yield field.type
            yield from _sections_of(field.type)


def _check_sections(group: Struct) -> None:
    for field in msgspec.structs.fields(type(group)):
        value = getattr(group, field.name)
        if _is_section(field.type) and not isinstance(value, field.type):
            raise SettingsError(
                f"{field.type.section} is a {type(value).__name__}; allowed: {field.type.__name__} "
                "(settings_from reads plain mappings)"
            )


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, _Section)


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values; only known sections are entered, so depth has a bound."""
    for part, value in mapping.items():
        name = f"{prefix}{part}"
        if name in known_keys():
            yield name, value
            continue
        inside = [key for key in known_keys() if key.startswith(f"{name}.")]
        if not inside:
            raise SettingsError(f"{name} is not a setting; {_suggestion(name)}")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif value is not None and value != "":  # a section left empty in a file says nothing
            raise SettingsError(f"{name} is a section, not a setting; it holds {', '.join(inside)}")


def _suggestion(name: str) -> str:
    near = nearest(name, known_keys())
    if near:
        return f"did you mean {near}?"
    sections = dict.fromkeys(key.partition(".")[0] for key in known_keys())
    return f"the sections are {', '.join(sections)}"


def _checked(key: Key, value: Any) -> Any:
    """The value as its field's type; SettingsError with key, value and what is allowed."""
    try:
        return msgspec.convert(value, key.type)
    except msgspec.ValidationError as error:
        where = f" ({error})" if key.structured else ""  # says the place and the type, never the value
        raise SettingsError(f"{key.name} {_shown(key, value)}{where}; allowed: {key.allowed}") from None


def _shown(key: Key, value: Any) -> str:
    if key.private:
        return "has a value that is not allowed (not shown: it may hold a secret)"
    text = repr(value)
    return f"is {text if len(text) <= 60 else text[:59] + '…'}"


_YES = ("true", "yes", "on", "1")
_NO = ("false", "no", "off", "0")


def _meant(key: Key, value: Any, *, texts: bool) -> Any:
    if texts and isinstance(value, str):
        return _spelled(key, value)
    if isinstance(value, bool) and isinstance(key.kinds[0], msgspec.inspect.LiteralType):
        return "on" if value else "off"  # YAML 1.1 readers make booleans of these two words
    return value


def _spelled(key: Key, text: str) -> Any:
    """What a text spells for this key; the text itself where it spells nothing, for the check to refuse."""
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
