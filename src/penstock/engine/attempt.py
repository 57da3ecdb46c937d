"""One try to have one model write a handoff: in the conversation itself, in one request, or part by part."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Role
from penstock.conversation.wire import json_text
from penstock.errors import ErrorKind, NotWritten, ProviderError
from penstock.measure.tokens import tokenizer_for
from penstock.measure.usage import Usage
from penstock.providers.exchange import Answer, Ask, Finish
from penstock.writing.prompt import (
    PROMPT_VERSION,
    SYSTEM,
    closing_prompt,
    handoff_prompt,
    merge_prompt,
    notes_prompt,
)
from penstock.writing.prose import Prose, read_prose

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from penstock.engine.learned import Learned, PartNotes
    from penstock.measure.tokens import Tokenizer
    from penstock.providers.exchange import Model
    from penstock.writing.work import Work, WorkTurn

__all__ = [
    "Allowance",
    "CallBudget",
    "Conversation",
    "Writer",
    "WriterMemory",
    "Writing",
    "WritingJob",
]

_T = TypeVar("_T")

_MARGIN = 0.9  # of a window: another model's tokenizer counts otherwise
_SLACK = 1.5  # times what is to be written: models do not count their words
_CLOSING_TOKENS = 2_000  # for the request at the end of a conversation
_LEAST_THINKING_TOKENS = 1_000  # on top of that; with less, the answer may be cut
_THINKING_TOKENS = 4_096  # on top of what is to be written, for models that think first
_MOST_PARTS = 24
_LEAST_ROOM = 400  # tokens for turns: less is no use
_LEAST_NOTES = 300
_TOO_LONG = 3  # times what was asked for
_AT_ONCE = 3  # requests
_MOST_MARKS = 4  # cache marks that Anthropic takes in a request


class Conversation(msgspec.Struct, frozen=True, eq=False):
    """The request that the conversation's own model would get, as far as a provider may hold it in a cache."""

    messages: Sequence[Any]
    dialect: str
    model: str
    tokens: int
    system: Any = None
    tools: Sequence[Any] = ()
    waits: bool = False
    """True where a call at its end has no result yet, so that nothing can be said after it."""
    mark: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Places cache marks as the host's own requests have them; None where it places none."""


class WriterMemory(msgspec.Struct, frozen=True, eq=False):
    """Notes on the conversation and what was learned about models, where a store keeps them beyond one summariser.

    `book` is told of each request which model answered it and what it used, whatever becomes of the answer; nothing at all
    was used, as far as it is told, by one that was broken off.
    """

    notes: PartNotes | None = None
    learned: Learned | None = None
    book: Callable[[str, Usage], None] | None = None


class WritingJob(msgspec.Struct, frozen=True, eq=False):
    """The work to be written, how to make it smaller where it does not fit, and the conversation it is from."""

    work: Work
    trim: Callable[[Work, int], Work]
    conversation: Conversation | None = None
    memory: WriterMemory = WriterMemory()
    most_request_tokens: int | None = None
    """The most that the session's own model may be sent, where it has refused more."""


class Writer(msgspec.Struct, frozen=True, eq=False):
    """A model, the window it has (in tokens as we count), and the most turns (in tokens) that it is shown at once.

    `is_main` where it is the session's own model, which has seen the conversation anyway.
    """

    model: Model
    window_tokens: int
    timeout_seconds: float = 120.0
    is_main: bool = False
    most_tokens: int | None = None

    @property
    def endpoint(self) -> str:
        """The address that the model is at, "" for one without."""
        return str(getattr(self.model, "base_url", ""))

    @property
    def key(self) -> str:
        """The key that tells this writer from others."""
        return f"{self.model.dialect} {self.endpoint} {self.model.name}"


class Allowance(NamedTuple):
    """The rest of a budget for one request: seconds, and how often it may be sent."""

    seconds: float
    requests: int


class CallBudget(Protocol):
    """Keeps count of requests: says before each what is left for it, and is told what it used."""

    def require(self, requests: int, prompt_tokens: int) -> None:
        """Raises NotWritten where that many requests or tokens are not left."""

    def allow(self, prompt_tokens: int) -> Allowance:
        """Returns what is left for a request, which counts from now on.

        Raises NotWritten where something is used up.
        """

    def book(self, usage: Usage, requests: int) -> None:
        """Counts what an allowed request used, however often it was sent."""

    def lose(self) -> None:
        """Takes note that an allowed request was broken off: what it used is not known."""


