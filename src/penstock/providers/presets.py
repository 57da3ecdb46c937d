"""Providers by name: the dialect, the address and the variable of the key. One table, and nothing else knows one.

Installed packages add to it: an entry point in the group `penstock.providers` names a `Preset`.
"""

from __future__ import annotations

import msgspec

from penstock._installed import list_points
from penstock.errors import SettingsError

__all__ = ["PRESETS", "PROVIDER_GROUP", "Preset", "find_preset", "list_installed_providers"]

PROVIDER_GROUP = "penstock.providers"


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A provider by name: its dialect, its address and the variable of its key.

    Without a `base_url` the caller has to give one. `key_optional` says that the server usually runs without a
    key; then `key_variable` is used if it is set. `server` is as in Endpoint.
    """

    dialect: str = "chat"
    base_url: str = ""
    key_variable: str = ""
    key_header: str = ""
    key_optional: bool = False
    server: str = ""


def _local(port: int, key_variable: str = "", server: str = "") -> Preset:
    return Preset(
        base_url=f"http://localhost:{port}/v1", key_variable=key_variable, key_optional=True, server=server
    )


PRESETS = {
    "openai": Preset(base_url="https://api.openai.com/v1", key_variable="OPENAI_API_KEY"),
    "responses": Preset(
        dialect="responses", base_url="https://api.openai.com/v1", key_variable="OPENAI_API_KEY"
    ),
    "anthropic": Preset(
        dialect="anthropic", base_url="https://api.anthropic.com/v1", key_variable="ANTHROPIC_API_KEY"
    ),
    "openrouter": Preset(base_url="https://openrouter.ai/api/v1", key_variable="OPENROUTER_API_KEY"),
    "groq": Preset(base_url="https://api.groq.com/openai/v1", key_variable="GROQ_API_KEY"),
    "mistral": Preset(base_url="https://api.mistral.ai/v1", key_variable="MISTRAL_API_KEY"),
    "deepseek": Preset(base_url="https://api.deepseek.com/v1", key_variable="DEEPSEEK_API_KEY"),
    "gemini": Preset(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai", key_variable="GEMINI_API_KEY"
    ),
    "xai": Preset(base_url="https://api.x.ai/v1", key_variable="XAI_API_KEY"),
    "together": Preset(base_url="https://api.together.xyz/v1", key_variable="TOGETHER_API_KEY"),
    "fireworks": Preset(base_url="https://api.fireworks.ai/inference/v1", key_variable="FIREWORKS_API_KEY"),
    "cerebras": Preset(base_url="https://api.cerebras.ai/v1", key_variable="CEREBRAS_API_KEY"),
    "dashscope": Preset(
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1", key_variable="DASHSCOPE_API_KEY"
    ),
    "azure": Preset(key_variable="AZURE_OPENAI_API_KEY", key_header="api-key"),
    "bedrock": Preset(key_variable="AWS_BEARER_TOKEN_BEDROCK"),
    "ollama": _local(11_434, "OLLAMA_API_KEY", "ollama"),
    "lmstudio": _local(1_234, "LM_API_TOKEN", "lmstudio"),
    "llamacpp": _local(8_080, "LLAMA_API_KEY", "llamacpp"),
    "vllm": _local(8_000, "VLLM_API_KEY"),
}


def list_installed_providers() -> list[str]:
    """Returns the names of providers from installed packages, except names that are ours."""
    return sorted({point.name for point in list_points(PROVIDER_GROUP)} - PRESETS.keys())


def find_preset(provider: str) -> Preset | None:
    """Returns the provider of that name, ours or an installed one, or None. Raises SettingsError.

    A name of ours always means ours: a package cannot send a known provider's key elsewhere.
    """
    if provider in PRESETS:
        return PRESETS[provider]
    for point in list_points(PROVIDER_GROUP):
        if point.name != provider:
            continue
        try:
            found = point.load()
        except (ImportError, AttributeError) as error:
            raise SettingsError(
                f"the provider {provider!r} cannot be loaded from {point.value}: {error}"
            ) from error
        if not isinstance(found, Preset):
            raise SettingsError(f"{point.value} is a {type(found).__name__}; a provider is a Preset")
        return found
    return None
