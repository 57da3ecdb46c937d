"""The settings: every section with its keys, their types, defaults and ranges, as frozen values."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.settings.keys import SettingsSection, check_sections

__all__ = [
    "AgentSettings",
    "AuxiliaryCompressionSettings",
    "AuxiliarySettings",
    "CompressionSettings",
    "ContextSettings",
    "GatewaySettings",
    "GatewayUpstream",
    "McpServer",
    "ModelSettings",
    "PluginsSettings",
    "PressureSettings",
    "RecallSettings",
    "RedactionSettings",
    "Settings",
    "StoreSettings",
    "ToolsSettings",
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


class CompressionSettings(SettingsSection, frozen=True, kw_only=True):
    """Settings of when and how far a conversation is compacted."""

    section: ClassVar[str] = "compression"

    enabled: bool = True
    threshold: Share = 0.50
    target_ratio: Annotated[float, Meta(ge=0.10, le=0.80)] = 0.20
    protect_last_n: Annotated[int, Meta(ge=1)] = 20
    protect_first_n: Annotated[int, Meta(ge=0)] = 3
    summary_budget: Literal["flat", "scaled"] = "flat"
    importance: Literal["learned", "rule"] = "learned"
    system_note: bool = False
    summary_model: Name | None = None
    hygiene_threshold: Share = 0.85
    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 3


class ContextSettings(SettingsSection, frozen=True, kw_only=True):
    """The active engine, and how it weighs the price of a rewrite."""

    section: ClassVar[str] = "context"

    engine: Name = "compressor"
    economics: Literal["off", "gated", "on"] = "gated"


class ModelSettings(SettingsSection, frozen=True, kw_only=True):
    """The model that people talk to, how to reach it, and facts about it that cannot be detected."""

    section: ClassVar[str] = "model"

    name: Name | None = None
    provider: Name | None = None
    base_url: HTTPAddress | None = None
    api_key_env: VariableName | None = None
    context_length: WindowTokens | None = None
    cache_ttl: Literal["5m", "1h", "off"] = "5m"
    pictures: bool | None = None

    def takes_pictures(self, model: str) -> bool | None:
        """Returns the setting `pictures` for a model; None if it is not set, or set for another model by `name`."""
        return self.pictures if self.name in (None, model) else None

    def window_of(self, model: str) -> int | None:
        """Returns the setting `context_length` for a model; None if it is not set, or set for another model by `name`."""
        return self.context_length if self.name in (None, model) else None


class AuxiliaryCompressionSettings(SettingsSection, frozen=True, kw_only=True):
    """The model that writes summaries when `auxiliary.mode` is `custom`. `timeout` is in seconds."""

    section: ClassVar[str] = "auxiliary.compression"

    provider: Name | None = None
    model: Name | None = None
    base_url: HTTPAddress | None = None
    api_key_env: VariableName | None = None
    timeout: Annotated[float, Meta(gt=0, le=3_600)] = 120.0
    context_length: WindowTokens | None = None


class AuxiliarySettings(SettingsSection, frozen=True, kw_only=True):
    """The model that serves side tasks."""

    section: ClassVar[str] = "auxiliary"

    mode: Literal["auto", "same-as-main", "custom"] = "auto"
    compression: AuxiliaryCompressionSettings = msgspec.field(default_factory=AuxiliaryCompressionSettings)


class ToolsSettings(SettingsSection, frozen=True, kw_only=True):
    """Limits of tool output: larger results are stored, and a preview enters the context."""

    section: ClassVar[str] = "tools"

    result_chars: Annotated[int, Meta(ge=1_000, le=100_000_000)] = 100_000
    turn_chars: Annotated[int, Meta(ge=1_000, le=100_000_000)] = 200_000
    preview_chars: Annotated[int, Meta(ge=100, le=100_000)] = 1_500


class PressureSettings(SettingsSection, frozen=True, kw_only=True):
    """The pressure levels at which people are told: `log` and `warn` as shares of the threshold, `emergency` of the window."""

    section: ClassVar[str] = "pressure"

    log: Share = 0.65
    warn: Share = 0.85
    emergency: Share = 0.95


class RedactionSettings(SettingsSection, frozen=True, kw_only=True):
    """The detector of secrets beside our own rules, which always run."""

    section: ClassVar[str] = "redaction"

    detector: Literal["own", "kingfisher"] = "own"


class RecallSettings(SettingsSection, frozen=True, kw_only=True):
    """Search by words, or by words and meaning; and whether an agent may look into its person's other conversations."""

    section: ClassVar[str] = "recall"

    semantic: bool = False
    other_conversations: bool = False


class StoreSettings(SettingsSection, frozen=True, kw_only=True):
    """The store of sessions and its retention; null means the default file, and for ever."""

    section: ClassVar[str] = "store"

    url: StoreAddress | None = None
    retention_days: Annotated[int, Meta(ge=1, le=36_500)] | None = None


class PluginsSettings(SettingsSection, frozen=True, kw_only=True):
    """The folder of third-party engines; null means the default folder."""

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


