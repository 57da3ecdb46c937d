"""The compactor: a process that does a worker's slow tasks, so that the worker itself never keeps requests waiting.

It gets orders in frames on stdin, works on a few at a time in threads, and answers on stdout. An order holds everything
it needs, as bytes. The compactor only keeps its readings of conversations, in notebooks, so that a second compaction reads
only new messages. So it may be killed at any moment. It ends together with its worker.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from penstock.context.drafting import (
    CompletedView,
    CompletionOrder,
    DraftedView,
    DraftOrder,
    complete_view,
    draft_view,
)
from penstock.conversation.wire import encode_wire, parse_json
from penstock.engine.compress import CompressRequest, compress_list, new_notebook
from penstock.engine.handoff import handoff
from penstock.errors import InputError, PenstockError, TargetTooSmall
from penstock.gateway.child_processes import begin_child, follow_parent, log_fault
from penstock.gateway.orders import Failed, read_frame, write_frame
from penstock.gateway.running import LARGE_BYTES, give_memory_back
from penstock.measure.tokens import expect_many_counts, tokenizer_for
from penstock.settings import Settings  # noqa: TC001 - a struct's field types are read at run time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.context.drafting import BaseBytes
    from penstock.writing.notebook import Notebook

__all__ = [
    "AT_ONCE",
    "CompactorAnswer",
    "CompactorOrder",
    "CompactorService",
    "HandoffOrder",
    "TooSmall",
    "WrittenText",
    "carry_out_handoff",
    "main",
    "read_compactor_answer",
]

AT_ONCE = 4
"""The number of orders in work at a time: a short conversation does not wait for a long one."""
_OWN_BYTES = 700_000  # the size of a notebook, however short its conversation is: tables of what was counted
_GROWTH = 16  # what it takes besides, in multiples of the bytes of its messages
_SWITCH_SECONDS = 0.002  # between threads, which all have equally impatient callers
# Logging and answering come first if there are too few cores. With a lower priority, a compaction would hardly get on
# if something else kept all cores busy, and a request waits for it.
_NICENESS = 5


class HandoffOrder(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Write these messages as one handoff. Answered by `WrittenText`."""

    messages: tuple[bytes, ...]
    dialect: str
    tokens: int
    settings: Settings
    model: str | None = None
    focus: str | None = None

    def __repr__(self) -> str:
        return f"HandoffOrder({len(self.messages)} messages)"


class WrittenText(msgspec.Struct, frozen=True, tag=True):
    """A handoff; empty if the messages say nothing. As JSON, since a text may hold lone surrogates."""

    text: bytes

    def __repr__(self) -> str:
        return f"WrittenText({len(self.text):,} bytes)"


class TooSmall(msgspec.Struct, frozen=True, tag=True):
    """The target cannot be met: see `TargetTooSmall`."""

    text: str
    target_tokens: int
    parts: dict[str, int]


CompactorOrder: TypeAlias = DraftOrder | CompletionOrder | HandoffOrder
CompactorAnswer: TypeAlias = DraftedView | CompletedView | WrittenText | TooSmall | Failed

_ORDERS = msgspec.msgpack.Decoder(tuple[int, CompactorOrder])
_ANSWERS = msgspec.msgpack.Decoder(tuple[int, CompactorAnswer])


def read_compactor_answer(body: bytes) -> tuple[int, CompactorAnswer]:
    """Returns the number and the answer in a frame."""
    return _ANSWERS.decode(body)


def main() -> None:
    """Carries out orders until stdin ends, or the parent does."""
    answers = begin_child()
    if not follow_parent(signal.SIGKILL):
        return
    sys.setswitchinterval(_SWITCH_SECONDS)
    with suppress(OSError):  # a sandbox may forbid it
        os.nice(_NICENESS)
    expect_many_counts()
    _warm_up()
    service, writing = CompactorService(int(sys.argv[1])), threading.Lock()

    def carry_out(body: bytes) -> None:
        frame = memoryview(service.answer(body))
        with writing:
            while frame:
                frame = frame[os.write(answers, frame) :]
        if len(body) > LARGE_BYTES:
            del body
            give_memory_back()

    with ThreadPoolExecutor(AT_ONCE, "penstock-compaction") as threads:
        while (body := read_frame(partial(os.read, 0))) is not None:
            threads.submit(carry_out, body)
        os._exit(0)  # no one waits for running orders


