"""Groups messages for the table of `penstock explain`: neighbours with the same fate and kind of reason share a line.

Where fates keep alternating, one line counts them.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from penstock.cli.labels import Label
from penstock.conversation.handles import name_message
from penstock.planning.plan import Fate, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from penstock.engine.compress import AddedMessage

__all__ = ["OLDER", "VerdictEntry", "group_entries", "list_entries"]

OLDER = "older than the tail: "  # how the reason of every summarised message begins
_QUOTED = "in the handoff"
_SCREEN_ROWS = 20  # more than these are grouped more boldly
_SHORTEST_RUN = 3
_ROOM = "room was left for it"
_COMMON = ("system prompt", "tail", "head", "small enough to stay", "nothing to do", _ROOM)
_MIXED = "mixed"


class VerdictEntry(msgspec.Struct, frozen=True):
    """A line of the table: one message, or a run of `count` of them from `label` to `last`."""

    label: Label
    number: int | None
    before: int
    after: int
    fate: str
    reason: str
    last: str = ""
    count: int = 1
    tools: tuple[str, ...] = ()


def list_entries(
    labels: Sequence[Label], verdicts: Iterable[Verdict], added: Iterable[AddedMessage]
) -> list[VerdictEntry]:
    """Returns an entry for each message of the input, in order, and one for each that repair added."""
    put_in = sorted(added, reverse=True)
    entries: list[VerdictEntry] = []
    for one in verdicts:
        while put_in and one.number and put_in[-1].number < one.number:
            entries.append(_put_in(put_in.pop()))
        number = None if one.fate is Fate.REPAIRED else one.number
        label = labels[one.position]
        entries.append(
            VerdictEntry(label, number, one.tokens_before, one.tokens_after, one.fate.value, one.reason)
        )
    return entries + [_put_in(one) for one in reversed(put_in)]


def _put_in(added: AddedMessage) -> VerdictEntry:
    label = Label(name_message(added.number), added.role, ())
    why = f"put in by repair: {added.reason}"
    return VerdictEntry(label, added.number, 0, 0, Fate.REPAIRED, why)


def group_entries(entries: Sequence[VerdictEntry]) -> list[VerdictEntry]:
    """Returns fewer entries: notable messages on their own, long runs together.

    No more than fit a screen, if possible.
    """
    lines = _runs(entries, _kind)
    if len(lines) > _SCREEN_ROWS:
        lines = _runs(entries, _coarse_kind)
    if len(lines) > _SCREEN_ROWS:
        lines = _runs(entries, _coarsest_kind)
    short = _SHORTEST_RUN
    while len(lines) > _SCREEN_ROWS and short <= len(entries):
        lines = _runs(entries, _stretch_kind(entries, short))
        short *= 2
    return lines


def _kind(entry: VerdictEntry) -> Hashable:
    """Returns what a run has in common; None for a message that stands alone."""
    key = entry.reason.partition(":")[0]
    if entry.fate == Fate.SUMMARISED:
        return Fate.SUMMARISED, key
    return (Fate.KEPT, key) if entry.fate == Fate.KEPT and key in _COMMON else None


def _coarse_kind(entry: VerdictEntry) -> Hashable:
    """As `_kind`, and elided messages by their reason."""
    return (Fate.ELIDED, entry.reason) if _is_elided(entry) else _kind(entry)


def _coarsest_kind(entry: VerdictEntry) -> Hashable:
    """As `_coarse_kind`, but old results and what stands between them, or the whole tail, are one run."""
    kind = _kind(entry)
    if _is_elided(entry):
        return "tail" if "tail" in entry.reason else "old"
    if kind in {(Fate.KEPT, "small enough to stay"), (Fate.KEPT, "tail")}:
        return "tail" if kind == (Fate.KEPT, "tail") else "old"
    return kind


def _stretch_kind(entries: Sequence[VerdictEntry], short: int) -> Callable[[VerdictEntry], Hashable]:
    """As `_coarsest_kind`, but neighbouring runs of up to `short` messages before the tail are one."""
    lengths: dict[int, int] = {}
    for (kind, _), same in groupby(enumerate(entries), lambda pair: _key(pair[0], pair[1], _coarsest_kind)):
        if kind in {"old", (Fate.KEPT, _ROOM), (Fate.SUMMARISED, OLDER.partition(":")[0])}:
            numbers = [entry.number for _, entry in same if entry.number]
            lengths.update(dict.fromkeys(numbers, len(numbers)))

    def kind_in_stretch(entry: VerdictEntry) -> Hashable:
        length = lengths.get(entry.number or 0)
        return _MIXED if length is not None and length <= short else _coarsest_kind(entry)

    return kind_in_stretch


def _is_elided(entry: VerdictEntry) -> bool:
    return entry.fate == Fate.ELIDED and "request" not in entry.reason and "handoff" not in entry.reason


def _runs(entries: Sequence[VerdictEntry], kind: Callable[[VerdictEntry], Hashable]) -> list[VerdictEntry]:
    lines: list[VerdictEntry] = []
    for key, same in groupby(enumerate(entries), lambda pair: _key(pair[0], pair[1], kind)):
        run = [entry for _, entry in same]
        lines += [_join(run)] if key[0] is not None and len(run) >= _SHORTEST_RUN else run
    return lines


def _key(at: int, entry: VerdictEntry, kind: Callable[[VerdictEntry], Hashable]) -> tuple[Hashable, int]:
    """Returns the key of a run. It also ends where numbers are missing: first and last handle must describe all of it."""
    found = kind(entry) if entry.number else None
    return found, (at - entry.number if found is not None and entry.number else at)


def _join(run: Sequence[VerdictEntry]) -> VerdictEntry:
    first, last = run[0], run[-1]
    fates = tuple(dict.fromkeys(entry.fate for entry in run))
    tools: dict[str, int] = {}
    for entry in run:
        for tool in entry.label.tools:
            tools[tool] = tools.get(tool, 0) + 1
    often = sorted(tools, key=lambda tool: -tools[tool])
    return VerdictEntry(
        first.label,
        first.number,
        sum(entry.before for entry in run),
        sum(entry.after for entry in run),
        next((fate for fate in (Fate.SUMMARISED, Fate.ELIDED) if fate in fates), first.fate),
        _reason(run, fates),
        last=last.label.handle,
        count=len(run),
        tools=tuple(tool for tool in often for _ in range(tools[tool])),
    )


def _reason(run: Sequence[VerdictEntry], fates: tuple[str, ...]) -> str:
    if len(fates) > 1:
        return _count_fates(run)
    if fates[0] != Fate.SUMMARISED:
        key, colon, _ = run[0].reason.partition(":")
        return f"{key}: the first messages" if colon and key == "head" else run[0].reason
    return OLDER + _count_quoted(run)


def _count_fates(run: Sequence[VerdictEntry]) -> str:
    gone, elided, kept = (
        [entry for entry in run if entry.fate == fate] for fate in (Fate.SUMMARISED, Fate.ELIDED, Fate.KEPT)
    )
    told = []
    if gone:
        told.append(f"{OLDER}{len(gone):,} of them, {_count_quoted(gone)}")
    if elided:
        told.append(f"{len(elided):,} elided: {elided[0].reason}")
    if kept:
        brought = all(entry.reason == _ROOM for entry in kept)
        told.append(f"{len(kept):,} kept" + (": room was left" if brought else ""))
    return "; ".join(told)


def _count_quoted(gone: Sequence[VerdictEntry]) -> str:
    quoted = sum(entry.reason.endswith(_QUOTED) for entry in gone)
    if quoted in {0, len(gone)}:
        return f"excerpts {_QUOTED}" if quoted else "reachable by handle"
    return f"{quoted:,} quoted, {len(gone) - quoted:,} by handle"
