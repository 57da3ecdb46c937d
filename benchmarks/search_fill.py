"""Stores full of generated conversations, for measuring search: made once, kept in `out/`, and used again.

Coding sessions of a thousand messages each; one message in two hundred is Chinese.
"""

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.clock import note
from benchmarks.generate import many_messages
from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest
from penstock.conversation.wire import encode_wire
from penstock.stores.store import Store, open_store
from penstock.stores.values import NewMessage, NewSession

__all__ = ["CONVERSATION", "Filled", "make_conversation", "open_filled"]

CONVERSATION = 1_000  # messages
MESSAGE_BYTES = 1_500
_MADE_AHEAD = 16  # conversations
_CHINESE = 200  # one message of so many
_CHARACTERS = (
    "港口船舶货物吊机仓库登记号码明天早上检查重量装卸工人报告风浪停泊费用合同签字延期保险燃油补给航线灯塔潮水"
)


class Filled(NamedTuple):
    """A store with its index, how many bytes its messages have, and the CPU time that appending and indexing took."""

    store: Store
    messages: int
    raw: int
    seconds: float


@contextmanager
def open_filled(url: str, notes: Path, count: int, jobs: int) -> Iterator[Filled]:
    """Opens a store that holds about so many messages, all indexed; it is filled where it does not yet.

    `notes` is a file beside the store that says how it was filled.
    """
    known = (
        json.loads(notes.read_text()) if notes.is_file() else {"conversations": 0, "raw": 0, "seconds": 0.0}
    )
    store = open_store(url)
    try:
        wanted = range(known["conversations"], count // CONVERSATION)
        with ProcessPoolExecutor(jobs) as pool:
            for number, messages in zip(wanted, _make_ahead(pool, wanted), strict=True):
                start = time.process_time()
                store.create(NewSession(id=f"c{number}", at=float(number)))
                store.append(f"c{number}", messages, "", float(number))
                store.index()
                known["seconds"] += time.process_time() - start
                known["raw"] += sum(len(message.raw) for message in messages)
                known["conversations"] = number + 1
                notes.write_text(json.dumps(known))
                if number % 50 == 49:
                    note(f"search: {(number + 1) * CONVERSATION:,} messages in {store.url.partition(':')[0]}")
        yield Filled(store, known["conversations"] * CONVERSATION, known["raw"], known["seconds"])
    finally:
        store.close()


def _make_ahead(pool: ProcessPoolExecutor, wanted: range) -> Iterator[list[NewMessage]]:
    """Yields conversations, a few of them made ahead: all of them would be the store's size in memory."""
    for start in range(0, len(wanted), _MADE_AHEAD):
        yield from pool.map(make_conversation, wanted[start : start + _MADE_AHEAD])


def make_conversation(number: int) -> list[NewMessage]:
    """Returns the messages of one conversation."""
    chance = random.Random(number)
    dialect = dialect_named("chat")
    made = []
    wires = many_messages(CONVERSATION, MESSAGE_BYTES * CONVERSATION, seed=number + 1)
    for place in range(_CHINESE - 1, len(wires), _CHINESE):
        wires[place] = {"role": "user", "content": "".join(chance.choices(_CHARACTERS, k=300))}
    for wire in wires:
        message, raw = dialect.decode(wire), encode_wire(wire)
        made.append(NewMessage(raw, content_digest(message), message.role.value, len(raw) // 4))
    return made
