"""Reads from the conversation, without a model, how the work stands.

    asked → plan and to-do list → edits → checks (tests, builds, runs) → answer

`signs_in` reads one message, and its facts are kept with its reading; `State.of` folds the facts of a conversation. A
to-do list is known by the form of a call's arguments (objects with a text and a status), whatever the tool is called; a
plan by its numbers or boxes. A later success of the same kind of command takes a failure away, a later list the earlier
one, an answer the question and the plan that was worked on for it. `entries_of` writes what is left into the sections of a
handoff, the most needed first, and `contradicts` holds a model's words, or those of an older handoff, to it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation.message import Message, Role, Text, ToolCall
from penstock.conversation.speakers import find_typed_command, person_words
from penstock.writing.caseless import CaselessPattern
from penstock.writing.constraints import sentences, without_code
from penstock.writing.handoff import HandoffEntry, HandoffSection
from penstock.writing.ledger import (
    REFUSED_BY_USER,
    Fact,
    FactKind,
    Progress,
    TodoItem,
    fold_failures,
    join_waits,
    kinds_of_command,
)
from penstock.writing.stubs import arguments_of, shorten

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from penstock.redaction import Redactor

__all__ = [
    "GO_ON",
    "State",
    "adds_to",
    "contradicts",
    "edits_of",
    "entries_of",
    "is_deed",
    "replaces",
    "signs_in",
]

GO_ON = re.compile(
    r"\W*(?:(?:please|yes|yep|ok(?:ay)?|go|carry|keep|continue|proceed|next|on|ahead|going|do it|sure|"
    r"weiter|ja|bitte|continuez?|oui|sigue|continúa|sí|继续|好的?|続けて|はい|продолжай|да)\W*){1,5}$",
    re.IGNORECASE,
)
_LONGEST = 240  # characters of a sentence that is quoted
_FIRST_WORDS = 160  # characters of a request that is named

# A list of things to do, in the arguments of a call.
_TEXT_KEYS = ("content", "text", "title", "task", "step", "subject", "description", "name", "item", "todo")
_STATUS_KEYS = ("status", "state", "done", "completed", "checked", "progress")
_ID_KEYS = ("id", "taskId", "task_id", "todo_id", "todoId")
_LIST_TOOL = re.compile(r"to_?-?do|plan|task|checklist", re.IGNORECASE)
_NEW_TASK = re.compile(
    r"(?:task|to_?-?do)_?-?(?:create|add|new)|(?:create|add|new)_?-?(?:task|to_?-?do)", re.IGNORECASE
)
_TASK_CHANGE = re.compile(
    r"(?:task|to_?-?do)_?-?(?:update|set|complete|done|edit)|(?:update|complete|set)_?-?(?:task|to_?-?do)",
    re.IGNORECASE,
)
_DONE = frozenset(
    [
        "done",
        "completed",
        "complete",
        "finished",
        "closed",
        "resolved",
        "cancelled",
        "canceled",
        "skipped",
        "deleted",
        "x",
        "true",
    ]
)
_DOING = frozenset(
    [
        "in_progress",
        "in-progress",
        "inprogress",
        "doing",
        "active",
        "started",
        "current",
        "ongoing",
        "wip",
        "-",
        "~",
        "/",
    ]
)
_OPEN = frozenset(
    [
        "pending",
        "todo",
        "to_do",
        "to-do",
        "open",
        "not_started",
        "not-started",
        "notstarted",
        "queued",
        "waiting",
        "blocked",
        "false",
        "new",
    ]
)
_BOX = re.compile(r"^[ \t]*+(?:(?:[-*+•]|\d{1,3}[.)])[ \t]*+)?\[([ xX\-~/✓✔])\][ \t]+(\S.*)$", re.MULTILINE)
_STEP = re.compile(r"^\s{0,3}(?:\*\*)?(?:step )?(\d{1,2})[.):]\s*(\S(?:.*\S)?)", re.MULTILINE | re.IGNORECASE)
_NUMBER_OF_STEP = re.compile(r"\d[.):]")  # stands in each, and is found much sooner
_PLAN_TITLE = re.compile(
    r"(?:\bplan\b|\bsteps?\b|\bto-?do\b|\bremaining\b|what[’']s left|left to do|next up|\bi(?:[’']ll|"
    r" will)\b|going to\b|"
    r"\bapproach\b|\bschritte\b|\bétapes\b|\bpasos\b|\bpassos\b|\bpassi\b|план|шаги|计划|步骤|手順|計画|"
    r"계획)[^\n]{0,80}$",
    re.IGNORECASE,
)
_STEP_DONE = re.compile(
    r"\b(?:step|phase|task|part) (\d{1,2})\b[^.\n]{0,60}\b(?:is |are )?(?:done|completed?|finished)\b",
    re.IGNORECASE,
)
_STEP_BEGUN = re.compile(
    r"^[^\w\n]{0,40}(?:now,? |next,? |then,? |moving on to |on to |starting (?:with )?|let me (?:start|begin|"
    r"do) )*(?:step|phase|task) (\d{1,2})\b",
    re.IGNORECASE | re.MULTILINE,
)

_NUMBERED = re.compile(r" \d{1,2}\b")  # stands in every sentence on a step that is done or begun
_BULLET = re.compile(r"^(?:(?:[-*•>+–]|\d{1,3}[.)]|#{1,6})\s+)+")

# What an agent says that it will do.
_INTENT = CaselessPattern(
    r"(?:(?:ok(?:ay)?|great|good|perfect|now|next|then|first|finally|alright|so|sure|got it|and|right|"
    r"excellent|(?:once|after|when|if) [^,\n]{1,60},(?:[^,\n]{1,40},)?|thank[^,\n]{0,34},|als nächstes|jetzt|"
    r"ensuite|maintenant|ahora|agora|ora|"
    r"теперь|сначала|затем)[,.!:]?\s+){0,6}"
    r"(?:i(?:[’']ll| will| still need to| need to| plan to|(?: am|[’']m) (?:now )?(?:going to|"
    r"about to|(?:also |just |still )?(?!(?:thinking|wondering|assuming|getting|having|seeing|missing|hoping|looking "
    r"forward|afraid|being|everything|something|anything|nothing)\b)[a-z]+ing))\b(?! (?:be happy|be glad|assume|need (?:to know|your|you|the|a)\b))|"
    r"let me\b(?! know)|let[’']s\b|next(?: step)?(?:,| is|:)|remaining(?: steps?| work)?:|still (?:to do|"
    r"missing|open):?|"
    r"what[’']s left|ich werde|ich muss noch|lass mich|je vais|laisse-moi|il reste|voy a|déjame|falta|"
    r"vou\b|deixe-me|falta|"
    r"farò|lasciami|devo ancora|ik ga|laat me|я (?:сейчас|буду|сделаю|проверю)|давай(?:те)?|осталось|接下来|"
    r"现在(?:我|让我|来)|让我|"
    r"我(?:会|将|来|先)|下一步|次に|これから|残り|이제|다음으로|제가 )|"
    # In the present tense only behind a word of time: "jetzt prüfe ich", "ensuite je corrige", "ahora cambio".
    r"(?:als nächstes|jetzt|nun|danach|zuerst|zunächst) [a-zäöüß]+e ich\b|"
    r"(?:ensuite|maintenant|d[’']abord),? j(?:e |[’'])|"
    r"(?:ahora|a continuación|luego|agora|em seguida),? (?!(?:todo|tudo|solo|sólo|como|esto|eso|no|yo|pero|mismo|cuando|"
    r"quando|creo|veo|vejo|tengo|tenho|entiendo|entendo)\b)[a-záéíóúãç]+o\b",
)
_TELLS_ITSELF = re.compile(  # the last sentence before a call: "Now update the caller:"
    r"(?:(?:and )?now|next|then|first|finally|also),? (?:add|adjust|apply|build|bump|call|change|check|clean|commit|compile|"
    r"configure|convert|create|define|delete|deploy|document|drop|edit|enable|export|expose|extend|extract|find|finish|fix|"
    r"format|generate|handle|implement|import|insert|install|lint|look|make|mark|merge|modify|move|open|push|read|rebuild|"
    r"refactor|regenerate|register|remove|rename|replace|re-?run|restore|revert|review|rewrite|run|search|set|simplify|split|"
    r"start|switch|test|tweak|update|use|verify|wire|write)\b.*[:.]$",
    re.IGNORECASE,
)
_LOOKS = re.compile(  # which changes nothing, and is over when something is changed
    r"(?:.*\b(?:let me|let[’']s|i(?:[’']ll| will| need to)|(?:am|[’']m) going to)|now|next|then|first|finally|also),?"
    r"(?: (?:also|now|first|just|quickly|take a))*"
    r" (?:check|look|see|read|find|view|search|examine|inspect|explore|understand|verify|review|investigate|trace|open|list)\b"
    r"(?!.*\b(?:fix|add|change|update|write|implement|remove|replace|create|edit|rename|refactor)\b)",
    re.IGNORECASE,
)
_PROMISE = re.compile(
    r"\bi(?:[’']ll| will)\b|ich werde|je vais|voy a|я (?:сделаю|проверю)|我(?:会|将)", re.IGNORECASE
)
_VAGUE = re.compile(  # "let me make the changes": which, it does not say
    r"(?<![\w./-])(?:make|implement|do|apply|start|begin|continue|proceed|fix|check|look|see|take|try|go)"
    r"(?: (?:with|the|these|those|this|that|it|them|all|now|at|a|an|look|changes?|edits?|fix(?:es)?|again|ahead|on|up))*\W*$",
    re.IGNORECASE,
)
_SHORT = 25  # characters: a shorter sentence of an answer says little
_REMARK = 10  # characters: a shorter request is a remark
_CLOSING = re.compile(r"\b(?:anything|something) else\b|\bhow (?:can|may) i (?:help|assist)\b", re.IGNORECASE)
_EDITED = "edited and not tested since:"
_EDITED_FOR = "edited for this request:"
_FENCE = "```"
_MOST_SAID = 8  # sentences of an answer that may be the one that answers
_ANSWERS = re.compile(
    r"(?:yes|no|yep|yeah|nope|correct|right|exactly|ja|nein|oui|non|sí|да|нет|是|不|はい|いいえ)\b",
    re.IGNORECASE,
)
_LONG_WORD = re.compile(r"\w{4,}")
_POINTERS = frozenset(
    [
        "that",
        "this",
        "these",
        "those",
        "there",
        "here",
        "them",
        "they",
        "their",
        "then",
        "what",
        "which",
        "when",
        "where",
    ]
)
_WORDS = re.compile(r"\w{3,}")
_MOST_TODO = 8
_NEW_MATTER = 60  # characters of a request that is more than a remark on the plan
_NO_STATE = frozenset(
    {FactKind.CONSTRAINT, FactKind.HOUSE_RULE, FactKind.SKILL}
)  # of all turns, so they are many
_KEPT_PROMISE = 3  # calls after which a promise is taken to be kept, or to be work in progress


def signs_in(message: Message, redactor: Redactor) -> tuple[Fact, ...]:
    """Returns what one message tells of the state of the work, not yet numbered: requests, answers, plans, intentions."""
    found: list[Fact] = []
    if message.role is Role.USER and any(isinstance(one, Text) and one.text.strip() for one in message.parts):
        found.append(_note_asked(person_words(message) or find_typed_command(message), redactor))
    for part in message.parts:
        match part:
            case Text(text=text) if message.role is Role.ASSISTANT and text.strip():
                found += _note_said(text, redactor)
            case ToolCall():
                found += _todo(part, redactor)
            case _:
                pass
    return tuple(found)


class State(msgspec.Struct, frozen=True):
    """The state of the work at the end of a conversation. Facts carry the numbers of their messages."""

    todo: tuple[TodoItem, ...] = ()
    """The items of the newest list or plan, in its order, the done ones included."""
    doing: Fact | None = None
    """The step that the agent last said it would take now, while it works."""
    untested: tuple[Fact, ...] = ()
    """The edits since the last test, build or run, one per path."""
    edited: tuple[Fact, ...] = ()
    """The edits since a person last asked for something, one per path, tested or not."""
    failing: tuple[Fact, ...] = ()
    """The commands that failed last and still do, each with the first line of its error."""
    promises: tuple[Fact, ...] = ()
    """The things that the agent promised in its last answer."""
    questions: tuple[Fact, ...] = ()
    """The agent's questions that nobody has answered."""
    waiting: tuple[Fact, ...] = ()
    """People's earlier requests that have had no answer, without the last one."""
    answered: tuple[tuple[Fact, Fact], ...] = ()
    """People's questions, each with the beginning of its answer."""
    cleared: frozenset[str] = frozenset()
    """Commands, and kinds of commands, that succeeded last."""
    closed: frozenset[str] = frozenset()
    """Ids of things to do that were done, though the list that named them is gone."""
    checked: bool = False
    """True if a test, build or run came."""
    moved_on: bool = False
    """True if a request was answered: what was open before it may not be."""

    @classmethod
    def of(cls, facts: Sequence[Fact]) -> State:
        """Folds numbered facts, in the order of their messages."""
        facts = join_waits([fact for fact in facts if fact.kind not in _NO_STATE])
        talk = _fold_talk(facts)
        failures = fold_failures(facts)
        todo, closed = _fold_todo(facts)
        edits = _fold_edits(facts)
        return cls(
            todo=todo,
            doing=talk.doing,
            untested=edits.untested,
            edited=edits.edited,
            failing=failures.standing,
            promises=talk.promises,
            questions=talk.questions,
            waiting=talk.waiting,
            answered=talk.answered,
            cleared=failures.cleared,
            closed=closed,
            checked=edits.checked,
            moved_on=talk.moved_on,
        )


