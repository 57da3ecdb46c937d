"""The rules of the providers' APIs: where a list of messages may be cut, and where it is broken.

Each rule is an object that answers two questions about a list: where may it not be cut, and where does it break
the rule? A dialect names the rules of its provider. The planner cuts only where all of them allow it, `repair`
mends breaches, and the same rules check every result before it leaves. The docstring of a rule says which
provider has it and how that provider answers a request that breaks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from penstock.conversation.message import Message, Opaque, Part, Reasoning, Role, Text, ToolCall, ToolResult
from penstock.conversation.pairing import (
    Matching,
    Pairing,
    PartPlace,
    find_trailing_start,
    has_call,
    has_result,
    match,
)
from penstock.conversation.wire import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.conversation.dialects.wire_kinds import WireKind

__all__ = [
    "OPENING_TEXT",
    "Alternation",
    "Batches",
    "NonEmpty",
    "Pairs",
    "ReasoningStays",
    "Rule",
    "ServerTools",
    "ThinkingFirst",
    "UserOpens",
    "Violation",
    "check",
    "first_speaker",
    "has_late_thinking",
    "is_blank",
    "is_reasoning_item",
    "legal_cuts",
]


class Violation(msgspec.Struct, frozen=True, order=True):
    """A breach of a rule by the message at `index`, in words."""

    index: int
    rule: str
    text: str


class Rule(Protocol):
    """One rule. Both methods are linear in the number of messages."""

    @property
    def name(self) -> str:
        """The rule in one word."""

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """Returns every i from 1 to len - 1 for which no cut may separate messages i - 1 and i."""

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Returns every breach of the rule in the messages."""


def legal_cuts(messages: Sequence[Message], rules: Iterable[Rule]) -> list[int]:
    """Returns the cuts that all rules allow, sorted: i is the cut before message i.

    0 and len are always among them.
    """
    illegal: set[int] = set()
    for rule in rules:
        illegal |= rule.illegal_cuts(messages)
    last = len(messages)
    return [index for index in range(last + 1) if index in (0, last) or index not in illegal]


def check(messages: Sequence[Message], rules: Iterable[Rule]) -> list[Violation]:
    """Returns every breach of every rule, in the order of the messages."""
    return sorted(violation for rule in rules for violation in rule.violations(messages))