class Writing:
    """One try with one writer."""

    def __init__(self, writer: Writer, job: WritingJob, books: CallBudget, notes: PartNotes) -> None:
        self._writer = writer
        self._job = job
        self._books = books
        self._known_notes = notes
        self._tokenizer: Tokenizer = tokenizer_for(writer.model.name)

    @property
    def fits_conversation(self) -> bool:
        """True where the request can be put at the end of the conversation, whose prefix may be cached.

        Only for the session's own model: the conversation goes there as it is, secrets and all, as it did
        before.
        """
        talk, model = self._job.conversation, self._writer.model
        if not self._writer.is_main or talk is None or talk.waits or talk.dialect != model.dialect:
            return False
        if talk.model and talk.model != model.name:
            return False
        needed = int(self._job.work.prose_tokens * _SLACK) + _LEAST_THINKING_TOKENS
        return self._room_in_conversation(talk) >= needed

    async def write_in_conversation(self) -> Prose:
        """Returns the handoff, asked for as the last message of the conversation.

        Raises ProviderError and NotWritten.
        """
        talk, work = self._job.conversation, self._job.work
        assert talk is not None  # noqa: S101 - the caller looked at `fits_conversation`
        prompt = closing_prompt(work)
        closing = dialect_named(talk.dialect).text_message(Role.USER, prompt)
        if talk.mark is not None:
            body = {"messages": [*talk.messages, closing], "system": talk.system, "tools": talk.tools}
            ask = Ask(**talk.mark(body))
        else:
            if talk.dialect == "anthropic" and _count_marks(talk) < _MOST_MARKS:
                # Without a mark nothing is read from the cache; one here finds what is before it.
                block = {"type": "text", "text": prompt, "cache_control": {"type": "ephemeral"}}
                closing = {"role": "user", "content": [block]}
            ask = Ask(messages=[*talk.messages, closing], system=talk.system, tools=talk.tools)
        room = self._room_in_conversation(talk)
        return _require_handoff(await self._ask_for_text(ask, work.prose_tokens, talk.tokens, room))

    async def write_on_its_own(self) -> Prose:
        """Returns the handoff from the turns alone, part by part where they do not fit.

        Raises as `write_in_conversation` does.
        """
        work = self._job.work
        room = self._count_room(handoff_prompt(msgspec.structs.replace(work, turns=())), work.prose_tokens)
        if work.tokens <= room:
            return _require_handoff(await self._write(handoff_prompt(work), work.prose_tokens))
        if work.tokens > _MOST_PARTS * room * _MARGIN:
            work = await asyncio.to_thread(self._job.trim, work, int(_MOST_PARTS * room * _MARGIN))
        parts = _cut_parts(work.turns, room, self._tokenizer)
        tokens = max(_LEAST_NOTES, min(work.prose_tokens, room // (2 * len(parts))))
        self._books.require(len(parts) + 1, work.tokens)
        gate = asyncio.Semaphore(_AT_ONCE)
        notes = await _gather(self._take_notes(part, tokens, gate) for part in parts)
        return _require_handoff(await self._write(merge_prompt(work, notes), work.prose_tokens))

    async def _take_notes(self, turns: Sequence[WorkTurn], tokens: int, gate: asyncio.Semaphore) -> str:
        prompt = notes_prompt(turns, tokens, self._job.work.focus)
        key = _digest(self._writer.key, PROMPT_VERSION, prompt)
        known = self._known_notes.get(key)
        if known is not None:
            return known
        async with gate:
            notes = await self._write(prompt, tokens)
        _require_handoff(notes)  # notes that say nothing are not kept, and not built upon
        self._known_notes.put(key, notes)
        return notes

    async def _write(self, prompt: str, tokens: int) -> str:
        asked = self._tokenizer.count(prompt)
        return await self._ask_for_text(
            Ask(messages=[{"role": "user", "content": prompt}], system=SYSTEM), tokens, asked
        )

    async def _ask_for_text(self, ask: Ask, tokens: int, prompt_tokens: int, room: int | None = None) -> str:
        """Returns the text of the answer, which has at most `room` tokens of the window.

        Where only the room asked for the answer was too much, less is asked for, once.
        """
        cap = self._limit_output(tokens)
        cap = cap if room is None else min(cap, room)
        try:
            answer = await self._ask(ask, cap, prompt_tokens)
        except ProviderError as error:
            stated = error.failure.output_cap_tokens
            if error.failure.kind is not ErrorKind.OUTPUT_CAP_TOO_LARGE or (stated or 0) >= cap:
                raise
            answer = await self._ask(ask, stated or tokens, prompt_tokens)
        _require_text(answer, tokens, self._tokenizer)
        return answer.text

    async def _ask(self, ask: Ask, cap: int, prompt_tokens: int) -> Answer:
        left = self._books.allow(prompt_tokens)
        bounded = msgspec.structs.replace(
            ask,
            max_output_tokens=cap,
            timeout_seconds=min(left.seconds, self._writer.timeout_seconds),
            most_requests=left.requests,
        )
        try:
            answer = await self._writer.model.answer(bounded)
        except asyncio.CancelledError:
            self._books.lose()
            raise
        except ProviderError as error:
            self._books.book(Usage(), error.requests)
            if error.failure.may_be_billed:
                self._books.lose()
            raise
        self._books.book(answer.usage, answer.requests)
        return answer

    def _room_in_conversation(self, talk: Conversation) -> int:
        """Returns the tokens of the window that are left for the answer behind the conversation and the request."""
        return self._writer.window_tokens - talk.tokens - _CLOSING_TOKENS

    def _limit_output(self, tokens: int) -> int:
        most = max(tokens, self._writer.window_tokens // 4)
        return min(int(tokens * _SLACK) + _THINKING_TOKENS, most)

    def _count_room(self, empty_prompt: str, tokens: int) -> int:
        """Returns the tokens that are left for turns.

        Raises NotWritten where that is too little to be of use.
        """
        taken = (
            self._tokenizer.count(SYSTEM)
            + self._tokenizer.count(empty_prompt)
            + self._limit_output(tokens)
            + 50
        )
        room = int(self._writer.window_tokens * _MARGIN) - taken
        if room < _LEAST_ROOM:
            raise NotWritten(f"a window of {self._writer.window_tokens:,} tokens is too small for the work")
        return min(room, self._writer.most_tokens or room)


def _count_marks(talk: Conversation) -> int:
    """Returns how many cache marks the request has already."""
    parts = (*talk.messages, *talk.tools, talk.system)
    texts = (
        bytes(part).decode() if isinstance(part, (bytes, msgspec.Raw)) else json_text(part) for part in parts
    )
    return sum(text.count('"cache_control"') for text in texts)


def _require_text(answer: Answer, tokens: int, tokenizer: Tokenizer) -> None:
    """Raises NotWritten for an answer that is no whole text of about the length that was asked for."""
    if answer.finish is Finish.REFUSED:
        raise NotWritten("it refused")
    if not answer.text.strip():
        raise NotWritten("it called a tool instead of writing" if answer.calls else "its answer was empty")
    if answer.finish is Finish.LENGTH:
        raise NotWritten("its answer was cut off")
    if len(answer.text) > 100 * tokens or tokenizer.count(answer.text) > _TOO_LONG * tokens:
        raise NotWritten("its answer was far too long")


def _require_handoff(text: str) -> Prose:
    prose = read_prose(text)
    if prose is None:
        raise NotWritten("its answer has none of the sections of a handoff")
    if not prose.entries:
        raise NotWritten("its answer has headings and nothing below them")
    return prose


def _cut_parts(turns: Sequence[WorkTurn], room: int, tokenizer: Tokenizer) -> list[list[WorkTurn]]:
    """Returns the turns in parts of at most `room` tokens and about the same size.

    A turn that is larger than a part is cut.
    """
    pieces = [piece for turn in turns for piece in _cut_turn(turn, room, tokenizer)]
    total = sum(piece.tokens for piece in pieces)
    even = min(room, int(total / -(-total // room) * 1.1) + 1)
    parts: list[list[WorkTurn]] = [[]]
    size = 0
    for piece in pieces:
        if parts[-1] and (size + piece.tokens > room or size >= even):
            parts.append([])
            size = 0
        parts[-1].append(piece)
        size += piece.tokens
    return parts


def _cut_turn(turn: WorkTurn, room: int, tokenizer: Tokenizer) -> Iterable[WorkTurn]:
    if turn.tokens <= room:
        yield turn
        return
    header, _, rest = turn.text.partition("\n")
    step = max(1, int(len(rest) * room / turn.tokens * _MARGIN) - len(header))
    for start in range(0, len(rest), step):
        text = f"{header}\n{rest[start : start + step]}"
        yield type(turn)(turn.number, text, tokenizer.count(text) + 2)


async def _gather(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Returns all results, in order. Where one fails, the others are stopped before the failure is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _digest(*texts: str) -> str:
    return hashlib.blake2b("\x00".join(texts).encode(errors="surrogatepass"), digest_size=20).hexdigest()
