"""The target that was typed, as a number of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.parser import Share
from penstock.conversation.rules import repair
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import weigh

if TYPE_CHECKING:
    from penstock.cli.source import Given

__all__ = ["target_tokens"]


def target_tokens(wanted: int | Share | None, given: Given) -> int | None:
    """The target in tokens. A share is one of what a compaction counts: the mended list, without what is beside it."""
    if not isinstance(wanted, Share):
        return wanted
    document = given.document
    mended = repair(document.messages, document.dialect).messages
    total = sum(weigh(mended, tokenizer_for(given.model)))
    return max(1, int(total * wanted.of_tokens))
