"""The history of an engine without a store: all that its compactions took in, and the present view."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.conversation.handles import name_message
from penstock.conversation.view import Handoff
from penstock.errors import InputError
from penstock.recall.memory_history import MemoryHistory
from penstock.recall.tools import Budget, answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.engine.compress import Compressed
    from penstock.recall.embedding import Embedder
    from penstock.recall.history import History
    from penstock.writing.notebook import Notebook

__all__ = ["Recollection"]


class Recollection:
    """The history of one conversation, as an engine comes to know it.

    A turn costs only a note of when its messages came. A compaction passes on what it read; a
    tool call reads the view of the moment, and nothing in it twice. `around` wraps our history in another one, for an
    engine that has more to read than messages and summaries. With an embedder, it also finds what is
    near in meaning.
    """

    def __init__(
        self,
        notebook: Notebook,
        around: Callable[[History], History] | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self.notebook = notebook
        self._around = around
        self._history = MemoryHistory(
            count=notebook.tokenizer.count, redact=notebook.redactor.redact, embedder=embedder
        )
        self._list: Sequence[Any] = ()
        self._came: list[float | None] = []  # when each message of the list was first seen, where it is known
        self._compactions = 0
        self._covered: frozenset[int] = frozenset()
        self._newest = ""  # the handle of the summary that stands in the view

    @property
    def history(self) -> History:
        """The history that the tools search and read."""
        return self._history if self._around is None else self._around(self._history)

    def see(self, messages: Sequence[Any]) -> None:
        """Takes note of the list of a turn.

        Messages beyond the last list came now; the times of any other list are unknown.
        """
        known = len(self._came)
        if 0 < known <= len(messages) and self._list[known - 1] == messages[known - 1]:
            self._came += [time.time()] * (len(messages) - known)
        else:
            self._came = [None] * len(messages)
        self._list = messages

    def take(self, result: Compressed) -> None:
        """Takes in a compaction: every message that it was given stays to be found and read."""
        if result.plan is None:
            return
        read, times = result.read, dict(enumerate(self._came))
        for (number, message), source in zip(read, result.read_sources, strict=True):
            self._history.add(number, message, None if source is None else times.get(source))
        self._compactions += 1
        for piece in result.plan.pieces:
            if isinstance(piece, Handoff):
                gone = frozenset(read[place][0] for place in piece.covers)
                self._covered = (self._covered | gone) - {0}
                self._newest = f"s{self._compactions}"
                inside = [name_message(number) for number in sorted(self._covered)]
                self._history.add_summary(self._newest, piece.summary.text, inside, at=time.time())
        self._came = [None] * len(result.messages)
        self._list = result.messages

    def answer(self, name: str, args: Any, messages: Any, budget_tokens: int) -> str:
        """Returns the answer of a recall tool, for an agent that sees `messages`, or the last list."""
        if isinstance(messages, (list, tuple)):
            self.see(messages)
        self._look()
        redact, count = self.notebook.redactor.redact, self.notebook.tokenizer.count
        return answer(self.history, name, args, Budget(count, budget_tokens), redact=redact)

    def _look(self) -> None:
        if not self._list:
            return
        try:
            with self.notebook.kept_whole():
                opened = self.notebook.open(self._list)
        except InputError:  # a list that cannot be sent is no view; the one before stays
            return
        standing = (self._newest,) if opened.transcript.handoffs else ()
        self._history.see(opened.transcript.messages, opened.transcript.numbers, standing)