def entries_of(state: State, gone: Container[int]) -> list[HandoffEntry]:
    """Returns the state as entries of a handoff, the most needed first: only of messages that do not stand in the view."""
    entries = [
        HandoffEntry(HandoffSection.BLOCKED, fact.number, fact.text) for fact in reversed(state.failing[-2:])
    ]
    entries += _todo_entries(state.todo)
    if state.doing is not None and not any(item.progress is Progress.DOING for item in state.todo):
        entries.append(HandoffEntry(HandoffSection.IN_PROGRESS, state.doing.number, state.doing.text))
    if untested := [fact for fact in state.untested if fact.number in gone]:
        paths = ", ".join(fact.text for fact in untested[-6:])
        entries.append(HandoffEntry(HandoffSection.IN_PROGRESS, untested[-1].number, f"{_EDITED} {paths}"))
    asked = [
        *(("not answered yet", fact) for fact in reversed(state.waiting[-2:])),
        *(("asked the user, no answer yet", fact) for fact in state.questions[-1:]),
        *(("promised" if _PROMISE.search(fact.text) else "said last", fact) for fact in state.promises[-2:]),
    ]
    entries += [
        HandoffEntry(HandoffSection.PENDING, fact.number, f"{what}: {fact.text}") for what, fact in asked
    ]
    entries += [
        HandoffEntry(
            HandoffSection.RESOLVED, question.number, f"{question.text} → m{answer.number} {answer.text}"
        )
        for question, answer in state.answered[-1:]
    ]
    return [entry for entry in entries if entry.number in gone]


