"""Checks of a store: every fault that can be found, and the statement that mends it.

Every id is worked out anew from the bytes, and every reference is looked up. Mending puts right what can be
worked out from what is there (ends and lengths of logs, rows that nothing leads to); it never makes content
up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation.dialects import dialect_named
from penstock.conversation.handles import name_message
from penstock.conversation.identity import chain, content_digest
from penstock.conversation.pairing import link_calls
from penstock.conversation.wire import parse_json
from penstock.errors import InputError, SettingsError, StoreError, UnknownDialect
from penstock.recall.passages import INDEX_VERSION
from penstock.stores.compactions import knows_its_positions, read_pieces
from penstock.stores.encoding import unpack
from penstock.stores.index import count_damaged_blocks, count_held_passages
from penstock.stores.rows import find_stretches, make_fingerprint, read_ids, sum_tokens
from penstock.stores.values import COMPRESSION, StoreFault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.conversation.dialects import Dialect
    from penstock.conversation.message import Message
    from penstock.stores.database import Row, Transaction

__all__ = ["CheckedLog", "find_faults", "mend"]

_RESULTS_AT_ONCE = 20  # each may have megabytes
_ROUNDS = 5  # what one mends may show another: an entry that goes leaves a message that nothing leads to
_AT_ONCE = 500  # messages that are held while they are checked
_MAKE_ANEW = "UPDATE index_version SET version = 0"
_SOURCES = ((0, "messages", "messages"), (1, "compactions", "summaries"), (2, "results", "stored results"))


class CheckFinding(NamedTuple):
    """A fault, and the statement that mends it, if there is one."""

    fault: StoreFault
    statement: str = ""
    values: tuple[Any, ...] = ()


def find_faults(do: Transaction) -> Iterator[CheckFinding]:
    """Yields every fault."""
    for row in do.rows(
        "SELECT key, id, dialect, tip, length, view, forked_from, fork_length, tokens FROM conversations ORDER BY key"
    ):
        log = _check_log(do, row)
        where = f"conversation {row[1]}"
        yield from (_report(where, what) for what in log.broken)
        if log.mended_end is not None:
            yield _report(
                where,
                "the end or the length on record is not that of its log",
                "UPDATE conversations SET tip = ?, length = ? WHERE key = ?",
                (*log.mended_end, row[0]),
            )
        yield from _check_tokens(do, row, log, where)
        yield from _check_compactions(do, row, log, where)
        yield from _check_sessions(do, row[0], where)
    yield from _check_results(do)
    yield from _find_orphans(do)
    yield from (_report("search index", what, _MAKE_ANEW) for what in _check_search_index(do))


def mend(do: Transaction) -> list[StoreFault]:
    """Mends what can be mended, and returns what was."""
    mended: list[StoreFault] = []
    for _ in range(_ROUNDS):
        found = [finding for finding in find_faults(do) if finding.statement]
        if not found:
            break
        for finding in found:
            do.run(finding.statement, *finding.values)
            mended.append(finding.fault)
    return mended


def _report(where: str, what: str, statement: str = "", values: tuple[Any, ...] = ()) -> CheckFinding:
    return CheckFinding(StoreFault(where, what, mendable=bool(statement)), statement, values)


def _check_tokens(do: Transaction, row: Row, log: CheckedLog, where: str) -> Iterator[CheckFinding]:
    if log.broken:
        return
    tokens = sum_tokens(do, row[0])
    if tokens != row[8]:
        yield _report(
            where,
            f"{row[8]:,} tokens are on record, and its messages have {tokens:,}",
            "UPDATE conversations SET tokens = ? WHERE key = ?",
            (tokens, row[0]),
        )


def _check_compactions(do: Transaction, row: Row, log: CheckedLog, where: str) -> Iterator[CheckFinding]:
    conversation, view = row[0], row[5]
    rows = do.rows(
        "SELECT c.key, c.over, c.base, c.length, c.pieces, c.receipt, c.undone, s.conversation FROM compactions c "
        "LEFT JOIN sessions s ON s.key = c.session WHERE c.conversation = ? ORDER BY c.key",
        conversation,
    )
    standing = {compaction[0]: compaction for compaction in rows if compaction[6] is None}
    for compaction in rows:
        for what in _check_record(compaction, log, conversation):
            yield _report(f"{where}, compaction {compaction[0]}", what)
    chain = _follow_chain(standing, view)
    if chain is None or len(chain) != len(standing):
        whole = _find_chain_end(standing)
        what = "the view on record is not that of the compactions that hold"
        if whole is None:
            yield _report(where, what)
        else:
            yield _report(
                where, what, "UPDATE conversations SET view = ? WHERE key = ?", (whole, conversation)
            )


def _check_record(compaction: Row, log: CheckedLog, conversation: int) -> Iterator[str]:
    _, _, base, length, pieces, receipt, _, session = compaction
    if length > len(log.ids) or (length and log.ids[length - 1] != bytes(base).hex()):
        yield "its base is not in the log"
    if session != conversation:
        yield "the session that it opened is not there"
    try:
        if not knows_its_positions(read_pieces(bytes(pieces)), length):
            yield "it names messages that it cannot have known"
    except ValueError:
        yield "its pieces cannot be read"
    try:
        dict(parse_json(bytes(receipt)))
    except (ValueError, TypeError):
        yield "its receipt cannot be read"


def _follow_chain(standing: dict[int, Row], view: int) -> list[int] | None:
    """Returns the compactions below a view, newest first; None if one is missing or undone."""
    chain: list[int] = []
    while view:
        if view not in standing or view in chain:
            return None
        chain.append(view)
        view = standing[view][1]
    return chain


def _find_chain_end(standing: dict[int, Row]) -> int | None:
    """Returns the one view below which all compactions in force stand; None if there is none."""
    if not standing:
        return 0
    ends = standing.keys() - {row[1] for row in standing.values()}
    if len(ends) != 1:
        return None
    end = ends.pop()
    chain = _follow_chain(standing, end)
    return end if chain is not None and len(chain) == len(standing) else None


def _check_sessions(do: Transaction, conversation: int, where: str) -> Iterator[CheckFinding]:
    rows = do.rows(
        "SELECT s.key, s.id, s.parent, s.kind, p.conversation FROM sessions s "
        "LEFT JOIN sessions p ON p.key = s.parent WHERE s.conversation = ? ORDER BY s.key",
        conversation,
    )
    if not rows:
        yield _report(where, "it has no session")
    continued: set[int] = set()
    for key, session, parent, kind, parent_conversation in rows:
        place = f"session {session}"
        if parent is not None and parent_conversation is None:
            yield _report(
                place,
                "its parent is not there",
                "UPDATE sessions SET parent = NULL WHERE key = ?",
                (key,),
            )
        if kind != COMPRESSION:
            continue
        if parent_conversation is not None and parent_conversation != conversation:
            yield _report(place, "it continues a session of another conversation")
        if parent in continued:
            yield _report(place, "the session that it continues has another continuation, too")
        continued.add(parent)


def _check_results(do: Transaction) -> Iterator[CheckFinding]:
    last = 0
    while some := do.rows(
        f"SELECT key, id, raw, packed FROM results WHERE key > ? ORDER BY key LIMIT {_RESULTS_AT_ONCE}", last
    ):
        last = some[-1][0]
        for _, name, raw, packed in some:
            try:
                unpack(raw, packed).decode("utf-8", "surrogatepass")
            except (StoreError, UnicodeDecodeError):
                yield _report(f"result {name}", "its bytes are damaged")


def _find_orphans(do: Transaction) -> Iterator[CheckFinding]:
    """Yields rows that belong to nothing."""
    for table, column, home in (
        ("entries", "conversation", "conversations"),
        ("compactions", "conversation", "conversations"),
        ("facts", "compaction", "compactions"),
        ("facts", "conversation", "conversations"),
        ("pins", "conversation", "conversations"),
        ("sessions", "conversation", "conversations"),
        ("results", "session", "sessions"),
        ("usage", "session", "sessions"),
        ("sightings", "message", "messages"),
        ("sighted", "message", "messages"),
    ):
        which = f"NOT EXISTS (SELECT 1 FROM {home} o WHERE o.key = {table}.{column})"
        yield from _rows_to_drop(do, table, which, f"rows without their {column}")
    yield from _rows_to_drop(
        do,
        "messages",
        "NOT EXISTS (SELECT 1 FROM entries e WHERE e.message = messages.key)",
        "messages that are in no log",
    )
    strange = (
        "EXISTS (SELECT 1 FROM conversations c JOIN messages m ON m.key = entries.message "
        "WHERE c.key = entries.conversation AND m.owner <> c.owner)"
    )
    if count := _count(do, f"FROM entries WHERE {strange}"):
        yield _report("table entries", f"messages of another owner: {count:,}")
    untied = "message IS NOT NULL AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.key = results.message)"
    yield from _rows_to_change(
        do, "results", untied, "results whose message is not there", "UPDATE results SET message = NULL"
    )
    for table in ("pins", "facts"):
        beyond = f"NOT EXISTS (SELECT 1 FROM conversations c WHERE c.key = {table}.conversation AND {table}.position < c.length)"
        yield from _rows_to_drop(do, table, beyond, f"{table} on messages that are not there")


def _rows_to_drop(do: Transaction, table: str, which: str, what: str) -> Iterator[CheckFinding]:
    yield from _rows_to_change(do, table, which, what, f"DELETE FROM {table}")


def _rows_to_change(
    do: Transaction, table: str, which: str, what: str, statement: str
) -> Iterator[CheckFinding]:
    row = do.one(f"SELECT count(*) FROM {table} WHERE {which}")
    if row and row[0]:
        yield _report(f"table {table}", f"{what}: {row[0]:,}", f"{statement} WHERE {which}")


class CheckedLog(msgspec.Struct):
    """The ids of a log, its faults, and its true end if the record has another one."""

    ids: list[str]
    broken: list[str]
    mended_end: tuple[bytes, int] | None = None


def _check_log(do: Transaction, row: Row) -> CheckedLog:
    """Checks the log of a row of `conversations`; the part that it shares with another is checked there."""
    conversation, _, dialect, tip, length, _, source, shared = row[:8]
    log = CheckedLog([], [])
    try:
        read_as = dialect_named(dialect)
    except (UnknownDialect, SettingsError) as error:
        log.broken.append(str(error))
        return log
    if source is not None:
        if source >= conversation or do.one("SELECT 1 FROM conversations WHERE key = ?", source) is None:
            log.broken.append("the conversation that it branched off from is not there")
            return log
        log.ids = read_ids(do, source)[:shared]
    if len(log.ids) != shared:
        log.broken.append(f"it shares {shared:,} messages, of which {len(log.ids):,} are there")
        return log
    whole = _check_own(do, conversation, read_as, log)
    end = bytes.fromhex(log.ids[-1]) if log.ids else b""
    if whole and (bytes(tip) != end or length != len(log.ids)):
        log.mended_end = (end, len(log.ids))
    return log


def _check_own(do: Transaction, conversation: int, dialect: Dialect, log: CheckedLog) -> bool:
    """Checks the conversation's own entries; returns whether they are all there, one after the other."""
    before = log.ids[-1] if log.ids else ""
    unlinked: list[int] = []
    below = do.one(
        "SELECT count(*) FROM entries WHERE conversation = ? AND position < ?", conversation, len(log.ids)
    )
    if below and below[0]:
        log.broken.append(f"{below[0]:,} messages stand at places that it shares with another log")
    for position, message_id, digest, mark, raw, packed in _read_own(do, conversation, len(log.ids)):
        handle = name_message(position + 1)
        if position != len(log.ids):
            log.broken.append(f"messages are missing before {handle}")
            return False
        if message_id is None:
            log.broken.append(f"the content of {handle} is not there")
            return False
        own = bytes(message_id).hex()
        if chain(before, bytes(digest)) != own:
            log.broken.append(f"{handle} does not belong after the message before it")
        content = _try_unpack(raw, packed)
        if content is None or make_fingerprint(content) != bytes(mark):
            log.broken.append(f"the bytes of {handle} are damaged")
        elif _digest(content, dialect) != bytes(digest):
            unlinked.append(position)
        log.ids.append(own)
        before = own
    if unlinked:
        log.broken += _find_misread(do, conversation, dialect, unlinked)
    return True


