"""Takes into the memory files what a person said to remember, before the conversation that holds it is left behind.

No model is asked. A sentence counts where it is an instruction (`writing.constraints`) that says itself that it is meant
for later: "remember that …", "from now on …", "ab jetzt …", "记住…". An instruction for the task at hand ("don't touch
b.py") stays in the handoff and is no memory.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.errors import ToolFailure
from penstock.loop.memory import MemoryName, add_entry, entries_of
from penstock.writing.constraints import is_lasting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.loop.memory import MemoryFiles
    from penstock.stores.values import NewFact

__all__ = ["MemoryTaker"]

_OF_THE_PERSON = re.compile(
    r"\b(?:i|i[’'](?:m|ve|d|ll)|me|my|mine|ich|mich|mir|mein\w*|je|moi|mon|ma)\b", re.IGNORECASE
)
_WORDS = re.compile(r"\w{3,}")
_ALIKE = 0.7  # of the words: the agent has noted it itself, in other words
_LONGEST = 300  # characters of an entry
_CONSTRAINT = "constraint"


class MemoryTaker:
    """Adds lasting instructions to memory, each once. `tell` hears of each entry that was added.

    What does not fit into the files is refused once and then no more.
    """

    def __init__(self, memory: MemoryFiles, tell: Callable[[str], None]) -> None:
        self._memory = memory
        self._tell = tell
        self._seen: set[str] = set()

    def __call__(self, facts: Sequence[NewFact]) -> None:
        """Takes what must outlive these facts' messages. Raises ToolFailure where a file has no room for it."""
        lasting = [
            fact.text
            for fact in sorted(facts, key=lambda one: one.position)
            if fact.kind == _CONSTRAINT and fact.superseded is None and len(fact.text) <= _LONGEST
        ]
        refused: ToolFailure | None = None
        for text in filter(is_lasting, lasting):
            if text in self._seen:
                continue
            self._seen.add(text)
            try:
                self._take(text)
            except ToolFailure as error:
                refused = error
        if refused is not None:
            raise refused

    def _take(self, text: str) -> None:
        known = [entry.text for name in MemoryName for entry in entries_of(self._memory.text(name))]
        if any(_says(one, text) for one in known):
            return
        name = MemoryName.USER if _OF_THE_PERSON.search(text) else MemoryName.MEMORY
        self._memory.change(name, lambda before: add_entry(before, text))
        self._tell(f"{name.file_name} now holds: {text}")


def _says(entry: str, text: str) -> bool:
    """Returns whether an entry says what the text does: most of its words stand there."""
    words, held = set(_WORDS.findall(text.lower())), set(_WORDS.findall(entry.lower()))
    if not words:  # a language that is written without spaces, or very few words
        return text.strip() in entry
    return len(words & held) >= _ALIKE * len(words)
