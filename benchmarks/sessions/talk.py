"""Long everyday talk between two people, or a person and an assistant, with questions about it in other words.

Nobody calls a tool and hardly a value is named: people tell what they did, with whom, where and when, over months. A question
asks for one message of it, in the words of someone who remembers roughly: other forms of the same words, a word of like
meaning here and there, a name, a month. Names are put together from syllables, so that no list of names can help.
The same seed gives the same talk on every machine.
"""

import datetime as dt
import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.sessions.talk_banks import MONTHS, TONGUES, Event, Tongue

__all__ = ["Question", "Talk", "make_talk"]

DAY = 86_400.0
_START = 1_672_531_200.0  # 1 January 2023
_SYLLABLES = [
    "ma",
    "ro",
    "li",
    "ne",
    "to",
    "sa",
    "ka",
    "vi",
    "el",
    "an",
    "da",
    "mi",
    "ber",
    "lo",
    "ra",
    "sen",
    "ti",
    "no",
    "ja",
    "fe",
    "ul",
    "ri",
    "be",
    "na",
    "os",
]
_SESSION = (10, 22)  # messages, at least and at most
_GAP = (2, 12)  # days between two sessions
_EVENTS = 0.5  # of the messages that begin an exchange


class Question(NamedTuple):
    """A question, the sentence that answers it, and when it is asked."""

    text: str
    answer: str
    kind: str
    at: float


@dataclass(frozen=True)
class Talk:
    """Messages in the format of OpenAI's chat, when each was said, and what is asked about them."""

    messages: list[dict[str, Any]]
    times: list[float]
    questions: list[Question]


class _Told(NamedTuple):
    event: Event
    slots: dict[str, str]
    speaker: int
    answer: str
    at: float


def make_talk(seed: int, messages: int = 600, language: str = "en") -> Talk:
    """A talk of about so many messages, and some sixty questions."""
    return _Writer(seed, language).write(messages)


class _Writer:
    def __init__(self, seed: int, language: str) -> None:
        self.rng = random.Random(f"{seed} {language}")
        self.tongue: Tongue = TONGUES[language]
        # Else a person and an assistant, whom only their roles tell apart.
        self.named = seed % 3 != 0 or self.tongue.first_person is None
        self.names = self._invent_names()
        self.messages: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.told: list[_Told] = []
        self.at = _START + self.rng.randrange(200) * DAY

    def write(self, count: int) -> Talk:
        while len(self.messages) < count:
            self._write_session()
        return Talk(self.messages, self.times, self._ask())

    def _invent_names(self) -> list[str]:
        names: list[str] = []
        while len(names) < 2:
            name = "".join(self.rng.sample(_SYLLABLES, self.rng.choice((2, 3)))).capitalize()
            if all(name[:3] != other[:3] for other in names):
                names.append(name)
        return names

    def _write_session(self) -> None:
        self.at += self.rng.randint(*_GAP) * DAY + self.rng.randrange(36_000)
        end = len(self.messages) + self.rng.randint(*_SESSION)
        self._say(0, self.rng.choice(self.tongue.greetings).format(name=self.names[1]))
        self._say(1, self.rng.choice(self.tongue.greetings).format(name=self.names[0]))
        while len(self.messages) < end:
            speaker = self.rng.randrange(2) if self.named else 0
            if self.rng.random() < _EVENTS:
                self._tell(speaker)
            else:
                self._chat(speaker)

    def _tell(self, speaker: int) -> None:
        event = self.rng.choice(self.tongue.events)
        slots = {name: self.rng.choice(bank) for name, bank in self.tongue.slots.items()}
        lead = self.rng.choice(self.tongue.leads)
        if event.reply:
            # What is asked for is only told when the other asks back, without the words it belongs to.
            self._say(speaker, f"{lead} {self.rng.choice(event.said).format(**slots)}".strip())
            self._say(1 - speaker, self.rng.choice(event.back).format(**slots))
            answer = self.rng.choice(event.reply).format(**slots)
            self._say(speaker, answer)
        else:
            answer = self.rng.choice(event.said).format(**slots)
            self._say(speaker, f"{lead} {answer} {self.rng.choice(self.tongue.tails)}".strip())
            self._say(1 - speaker, self.rng.choice(event.back).format(**slots))
        self.told.append(_Told(event, slots, speaker, answer, self.times[-1]))

    def _chat(self, speaker: int) -> None:
        slots = {name: self.rng.choice(bank) for name, bank in self.tongue.slots.items()}
        for who in (speaker, 1 - speaker):
            self._say(who, self.rng.choice(self.tongue.small_talk).format(name=self.names[1 - who], **slots))

    def _say(self, speaker: int, text: str) -> None:
        said = f"{self.names[speaker]}: {text}" if self.named else text
        self.messages.append({"role": ("user", "assistant")[speaker], "content": said})
        self.at += self.rng.randint(20, 400)
        self.times.append(self.at)

    def _ask(self) -> list[Question]:
        questions = []
        now = self.times[-1] + 3 * DAY
        answers = [told.answer for told in self.told]
        for told in self.rng.sample(self.told, min(len(self.told), 80)):
            if answers.count(told.answer) > 1:
                continue  # said twice: which of the two is meant?
            twins = [
                other for other in self.told
                if other is not told and other.event is told.event and other.speaker == told.speaker
                and all(other.slots[slot] == told.slots[slot] for slot in told.event.asked_slots)
            ]  # fmt: skip
            month = _month_of(told.at)
            if any(_month_of(other.at) == month for other in twins):
                continue  # nothing tells them apart
            kind, question = self._word_question(told, dated=bool(twins), month=month)
            questions.append(Question(question, told.answer, kind, now))
        return questions

    def _word_question(self, told: _Told, *, dated: bool, month: tuple[int, int]) -> tuple[str, str]:
        tongue = self.tongue
        who = tongue.subject(self.names[told.speaker] if self.named else "")
        text = self.rng.choice(told.event.ask).format(**who, **told.slots)
        for word, others in tongue.synonyms.items():
            if f" {word}" in text and self.rng.random() < 0.3:
                text = text.replace(f" {word}", f" {self.rng.choice(others)}", 1)
        if dated:
            year, number = month
            when = tongue.in_month.format(month=MONTHS[tongue.code][number - 1], year=year)
            return "by time", f"{text.rstrip('? ')} {when}?"
        return "in a reply" if told.event.reply else "told once", text


def _month_of(at: float) -> tuple[int, int]:
    day = dt.datetime.fromtimestamp(at, dt.UTC)
    return day.year, day.month
