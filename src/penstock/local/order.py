"""The messages between `LocalServer` and its child, one line of JSON each way."""

from __future__ import annotations

import msgspec

__all__ = ["Order", "Serving"]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The model to serve. Port 0 is any free one."""

    path: str
    name: str
    context_tokens: int
    answer_tokens: int
    threads: int
    port: int = 0


class Serving(msgspec.Struct, frozen=True):
    """The model is loaded and answers at this address."""

    address: str
