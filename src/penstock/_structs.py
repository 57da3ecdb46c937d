"""Has msgspec read the fields of Structs while one thread runs."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["read_early"]


def read_early(*kinds: Any) -> None:
    """Reads the fields of these types now, at import, as a `Decoder` of the same module does for its own.

    Otherwise msgspec reads them when a value of theirs is first decoded or converted. Two threads that do so at the same
    moment end the process: one uses what the other has read in part.
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)
