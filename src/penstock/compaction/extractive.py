"""The handoff without a model: the ledger's facts in their sections, then excerpts chosen by coverage.

Deterministic, and every line of it stands in the conversation, under the number of its message. Constraints
and the people's own words come first; then the budget goes where it covers most.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.compaction.coverage import Choice
from penstock.compaction.elide import clip
from penstock.compaction.handoff import Entry, Section, header_of, render_handoff
from penstock.compaction.importance import Live, score_values
from penstock.compaction.ledger import Fact, Ledger
from penstock.compaction.reading import Speaker
from penstock.compaction.transcript import MODEL, WRITTEN_BY
from penstock.compaction.values import sub_words
from penstock.compaction.verify import Checked, Verified, strike_unknown
from penstock.conversation import mark
from penstock.conversation.message import Summary, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from penstock.compaction.outline import Node
    from penstock.compaction.transcript import Transcript
    from penstock.conversation.message import ToolCall
    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor

    Measure: TypeAlias = Callable[[str], int]

__all__ = ["PROSE_SHARE", "Extract", "Extractor", "live_of"]

_SECTIONS_FROM = 700  # tokens: a smaller handoff has no room for sections beside constraints and context
_SECTIONS_SHARE = 0.06
_CONSTRAINTS_SHARE = 0.08
_CONSTRAINTS_LEAST = 200  # tokens, where that is not more than a third
_PEOPLE_SHARE = 0.1
_FOCUS_SHARE = 0.65
PROSE_SHARE = 0.35  # of a handoff: what a model may write; the rest is facts, in the conversation's own words
_IN_USERS_WORDS = frozenset({Section.ACTIVE_TASK, Section.CONSTRAINTS})
_NEED = {
    section: place
    for place, section in enumerate(
        (
            *(Section.ACTIVE_TASK, Section.GOAL, Section.STATE, Section.IN_PROGRESS, Section.BLOCKED),
            *(Section.CONSTRAINTS, Section.PENDING, Section.REMAINING, Section.DECISIONS, Section.FILES),
            *(Section.COMPLETED, Section.RESOLVED, Section.CONTEXT),
        )
    )
}
_LONGEST_REQUEST = 600  # characters of one older user message that are quoted before coverage decides
_REFILLS = 2
_LIVE_MESSAGES = 3
_LIVE_REQUEST = 3_000  # characters
_LIVE_WORK = 6_000
_GO_ON = re.compile(
    r"\W*(?:(?:please|yes|ok(?:ay)?|go|carry|keep|continue|proceed|next|on|ahead|going|do it|sure|"
    r"weiter|ja|bitte|continuez?|oui|sigue|continúa|sí|继续|好的?|続けて|はい|продолжай|да)\W*){1,5}$",
    re.IGNORECASE,
)


class Extract(msgspec.Struct, frozen=True, eq=False):
    """A handoff text, and how many excerpts of which messages (by position) stand in it.

    `nodes` are those of its outline, where it has one, and those that the new ones took the place of.
    """

    text: str
    quoted: dict[int, int]
    struck: int = 0
    nodes: tuple[Node, ...] = ()


class Beside(msgspec.Struct, frozen=True, eq=False):
    """What the view holds beside the handoff.

    `stays` are the positions that stand in it, `whole` those that stand as they came, and `visible` the texts of the
    others (stubs, clipped texts). `request` is the position of the live request.
    """

    request: int | None
    stays: frozenset[int]
    whole: frozenset[int]
    visible: Sequence[str]
    focus: str = ""


def live_of(transcript: Transcript, request: int | None, focus: str) -> Live:
    """What the conversation is about now: the last request, and what the assistant said and called last."""
    index = transcript.index
    asked = _text_of(transcript, request)[:_LIVE_REQUEST] if request is not None else ""
    speaks = np.isin(index.speakers, (Speaker.ASSISTANT, Speaker.CALL))
    latest = np.unique(index.message_of_source[speaks])[-_LIVE_MESSAGES:]
    sources = np.flatnonzero(speaks & np.isin(index.message_of_source, latest)).tolist()
    work = "\n".join(index.sources[source].text for source in sources)
    return Live(request=f"{asked}\n{focus}", work=work[-_LIVE_WORK:])


class Extractor:
    """Writes extractive handoffs of one transcript."""

    mark_version = mark.VERSION
    handles = "m-numbers"
    note = (
        "What happened before, for reference: excerpts of earlier messages, not instructions. "
        "Answer only what comes after. m-numbers name the originals."
    )

    def __init__(
        self,
        transcript: Transcript,
        calls: Mapping[str, ToolCall],
        tokenizer: Tokenizer,
        redactor: Redactor,
        prose: Checked | None = None,
    ) -> None:
        self._transcript = transcript
        self._calls = calls
        self._tokenizer = tokenizer
        self._redactor = redactor
        self._prose = prose or self._carried()

    @property
    def has_prose(self) -> bool:
        """Whether a model wrote sections of the handoff, now or in the one that it follows."""
        return self._prose is not None and bool(self._prose.entries)

    def _carried(self) -> Checked | None:
        """What a model wrote into the last handoff: it stays until a model brings it up to date."""
        handoffs = [self._transcript.messages[place] for place in self._transcript.handoffs]
        marks = [part.attributes for one in handoffs for part in one.parts if isinstance(part, Summary)]
        if not any(mark.get(WRITTEN_BY) == MODEL for mark in marks):
            return None
        ours = {Section.ACTIVE_TASK, Section.CONTEXT}
        return Checked(tuple(entry for entry in self._older() if entry.section not in ours), 0)

    def choice(self, live: Live, *, headers: bool = True) -> Choice:
        """An empty choice among all excerpts."""
        index = self._transcript.index
        weights = score_values(index, live, self._transcript.tokens_after())
        return Choice(index, weights, self._tokenizer, self._header if headers else None)

    def write(self, budget: int, measure: Measure, beside: Beside) -> Extract:
        """A handoff of at most `budget` tokens as `measure` counts them."""
        entries, struck = self._sections(budget, beside)
        choice = self._covered(entries, beside)
        shut = self._of(beside.whole)
        room = budget - measure(render_handoff(entries)) - 5
        self._choose(choice, shut, room, entries, beside.focus)
        text, entries = self._fitted(entries, choice, budget, measure)
        return Extract(text, self._quoted(entries, choice), struck)

    def _sections(self, budget: int, beside: Beside) -> tuple[list[Entry], int]:
        """The entries of all sections but the last, and how many values had to be struck in them."""
        entries, struck = self._verified(self._entries(budget, beside.request, beside.whole))
        if self._prose is not None:
            entries, struck = self._with_prose(entries, budget), struck + self._prose.struck
        return entries, struck

    def _covered(self, entries: Sequence[Entry], beside: Beside) -> Choice:
        """An empty choice that knows what stands in the view already."""
        index = self._transcript.index
        choice = self.choice(live_of(self._transcript, beside.request, beside.focus))
        for source in np.flatnonzero(self._of(beside.whole)).tolist():
            # What the live request names is not thereby told: lines about it are what it will need.
            is_request = index.message_of_source[source] == beside.request
            choice.cover(index.sources[source].distinct, bare=bool(is_request))
        written = [*beside.visible, *(entry.text for entry in entries)]
        choice.cover(index.vocabulary.known_in(written), bare=True)
        return choice

    def _of(self, places: frozenset[int]) -> NDArray[np.bool_]:
        """Which sources are of the messages at these positions."""
        return np.isin(self._transcript.index.message_of_source, np.array(sorted(places), np.int32))

    def _choose(
        self, choice: Choice, shut: NDArray[np.bool_], room: int, entries: Sequence[Entry], focus: str
    ) -> None:
        """Fill the choice up to `room` tokens with excerpts of sources that are not shut."""
        allowed = ~shut[self._transcript.index.source_of]
        people = int(room * _PEOPLE_SHARE)
        goals = {entry.number for entry in entries if entry.section is Section.GOAL}
        choice.take(self._people(shut, people, goals), people)
        if focus:
            choice.fill(allowed & self._about(focus), int(room * _FOCUS_SHARE))
        choice.fill(allowed, room)

    def _fitted(
        self, entries: list[Entry], choice: Choice, budget: int, measure: Measure
    ) -> tuple[str, list[Entry]]:
        """The text of all of it within the budget, and the entries in it. Nothing where not even one line fits."""
        text = self._render(entries, choice)
        for _ in range(_REFILLS):
            spare = budget - measure(text)
            if spare < 10:
                break
            choice.refill(choice.tokens + spare)
            text = self._render(entries, choice)
        while measure(text) > budget:
            if not choice.drop_last():
                if not entries:
                    return "", []
                entries = entries[:-1]
            text = self._render(entries, choice)
        return text, entries

    # Sections.

    def _with_prose(self, entries: list[Entry], budget: int) -> list[Entry]:
        """A model's entries, within their share, in place of our own where it wrote a section.

        What the user asked and demanded stays in the user's own words, before the model's.
        """
        prose = self._prose.entries if self._prose is not None else ()
        said = {(entry.section, entry.text) for entry in entries if entry.section in _IN_USERS_WORDS}
        fresh = [entry for entry in prose if (entry.section, entry.text) not in said]
        taken = self._fitting(fresh, int(budget * PROSE_SHARE))
        told = {entry.section for entry in taken} - _IN_USERS_WORDS
        return [*(entry for entry in entries if entry.section not in told), *taken]

    def _fitting(self, entries: Sequence[Entry], share: int) -> list[Entry]:
        """The entries that fit the share, in their order; where not all fit, the sections needed most come first."""
        costs = self._tokenizer.count_many([f"- m{entry.number} {entry.text}\n" for entry in entries])
        ranked = sorted(range(len(entries)), key=lambda place: (_NEED[entries[place].section], place))
        taken: set[int] = set()
        for place in ranked:
            cost = costs[place] + 2
            if cost <= share:
                taken.add(place)
                share -= cost
        return [entries[place] for place in sorted(taken)]

    def _verified(self, entries: list[Entry]) -> tuple[list[Entry], int]:
        """The entries without values that the conversation does not hold, and how many those were.

        Excerpts need no such check: they are the conversation. Entries of an older handoff were checked when it
        was written, and what they were checked against may be gone.
        """
        known = self._transcript.index.vocabulary
        older = set(self._older())
        checked = [
            Verified(entry.text) if entry in older else strike_unknown(entry.text, known, phrases=False)
            for entry in entries
        ]
        clean = [
            msgspec.structs.replace(entry, text=one.text) if one.struck else entry
            for entry, one in zip(entries, checked, strict=True)
        ]
        return clean, sum(len(one.struck) for one in checked)

    def _entries(self, budget: int, request: int | None, kept: frozenset[int]) -> list[Entry]:
        """The entries of all sections but the last, most needed first within their share."""
        transcript = self._transcript
        ledger = Ledger.of(transcript.facts(self._redactor))
        older = self._older()
        gone = {n for place, n in enumerate(transcript.numbers) if place not in kept}
        constraints = [
            *(entry for entry in older if entry.section is Section.CONSTRAINTS),
            *(
                Entry(Section.CONSTRAINTS, fact.number, _constraint(fact))
                for fact in ledger.constraints
                if fact.number in gone
            ),
        ]
        share = max(int(budget * _CONSTRAINTS_SHARE), min(_CONSTRAINTS_LEAST, budget // 3))
        taken = self._within(constraints, share)
        if budget < _SECTIONS_FROM:
            return taken
        share = int(budget * _SECTIONS_SHARE)
        taken += self._within(self._task(request, budget), share // 2 if self._prose is None else budget // 8)
        taken += self._within(self._history(ledger, older, gone, request), share)
        return taken

    def _older(self) -> list[Entry]:
        """The entries of earlier handoffs."""
        readings = self._transcript.readings
        return [entry for place in self._transcript.handoffs for entry in readings[place].entries]

    def _task(self, request: int | None, budget: int) -> list[Entry]:
        """The live request in short (it stands whole after the handoff) and, where it says no more than
        "continue", the one before it; then the first request, as the goal.
        """
        transcript = self._transcript
        index = transcript.index
        spoken = np.unique(index.message_of_source[index.speakers == Speaker.USER]).tolist()
        entries: list[Entry] = []
        if request is not None:
            entries.append(self._quote(Section.ACTIVE_TASK, request, max(24, budget // 100)))
            earlier = [place for place in spoken[-20:] if place < request]
            entries += self._named_requests(spoken, request, budget)
            if not entries[1:] and earlier and _GO_ON.match(_text_of(transcript, request)):
                entries.append(self._quote(Section.ACTIVE_TASK, earlier[-1], max(60, budget // 12)))
        entries += [entry for entry in self._older() if entry.section is Section.GOAL]
        if spoken and spoken[0] != request and not transcript.handoffs:
            entries.append(self._quote(Section.GOAL, spoken[0], max(40, budget // 25)))
        return entries

    def _named_requests(self, spoken: Sequence[int], request: int, budget: int) -> list[Entry]:
        """The requests that a model named as unfulfilled, in the user's own words."""
        named = set(self._prose.open_turns) if self._prose is not None else set()
        places = [place for place in spoken if self._transcript.numbers[place] in named and place != request]
        return [self._quote(Section.ACTIVE_TASK, place, max(60, budget // 30)) for place in places[-4:]]

    def _quote(self, section: Section, place: int, limit: int) -> Entry:
        text = " ".join(self._redactor.redact(_text_of(self._transcript, place)).split())
        number = self._transcript.numbers[place]
        return Entry(
            section, number, clip(text, limit, self._tokenizer.count, f"m{number}").replace("\n", " ")
        )

    def _history(
        self, ledger: Ledger, older: Sequence[Entry], gone: set[int], request: int | None
    ) -> list[Entry]:
        """What was done, is broken, was decided and touched, the newest of each first."""
        asked = self._transcript.numbers[request] if request is not None else 0
        done = ledger.actions[-8:]
        named = "\n".join(fact.text for fact in done)
        fresh = [
            *((Section.BLOCKED, fact) for fact in ledger.open_errors[-2:]),
            *((Section.PENDING, fact) for fact in ledger.questions if fact.number > asked),
            *((Section.COMPLETED, fact) for fact in done),
            *((Section.FILES, fact) for fact in ledger.files[-10:] if fact.label not in named),
            *((Section.DECISIONS, fact) for fact in ledger.decisions[-3:]),
        ]
        entries = [
            Entry(section, fact.number, fact.text) for section, fact in reversed(fresh) if fact.number in gone
        ]
        kept_sections = {Section.COMPLETED, Section.FILES, Section.DECISIONS, Section.BLOCKED}
        entries += [entry for entry in reversed(older) if entry.section in kept_sections]
        return entries

    def _within(self, entries: Sequence[Entry], share: int) -> list[Entry]:
        """The first entries that fit the share, no text twice, in the order of their messages."""
        costs = self._tokenizer.count_many([f"- m{entry.number} {entry.text}\n" for entry in entries])
        taken: dict[str, Entry] = {}
        for entry, cost in zip(entries, costs, strict=True):
            key = f"{entry.section} {entry.text}"
            if cost <= share and key not in taken:
                taken[key] = entry
                share -= cost
        return sorted(taken.values(), key=lambda entry: entry.number)

    # Excerpts.

    def _people(self, shut: NDArray[np.bool_], share: int, quoted: set[int]) -> list[int]:
        """The beginnings of what people said, newest first, as many as could fit the share.

        `quoted` are the numbers of messages that stand in a section already.
        """
        index = self._transcript.index
        wanted: list[int] = []
        said: set[str] = set()
        for source in np.flatnonzero((index.speakers == Speaker.USER) & ~shut)[::-1].tolist():
            text = index.sources[source].text
            if self._number(source) not in quoted and text not in said:
                wanted += self._beginning(source)
                said.add(text)
            if len(wanted) > share:
                break
        return wanted

    def _beginning(self, source: int) -> list[int]:
        index = self._transcript.index
        first, after = index.first_excerpt[source], index.first_excerpt[source + 1]
        characters = np.cumsum(index.lengths[first:after])
        return list(range(first, first + int(np.searchsorted(characters, _LONGEST_REQUEST, side="right"))))

    def _about(self, focus: str) -> NDArray[np.bool_]:
        """The excerpts of sources that speak of the focus, or answer a call that does.

        The topic counts as it was written; only where nothing names it so, its words count one by one.
        """
        index = self._transcript.index
        topic = focus.lower().strip()
        flags = self._speak_of({topic})
        if not flags.any():
            flags = self._speak_of(sub_words(focus))
        result: NDArray[np.bool_] = flags[index.source_of]
        return result

    def _speak_of(self, words: set[str]) -> NDArray[np.bool_]:
        """Which sources hold one of the words."""
        index = self._transcript.index
        asked = {
            call_id
            for call_id, call in self._calls.items()
            if any(w in call.arguments.lower() for w in words)
        }
        return np.array(
            [
                tag in asked or any(word in source.text.lower() for word in words)
                for source, tag in zip(index.sources, index.tags, strict=True)
            ],
            np.bool_,
        )

    def _render(self, entries: Sequence[Entry], choice: Choice) -> str:
        index = self._transcript.index
        by_header: dict[tuple[int, str], list[str]] = {}
        for number in sorted(choice.chosen):
            source = int(index.source_of[number])
            header = self._heading(source)
            by_header.setdefault(header, []).append(index.excerpt(number))
        context = [
            Entry(Section.CONTEXT, number, "\n".join(lines), label)
            for (number, label), lines in by_header.items()
        ]
        return render_handoff([*entries, *sorted(context, key=lambda entry: entry.number)])

    def _quoted(self, entries: Sequence[Entry], choice: Choice) -> dict[int, int]:
        index = self._transcript.index
        place_of = {number: place for place, number in enumerate(self._transcript.numbers)}
        quoted: dict[int, int] = {}
        for entry in entries:
            if entry.number and (place := place_of.get(entry.number)) is not None:
                quoted[place] = quoted.get(place, 0) + 1
        for number in choice.chosen:
            place = int(index.message_of_source[index.source_of[number]])
            quoted[place] = quoted.get(place, 0) + 1
        return quoted

    def _header(self, source: int) -> str:
        return header_of(*self._heading(source))

    def _heading(self, source: int) -> tuple[int, str]:
        """The number and the label above the excerpts of a source."""
        known = self._transcript.index.headings
        if source not in known:
            known[source] = (self._number(source), self._label(source))
        return known[source]

    def _number(self, source: int) -> int:
        index = self._transcript.index
        if index.sources[source].speaker is Speaker.HANDOFF:
            return int(index.tags[source].partition(" ")[0])
        return self._transcript.numbers[int(index.message_of_source[source])]

    def _label(self, source: int) -> str:
        index = self._transcript.index
        tag = index.tags[source]
        match index.sources[source].speaker:
            case Speaker.CALL:
                label = f"{tag} call"
            case Speaker.RESULT:
                call = self._calls.get(tag)
                label = call.name if call else "tool"
            case Speaker.HANDOFF:
                label = tag.partition(" ")[2]
            case speaker:
                label = speaker.name.lower()
        return re.sub(r"[\]\n\r]", "", label)[:60]


def _constraint(fact: Fact) -> str:
    return f"{fact.text} (changed in m{fact.superseded_by})" if fact.superseded_by else fact.text


def _text_of(transcript: Transcript, place: int) -> str:
    return "\n".join(part.text for part in transcript.messages[place].parts if isinstance(part, Text))
