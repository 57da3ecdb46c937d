"""The writer of the engine `lossless`: handoffs with an outline of nodes, each written once.

Nodes of the last handoff stand in the new one as they are. What gave way since is cut into segments, and the
lines for all of them are chosen together, so that the room goes where it covers most. If the old nodes
leave too little for the new ones, pairs of them give way to their parents, on the lowest level first, there
the oldest: what was long ago is told coarsely, what was just now finely. A node that has no room for its text
still stands there with its header, so that everything can be reached from the view.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.conversation import mark
from penstock.conversation.handles import Runs, gaps_between, join_runs, name_message, runs_of
from penstock.conversation.message import Summary
from penstock.lossless.outline import (
    FAN,
    Node,
    Spot,
    children_of,
    cut_segments,
    handle_of,
    header_of_node,
    parse_outline,
    render_outline,
    segment_key,
    spot_of,
)
from penstock.writing.choice import FOCUS_SHARE, join_excerpts
from penstock.writing.extractive import ExtractiveWriter
from penstock.writing.handoff import FRAMING, HandoffEntry, HandoffSection, escape, header_of, render_handoff
from penstock.writing.reading import Speaker
from penstock.writing.writer import HandoffText

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.lossless.outline import NodeTexts
    from penstock.planning.plan import Plan
    from penstock.writing.choice import ExcerptChoice
    from penstock.writing.extractive import Flags, Measure
    from penstock.writing.writer import HandoffMaterial, Surroundings

__all__ = ["OutlineText", "OutlineWriter", "nodes_of", "segment_size"]

_SIZES = (2_000, 4_000, 8_000)  # tokens of a segment,
_SIZE_SHARE = 0.4  # about this share of the handoff
_TOKENS_PER_SEGMENT = 300  # of a handoff: with less for each, segments are longer
_FRESH_SHARE = 0.3  # of the room for texts goes to what is new, where there is enough of it
_MOST_TOLD = 0.3  # of a segment's tokens: more is not reserved for it
_PARENT_SHARE = 0.5  # of its children's tokens is what a parent takes
_HEADERS_SHARE = 0.15  # of the room: headers take no more while nodes can be joined


def segment_size(gone_tokens: int, handoff_tokens: int) -> int:
    """Returns the tokens of one segment. It depends on the room alone, but for handoffs that are very short."""
    wished = _SIZE_SHARE * handoff_tokens
    size = min(_SIZES, key=lambda tokens: abs(tokens - wished))
    most = max(1, handoff_tokens // _TOKENS_PER_SEGMENT)
    while gone_tokens > most * size:
        size *= 2
    return size


class OutlineText(HandoffText, frozen=True, eq=False):
    """A handoff with its nodes: those in the outline, and those that they replaced."""

    nodes: tuple[Node, ...] = ()


def nodes_of(plan: Plan | None) -> tuple[Node, ...]:
    """Returns the nodes of a plan's handoff; none if it has no outline."""
    return plan.handoff.nodes if plan is not None and isinstance(plan.handoff, OutlineText) else ()


class _Part(msgspec.Struct, eq=False):
    """A node of the outline that is being written. Its text is None until its lines are chosen."""

    handles: tuple[int, ...]
    runs: Runs
    text: str | None
    key: str = ""
    raw_tokens: int = 0
    below: tuple[_Part, ...] = ()
    notes: tuple[HandoffEntry, ...] = ()
    text_tokens: int = 0
    header_tokens: int = 0

    @property
    def fixed_tokens(self) -> int:
        """The tokens that are written already."""
        return self.header_tokens + self.text_tokens

    @property
    def told_tokens(self) -> int:
        """The tokens of its text, or those that a parent may take; new segments share what is left."""
        if self.text is None and self.below:
            return int(_PARENT_SHARE * sum(one.told_tokens for one in self.below))
        return self.text_tokens

    @property
    def is_new(self) -> bool:
        """True if it is a new segment, or stands for nothing else."""
        return self.text is None and all(one.is_new for one in self.below)

    def node(self, text: str | None = None) -> Node:
        """Returns the part as a node, with the text that was just written for it, if one was."""
        made = self.text if text is None else text
        return Node(self.handles, self.runs, made or "", self.key, fresh=text is not None)


