"""Messages and compactions for tests of stores."""

from __future__ import annotations

import pytest

from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest
from penstock.conversation.message import Summary
from penstock.conversation.view import Compaction, Handoff, Kept
from penstock.conversation.wire import encode_wire, parse_json
from penstock.stores.values import NewCompaction, NewMessage, NewSession

__all__ = ["SHARED", "append", "compact", "message", "messages", "raw_message", "started"]

# For tests of several connections, or of what is there after opening again: a store in memory has one, and ends with it.
SHARED = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)


def message(text, role="user", dialect="chat"):
    return raw_message(encode_wire({"role": role, "content": text}), dialect)


def raw_message(raw, dialect="chat"):
    decoded = dialect_named(dialect).decode(parse_json(raw))
    return NewMessage(raw, content_digest(decoded), decoded.role.value, len(raw) // 4)


def messages(*texts):
    return [message(text, "user" if place % 2 == 0 else "assistant") for place, text in enumerate(texts)]


def started(store, session_id="s", at=1.0, **more):
    return store.create(NewSession(id=session_id, at=at, **more))


def append(store, session_id, *texts, at=2.0):
    """Append texts at the end, whatever it is."""
    return store.append(session_id, messages(*texts), store.log_tip(session_id).id, at)


def compact(store, session_id, new_id, *, kept=(), text="what was said", **more):
    """Commit a compaction of the whole log, of which these positions stay. More: `at`, `over`, `key`, `facts`, `receipt`."""
    tip = store.log_tip(session_id)
    newest = store.newest_compaction(session_id)
    covered = tuple(position for position in range(tip.length) if position not in kept)
    pieces = (Handoff(Summary(text, 1), covered), *map(Kept, kept))
    return store.commit(
        session_id,
        NewCompaction(
            compaction=Compaction(tip.id, tip.length, pieces),
            over=more.get("over", newest.key if newest else 0),
            receipt=more.get("receipt", {"outcome": "compacted", "text": text}),
            session=NewSession(id=new_id, at=more.get("at", 10.0)),
            key=more.get("key", ""),
            facts=more.get("facts", ()),
        ),
    )
