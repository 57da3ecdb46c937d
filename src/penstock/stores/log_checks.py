"""Checking a log: every id of it worked out anew from the bytes of its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.dialects import DIALECTS, link_calls
from penstock.conversation.identity import chain, content_digest
from penstock.conversation.wire import parse_json
from penstock.errors import InputError, StoreError
from penstock.stores.packing import unpack
from penstock.stores.rows import fingerprint, ids_of, stretches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.conversation.dialects import Dialect
    from penstock.conversation.message import Message
    from penstock.stores.database import Row, Transaction

__all__ = ["CheckedLog", "log_findings"]

_AT_ONCE = 500  # messages that are held while they are checked


class CheckedLog(msgspec.Struct):
    """What was found: the ids of the log, what is broken in it, and its end where another one is on record."""

    ids: list[str]
    broken: list[str]
    mended_end: tuple[bytes, int] | None = None


def log_findings(do: Transaction, row: Row) -> CheckedLog:
    """Check the log of a row of `conversations`; what it shares with another is checked there."""
    conversation, _, dialect, tip, length, _, source, shared = row[:8]
    log = CheckedLog([], [])
    if dialect not in DIALECTS:
        log.broken.append(f"there is no dialect {dialect!r}")
        return log
    if source is not None:
        if source >= conversation or do.one("SELECT 1 FROM conversations WHERE key = ?", source) is None:
            log.broken.append("the conversation that it branched off from is not there")
            return log
        log.ids = ids_of(do, source)[:shared]
    if len(log.ids) != shared:
        log.broken.append(f"it shares {shared:,} messages, of which {len(log.ids):,} are there")
        return log
    whole = _check_own(do, conversation, DIALECTS[dialect], log)
    end = bytes.fromhex(log.ids[-1]) if log.ids else b""
    if whole and (bytes(tip) != end or length != len(log.ids)):
        log.mended_end = (end, len(log.ids))
    return log


def _check_own(do: Transaction, conversation: int, dialect: Dialect, log: CheckedLog) -> bool:
    """Check the entries that are the conversation's own; whether they are all there, one after the other."""
    before = log.ids[-1] if log.ids else ""
    unlinked: list[int] = []
    below = do.one(
        "SELECT count(*) FROM entries WHERE conversation = ? AND position < ?", conversation, len(log.ids)
    )
    if below and below[0]:
        log.broken.append(f"{below[0]:,} messages stand at places that it shares with another log")
    for position, message_id, digest, mark, raw, packed in _own(do, conversation, len(log.ids)):
        handle = f"m{position + 1}"
        if position != len(log.ids):
            log.broken.append(f"messages are missing before {handle}")
            return False
        if message_id is None:
            log.broken.append(f"the content of {handle} is not there")
            return False
        own = bytes(message_id).hex()
        if chain(before, bytes(digest)) != own:
            log.broken.append(f"{handle} does not belong after the message before it")
        content = _unpacked(raw, packed)
        if content is None or fingerprint(content) != bytes(mark):
            log.broken.append(f"the bytes of {handle} are damaged")
        elif _digest(content, dialect) != bytes(digest):
            unlinked.append(position)
        log.ids.append(own)
        before = own
    if unlinked:
        log.broken += _misread(do, conversation, dialect, unlinked)
    return True


def _own(do: Transaction, conversation: int, start: int) -> Iterator[Row]:
    while True:
        rows = do.rows(
            "SELECT e.position, m.id, m.digest, m.fingerprint, m.raw, m.packed FROM entries e "
            "LEFT JOIN messages m ON m.key = e.message WHERE e.conversation = ? AND e.position >= ? "
            f"ORDER BY e.position LIMIT {_AT_ONCE}",
            *(conversation, start),
        )
        if not rows:
            return
        yield from rows
        start = rows[-1][0] + 1


def _misread(do: Transaction, conversation: int, dialect: Dialect, positions: list[int]) -> Iterator[str]:
    """Those whose content is not the one on record even with the ids that calls get by their place in the log."""
    messages: list[Message] = []
    digests: list[bytes] = []
    for part, low, high in stretches(do, conversation):
        rows = do.rows(
            "SELECT m.raw, m.packed, m.digest FROM entries e JOIN messages m ON m.key = e.message "
            "WHERE e.conversation = ? AND e.position >= ? AND e.position < ? ORDER BY e.position",
            *(part, low, high),
        )
        for raw, packed, digest in rows:
            message = _decoded(_unpacked(raw, packed), dialect)
            if message is None:
                yield f"m{len(messages) + 1} cannot be read as a message of the dialect {dialect.name}"
                return
            messages.append(message)
            digests.append(bytes(digest))
    linked = link_calls(messages)
    for position in positions:
        if content_digest(linked[position]) != digests[position]:
            yield f"the content of m{position + 1} is not the one that its id was made of"


def _unpacked(raw: bytes, packed: int) -> bytes | None:
    try:
        return unpack(raw, packed)
    except StoreError:
        return None


def _decoded(content: bytes | None, dialect: Dialect) -> Message | None:
    try:
        return None if content is None else dialect.decode(parse_json(content))
    except (ValueError, InputError):
        return None


def _digest(content: bytes, dialect: Dialect) -> bytes | None:
    message = _decoded(content, dialect)
    return None if message is None else content_digest(message)
