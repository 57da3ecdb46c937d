"""One thing that a handle names in a stored conversation, read whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from penstock.cli.layout import plural, printable
from penstock.cli.stored import moment, redactor
from penstock.lossless.session_nodes import SessionNodes
from penstock.measure.tokens import tokenizer_for
from penstock.sessions.history import SessionHistory

if TYPE_CHECKING:
    from penstock.cli.screen import Screen
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow

__all__ = ["read_one"]


def read_one(store: Store, tip: SessionRow, handle: str, screen: Screen, *, as_json: bool) -> int:
    """Show what the handle stands for, and all of it. Raises UnknownHandle."""
    count = tokenizer_for(tip.model or None).count
    said = SessionHistory(store, tip.id, count, redactor().redact)
    history = SessionNodes(store, tip.id).history(said, count, store.newest_compaction(tip.id))
    place, text = history.describe(handle), history.text(handle)
    if as_json:
        screen.say(json.dumps({**msgspec.to_builtins(place), "text": text}, indent=2))
        return 0
    about = [place.handle, place.role or place.kind, plural(place.tokens, "token")]
    if place.at is not None:
        about.append(moment(place.at))
    if place.in_view:
        about.append("in the view")
    screen.say(screen.paint(" · ".join(map(printable, about)), "bold"))
    for line in text.split("\n"):
        screen.say("\t".join(map(printable, line.removesuffix("\r").split("\t"))))
    return 0
