"""Patterns that ignore case, sooner than `re` does.

A pattern of `re` that ignores case compares letter by letter in every alternative, where one that does not skips those that
begin with another letter. So the text is lowered first. A few characters are equal to a letter without being it in capitals
(`ſ` to `s`): a text with one of them is searched as `re` does it.
"""

from __future__ import annotations

import re
from functools import cached_property

__all__ = ["CaselessPattern", "is_plain"]

# Equal to another letter for a pattern that ignores case, and still another one in lower case: dotless i and i with a dot,
# long s, and old forms of Cyrillic letters. No pattern here has Greek letters, of which there are more.
_OTHERWISE_EQUAL = re.compile("[\u0130\u0131\u017f\u1c80-\u1c88]")


class CaselessPattern:
    """A pattern in lower case that is found in any case. What it finds may have lost its capitals, and stands at its place."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def starts(self, text: str) -> bool:
        """Returns whether the text starts with it."""
        if is_plain(text):
            return self._lowered.match(text.lower()) is not None
        return self._ignoring.match(text) is not None

    def is_in(self, text: str) -> bool:
        """Returns whether it stands anywhere in the text."""
        return self.find(text) is not None

    def find(self, text: str) -> re.Match[str] | None:
        """Returns where it stands first in the text."""
        if is_plain(text):  # and as long in lower case, character by character
            return self._lowered.search(text.lower())
        return self._ignoring.search(text)

    # Each is compiled when it is first needed: mostly, only one of the two is.

    @cached_property
    def _lowered(self) -> re.Pattern[str]:
        return re.compile(self._pattern)

    @cached_property
    def _ignoring(self) -> re.Pattern[str]:
        return re.compile(self._pattern, re.IGNORECASE)


def is_plain(text: str) -> bool:
    """Returns whether a text in lower case says the same to a pattern that ignores case."""
    return text.isascii() or _OTHERWISE_EQUAL.search(text) is None