class Pairs:
    """Every result has its call in the right place, and every call its result unless it is still running.

    All providers have this rule and answer with status 400. They differ in the place of results: see `Pairing`.
    Anthropic: "`tool_use` ids were found without `tool_result` blocks immediately after: …" and "unexpected
    `tool_use_id` found in `tool_result` blocks: …". OpenAI Chat: "An assistant message with 'tool_calls' must
    be followed by tool messages responding to each 'tool_call_id'". OpenAI Responses: "No tool output found
    for function call …" and "No tool call found for function call output with call_id …".
    """

    name = "pairs"

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """Returns every cut between a call and its result."""
        return _inside_spans(match(messages, self.pairing).spans, len(messages))

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Returns results without a call, calls without a result that cannot still be running, and repeated ids."""
        found = match(messages, self.pairing)
        return sorted(_describe(messages, found))

    def __repr__(self) -> str:
        return f"Pairs({self.pairing})"


def _inside_spans(spans: Iterable[tuple[int, int]], length: int) -> set[int]:
    """Returns every i with start < i <= end for some span. Linear, however much the spans overlap."""
    steps = [0] * (
        length + 2
    )  # steps[i]: the spans around the cut before message i, less those around the cut before it
    for start, end in spans:
        steps[start + 1] += 1
        steps[end + 1] -= 1
    inside: set[int] = set()
    depth = 0
    for index in range(length):
        depth += steps[index]
        if depth:
            inside.add(index)
    return inside


def _describe(messages: Sequence[Message], found: Matching) -> Iterable[Violation]:
    for place in found.orphans:
        yield Violation(
            place.message, "pairs", f"a result for {_name(messages, place)} has no such call before it"
        )
    for place in found.repeated:
        yield Violation(place.message, "pairs", f"the call id {_name(messages, place)} is used twice")
    for place in found.unanswered:
        yield Violation(place.message, "pairs", f"the call {_name(messages, place)} has no result after it")


def _name(messages: Sequence[Message], place: PartPlace) -> str:
    part = messages[place.message].parts[place.part]
    return repr(part.call_id[:80]) if isinstance(part, ToolCall | ToolResult) else ""


class Batches:
    """Neighbouring messages with calls belong to one batch, answered or still open.

    No provider refuses half a batch. But each half would lack what the model did in parallel, and running calls
    would lose their place. So the rule only forbids cuts.
    """

    name = "batches"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """Returns every cut between two calls that were made together."""
        calling = [has_call(message) for message in messages]
        return {index for index in range(1, len(messages)) if calling[index] and calling[index - 1]}

    def violations(self, messages: Sequence[Message]) -> list[Violation]:  # noqa: ARG002  # what a batch must have after it is said in `Pairs`
        """Returns none."""
        return []

    def __repr__(self) -> str:
        return "Batches()"


_ALTERNATING = (Role.USER, Role.ASSISTANT)


class Alternation:
    """A plain message of our own making, which has no origin, has no neighbour of its own role.

    The chat templates of many open models refuse two turns of one role in a row: servers such as vLLM and
    llama.cpp answer "Conversation roles must alternate user/assistant/user/assistant/…". OpenAI accepts them,
    and Anthropic joins them to one turn, so clients do send them, and we leave the input alone. But we add no such
    neighbours: messages that come back to fill a target are chosen so that none gets a neighbour of its own role
    (`LayoutMaker.part_neighbours`), and a handoff without room for a word still stays if it separates two turns. Pinned
    messages may become neighbours, since they stay in any case. So may the turns before and after a result without
    its call, which every provider refuses and `repair` removes.
    """

    name = "alternation"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:  # noqa: ARG002  # the assembler chooses the messages at a cut
        """Returns none."""
        return set()

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Returns our own messages that have a neighbour of the same role."""
        return [
            Violation(
                index, self.name, f"a message that we made follows or precedes another of {message.role}"
            )
            for index, message in enumerate(messages)
            if message.origin is None
            and message.role in _ALTERNATING
            and not has_result(message)
            and not has_call(message)
            and any(neighbour.role is message.role for neighbour in _neighbours(messages, index))
        ]

    def __repr__(self) -> str:
        return "Alternation()"


def _neighbours(messages: Sequence[Message], index: int) -> list[Message]:
    return [messages[at] for at in (index - 1, index + 1) if 0 <= at < len(messages)]


def is_blank(part: Part) -> bool:
    """Returns True for text without a visible character."""
    return type(part) is Text and (not part.text or part.text.isspace())


class NonEmpty:
    """Every message has content, except the assistant's last, and no text is blank.

    Anthropic has this rule and answers with status 400: "all messages must have non-empty content except for
    the optional final assistant message" and "messages: text content blocks must be non-empty". It sends such
    blocks itself next to a call, so every client that echoes an answer runs into the rule.
    """

    name = "nonempty"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:  # noqa: ARG002  # the rule binds no two messages
        """Returns none."""
        return set()

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Returns the messages that are empty or have a blank text."""
        last = len(messages) - 1
        found: list[Violation] = []
        for index, message in enumerate(messages):
            if any(is_blank(part) for part in message.parts):
                found.append(Violation(index, self.name, "a text block is blank"))
            elif not message.parts and not (index == last and message.role is Role.ASSISTANT):
                found.append(Violation(index, self.name, "the message has no content"))
        return found

    def __repr__(self) -> str:
        return "NonEmpty()"


OPENING_TEXT = "[the conversation begins here]"
"""The text of the user's message that `repair` puts first if the first message is lost."""


