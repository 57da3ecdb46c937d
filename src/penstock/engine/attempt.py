"""Makes one attempt at a handoff with one model: in the conversation itself, in one request, or part by part."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Role
from penstock.conversation.wire import json_text
from penstock.engine.threads import gather_all, in_thread
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
    from collections.abc import Callable, Iterable, Mapping, Sequence

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

_MARGIN = 0.9  # of a window, since another model's tokenizer counts differently
_SLACK = 1.5  # times the wanted length, since models do not count their words
_CLOSING_TOKENS = 2_000  # for the request at the end of a conversation
_LEAST_THINKING_TOKENS = 1_000  # on top of that; with less, the answer may be cut off
_THINKING_TOKENS = 4_096  # on top of the wanted length, for models that think first
_MOST_PARTS = 24
_LEAST_ROOM = 400  # tokens for turns: less is useless
_LEAST_NOTES = 300
_TOO_LONG = 3  # times the wanted length
_AT_ONCE = 3  # requests
_MOST_MARKS = 4  # cache marks that Anthropic takes in a request


class Conversation(msgspec.Struct, frozen=True, eq=False):
    """The request that the conversation's own model would get, as a provider may have it in its cache."""

    messages: Sequence[Any]
    dialect: str
    model: str
    tokens: int
    system: Any = None
    tools: Sequence[Any] = ()
    waits: bool = False
    """True if a call at its end has no result yet, so that no message can follow it."""
    mark: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Places cache marks as in the host's own requests; None if it places none."""


class WriterMemory(msgspec.Struct, frozen=True, eq=False):
    """Notes on the conversation and knowledge about models, if a store keeps them longer than one summariser.

    `book` is called for each request with the model that answered and its usage, whatever becomes of the answer. For a
    request that was broken off, the usage is empty.
    """

    notes: PartNotes | None = None
    learned: Learned | None = None
    book: Callable[[str, Usage], None] | None = None


class WritingJob(msgspec.Struct, frozen=True, eq=False):
    """The work for a model to write up, a way to make it smaller if it does not fit, and its conversation."""

    work: Work
    trim: Callable[[Work, int], Work]
    conversation: Conversation | None = None
    memory: WriterMemory = WriterMemory()
    most_request_tokens: int | None = None
    """The largest request for the session's own model, if it has refused a larger one."""


class Writer(msgspec.Struct, frozen=True, eq=False):
    """A model, its window (by our count of tokens), and the maximum of turns (in tokens) to show it at once.

    `is_main` is True for the session's own model, which has seen the conversation anyway.
    """

    model: Model
    window_tokens: int
    timeout_seconds: float = 120.0
    is_main: bool = False
    most_tokens: int | None = None

    @property
    def endpoint(self) -> str:
        """The address of the model, "" if it has none."""
        return str(getattr(self.model, "base_url", ""))

    @property
    def key(self) -> str:
        """The key that identifies this writer."""
        return f"{self.model.dialect} {self.endpoint} {self.model.name}"


class Allowance(NamedTuple):
    """The share of a budget for one request: seconds, and how often it may be sent."""

    seconds: float
    requests: int


class CallBudget(Protocol):
    """Keeps the budget of requests: grants each a share beforehand, and counts its usage afterwards."""

    def require(self, requests: int, prompt_tokens: int) -> None:
        """Raises NotWritten if fewer requests or tokens than that are left."""

    def allow(self, prompt_tokens: int) -> Allowance:
        """Returns the rest of the budget for a request, which counts from now on.

        Raises NotWritten if something is used up.
        """

    def book(self, usage: Usage, requests: int) -> None:
        """Counts the usage of an allowed request, however often it was sent."""

    def lose(self) -> None:
        """Records that an allowed request was broken off, so that its usage is unknown."""


