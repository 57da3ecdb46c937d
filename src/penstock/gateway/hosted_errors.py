"""Errors of the API of hosted conversations: one shape for all of them, each with the next step.

{"error": {"type": "unknown_session", "message": "…", "next_step": "…"}}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import (
    EngineFailure,
    InputError,
    PenstockError,
    SettingsError,
    StoreConflict,
    StoreError,
    StoreUnavailable,
    TargetTooSmall,
    UnknownHandle,
    UnknownSession,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.gateway.callers import Refused

__all__ = ["HostedError", "explain_failure", "explain_refusal"]


class HostedError(Exception):
    """A request that cannot be served: its status, a type for programs, and for people what is wrong and what to do."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        next_step: str,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.next_step = next_step
        self.headers = dict(headers or {})

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON."""
        return {"error": {"type": self.kind, "message": str(self), "next_step": self.next_step}}


_REFUSALS = {
    401: ("unauthorised", "send one of the gateway's keys as a bearer token or in x-penstock-key"),
    403: ("forbidden", "ask the operator of the gateway"),
    408: ("too_slow", "send the body without pauses"),
    413: ("too_large", "send less at once"),
    415: ("unsupported_encoding", "send the body plain"),
    429: ("limited", "wait as long as Retry-After says, then send it again"),
}


def explain_refusal(refused: Refused) -> HostedError:
    """Returns the error for a request that the gateway did not let in."""
    kind, step = _REFUSALS.get(refused.status, ("refused", "correct the request"))
    return HostedError(refused.status, kind, str(refused), step, headers=refused.headers)


_AGAIN = "send it again, with the same idempotency key"
# By type of error: status, type, message (None: the error's own), next step. The first that fits counts.
_FAILURES: tuple[tuple[type[PenstockError], int, str, str | None, str], ...] = (
    (
        UnknownSession,
        404,
        "unknown_session",
        "there is no such session",
        "GET /sessions lists those of this key",
    ),
    (UnknownHandle, 404, "unknown_message", None, "GET /sessions/{id}/messages lists them"),
    (StoreConflict, 409, "conflict", "the conversation went on elsewhere meanwhile", _AGAIN),
    (StoreUnavailable, 503, "store_unavailable", "the store does not answer at the moment", _AGAIN),
    (StoreError, 500, "store_failed", "the store failed", "the operator can run penstock doctor"),
    (InputError, 400, "invalid_request", None, "correct the request"),
    (SettingsError, 400, "invalid_request", None, "correct the request"),
    (EngineFailure, 409, "not_compacted", None, "the conversation goes on as it is"),
    (TargetTooSmall, 409, "not_compacted", None, "the conversation goes on as it is"),
)


def explain_failure(error: PenstockError) -> HostedError:
    """Returns the error for what went wrong while a request was served."""
    for kind, status, name, message, step in _FAILURES:
        if isinstance(error, kind):
            headers = {"retry-after": "1"} if step is _AGAIN else None
            return HostedError(status, name, message or str(error), step, headers=headers)
    return HostedError(500, "failed", str(error), "try again; the gateway's log says more")
