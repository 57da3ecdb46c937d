"""The seam between planning and writing: the planner is handed a writer and asks it for a handoff that fits.

`writing.extractive` quotes excerpts of the conversation; the engine `lossless` brings a second writer, whose
handoffs are outlines of a tree. The planner knows neither: it decides where the handoff stands and how long
it may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.writing.transcript import FACTS_OF

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    from penstock.conversation.message import ToolCall
    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor
    from penstock.writing.importance import Live
    from penstock.writing.reading import Index
    from penstock.writing.transcript import Transcript
    from penstock.writing.verify import Checked

    Importance: TypeAlias = Callable[[Index, Live, NDArray[np.int64]], NDArray[np.float32]]
    MakeWriter: TypeAlias = Callable[["HandoffMaterial"], "HandoffWriter"]

__all__ = [
    "PROSE_SHARE",
    "HandoffAims",
    "HandoffMaterial",
    "HandoffText",
    "HandoffWriter",
    "Surroundings",
    "measure_scarcity",
]


_AMPLE_SHARE = 0.1  # of a conversation's tokens
PROSE_SHARE = 0.35  # of a handoff: what a model may write; the rest is facts, in the conversation's own words


def measure_scarcity(room: int, conversation: int) -> float:
    """Returns how little the room is against a conversation of so many tokens: 0 from a tenth of it on, 1 for none at all."""
    return max(0.0, 1.0 - room / (_AMPLE_SHARE * max(1, conversation)))


class HandoffAims(msgspec.Struct, frozen=True, eq=False):
    """The aims that a handoff gives its room to. The defaults are for a live conversation, whose future is unknown."""

    importance: Importance | None = None
    """Scores how likely each value is needed; None for `score_values`."""
    people_share: float = 0.22
    """The part of the room for excerpts that goes to what people said last, before coverage decides."""
    own_share: float = 0.15
    """The part of that room that goes to what the agent said last; more where the room is scarce."""
    request_share: float = 0.0
    """The part of the handoff that quotes the live request, where it gives way itself. With 0 it stands behind the
    handoff, and is quoted in short, with the goal."""
    fresh_share: float = 0.0
    """The part of the handoff for results that nobody has answered yet, where they give way themselves."""
    prose_share: float = PROSE_SHARE
    """The part of the handoff that a model may write."""
    sections_from_tokens: int = 700
    """A smaller handoff has no room for sections beside constraints and context."""
    facts_of_newest: int = FACTS_OF
    """The number of messages at the end whose actions, errors and decisions are told."""
    known: Container[str] | None = None
    """The values that entries may hold; None for those of the index, which then holds all messages whole."""


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
    aims: HandoffAims = HandoffAims()


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
    fill: bool = False
    """True where room is left and no message that is out would fit it whole: then plain sentences are quoted, too."""


class HandoffText(msgspec.Struct, frozen=True, eq=False):
    """A handoff as a writer wrote it. The text is empty where not even one line fitted."""

    text: str = ""
    quoted: Mapping[int, int] = {}
    """The number of excerpts of each message that stand in it, by position."""
    struck: int = 0
    """The number of values that were struck because the conversation does not hold them."""
    struck_texts: tuple[str, ...] = ()
    """Those of a model's words, for people: values, and entries that went as a whole."""


class HandoffWriter(Protocol):
    """Writes the handoff of one conversation."""

    @property
    def mark_version(self) -> int:
        """The version in the mark around the handoff, by which a later compaction knows how to read it."""

    @property
    def names_runs(self) -> bool:
        """True if the handoff lists the numbers that it stands for: then gaps between them cost it room."""

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
