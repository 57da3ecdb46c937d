"""The headers that concern both ends of an exchange: what of a request goes upstream, and what of an answer comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from multidict import CIMultiDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import MultiMapping

__all__ = [
    "CREDENTIALS",
    "LONGEST_LINE_BYTES",
    "OWN",
    "REQUEST_ID",
    "copy_answer_headers",
    "copy_request_headers",
    "write_head",
]

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_SENT: Final = _HOP_BY_HOP | {"host", "content-length", "expect"}
_NOT_RETURNED: Final = _HOP_BY_HOP | {"content-length"}
CREDENTIALS: Final = frozenset({"authorization", "x-api-key", "api-key"})
_PACKING: Final = frozenset({"accept-encoding", "content-encoding"})
OWN: Final = "x-penstock-"
LONGEST_LINE_BYTES: Final = 32 << 10  # of a head: a header, or the line of the request
REQUEST_ID: Final = f"{OWN}request-id"  # names the request in our log


def _copy(headers: MultiMapping[str], without: frozenset[str]) -> CIMultiDict[str]:
    """Returns the headers that concern both ends: without those for one connection, and those that are ours."""
    copy = CIMultiDict(headers)
    for names in headers.getall("connection", ()):
        for name in names.split(","):
            copy.popall(name.strip(), None)
    for name in without:
        if name in copy:
            del copy[name]
    if OWN in "\n".join(copy).lower():
        for name in [name for name in copy if name[: len(OWN)].lower() == OWN]:
            copy.popall(name, None)
    return copy


def copy_request_headers(
    headers: MultiMapping[str], *, credential: bool, reads_answer: bool
) -> CIMultiDict[str]:
    """Returns the headers of a request that go upstream.

    Without `credential`, those that hold one stay here. Where the answer is read, it is asked for unpacked.
    """
    without = _NOT_SENT if credential else _NOT_SENT | CREDENTIALS
    copy = _copy(headers, without | _PACKING if reads_answer else without)
    if reads_answer:
        copy["Accept-Encoding"] = "identity"
    return copy


def copy_answer_headers(headers: MultiMapping[str]) -> CIMultiDict[str]:
    """Returns the headers of an answer that go to the caller."""
    return _copy(headers, _NOT_RETURNED)


def write_head(line: str, headers: MultiMapping[str], more: Mapping[str, str] = {}) -> bytes:
    """Returns the head of a request or an answer with these headers: the bytes of each value as they came.

    Raises ValueError for a value that would be more than one header.
    """
    lines = [line]
    lines += [f"{name}: {value}" for name, value in more.items()]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += ("", "")
    head = "\r\n".join(lines)
    breaks = len(lines) - 1
    if head.count("\r") != breaks or head.count("\n") != breaks or "\0" in head:
        raise ValueError("a header holds a control character")
    return head.encode("utf-8", "surrogateescape")  # bytes that are no UTF-8 were read in this way
