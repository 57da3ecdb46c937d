"""Base URLs as people give them, and the addresses of routes under them. Pure."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

import msgspec

from penstock.errors import SettingsError

__all__ = ["Address", "is_loopback", "read_address"]

_VERSION = re.compile(r"/v\d+[a-z0-9]*(?=/|$)")
_ROUTES = ("/chat/completions", "/responses", "/messages", "/models")


class Address(msgspec.Struct, frozen=True):
    """The address of an API. `base_url` ends without a slash; `query` is put behind every route."""

    base_url: str
    query: str = ""

    @property
    def hostname(self) -> str:
        """The host alone, in lower case."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def loopback(self) -> bool:
        """True if requests stay on this machine."""
        return is_loopback(self.hostname)

    @property
    def encrypted(self) -> bool:
        """True if the connection is encrypted."""
        return self.base_url.startswith("https://")

    def url(self, route: str) -> str:
        """Returns the address of a route of the API."""
        return self._with_query(self.base_url + route)

    def server_url(self, route: str) -> str:
        """Returns the address of a route that the server has beside its API, outside of `/v1`."""
        return self._with_query(_VERSION.split(self.base_url, maxsplit=1)[0] + route)

    def _with_query(self, url: str) -> str:
        if not self.query:
            return url
        return f"{url}{'&' if '?' in url else '?'}{self.query}"


def read_address(base_url: str) -> Address:
    """Returns the address that a base URL means.

    `/v1` is added where the path has no version of its own. The full address of a route is understood too, and
    then nothing is added. Raises SettingsError if it is not an address, or holds a user and password.
    """
    text = base_url.strip()
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in {"http", "https"}:
        raise SettingsError(
            "the base URL is not an address: it must look like https://host or http://localhost:8000/v1"
        )
    if parts.username is not None or parts.password is not None:
        raise SettingsError(
            f"the base URL of {host} contains a user name or password; leave them out and name the variable that holds "
            "the key (api_key_env)"
        )
    path = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
    route = next((name for name in _ROUTES if path.endswith(name)), "")
    path = path.removesuffix(route)
    if not route and not _VERSION.search(path):
        path += "/v1"
    return Address(f"{parts.scheme}://{parts.netloc.lower()}{path}", parts.query)


def is_loopback(host: str) -> bool:
    """Returns True for a name or a number of this machine that no other machine can have."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
