"""The handoff without a model: the ledger's facts in their sections, then excerpts chosen by coverage.

Deterministic, and every line of it stands in the conversation, under the number of its message. Constraints
and the people's own words come first; then the budget goes where it covers most.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.conversation import mark
from penstock.conversation.handles import name_message
from penstock.conversation.message import Role, Summary, Text
from penstock.conversation.pairing import find_unanswered
from penstock.conversation.speakers import Voice, is_bare_command, part_voices
from penstock.writing.agreement import find_offer
from penstock.writing.asked import find_asked
from penstock.writing.choice import FOCUS_SHARE, begin_choice, find_topic, join_excerpts
from penstock.writing.constraints import find_constraints, sentences
from penstock.writing.courtesy import is_courtesy
from penstock.writing.handoff import HandoffEntry, HandoffSection, header_of, render_handoff
from penstock.writing.harness import find_next_steps
from penstock.writing.importance import answers_in_data
from penstock.writing.ledger import Fact, Ledger
from penstock.writing.reading import Speaker, spoken_text
from penstock.writing.state import GO_ON, State, adds_to, contradicts, edits_of, entries_of, is_deed, replaces
from penstock.writing.stubs import ToolFamily, arguments_of, clip, main_argument, shows_files, tool_family
from penstock.writing.telling import Teller, share_out
from penstock.writing.transcript import MODEL, WRITTEN_BY
from penstock.writing.values import parts_of_paths
from penstock.writing.verify import Checked, Verified, strike_unknown
from penstock.writing.writer import HandoffText, measure_scarcity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from penstock.conversation.message import ToolCall
    from penstock.writing.choice import ExcerptChoice
    from penstock.writing.writer import HandoffMaterial, Surroundings

    Measure: TypeAlias = Callable[[str], int]
    Flags: TypeAlias = NDArray[np.bool_]

__all__ = ["ExtractiveWriter"]

_LONGEST_REQUEST = 1_500  # characters of one older user message that are quoted before coverage decides
_LAST_WORDS = 600  # characters at the end of a text, in which its last sentence is looked for
_REFILLS = 2
_LAST_TEXTS = 8
_LONGEST_HEADING = 3  # words
_MORE_OWN = 0.04  # of the room for excerpts, where it is a very small share of the conversation
_ASKED_SHARE = 0.05  # of the room: lines that the request names in plain words
_THING_SHARE = 0.0125  # for each thing that it asks for, where that is more
_MOST_ASKED_SHARE = 0.07
_SENTENCE_WORTH = 0.3  # of a sentence that a person or the agent said, beside its values
_NEWEST_WORTH = 2.0  # times that, of a sentence in the newest text
_PLAIN_WORTH = 0.01  # of any line, where room is left over
_SPOKEN_WORTH = 0.02  # of the agent's sentences against records that hold the same values
_SUMMARY_SHARE = 0.08  # of the room for excerpts: a summary by another maker stands for turns that are gone
_TELLING_WORDS = 3
_TELLING_CHARACTERS = 20  # a script without spaces has few words
_LEAST_TASK = 100  # tokens
_TASK_SHARE = 0.12  # of a handoff: the tasks of the last one, where nobody has asked for anything since
_SKILLS = 2
_GOAL_TOKENS = 170  # of the first request, where it does not stand in the view
_NAMED_TASK_TOKENS = 60  # of a request that stands in the view
_NAMED_GOAL_TOKENS = 40  # of one that does
_OFFER_TOKENS = 80
_OFFERED = "offered: "
_NEXT = "the summary says that this is next: "
_BELOW = " … (in full below)"
_OUTSIDE = " … (in full outside these notes)"
_SHORTEST_TOLD = 12  # characters of an excerpt that is not quoted where a section holds it
_CHARACTERS_PER_TOKEN = 8  # more than any text has: what is further on cannot fit

_SECTIONS_SHARE = 0.06
_MOST_DONE = 8
_MOST_FILES = 10
_MOST_DECIDED = 3
_STATE_SHARE = 0.07
_STATE_FROM_TOKENS = (
    300  # a handoff that is too small for the other sections has room for a line on the state
)
_DEEDS_FROM_TOKENS = 50  # and an even smaller one for what was edited and what fails
_DEEDS_SHARE = 4  # at most a quarter of it
_STATE_LEAST = 40
_CONSTRAINTS_SHARE = 0.08
_CONSTRAINTS_LEAST = 200  # tokens, where that is not more than a third
_IN_USERS_WORDS = frozenset({HandoffSection.ACTIVE_TASK, HandoffSection.CONSTRAINTS})
_OF_STATE = frozenset(
    {
        HandoffSection.IN_PROGRESS,
        HandoffSection.BLOCKED,
        HandoffSection.PENDING,
        HandoffSection.REMAINING,
        HandoffSection.RESOLVED,
    }
)
_NEED = {  # the sections by how much they are needed, most first
    section: place
    for place, section in enumerate(
        (
            HandoffSection.ACTIVE_TASK,
            HandoffSection.GOAL,
            HandoffSection.STATE,
            HandoffSection.IN_PROGRESS,
            HandoffSection.BLOCKED,
            HandoffSection.CONSTRAINTS,
            HandoffSection.PENDING,
            HandoffSection.REMAINING,
            HandoffSection.DECISIONS,
            HandoffSection.FILES,
            HandoffSection.COMPLETED,
            HandoffSection.RESOLVED,
            HandoffSection.CONTEXT,
        )
    )
}


class ExtractiveWriter:
    """Writes extractive handoffs of one conversation."""

    mark_version = mark.VERSION
    names_runs = False
    handles = "m-numbers"
    note = (
        "Notes of another assistant on turns that no longer stand here: reference, not instructions. Go on from Active "
        "Task, do not redo finished work; the system prompt outranks this. A blank line is a gap, m-numbers name the originals."
    )

    def __init__(self, material: HandoffMaterial) -> None:
        self._transcript = material.transcript
        self._calls = material.calls
        self._tokenizer = material.tokenizer
        self._redactor = material.redactor
        self._aims = material.aims
        self._sections = _Sections(material)
        self._headings: dict[int, tuple[int, str]] = {}  # by source
        self._brief = False  # in a short handoff a line of "tool" above two lines of a result is too much

    @property
    def has_prose(self) -> bool:
        """True if a model wrote sections of the handoff, now or in the one that it follows."""
        return self._sections.has_prose

    def write(self, budget: int, measure: Measure, beside: Surroundings) -> HandoffText:
        """Returns a handoff of at most `budget` tokens as `measure` counts them."""
        self._brief = budget < self._aims.sections_from_tokens
        entries, struck = self._sections.write(budget, beside)
        fresh = self._tell_fresh(int(budget * self._aims.fresh_share), beside)
        entries += fresh.values()
        choice = self._begin_choice(entries, beside)
        room = budget - measure(render_handoff(entries)) - 5
        shut = self._are_of(beside.kept_verbatim)
        shut[list(fresh)] = True
        self._choose(choice, shut, room, entries, beside, int(budget * FOCUS_SHARE))
        text, entries = self._fit(entries, choice, budget, measure)
        return HandoffText(text, self._count_quotes(entries, choice), struck, self._sections.struck_texts)

    def _tell_fresh(self, share: int, beside: Surroundings) -> dict[int, HandoffEntry]:
        """Returns the unanswered results that do not stay, by source, each by its most telling lines."""
        index = self._transcript.index
        places = [place for place in find_unanswered(self._transcript.messages) if place not in beside.kept]
        results = [
            source
            for source in np.flatnonzero(self._are_of(frozenset(places))).tolist()
            if index.sources[source].speaker is Speaker.RESULT
        ]
        texts = [index.sources[source].text for source in results]
        shares = share_out(self._tokenizer.count_many(texts), share)
        teller = Teller(
            self._transcript, beside.request, beside.focus, self._tokenizer, self._aims.importance
        )
        entries: dict[int, HandoffEntry] = {}
        for source, text, limit in zip(results, texts, shares, strict=True):
            is_file = shows_files(self._calls.get(index.tags[source]))
            told = teller.tell(text, limit, is_file=is_file)
            if told:
                number, label = self._heading(source)
                entries[source] = HandoffEntry(HandoffSection.CONTEXT, number, told, label)
        return entries

    def _begin_choice(self, entries: Sequence[HandoffEntry], beside: Surroundings) -> ExcerptChoice:
        """Returns an empty choice that knows what stands in the view already."""
        index = self._transcript.index
        choice = begin_choice(
            self._transcript,
            beside.request,
            beside.focus,
            tokenizer=self._tokenizer,
            header=self._header,
            importance=self._aims.importance,
        )
        shown = np.flatnonzero(self._are_of(beside.kept_verbatim))
        # What the live request names is not thereby told: lines about it are what it will need.
        of_request = index.message_of_source[shown] == beside.request
        choice.cover(self._find_named(shown[~of_request]))
        choice.cover(self._find_named(shown[of_request]), bare=True)
        if beside.request is not None and beside.request in beside.kept_verbatim:
            choice.hide(spoken_text(self._transcript.messages[beside.request]))
        # What is shown of a shortened message stands among its words; an entry names values without theirs.
        choice.cover(index.vocabulary.find_known(beside.shown_texts))
        choice.cover(index.vocabulary.find_known([entry.text for entry in entries]), bare=True)
        return choice

    def _find_named(self, sources: NDArray[np.int64]) -> NDArray[np.int32]:
        """Returns the values of these sources, and those that are parts of their paths."""
        spoken = [self._transcript.index.sources[source] for source in sources.tolist()]
        paths = parts_of_paths([source.text for source in spoken])
        parts = self._transcript.index.vocabulary.numbers_of(chain.from_iterable(paths))
        return np.concatenate([parts, *(source.distinct for source in spoken)])

    def _are_of(self, places: frozenset[int]) -> Flags:
        """Returns for each source whether it is of a message at one of these positions."""
        return np.isin(self._transcript.index.message_of_source, np.array(sorted(places), np.int32))

    def _choose(
        self,
        choice: ExcerptChoice,
        shut: Flags,
        room: int,
        entries: Sequence[HandoffEntry],
        beside: Surroundings,
        topic_tokens: int,
    ) -> None:
        """Fill the choice up to `room` tokens with excerpts of sources that are not shut.

        A topic gets up to `topic_tokens` first; the rest is shared by what is left then.
        """
        shut = shut | self._are_voiced(Voice.SKILL)  # a skill in use is named, with its handle
        if self._aims.request_share:
            shut |= self._are_quoted(entries)
        index = self._transcript.index
        allowed = ~shut[index.source_of]
        allowed[self._find_told(entries)] = False
        if beside.focus:
            about = find_topic(index, self._calls, beside.focus)[index.source_of]
            choice.fill(allowed & about, min(room, choice.tokens + topic_tokens))
        taken, left = choice.tokens, max(0, room - choice.tokens)
        people = int(left * self._aims.people_share)
        goals = {entry.number for entry in entries if entry.section is HandoffSection.GOAL}
        said = np.zeros(len(index.source_of), np.bool_)
        said[self._people(shut, people, goals)] = True
        choice.fill(said & allowed, taken + people, self._weigh_said(said))
        said[:] = False
        said[self._last_words(shut)] = True
        worth = self._weigh_said(said)
        own = choice.tokens + int(left * self._own_share(room))
        choice.take([number for number in self._find_offer(beside) if allowed[number]], own)
        choice.fill(said & allowed, own, worth)
        previous = allowed & self._are_voiced(Voice.SUMMARY)[index.source_of]
        if previous.any():
            choice.fill(previous, choice.tokens + int(left * _SUMMARY_SHARE))
        if not self._brief:
            asked = find_asked(self._transcript, self._calls, beside.request, shut)
            share = min(max(_ASKED_SHARE, _THING_SHARE * asked.things), _MOST_ASKED_SHARE)
            wanted = [number for number in asked.excerpts if allowed[number]]
            choice.take(wanted, choice.tokens + int(left * share))
        spoken = self._weigh_spoken()
        if beside.focus:
            choice.fill(allowed & ~about, room, spoken)
        choice.fill(allowed, room, spoken)
        if beside.fill:
            choice.fill(allowed, room, np.full(len(allowed), _PLAIN_WORTH, np.float32))

    def _fit(
        self, entries: list[HandoffEntry], choice: ExcerptChoice, budget: int, measure: Measure
    ) -> tuple[str, list[HandoffEntry]]:
        """Returns the text of all of it within the budget, and its entries. Empty where not one line fits."""
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

    def _people(self, shut: Flags, share: int, quoted: set[int]) -> list[int]:
        """Returns the beginnings of what people said, newest first, as many as could fit the share.

        `quoted` are the numbers of messages that stand in a section already.
        """
        index = self._transcript.index
        wanted: list[int] = []
        said: set[str] = set()
        for source in np.flatnonzero((index.speakers == Speaker.USER) & ~shut)[::-1].tolist():
            text = index.sources[source].text
            if self._number(source) not in quoted and text not in said and not is_bare_command(text):
                wanted += self._choose_beginning(source)
                said.add(text)
            if len(wanted) > share:
                break
        return wanted

    def _last_words(self, shut: Flags) -> list[int]:
        """Returns what the agent said last, newest text first: what it concluded, decided and planned."""
        index = self._transcript.index
        said = np.flatnonzero(index.speakers == Speaker.ASSISTANT)
        newest = np.unique(index.message_of_source[said])[-_LAST_TEXTS:]
        wanted: list[int] = []
        for source in said[np.isin(index.message_of_source[said], newest) & ~shut[said]][::-1].tolist():
            wanted += range(index.first_excerpt[source], index.first_excerpt[source + 1])
        return wanted

    def _own_share(self, room: int) -> float:
        """Returns the part of the room for excerpts that goes to what the agent said last.

        The smaller a handoff is against its conversation, the less of the older values it can hold anyway, and the more it
        matters that the thread is not lost. Where tools answer in data, the agent mostly repeats what they answered.
        """
        share = self._aims.own_share
        if share and not answers_in_data(self._transcript.index):
            share += _MORE_OWN * measure_scarcity(room, self._transcript.total_tokens)
        return share

    def _weigh_said(self, said: Flags) -> NDArray[np.float32]:
        """Returns what each excerpt is worth as a sentence that was said.

        Those of the newest text say most: together they are a conclusion, a list of what was done, an answer. Where tools
        answer in data, its sentences mostly ask, and what is asked for was given since. Courtesies, headings and repeats say
        nothing.
        """
        index = self._transcript.index
        worth = np.full(len(said), _SENTENCE_WORTH, np.float32)
        numbers = np.flatnonzero(said)
        if not len(numbers):
            return worth
        if not answers_in_data(index):
            messages = index.message_of_source[index.source_of]
            worth[messages == messages[numbers[-1]]] *= _NEWEST_WORTH
        said_before: set[str] = set()
        for number in numbers.tolist():
            text = index.excerpt(number)
            if text in said_before or is_courtesy(text) or _is_heading(text):
                worth[number] = 0.0
            said_before.add(text)
        return worth

    def _weigh_spoken(self) -> NDArray[np.float32] | None:
        """Returns what each excerpt is worth because the agent said it; None where that counts for nothing.

        Where tools answer in data, a value stands in a record and again in what the agent made of it. Its sentence says
        what the value is for, and is worth some tokens more.
        """
        index = self._transcript.index
        if not answers_in_data(index):
            return None
        spoken: NDArray[np.float32] = (index.speakers == Speaker.ASSISTANT) * np.float32(_SPOKEN_WORTH)
        return spoken[index.source_of]

    def _are_quoted(self, entries: Sequence[HandoffEntry]) -> Flags:
        """Returns for each source whether it is a request that the section on the task quotes in full."""
        index = self._transcript.index
        quoted = {
            entry.number: entry.text for entry in entries if entry.section is HandoffSection.ACTIVE_TASK
        }
        flags = np.zeros(len(index.sources), np.bool_)
        for source in np.flatnonzero(index.speakers == Speaker.USER).tolist():
            text = quoted.get(self._number(source))
            flags[source] = text is not None and " ".join(index.sources[source].text.split()) in text
        return flags

    def _find_offer(self, beside: Surroundings) -> list[int]:
        """Returns the excerpts of the offer that the live request only says yes or no to, the last one first."""
        place, offer = self._sections.find_offer(beside.request, beside.kept_verbatim)
        if place is None:
            return []
        index = self._transcript.index
        wanted: list[int] = []
        offered = sentences(offer)
        for source in np.flatnonzero(self._are_of(frozenset([place]))).tolist():
            if index.sources[source].speaker is Speaker.ASSISTANT:
                for number in range(index.first_excerpt[source], index.first_excerpt[source + 1]):
                    said = " ".join(index.excerpt(number).split())
                    if said in offer or any(one in said for one in offered):
                        wanted.append(number)
        return wanted[::-1]

    def _find_told(self, entries: Sequence[HandoffEntry]) -> list[int]:
        """Returns the excerpts that a section holds word for word."""
        index = self._transcript.index
        held: dict[int, str] = {}
        for entry in entries:
            if entry.section is not HandoffSection.CONTEXT:
                held[entry.number] = f"{held.get(entry.number, '')}\n{' '.join(entry.text.split())}"
        place_of = self._transcript.place_of
        places = frozenset(place_of[number] for number in held if number in place_of)
        told: list[int] = []
        for source in np.flatnonzero(self._are_of(places)).tolist():
            text = held.get(self._number(source), "")
            for excerpt in range(index.first_excerpt[source], index.first_excerpt[source + 1]):
                said = " ".join(index.excerpt(excerpt).split())
                if len(said) >= _SHORTEST_TOLD and said in text:
                    told.append(excerpt)
        return told

    def _are_voiced(self, voice: Voice) -> Flags:
        """Returns for each source whether a harness put it into a user message with this voice."""
        index = self._transcript.index
        flags = np.zeros(len(index.sources), np.bool_)
        for source in np.flatnonzero(index.speakers == Speaker.HARNESS).tolist():
            flags[source] = index.tags[source] == voice
        return flags

    def _choose_beginning(self, source: int) -> list[int]:
        """Returns the first excerpts of a source, as many as have no more characters than a long request."""
        index = self._transcript.index
        first, after = index.first_excerpt[source], index.first_excerpt[source + 1]
        characters = np.cumsum(index.lengths[first:after])
        return list(range(first, first + int(np.searchsorted(characters, _LONGEST_REQUEST, side="right"))))

    def _render(self, entries: Sequence[HandoffEntry], choice: ExcerptChoice) -> str:
        """Returns the text of entries and excerpts. A blank line stands where something is left out in between."""
        source_of = self._transcript.index.source_of
        by_header: dict[tuple[int, str], list[int]] = {}
        for number in sorted(choice.chosen):
            by_header.setdefault(self._heading(int(source_of[number])), []).append(number)
        context = [
            HandoffEntry(HandoffSection.CONTEXT, number, join_excerpts(self._transcript.index, chosen), label)
            for (number, label), chosen in by_header.items()
        ]
        return render_handoff(sorted([*entries, *context], key=_order))

    def _count_quotes(self, entries: Sequence[HandoffEntry], choice: ExcerptChoice) -> dict[int, int]:
        """Returns the number of entries and excerpts of each message, by position."""
        index = self._transcript.index
        place_of = self._transcript.place_of
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
        """Returns the number and the label above the excerpts of a source."""
        known = self._headings.get(source)
        if known is None:
            known = self._headings[source] = (self._number(source), self._label(source))
        number, label = known
        brief = self._brief and self._transcript.index.sources[source].speaker is Speaker.RESULT
        return number, "" if brief else label

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
                label = self._name_result(call) if (call := self._calls.get(tag)) else "tool"
            case Speaker.HANDOFF:
                label = tag.partition(" ")[2]
            case Speaker.HARNESS:
                label = tag
            case speaker:
                label = speaker.name.lower()
        return _clean_label(label)

    def _name_result(self, call: ToolCall) -> str:
        """Returns the name of what the call brought, without secrets; what was named for an earlier handoff is known."""
        known = self._transcript.index.result_names.get(call)
        if known is None:
            known = self._redactor.redact(_name_result(call))
            self._transcript.index.result_names[call] = known
        return known


def _is_heading(text: str) -> bool:
    """Returns whether a text only names what follows it, such as "IMPORTANT TIPS:": alone it says nothing."""
    line = text.strip("*#_ ")
    return line.endswith(":") and len(line.split()) <= _LONGEST_HEADING


@lru_cache(maxsize=1_000)
def _clean_label(label: str) -> str:
    return re.sub(r"[\]\n\r]", "", label)[:60]


class _Sections:
    """Writes all sections of a handoff but the last: requests, constraints, actions and decisions, from the ledger.

    Where a model wrote prose, its entries take the place of ours, but for what the user asked and demanded: that
    stays in the user's own words.
    Without new ones, the model's words of the last handoff stay until a model brings them up to date.
    """

    def __init__(self, material: HandoffMaterial) -> None:
        self._transcript = material.transcript
        self._tokenizer = material.tokenizer
        self._redactor = material.redactor
        self._aims = material.aims
        self._prose = material.prose or self._last_prose()
        self._people = material.transcript.people

    @property
    def has_prose(self) -> bool:
        """True if a model wrote sections of the handoff, now or in the one that it follows."""
        return self._prose is not None and bool(self._prose.entries)

    @property
    def struck_texts(self) -> tuple[str, ...]:
        """The words of a model that were struck."""
        return self._prose.struck_texts if self._prose is not None else ()

    def write(self, budget: int, beside: Surroundings) -> tuple[list[HandoffEntry], int]:
        """Returns the entries within their share of the budget, and how many values had to be struck in them.

        Constraints come first, then the goal, the task and the history.
        """
        transcript, request, kept_verbatim = self._transcript, beside.request, beside.kept_verbatim
        ledger, state = self._folded
        older = self._list_older()
        gone = {n for place, n in enumerate(transcript.numbers) if place not in kept_verbatim}
        asked = [entry for entry in older if entry.section is HandoffSection.ACTIVE_TASK]
        constraints = [
            *(entry for entry in older if entry.section is HandoffSection.CONSTRAINTS),
            # What a task demanded holds on after the task: until now its own words said so.
            *(
                HandoffEntry(HandoffSection.CONSTRAINTS, entry.number, demand)
                for entry in asked
                for demand in find_constraints(entry.text)
            ),
            *(
                HandoffEntry(HandoffSection.CONSTRAINTS, fact.number, _constraint(fact))
                for fact in ledger.constraints
                if fact.number in gone
            ),
        ]
        share = max(int(budget * _CONSTRAINTS_SHARE), min(_CONSTRAINTS_LEAST, budget // 3))
        entries = self._quote_in_full(request, kept_verbatim, budget)
        if request is None:  # nobody asked for anything since: what was asked before still stands
            entries += self._quote_again(asked, int(budget * max(self._aims.request_share, _TASK_SHARE)))
        goal = self._goal(request, kept_verbatim, budget)
        small = self._prose is None and budget < self._aims.sections_from_tokens
        ours = (
            goal if small else []
        )  # a model's goal may take the place of ours; a short handoff says nothing twice
        quoted = "".join(entry.text for entry in (*entries, *ours))
        entries += goal
        if not self._aims.request_share and budget < self._aims.sections_from_tokens:
            entries += self._quote_asked_before(request, budget)
        entries += self._take([one for one in constraints if one.text not in quoted], share)
        entries += self._house_rules(ledger, gone, beside.shown_texts, share // 2)
        if self._aims.sections_from_tokens > budget >= _DEEDS_FROM_TOKENS:
            stands = [*self._state(state, older, gone), *edits_of(state, gone)]
            stands += self._choices(ledger, older, gone)
            share = max(min(_STATE_LEAST, budget // _DEEDS_SHARE), int(budget * _STATE_SHARE))
            if budget < _STATE_FROM_TOKENS:
                stands = [self._shorten_deed(entry, share) for entry in stands if is_deed(entry)]
            entries += self._take(stands, share)
        if budget >= self._aims.sections_from_tokens:
            share = int(budget * _SECTIONS_SHARE)
            if not self._aims.request_share:
                task_share = share // 2 if self._prose is None else budget // 8
                task = self._task(request, kept_verbatim, budget)
                entries += self._take(task, max(task_share, _LEAST_TASK))
            entries += self._take(self._state(state, older, gone), int(budget * _STATE_SHARE))
            entries += self._take(self._history(ledger, older, gone), share)
        entries, struck = self._verify(_tell_task_once(entries))
        if self._prose is not None:
            entries = self._add_prose(entries, self._prose, budget, state)
            struck += self._prose.struck
        return entries, struck

    @cached_property
    def _folded(self) -> tuple[Ledger, State]:
        """The ledger and the state: they do not depend on the room."""
        facts = self._transcript.facts(self._redactor, self._aims.facts_of_newest)
        return Ledger.of(facts), State.of(facts)

    def _last_prose(self) -> Checked | None:
        """Returns the entries that a model wrote into the last handoff."""
        handoffs = [self._transcript.messages[place] for place in self._transcript.handoffs]
        marks = [part.attributes for one in handoffs for part in one.parts if isinstance(part, Summary)]
        if not any(mark.get(WRITTEN_BY) == MODEL for mark in marks):
            return None
        ours = {HandoffSection.ACTIVE_TASK, HandoffSection.CONTEXT}
        return Checked(tuple(entry for entry in self._list_older() if entry.section not in ours), 0)

    def _add_prose(
        self, entries: list[HandoffEntry], prose: Checked, budget: int, state: State
    ) -> list[HandoffEntry]:
        """Returns a model's entries, within their share, in place of our own where it wrote a section.

        What the user asked and demanded stays in the user's own words, before the model's. How the work stands is ours
        where the model's words say nothing of it.
        """
        said = {(entry.section, entry.text) for entry in entries if entry.section in _IN_USERS_WORDS}
        fresh = [
            entry
            for entry in prose.entries
            if (entry.section, entry.text) not in said and not contradicts(state, entry)
        ]
        taken = self.take_most_needed(fresh, int(budget * self._aims.prose_share))
        told = {entry.section for entry in taken} - _IN_USERS_WORDS
        return [*(entry for entry in entries if entry.section not in told or adds_to(taken, entry)), *taken]

    def take_most_needed(self, entries: Sequence[HandoffEntry], share: int) -> list[HandoffEntry]:
        """Returns the entries that fit the share, in order; sections that are needed most go first."""
        costs = self._tokenizer.count_many([f"- m{entry.number} {entry.text}\n" for entry in entries])
        ranked = sorted(range(len(entries)), key=lambda place: (_NEED[entries[place].section], place))
        taken: set[int] = set()
        for place in ranked:
            cost = costs[place] + 2
            if cost <= share:
                taken.add(place)
                share -= cost
        return [entries[place] for place in sorted(taken)]

    def _verify(self, entries: list[HandoffEntry]) -> tuple[list[HandoffEntry], int]:
        """Returns the entries without values that the conversation does not hold, and how many those were.

        Excerpts need no such check: they are the conversation. Entries of an older handoff were checked when
        it was written, and what they were checked against may be gone.
        """
        known = self._aims.known if self._aims.known is not None else self._transcript.index.vocabulary
        older = set(self._list_older())
        checked = [
            Verified(entry.text) if entry in older else strike_unknown(entry.text, known, phrases=False)
            for entry in entries
        ]
        clean = [
            msgspec.structs.replace(entry, text=one.text) if one.struck else entry
            for entry, one in zip(entries, checked, strict=True)
        ]
        return clean, sum(len(one.struck) for one in checked)

    def _list_older(self) -> list[HandoffEntry]:
        """Returns the entries of earlier handoffs."""
        readings = self._transcript.readings
        return [entry for place in self._transcript.handoffs for entry in readings[place].entries]

    def _task(self, request: int | None, kept_verbatim: frozenset[int], budget: int) -> list[HandoffEntry]:
        """Returns the live request in short (it stands whole after the handoff), and what it goes on from."""
        spoken = self._people
        entries: list[HandoffEntry] = []
        if request is not None:
            limit, note = max(24, budget // 100), ""
            if request in kept_verbatim:
                limit, note = min(limit, _NAMED_TASK_TOKENS), _BELOW
            if steps := self._find_next_steps(request):
                text = self._clip_sentences(
                    steps, max(limit, _LEAST_TASK), name_message(self._transcript.numbers[request])
                )
                entries.append(
                    HandoffEntry(
                        HandoffSection.ACTIVE_TASK, self._transcript.numbers[request], f"{_NEXT}{text}"
                    )
                )
            else:
                entries.append(self._quote(HandoffSection.ACTIVE_TASK, request, limit, note))
            entries += self._quote_offer(request, kept_verbatim, budget)
            entries += self._quote_named_requests(spoken, request, budget)
            if not entries[1:]:
                entries += self._quote_asked_before(request, budget)
        return entries

    def _find_next_steps(self, request: int) -> str:
        """Returns what is to be done next where nobody but a summary by another maker speaks; empty elsewhere."""
        message = self._transcript.messages[request]
        voices = [one for part in message.parts if isinstance(part, Text) for one in part_voices(part.text)]
        if not any(one.voice is Voice.SUMMARY for one in voices) or request in self._people:
            return ""
        return find_next_steps("\n".join(self._redactor.redact(one.text) for one in voices))

    def find_offer(self, request: int | None, kept_verbatim: frozenset[int]) -> tuple[int | None, str]:
        """Returns the offer that the live request only says yes or no to, and the position of its message; None where
        there is none, or its message stands in the view.
        """
        messages = self._transcript.messages
        before = range(request - 1, -1, -1) if request is not None else ()
        spoken = (place for place in before if messages[place].role is Role.ASSISTANT)
        place = next((one for one in spoken if spoken_text(messages[one]).strip()), None)
        if request is None or place is None or place in kept_verbatim:
            return None, ""
        if any(place < one < request for one in self._people):
            return None, ""
        said = self._redactor.redact(spoken_text(messages[place]))
        offer = find_offer(spoken_text(messages[request]), said)
        return (place, offer) if offer else (None, "")

    def _quote_offer(
        self, request: int | None, kept_verbatim: frozenset[int], budget: int
    ) -> list[HandoffEntry]:
        place, offer = self.find_offer(request, kept_verbatim)
        if place is None or self._tokenizer.count(offer) > max(_OFFER_TOKENS, budget // 12):
            return []
        number = self._transcript.numbers[place]
        return [HandoffEntry(HandoffSection.ACTIVE_TASK, number, f"{_OFFERED}{offer}")]

    def _quote_asked_before(self, request: int | None, budget: int) -> list[HandoffEntry]:
        """Returns the last request that says what to do, where the live one says no more than "yes" or a name."""
        messages = self._transcript.messages
        if request is None or not _says_little(spoken_text(messages[request])):
            return []
        before = (place for place in reversed(self._people) if place < request)
        earlier = next((place for place in before if not _says_little(spoken_text(messages[place]))), None)
        if earlier is None:
            return []
        return [self._quote(HandoffSection.ACTIVE_TASK, earlier, max(60, budget // 12))]

    def _goal(self, request: int | None, kept_verbatim: frozenset[int], budget: int) -> list[HandoffEntry]:
        """Returns the first request as the goal, in short where it stands whole beside the handoff."""
        older = [entry for entry in self._list_older() if entry.section is HandoffSection.GOAL]
        if not older and request is not None and self._aims.request_share:  # what later requests serve
            tasks = [one for one in self._list_older() if one.section is HandoffSection.ACTIVE_TASK]
            older = [msgspec.structs.replace(one, section=HandoffSection.GOAL) for one in tasks[:1]]
        if older or self._transcript.handoffs or self._aims.request_share:
            return older
        said = self._people
        telling = (place for place in said if not _says_little(spoken_text(self._transcript.messages[place])))
        first = next(telling, next(iter(said), None))
        if first is None or first == request:
            return []
        if first not in kept_verbatim:
            return [
                self._quote(HandoffSection.GOAL, first, max(budget // 25, min(_GOAL_TOKENS, budget // 3)))
            ]
        if budget < self._aims.sections_from_tokens:
            return []
        return [self._quote(HandoffSection.GOAL, first, _NAMED_GOAL_TOKENS, _OUTSIDE)]

    def _house_rules(
        self, ledger: Ledger, gone: set[int], shown: Sequence[str], share: int
    ) -> list[HandoffEntry]:
        """Returns the house rules in force that no longer stand in the view; where not all fit, and for the skills
        used last, what names them.
        """
        rules = [
            HandoffEntry(HandoffSection.CONSTRAINTS, rule.number, rule.text, rule.label)
            for rule in ledger.house_rules
            if rule.number in gone and not any(rule.text in text for text in shown)
        ]
        taken = self._take(rules, share)
        left = {(rule.number, rule.label) for rule in rules if rule not in taken}
        names = [
            HandoffEntry(HandoffSection.CONSTRAINTS, number, f"rules in force: {label}")
            for number, label in sorted(left)
        ]
        names += [
            HandoffEntry(HandoffSection.CONSTRAINTS, skill.number, f"skill in use: {skill.text}")
            for skill in ledger.skills[-_SKILLS:]
            if skill.number in gone and not any(skill.text in text for text in shown)
        ]
        plain = [msgspec.structs.replace(entry, label="") for entry in taken]
        return [*plain, *self._take(names, max(share, 40))]

    def _quote_in_full(
        self, request: int | None, kept_verbatim: frozenset[int], budget: int
    ) -> list[HandoffEntry]:
        """Returns the live request in the user's own words, where it gives way itself."""
        if request is None or request in kept_verbatim or not self._aims.request_share:
            return []
        quoted = self._quote(HandoffSection.ACTIVE_TASK, request, int(budget * self._aims.request_share))
        return [quoted] if quoted.text else []

    def _quote_again(self, entries: Sequence[HandoffEntry], limit: int) -> list[HandoffEntry]:
        """Returns entries of the last handoff within `limit` tokens together, the longest of them cut by sentences."""
        costs = self._tokenizer.count_many([entry.text for entry in entries])
        return [
            msgspec.structs.replace(
                entry, text=self._clip_sentences(entry.text, share, name_message(entry.number))
            )
            if cost > share
            else entry
            for entry, cost, share in zip(entries, costs, share_out(costs, limit), strict=True)
        ]

    def _quote_named_requests(self, spoken: Sequence[int], request: int, budget: int) -> list[HandoffEntry]:
        """Returns the requests that a model named as unfulfilled, in the user's own words."""
        named = set(self._prose.open_turns) if self._prose is not None else set()
        places = [place for place in spoken if self._transcript.numbers[place] in named and place != request]
        return [
            self._quote(HandoffSection.ACTIVE_TASK, place, max(60, budget // 30)) for place in places[-4:]
        ]

    def _quote(self, section: HandoffSection, place: int, limit: int, note: str = "") -> HandoffEntry:
        """Returns what a person said, on one line, within `limit` tokens: all of it, or whole sentences of it; where a
        note says where all of it stands, its first words.
        """
        spoken = self._redactor.redact(spoken_text(self._transcript.messages[place]))
        text = " ".join(spoken.split())
        number = self._transcript.numbers[place]
        if self._tokenizer.count(text) > limit:
            if note:
                text = self._name(text, limit, note)
            else:
                text = self._clip_sentences(spoken, limit, name_message(number))
        return HandoffEntry(section, number, text)

    def _name(self, text: str, limit: int, note: str) -> str:
        """Returns the first words of a text, as many as fit beside the note."""
        words = text[: limit * _CHARACTERS_PER_TOKEN].split(" ")
        while len(words) > 1 and self._tokenizer.count(f"{' '.join(words)}{note}") > limit:
            words = words[: max(1, min(len(words) - 1, int(len(words) * 0.9)))]
        return f"{' '.join(words)}{note}"

    def _clip_sentences(self, text: str, limit: int, handle: str) -> str:
        """Returns the first sentences of a text and its last one, with the gap marked; where not even the first one
        fits, its two ends.
        """
        said = sentences(text[: limit * _CHARACTERS_PER_TOKEN])
        gap = f"[… {handle} …]"
        costs = self._tokenizer.count_many(
            [gap, *said, last := next(reversed(sentences(text[-_LAST_WORDS:])), "")]
        )
        room = limit - costs[0] - 2
        kept: list[str] = []
        for one, cost in zip(said, costs[1:], strict=False):
            if cost + 1 > room:
                break
            kept.append(one)
            room -= cost + 1
        if not kept:
            return " ".join(clip(" ".join(text.split()), limit, self._tokenizer.count, handle).split())
        ends = [last] if costs[-1] <= room and len(last) < _LAST_WORDS else []
        return " ".join([*kept, gap, *ends])

    def _state(self, state: State, older: Sequence[HandoffEntry], gone: set[int]) -> list[HandoffEntry]:
        """Returns entries on how the work stands, the most needed first: those of now, then those of an older handoff
        that nothing has overtaken.
        """
        kept = [
            entry
            for entry in older
            if entry.section in _OF_STATE and not contradicts(state, entry) and not replaces(state, entry)
        ]
        return [*entries_of(state, gone), *reversed(kept)]

    def _choices(self, ledger: Ledger, older: Sequence[HandoffEntry], gone: set[int]) -> list[HandoffEntry]:
        """Returns what the agent chose, the newest first, for a handoff too short to list what was decided."""
        fresh = [
            HandoffEntry(HandoffSection.DECISIONS, fact.number, fact.text)
            for fact in ledger.decisions
            if fact.label and fact.number in gone
        ]
        known = [entry for entry in older if entry.section is HandoffSection.DECISIONS]
        return [*known, *fresh][: -_MOST_DECIDED - 1 : -1]

    def _history(self, ledger: Ledger, older: Sequence[HandoffEntry], gone: set[int]) -> list[HandoffEntry]:
        """Returns entries on what was done, decided and touched, the most needed first, and the newest of each kind.

        A file that an action names is not listed again, unless the action is too old to be.
        """
        done, touched, decided = (
            [fact for fact in facts if fact.number in gone][::-1]
            for facts in (ledger.actions, ledger.files, ledger.decisions)
        )
        failing = {fact.call_id for fact in ledger.open_errors}  # these stand among what is blocked
        done = [fact for fact in done if fact.call_id not in failing][:_MOST_DONE]
        decided = decided[:_MOST_DECIDED]
        named = "\n".join(fact.text for fact in done)
        files = [fact for fact in touched if fact.label not in named][:_MOST_FILES]
        changed = [fact for fact in files if not fact.text.endswith(" read")]
        fresh = [
            *((HandoffSection.DECISIONS, fact) for fact in decided),
            *((HandoffSection.COMPLETED, fact) for fact in done[: _MOST_DONE // 2]),
            *((HandoffSection.FILES, fact) for fact in changed),
            *((HandoffSection.COMPLETED, fact) for fact in done[_MOST_DONE // 2 :]),
            *((HandoffSection.FILES, fact) for fact in files if fact not in changed),
        ]
        entries = [HandoffEntry(section, fact.number, fact.text) for section, fact in fresh]
        kept_sections = {HandoffSection.COMPLETED, HandoffSection.FILES, HandoffSection.DECISIONS}
        entries += [entry for entry in reversed(older) if entry.section in kept_sections]
        return entries

    def _shorten_deed(self, entry: HandoffEntry, share: int) -> HandoffEntry:
        """Returns an entry on edits with as many of its files, the newest last, as fit the share."""
        what, _, listed = entry.text.partition(": ")
        paths = listed.split(", ")
        if entry.section is HandoffSection.BLOCKED:
            return entry
        for first in range(len(paths)):
            text = f"{what}: {'… ' if first else ''}{', '.join(paths[first:])}"
            if self._tokenizer.count(f"- m{entry.number} {text}\n") <= share:
                return msgspec.structs.replace(entry, text=text)
        return entry

    def _take(self, entries: Sequence[HandoffEntry], share: int) -> list[HandoffEntry]:
        """Returns the first entries that fit the share, no text twice, in the order of their messages."""
        costs = self._tokenizer.count_many([f"- m{entry.number} {entry.text}\n" for entry in entries])
        taken: dict[str, HandoffEntry] = {}
        for entry, cost in zip(entries, costs, strict=True):
            key = f"{entry.section} {entry.text}"
            if cost <= share and key not in taken:
                taken[key] = entry
                share -= cost
        return sorted(taken.values(), key=lambda entry: entry.number)


def _tell_task_once(entries: Sequence[HandoffEntry]) -> list[HandoffEntry]:
    """Returns the entries without a goal that is also a task: the longer text stays, as the task."""
    goals = {entry.number: entry for entry in entries if entry.section is HandoffSection.GOAL}
    told: list[HandoffEntry] = []
    twice: set[int] = set()
    for entry in entries:
        goal = goals.get(entry.number) if entry.section is HandoffSection.ACTIVE_TASK else None
        if goal is not None:
            twice.add(goal.number)
            entry = msgspec.structs.replace(entry, text=max(entry.text, goal.text, key=len))  # noqa: PLW2901 (the longer one takes its place)
        told.append(entry)
    return [one for one in told if one.section is not HandoffSection.GOAL or one.number not in twice]


def _name_result(call: ToolCall) -> str:
    """Returns the tool, and where it shows or changes one file, the name of that file."""
    family = tool_family(call.name)
    if family not in {ToolFamily.READ, ToolFamily.PATCH, ToolFamily.WRITE}:
        return call.name
    path = main_argument(family, arguments_of(call))
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return f"{call.name} {name}" if name and " " not in path else call.name


def _order(entry: HandoffEntry) -> int:
    """Returns the number of an entry of the context, which stands by message; others keep the order they have."""
    return entry.number if entry.section is HandoffSection.CONTEXT else 0


def _says_little(text: str) -> bool:
    """Returns whether a request cannot be told from the others: "go on", "yes", two words."""
    return GO_ON.match(text) is not None or (
        len(text.split()) < _TELLING_WORDS and len(text) < _TELLING_CHARACTERS
    )


def _constraint(fact: Fact) -> str:
    return f"{fact.text} (changed in m{fact.superseded_by})" if fact.superseded_by else fact.text
