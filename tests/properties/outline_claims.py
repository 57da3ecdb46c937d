"""What the tests of outlines share."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from penstock.conversation.handles import numbers_in
from penstock.lossless import writer as outlines
from penstock.lossless.engine import LosslessEngine
from penstock.lossless.outline import NodeTexts, parse_outline

OUTLINED = partial(outlines.OutlineWriter, known=NodeTexts(lambda key: None))


@pytest.fixture(autouse=True, scope="module")
def short_segments():
    """Segments of some hundred tokens, so that conversations that tests can afford have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outlines, "_SIZES", (150, 300, 600))
        patch.setattr(outlines, "_TOKENS_PER_SEGMENT", 60)
        yield


class DialectEngine(LosslessEngine):
    """An engine for a conversation of this dialect: short ones could be of several."""

    def __init__(self, name):
        super().__init__()
        self.dialect = name

    def _request(self, focus, target):
        return msgspec.structs.replace(super()._request(focus, target), dialect=self.dialect)


def outline(seen):
    return [node for summary in seen.summaries for node in parse_outline(summary.text)]


def numbers(node):
    return list(numbers_in(node.runs))