def edits_of(state: State, gone: Container[int]) -> list[HandoffEntry]:
    """Returns an entry on what was edited for the request and tested, for a handoff too short to list what was done."""
    untested = {fact.text for fact in state.untested}
    tested = [fact for fact in state.edited if fact.text not in untested and fact.number in gone]
    if not tested:
        return []
    paths = ", ".join(fact.text for fact in tested[-6:])
    return [HandoffEntry(HandoffSection.COMPLETED, tested[-1].number, f"{_EDITED_FOR} {paths}")]


def is_deed(entry: HandoffEntry) -> bool:
    """Returns whether an entry says what was edited or what fails: without it an agent begins anew."""
    return entry.section is HandoffSection.BLOCKED or entry.text.startswith((_EDITED, _EDITED_FOR))


def contradicts(state: State, entry: HandoffEntry) -> bool:
    """Returns whether the entry names as open what the conversation shows to be done or to work again.

    And whether it says that tests pass of a run that failed.
    """
    match entry.section:
        case HandoffSection.COMPLETED | HandoffSection.STATE:
            return _TESTS_PASS.search(entry.text) is not None and any(
                "test" in fact.check
                and entry.number in _numbers_of(fact, entry.section)
                and not _TESTS_FAIL.search(entry.text)
                for fact in state.failing
            )
        case HandoffSection.BLOCKED:
            still = any(_names_failure(entry.text, fact) for fact in state.failing)
            return not still and any(_names_command(entry.text, command) for command in state.cleared)
        case HandoffSection.IN_PROGRESS | HandoffSection.PENDING | HandoffSection.REMAINING:
            if entry.text.startswith(_EDITED):
                return state.checked
            if (number := re.match(r"#(\w+) ", entry.text)) and number[1] in state.closed:
                return True
            likeness = {
                done: max((_likeness(item.text, entry.text) for item in some), default=0.0)
                for done, some in _by_done(state.todo).items()
            }
            return likeness[True] >= _ALIKE and likeness[True] > likeness[False]
        case _:
            return False