def _read_own(do: Transaction, conversation: int, start: int) -> Iterator[Row]:
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


def _find_misread(
    do: Transaction, conversation: int, dialect: Dialect, positions: list[int]
) -> Iterator[str]:
    """Yields those whose content is not the one on record, even with the ids that calls get by their place in the log."""
    messages: list[Message] = []
    digests: list[bytes] = []
    for part, low, high in find_stretches(do, conversation):
        rows = do.rows(
            "SELECT m.raw, m.packed, m.digest FROM entries e JOIN messages m ON m.key = e.message "
            "WHERE e.conversation = ? AND e.position >= ? AND e.position < ? ORDER BY e.position",
            *(part, low, high),
        )
        for raw, packed, digest in rows:
            message = _try_decode(_try_unpack(raw, packed), dialect)
            if message is None:
                yield f"{name_message(len(messages) + 1)} cannot be read as a message of the dialect {dialect.name}"
                return
            messages.append(message)
            digests.append(bytes(digest))
    linked = link_calls(messages)
    for position in positions:
        if content_digest(linked[position]) != digests[position]:
            yield f"the content of {name_message(position + 1)} is not the one that its id was made of"


def _try_unpack(raw: bytes, packed: int) -> bytes | None:
    try:
        return unpack(raw, packed)
    except StoreError:
        return None


