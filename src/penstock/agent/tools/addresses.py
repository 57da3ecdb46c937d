"""Which addresses are public, and requests that go nowhere but to the addresses that were judged."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver, ResolveResult

__all__ = ["PinnedAddresses", "is_public"]


def is_public(address: str) -> bool:
    """Whether it is an address of the internet: not of this machine, its network, or anything reserved."""
    known = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(known, ipaddress.IPv6Address):
        inner = known.ipv4_mapped or known.sixtofour or _nat64(known)
        if inner is not None:
            known = inner
    return known.is_global and not known.is_multicast and not known.is_reserved


def _nat64(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in ipaddress.ip_network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


class PinnedAddresses:
    """Names that were looked up, each with its addresses. A second look-up, which could give others, never happens."""

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    async def look_up(self, host: str, port: int) -> list[str]:
        """The addresses of a host. Raises socket.gaierror."""
        if host not in self._known:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._known[host] = list(dict.fromkeys(str(address[0]) for *_, address in found))
        return self._known[host]

    def resolver(self) -> AbstractResolver:
        """For aiohttp: knows what was looked up, and nothing else."""
        from aiohttp.abc import AbstractResolver  # noqa: PLC0415 - only a fetch needs it

        pins = self._known

        class Pinned(AbstractResolver):
            async def resolve(
                self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
            ) -> list[ResolveResult]:
                if host not in pins:
                    raise OSError(f"{host} was not looked up")
                found = [_resolved(host, address, port) for address in pins[host]]
                return [one for one in found if family in {socket.AF_UNSPEC, one["family"]}]

            async def close(self) -> None:
                """There is nothing to close."""

        return Pinned()


def _resolved(host: str, address: str, port: int) -> ResolveResult:
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
        "proto": socket.IPPROTO_TCP,
        "flags": socket.AI_NUMERICHOST,
    }