def replaces(state: State, entry: HandoffEntry) -> bool:
    """Returns whether an entry of an older handoff gives way to what has happened since."""
    match entry.section:
        case HandoffSection.REMAINING | HandoffSection.IN_PROGRESS if not entry.text.startswith(_EDITED):
            return (
                bool(state.todo)
                or state.moved_on
                or (state.doing is not None and entry.section is HandoffSection.IN_PROGRESS)
            )
        case HandoffSection.PENDING:
            return state.moved_on
        case HandoffSection.BLOCKED:
            return state.moved_on and not kinds_of_command(entry.text)
        case _:
            return False


def adds_to(written: Iterable[HandoffEntry], entry: HandoffEntry) -> bool:
    """Returns whether an entry on how the work stands says something that the written ones do not."""
    if entry.section not in {
        HandoffSection.IN_PROGRESS,
        HandoffSection.BLOCKED,
        HandoffSection.REMAINING,
        HandoffSection.PENDING,
    }:
        return False
    command = entry.text.partition(": ")[0] if entry.section is not HandoffSection.PENDING else ""
    return not any(
        _names_command(one.text, command) or _likeness(entry.text, one.text) >= _ALIKE for one in written
    )


# ─── one message ────────────────────────────────────────────────────────────────────────────────────────────────────


def _note_asked(text: str, redactor: Redactor) -> Fact:
    """Returns what a person asks for; where only a harness speaks, that the agent is to go on."""
    if not text or GO_ON.match(text):
        return Fact(FactKind.ASKED, "", label="go on")
    first = sentences(redactor.redact(text[:4_000]))
    if first and all(one.endswith(("?", "？")) for one in first[-2:]):
        return Fact(FactKind.ASKED, first[-1] if len(first[-1]) <= _LONGEST else "", label="question")
    return Fact(FactKind.ASKED, _first_whole(first, _FIRST_WORDS))


