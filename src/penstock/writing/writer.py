"""The seam between planning and writing: the planner is handed a writer and asks it for a handoff that fits.

`writing.extractive` quotes excerpts of the conversation; the engine `lossless` brings a second writer, whose
handoffs are outlines of a tree. The planner knows neither: it decides where the handoff stands and how long
it may be.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.writing.transcript import FACTS_OF

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
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
    "find_gaps",
    "measure_scarcity",
]


_AMPLE_SHARE = 0.1  # of a conversation's tokens
PROSE_SHARE = 0.35  # of a handoff: what a model may write; the rest is facts, in the conversation's own words


def measure_scarcity(room: int, conversation: int) -> float:
    """Returns how scarce the room is for a conversation of that many tokens: 1 for no room at all, 0 from a tenth on."""
    return max(0.0, 1.0 - room / (_AMPLE_SHARE * max(1, conversation)))


class HandoffAims(msgspec.Struct, frozen=True, eq=False):
    """The division of a handoff's room. The defaults are for a live conversation, whose future is unknown."""

    importance: Importance | None = None
    """Scores how likely each value is to be needed; None for `score_values`."""
    people_share: float = 0.22
    """The part of the room for excerpts that goes to what people said last, before coverage decides."""
    own_share: float = 0.15
    """The part of that room that goes to what the agent said last; more if the room is scarce."""
    request_share: float = 0.0
    """The part of the handoff that quotes the live request, if that gives way itself. With 0 the request follows the
    handoff, which then quotes it only briefly, with the goal."""
    fresh_share: float = 0.0
    """The part of the handoff for results that nobody has answered yet, if they give way themselves."""
    prose_share: float = PROSE_SHARE
    """The part of the handoff that a model may write."""
    sections_from_tokens: int = 700
    """A smaller handoff only has room for the sections on constraints and context."""
    facts_of_newest: int = FACTS_OF
    """The handoff tells the actions, errors and decisions of this many messages at the end."""
    known: Container[str] | None = None
    """The values that entries may hold; None for those of the index, which then must hold every message whole."""


class HandoffMaterial(msgspec.Struct, frozen=True, eq=False):
    """Everything that a writer works with."""

    transcript: Transcript
    calls: Mapping[str, ToolCall]
    """The calls of the conversation by id: they name the results that answer them."""
    tokenizer: Tokenizer
    redactor: Redactor
    handoff_tokens: int
    """The upper limit for a handoff of this compaction, as far as it is known before the layout."""
    prose: Checked | None = None
    """The words of a model, already checked against the conversation."""
    aims: HandoffAims = HandoffAims()


class Surroundings(msgspec.Struct, frozen=True, eq=False):
    """The rest of the view, which a handoff need not repeat."""

    request: int | None
    """The position of the live request."""
    kept: frozenset[int]
    """Positions of all messages that stay, whole or rewritten."""
    kept_verbatim: frozenset[int]
    """Positions of the messages that stay unchanged."""
    shown_texts: Sequence[str]
    """The stubs and clipped texts of the messages that stay in a changed form."""
    focus: str = ""
    """A topic to keep in more detail; empty for none."""
    fill: bool = False
    """True if room is left, but no left-out message fits it whole: then the handoff quotes plain sentences, too."""


def find_gaps(kept: Iterable[int], length: int) -> list[range]:
    """Returns the ranges of positions in a list of this length between those that are kept."""
    edges = [-1, *sorted(kept), length]
    return [range(before + 1, after) for before, after in pairwise(edges)]


class HandoffText(msgspec.Struct, frozen=True, eq=False):
    """A handoff as a writer wrote it. The text is empty if not even one line fitted."""

    text: str = ""
    quoted: Mapping[int, int] = {}
    """The number of excerpts that it quotes from each message, by position."""
    struck: int = 0
    """The number of values that were struck because they do not occur in the conversation."""
    struck_texts: tuple[str, ...] = ()
    """What was struck of a model's words, to show to people: values, and whole entries."""


class HandoffWriter(Protocol):
    """Writes the handoff of one conversation."""

    @property
    def mark_version(self) -> int:
        """The version in the mark around the handoff, which tells a later compaction how to read it."""

    @property
    def names_runs(self) -> bool:
        """True if the handoff lists the message numbers that it stands for: then gaps between them cost it room."""

    @property
    def handles(self) -> str:
        """The kinds of handles in the handoff, in words, as in "recall reads m-numbers"."""

    @property
    def note(self) -> str:
        """The sentence at the top of a handoff, which explains the handoff to the model."""

    @property
    def has_prose(self) -> bool:
        """True if a model wrote sections of this handoff, or of the one before it."""

    def write(self, budget: int, measure: Callable[[str], int], beside: Surroundings) -> HandoffText:
        """Returns a handoff of at most `budget` tokens, as counted by `measure`."""