def first_speaker(messages: Sequence[Message]) -> int:
    """Returns the index of the first message that is not the system's; len(messages) if there is none."""
    for index, message in enumerate(messages):
        if message.role is not Role.SYSTEM:
            return index
    return len(messages)


class UserOpens:
    """The first message after the system's is the user's, or one that stands for everything before it.

    Anthropic has this rule and answers with status 400: "messages: first message must use the "user" role". A
    kept head is therefore empty or reaches past that message. If it is empty, the assembler must put a user
    message first. A message with a compaction by the provider may open the list, too: see `is_barrier`.
    """

    name = "opening"

    def __init__(self, is_barrier: Callable[[Part], bool]) -> None:
        self._is_barrier = is_barrier

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """Returns every cut up to the opening message, except the one at 0.

        If we made that message, also returns the cut after it, since alone it opens nothing.
        """
        first = first_speaker(messages)
        made = first < len(messages) and messages[first].parts == (Text(OPENING_TEXT),)
        return {index for index in range(1, first + 1 + made) if index < len(messages)}

    def may_open(self, message: Message) -> bool:
        """Returns True if a conversation may begin with the message."""
        return message.role is Role.USER or any(map(self._is_barrier, message.parts))

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Returns the first message, if it may not be the first."""
        first = first_speaker(messages)
        if first < len(messages) and not self.may_open(messages[first]):
            return [
                Violation(first, self.name, f"the first message is of {messages[first].role}, not of user")
            ]
        return []

    def __repr__(self) -> str:
        return "UserOpens()"


def has_late_thinking(message: Message) -> bool:
    """Returns True if the message holds thinking, but begins with something else."""
    parts = message.parts
    return bool(parts) and type(parts[0]) is not Reasoning and any(type(part) is Reasoning for part in parts)


class ThinkingFirst:
    """A message that holds thinking begins with it.

    Anthropic has this rule and answers with status 400: "If an assistant message contains any thinking
    blocks, the first block must be `thinking` or `redacted_thinking`. Found `text`". It does not concern cuts,
    since thinking is inside a message.
    """

    name = "thinking"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:  # noqa: ARG002  # the rule binds no two messages
        """Returns none."""
        return set()

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Returns the messages with something before the thinking."""
        return [
            Violation(index, self.name, "thinking does not stand first in its message")
            for index, message in enumerate(messages)
            if has_late_thinking(message)
        ]

    def __repr__(self) -> str:
        return "ThinkingFirst()"


