"""The facts of a conversation, without a model: actions, errors, constraints, decisions.

`facts_in` reads one message; `Ledger.of` folds the facts of a conversation: a call meets its outcome, a file
is listed once with all that was done to it, a command that was run again stands with its latest outcome, an
error that went away is no longer open, and a constraint that was changed says by which message.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.message import Message, Role, Text, ToolCall, ToolResult
from penstock.conversation.speakers import Voice, part_voices
from penstock.writing.harness import house_rules_in, title_of
from penstock.writing.stubs import ToolFamily, arguments_of, exit_status, main_argument, shorten, tool_family
from penstock.writing.values import sub_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.conversation.speakers import VoicedPart
    from penstock.redaction import Redactor

__all__ = ["Fact", "FactKind", "Ledger", "facts_in", "sentences"]


class FactKind(StrEnum):
    """The kinds of facts."""

    CONSTRAINT = "constraint"
    HOUSE_RULE = "house rule"  # of a project or a user, repeated by a harness
    SKILL = "skill"
    CALL = "call"
    OUTCOME = "outcome"
    DECISION = "decision"
    QUESTION = "question"


class Fact(msgspec.Struct, frozen=True, gc=False):
    """One fact, in the words of its source. `number` is the message, `call_id` ties calls and outcomes."""

    kind: FactKind
    text: str
    number: int = 0
    call_id: str = ""
    family: ToolFamily = ToolFamily.OTHER
    label: str = ""
    status: int | None = None
    failed: bool = False
    superseded_by: int = 0
    uses: int = 1


# Words by which people state what must and must not be done. Scripts without spaces need no word borders.
_CONSTRAINT = re.compile(
    r"\b(?:never|always|must(?:n[’']t)?|do(?:n[’']t| not)|only|cannot|can[’']t|should(?:n[’']t)?|avoid|without|"
    r"no longer|instead of|prefer|make sure|ensure|keep|leave .{1,40} alone|stick to|from now on|"
    r"nie(?:mals)?|immer|muss|müssen|darf|nicht|nur|kein\w*|stets|"
    r"jamais|toujours|doit|dois|ne .{1,30} pas|seulement|uniquement|il faut|"
    r"nunca|siempre|debes?|no (?:uses|toques|hagas|cambies)|solo|sólo|solamente|sempre|deve|não|apenas|"
    r"mai|solo|devi|non (?:usare|toccare|fare)|altijd|nooit|moet|niet|alleen|"
    r"никогда|всегда|должн\w*|нельзя|только|обязательно|не (?:трогай|меняй|используй|надо)|"
    r"nigdy|zawsze|musi\w*|tylko|asla|her zaman|sadece|никога|завжди|ніколи)\b"
    r"|不要|必须|禁止|只能|总是|永远|不得|务必|绝不|必須|してはいけ|しないで|必ず|のみ|だけ|절대|항상|반드시|하지 ?마",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:decided|decision|chose|choosing|we(?:[’']ll| will) use|going with|settled on|instead of|"
    r"root cause|the (?:problem|bug|issue|fix) (?:is|was)|turns out|because)\b|原因|决定|理由|решил|причина",
    re.IGNORECASE,
)
# One of these stands in every text that the pattern finds, and looking for them is much quicker.
_DECISION_HINTS = (
    *("decid", "decision", "chose", "choosing", " use", "going with", "settled", "instead", "root cause"),
    *("problem", "bug", "issue", "fix", "turns out", "because", "原因", "决定", "理由", "решил", "причина"),
)
_ERROR = re.compile(
    r"^.*(?:\b(?:\w*Error|\w*Exception|error|fatal|panic|failed|failure|FAILED|denied|not found|cannot|"
    r"No such file|undefined|traceback)\b).*$",
    re.MULTILINE | re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_LONG_MESSAGE = 4_000
_LONGEST_SENTENCE = 300
_PROBE = 3_000
_MOST_CONSTRAINTS = 150  # of a longer list the first ones, which set the rules, and the newest


def facts_in(message: Message, redactor: Redactor) -> tuple[Fact, ...]:
    """Returns the facts of one message, not yet numbered."""
    found: list[Fact] = []
    for part in message.parts:
        match part:
            case Text(text=text) if message.role is Role.USER:
                for voiced in part_voices(text):
                    found += _demands(voiced, redactor)
            case Text(text=text) if message.role is Role.ASSISTANT:
                if any(map(text.lower().__contains__, _DECISION_HINTS)):
                    found += [Fact(FactKind.DECISION, s) for s in _find_statements(text, _DECISION, redactor)]
                found += _question(text, redactor)
            case ToolCall():
                found.append(_call(part, redactor))
            case ToolResult():
                found.append(_outcome(part, redactor))
            case _:
                pass
    return tuple(found)


def _demands(voiced: VoicedPart, redactor: Redactor) -> Iterator[Fact]:
    """Yields what a person demands, and the rules that a harness repeats under the title that they stand under."""
    if voiced.voice is Voice.PERSON:
        for sentence in _find_statements(voiced.text, _CONSTRAINT, redactor):
            yield Fact(FactKind.CONSTRAINT, sentence)
        return
    if voiced.voice is Voice.SKILL:
        yield Fact(FactKind.SKILL, redactor.redact(title_of(voiced)))
    if rules := house_rules_in(voiced):
        title = redactor.redact(title_of(voiced))
        for rule in rules:
            yield Fact(FactKind.HOUSE_RULE, redactor.redact(rule), label=title)


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text; of a long one those at its start and its end."""
    if len(text) > _LONG_MESSAGE:
        text = text[: _LONG_MESSAGE // 2] + "\n" + text[-_LONG_MESSAGE // 2 :]
    return [sentence.strip() for sentence in _SENTENCE_END.split(text) if sentence.strip()]


class Ledger(msgspec.Struct, frozen=True):
    """The facts of a conversation, each kind in order of time."""

    constraints: tuple[Fact, ...]
    house_rules: tuple[Fact, ...]
    skills: tuple[Fact, ...]
    actions: tuple[Fact, ...]
    files: tuple[Fact, ...]
    open_errors: tuple[Fact, ...]
    decisions: tuple[Fact, ...]
    questions: tuple[Fact, ...]

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> Ledger:
        """Fold numbered facts, in the order of their messages."""
        by_kind: dict[FactKind, list[Fact]] = {kind: [] for kind in FactKind}
        for fact in facts:
            by_kind[fact.kind].append(fact)
        outcomes = {fact.call_id: fact for fact in by_kind[FactKind.OUTCOME]}
        calls = [(call, outcomes.get(call.call_id)) for call in by_kind[FactKind.CALL]]
        actions = tuple(_actions(calls))
        return cls(
            constraints=tuple(_with_changes(by_kind[FactKind.CONSTRAINT])),
            house_rules=tuple(_house_rules_in_force(by_kind[FactKind.HOUSE_RULE])),
            skills=tuple({fact.text: fact for fact in by_kind[FactKind.SKILL]}.values()),
            actions=actions,
            files=tuple(_files(calls)),
            open_errors=tuple(_open_errors(calls)),
            decisions=tuple(by_kind[FactKind.DECISION]),
            questions=tuple(by_kind[FactKind.QUESTION][-1:]),
        )


def _find_statements(text: str, pattern: re.Pattern[str], redactor: Redactor) -> Iterator[str]:
    if not pattern.search(text if len(text) <= _LONG_MESSAGE else text[:2_000] + text[-2_000:]):
        return
    for sentence in sentences(redactor.redact(text)):
        if pattern.search(sentence) and len(sentence) <= _LONGEST_SENTENCE:
            yield sentence.lstrip("-*•> ")


def _question(text: str, redactor: Redactor) -> list[Fact]:
    if not text[-20:].rstrip("*_ )\n").endswith(("?", "？")):
        return []
    last = next(reversed(sentences(text[-1_000:])), "")
    return [Fact(FactKind.QUESTION, redactor.redact(last))] if len(last) <= _LONGEST_SENTENCE else []


def _call(call: ToolCall, redactor: Redactor) -> Fact:
    family = tool_family(call.name)
    about = shorten(redactor.redact(main_argument(family, arguments_of(call))))
    return Fact(FactKind.CALL, about, call_id=call.call_id, family=family, label=call.name)


def _outcome(result: ToolResult, redactor: Redactor) -> Fact:
    """Returns the exit status and, where there is one, the exact first line of an error."""
    text = result.text
    probe = text if len(text) <= 2 * _PROBE else f"{text[:_PROBE]}\n{text[-_PROBE:]}"
    status = exit_status(probe) if "xit" in probe or "eturn" in probe or "XIT" in probe else None
    failed = result.is_error or (status is not None and status != 0)
    line = ""
    if failed:
        match = _ERROR.search(probe)
        first = match[0] if match else next((one for one in probe.split("\n") if one.strip()), "")
        line = shorten(redactor.redact(first.strip()), _LONGEST_SENTENCE)
    return Fact(FactKind.OUTCOME, line, call_id=result.call_id, status=status, failed=failed)


_Pairs = list[tuple[Fact, Fact | None]]
_EFFECTS = {ToolFamily.WRITE: "wrote", ToolFamily.PATCH: "patched", ToolFamily.TERMINAL: "ran"}
_QUIET_COMMAND = re.compile(
    r"^(?:cd [^&;|]+&& ?)?(?:ls|cat|head|tail|grep|rg|find|pwd|which|sed -n|wc|echo|tree)\b"
)


def _actions(calls: _Pairs) -> Iterator[Fact]:
    """Calls with side effects, each with its outcome; a repeated one stands where it was done last."""
    latest: dict[tuple[str, str], Fact] = {}
    for call, outcome in calls:
        verb = _EFFECTS.get(call.family)
        if verb is None or not call.text or (verb == "ran" and _QUIET_COMMAND.match(call.text)):
            continue
        key = (verb, call.text)
        uses = latest.pop(key).uses + 1 if key in latest else 1
        text = f"{verb} {call.text}{_result_words(outcome)}"
        latest[key] = msgspec.structs.replace(call, text=text, uses=uses)
    yield from latest.values()


def _result_words(outcome: Fact | None) -> str:
    if outcome is None:
        return " → not confirmed"
    if outcome.failed:
        return f" → {outcome.text or 'failed'}"
    return f" → exit {outcome.status}" if outcome.status is not None else " → done"


def _files(calls: _Pairs) -> Iterator[Fact]:
    """Yields each file once, with what was done to it, in the order in which it was last touched."""
    done: dict[str, dict[str, int]] = {}
    verbs: dict[ToolFamily, str] = {
        ToolFamily.READ: "read",
        ToolFamily.WRITE: "written",
        ToolFamily.PATCH: "patched",
    }
    for call, _ in calls:
        verb = verbs.get(call.family)
        if verb and call.text and len(call.text.split()) == 1:
            touched = done.pop(call.text, {})
            touched[verb] = call.number
            done[call.text] = touched
    for path, touched in done.items():
        text = f"{path} {', '.join(touched)}"
        yield Fact(FactKind.CALL, text, number=max(touched.values()), label=path, uses=len(touched))


def _open_errors(calls: _Pairs) -> Iterator[Fact]:
    """Failures of which the same call has not succeeded since."""
    failing: dict[tuple[str, str], Fact] = {}
    for call, outcome in calls:
        if outcome is None:
            continue
        failing.pop((call.label, call.text), None)
        if outcome.failed and outcome.text:
            text = f"{call.text}: {outcome.text}" if call.text else outcome.text
            failing[(call.label, call.text)] = msgspec.structs.replace(outcome, text=text)
    yield from failing.values()


def _house_rules_in_force(rules: list[Fact]) -> Iterator[Fact]:
    """Yields the rules of the newest message under each title, each once."""
    newest = {rule.label: rule.number for rule in rules}
    said: set[str] = set()
    for rule in rules:
        if rule.number == newest[rule.label] and rule.text not in said:
            said.add(rule.text)
            yield rule


_CHANGE = re.compile(
    r"\b(?:actually|instead|no longer|from now on|changed my mind|forget|ignore what|rather|never ?mind|"
    r"doch|stattdessen|finalement|plutôt|mejor|en vez|теперь|вместо)\b|改成|改为|代わりに",
    re.IGNORECASE,
)


def _with_changes(constraints: list[Fact]) -> list[Fact]:
    """Returns each constraint once; one that a later message changed says by which."""
    distinct: dict[str, Fact] = {}
    some = (
        constraints
        if len(constraints) <= _MOST_CONSTRAINTS
        else [*constraints[:50], *constraints[-_MOST_CONSTRAINTS + 50 :]]
    )
    for fact in some:
        distinct.setdefault(" ".join(fact.text.lower().split()), fact)
    kept = list(distinct.values())
    words: list[Any] = [sub_words(fact.text) for fact in kept]
    changes = [place for place, fact in enumerate(kept) if _CHANGE.search(fact.text)]
    for place, fact in enumerate(kept):
        for later in changes:
            shared = words[place] & words[later]
            if kept[later].number > fact.number and len(shared) >= 2 and 2 * len(shared) >= len(words[place]):
                kept[place] = msgspec.structs.replace(fact, superseded_by=kept[later].number)
    return kept
