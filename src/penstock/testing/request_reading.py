"""Reads a request to a provider: its messages, their tokens, and the rules of the API that they break."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.pairing import match
from penstock.conversation.rules import check
from penstock.conversation.wire import json_text
from penstock.errors import InputError
from penstock.measure.weigh import MESSAGE_FRAME, tools_tokens, weigh

if TYPE_CHECKING:
    from penstock.measure.tokens import Tokenizer
    from penstock.testing.scripted import Received

__all__ = ["RequestFault", "RequestReading", "read_request"]


class RequestFault(msgspec.Struct, frozen=True):
    """A rule that the request breaks, in words."""

    rule: str
    text: str


class RequestReading(msgspec.Struct, frozen=True, kw_only=True):
    """A request, read. The weights are of tools, system prompt and messages, in the order of the prompt."""

    faults: tuple[RequestFault, ...] = ()
    weights: tuple[int, ...] = (0, 0)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the whole prompt."""
        return sum(self.weights)

    def scale(self, factor: float) -> RequestReading:
        """Returns the reading of a provider whose counts are this multiple of ours."""
        if factor == 1.0:
            return self
        return msgspec.structs.replace(self, weights=tuple(round(factor * weight) for weight in self.weights))


def read_request(received: Received, tokenizer: Tokenizer) -> RequestReading:
    """Returns the request, checked as the API of its dialect would. Never raises: what cannot be read is a fault."""
    dialect = dialect_named(received.dialect)
    shape = _shape_fault(received)
    if shape is not None:
        return RequestReading(faults=(shape,))
    try:
        messages = decode_all(dialect, received.messages)
        weights = (
            tools_tokens(received.tools, tokenizer),
            _system_tokens(received.system, tokenizer),
            *weigh(messages, tokenizer),
        )
    except InputError as error:
        return RequestReading(faults=(RequestFault("body", str(error)),))
    found = [
        RequestFault(violation.rule, f"message {violation.index + 1}: {violation.text}")
        for violation in check(messages, dialect.rules)
    ]
    # The rules let a call at the end be open, since its result may still come. A provider does not wait for it.
    found += [
        RequestFault("pairs", f"message {place.message + 1}: the call has no result after it")
        for place in match(messages, dialect.pairing).open
    ]
    return RequestReading(faults=tuple(found), weights=weights)


def _shape_fault(received: Received) -> RequestFault | None:
    body = received.body
    if not isinstance(body.get("model"), str):
        return RequestFault("body", "model: a string is required")
    if body.get("previous_response_id") is not None:
        return RequestFault("body", "previous_response_id: nothing is kept here; send the whole conversation")
    field = "input" if received.dialect == "responses" else "messages"
    if not received.messages:
        return RequestFault("body", f"{field}: at least one message is required")
    if received.dialect == "anthropic" and not received.path.endswith("/count_tokens"):
        cap = body.get("max_tokens")
        if not isinstance(cap, int) or cap < 1:
            return RequestFault("body", "max_tokens: a whole number above 0 is required")
    return None


def _system_tokens(system: Any, tokenizer: Tokenizer) -> int:
    if not system:
        return 0
    blocks = system if isinstance(system, list) else [system]
    texts = [
        str(block.get("text", "")) if isinstance(block, dict) and "text" in block else json_text(block)
        for block in blocks
        if not isinstance(block, str)
    ]
    texts += [block for block in blocks if isinstance(block, str)]
    return MESSAGE_FRAME + sum(tokenizer.count_many(texts))
