"""Which models at which endpoints get cache marks, and what people are told about it. Pure."""

from __future__ import annotations

import msgspec

from penstock.errors import SettingsError
from penstock.providers.address import read_address
from penstock.providers.cache_marks import Ttl  # noqa: TC001 - a struct's field types are read at run time
from penstock.providers.presets import PRESETS

__all__ = ["CachePlan", "caching_for"]

_ANTHROPIC_HOSTS = ("api.anthropic.com",)
_OPENROUTER_HOSTS = ("openrouter.ai",)


class CachePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Whether prompts are marked for the provider's cache, and how. As text it is a sentence for people.

    `dialect` and `ttl` are what `mark_cache` takes; with `ttl` "off" it leaves a request as it is. `why` says what
    speaks against marks, and is empty where they are on.
    """

    model: str
    route: str
    dialect: str
    ttl: Ttl
    why: str = ""

    @property
    def on(self) -> bool:
        """Whether marks are placed."""
        return self.ttl != "off"

    def __str__(self) -> str:
        if not self.on:
            return f"prompt caching: no marks for {self.model} by {self.route}, because {self.why}"
        life = {"5m": "5 minutes", "1h": "1 hour"}[self.ttl]
        return f"prompt caching: on for {self.model} by {self.route}, held for {life}"


def caching_for(model: str, base_url: str = "", provider: str = "", *, ttl: Ttl = "5m") -> CachePlan:
    """The plan for a model. `provider` is a name as `connect` takes it, `base_url` the address where one is given.

    Marks are for Claude models, on Anthropic's API and on endpoints that take them as OpenRouter does. `ttl` is the
    setting `model.cache_ttl`. An address that cannot be read is nobody's that we know.
    """
    preset = PRESETS.get(provider)
    host = _host(base_url or (preset.base_url if preset else ""))
    if _is_at(host, _ANTHROPIC_HOSTS) or provider == "anthropic":
        route, dialect = "Anthropic's API", "anthropic"
    elif _is_at(host, _OPENROUTER_HOSTS) or provider == "openrouter":
        route, dialect = "OpenRouter", "chat"
    else:
        where = provider or host or "an unknown endpoint"
        why = "it takes none (many providers cache by themselves)"
        return CachePlan(
            model=model, route=where, dialect=preset.dialect if preset else "", ttl="off", why=why
        )
    if base_url and not _is_at(host, (*_ANTHROPIC_HOSTS, *_OPENROUTER_HOSTS)):
        route = f"{route} at {host or 'an address of your own'}"
    why = _objection(model, ttl)
    return CachePlan(model=model, route=route, dialect=dialect, ttl="off" if why else ttl, why=why)


def _objection(model: str, ttl: str) -> str:
    if ttl == "off":
        return "model.cache_ttl is off"
    return "" if "claude" in model.lower() else "it is no Claude model"


def _host(base_url: str) -> str:
    if not base_url:
        return ""
    try:
        return read_address(base_url).hostname
    except SettingsError:
        return ""


def _is_at(host: str, known: tuple[str, ...]) -> bool:
    return any(host == name or host.endswith(f".{name}") for name in known)
