"""Writes the handoff without a model: the ledger's facts in their sections, then excerpts chosen by coverage.

It is deterministic, and every line of it is from the conversation, under the number of its message. Constraints
and people's own words come first; the rest of the budget goes where it covers most.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property, lru_cache
from itertools import accumulate, chain, dropwhile, pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.conversation import mark
from penstock.conversation.handles import name_message
from penstock.conversation.message import Role, Summary, Text
from penstock.conversation.pairing import find_unanswered
from penstock.conversation.speakers import Voice, is_bare_command, part_voices
from penstock.writing.asked import find_asked
from penstock.writing.choice import FOCUS_SHARE, begin_choice, find_topic
from penstock.writing.compiled import find_path_parts
from penstock.writing.constraints import find_constraints, sentences
from penstock.writing.echoes import SHORTEST_TOLD, find_said_in
from penstock.writing.handoff import FRAMING, HandoffEntry, HandoffSection, header_of, render_handoff
from penstock.writing.harness import find_next_steps
from penstock.writing.importance import answers_in_data
from penstock.writing.ledger import Fact, Ledger, read_refusal
from penstock.writing.reading import Speaker, spoken_text
from penstock.writing.replies import find_offer, is_courtesy, is_praise, only_points
from penstock.writing.state import GO_ON, State, adds_to, contradicts, edits_of, entries_of, is_deed, replaces
from penstock.writing.stubs import ToolFamily, arguments_of, clip, main_argument, shows_files, tool_family
from penstock.writing.telling import Teller, share_out
from penstock.writing.transcript import MODEL, WRITTEN_BY
from penstock.writing.verify import Checked, Verified, strike_unknown
from penstock.writing.vocabulary import sort_distinct
from penstock.writing.writer import HandoffText, find_gaps, measure_scarcity

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

_LONGEST_REQUEST = (
    1_500  # characters of one older user message that the handoff quotes before coverage decides
)
_LAST_WORDS = 600  # characters at the end of a text, to search for its last sentence
_REFILLS = 2
_LAST_TEXTS = 8
_LONGEST_EMPTY = 60  # characters of an excerpt that may be no more than a courtesy or a heading
_SPOKEN = (Speaker.USER, Speaker.ASSISTANT, Speaker.HARNESS)
_LONGEST_HEADING = 3  # words
_MORE_OWN = 0.04  # of the room for excerpts, if that is a very small share of the conversation
_ASKED_SHARE = 0.05  # of the room, for lines that the request names in plain words,
_THING_SHARE = 0.0125  # or this much for each thing that it asks for, if that is more
_MOST_ASKED_SHARE = 0.07
_SENTENCE_WORTH = 0.3  # of a sentence by a person or the agent, beyond its values
_BRIEF_WORTH = 0.3  # times that, for what a person said in a few words
_NEWEST_WORTH = 2.0  # times that, for a sentence in the newest text
_UNSPENT = 0.05  # of the room
_PLAIN_WORTH = 0.01  # of any line, if room is left over
_SPOKEN_WORTH = 0.013  # of the agent's sentences, in competition with records of the same values
_OFFER_SHARE = 0.35  # what the live request only says yes to is the task,
_QUESTION_SHARE = 0.42  # and the question itself the heart of it
_SUMMARY_SHARE = 0.08  # of the room for excerpts: a summary by another maker stands for turns that are gone
_BRIEF_WORDS, _BRIEF_CHARACTERS = 5, 25
_BRIEF_UNSPACED = 8  # characters of a script without spaces
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_TELLING_WORDS = 3
_TELLING_CHARACTERS = 20  # a script without spaces has few words
_LEAST_TASK = 100  # tokens
_TASK_SHARE = 0.12  # of a handoff: the tasks of the last one, if nobody has asked for anything since
_SKILLS = 2
_GOAL_TOKENS = 170  # of the first request, if it is not in the view
_NAMED_TASK_TOKENS = 60  # of a live request that is in the view
_NAMED_GOAL_TOKENS = 40  # of a first request that is in the view
_OFFER_TOKENS = 80
_OFFERED = "offered: "
_NEXT = "the summary says that this is next: "
_BELOW = " … (in full below)"
_OUTSIDE = " … (in full outside these notes)"
_FOLDERS = re.compile(r"(?:[\w.~@-]*/)+(?=[\w.@-])")
_CHARACTERS_PER_TOKEN = 8  # more than any text has: what is further on cannot fit

_SECTIONS_SHARE = 0.06
_MOST_DONE = 8
_MOST_FILES = 10
_MOST_DECIDED = 3
_STATE_SHARE = 0.07
_STATE_FROM_TOKENS = 300  # a handoff too small for the other sections has room for a line on the state,
_DEEDS_FROM_TOKENS = 50  # and an even smaller one for a line on edits and failures
_TEXTS_AT_ONCE = 256  # of people: often the newest are enough
_DEEDS_SHARE = 4  # at most a quarter of the handoff
_STATE_LEAST = 40
_CONSTRAINTS_SHARE = 0.08
_CONSTRAINTS_LEAST = 200  # tokens, but no more than a third
_OF_REQUESTS = frozenset({HandoffSection.ACTIVE_TASK, HandoffSection.GOAL})
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
_NEED = {  # the sections in the order of need
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
    note = f"{FRAMING} m-numbers name originals."

    def __init__(self, material: HandoffMaterial) -> None:
        self._transcript = material.transcript
        self._calls = material.calls
        self._tokenizer = material.tokenizer
        self._redactor = material.redactor
        self._aims = material.aims
        self._sections = _Sections(material)
        self._headings: dict[int, tuple[int, str]] = {}  # by source
        self._quotes: dict[tuple[int, ...], str] = {}  # by the excerpts of a source that were chosen
        self._brief = False  # in a short handoff a line of "tool" above two lines of a result is too much

    @property
    def has_prose(self) -> bool:
        """True if a model wrote sections of this handoff, or of the one before it."""
        return self._sections.has_prose

    def write(self, budget: int, measure: Measure, beside: Surroundings) -> HandoffText:
        """Returns a handoff of at most `budget` tokens, as counted by `measure`."""
        self._brief = budget < self._aims.sections_from_tokens
        self._headings.clear()
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
        """Returns the most telling lines of each unanswered result that does not stay, by source."""
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
        """Returns an empty choice that knows the rest of the view."""
        index = self._transcript.index
        choice = begin_choice(
            self._transcript,
            beside.request,
            beside.focus,
            tokenizer=self._tokenizer,
            price_headers=self._price_headers,
            importance=self._aims.importance,
        )
        shown = np.flatnonzero(self._are_of(beside.kept_verbatim))
        # A value in the live request does not count as told: the request needs lines about it.
        of_request = index.message_of_source[shown] == beside.request
        choice.cover(self._find_named(shown[~of_request]))
        choice.cover(self._find_named(shown[of_request]), bare=True)
        if beside.request is not None and beside.request in beside.kept_verbatim:
            choice.hide(spoken_text(self._transcript.messages[beside.request]))
        # A shortened message shows values among their words; an entry names values without them.
        choice.cover(index.vocabulary.find_known(beside.shown_texts))
        choice.cover(index.vocabulary.find_known([entry.text for entry in entries]), bare=True)
        return choice

    def _find_named(self, sources: NDArray[np.int64]) -> NDArray[np.int32]:
        """Returns the values of these sources, and the parts of their paths."""
        spoken = [self._transcript.index.sources[source] for source in sources.tolist()]
        paths = find_path_parts([source.text for source in spoken])
        parts = self._transcript.index.vocabulary.numbers_of(chain.from_iterable(paths))
        return np.concatenate([parts, *(source.distinct for source in spoken)])

    def _are_of(self, places: frozenset[int]) -> Flags:
        """Returns for each source whether its message is at one of these positions."""
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
        """Fills the choice up to `room` tokens with excerpts from sources that are not shut.

        A topic gets up to `topic_tokens` first; then everything competes for the rest.
        """
        shut = shut | self._are_voiced(Voice.SKILL)  # a skill in use is named, with its handle
        if self._aims.request_share:
            shut |= self._are_quoted(entries)
        index = self._transcript.index
        allowed = ~shut[index.source_of]
        allowed[self._find_told(entries, beside)] = False
        allowed[self._find_words_of_client()] = False
        allowed[self._find_empty_words(allowed)] = False
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
        own = choice.tokens + int(left * self._own_share(room))
        offered = [number for number in self._find_offer(beside) if allowed[number]]
        said_so_far = choice.tokens
        choice.take(offered[:1], said_so_far + int(left * _QUESTION_SHARE))
        choice.take(offered[1:], max(own, said_so_far + int(left * _OFFER_SHARE)))
        choice.fill(said & allowed, own, self._weigh_said(said))
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
        if beside.fill and room > choice.tokens:
            choice.fill(allowed, room, self._weigh_plain())
            if room - choice.tokens > _UNSPENT * room:  # what was granted is spent, if need be on repeats
                choice.fill(allowed, room, np.full(len(allowed), _PLAIN_WORTH, np.float32))

    def _fit(
        self, entries: list[HandoffEntry], choice: ExcerptChoice, budget: int, measure: Measure
    ) -> tuple[str, list[HandoffEntry]]:
        """Returns the whole text within the budget, and its entries; empty if not even one line fits."""
        text = self._render(entries, choice)
        tokens = measure(text)
        for _ in range(_REFILLS):
            spare = budget - tokens
            if spare < 10:
                break
            choice.refill(choice.tokens + spare)
            text = self._render(entries, choice)
            tokens = measure(text)
        while tokens > budget:
            if not choice.drop_last():
                if not entries:
                    return "", []
                entries = entries[:-1]
            text = self._render(entries, choice)
            tokens = measure(text)
        return text, entries

    def _people(self, shut: Flags, share: int, quoted: set[int]) -> list[int]:
        """Returns the beginnings of people's texts, newest first, as many as could fit the share.

        `quoted` are the numbers of messages that a section quotes already.
        """
        index = self._transcript.index
        wanted: list[int] = []
        said: set[str] = set()
        sources = np.flatnonzero((index.speakers == Speaker.USER) & ~shut)[::-1]
        for start in range(0, len(sources), _TEXTS_AT_ONCE):
            some = sources[start : start + _TEXTS_AT_ONCE]
            numbers = map(self._transcript.numbers.__getitem__, index.message_of_source[some].tolist())
            told = zip(numbers, index.texts_of(some), self._choose_beginnings(some), strict=True)
            for number, text, beginning in told:
                if number not in quoted and text not in said and not is_bare_command(text):
                    wanted += beginning
                    said.add(text)
                if len(wanted) > share:
                    return wanted
        return wanted

    def _last_words(self, shut: Flags) -> list[int]:
        """Returns the agent's last words, newest text first: its conclusions, decisions and plans."""
        index = self._transcript.index
        said = np.flatnonzero(index.speakers == Speaker.ASSISTANT)
        newest = sort_distinct(index.message_of_source[said])[-_LAST_TEXTS:]
        wanted: list[int] = []
        for source in said[np.isin(index.message_of_source[said], newest) & ~shut[said]][::-1].tolist():
            wanted += range(index.first_excerpt[source], index.first_excerpt[source + 1])
        return wanted

    def _own_share(self, room: int) -> float:
        """Returns the part of the room for excerpts that goes to the agent's last words.

        The smaller a handoff is for its conversation, the fewer of the older values it can hold anyway, and the more it
        matters to keep the thread. If tools answer in data, the agent mostly repeats their answers.
        """
        share = self._aims.own_share
        if share and not answers_in_data(self._transcript.index):
            share += _MORE_OWN * measure_scarcity(room, self._transcript.total_tokens)
        return share

    def _weigh_said(self, said: Flags) -> NDArray[np.float32]:
        """Returns the worth of each excerpt as a spoken sentence.

        The sentences of the newest text say most: together they are a conclusion, a report, an answer. If tools answer in
        data, they mostly ask for something that has been given since. Courtesies, headings and repeats say nothing, nor
        does the agent in a few words ("Reading the inbox."); what people say so is an answer to something.
        """
        index = self._transcript.index
        worth = np.full(len(said), _SENTENCE_WORTH, np.float32)
        numbers = np.flatnonzero(said)
        if not len(numbers):
            return worth
        if not answers_in_data(index):
            newest = index.message_of_source[index.source_of[numbers[-1]]]
            sources = np.searchsorted(index.message_of_source, [newest, newest + 1])
            first, after = index.first_excerpt[sources].tolist()
            worth[first:after] *= _NEWEST_WORTH
        by_agent = index.speakers[index.source_of[numbers]] == Speaker.ASSISTANT
        short = np.flatnonzero(index.lengths[numbers] < _BRIEF_CHARACTERS)
        brief = np.zeros(len(numbers), np.bool_)
        brief[short] = [*map(_is_brief, index.quote_each(numbers[short].tolist()))]
        worth[numbers[brief]] *= _BRIEF_WORTH
        worth[numbers[(brief & by_agent) | self._say_nothing(numbers)]] = 0.0
        return worth

    def _weigh_plain(self) -> NDArray[np.float32]:
        """Returns what each excerpt is worth where room is left over: of what was said, what says nothing is worth nothing."""
        index = self._transcript.index
        worth = np.full(len(index.source_of), _PLAIN_WORTH, np.float32)
        spoken = np.isin(index.speakers, _SPOKEN)[index.source_of]
        worth[np.flatnonzero(spoken)[self._say_nothing(np.flatnonzero(spoken))]] = 0.0
        return worth

    def _say_nothing(self, numbers: NDArray[np.int64]) -> Flags:
        """Returns for each of these excerpts whether it is a courtesy, a heading, a bare command or a repeat."""
        index, said_before = self._transcript.index, set[str]()
        known = index.idle_words
        flags: list[bool] = []
        places = numbers.tolist()
        for number, text in zip(places, index.quote_each(places), strict=True):
            idle = known.get(number)
            if idle is None:
                idle = known[number] = _is_polite(text) or _is_heading(text) or is_bare_command(text)
            flags.append(idle or text in said_before)
            said_before.add(text)
        return np.array(flags, np.bool_)

    def _find_empty_words(self, allowed: Flags) -> NDArray[np.int64]:
        """Returns those of the allowed excerpts that are no more than a heading, or a courtesy of the agent."""
        index = self._transcript.index
        looked, known = index.empty_words
        speakers = index.speakers[index.source_of[looked:]]
        spoken = np.isin(speakers, _SPOKEN) & (index.lengths[looked:] <= _LONGEST_EMPTY)
        short = looked + np.flatnonzero(spoken)
        empty = [
            _is_plain_heading(text) or (by_agent and is_courtesy(text))
            for text, by_agent in zip(
                index.quote_each(short.tolist()), speakers[spoken] == Speaker.ASSISTANT, strict=True
            )
        ]
        known = np.concatenate([known, short[np.array(empty, np.bool_)]])
        index.empty_words = len(index.source_of), known
        return known[allowed[known]]

    def _weigh_spoken(self) -> NDArray[np.float32] | None:
        """Returns the extra worth of each excerpt by the agent; None if that does not count.

        If tools answer in data, a value is in a record and again in the agent's words about it. The agent's sentence says
        what the value is for, which is worth a few more tokens.
        """
        index = self._transcript.index
        if not answers_in_data(index):
            return None
        spoken: NDArray[np.float32] = (index.speakers == Speaker.ASSISTANT) * np.float32(_SPOKEN_WORTH)
        return spoken[index.source_of]

    def _are_quoted(self, entries: Sequence[HandoffEntry]) -> Flags:
        """Returns for each source whether it is a request that the task's section quotes in full."""
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
        """Returns the excerpts of the offer that the live request merely accepts or declines, last excerpt first."""
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

    def _find_told(self, entries: Sequence[HandoffEntry], beside: Surroundings) -> list[int]:
        """Returns the excerpts that a section, or the rest of their message in the view, holds word for word.

        A section quotes its own message; one on requests, all messages in which a person says the same.
        """
        index = self._transcript.index
        held: dict[int, str] = {}
        for entry in entries:
            if entry.section is not HandoffSection.CONTEXT:
                held[entry.number] = f"{held.get(entry.number, '')}\n{' '.join(entry.text.split())}"
        shown = "\n".join(" ".join(text.split()) for text in beside.shown_texts)
        if shown:
            for place in beside.kept - beside.kept_verbatim:
                number = self._transcript.numbers[place]
                held[number] = f"{held.get(number, '')}\n{shown}"
        numbers, standing = self._transcript.numbers, self._transcript.list_places(held)
        places = {numbers[place]: place for place in standing}  # of handoffs, which all have 0, the last one
        by_people = index.speakers == Speaker.USER
        own = self._are_of(frozenset(places.values())) | (self._are_of(frozenset(standing)) & by_people)
        told: list[int] = []
        for source in np.flatnonzero(own).tolist():
            text = held.get(self._number(source), "")
            excerpts = range(index.first_excerpt.item(source), index.first_excerpt.item(source + 1))
            for excerpt, quote in zip(excerpts, index.quote_each(excerpts), strict=True):
                said = " ".join(quote.split())
                if len(said) >= SHORTEST_TOLD and said in text:
                    told.append(excerpt)
        # A request that was sent again stands under another number.
        asked = "\n".join(" ".join(entry.text.split()) for entry in entries if entry.section in _OF_REQUESTS)
        return told + find_said_in(asked, index)

    def _are_refusals(self) -> Flags:
        """Returns for each source whether it is the result of a denied call."""
        index, refused = self._transcript.index, self._sections.refused
        flags = np.zeros(len(index.sources), np.bool_)
        if refused:
            for source in np.flatnonzero(index.speakers == Speaker.RESULT).tolist():
                flags[source] = index.tags[source] in refused
        return flags

    def _find_words_of_client(self) -> list[int]:
        """Returns the excerpts in which a client reports a denied call, except for the person's own words in them."""
        index = self._transcript.index
        found: list[int] = []
        for source in np.flatnonzero(self._are_refusals()).tolist():
            refusal = read_refusal(index.sources[source].text)
            words = " ".join(refusal.words.split()) if refusal is not None else ""
            found += (
                excerpt
                for excerpt in range(index.first_excerpt[source], index.first_excerpt[source + 1])
                if " ".join(index.excerpt(excerpt).split()) not in words
            )
        return found

    def _are_voiced(self, voice: Voice) -> Flags:
        """Returns for each source whether it is a harness's text with this voice."""
        index = self._transcript.index
        flags = np.zeros(len(index.sources), np.bool_)
        for source in np.flatnonzero(index.speakers == Speaker.HARNESS).tolist():
            flags[source] = index.tags[source] == voice
        return flags

    def _choose_beginnings(self, sources: NDArray[np.int64]) -> list[range]:
        """Returns the first excerpts of each of these sources, up to the length of a long request."""
        index = self._transcript.index
        firsts, afters = index.first_excerpt[sources].tolist(), index.first_excerpt[sources + 1].tolist()
        beginnings: list[range] = []
        for first, after in zip(firsts, afters, strict=True):
            characters = [*accumulate(index.lengths[first:after].tolist())]
            beginnings.append(range(first, first + bisect_right(characters, _LONGEST_REQUEST)))
        return beginnings

    def _render(self, entries: Sequence[HandoffEntry], choice: ExcerptChoice) -> str:
        """Returns the text of entries and excerpts. A blank line stands where something is left out in between."""
        chosen = np.sort(np.array(choice.order, np.int64))
        sources = self._transcript.index.source_of[chosen]
        firsts = np.flatnonzero(np.diff(sources, prepend=-1))  # where another source begins
        numbers = chosen.tolist()
        runs = [tuple(numbers[first:after]) for first, after in pairwise([*firsts.tolist(), len(numbers)])]
        quoted: dict[tuple[int, str], list[str]] = {}
        headings = self._headings
        for source, said in zip(sources[firsts].tolist(), self._quote_runs(runs), strict=True):
            quoted.setdefault(headings.get(source) or self._heading(source), []).append(said)
        context = [
            HandoffEntry(HandoffSection.CONTEXT, number, "\n\n".join(said), label)
            for (number, label), said in quoted.items()
        ]
        return render_handoff(sorted([*entries, *context], key=_order))

    def _count_quotes(self, entries: Sequence[HandoffEntry], choice: ExcerptChoice) -> dict[int, int]:
        """Counts the entries and excerpts of each message, by position."""
        index = self._transcript.index
        place_of = self._transcript.find_places({entry.number for entry in entries})
        quoted: dict[int, int] = {}
        for entry in entries:
            if entry.number and (place := place_of.get(entry.number)) is not None:
                quoted[place] = quoted.get(place, 0) + 1
        for place in index.message_of_source[index.source_of[list(choice.chosen)]].tolist():
            quoted[place] = quoted.get(place, 0) + 1
        return quoted

    def _price_headers(self, sources: Sequence[int]) -> list[int]:
        """Returns the tokens of the line above the excerpts of each of these sources.

        Most were counted for an earlier handoff. A line that names what a call brought is not known by its source alone: ids of
        calls are used again, and messages may be counted anew.
        """
        index, numbers, refused = self._transcript.index, self._transcript.numbers, self._sections.refused
        of_source: dict[int, tuple[int, ToolCall | None, bool, bool]] = {}
        for source, place in zip(sources, index.message_of_source[sources].tolist(), strict=True):
            tag = index.tags[source]
            of_source[source] = numbers[place], self._calls.get(tag), tag in refused, self._brief
        known = index.headings
        unlike = [
            source for source, key in of_source.items() if source not in known or known[source][0] != key
        ]
        headers = [header_of(*self._heading(source)) for source in unlike]
        for source, tokens in zip(unlike, self._tokenizer.count_many(headers), strict=True):
            known[source] = of_source[source], tokens + 1
        return [known[source][1] for source in sources]

    def _quote_runs(self, runs: Sequence[tuple[int, ...]]) -> list[str]:
        """Returns each of these runs of excerpts of one source as a text, with a blank line where something is left out.

        A handoff is rendered several times, nearly all of it as before.
        """
        unseen = [run for run in runs if run not in self._quotes]
        said = iter(self._transcript.index.quote_each([number for run in unseen for number in run]))
        for run in unseen:
            gaps = ("", *("\n" if one + 1 == other else "\n\n" for one, other in pairwise(run)))
            self._quotes[run] = "".join([gap + next(said) for gap in gaps])
        return [self._quotes[run] for run in runs]

    def _heading(self, source: int) -> tuple[int, str]:
        """Returns the number and the label above the excerpts of a source."""
        known = self._headings.get(source)
        if known is None:
            index = self._transcript.index
            of_tool = index.sources[source].speaker is Speaker.RESULT
            brief = self._brief and of_tool and index.tags[source] not in self._sections.refused
            known = self._headings[source] = self._number(source), "" if brief else self._label(source)
        return known

    def _number(self, source: int) -> int:
        index = self._transcript.index
        if index.sources[source].speaker is Speaker.HANDOFF:
            return int(index.tags[source].partition(" ")[0])
        return self._transcript.numbers[index.message_of_source.item(source)]

    def _label(self, source: int) -> str:
        index = self._transcript.index
        tag = index.tags[source]
        match index.sources[source].speaker:
            case Speaker.CALL:
                label = f"{tag} call"
            case Speaker.RESULT:
                call, names = self._calls.get(tag), index.result_names  # names outlast this handoff
                if call is not None and call not in names:
                    names[call] = self._redactor.redact(_name_result(call))
                label = "tool" if call is None else names[call]
                if tag in self._sections.refused:
                    refusal = read_refusal(index.sources[source].text)
                    by_person = refusal is not None and refusal.by_person
                    label = f"user, refusing {label}" if by_person else f"refusal of {label}"
            case Speaker.HANDOFF:
                label = tag.partition(" ")[2]
            case Speaker.HARNESS:
                label = tag
            case speaker:
                label = speaker.name.lower()
        return _clean_label(label)


