"""`fetch_url`: the text behind a web address."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from penstock.agent.tools.readable import extract_text
from penstock.errors import ToolFailure
from penstock.loop.approvals import Access, Permission
from penstock.loop.text_files import looks_binary, size_in_words
from penstock.loop.tools import OwnTool, ToolContext, ToolOutcome, fail, refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import aiohttp
    import yarl
    from aiohttp.abc import AbstractResolver, ResolveResult

    from penstock.loop.approvals import Decision

__all__ = ["FetchUrl", "PinnedAddresses", "is_public"]


_MOST_BYTES = 4 << 20
_SECONDS = 30.0
_REDIRECTS = 5
_ERROR_CHARS = 2_000  # of what comes with a status that says no
_TEXTS = ("text/", "application/json", "application/xml", "application/javascript", "application/x-ndjson")
_HEADERS = {"User-Agent": "penstock", "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1"}


class FetchArguments(msgspec.Struct, frozen=True):
    """Arguments of `fetch_url`."""

    url: Annotated[str, Meta(description="http or https")]


class FetchUrl(OwnTool[FetchArguments]):
    """Fetches public addresses freely; those of this machine and its network only with approval.

    A name is looked up once, its addresses are judged, and the request goes to just these; each redirect is judged anew.
    No cookies, no credentials, no proxy.
    """

    name = "fetch_url"
    description = "Fetch a web page or text file by http or https. HTML becomes readable text."
    most_chars = 40_000
    arguments = FetchArguments

    async def act(self, wanted: FetchArguments, context: ToolContext) -> ToolOutcome:
        """Follows redirects, and reads the page."""
        with _foreign_errors(wanted.url):
            async with _session() as (session, pins):
                url = _address(wanted.url)
                origins: set[yarl.URL] = set()  # that were asked for: their addresses are pinned
                for _ in range(_REDIRECTS + 1):
                    if url.origin() not in origins:
                        decision = await self._ask_approval(url, pins, context)
                        if not decision.allowed:
                            return refuse(decision)
                        origins.add(url.origin())
                    async with session.get(url, allow_redirects=False) as response:
                        onward = _find_redirect(response)
                        if onward is None:
                            return await _outcome(response)
                        url = onward
        raise ToolFailure(f"{wanted.url} redirects more than {_REDIRECTS} times")

    async def _ask_approval(self, url: yarl.URL, pins: PinnedAddresses, context: ToolContext) -> Decision:
        """Returns the decision on a request's destination, and the addresses that it may go to."""
        host = url.host or ""
        async with asyncio.timeout(_SECONDS):
            addresses = await pins.look_up(host, url.port or 80)
        private = [address for address in addresses if not is_public(address)]
        why = f"{private[0]} is on this machine or in its network" if private else ""
        asked = Permission(
            tool=self.name, access=Access.READ, subject=str(url.origin()), detail=str(url), why=why
        )
        return await context.approve(asked)


def _address(text: str) -> yarl.URL:
    """Returns the address, if its kind is allowed. Raises ToolFailure."""
    import yarl  # noqa: PLC0415 - only a fetch needs it

    try:
        url = yarl.URL(text.strip())
    except ValueError as error:
        raise ToolFailure(f"{text} is not an address: {error}") from None
    return _check_url(url)


def _check_url(url: yarl.URL) -> yarl.URL:
    if url.scheme not in {"http", "https"} or not url.host:
        raise ToolFailure(
            f"{url} is not fetched: only http:// and https:// addresses are; read_file reads files"
        )
    if url.user or url.password:
        raise ToolFailure("the address contains a user name or password; leave them out")
    return url


def _find_redirect(response: aiohttp.ClientResponse) -> yarl.URL | None:
    """Returns the target of a redirect; None for any other response."""
    location = response.headers.get("Location")
    if response.status not in {301, 302, 303, 307, 308} or not location:
        return None
    import yarl  # noqa: PLC0415 - as above

    try:
        return _check_url(response.url.join(yarl.URL(location)))
    except ValueError as error:
        raise ToolFailure(f"{response.url} redirects to something that is not an address: {error}") from None


