"""Whether a handoff says only what the conversation says.

Every value in the text must be a value of the conversation. One that is not is struck and counted. What was
extracted holds none; the check stands in its way all the same, and a model's text passes through it too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.compaction.values import PHRASE, tokens_of, values_in_phrase, values_in_token

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["STRUCK", "Verified", "strike_unknown"]

STRUCK = "[struck]"
_HANDLE = re.compile(r"m\d+")
_CUT = re.compile(r"\S*…\S*")  # what we cut short says so itself


class Verified(msgspec.Struct, frozen=True):
    """The text without unknown values, and which they were."""

    text: str
    struck: tuple[str, ...] = ()


def strike_unknown(text: str, known: Container[str], *, phrases: bool = True) -> Verified:
    """The text with every value that is not known replaced; handles are ours and stay.

    Longer values go first, so that none is cut. Without `phrases`, what stands between quotes is not looked at:
    where a text was cut, its quotes no longer pair as they did.
    """
    whole = _CUT.sub(" ", text)
    found = [value for token in tokens_of(whole) for value in values_in_token(token)]
    if phrases:
        found += [value for phrase in PHRASE.findall(whole) for value in values_in_phrase(phrase)]
    unknown = {value for value in found if value not in known and not _HANDLE.fullmatch(value)}
    struck = []
    for value in sorted(unknown, key=lambda value: (-len(value), value)):
        if value in text:
            text = text.replace(value, STRUCK)
            struck.append(value)
    return Verified(text, tuple(struck))
