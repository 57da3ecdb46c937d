"""The APIs behind the gateway: which one a request goes to, at what address and with whose key, and which models they have."""

from __future__ import annotations

import asyncio
import contextlib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from penstock.config import SecretText, read_secret
from penstock.conversation.wire import encode_wire, parse_json
from penstock.errors import ProviderError, SettingsError
from penstock.gateway.event_streams import read_whole
from penstock.gateway.headers import REQUEST_ID
from penstock.providers.address import Address, read_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.gateway.callers import Caller
    from penstock.gateway.relay import Relay, RelayRequest
    from penstock.gateway.upstream_client import ArrivingAnswer
    from penstock.settings import GatewaySettings

__all__ = ["Upstream", "Upstreams", "list_models", "read_upstreams"]

_ALL_DIALECTS: Final = ("chat", "responses", "anthropic")
_ALL_MODELS: Final = ("*",)
_KEPT_URLS: Final = 256
_LISTING_BYTES: Final = 16 << 20
_LISTING_SECONDS: Final = 30.0  # from its first byte on: the others' models wait for it


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """One API. Without a `key` the caller's own credential passes through."""

    name: str
    address: Address
    models: tuple[str, ...] = _ALL_MODELS
    dialects: tuple[str, ...] = _ALL_DIALECTS
    key: SecretText | None = None
    fallbacks: tuple[str, ...] = ()

    def serves(self, dialect: str | None, model: str) -> bool:
        """Returns True where it speaks the dialect (None: any) and has the model (empty: any)."""
        return (dialect is None or dialect in self.dialects) and (
            not model or any(fnmatchcase(model, pattern) for pattern in self.models)
        )

    def auth_headers(self, dialect: str | None) -> dict[str, str]:
        """Returns the headers with its own key, as the dialect wants it; none where the caller's passes through."""
        if self.key is None:
            return {}
        key = self.key.reveal()
        return {"x-api-key": key} if dialect == "anthropic" else {"authorization": f"Bearer {key}"}


class Upstreams:
    """All upstreams, in the order of the settings."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self._all = {upstream.name: upstream for upstream in upstreams}
        self._urls: dict[tuple[str, str, str], URL] = {}
        self.need_models = len(self._all) > 1 or any(one.models != _ALL_MODELS for one in upstreams)
        """True where the model of a request decides about where it goes."""

    def __iter__(self) -> Iterator[Upstream]:
        return iter(self._all.values())

    def choose(self, dialect: str | None, model: str) -> tuple[Upstream, ...]:
        """Returns the first upstream that serves the model, then its fallbacks; nothing where none does."""
        for upstream in self._all.values():
            if upstream.serves(dialect, model):
                others = (self._all[name] for name in upstream.fallbacks)
                return (
                    upstream,
                    *(one for one in others if dialect is None or dialect in one.dialects),
                )
        return ()

    def choose_for_other(self, dialect: str | None, model: str) -> tuple[Upstream, ...]:
        """Returns where a request goes that has no messages, and that may name no model: to the caller's own kind of API.

        The caller's key is most likely for that one. There is always one.
        """
        dialects = (dialect,) if dialect is not None else ("chat", "responses")
        wanted = [(one, name) for name in ((model, "") if model else ("",)) for one in (*dialects, None)]
        return next(found for found in (self.choose(*one) for one in wanted) if found)

    def url(self, upstream: Upstream, path: str, query: str) -> URL:
        """Returns the address of a route, as the request wrote it. Those of routes that come often are kept."""
        key = (upstream.name, path, query)
        url = self._urls.get(key)
        if url is None:
            address = upstream.address.url(path)
            if query:
                address += f"{'&' if '?' in address else '?'}{query}"
            url = URL(address, encoded=True)
            if len(self._urls) >= _KEPT_URLS:
                self._urls.clear()
            self._urls[key] = url
        return url


def read_upstreams(
    settings: GatewaySettings, url: str | None = None, environ: Mapping[str, str] | None = None
) -> Upstreams:
    """Returns the upstreams of the settings; with `url`, that API alone.

    Raises SettingsError where there is none, an address cannot be used, a key is not set, or a fallback is unknown.
    """
    if url is not None:
        return Upstreams([Upstream(name="upstream", address=read_address(url))])
    given = settings.upstreams or {}
    if not given:
        raise SettingsError(
            "no upstream: give the API to send requests to, as in penstock serve --upstream https://api.openai.com/v1, "
            "or write gateway.upstreams into the settings file"
        )
    found: list[Upstream] = []
    for name, one in given.items():
        unknown = [other for other in one.fallbacks if other not in given]
        if unknown:
            raise SettingsError(
                f"gateway.upstreams: {name} falls back to {unknown[0]}, which is not among them; there are "
                f"{', '.join(given)}"
            )
        address = read_address(one.base_url)
        found.append(
            Upstream(
                name=name,
                address=address,
                models=one.models,
                dialects=one.dialects,
                key=_read_key(name, one.api_key_env, address, environ) if one.api_key_env else None,
                fallbacks=one.fallbacks,
            )
        )
    return Upstreams(found)


def _read_key(name: str, variable: str, address: Address, environ: Mapping[str, str] | None) -> SecretText:
    key = read_secret(variable, environ)
    if key is None:
        raise SettingsError(
            f"gateway.upstreams: {variable} is not set; set it to the key for {name} ({address.hostname})"
        )
    if not (address.encrypted or address.loopback):
        raise SettingsError(
            f"gateway.upstreams: {name} is asked over plain http, so anyone on the network path can read the key in "
            f"{variable}; use https"
        )
    return key


async def list_models(
    relay: Relay, upstreams: Upstreams, asked: RelayRequest, caller: Caller
) -> web.Response:
    """Returns the models of all upstreams that the caller may use. Raises ProviderError where no upstream answers.

    The caller's own credential goes to the upstream that `asked` is for, and to no other host.
    """
    entries: dict[str, Any] = {}
    problem: ProviderError | None = None
    for upstream, found in await asyncio.gather(*(_ask(relay, one, asked) for one in upstreams)):
        if isinstance(found, ProviderError):
            problem = found
            continue
        for entry in found:
            name = entry.get("id")
            if isinstance(name, str) and upstream.serves(None, name) and caller.allows(name):
                entries.setdefault(name, entry)
    if not entries and problem is not None:
        raise problem
    asked.served.status = 200
    listing: dict[str, Any] = {"object": "list", "data": list(entries.values())}
    if asked.dialect == "anthropic":
        names: list[str | None] = [*entries] or [None]
        listing = {"data": listing["data"], "has_more": False, "first_id": names[0], "last_id": names[-1]}
    headers = {"content-type": "application/json", REQUEST_ID: asked.served.id}
    return web.Response(body=encode_wire(listing), headers=headers)


async def _ask(
    relay: Relay, upstream: Upstream, asked: RelayRequest
) -> tuple[Upstream, list[dict[str, Any]] | ProviderError]:
    try:
        answer = await relay.send_to(upstream, asked)
    except ProviderError as error:
        return upstream, error
    with contextlib.closing(answer):
        return upstream, await _read_entries(answer)


async def _read_entries(answer: ArrivingAnswer) -> list[dict[str, Any]]:
    """Returns the entries of a listing; none for an answer that is none."""
    try:
        async with asyncio.timeout(_LISTING_SECONDS):
            listing = parse_json(await read_whole(answer, _LISTING_BYTES)) if answer.status == 200 else None
    except (ValueError, aiohttp.ClientError, OSError, TimeoutError):
        return []
    entries = listing.get("data") if isinstance(listing, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
