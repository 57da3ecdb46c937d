"""The seam between planning and writing: the planner is handed a writer and asks it for a handoff that fits.

`writing.extractive` quotes excerpts of the conversation; the engine `lossless` brings a second writer, whose
handoffs are outlines of a tree. The planner knows neither: it decides where the handoff stands and how long
it may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from penstock.conversation.message import ToolCall
    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor
    from penstock.writing.transcript import Transcript
    from penstock.writing.verify import Checked

    MakeWriter: TypeAlias = Callable[["HandoffMaterial"], "HandoffWriter"]

__all__ = ["HandoffMaterial", "HandoffText", "HandoffWriter", "Surroundings"]


class HandoffMaterial(msgspec.Struct, frozen=True, eq=False):
    """Everything that a writer draws on."""

    transcript: Transcript
    calls: Mapping[str, ToolCall]
    """The calls of the conversation by id: they name the results that answer them."""
    tokenizer: Tokenizer
    redactor: Redactor
    handoff_tokens: int
    """The most that a handoff of this compaction may take, before anything else is known."""
    prose: Checked | None = None
    """The words of a model, already checked against the conversation."""


class Surroundings(msgspec.Struct, frozen=True, eq=False):
    """The rest of the view, as the writer must know it: a handoff need not repeat what stands beside it."""

    request: int | None
    """The position of the live request."""
    kept: frozenset[int]
    """Positions of all messages that stay, whole or rewritten."""
    kept_verbatim: frozenset[int]
    """Positions of those that stay as they came."""
    shown_texts: Sequence[str]
    """The stubs and clipped texts of those that stay otherwise."""
    focus: str = ""
    """A topic to keep in more detail; empty for none."""


class HandoffText(msgspec.Struct, frozen=True, eq=False):
    """A handoff as a writer wrote it. The text is empty where not even one line fitted."""

    text: str = ""
    quoted: Mapping[int, int] = {}
    """The number of excerpts of each message that stand in it, by position."""
    struck: int = 0
    """The number of values that were struck because the conversation does not hold them."""


class HandoffWriter(Protocol):
    """Writes the handoff of one conversation."""

    @property
    def mark_version(self) -> int:
        """The version in the mark around the handoff, by which a later compaction knows how to read it."""

    @property
    def handles(self) -> str:
        """The kinds of handles in the handoff, in words, as in "recall reads m-numbers"."""

    @property
    def note(self) -> str:
        """The sentence at the top of a handoff, which tells the model what it reads."""

    @property
    def has_prose(self) -> bool:
        """True if a model wrote sections of the handoff, now or in the one that it follows."""

    def write(self, budget: int, measure: Callable[[str], int], beside: Surroundings) -> HandoffText:
        """Returns a handoff of at most `budget` tokens as `measure` counts them."""
