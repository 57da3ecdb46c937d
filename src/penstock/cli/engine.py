"""The one call of the engine.

Commands import this once their input is read: loading it takes longer than refusing a bad file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.target import target_tokens
from penstock.engine.compress import Compressed, Request, compress_document

if TYPE_CHECKING:
    import argparse

    from penstock.cli.source import Given

__all__ = ["compress_given", "compressed_bytes"]


def compress_given(given: Given, args: argparse.Namespace) -> Compressed:
    """Compress the conversation as the options say. Raises what `compress_document` raises."""
    request = Request(
        target_tokens=target_tokens(args.target_tokens, given),
        context_length=args.context_length,
        model=given.model,
        tools=given.tools,
        system=given.system,
        focus=args.focus,
        settings=given.settings,
    )
    return compress_document(given.document, request)


def compressed_bytes(given: Given, result: Compressed) -> bytes:
    """The result in the shape of the input; the input itself, byte for byte, where no message changed."""
    encoded = [item if isinstance(item, dict) else bytes(item) for item in result.messages]
    if encoded == given.document.raws:
        return given.data
    data = given.document.with_messages(encoded)
    return data + b"\n" if given.data.endswith(b"\n") and not data.endswith(b"\n") else data