class OutlineWriter(ExtractiveWriter):
    """Writes handoffs with an outline. `known` has the texts of nodes that exist already."""

    mark_version = mark.STEADY_VERSION
    names_runs = True
    handles = "m- and n-numbers"
    note = f"{FRAMING} m-numbers name originals, n-numbers parts of the outline."

    def __init__(self, material: HandoffMaterial, known: NodeTexts) -> None:
        super().__init__(material)
        self._known = known
        self._segment_tokens = segment_size(material.transcript.total_tokens, material.handoff_tokens)
        self._parts: list[_Part] = []
        self._part_of_source = np.zeros(0, np.int32)
        self._number_of_source = self._numbers_of_sources()

    def write(self, budget: int, measure: Measure, beside: Surroundings) -> OutlineText:
        """Returns a handoff of at most `budget` tokens: first the outline, which lasts, then the sections."""
        entries, struck = self._sections.write(budget, beside)
        everything = self._all_parts(beside.kept)
        as_told = {part.handles: part.node() for part in everything if part.text}
        room = budget - measure(render_handoff(entries)) - 5
        whole = "\n".join([render_outline(part.node() for part in everything), render_handoff(entries)])
        told = all(part.text is not None for part in everything) and measure(whole) <= budget
        self._parts = everything if told else self._make_room(everything, room)
        self._part_of_source = self._parts_of_sources()
        choice = self._begin_choice(entries, beside)
        shut = self._shut(choice, beside)
        self._tell_parents(choice, shut)
        left = room - self._count_fixed_tokens()
        self._choose(choice, shut, left, entries, beside, int(left * FOCUS_SHARE))
        text, entries = self._fit(entries, choice, budget, measure)
        while not text and self._drop_text():
            text, entries = self._fit(entries, choice, budget, measure)
        if not text:
            return OutlineText()
        nodes = self._all_nodes(everything, as_told, choice)
        texts = self._sections.struck_texts
        return OutlineText(text, self._count_quotes(entries, choice), struck, texts, nodes)

    # The parts of the outline.

    def _all_parts(self, kept: frozenset[int]) -> list[_Part]:
        """Returns the nodes of the last outline, one for messages that no node knows, a leaf for each new segment."""
        transcript = self._transcript
        parts = [_Part(node.handles, node.runs, node.text) for node in parse_outline(self._last_text())]
        leaves = max((spot_of(part.handles[-1]).leaves for part in parts), default=0)
        if lost := self._find_lost(parts):
            parts.append(_Part((), lost, None, _digest("lost", self._last_text())))
        gone = [place for place, number in enumerate(transcript.numbers) if number and place not in kept]
        for places in cut_segments(transcript, gone, self._segment_tokens):
            runs = runs_of(sorted(transcript.numbers[place] for place in places))
            tokens = sum(transcript.tokens[place] for place in places)
            parts.append(_Part((), runs, None, segment_key(transcript, places), tokens))
        for part in parts:
            if not part.handles:
                part.handles = (handle_of(Spot(0, leaves)),)
                part.text = self._known.find_text(part.key)
                leaves += 1
        return self._weigh(parts)

    def _last_text(self) -> str:
        return "\n".join(
            part.text
            for place in self._transcript.handoffs
            for part in self._transcript.messages[place].parts
            if isinstance(part, Summary)
        )

    def _find_lost(self, parts: Iterable[_Part]) -> Runs:
        """Returns the numbers of messages that a handoff stands for, but none of its nodes."""
        numbers = self._transcript.numbers
        if not self._transcript.handoffs:
            return ()
        return gaps_between(
            join_runs([runs_of(sorted(numbers)), *(part.runs for part in parts)]), max(numbers)
        )

    def _weigh(self, parts: list[_Part]) -> list[_Part]:
        headers = self._tokenizer.count_many([header_of_node(part.node()) for part in parts])
        texts = self._tokenizer.count_many([part.text or "" for part in parts])
        for part, header, text in zip(parts, headers, texts, strict=True):
            part.header_tokens = header + 1
            part.text_tokens = text + 1 if part.text else 0
            notes = self._known.notes.get(part.key, ()) if part.text is None else ()
            part.notes = tuple(self._sections.take_most_needed(notes, self._known.notes_tokens))
            if part.notes:
                part.text_tokens = self._tokenizer.count(_render_notes(part.notes)) + 1
        return parts

    # Making room.

    def _make_room(self, parts: list[_Part], room: int) -> list[_Part]:
        """Returns the parts, with parents in place of some, so that there is room for what is still to be told."""
        while True:
            headers = sum(part.header_tokens for part in parts)
            told = sum(part.told_tokens for part in parts)
            limit = room - headers - self._fresh_tokens(parts, room - headers)
            if told <= limit and headers <= _HEADERS_SHARE * room:
                return parts
            groups = _next_groups(parts)
            if not groups:
                break
            for start in reversed(groups):
                parts = [*parts[:start], self._parent(parts[start : start + FAN]), *parts[start + FAN :]]
        for part in parts:
            if sum(one.told_tokens for one in parts) <= limit:
                break
            if part.text:
                part.text, part.text_tokens = "", 0
        return parts

    def _fresh_tokens(self, parts: Sequence[_Part], room: int) -> int:
        """Returns the tokens to be left for the texts of new segments."""
        fresh = sum(part.raw_tokens for part in parts if part.text is None)
        return int(min(_FRESH_SHARE * room, _MOST_TOLD * fresh))

    def _parent(self, group: Sequence[_Part]) -> _Part:
        handle = handle_of(
            Spot(spot_of(group[0].handles[0]).level + 1, spot_of(group[0].handles[0]).ordinal // FAN)
        )
        key = _digest("parent", *(one.text if one.text is not None else one.key for one in group))
        parent = _Part((handle,), join_runs(one.runs for one in group), self._known.find_text(key), key)
        parent.raw_tokens = sum(one.raw_tokens for one in group if one.text is None)
        parent.below = tuple(group)
        return self._weigh([parent])[0]

    def _count_fixed_tokens(self) -> int:
        return sum(part.fixed_tokens for part in self._parts)

    def _drop_text(self) -> bool:
        """Gives up the text of the oldest node that has one; returns False if there is none."""
        for part in self._parts:
            if part.text or part.notes:
                part.text, part.notes = part.text and "", ()
                return True
        return False

    # The lines of parts that have no text yet.

    def _numbers_of_sources(self) -> NDArray[np.int32]:
        """For each source, the number of its message; inside a handoff, the number that stands there."""
        index = self._transcript.index
        numbers = np.array(self._transcript.numbers, np.int32)[index.message_of_source]
        for source in np.flatnonzero(index.speakers == Speaker.HANDOFF).tolist():
            numbers[source] = self._number(source)
        return numbers

    def _parts_of_sources(self) -> NDArray[np.int32]:
        """Returns, for each source, the place of the part that its message is below; -1 if there is none."""
        # The runs of all parts in order, after one that no number is in, so that every number has a run
        # before it.
        runs = sorted((*run, place) for place, part in enumerate(self._parts) for run in part.runs)
        firsts, lasts, places = (np.array(column, np.int64) for column in zip((0, 0, -1), *runs, strict=True))
        nearest = np.searchsorted(firsts, self._number_of_source, side="right") - 1
        inside = self._number_of_source <= lasts[nearest]
        return np.where(inside, places[nearest], -1).astype(np.int32)

    def _shut(self, choice: ExcerptChoice, beside: Surroundings) -> Flags:
        """For each source, True if its lines stand already, in the view or in a node with a text."""
        index = self._transcript.index
        # One row per part, and one more that the -1 of a source without a part leads to.
        written = np.array([part.text is not None for part in self._parts] + [False], np.bool_)
        in_written: Flags = written[self._part_of_source]
        for source in np.flatnonzero(in_written & (index.speakers == Speaker.HANDOFF)).tolist():
            choice.cover(index.sources[source].distinct)
        found = [part.text for part in self._parts if part.key and part.text]
        choice.cover(index.vocabulary.find_known(found))
        notes = [entry.text for part in self._parts for entry in part.notes]
        choice.cover(index.vocabulary.find_known(notes), bare=True)
        return in_written | self._are_of(beside.kept_verbatim)

    def _tell_parents(self, choice: ExcerptChoice, shut: Flags) -> None:
        """Chooses the lines of nodes that replace others, each within its share of the room that those took."""
        index = self._transcript.index
        for place, part in enumerate(self._parts):
            if part.text is None and not part.is_new:
                mine = ~shut & (self._part_of_source == place)
                choice.fill(mine[index.source_of], choice.tokens + part.told_tokens)
                shut |= mine

    # The text.

    def _render(self, entries: Sequence[HandoffEntry], choice: ExcerptChoice) -> str:
        nodes, loose = self._lay_out(choice)
        sections = render_handoff([*entries, *loose])
        return "\n".join(filter(None, [render_outline(nodes), sections]))

    def _lay_out(self, choice: ExcerptChoice) -> tuple[list[Node], list[HandoffEntry]]:
        """Returns the nodes with their texts, and the lines of messages that stay, but not whole."""
        index = self._transcript.index
        chosen: dict[int, dict[tuple[int, str], list[int]]] = {}
        for number in sorted(choice.chosen):
            source = int(index.source_of[number])
            place = int(self._part_of_source[source])
            chosen.setdefault(place, {}).setdefault(self._heading(source), []).append(number)
        lines = {
            place: {heading: join_excerpts(index, numbers) for heading, numbers in some.items()}
            for place, some in chosen.items()
        }
        nodes = [
            part.node(_text_of(part.notes, lines.get(place, {})) if part.text is None else None)
            for place, part in enumerate(self._parts)
        ]
        loose = [
            HandoffEntry(HandoffSection.CONTEXT, number, text, label)
            for (number, label), text in sorted(lines.get(-1, {}).items())
        ]
        return nodes, loose

    def _all_nodes(
        self, everything: Sequence[_Part], as_told: Mapping[tuple[int, ...], Node], choice: ExcerptChoice
    ) -> tuple[Node, ...]:
        """Returns the nodes in the outline, and all that they replaced; none has lost its text."""
        nodes, _ = self._lay_out(choice)
        nodes = [node if node.text else as_told.get(node.handles, node) for node in nodes]
        shown = {handle for part in self._parts for handle in part.handles}
        below = [one for part in self._parts for one in _all_below(part)]
        replaced = {one.handles: one for one in (*everything, *below) if not shown.intersection(one.handles)}
        return (*nodes, *(as_told.get(handles, one.node()) for handles, one in replaced.items()))


def _all_below(part: _Part) -> Iterable[_Part]:
    for one in part.below:
        yield one
        yield from _all_below(one)


def _next_groups(parts: Sequence[_Part]) -> list[int]:
    """Returns the places of the next parts that give way to their parents, on the lowest level that has any.

    Leaves do so by and by, the oldest first. A higher level does all at once: then it is let alone for long,
    and what is before it stays as it is. New segments give way only where nothing else is left.
    """
    groups = [
        (parts[start].is_new, level, start)
        for start in range(len(parts))
        if (level := _level_of_group(parts, start)) is not None
    ]
    if not groups:
        return []
    first = min(groups)
    return [start for *kind, start in groups if kind == [*first[:2]]] if first[1] else [first[2]]


def _level_of_group(parts: Sequence[_Part], start: int) -> int | None:
    """Returns the level of the parts from `start` on, if all that have the same parent stand there."""
    group = parts[start : start + FAN]
    if len(group) < FAN or any(len(part.handles) > 1 for part in group):
        return None
    level, ordinal = spot_of(group[0].handles[0])
    parent = handle_of(Spot(level + 1, ordinal // FAN))
    return level if children_of(parent) == tuple(part.handles[0] for part in group) else None


def _text_of(notes: Sequence[HandoffEntry], lines: Mapping[tuple[int, str], str]) -> str:
    """Returns the text of a node: a model's notes, then the lines of its messages, in their order."""
    told = [_render_notes(notes)] if notes else []
    for (number, label), text in sorted(lines.items()):
        told += [header_of(number, label), escape(text)]
    return "\n".join(told)


def _render_notes(notes: Iterable[HandoffEntry]) -> str:
    return "\n".join(
        f"- {f'{name_message(note.number)} ' if note.number else ''}{' '.join(note.text.split())}"
        for note in notes
    )


def _digest(*texts: str) -> str:
    return hashlib.blake2b("\x00".join(texts).encode(errors="surrogatepass"), digest_size=16).hexdigest()