class Writing:
    """One attempt with one writer."""

    def __init__(self, writer: Writer, job: WritingJob, books: CallBudget, notes: PartNotes) -> None:
        self._writer = writer
        self._job = job
        self._books = books
        self._known_notes = notes
        self._tokenizer: Tokenizer = tokenizer_for(writer.model.name)

    @property
    def fits_conversation(self) -> bool:
        """True if the request can go to the end of the conversation, whose prefix may be cached.

        Only for the session's own model, since the conversation goes there unchanged, with all its secrets, as
        it did before.
        """
        talk, model = self._job.conversation, self._writer.model
        if not self._writer.is_main or talk is None or talk.waits or talk.dialect != model.dialect:
            return False
        if talk.model and talk.model != model.name:
            return False
        needed = int(self._job.work.prose_tokens * _SLACK) + _LEAST_THINKING_TOKENS
        return self._room_in_conversation(talk) >= needed

    async def write_in_conversation(self) -> Prose:
        """Returns the handoff, after asking for it in a last message of the conversation.

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
                # Without a mark, nothing is read from the cache; a mark here finds everything before it.
                block = {"type": "text", "text": prompt, "cache_control": {"type": "ephemeral"}}
                closing = {"role": "user", "content": [block]}
            ask = Ask(messages=[*talk.messages, closing], system=talk.system, tools=talk.tools)
        room = self._room_in_conversation(talk)
        return _require_handoff(await self._ask_for_text(ask, work.prose_tokens, talk.tokens, room))

    async def write_on_its_own(self) -> Prose:
        """Returns the handoff from the turns alone, part by part if they do not fit.

        Raises as `write_in_conversation` does.
        """
        work = self._job.work
        room = self._count_room(handoff_prompt(msgspec.structs.replace(work, turns=())), work.prose_tokens)
        if work.tokens <= room:
            return _require_handoff(await self._write(handoff_prompt(work), work.prose_tokens))
        if work.tokens > _MOST_PARTS * room * _MARGIN:
            work = await in_thread(self._job.trim, work, int(_MOST_PARTS * room * _MARGIN))
        parts = _cut_parts(work.turns, room, self._tokenizer)
        tokens = max(_LEAST_NOTES, min(work.prose_tokens, room // (2 * len(parts))))
        self._books.require(len(parts) + 1, work.tokens)
        gate = asyncio.Semaphore(_AT_ONCE)
        notes = await gather_all(self._take_notes(part, tokens, gate) for part in parts)
        return _require_handoff(await self._write(merge_prompt(work, notes), work.prose_tokens))

    async def _take_notes(self, turns: Sequence[WorkTurn], tokens: int, gate: asyncio.Semaphore) -> str:
        prompt = notes_prompt(turns, tokens, self._job.work.focus)
        key = _digest(self._writer.key, PROMPT_VERSION, prompt)
        known = self._known_notes.get(key)
        if known is not None:
            return known
        async with gate:
            notes = await self._write(prompt, tokens)
        _require_handoff(notes)  # empty notes are neither kept nor used
        self._known_notes.put(key, notes)
        return notes

    async def _write(self, prompt: str, tokens: int) -> str:
        asked = self._tokenizer.count(prompt)
        return await self._ask_for_text(
            Ask(messages=[{"role": "user", "content": prompt}], system=SYSTEM), tokens, asked
        )

    async def _ask_for_text(self, ask: Ask, tokens: int, prompt_tokens: int, room: int | None = None) -> str:
        """Returns the text of the answer, which has at most `room` tokens of the window.

        If the request was refused only for its room for the answer, asks once more with less.
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
        """Returns the tokens of the window that are left for the answer after the conversation and the request."""
        return self._writer.window_tokens - talk.tokens - _CLOSING_TOKENS

    def _limit_output(self, tokens: int) -> int:
        most = max(tokens, self._writer.window_tokens // 4)
        return min(int(tokens * _SLACK) + _THINKING_TOKENS, most)

    def _count_room(self, empty_prompt: str, tokens: int) -> int:
        """Returns the tokens that are left for turns.

        Raises NotWritten if there are too few to be useful.
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
    """Returns the number of cache marks in the request."""
    parts = (*talk.messages, *talk.tools, talk.system)
    texts = (
        bytes(part).decode() if isinstance(part, (bytes, msgspec.Raw)) else json_text(part) for part in parts
    )
    return sum(text.count('"cache_control"') for text in texts)


def _require_text(answer: Answer, tokens: int, tokenizer: Tokenizer) -> None:
    """Raises NotWritten unless the answer is a complete text of about the wanted length."""
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

    Cuts turns that are larger than a part.
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


def _digest(*texts: str) -> str:
    return hashlib.blake2b("\x00".join(texts).encode(errors="surrogatepass"), digest_size=20).hexdigest()