def _warm_up() -> None:
    """Loads everything that the first order would wait for: tables and rules."""
    said = "line 17 of src/main.py: timeout_seconds = 30\n" * 40
    talk = [
        {"role": ("user", "assistant")[turn % 2], "content": f"step {turn}: {said}"} for turn in range(12)
    ]
    compress_list(talk, CompressRequest(target_tokens=3_000, dialect="chat"))
    gc.collect()
    gc.freeze()  # tables stay until the end, so no collection needs to look through them


class CompactorService:
    """Answers orders, from any thread. Its readings of conversations take about `most_bytes` at most."""

    def __init__(self, most_bytes: int) -> None:
        self._books = _Notebooks(most_bytes)

    def answer(self, body: bytes) -> bytearray:
        """Carries out the order in the body of a frame; returns the frame with the answer, whatever the outcome."""
        number, order = _ORDERS.decode(body)
        try:
            return write_frame(number, self._work(order))
        except TargetTooSmall as error:
            return write_frame(number, TooSmall(str(error), error.target_tokens, error.parts))
        except InputError as error:  # its text may quote a message
            return write_frame(number, Failed(f"{error.position or 'a message'} cannot be read"))
        except PenstockError as error:
            return write_frame(number, Failed(str(error)))
        except Exception as error:  # noqa: BLE001 - one order that finds a fault of ours must not end all others
            return write_frame(number, Failed(log_fault(error, order)))

    def _work(self, order: CompactorOrder) -> CompactorAnswer:
        if isinstance(order, HandoffOrder):
            return WrittenText(encode_wire(carry_out_handoff(order)))
        with self._books.hold(order) as notebook:
            if isinstance(order, DraftOrder):
                return draft_view(order, notebook)
            return complete_view(order, notebook)


def carry_out_handoff(order: HandoffOrder) -> str:
    """Returns the handoff that the order wants. Raises what `handoff` raises."""
    return handoff(
        list(map(parse_json, order.messages)),
        tokens=order.tokens,
        model=order.model,
        focus=order.focus,
        dialect=order.dialect,
        settings=order.settings,
    )


class _Book:
    """The notebook of one conversation, which one order uses at a time."""

    def __init__(self, order: DraftOrder | CompletionOrder) -> None:
        self.lock = threading.Lock()
        self.notebook = new_notebook(order.model, order.settings)
        self.length = 0  # of the part of the log that it has read
        self.size = _OWN_BYTES

    def count(self, base: BaseBytes) -> None:
        """Adds the new messages of this base to the size."""
        new = (len(raw) for position, raw in base.raws.items() if position >= self.length)
        self.size += _GROWTH * sum(new)
        self.length = max(self.length, base.tip.length)


class _Notebooks:
    """The notebooks of the conversations that were compacted last. The one unused for the longest time goes first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._books: OrderedDict[str, _Book] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, order: DraftOrder | CompletionOrder) -> Iterator[Notebook]:
        """Lends the notebook of a conversation. Discards it if an error leaves it half written."""
        book = self._take(order)
        with book.lock:
            try:
                yield book.notebook
            except TargetTooSmall:
                raise
            except Exception:  # whatever it is, the notebook may be half written
                self._drop(order.conversation, book)
                raise

    def _take(self, order: DraftOrder | CompletionOrder) -> _Book:
        with self._lock:
            book = self._books.pop(order.conversation, None)
            if book is None or book.notebook.tokenizer.name != tokenizer_for(order.model).name:
                book = _Book(order)
            book.count(order.base)
            self._books[order.conversation] = book
            while sum(one.size for one in self._books.values()) > self._most_bytes:
                self._books.popitem(last=False)
            return book

    def _drop(self, conversation: str, book: _Book) -> None:
        with self._lock:
            if self._books.get(conversation) is book:
                del self._books[conversation]


if __name__ == "__main__":
    main()