def _note_said(text: str, redactor: Redactor) -> Iterator[Fact]:
    clean = redactor.redact(text)
    items = _list_in(clean)
    if items:
        yield Fact(FactKind.TODO, "", label="plan", items=items)
    if _NUMBERED.search(clean):
        yield from (Fact(FactKind.STEP, found[1], label="done") for found in _STEP_DONE.finditer(clean))
        yield from (Fact(FactKind.STEP, found[1], label="begun") for found in _STEP_BEGUN.finditer(clean))
    spoken = [one for one in sentences(clean) if len(one) <= _LONGEST]
    said = [_bare(one) for one in spoken]
    intends = [_INTENT.starts(one) for one in said]
    last = len(said) - 1
    meant = [
        (place, one)
        for place, one in enumerate(said)
        if intends[place] or (place == last and _TELLS_ITSELF.match(one))
    ][-2:]
    others = (one for one, intent in zip(said, intends, strict=True) if not intent)
    if _FENCE in clean:
        others = (one for one in map(_bare, sentences(without_code(clean))) if not _INTENT.starts(one))
    told = [
        one
        for one in others
        if _SHORT < len(one) <= _LONGEST
        and one[0].isalnum()
        and one[-1] not in ":?|"
        and "://" not in one
        and (" " in one or not one.isascii())
    ]
    yield Fact(FactKind.SAID, "\n".join(told[:_MOST_SAID]))
    kept = clean.rfind(_FENCE)  # what was announced before the last code of the text is in it
    for place, one in meant:
        # What a text announces at its beginning, its end has mostly done.
        is_promise = (place >= len(said) - 2 and intends[place]) or (
            2 * place >= len(said) and _PROMISE.search(one) is not None
        )
        is_promise = is_promise and clean.rfind(spoken[place]) > kept
        yield Fact(FactKind.INTENT, one, label="promise" if is_promise else "")


def _bare(sentence: str) -> str:
    return sentence if sentence[:1].isalpha() else _BULLET.sub("", sentence)


def _first_whole(some: Iterable[str], longest: int) -> str:
    """Returns the first sentences that fit, whole; where not even one does, its beginning."""
    words = ""
    for one in some:
        longer = f"{words} {one}".strip()
        if len(longer) > longest:
            return words or shorten(one, longest)
        words = longer
    return words


def _list_in(text: str) -> tuple[TodoItem, ...]:
    """Returns the items of a checklist, or of a numbered plan under a line that says it is one."""
    boxes = _BOX.findall(text) if "[" in text else []
    if len(boxes) >= 2:
        return tuple(TodoItem(_bare(item), _progress(box) or Progress.OPEN) for box, item in boxes)
    steps = list(_STEP.finditer(text)) if _NUMBER_OF_STEP.search(text) else []
    for place, step in enumerate(steps):
        before = text[: step.start()].rstrip().rpartition("\n")[2]
        if step[1] == "1" and _PLAN_TITLE.search(before.strip("*#_: ")):
            run = [one for number, one in enumerate(steps[place:], 1) if one[1] == str(number)]
            if len(run) >= 2:
                return tuple(TodoItem(_clean_item(one[2]), Progress.OPEN, f"step {one[1]}") for one in run)
    return ()


def _clean_item(text: str) -> str:
    return shorten(text.strip(), _FIRST_WORDS)


def _progress(status: Any) -> Progress | None:
    word = str(status).strip().lower().replace(" ", "_")
    if word in _DONE or word in {"✓", "✔"}:
        return Progress.DONE
    if word in _DOING:
        return Progress.DOING
    return Progress.OPEN if word in _OPEN or not word or word == "_" else None


def _todo(call: ToolCall, redactor: Redactor) -> Iterator[Fact]:
    """Yields the list in a call's arguments, or the thing to do that the call adds or changes."""
    named = _LIST_TOOL.search(call.name) is not None
    if (
        not named
        and "status" not in call.arguments
        and "[ ]" not in call.arguments
        and "[x]" not in call.arguments
    ):
        return
    arguments = arguments_of(call)
    text = _first_of(arguments, _TEXT_KEYS)
    status = _first_of(arguments, _STATUS_KEYS)
    key = str(_first_of(arguments, _ID_KEYS) or "")
    if _NEW_TASK.search(call.name) and isinstance(text, str) and text.strip():
        item = TodoItem(_item_text(text, redactor), _progress(status or "") or Progress.OPEN)
        yield Fact(FactKind.TODO, "", call_id=call.call_id, label="add", items=(item,))
        return
    if _TASK_CHANGE.search(call.name) and key:
        words = arguments.get("subject") or arguments.get("title") or arguments.get("content") or ""
        progress = _progress(status) if status is not None else None
        if progress is not None or words:
            item = TodoItem(_item_text(str(words), redactor), progress, key)
            yield Fact(FactKind.TODO, "", call_id=call.call_id, label="change", items=(item,))
        return
    for value in arguments.values():
        items = _items(value, redactor, named=named)
        if items:
            label = "merge" if arguments.get("merge") is True else "list"
            yield Fact(FactKind.TODO, "", call_id=call.call_id, label=label, items=items)
            return


def _items(value: Any, redactor: Redactor, *, named: bool) -> tuple[TodoItem, ...]:
    """Returns the items of a value that is a list of things to do, else none."""
    if isinstance(value, str):
        boxes = _BOX.findall(value) if "[" in value else []
        return tuple(
            TodoItem(_item_text(item, redactor), _progress(box) or Progress.OPEN) for box, item in boxes
        )
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        return ()
    items: list[TodoItem] = []
    for one in value:
        text, status = _first_of(one, _TEXT_KEYS), _first_of(one, _STATUS_KEYS)
        progress = _progress(status) if status is not None else (Progress.OPEN if named else None)
        key = str(_first_of(one, _ID_KEYS) or "")
        if progress is None or not (isinstance(text, str) or key):
            return ()
        items.append(TodoItem(_item_text(text if isinstance(text, str) else "", redactor), progress, key))
    return tuple(items)


