"""A handoff alone: one text for hosts that can only forget messages and insert a text in their place.

    text = penstock.handoff(messages, tokens=4_000)

Nothing stays beside it, so it holds more than the handoff of a compacted list: the last request in full, and the
most telling lines of unanswered results. It carries the mark of a handoff, so that a later
compaction recognises it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.conversation import mark
from penstock.conversation.handles import AFTER, numbers_after
from penstock.conversation.message import count_leading_system
from penstock.conversation.speakers import last_request
from penstock.engine.compress import CompressRequest, new_notebook, open_messages, read_settings
from penstock.errors import SettingsError, TargetTooSmall
from penstock.writing.extractive import ExtractiveWriter
from penstock.writing.importance import importance_named
from penstock.writing.writer import HandoffAims, HandoffMaterial, Surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.settings import Settings

__all__ = ["handoff"]

_LEAST_TOKENS = 100


def handoff(
    messages: Sequence[Any],
    *,
    tokens: int,
    model: str | None = None,
    focus: str | None = None,
    dialect: str = "auto",
    settings: Settings | Mapping[str, Any] | None = None,
) -> str:
    """Returns one text of at most `tokens` tokens from which an agent can continue without the messages.

    `model` names the tokenizer to count with, `focus` a topic to keep in more detail. The text is the same every
    time, and no model is asked. It is empty if the messages say nothing.

    Raises InputError for anything but a conversation, TargetTooSmall below 100 tokens, SettingsError for a wrong
    setting; all are PenstockError.
    """
    given: Any = tokens
    if not isinstance(given, int) or isinstance(given, bool):
        raise SettingsError(f"tokens is {given!r}; give a whole number of tokens")
    if tokens < _LEAST_TOKENS:
        raise TargetTooSmall(
            f"a handoff of {tokens:,} tokens says nothing; give at least {_LEAST_TOKENS}",
            target_tokens=tokens,
            parts={},
        )
    request = CompressRequest(model=model, focus=focus, dialect=dialect, settings=read_settings(settings))
    book = new_notebook(model, request.settings)
    transcript = open_messages(messages, request, book).transcript
    writer = ExtractiveWriter(
        HandoffMaterial(
            transcript,
            transcript.landmarks.calls,
            book.tokenizer,
            book.redactor,
            handoff_tokens=tokens,
            aims=HandoffAims(
                importance=importance_named(request.settings.compression.importance),
                request_share=0.25,
                fresh_share=0.35,
                sections_from_tokens=200,
            ),
        )
    )
    attributes = {AFTER: numbers_after([], max(transcript.numbers, default=0))}

    def wrap(text: str) -> str:
        return mark.wrap(f"{writer.note}\n{text}", attributes)

    system = frozenset(
        range(count_leading_system(transcript.messages))
    )  # the host keeps its own instructions
    beside = Surroundings(
        request=last_request(transcript.messages),
        kept=system,
        kept_verbatim=system,
        shown_texts=(),
        focus=focus or "",
    )
    written = writer.write(tokens, lambda text: book.tokenizer.count(wrap(text)), beside)
    return wrap(written.text) if written.text else ""
