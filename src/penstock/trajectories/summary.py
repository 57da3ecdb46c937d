"""The turn that stands for others: a handoff of a few hundred tokens, with or without a model's words.

It is written as every other handoff is, mark included, so that a model meets in training what it will meet at work.
What is different is what counts as important: a trajectory has its future beside it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from penstock.conversation import mark
from penstock.conversation.message import Role, Summary, Text
from penstock.conversation.pairing import calls_by_id
from penstock.measure.weigh import MESSAGE_FRAME
from penstock.trajectories.needs import needed_values, texts_of
from penstock.trajectories.sieve import sifted
from penstock.writing.extractive import Extractor, Surroundings
from penstock.writing.importance import Live, score_values
from penstock.writing.index import Index
from penstock.writing.reading import Reader, Reading
from penstock.writing.sections import HandoffAims
from penstock.writing.transcript import AFTER, MODEL, WRITTEN_BY, Transcript, number_messages, numbers_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.conversation.message import Message
    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor
    from penstock.trajectories.compress import Trajectory
    from penstock.trajectories.span import Span
    from penstock.writing.verify import Checked
    from penstock.writing.vocabulary import Vocabulary

__all__ = ["PROSE_SHARE", "SummaryWriter"]

NOTE = "Earlier turns, for reference. Answer what comes after."
PROSE_SHARE = 0.6  # of a summary: what a model may write; the rest is facts, in the words of the turns
_REQUEST_SHARE = 0.25  # of a summary may quote the request that the turns after it serve
_NEEDED = 0.7  # of a value's weight is whether it is needed later
_LIVE_CHARACTERS = 400
_HISTORY_TURNS = 24  # the newest turns that give way: what was done in them is told
_UNREAD = Reading((), (), _facts=())


class SummaryWriter:
    """Writes the summary of one span of a trajectory."""

    def __init__(self, trajectory: Trajectory, span: Span, tokenizer: Tokenizer, redactor: Redactor) -> None:
        self._given = trajectory
        self._span = span
        self._tokenizer = tokenizer
        self._redactor = redactor
        self.gone = span.gone()
        self.request = _last_request(trajectory.messages, span.end)

    @cached_property
    def needed(self) -> list[str]:
        """The values that later turns use and that only turns of the span tell."""
        messages = self._given.messages
        after = [messages[place] for place in self._span.after(len(messages))]
        return needed_values(messages[: self._span.start], after)

    @cached_property
    def transcript(self) -> Transcript:
        """The trajectory as a writer of handoffs reads it: of the turns that give way what is worth reading, and nothing
        of those that stay.
        """
        given = self._given
        reader = Reader(self._redactor)
        gone = [given.messages[place] for place in self.gone]
        readings = [_UNREAD] * len(given.messages)
        for place, reading in zip(
            self.gone, reader.read(sifted(gone, self.needed, self._redactor)), strict=True
        ):
            readings[place] = reading
        index = Index(reader.vocabulary)
        index.extend(readings)
        return Transcript(
            dialect=given.dialect,
            messages=tuple(given.messages),
            origins=tuple(given.turns),
            tokens=tuple(given.tokens),
            numbers=number_messages(given.messages),
            readings=tuple(readings),
            index=index,
            legal=tuple(given.legal),
            handoffs=tuple(place for place in self.gone if readings[place].is_handoff),
        )

    def write(self, budget: int, prose: Checked | None = None) -> str:
        """The text of the turn, in its mark, of at most `budget` tokens with the frame of a turn.

        `prose` is what a model wrote, checked.
        """
        transcript = self.transcript
        extractor = Extractor(
            transcript, calls_by_id(transcript.messages), self._tokenizer, self._redactor, prose, self._aims()
        )
        behind = [transcript.numbers[place] for place in self._span.after(len(transcript.messages))]
        newest = max(transcript.numbers, default=0)
        attributes = {AFTER: numbers_after([number for number in behind if number], newest)}
        if extractor.has_prose:
            attributes[WRITTEN_BY] = MODEL

        def wrap(text: str) -> str:
            return mark.wrap(f"{NOTE}\n{text}".rstrip(), attributes)

        def measure(text: str) -> int:
            return MESSAGE_FRAME + self._tokenizer.count(wrap(text))

        kept = frozenset(range(len(transcript.messages))).difference(self.gone)
        beside = Surroundings(request=self.request, stays=kept, whole=kept, visible=())
        return wrap(extractor.write(budget, measure, beside).text)

    def _aims(self) -> HandoffAims:
        messages = self.transcript.messages
        return HandoffAims(
            importance=self._weigh_values,
            people_share=0.0,
            request_share=_REQUEST_SHARE,
            prose_share=PROSE_SHARE,
            sections_from_tokens=0,
            facts_of_newest=len(messages) - self.gone[-_HISTORY_TURNS:][0],
            known=_ValuesTold(self.transcript.index.vocabulary, [messages[place] for place in self.gone]),
        )

    def _weigh_values(self, index: Index, live: Live) -> NDArray[np.float32]:
        """Weighs a value by whether it is needed later and, for the rest, as in any conversation.

        What later turns are about is known by the values that they use, so of `live` the request is enough. What gives
        way is near or far alike: recency is left out by giving every turn the same place.
        """
        request = Live(request=live.request[:_LIVE_CHARACTERS], work="")
        weights = score_values(index, request, np.zeros(max(1, index.messages), np.int64))
        weights *= np.float32(1.0 - _NEEDED)
        weights[index.vocabulary.numbers_of(self.needed)] += np.float32(_NEEDED)
        return weights


class _ValuesTold:
    """The values of the turns that give way. Most of these were not read closely, so their texts are looked through for
    a value that the vocabulary does not have, the newest first: entries of sections are mostly from those.
    """

    def __init__(self, vocabulary: Vocabulary, messages: Sequence[Message]) -> None:
        self._vocabulary = vocabulary
        self._messages = messages

    @cached_property
    def _texts(self) -> list[str]:
        return [text for message in reversed(self._messages) for text in texts_of(message)]

    def __contains__(self, value: object) -> bool:
        return value in self._vocabulary or any(str(value) in text for text in self._texts)


def _last_request(messages: Sequence[Message], end: int) -> int | None:
    """The place of the last request before `end`; None where there is none, or where a handoff stands in its place."""
    for place in range(end - 1, -1, -1):
        parts = messages[place].parts
        if messages[place].role is Role.USER and any(isinstance(part, Text) for part in parts):
            return None if any(isinstance(part, Summary) for part in parts) else place
    return None