def _names(text: str, path: str) -> bool:
    """Returns whether a text names the file at this path, with or without its folders."""
    name = path.rstrip("/").rpartition("/")[2]
    return bool(name) and name in text


def _is_plain_heading(text: str) -> bool:
    """Returns whether a text is a heading without the name of anything in it."""
    return _is_heading(text) and all(word.isalpha() for word in text.strip("*#_: ").split())


def _is_polite(text: str) -> bool:
    return is_courtesy(text) or is_praise(text)


def _is_heading(text: str) -> bool:
    """Returns True if a text only announces the next one, such as "IMPORTANT TIPS:". Alone it says nothing."""
    line = text.strip("*#_ ")
    return line.endswith(":") and len(line.split()) <= _LONGEST_HEADING


@lru_cache(maxsize=1_000)
def _clean_label(label: str) -> str:
    return re.sub(r"[\]\n\r]", "", label)[:60]


class _Sections:
    """Writes all sections of a handoff except the last: requests, constraints, actions and decisions, from the ledger.

    If a model wrote prose, its entries replace ours, except for the user's requests and demands, which stay in the
    user's own words. Without new prose, the model's words of the last handoff stay until a model updates them.
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
        """True if a model wrote sections of this handoff, or of the one before it."""
        return self._prose is not None and bool(self._prose.entries)

    @property
    def refused(self) -> frozenset[str]:
        """The ids of the denied calls."""
        return self._folded[0].refused

    @property
    def struck_texts(self) -> tuple[str, ...]:
        """The struck words of a model."""
        return self._prose.struck_texts if self._prose is not None else ()

    def write(self, budget: int, beside: Surroundings) -> tuple[list[HandoffEntry], int]:
        """Returns the entries within their share of the budget, and the number of values that were struck from them.

        Constraints come first, then the goal, the task and the history.
        """
        transcript, request, kept_verbatim = self._transcript, beside.request, beside.kept_verbatim
        ledger, state = self._folded
        older = self._list_older()
        gaps = find_gaps(kept_verbatim, len(transcript.numbers))
        gone = set(chain.from_iterable(transcript.numbers[gap.start : gap.stop] for gap in gaps))
        asked = [entry for entry in older if entry.section is HandoffSection.ACTIVE_TASK]
        constraints = [
            *(entry for entry in older if entry.section is HandoffSection.CONSTRAINTS),
            # A task's demands stay in force after the task; up to now, its own words in the view stated them.
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
        if request is None:  # nobody has asked for anything since, so the earlier tasks still stand
            entries += self._quote_again(asked, int(budget * max(self._aims.request_share, _TASK_SHARE)))
        goal = self._goal(request, kept_verbatim, budget)
        small = self._prose is None and budget < self._aims.sections_from_tokens
        ours = goal if small else []  # a model's goal may replace ours; a short handoff says nothing twice
        quoted = "".join(entry.text for entry in (*entries, *ours))
        entries += goal
        if not self._aims.request_share and budget < self._aims.sections_from_tokens:
            entries += self._quote_asked_before(request, budget)
        entries += self._take([one for one in constraints if one.text not in quoted], share)
        entries += self._house_rules(ledger, gone, beside.shown_texts, share // 2)
        if self._aims.sections_from_tokens > budget >= _DEEDS_FROM_TOKENS:
            stands = [*self._state(state, older, gone), *edits_of(state, gone)]
            stands += _tell_otherwise(stands, self._choices(ledger, older, gone))
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
            stands = self._take(self._state(state, older, gone), int(budget * _STATE_SHARE))
            entries += [
                *stands,
                *self._take(
                    _tell_otherwise(stands, self._history(ledger, older, gone, request)),
                    share,
                    newest_first=True,
                ),
            ]
        entries, struck = self._verify(_tell_demands_once(_tell_task_once(entries)))
        if self._prose is not None:
            entries = self._add_prose(entries, self._prose, budget, state)
            struck += self._prose.struck
        return entries, struck

    @cached_property
    def _folded(self) -> tuple[Ledger, State]:
        """The ledger and the state, which do not depend on the room."""
        facts = self._transcript.facts(self._redactor, self._aims.facts_of_newest)
        return Ledger.of(facts), State.of(facts)

    def _last_prose(self) -> Checked | None:
        """Returns a model's entries in the last handoff."""
        handoffs = [self._transcript.messages[place] for place in self._transcript.handoffs]
        marks = [part.attributes for one in handoffs for part in one.parts if isinstance(part, Summary)]
        if not any(mark.get(WRITTEN_BY) == MODEL for mark in marks):
            return None
        ours = {HandoffSection.ACTIVE_TASK, HandoffSection.CONTEXT}
        return Checked(tuple(entry for entry in self._list_older() if entry.section not in ours), 0)

    def _add_prose(
        self, entries: list[HandoffEntry], prose: Checked, budget: int, state: State
    ) -> list[HandoffEntry]:
        """Replaces our entries by a model's, within their share, in the sections that it wrote.

        The user's requests and demands stay in the user's own words, before the model's. Our entries on the state of the
        work stay if the model has nothing on it.
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
        """Returns the entries that fit the share, in order; the most needed sections choose first."""
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
        """Strikes values that are not in the conversation from the entries; returns the entries and the number of strikes.

        Excerpts need no such check, since they are from the conversation. Entries of an older handoff were checked
        when it was written, and their sources may be gone by now.
        """
        known = self._aims.known if self._aims.known is not None else self._transcript.index
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
        """Returns the live request in short, since it follows the handoff whole, and the request or offer before it."""
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
        """Returns the next steps if all we have is a summary by another maker; otherwise empty."""
        message = self._transcript.messages[request]
        voices = [one for part in message.parts if isinstance(part, Text) for one in part_voices(part.text)]
        if not any(one.voice is Voice.SUMMARY for one in voices) or request in self._people:
            return ""
        return find_next_steps("\n".join(self._redactor.redact(one.text) for one in voices))

    def find_offer(self, request: int | None, kept_verbatim: frozenset[int]) -> tuple[int | None, str]:
        """Returns the offer that the live request merely accepts or declines, after the position of its message.

        Returns None and an empty text if there is no such offer, or if its message is in the view.
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
        """Returns the last request that says what to do, if the live one is no more than "yes" or a name."""
        messages = self._transcript.messages
        if request is None or not _says_little(spoken_text(messages[request])):
            return []
        before = (place for place in reversed(self._people) if place < request)
        earlier = next((place for place in before if not _says_little(spoken_text(messages[place]))), None)
        if earlier is None:
            return []
        return [self._quote(HandoffSection.ACTIVE_TASK, earlier, max(60, budget // 12))]

    def _goal(self, request: int | None, kept_verbatim: frozenset[int], budget: int) -> list[HandoffEntry]:
        """Returns the first request as the goal; in short if it is whole in the view."""
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
        """Returns the house rules in force that are no longer in the view.

        If not all of them fit, and for the skills used last, returns only their names.
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
        """Returns the live request in the user's own words, if it gives way itself."""
        if request is None or request in kept_verbatim or not self._aims.request_share:
            return []
        quoted = self._quote(HandoffSection.ACTIVE_TASK, request, int(budget * self._aims.request_share))
        return [quoted] if quoted.text else []

    def _quote_again(self, entries: Sequence[HandoffEntry], limit: int) -> list[HandoffEntry]:
        """Returns entries of the last handoff, within `limit` tokens in all; cuts the longest of them by sentences."""
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
        """Returns the requests that a model called unfulfilled, in the user's own words."""
        named = set(self._prose.open_turns) if self._prose is not None else set()
        places = [place for place in spoken if self._transcript.numbers[place] in named and place != request]
        return [
            self._quote(HandoffSection.ACTIVE_TASK, place, max(60, budget // 30)) for place in places[-4:]
        ]

    def _quote(self, section: HandoffSection, place: int, limit: int, note: str = "") -> HandoffEntry:
        """Returns a person's text on one line, within `limit` tokens: all of it or whole sentences.

        With a note on the place of the whole text, returns its first words.
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
        """Returns the first words of a text, as many as fit together with the note."""
        words = text[: limit * _CHARACTERS_PER_TOKEN].split(" ")
        while len(words) > 1 and self._tokenizer.count(f"{' '.join(words)}{note}") > limit:
            words = words[: max(1, min(len(words) - 1, int(len(words) * 0.9)))]
        return f"{' '.join(words)}{note}"

    def _clip_sentences(self, text: str, limit: int, handle: str) -> str:
        """Returns the first sentences of a text and its last one, with the gap marked; no greeting or praise before them.

        If not even the first sentence fits, returns the two ends of the text.
        """
        said = [*dropwhile(_is_polite, sentences(text[: limit * _CHARACTERS_PER_TOKEN]))]
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
            told = text[text.find(said[0]) :] if said else text
            return " ".join(clip(" ".join(told.split()), limit, self._tokenizer.count, handle).split())
        ends = [last] if costs[-1] <= room and len(last) < _LAST_WORDS else []
        return " ".join([*kept, gap, *ends])

    def _state(self, state: State, older: Sequence[HandoffEntry], gone: set[int]) -> list[HandoffEntry]:
        """Returns entries on the state of the work, most needed first.

        New entries come before those of an older handoff that nothing has overtaken.
        """
        kept = [
            entry
            for entry in older
            if entry.section in _OF_STATE and not contradicts(state, entry) and not replaces(state, entry)
        ]
        return [*entries_of(state, gone), *reversed(kept)]

    def _choices(self, ledger: Ledger, older: Sequence[HandoffEntry], gone: set[int]) -> list[HandoffEntry]:
        """Returns the agent's choices, newest first, for a handoff too short for a section on decisions."""
        fresh = [
            HandoffEntry(HandoffSection.DECISIONS, fact.number, fact.text)
            for fact in ledger.decisions
            if fact.label and fact.number in gone
        ]
        known = [entry for entry in older if entry.section is HandoffSection.DECISIONS]
        return [*known, *fresh][: -_MOST_DECIDED - 1 : -1]

    def _history(
        self, ledger: Ledger, older: Sequence[HandoffEntry], gone: set[int], request: int | None
    ) -> list[HandoffEntry]:
        """Returns entries on actions, decisions and files, most needed first, and the newest of each kind.

        Files that the live request names come before the newest. A file that an action names is not listed again, unless the
        action is too old to be listed.
        """
        done, touched, decided = (
            [fact for fact in facts if fact.number in gone][::-1]
            for facts in (ledger.actions, ledger.files, ledger.decisions)
        )
        failing = {fact.call_id for fact in ledger.open_errors}  # the section on blockers has these
        done = [fact for fact in done if fact.call_id not in failing][:_MOST_DONE]
        decided = decided[:_MOST_DECIDED]
        named = "\n".join(fact.text for fact in done)
        asked = "" if request is None else spoken_text(self._transcript.messages[request])
        touched.sort(key=lambda fact: not _names(asked, fact.label))
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
        """Returns an entry on edits with as many of its files as fit the share, the newest last."""
        what, _, listed = entry.text.partition(": ")
        paths = listed.split(", ")
        if entry.section is HandoffSection.BLOCKED:
            return self._shorten_failure(entry, share)
        for first in range(len(paths)):
            text = f"{what}: {'… ' if first else ''}{', '.join(paths[first:])}"
            if self._tokenizer.count(f"- m{entry.number} {text}\n") <= share:
                return msgspec.structs.replace(entry, text=text)
        return entry

    def _shorten_failure(self, entry: HandoffEntry, share: int) -> HandoffEntry:
        """Returns an entry on what fails; where it does not fit the share, with the names of its files alone."""
        if self._tokenizer.count(f"- m{entry.number} {entry.text}\n") <= share:
            return entry
        about, colon, error = entry.text.partition(": ")
        return msgspec.structs.replace(entry, text=f"{_FOLDERS.sub('…/', about)}{colon}{error}")

    def _take(
        self, entries: Sequence[HandoffEntry], share: int, *, newest_first: bool = False
    ) -> list[HandoffEntry]:
        """Returns the first entries that fit the share, no text twice, in the order of their messages.

        Those of one message stay in their order, which is the reverse of the given one where that is newest first.
        """
        costs = self._tokenizer.count_many([f"- m{entry.number} {entry.text}\n" for entry in entries])
        taken: dict[str, HandoffEntry] = {}
        for entry, cost in zip(entries, costs, strict=True):
            key = f"{entry.section} {entry.text}"
            if cost <= share and key not in taken:
                taken[key] = entry
                share -= cost
        fitting = list(taken.values())
        return sorted(fitting[::-1] if newest_first else fitting, key=lambda entry: entry.number)


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


def _tell_demands_once(entries: Sequence[HandoffEntry]) -> list[HandoffEntry]:
    """Returns the entries without demands that the task holds word for word; later handoffs find them in it again."""
    tasks: dict[int, str] = {}
    for entry in entries:
        if entry.section is HandoffSection.ACTIVE_TASK:
            tasks[entry.number] = f"{tasks.get(entry.number, '')}\n{entry.text}"
    return [
        entry
        for entry in entries
        if entry.section is not HandoffSection.CONSTRAINTS or entry.text not in tasks.get(entry.number, "")
    ]


def _tell_otherwise(told: Sequence[HandoffEntry], entries: Sequence[HandoffEntry]) -> list[HandoffEntry]:
    """Returns the entries without sentences that are told already: the agent's present work is often also its choice."""
    said = "\n".join(entry.text for entry in told)
    return [
        entry for entry in entries if entry.section is not HandoffSection.DECISIONS or entry.text not in said
    ]


def _name_result(call: ToolCall) -> str:
    """Returns the tool and, if it shows or changes one file, the name of that file."""
    family = tool_family(call.name)
    if family not in {ToolFamily.READ, ToolFamily.PATCH, ToolFamily.WRITE}:
        return call.name
    path = main_argument(family, arguments_of(call))
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return f"{call.name} {name}" if name and " " not in path else call.name


def _order(entry: HandoffEntry) -> int:
    """Returns the sort key of an entry: its message number in the context, which is in the order of messages; else 0."""
    return entry.number if entry.section is HandoffSection.CONTEXT else 0


def _is_brief(text: str) -> bool:
    """Returns True if a short sentence has fewer than five words and no more letters than these would have."""
    return len(text.split()) < _BRIEF_WORDS and (len(text) < _BRIEF_UNSPACED or not _UNSPACED.search(text))


def _says_little(text: str) -> bool:
    """Returns True if a request does not say what to do: "go on", "yes", two words, "can you do it again"."""
    few = len(text.split()) < _TELLING_WORDS and len(text) < _TELLING_CHARACTERS
    return few or GO_ON.match(text) is not None or only_points(text.strip())


def _constraint(fact: Fact) -> str:
    return f"{fact.text} (changed in m{fact.superseded_by})" if fact.superseded_by else fact.text
