"""Turns failed requests into ProviderError: one table for network failures, one place for the rest.

No text made here holds a header, a key, or more of an address than its host and port.
"""

from __future__ import annotations

import functools
import os
import ssl
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import ErrorClass, ErrorKind, ProviderError
from penstock.providers.retries import CERTIFICATE

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["cut_off", "foreign_errors_of", "malformed_answer", "network_failure"]


class _Row(NamedTuple):
    """Exceptions of others, and what they mean here."""

    types: tuple[type[BaseException], ...]
    kind: ErrorKind
    code: str
    text: str


@functools.cache
def _table() -> tuple[_Row, ...]:
    """From the special to the general: the first row that fits is taken."""
    import aiohttp  # noqa: PLC0415 - by the time that this is read, a request has imported it

    return (
        _Row(
            (aiohttp.ConnectionTimeoutError,),
            ErrorKind.TIMEOUT,
            "connect_timeout",
            "no connection within the time allowed",
        ),
        _Row((TimeoutError,), ErrorKind.TIMEOUT, "timeout", "no answer within the time allowed"),
        _Row(
            (aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError),
            ErrorKind.NETWORK,
            CERTIFICATE,
            "its certificate cannot be trusted; check the address and the certificates of this machine",
        ),
        _Row((aiohttp.ClientSSLError, ssl.SSLError), ErrorKind.NETWORK, "tls", "no secure connection"),
        _Row(
            (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError),
            ErrorKind.BAD_REQUEST,
            "invalid_address",
            "the address cannot be used; check the base URL",
        ),
        _Row(
            (aiohttp.ClientConnectorDNSError,),
            ErrorKind.NETWORK,
            "dns",
            "its name is not known here; check the address",
        ),
        _Row(
            (aiohttp.ClientConnectorError,),
            ErrorKind.NETWORK,
            "connect",
            "could not connect; check the address, and that the server runs",
        ),
        _Row(
            (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError),
            ErrorKind.NETWORK,
            "cut_off",
            "the connection was closed before the answer was complete",
        ),
        _Row(
            (aiohttp.ClientResponseError,), ErrorKind.NETWORK, "protocol", "what came back is not valid HTTP"
        ),
        _Row((aiohttp.ClientError, OSError), ErrorKind.NETWORK, "connection", "the connection failed"),
    )


def network_failure(error: BaseException, host: str) -> ProviderError | None:
    """Returns the failure that an exception of the HTTP client means, or None if it means none."""
    for row in _table():
        if isinstance(error, row.types):
            number = getattr(error, "errno", None)
            reason = f" ({os.strerror(number)})" if isinstance(number, int) and number > 0 else ""
            text = f"{host}: {row.text}{reason}"
            return ProviderError(text, failure=ErrorClass(kind=row.kind, code=row.code, message=text))
    return None


class foreign_errors_of:  # noqa: N801 - reads as a statement: with foreign_errors_of(host)
    """Maps the errors that the HTTP client raises in its block. An error that the table does not know passes through."""

    def __init__(self, host: str) -> None:
        self._host = host

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        mapped = network_failure(error, self._host) if error is not None else None
        if mapped is not None:
            # Not chained: the client's own exceptions may carry the headers of the request.
            raise mapped from None


def malformed_answer(why: str, *, status: int | None = None) -> ProviderError:
    """Returns a failure for an answer that cannot be read. It is not repeated: the same server says the same again."""
    text = f"the provider's answer cannot be read: {why}"
    failure = ErrorClass(kind=ErrorKind.BAD_REQUEST, status=status, code="malformed_answer", message=text)
    return ProviderError(text, failure=failure)


def cut_off() -> ProviderError:
    """Returns a failure for a stream that ended in order, but before its answer did."""
    text = "the stream ended before the answer was complete"
    return ProviderError(text, failure=ErrorClass(kind=ErrorKind.NETWORK, code="cut_off", message=text))
