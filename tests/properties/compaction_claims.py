"""What the tests of the compaction share: cases, and what a result says, read from the wire."""

from __future__ import annotations

import json
import os
import re
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from tests.strategies.long_sessions import long_conversations, long_turns
from tests.strategies.writers import Turn, write

from penstock.config import redactor_of_process
from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Summary, ToolCall
from penstock.conversation.rules import check
from penstock.engine.compress import CompressRequest, compress_list
from penstock.errors import TargetTooSmall
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import weigh
from penstock.planning.plan import Fate
from penstock.writing.handoff import parse_handoff

NAMES = tuple(DIALECTS)
TOKENIZER = tokenizer_for(None)
REDACTOR = redactor_of_process()
RULE = "Never touch migrations/0042_payment.py."
# With more examples than usual (tests/conftest.py) what fails is shrunk, which takes minutes where the conversation is
# long.
_MORE = float(os.environ.get("PENSTOCK_EXAMPLES", "1")) > 1
_RAISE_TO = re.compile(r"at least ([\d,]+) tokens")


def keep_quick(*names):
    """All dialects, of which `make quick` looks at these: for claims that cost much and depend little on the dialect."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.outside) for name in NAMES]


def claim(examples):
    """Settings for one property: the same examples on every run, with a blob to reproduce a failure."""
    return settings(
        max_examples=examples,
        derandomize=not _MORE,
        database=None,
        deadline=None,
        phases=tuple(Phase) if _MORE else (Phase.explicit, Phase.generate),
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


class Case(NamedTuple):
    """A conversation on the wire, and how many tokens its compaction may take."""

    name: str
    wires: list
    target: int

    def compress(self, target=None, **wishes):
        request = CompressRequest(target_tokens=target or self.target, dialect=self.name, **wishes)
        return Seen(self.name, self.wires, compress_list(self.wires, request))

    def fitting(self, **wishes):
        """The result at the target, or at the one that the error names."""
        try:
            return self.compress(**wishes)
        except TargetTooSmall as error:
            return self.compress(told_target(error), **wishes)


class Seen(NamedTuple):
    """A result beside what it was made of."""

    name: str
    wires: list
    result: object

    @property
    def messages(self):
        return decoded(self.name, self.result.messages)

    @property
    def tokens(self):
        return tokens(self.name, self.result.messages)

    @property
    def breaches(self):
        return breaches(self.name, self.result.messages) - breaches(self.name, self.wires)

    @property
    def summaries(self):
        return [part for message in self.messages for part in message.parts if isinstance(part, Summary)]

    @property
    def entries(self):
        return [entry for summary in self.summaries for entry in parse_handoff(summary.text)]

    @property
    def text(self):
        """All that the view says."""
        return "\n".join(text for message in self.messages for text in spoken(message))

    @property
    def standing(self):
        """(verdict, its object in the result) for every message that was not summarised, in order."""
        left = [verdict for verdict in self.result.verdicts if verdict.fate is not Fate.SUMMARISED]
        wires = list(self.result.messages)
        given = {id(wire) for wire in self.wires}
        if len(wires) > len(left):
            ours = [at for at, wire in enumerate(wires) if id(wire) not in given and self._is_handoff(wire)]
            del wires[ours[0]]
        return list(zip(left, wires, strict=True))

    @property
    def written(self):
        """Every text of the result that is ours: the handoff, and parts that are not as they came."""
        standing = self.standing
        before = decoded(self.name, self.wires)
        after = decoded(self.name, [wire for _, wire in standing])
        texts = [summary.text for summary in self.summaries]
        for (verdict, _), message in zip(standing, after, strict=True):
            as_given = "\n".join(spoken(before[verdict.position]))
            texts += [text for text in spoken(message) if text.strip() not in as_given]
        return texts

    def _is_handoff(self, wire):
        parts = DIALECTS[self.name].decode(as_object(wire)).parts
        return len(parts) == 1 and isinstance(parts[0], Summary)


@st.composite
def cases(draw, name, conversations=long_conversations, shares=(0.03, 1.05)):
    wires = draw(conversations(name))
    share = draw(st.floats(*shares))
    return Case(name, wires, max(1, int(share * tokens(name, wires))))


@st.composite
def growing(draw, name):
    """A conversation in portions, each beginning with a request. The first states a rule."""
    first = Turn(
        f"Repair the importer. {RULE}",
        has_image=False,
        rounds=[],
        says="",
        thinks="",
        answer="Yes.",
        extra=False,
    )
    turns = [first, *draw(long_turns(4, 9))]
    wires = write(name, turns, has_system=draw(st.booleans()), shape=draw(st.integers(0, 3)))
    starts = [at for at, wire in enumerate(wires) if is_request(name, wire)]
    chosen = sorted(draw(st.sets(st.sampled_from(starts[2:]), max_size=3)))
    return [wires[start:end] for start, end in zip([0, *chosen], [*chosen, len(wires)], strict=True)]


def told_target(error):
    """The target that the error tells its reader to use."""
    return int(_RAISE_TO.search(str(error))[1].replace(",", ""))


def as_object(wire):
    return json.loads(bytes(wire)) if isinstance(wire, bytes | msgspec.Raw) else wire


def decoded(name, wires):
    return decode_all(DIALECTS[name], [as_object(wire) for wire in wires])


def tokens(name, wires):
    return sum(weigh(decoded(name, wires), TOKENIZER))


def breaches(name, wires):
    return {violation.rule for violation in check(decoded(name, wires), DIALECTS[name].rules)}


def is_request(name, wire):
    """Whether the user speaks in this wire object, read from the wire alone."""
    if name == "sharegpt":
        return wire["from"] == "human"
    if wire.get("role") != "user":
        return False
    content = wire["content"]
    return isinstance(content, str) or any(block["type"] != "tool_result" for block in content)


def last_request(name, wires):
    return next((at for at in range(len(wires) - 1, -1, -1) if is_request(name, wires[at])), None)


def spoken(message):
    """The texts of a message, part by part; of a call its arguments."""
    return [
        part.arguments if isinstance(part, ToolCall) else getattr(part, "text", "") for part in message.parts
    ]


def quotable(name, wire):
    """What stands in a message, redacted: what its excerpts may be taken from."""
    return [REDACTOR.redact(text) for text in spoken(DIALECTS[name].decode(as_object(wire))) if text]


def is_quoted(line, texts):
    """Whether the line stands in one of the texts, or is made of the keys and values of its JSON."""
    flat = " ".join(line.split())
    return any(flat in " ".join(text.split()) or _is_laid_out(flat, text) for text in texts)


def _is_laid_out(flat, text):
    try:
        data = json.loads(text, parse_float=str)
    except ValueError:
        return False
    said = " ".join(" ".join(_phrases(data)).split())  # a long value is cut anywhere, so words may be parts
    return all(word.strip(",:") in said or word == "none" for word in flat.split())


def _phrases(node):
    if isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from _phrases(value)
    elif isinstance(node, list):
        for value in node:
            yield from _phrases(value)
    else:
        yield node if isinstance(node, str) else json.dumps(node)