class AgentSettings(SettingsSection, frozen=True, kw_only=True):
    """The agent's permissions, the secrets that its commands get, its MCP servers, and whether it may compact by itself."""

    section: ClassVar[str] = "agent"

    compact_tool: bool = False

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
    remember: bool = True


class GatewayUpstream(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An API behind the gateway: its address, the models it serves (patterns such as `gpt-*`), and whose key it gets.

    Without `api_key_env` the caller's own credential passes through. `fallbacks` name other upstreams to ask,
    in their order, if this one does not answer. `dialects` are those it speaks.
    """

    base_url: HTTPAddress
    models: tuple[Name, ...] = ("*",)
    dialects: tuple[Literal["chat", "responses", "anthropic"], ...] = ("chat", "responses", "anthropic")
    api_key_env: VariableName | None = None
    fallbacks: tuple[ServerName, ...] = ()

    def __repr__(self) -> str:
        return "GatewayUpstream()"  # an address may hold a secret


class HttpEndpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool behind HTTP: arguments are sent as JSON by POST, and the answer's text is the result.

    `parameters` is the JSON schema of the arguments, `headers` maps the names of headers to those of the variables that
    hold their values. One that only reads (`reads_only`) needs no approval.
    """

    url: HTTPAddress
    description: Name
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    headers: dict[str, VariableName] = msgspec.field(default_factory=dict)
    timeout: Annotated[float, Meta(gt=0, le=3_600)] = 30.0
    reads_only: bool = False

    def __repr__(self) -> str:
        return "HttpEndpoint()"  # an address may hold a secret


class HostedTool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools of hosted conversations: those of an MCP server, or one behind HTTP."""

    mcp: McpServer | None = None
    http: HttpEndpoint | None = None

    def __post_init__(self) -> None:
        if (self.mcp is None) == (self.http is None):
            raise ValueError("a tool of the gateway has mcp or http, and not both")


class GatewaySettings(SettingsSection, frozen=True, kw_only=True):
    """The gateway: where it listens, the APIs behind it, what it may keep, and its limits."""

    section: ClassVar[str] = "gateway"

    host: Name = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8_787
    upstreams: (
        Annotated[
            dict[ServerName, GatewayUpstream],
            Meta(
                extra={
                    "allowed": "names, each with base_url (and models, dialects, api_key_env, fallbacks)",
                    "private": True,
                }
            ),
        ]
        | None
    ) = None
    allowed_hosts: (
        Annotated[tuple[Name, ...], Meta(extra={"allowed": "a list of names that requests may have as Host"})]
        | None
    ) = None
    store: Literal["full", "digests", "off"] = "full"
    summarise: Annotated[
        str,
        Meta(
            pattern=r"\A(extractive|same|https?://\S+)\Z",
            extra={"allowed": "extractive, same, or the address of a model"},
        ),
    ] = "extractive"
    compaction: Literal["ours", "provider", "ours-then-provider"] = "ours"
    seal_key_file: Name | None = None
    answer_client_compactions: bool = False
    recall: bool = False
    require_keys: bool = False
    models: (
        Annotated[tuple[Name, ...], Meta(extra={"allowed": "a list of names or patterns such as gpt-*"})]
        | None
    ) = None
    requests_per_minute: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    tokens_per_day: Annotated[int, Meta(ge=1, le=1_000_000_000_000)] | None = None
    requests_at_once: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    max_requests: Annotated[int, Meta(ge=1, le=100_000)] = 2_048
    request_log: bool = True
    open_metrics: bool = False
    dashboard: bool = True
    otel: bool = False
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    processes: Annotated[int, Meta(ge=1, le=64)] = 1
    memory_mb: Annotated[int, Meta(ge=16, le=65_536)] = 256
    max_body_mb: Annotated[int, Meta(ge=1, le=1_024)] = 64
    connect_seconds: Annotated[float, Meta(gt=0, le=600)] = 10.0
    idle_seconds: Annotated[float, Meta(gt=0, le=3_600)] = 600.0
    drain_seconds: Annotated[float, Meta(gt=0, le=3_600)] = 30.0
    retries: Annotated[int, Meta(ge=0, le=10)] = 1
    while_busy: Literal["wait", "steer"] = "wait"
    turn_wait_seconds: Annotated[float, Meta(gt=0, le=3_600)] = 120.0
    hygiene_notice: Name | None = None
    tools: (
        Annotated[
            dict[ServerName, HostedTool],
            Meta(extra={"allowed": "names, each with mcp or http", "private": True}),
        ]
        | None
    ) = None
    allow: (
        Annotated[tuple[Name, ...], Meta(extra={"allowed": "a list of rules such as tickets__list*"})] | None
    ) = None
    approval_seconds: Annotated[float, Meta(gt=0, le=86_400)] = 300.0
    memory: bool = False


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
    gateway: GatewaySettings = msgspec.field(default_factory=GatewaySettings)

    def __post_init__(self) -> None:
        check_sections(self)
