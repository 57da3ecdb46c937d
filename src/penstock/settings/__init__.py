"""The settings: every key with its type, default and range, as frozen values.

Pure: nothing here reads a file or the environment (`penstock.config` does). A section checks itself when it
is made, whichever way it is made, so a `Settings` that exists is a valid one.
"""

from penstock.settings.keys import Key
from penstock.settings.reading import find_most_alike, known_keys, read_values, settings_from
from penstock.settings.sections import (
    AgentSettings,
    AuxiliaryCompressionSettings,
    AuxiliarySettings,
    CompressionSettings,
    ContextSettings,
    GatewaySettings,
    GatewayUpstream,
    HostedTool,
    HttpEndpoint,
    McpServer,
    ModelSettings,
    PluginsSettings,
    PressureSettings,
    RecallSettings,
    RedactionSettings,
    Settings,
    StoreSettings,
    ToolsSettings,
)

__all__ = [
    "AgentSettings",
    "AuxiliaryCompressionSettings",
    "AuxiliarySettings",
    "CompressionSettings",
    "ContextSettings",
    "GatewaySettings",
    "GatewayUpstream",
    "HostedTool",
    "HttpEndpoint",
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
    "find_most_alike",
    "known_keys",
    "read_values",
    "settings_from",
]