def _first_of(arguments: dict[str, Any], keys: Iterable[str]) -> Any:
    return next((arguments[key] for key in keys if key in arguments and arguments[key] is not None), None)


def _item_text(text: str, redactor: Redactor) -> str:
    return shorten(" ".join(redactor.redact(text).split()), _FIRST_WORDS)


# ─── the conversation ───────────────────────────────────────────────────────────────────────────────────────────────


class _Talk(msgspec.Struct):
    """Open questions, promises and waits, while the facts are folded."""

    doing: Fact | None = None
    promises: tuple[Fact, ...] = ()
    questions: tuple[Fact, ...] = ()
    waiting: tuple[Fact, ...] = ()
    answered: tuple[tuple[Fact, Fact], ...] = ()
    moved_on: bool = False


def _fold_talk(facts: Sequence[Fact]) -> _Talk:
    """Returns what was asked, answered, promised and announced.

    A text of the agent is an answer where a person speaks next or nobody does; before a call it is a remark.
    """
    talk = _Talk()
    passed = _find_passed(facts)
    asks: list[Fact] = []  # since the last answer
    asked_since: Fact | None = None  # with the denial of a call, instead of a message of its own
    said: list[Fact] = []  # the last text: its beginning, its intentions, its question
    calls = 0  # since the last answer
    for fact in facts:
        match fact.kind:
            case FactKind.ASKED:
                if said:
                    _take_answer(talk, asks, said, asked_since)
                    asks, said, calls = [], [], 0
                asked_since = None
                talk.questions = talk.questions if fact.label == "question" else ()
                if fact.label != "go on":
                    asks.append(fact)
                    talk.doing = None  # that was for the request before
            case FactKind.SAID:
                said = [fact]
            case FactKind.INTENT | FactKind.QUESTION if said:
                said.append(fact)
            case FactKind.CALL:
                talk.doing = _announce(said, fact, talk.doing)
                said, calls = [], calls + 1
                talk.promises = talk.promises if calls <= _KEPT_PROMISE else ()
            case FactKind.OUTCOME if fact.call_id in passed or fact.refused:
                talk.doing = None  # what it said it would do is done, and was checked, or is not to be done
                asked_since = _read_denial(fact) or asked_since
            case _:
                pass
    if said:
        _take_answer(talk, asks, said, asked_since)
    else:
        again = asks[-1].text if asks else ""
        talk.waiting = tuple(one for one in asks[:-1] if _is_more_than_remark(one.text) and one.text != again)
    return talk


def _announce(said: Sequence[Fact], call: Fact, before: Fact | None) -> Fact | None:
    """Returns what the agent does now by what it said before its call, and what it announced before that.

    Who edits a file, or says that it begins to change things, whichever, is done with looking at something.
    """
    meant = [one for one in said if one.kind is FactKind.INTENT]
    named = [one for one in meant if not _VAGUE.search(one.text)]
    if named:
        return named[-1]
    changes = bool(call.path) or any(_LOOKS.match(one.text) is None for one in meant)
    return None if before is not None and changes and _LOOKS.match(before.text) else before


def _is_more_than_remark(asked: str) -> bool:
    return asked[:1] not in "[<" and (not asked.isascii() or len(asked) > _REMARK)


def _find_passed(facts: Iterable[Fact]) -> set[str]:
    """Returns the ids of the checks and commits that went well."""
    checks = {fact.call_id for fact in facts if fact.kind is FactKind.CALL and _is_check(fact)}
    return {
        fact.call_id
        for fact in facts
        if fact.kind is FactKind.OUTCOME
        and fact.call_id in checks
        and not (fact.failed or fact.suspect or fact.process)
    }


def _read_denial(outcome: Fact) -> Fact | None:
    """Returns what a person said, or asked, in denying a call; None if nothing was said."""
    words = outcome.text.removeprefix(REFUSED_BY_USER) if outcome.refused else outcome.text
    if words == outcome.text:
        return None
    last = next(reversed(sentences(words)), "")
    is_question = last.endswith(("?", "？"))
    return msgspec.structs.replace(
        outcome, kind=FactKind.ASKED, text=last, label="question" if is_question else ""
    )


def _take_answer(talk: _Talk, asks: list[Fact], said: list[Fact], asked_since: Fact | None) -> None:
    """Enter an answer to a person: to the words with the last denial, if there are any, else to the last request."""
    talk.doing = None
    talk.promises = tuple(one for one in said if one.kind is FactKind.INTENT and one.label == "promise")
    talk.questions = tuple(
        one for one in said if one.kind is FactKind.QUESTION and not _CLOSING.search(one.text)
    )
    talk.waiting = ()
    if asks:
        talk.moved_on = True
        asked = asked_since or asks[-1]
        talk.answered = tuple(
            pair for pair in talk.answered if pair[0].text not in (asked.text, asks[-1].text)
        )
        if asked.label == "question" and asked.text and (answer := _find_answer(asked, said[0])):
            talk.answered = (*talk.answered, (asked, answer))