class ServerTools:
    """Keeps calls that the provider ran with their outcomes, and items of unknown types with those that name them.

    Anthropic has this rule and answers with status 400: "unexpected `tool_use_id` found in `web_search_tool_result`
    blocks: …". OpenAI has it for programs and for approvals: "No approval request found …". Uses and results are opaque to
    us, except for their ids: `kinds` says where those are. Anthropic's normally share one assistant message; after a
    paused turn, the result opens the next one. A program that has not ended keeps all calls that it has made so far.
    """

    name = "server tools"

    def __init__(self, kinds: Mapping[str, WireKind]) -> None:
        self._kinds = kinds

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """Returns every cut between the messages of a use and of its result."""
        return _inside_spans(self._pair(messages).spans, len(messages))

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Returns the results without their use before them."""
        return [
            Violation(
                place.message, self.name, "the result of a server tool has no use of that tool before it"
            )
            for place in self.orphans(messages)
        ]

    def orphans(self, messages: Sequence[Message]) -> list[PartPlace]:
        """Returns the results without their use. After a reference, only the provider may have the use."""
        return self._pair(messages).orphans

    def open_uses(self, messages: Sequence[Message]) -> set[int]:
        """Returns the messages at the end of the list whose uses have no result yet."""
        start = find_trailing_start(messages)
        return {place for place in self._pair(messages).unanswered if place >= start}

    def _pair(self, messages: Sequence[Message]) -> _ServerPairs:
        uses: dict[str, int] = {}  # the id of a use → its message
        running: dict[str, int] = {}  # those of the uses that have no result
        strangers: dict[str, int] = {}  # the ids of parts of an unknown type
        found = _ServerPairs([], [], [])
        referenced = False
        for index, number, part in _opaque_parts(messages):
            kind = self._kinds.get(part.kind)
            if kind is None and not part.kind.endswith("_tool_result"):
                found.spans.extend(_bind_strangers(part, index, strangers))
                continue
            nature = kind.nature if kind else "result"
            if nature in _USED:
                name = _field(part, kind.key if kind else "id") or f"the next {part.kind}"
                uses[name] = running[name] = index
            elif nature in _RETURNED:
                name = (
                    _field(part, kind.key if kind else "tool_use_id")
                    or f"the next {kind.pair if kind else ''}"
                )
                use = uses.get(name)
                running.pop(name, None)
                if use is not None:
                    found.spans.append((use, index))
                elif not referenced:
                    found.orphans.append(PartPlace(index, number))
            elif (
                part.kind == "mcp_call" and (use := uses.get(_field(part, "approval_request_id"))) is not None
            ):
                found.spans.append((use, index))
            referenced = referenced or part.kind == "item_reference"
        found.unanswered.extend(running.values())
        for start in running.values():
            if any(isinstance(part, Opaque) and part.kind == "program" for part in messages[start].parts):
                found.spans.append((start, _end_of_work(messages, start)))
        return found

    def __repr__(self) -> str:
        return "ServerTools()"


_USED, _RETURNED = (
    ("use", "call"),
    ("result", "output"),
)  # an opaque call is one that the provider answers


class _ServerPairs(NamedTuple):
    """The first and last message of each pair, results without a use, and the messages of uses without a result."""

    spans: list[tuple[int, int]]
    orphans: list[PartPlace]
    unanswered: list[int]


def _opaque_parts(messages: Sequence[Message]) -> Iterator[tuple[int, int, Opaque]]:
    for index, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if type(part) is Opaque:
                yield index, number, part


def _bind_strangers(part: Opaque, index: int, ids: dict[str, int]) -> list[tuple[int, int]]:
    """Returns the spans from earlier parts of unknown types to this one, which names them; adds its own ids."""
    block = parse_json(part.text)
    if not isinstance(block, dict):
        return []
    named = {key: value for key, value in block.items() if isinstance(value, str) and value}
    spans = [
        (ids[value], index)
        for key, value in named.items()
        if (key == "id" or key.endswith("_id")) and value in ids
    ]
    for key in ("id", "call_id"):
        if key in named:
            ids.setdefault(named[key], index)
    return spans


def _end_of_work(messages: Sequence[Message], start: int) -> int:
    """Returns the last of the calls and results that follow without any text in between."""
    end = start
    while end + 1 < len(messages) and (has_call(messages[end + 1]) or has_result(messages[end + 1])):
        end += 1
    return end


def _field(part: Opaque, name: str) -> str:
    block = parse_json(part.text)
    value = block.get(name) if isinstance(block, dict) else None
    return value if isinstance(value, str) else ""


def is_reasoning_item(message: Message) -> bool:
    """Returns True if the message is reasoning and nothing else."""
    return bool(message.parts) and all(type(part) is Reasoning for part in message.parts)


class ReasoningStays:
    """The assistant's item follows the reasoning item that led to it, and no cut separates them.

    OpenAI Responses has this rule and answers with status 400: "Item 'rs_…' of type 'reasoning' was provided
    without its required following item".
    """

    name = "reasoning"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """Returns every cut right after a reasoning item."""
        return {index for index in range(1, len(messages)) if is_reasoning_item(messages[index - 1])}

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Returns the reasoning items before an item of another role.

        At the end of the list, the assistant's item may still come.
        """
        return [
            Violation(index, self.name, "a reasoning item is not followed by the item it belongs to")
            for index in range(len(messages) - 1)
            if is_reasoning_item(messages[index]) and messages[index + 1].role is not Role.ASSISTANT
        ]

    def __repr__(self) -> str:
        return "ReasoningStays()"
