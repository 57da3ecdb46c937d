"""In what servers that speak the same dialect differ. Pure.

A server is asked as its host suggests; if it then refuses a field by name, it is asked once more without it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ErrorKind

if TYPE_CHECKING:
    from penstock.errors import ErrorClass

__all__ = ["Quirks", "adapt_quirks", "quirks_of"]

_OPENAI_HOSTS = ("api.openai.com", ".api.openai.com", ".openai.azure.com")
_NO_STREAM_OPTIONS = ("api.mistral.ai",)

_NAMES_FIELD = {
    "cap_field": re.compile(r"\bmax_(?:completion_)?tokens\b"),
    "stream_usage": re.compile(r"\bstream_options\b|\binclude_usage\b"),
    "encrypted_reasoning": re.compile(r"encrypted[ _]content", re.IGNORECASE),
}


class Quirks(msgspec.Struct, frozen=True, kw_only=True):
    """The request fields that a server expects where servers of one dialect differ.

    `cap_field` is what Chat Completions calls the most tokens of an answer. `stream_usage` asks a stream for
    its usage. `encrypted_reasoning` asks Responses for reasoning that can be sent back, which OpenAI gives.
    """

    cap_field: str = "max_tokens"
    stream_usage: bool = True
    encrypted_reasoning: bool = False


def quirks_of(host: str) -> Quirks:
    """Returns the known quirks of a host, given without its port."""
    openai = any(host == name or (name.startswith(".") and host.endswith(name)) for name in _OPENAI_HOSTS)
    return Quirks(
        cap_field="max_completion_tokens" if openai else "max_tokens",
        stream_usage=host not in _NO_STREAM_OPTIONS,
        encrypted_reasoning=openai,
    )


def adapt_quirks(quirks: Quirks, sent: frozenset[str], failure: ErrorClass) -> Quirks | None:
    """Returns the quirks to ask with instead, or None if the refusal is about something else.

    `sent` are the names of the fields that were sent.
    """
    if failure.kind is not ErrorKind.BAD_REQUEST or failure.status not in {400, 422}:
        return None
    text = failure.message
    if quirks.cap_field in sent and _NAMES_FIELD["cap_field"].search(text):
        other = "max_tokens" if quirks.cap_field == "max_completion_tokens" else "max_completion_tokens"
        return msgspec.structs.replace(quirks, cap_field=other)
    if "stream_options" in sent and _NAMES_FIELD["stream_usage"].search(text):
        return msgspec.structs.replace(quirks, stream_usage=False)
    if "include" in sent and quirks.encrypted_reasoning and _NAMES_FIELD["encrypted_reasoning"].search(text):
        return msgspec.structs.replace(quirks, encrypted_reasoning=False)
    return None