def _find_answer(question: Fact, said: Fact) -> Fact | None:
    """Returns the sentence that answers: the one that takes up most words of the question, else a plain yes or no."""
    asked = {word.lower() for word in _LONG_WORD.findall(question.text)} - _POINTERS
    best, most = "", 0.0
    for sentence in said.text.split("\n"):
        shared = len(asked & {word.lower() for word in _LONG_WORD.findall(sentence)})
        worth = shared + (0.5 if _ANSWERS.match(sentence) else 0.0)
        if worth > most:
            best, most = sentence, worth
    if not question.text.isascii() and not best:
        best = said.text.partition("\n")[0]
    return msgspec.structs.replace(said, text=best) if best else None


def _fold_todo(facts: Sequence[Fact]) -> tuple[tuple[TodoItem, ...], frozenset[str]]:
    """Returns the items of the list that holds, with their messages, and the ids that were closed without being known."""
    listed: list[TodoItem] = []
    planned = _Plan()
    closed: set[str] = set()
    ids = {fact.call_id: fact.label for fact in facts if fact.kind is FactKind.OUTCOME and fact.label}
    for fact in facts:
        items = (
            [msgspec.structs.replace(item, number=fact.number) for item in fact.items] if fact.items else []
        )
        planned.follow(fact)
        match fact.kind, fact.label:
            case FactKind.TODO, "plan":
                planned = _Plan(items)
            case FactKind.TODO, "list":
                listed, planned = items, _Plan()
            case FactKind.TODO, "add":
                listed = listed if _is_open(listed) else []
                listed.append(msgspec.structs.replace(items[0], key=ids.get(fact.call_id, "")))
            case FactKind.TODO, _:
                changed = [(item, _change_item(listed, item)) for item in items]
                closed |= {
                    item.key for item, known in changed if not known and item.progress is Progress.DONE
                }
            case _:
                pass
    planned.end_turn()
    steps = planned.items
    is_newer = bool(steps) and (not listed or steps[0].number > listed[-1].number)
    known = steps if _is_open(steps) and (is_newer or not _is_open(listed)) else listed
    return tuple(item for item in known if item.text), frozenset(closed)


class _Plan:
    """The steps of the newest plan that the agent wrote as text, and how far they are known to be done."""

    def __init__(self, items: Iterable[TodoItem] = ()) -> None:
        self.items = list(items)
        self._worked = False  # a call came since
        self._marked = False  # the agent said of a step how far it is
        self._answered = False  # the last that came is a text, without a question in it

    def follow(self, fact: Fact) -> None:
        """Take in what came after the plan."""
        if not self.items:
            return
        match fact.kind:
            case FactKind.ASKED:
                self.end_turn()
                if not fact.label and len(fact.text) > _NEW_MATTER:
                    self._drop_steps()  # they were for the request before
            case FactKind.STEP:
                self._marked = True
                self._move_step(int(fact.text), begun=fact.label == "begun")
            case FactKind.SAID:
                self._answered = True
            case FactKind.QUESTION:
                self._answered = False
            case FactKind.CALL:
                self._worked, self._answered = True, False
                self._touch(fact)
            case _:
                pass

    def end_turn(self) -> None:
        """Drop the steps of a plan that was worked on and then answered: who answers is done with it, or has left it."""
        if self._answered and self._worked and not self._marked:
            self._drop_steps()

    def _drop_steps(self) -> None:
        self.items = [item for item in self.items if not item.key]

    def _touch(self, call: Fact) -> None:
        """Note at the steps that name a file that it was edited."""
        names = [path.replace("\\", "/").rsplit("/", 1)[-1] for path in call.path.split("\n") if path]
        for place, item in enumerate(self.items):
            if item.key.startswith("step ") and any(name in item.text for name in names):
                self.items[place] = msgspec.structs.replace(item, touched=call.number)

    def _move_step(self, step: int, *, begun: bool) -> None:
        """Mark a step done, or begun and those before it done."""
        for place, item in enumerate(self.items):
            if not item.key.startswith("step "):
                continue
            at = int(item.key[5:])
            if (begun and at < step) or (not begun and at == step):
                self.items[place] = msgspec.structs.replace(item, progress=Progress.DONE)
            elif begun and at == step and item.progress is Progress.OPEN:
                self.items[place] = msgspec.structs.replace(item, progress=Progress.DOING)


def _is_open(items: Iterable[TodoItem]) -> bool:
    return any(item.progress is not Progress.DONE for item in items)


def _change_item(listed: list[TodoItem], change: TodoItem) -> bool:
    """Take a change into the list. Returns whether the list names the item, or now does."""
    for place, item in enumerate(listed):
        if change.key and item.key == change.key:
            listed[place] = msgspec.structs.replace(
                item,
                text=change.text or item.text,
                progress=change.progress if change.progress is not None else item.progress,
            )
            return True
    if change.text and change.progress is not None:
        listed.append(change)
        return True
    return False