async def _outcome(response: aiohttp.ClientResponse) -> ToolOutcome:
    kind = response.content_type
    body, whole = await _body(response)
    if not _is_text(kind, body):
        raise ToolFailure(
            f"{response.url} is {kind} of {size_in_words(len(body))}{'' if whole else ' or more'}, which is not text"
        )
    text = body.decode(_charset(response, body), errors="replace")
    if "html" in kind or (kind == "text/plain" and text.lstrip()[:9].lower() == "<!doctype"):
        text = extract_text(text, str(response.url))
    if response.status >= 400:
        said = f"{response.url} answered {response.status} {response.reason or ''}".rstrip()
        return fail(f"{said}\n{text[:_ERROR_CHARS]}".rstrip(), summary=said)
    note = "" if whole else f"\n[more than {size_in_words(_MOST_BYTES)}: the rest was not fetched]"
    about = f"{response.status}, {kind}, {len(text):,} characters"
    return ToolOutcome(f"[{response.url}: {about}]\n{text}{note}", summary=about)


async def _body(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """Returns the body up to the limit, and whether that is all of it."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        body += chunk
        if len(body) > _MOST_BYTES:
            return bytes(body[:_MOST_BYTES]), False
    return bytes(body), True


def _is_text(kind: str, body: bytes) -> bool:
    named = kind.startswith(_TEXTS) or kind.endswith(("+json", "+xml"))
    return (named or kind == "application/octet-stream") and not looks_binary(body)


def _charset(response: aiohttp.ClientResponse, body: bytes) -> str:
    named = response.charset or ("utf-8-sig" if body.startswith(b"\xef\xbb\xbf") else "utf-8")
    try:
        "".encode(named)
    except LookupError:
        return "utf-8"
    return named


@contextlib.asynccontextmanager
async def _session() -> AsyncIterator[tuple[aiohttp.ClientSession, PinnedAddresses]]:
    import aiohttp  # noqa: PLC0415 - only a fetch needs it

    pins = PinnedAddresses()
    connector = aiohttp.TCPConnector(resolver=pins.resolver(), force_close=True)
    async with aiohttp.ClientSession(
        connector=connector,
        headers=_HEADERS,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(
            total=_SECONDS
        ),  # of one request: a person who is asked has all the time
    ) as session:
        yield session, pins


@contextlib.contextmanager
def _foreign_errors(url: str) -> Iterator[None]:
    """Raises ToolFailure for errors of the network and its library."""
    import aiohttp  # noqa: PLC0415 - as above

    try:
        yield
    except TimeoutError:
        raise ToolFailure(f"{url} did not answer within {_SECONDS:g} s") from None
    except socket.gaierror as error:
        raise ToolFailure(f"the host of {url} was not found: {error.strerror}") from None
    except (aiohttp.ClientError, UnicodeError) as error:
        raise ToolFailure(f"{url} could not be fetched: {str(error) or type(error).__name__}") from None


# Which addresses are public, and requests that go nowhere but to the addresses that were judged.


def is_public(address: str) -> bool:
    """Returns True for addresses of the internet: not of this machine, its network, or anything reserved."""
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
    """The addresses of the hosts that were looked up. No host is looked up twice, since the second answer could differ."""

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    async def look_up(self, host: str, port: int) -> list[str]:
        """Returns the addresses of a host. Raises socket.gaierror."""
        if host not in self._known:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._known[host] = list(dict.fromkeys(str(address[0]) for *_, address in found))
        return self._known[host]

    def resolver(self) -> AbstractResolver:
        """For aiohttp: answers from what was looked up, and nothing else."""
        from aiohttp.abc import AbstractResolver  # noqa: PLC0415 - only a fetch needs it

        pins = self._known

        class Pinned(AbstractResolver):
            async def resolve(
                self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
            ) -> list[ResolveResult]:
                if host not in pins:
                    raise OSError(f"{host} was not looked up")
                found = [_resolve_result(host, address, port) for address in pins[host]]
                return [one for one in found if family in {socket.AF_UNSPEC, one["family"]}]

            async def close(self) -> None:
                """There is nothing to close."""

        return Pinned()


def _resolve_result(host: str, address: str, port: int) -> ResolveResult:
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
        "proto": socket.IPPROTO_TCP,
        "flags": socket.AI_NUMERICHOST,
    }
