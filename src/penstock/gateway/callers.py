"""The seam between serving and operating: which callers are admitted, and the record of each request that was served.

The server asks `Operations` before it reads a body, and hands it the record of every request that has ended:

    caller = await operations.authorise(request, served)   # raises Refused
    operations.observe(served)                              # metrics, logs, budgets
"""

from __future__ import annotations

import hashlib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol

import msgspec
from aiohttp import web

from penstock.errors import ErrorKind
from penstock.gateway.exchange import StoreMode  # noqa: TC001 - a struct's field types are read at run time
from penstock.gateway.requests import read_credential

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TypeAlias

    from penstock.errors import ErrorClass
    from penstock.gateway.exchange import WireDialect
    from penstock.measure.usage import Usage
    from penstock.web.serving import PageServer

    PlainHandler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

__all__ = ["AnyCaller", "Caller", "Operations", "Refused", "ServedRequest", "digest_owner"]


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request, and what it may do."""

    owner: str
    """Whose conversations it finds again."""
    key_id: str = ""
    """The id of one of our own keys; empty where the caller brought the upstream's."""
    models: tuple[tuple[str, ...], ...] = ()
    """Lists of patterns: a model that it may use matches one of each list."""
    store: StoreMode | None = None
    """How much of its requests may be kept; None: as the settings say."""
    brings_credential: bool = True
    """True where its own credential is for the upstream, and is passed on."""

    def allows(self, model: str) -> bool:
        """Returns True if the caller may use that model."""
        return all(any(fnmatchcase(model, pattern) for pattern in patterns) for patterns in self.models)


class Refused(Exception):
    """A request that is not served. The text goes to the caller, in its dialect."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        kind: ErrorKind = ErrorKind.BAD_REQUEST,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.headers = dict(headers or {})


class ServedRequest:
    """A request from its arrival to its end, filled in on the way. Holds no content and no credential."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "caller",
        "client_request_id",
        "complete",
        "cut_off",
        "dialect",
        "ended_at",
        "failure",
        "fallbacks",
        "first_byte_at",
        "headers",
        "id",
        "method",
        "model",
        "recoveries",
        "refused",
        "refused_key_id",
        "retries",
        "route",
        "run",
        "sent_at",
        "started_at",
        "status",
        "trace_parent",
        "upstream",
        "upstream_request_id",
        "usage",
    )

    def __init__(self, request_id: str, method: str, started_at: float) -> None:
        self.id = request_id
        self.method = method
        self.route = ""
        """As `Route.path` for those that we know, else `other`: never a caller's own words."""
        self.run = ""
        """The run of a client that it is counted for; empty for none."""
        self.dialect: WireDialect | None = None
        self.caller: Caller | None = None
        self.refused = ""
        """Why it was not let in: a reason of `keys.RefusalReason`; then there is no caller."""
        self.refused_key_id = ""
        self.model = ""
        """In the caller's own words: not to be shown as it stands."""
        self.client_request_id = ""
        """In the caller's own words, as the two below are in those of others."""
        self.trace_parent = ""
        self.upstream_request_id = ""
        self.upstream = ""
        self.status = 0
        self.started_at = started_at
        """On the event loop's clock, as the three below."""
        self.sent_at = 0.0
        """When it first went upstream."""
        self.first_byte_at = 0.0
        """When the upstream began to answer."""
        self.ended_at = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self.usage: Usage | None = None
        self.failure: ErrorClass | None = None
        self.retries = 0
        """The number of times that it was sent again, or to another upstream, because no answer came."""
        self.fallbacks = 0
        """The place of the upstream that answered among those that were asked: 0 for the first."""
        self.recoveries = 0
        """The number of times that it was made smaller because it was refused as too large."""
        self.complete = False
        """True once a stream has said that the answer is complete: then clients close the connection before its end."""
        self.cut_off = ""
        """`client` or `upstream` where one of them went away before the answer had ended; `gateway` after a fault of ours."""
        self.headers: Mapping[str, str] = {}
        """The fitter's headers of the answer: `x-penstock-tokens-before` and the others."""


class Operations(Protocol):
    """Keys, limits, metrics, logs and health: all that a server needs beside its work."""

    @property
    def routes(self) -> Mapping[str, PlainHandler]:
        """The paths that it answers itself, such as `/metrics`. They are not authorised by the server."""

    @property
    def pages(self) -> PageServer | None:
        """The dashboard, which decides itself who may look; None where there is none."""

    async def authorise(self, request: web.BaseRequest, served: ServedRequest) -> Caller:
        """Returns the caller of a request, by its headers. Raises Refused.

        A request that it let in counts as under way until it is observed.
        """

    def observe(self, served: ServedRequest) -> None:
        """Takes in a request that has ended. Raises nothing, and does not block."""

    def drain(self) -> None:
        """Notes that the server is about to stop: readiness says no from now on."""


class AnyCaller:
    """Admits every caller, each with the conversations of its own credential. Observes nothing."""

    def __init__(self) -> None:
        self.routes: Mapping[str, PlainHandler] = {"/health": _say_ok, "/ready": self._tell_readiness}
        self.pages: PageServer | None = None
        self._drains = False

    async def authorise(self, request: web.BaseRequest, served: ServedRequest) -> Caller:  # noqa: ARG002 - the protocol's
        """Returns a caller that may do everything."""
        return Caller(owner=digest_owner(read_credential(request.headers)))

    def observe(self, served: ServedRequest) -> None:
        """Does nothing."""

    def drain(self) -> None:
        """Readiness says no from now on."""
        self._drains = True

    async def _tell_readiness(self, _request: web.BaseRequest) -> web.Response:
        return web.Response(text="draining\n", status=503) if self._drains else web.Response(text="ready\n")


async def _say_ok(_request: web.BaseRequest) -> web.Response:
    return web.Response(text="ok\n")


def digest_owner(credential: str) -> str:
    """Returns the name under which the conversations of a credential are kept: it does not tell the credential."""
    return hashlib.blake2b(
        credential.encode("utf-8", "replace"), digest_size=16, person=b"penstock-owner"
    ).hexdigest()