class _Edits(NamedTuple):
    """The edits since the last check and since the last request, one per path, and whether there was a check."""

    untested: tuple[Fact, ...]
    edited: tuple[Fact, ...]
    checked: bool


def _fold_edits(facts: Sequence[Fact]) -> _Edits:
    failed = {fact.call_id for fact in facts if fact.kind is FactKind.OUTCOME and fact.failed}
    refused = {fact.call_id for fact in facts if fact.kind is FactKind.OUTCOME and fact.refused}
    untested: dict[str, Fact] = {}
    edited: dict[str, Fact] = {}
    checked = ran = False
    asked = asked_before = 0  # where work was asked for last, and where before that
    for fact in facts:
        if fact.kind is FactKind.ASKED and fact.label != "go on":
            edited = {}
            if not fact.label and len(fact.text) > _REMARK:
                asked, asked_before = fact.number, asked
        if fact.kind is not FactKind.CALL:
            continue
        ran = ran or fact.family.value == "terminal"
        if fact.call_id in refused:
            continue
        if fact.path and fact.call_id not in failed:
            for path in fact.path.split("\n"):
                for edits in (untested, edited):
                    edits.pop(path, None)
                    edits[path] = msgspec.structs.replace(fact, text=path)
        if _is_check(fact) and (fact.check or fact.call_id not in failed):
            untested, checked = {}, checked or bool(fact.check)
    # What was edited for requests before the last two has been answered long ago: it is not in progress.
    recent = [fact for fact in untested.values() if fact.number >= asked_before]
    return _Edits(tuple(recent) if ran else (), tuple(edited.values()), checked)


def _is_check(call: Fact) -> bool:
    """Returns whether a call tests, builds or runs something, or commits it."""
    return bool(call.check) or call.lands


def _todo_entries(todo: Sequence[TodoItem]) -> list[HandoffEntry]:
    """Returns what is being done and what is open, with how much of the list is done."""
    left = [item for item in todo if item.progress is not Progress.DONE]
    if all(item.touched for item in left):
        return []  # each of the steps was worked on: what was edited says so
    entries = [
        HandoffEntry(
            HandoffSection.IN_PROGRESS if item.progress is Progress.DOING else HandoffSection.REMAINING,
            item.number,
            _name_item(item),
        )
        for item in sorted(left, key=lambda item: item.progress is not Progress.DOING)[:_MOST_TODO]
    ]
    if entries and len(left) < len(todo):
        counted = f"{entries[0].text} ({len(todo) - len(left)} of {len(todo)} done)"
        entries[0] = msgspec.structs.replace(entries[0], text=counted)
    elif entries and left[0].key.startswith("step ") and all(item.progress is Progress.OPEN for item in left):
        unmarked = f"{entries[0].text} (none of the {len(todo)} steps is marked done)"
        entries[0] = msgspec.structs.replace(entries[0], text=unmarked)
    return entries


def _name_item(item: TodoItem) -> str:
    text = f"#{item.key} {item.text}" if item.key and item.key.isalnum() else item.text
    return f"{text} (its file was edited in m{item.touched})" if item.touched else text


# ─── comparing ──────────────────────────────────────────────────────────────────────────────────────────────────────

_ALIKE = 0.7
_TESTS_PASS = re.compile(r"\btests?\b.{0,20}\bpass(?:es|ed|ing)?\b", re.IGNORECASE)
_TESTS_FAIL = re.compile(r"\bfail|\bnot\b|n['’]t\b|\bexcept\b|\bbut\b", re.IGNORECASE)


def _numbers_of(failure: Fact, section: HandoffSection) -> tuple[int, ...]:
    """Returns the numbers of the call that failed and of its result; how things stand now needs no number."""
    numbers = (failure.number - 1, failure.number)
    return (0, *numbers) if section is HandoffSection.STATE else numbers


def _by_done(todo: Iterable[TodoItem]) -> dict[bool, list[TodoItem]]:
    parted: dict[bool, list[TodoItem]] = {True: [], False: []}
    for item in todo:
        parted[item.progress is Progress.DONE].append(item)
    return parted


def _likeness(item: str, text: str) -> float:
    """Returns how much of an item the text says, from 0 to 1, less where it says much more."""
    one, other = item.lower(), text.lower()
    if one.strip(" .") in other and 2 * len(one) >= len(other):
        return 1.0
    words, said = set(_WORDS.findall(one)), set(_WORDS.findall(other))
    if len(words) < 2 or len(said) > 3 * len(words):
        return 0.0
    return len(words & said) / len(words)


def _names_command(text: str, command: str) -> bool:
    return len(command) >= 3 and re.search(rf"(?<!\w){re.escape(command)}(?!\w)", text) is not None


def _names_failure(text: str, failure: Fact) -> bool:
    command = failure.text.partition(": ")[0]
    return any(_names_command(text, one) for one in (command, *failure.check.split("\n")))