def _try_decode(content: bytes | None, dialect: Dialect) -> Message | None:
    try:
        return None if content is None else dialect.decode(parse_json(content))
    except (ValueError, InputError):
        return None


def _digest(content: bytes, dialect: Dialect) -> bytes | None:
    message = _try_decode(content, dialect)
    return None if message is None else content_digest(message)


def _check_search_index(do: Transaction) -> Iterator[str]:
    """Yields the faults of the search index.

    It is derived from the store's other data, so making it anew mends all of it. An index that
    the next search makes anew anyway has no faults.
    """
    row = do.one("SELECT version FROM index_version")
    if row is None or row[0] != INDEX_VERSION:
        return
    for kind, table, name in _SOURCES:
        gone = f"kind = {kind} AND NOT EXISTS (SELECT 1 FROM {table} s WHERE s.key = source)"
        if count := _count(do, f"FROM indexed WHERE {gone}"):
            yield f"it holds {count:,} {name} that are not there"
        lacking = " AND ".join(
            f"NOT EXISTS (SELECT 1 FROM {one} x WHERE x.kind = {kind} AND x.source = s.key)"
            for one in ("indexed", "unindexed")
        )
        if count := _count(do, f"FROM {table} s WHERE {lacking}"):
            yield f"it lacks {count:,} {name}"
    if count := _count(
        do,
        "FROM vectors v WHERE NOT EXISTS (SELECT 1 FROM indexed x WHERE x.first = v.first AND x.passages > 0)",
    ):
        yield f"it holds {count:,} vectors of passages that are not there"
    if count := count_damaged_blocks(do):
        yield f"{count:,} of its blocks are damaged"
    on_record = do.one("SELECT coalesce(sum(passages), 0) FROM indexed")
    held = count_held_passages(do)
    if on_record is not None and int(on_record[0]) != held:
        yield f"it holds {held:,} passages, and {int(on_record[0]):,} are on record"


def _count(do: Transaction, rows: str) -> int:
    row = do.one(f"SELECT count(*) {rows}")
    return int(row[0]) if row is not None else 0
