"""Collects the facts of a conversation without a model: actions, errors, constraints, decisions.

`facts_in` reads one message. `Ledger.of` folds the facts of a conversation: a call gets its outcome; a file is listed
once, with everything that was done to it; a repeated command has its latest outcome (if it runs in the background, the
one that a later call got); an error that went away is no longer open; and a changed constraint names the message that
changed it. `state` folds the same facts into the state of the work at the end.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation.message import Message, Role, Text, ToolCall, ToolResult
from penstock.conversation.speakers import Voice, voices_of
from penstock.writing.caseless import CaselessPattern, is_plain
from penstock.writing.constraints import find_constraints, sentences, without_code
from penstock.writing.harness import house_rules_in, title_of
from penstock.writing.stubs import (
    ToolFamily,
    arguments_of,
    exit_status,
    find_path,
    main_argument,
    shorten,
    tool_family,
)
from penstock.writing.values import sub_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.conversation.speakers import VoicedPart
    from penstock.redaction import Redactor

__all__ = [
    "REFUSED_BY_USER",
    "DeniedCall",
    "Fact",
    "FactKind",
    "Failures",
    "Ledger",
    "Progress",
    "TodoItem",
    "facts_in",
    "find_running",
    "find_waited_for",
    "fold_failures",
    "join_waits",
    "kinds_of_command",
    "read_call",
    "read_ended_process",
    "read_outcome",
    "read_refusal",
]


class FactKind(StrEnum):
    """The kinds of facts."""

    CONSTRAINT = "constraint"
    HOUSE_RULE = "house rule"  # of a project or a user, repeated by a harness
    SKILL = "skill"
    CALL = "call"
    OUTCOME = "outcome"
    ENDED = "ended"  # a process, as the client reports it by itself
    DECISION = "decision"
    QUESTION = "question"
    ASKED = "asked"
    SAID = "said"
    INTENT = "intent"
    TODO = "todo"
    STEP = "step"


class Progress(StrEnum):
    """The progress of an item to do."""

    OPEN = "open"
    DOING = "doing"
    DONE = "done"


class TodoItem(msgspec.Struct, frozen=True, gc=False):
    """One item to do, in the words of its list. `key` is its id or its step, `number` the message of its list.

    `touched` is the last message that edited a file named in the step of a plan. The progress is None in a change that
    leaves it as it is.
    """

    text: str
    progress: Progress | None
    key: str = ""
    number: int = 0
    touched: int = 0


class Fact(msgspec.Struct, frozen=True, gc=False):
    """One fact, in the words of its source. `number` is the message; `call_id` links calls and outcomes.

    For a call, `check` names the kinds of tests, builds and runs in its command, and `path` the files that it edits, one
    per line; `only_looks` is True if it changes nothing, `lands` if it commits. `process` is, for an outcome, the process
    that continues in the background, and for a call, the one that it waits for. An outcome is `suspect` if it reads like a
    failed check, whatever its status says; `refused` if the call was denied; `skipped` if it never ran. `items` are those
    of a list of things to do.
    """

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
    check: str = ""
    path: str = ""
    only_looks: bool = False
    process: str = ""
    suspect: bool = False
    refused: bool = False
    skipped: bool = False
    lands: bool = False
    items: tuple[TodoItem, ...] = ()


# What a client answers for a call that a person, or a policy in a person's name, did not allow.
_REFUSED = re.compile(
    r"\s*\W{0,2}(?:error: )?(?:operation cancelled\W{1,3}(?:reason: )?)?(?:"
    r"(?:the )?(?P<person>user) (?:does(?:n[’']t| not) want to proceed|(?:has )?(?:denied|declined|rejected|refused) (?:this|the|to|"
    r"permission|execution|your))|"
    r"(?:the |this )?(?:tool(?: (?:call|use))?|command|operation|action|edit|request|execution) (?:was |has been )?"
    r"(?:denied|declined|rejected|refused) by the (?P<also>user)|"
    r"permission (?:for this action|to use [^\n]{1,60}) (?:was|has been) denied)",
    re.IGNORECASE,
)
_SAID_WITH_IT = re.compile(
    r"\b(?:the user said|feedback|reason)(?::|>)\s*(?!user (?:denied|rejected))(\S.*?)(?:</\w+>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
# What a client answers for a call that it did not run, since another one of the same message failed.
_NEVER_RAN = re.compile(
    r"\s*(?:<(?:tool_use_)?error>)?\s*(?:sibling tool call errored|cancelled: parallel tool call\b)",
    re.IGNORECASE,
)
_ERROR_TAG = re.compile(r"</?(?:tool_use_)?error>")
REFUSED_BY_USER = "refused by the user: "
"""Begins the outcome of a call that a person denied, before the person's words."""
_REFUSAL_STARTS_WITHIN = 200  # characters
_LEAST_WORDS = 7  # fewer are a heading, or only announce something: "I found the root cause"
_ANNOUNCES = CaselessPattern(
    r"(?:now|next|so|then|first)?,? ?(?:(?:continu|check|look|investigat|review|start|proceed|verify|read|trac)ing\b|if you (?:want|like|prefer)|let me|let[’']s|i(?:[’']m| am) (?:\w+ )?\w+ing|i(?:[’']ll| will))\b",
)
_DECISION = CaselessPattern(
    r"\b(?:decided|decision|chose|choosing|i(?:[’']ll| will)? (?:pick|choose)|i picked|we(?:[’']ll| will) use|going with|settled on|instead of|"
    r"root cause|the (?:problem|bug|issue|fix) (?:is|was)|turns out|because)\b|原因|决定|理由|решил|причина",
)
_DECIDES = CaselessPattern(
    r"\b(?:decided|chose|choosing|i(?:[’']ll| will)? (?:pick|choose)|i picked|(?:will|[’']ll) use|going with|settled on)\b",
)
# A guess or a possibility, which was neither found nor decided.
_GUESSES = CaselessPattern(
    r"\b(?:might|may be|maybe|perhaps|probably|likely|possibly|presumably|could be|would be|i (?:think|suspect|guess|believe)|"
    r"seems?|appears? to|not sure|unclear)\b|可能|也许|たぶん|вероятно|возможно|наверное",
)
# A choice that only points to what was chosen.
_ONLY_POINTS = re.compile(
    r"\W*(?:(?:so|ok(?:ay)?|then|now|and|i(?:[’']ll| will|[’']m| am)?|we(?:[’']ll| will|[’']re)?|let[’']s|"
    r"decided|chose|choosing|choose|picked?|use|going|go|settled|with|on|for|that|this|these|those|it|the|"
    r"one|first|second|same|approach|option|way|plan|idea|route|solution|here|instead)\W+)+$",
    re.IGNORECASE,
)
_OPTION = re.compile(r"(?:[-*•]|\(?\w[.)])\s|\*\*")
# What is to be done, as a review says it: "2. Update the comment to use UTC instead of local time". A noun ("Update failed
# because …") has no article behind it.
_PROPOSES = re.compile(
    r"(?:(?:[-*•]|\(?\w{1,2}[.)])\s+)?\**(?:Add|Avoid|Change|Check|Consider|Document|Ensure|Extract|Fix|Handle|Make|Move|"
    r"Remove|Rename|Replace|Rewrite|Simplify|Split|Test|Update|Verify|Wrap|Write) (?:the|an?|all|any|each|every|this|that|"
    r"these|those|its?)\b"
)
_LEAST_CHOICE = 3  # words of a sentence that names a choice
# Every text that the pattern finds contains one of these, and searching for them is much faster.
_DECISION_HINTS = (
    *(
        "decid",
        "decision",
        "chose",
        "choosing",
        "choose",
        "pick",
        " use",
        "going with",
        "settled",
        "instead",
        "root cause",
    ),
    *("problem", "bug", "issue", "fix", "turns out", "because", "原因", "决定", "理由", "решил", "причина"),
)
_ERROR = CaselessPattern(
    r"(?:error|exception|f(?<!\wf)(?:atal|ailed|ailure)|p(?<!\wp)anic|d(?<!\wd)enied|n(?<!\wn)o(?:t found| such file)|"
    r"c(?<!\wc)annot|u(?<!\wu)ndefined|t(?<!\wt)raceback)\b"
)
# The most telling line of a failed check, preferred to any line that only mentions an error.
_TELLING = re.compile(
    r"^(?:E {3,}\S.*|FAILED \S.*|--- FAIL: .*|FAIL: .*|.*\berror(?:\[\w+\]| TS\d+)?: \S.*|\w*(?:Error|"
    r"Exception): .*)$",
    re.MULTILINE,
)
# A place in a file, line and column, as compilers and linters report it, even if a pipe has lost their status.
_PLACE = re.compile(r":\d{1,6}:\d{1,6}: ")  # stands in each, and is found much sooner
_COMPILER = re.compile(
    r"^[\w./\\@+-]{1,200}\.\w{1,8}:\d{1,6}:\d{1,6}: (?!(?:warning|note|info)\b)\S.*$",
    re.MULTILINE | re.IGNORECASE,
)
_SAYS_ERROR = re.compile(
    r"\s*(?:<(?:tool_use_)?error>|error\b[: ]|\w+Error: |Traceback \(most recent|fatal: |\{\"error\")",
    re.IGNORECASE,
)
# The lines of runners about a failed check, and their counts of failures.
_FAILED_SIGNS = (
    *(
        "\nFAIL",
        "--- FAIL",
        "BUILD FAILED",
        "npm ERR!",
        "error: could not compile",
        ": *** [",
        ": error TS",
        "error TS",
    ),
    *("test result: FAILED", "\nTraceback (most recent", "ERROR task failed", "Tests failed", "❌"),
)
_FAIL_WORD = re.compile(r"\bfail(?:ed|ures?|ing)\b|\berrors?\b in \d|\berrors?\.?\n")
_COUNTED = re.compile(r"(?<![\w.])[1-9]\d* (?:tests? |type )?$")
_ENDS = 500
_TASK_ID = re.compile(r"\b(?:task|todo|item) #?(\d+)\b|\"(?:id|task_?id)\": ?\"?([\w-]+)", re.IGNORECASE)
_SHORT_RESULT = 400
_PATCHED = re.compile(r"\*\*\* (?:Update|Add|Delete) File: (\S+)")
_NO_EDITS = ("view", "open", "undo_edit")  # commands of an editor that takes them as an argument
_PATH = re.compile(r"(?=[^./]*[./].)[\w.~@/+-]*\w|Makefile|Dockerfile")
_TRIAL = re.compile(r"\bmktemp -d\b|\b(?:cd|pushd) [\"']?(?:/tmp|/var/tmp|\$\{?(?:TMP|TMPDIR|tmp)\b)")
_SHELL_EDIT = re.compile(
    r"\b(?:sed|perl)(?: -\w+){0,4} -(?=\w*i)\S+(?: -\w+){0,4} (?:'[^']*'|\"[^\"]*\"|\S+) ([^\s;&|<>]+)|"
    r"\b(?:cat|echo|printf)\b[^|;&<>]*+(?:>>? ?([^\s;&|<>]+))?|\btee\b ?([^\s;&|<>]+)"
)
# Tests, builds, linters and programs in development. The kind is the first group, less what the second removes from it.
_CHECK = re.compile(
    r"(?:(?:\w+=\S*|sudo|time|nice|env|timeout \S+|(?:poetry|uv|pipenv|pdm|hatch|rye|npx|bunx|pnpm exec|"
    r"bundle) ?(?:exec|run)?|"
    r"python3? -m|bash -l?c|sh -c|cmd /c|/usr/bin/env)\s+)*+[\"']?(?:\S*/)?"
    r"(pytest|py\.test|tox|nox|unittest|jest|vitest|mocha|rspec|phpunit|ctest|tsc|eslint|ruff|mypy|pyright|"
    r"flake8|pylint|"
    r"golangci-lint|biome|prettier|pre-commit|compileall|(?:go|cargo|dotnet|swift|mix|bazel|deno|zig|"
    r"terraform|flutter) (?:test|build|vet|"
    r"run|check|clippy|nextest|validate|plan|analyze)|(?:npm|pnpm|yarn|bun)(?: run)? (?!install\b|i\b|"
    r"add\b|ci\b|remove\b|create\b|link\b)"
    r"[\w:.-]+|make(?: [\w.-]+)?(?=\s|$)|just [\w.-]+|mise (?:run|r) \S+|mise x \S+|task [\w.:-]+|"
    r"cmake --build|ninja|mvn|gradlew?|rake|"
    r"docker(?:-| )compose up|docker build|(?:python3?|node|ruby|php|deno run|ts-node|tsx) (?!-)\S+\.\w+|"
    r"(?:bash|sh) \S+\.sh|\./\S+)"
)
_LONG_MESSAGE = 4_000
_LONGEST_SENTENCE = 300
_BULLET = re.compile(r"^(?:(?:[-*•>+–]|\d{1,3}[.)]|#{1,6})\s+)+")
_PROBE = 3_000
_MOST_CONSTRAINTS = 150  # of a longer list, the first ones, which set the rules, and the newest stay


def facts_in(message: Message, redactor: Redactor) -> tuple[Fact, ...]:
    """Returns the facts of one message, not yet numbered."""
    found: list[Fact] = []
    spoken = voices_of(message)
    for part in message.parts:
        match part:
            case Text() if message.role is Role.USER:
                for voiced in next(spoken)[1]:
                    found += _demands(voiced, redactor)
            case Text(text=text) if message.role is Role.ASSISTANT:
                if _hints_at_decision(text):
                    found += [
                        Fact(FactKind.DECISION, said, label="choice" if _DECIDES.is_in(said) else "")
                        for said in _find_statements(text, redactor)
                    ]
                found += _question(text, redactor)
            case ToolCall():
                found.append(read_call(part, redactor.redact))
            case ToolResult():
                found.append(outcome := read_outcome(part, redactor.redact))
                if outcome.refused:
                    found += _demands_with(read_refusal(part.text), redactor)
            case _:
                pass
    return tuple(found)


def _demands(voiced: VoicedPart, redactor: Redactor) -> Iterator[Fact]:
    """Yields a person's demands, the rules that a harness repeats, with their titles, and the processes that it says ended."""
    if voiced.voice is Voice.PERSON:
        for sentence in find_constraints(redactor.redact(voiced.text)):
            yield Fact(FactKind.CONSTRAINT, sentence)
        return
    if voiced.voice is Voice.SKILL:
        yield Fact(FactKind.SKILL, redactor.redact(title_of(voiced)))
    if (ended := read_ended_process(voiced)) is not None:
        yield Fact(
            FactKind.ENDED,
            f"ended with exit code {ended.status}" if ended.status else "",
            process=ended.process,
            status=ended.status,
            failed=ended.failed,
        )
    if rules := house_rules_in(voiced):
        title = redactor.redact(title_of(voiced))
        for rule in rules:
            yield Fact(FactKind.HOUSE_RULE, redactor.redact(rule), label=title)


def _demands_with(refusal: DeniedCall | None, redactor: Redactor) -> Iterator[Fact]:
    """Yields the demands of a person who denies a call."""
    if refusal is not None and refusal.by_person:
        for sentence in find_constraints(redactor.redact(refusal.words)):
            yield Fact(FactKind.CONSTRAINT, sentence)


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
    refused: frozenset[str]
    """The ids of the denied calls."""

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> Ledger:
        """Folds numbered facts, in the order of their messages."""
        facts = join_waits(list(facts))
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
            open_errors=fold_failures(facts).standing,
            decisions=tuple(by_kind[FactKind.DECISION]),
            questions=tuple(by_kind[FactKind.QUESTION][-1:]),
            refused=frozenset(call_id for call_id, outcome in outcomes.items() if outcome.refused),
        )


def _find_statements(text: str, redactor: Redactor) -> Iterator[str]:
    if not _DECISION.is_in(text if len(text) <= _LONG_MESSAGE else text[:2_000] + text[-2_000:]):
        return
    offers = "?" in text[-_LONGEST_SENTENCE:]  # then it lists options for a person to choose from
    for sentence in sentences(without_code(redactor.redact(text))):
        if not _hints_at_decision(sentence) or not _DECISION.is_in(sentence):
            continue
        decides = _DECIDES.is_in(sentence)
        if (
            not sentence.startswith(("|", "#"))
            and not ("a" <= sentence[0] <= "z")  # the rest of a sentence that was wrapped
            and (decides or not (_PROPOSES.match(sentence) or (offers and _OPTION.match(sentence))))
            and (_says_choice(sentence) if decides else _says_finding(sentence))
            and len(sentence) <= _LONGEST_SENTENCE
            and not sentence.endswith((":", ":**"))
        ):
            yield _BULLET.sub("", sentence)


def _hints_at_decision(text: str) -> bool:
    return any(map(text.lower().__contains__, _DECISION_HINTS))


def _says_choice(sentence: str) -> bool:
    """Returns True if a sentence with a word of choice says what was chosen."""
    return _says_enough(sentence, _LEAST_CHOICE) and _ONLY_POINTS.match(f"{sentence} ") is None


def _says_finding(sentence: str) -> bool:
    """Returns True if a sentence reports a finding, and neither announces nor guesses."""
    return (
        _says_enough(sentence, _LEAST_WORDS)
        and not _ANNOUNCES.starts(sentence)
        and not _GUESSES.is_in(sentence)
    )


def _says_enough(sentence: str, words: int) -> bool:
    return len(sentence.split()) >= words or not sentence.isascii()


def _question(text: str, redactor: Redactor) -> list[Fact]:
    if not text[-20:].rstrip("*_ )\n").endswith(("?", "？")):
        return []
    last = next(reversed(sentences(text[-1_000:])), "")
    return [Fact(FactKind.QUESTION, redactor.redact(last))] if len(last) <= _LONGEST_SENTENCE else []


def read_call(call: ToolCall, redact: Callable[[str], str]) -> Fact:
    """Returns the subject of a call: its main argument, the files that it edits, the checks in its command."""
    family = tool_family(call.name)
    arguments = arguments_of(call)
    main = main_argument(family, arguments)
    is_command = family is ToolFamily.TERMINAL
    waited_for = find_waited_for(arguments)
    return Fact(
        FactKind.CALL,
        shorten(redact(main)),
        call_id=call.call_id,
        family=ToolFamily.OTHER if waited_for else family,
        label=call.name,
        check="\n".join(kinds_of_command(main)) if is_command else "",
        only_looks=is_command and _only_looks(main),
        lands=is_command and _LANDS.search(main) is not None,
        process=waited_for,
        path="\n".join(redact(path) for path in _find_edited_paths(family, arguments, main)),
    )


def _find_edited_paths(family: ToolFamily, arguments: dict[str, Any], main: str) -> list[str]:
    """Returns the files that a call changes, if its arguments name them."""
    if family is ToolFamily.TERMINAL:
        if _TRIAL.search(main):
            return []
        found = _PATCHED.findall(main) or [
            path.strip("'\"") for groups in _SHELL_EDIT.findall(main) for path in groups if path
        ]
        return [
            path
            for path in dict.fromkeys(found)
            if _PATH.fullmatch(path) and not path.startswith(("/dev/", "/tmp/"))  # noqa: S108
        ]
    if family not in {ToolFamily.WRITE, ToolFamily.PATCH} or arguments.get("command") in _NO_EDITS:
        return []
    patched = [
        path for value in arguments.values() if isinstance(value, str) for path in _PATCHED.findall(value)
    ]
    named = find_path(arguments)
    return list(dict.fromkeys(patched or ([named] if named else [])))


_WAITED_FOR = ("session_id", "bash_id", "shell_id", "task_id", "process_id")
_GOES_ON = re.compile(r"running (?:in (?:the )?background )?with (?:session )?ID:? ?(\w+)", re.IGNORECASE)
_SAID_AT_ONCE = 300  # characters


def find_waited_for(arguments: dict[str, Any]) -> str:
    """Returns the id of the process that a call asks about or types into; empty for any other call."""
    if any(key in arguments for key in ("command", "cmd", "status")):
        return ""
    return next((str(arguments[key]) for key in _WAITED_FOR if key in arguments), "")


def find_running(text: str) -> str:
    """Returns the id of a command that continues in the background, if its result begins with one."""
    running = _GOES_ON.search(text[:_SAID_AT_ONCE])
    return running[1] if running else ""


class EndedProcess(NamedTuple):
    """The end of a command that ran in the background."""

    process: str
    status: int | None
    failed: bool


_ENDED_PROCESS = re.compile(
    r"<task-notification>\s*<task-id>(?P<process>[\w-]{1,80})</task-id>.{0,1000}?<status>(?P<how>\w+)</status>"
    r"(?:.{0,1000}?\(?exit code (?P<status>\d{1,3})\b)?",
    re.DOTALL,
)


def read_ended_process(part: VoicedPart) -> EndedProcess | None:
    """Returns the end of a process that a client's notice reports; None for any other text."""
    if part.voice is not Voice.NOTICE or (found := _ENDED_PROCESS.search(part.text)) is None:
        return None
    status = int(found["status"]) if found["status"] else None
    return EndedProcess(found["process"], status, failed=found["how"] != "completed" or bool(status))


def join_waits(facts: Sequence[Fact]) -> list[Fact]:
    """Returns the facts with each call that waits for a process replaced by the command that started it.

    Both may be in one message: then the waiting call comes before the result that names the process. The end of a process
    becomes that command once more, with its outcome; the end of an unknown one is left out.
    """
    began: dict[str, Fact] = {}
    calls = {fact.call_id: fact for fact in facts if fact.kind is FactKind.CALL}
    for fact in facts:
        if fact.kind is FactKind.OUTCOME and fact.process and fact.call_id in calls:
            began.setdefault(fact.process, calls[fact.call_id])
    joined: list[Fact] = []
    for fact in facts:
        if fact.kind is FactKind.CALL:
            joined.append(_stand_for(began.get(fact.process), fact))
        elif fact.kind is not FactKind.ENDED:
            joined.append(fact)
        elif fact.process in began:
            again = msgspec.structs.replace(
                fact, kind=FactKind.OUTCOME, call_id=f"end of {fact.process}", process=""
            )
            joined += [_stand_for(began[fact.process], again), again]
    return joined


def _stand_for(command: Fact | None, call: Fact) -> Fact:
    """Returns the call as the command that started its process; unchanged if that is unknown, or the call itself."""
    if command is None or command.call_id == call.call_id:
        return call
    return msgspec.structs.replace(command, number=call.number, call_id=call.call_id, path="")


def read_outcome(result: ToolResult, redact: Callable[[str], str]) -> Fact:
    """Returns the exit status and, if there is an error, its exact first line."""
    text = result.text
    if (refusal := read_refusal(text)) is not None:
        said = " ".join(redact(refusal.words).split())
        refused = REFUSED_BY_USER if refusal.by_person else "refused: "
        line = shorten(f"{refused}{said}" if said else refused.rstrip(": "), _LONGEST_SENTENCE)
        return Fact(FactKind.OUTCOME, line, call_id=result.call_id, failed=True, refused=True)
    if _NEVER_RAN.match(text) is not None:
        return Fact(FactKind.OUTCOME, "", call_id=result.call_id, failed=True, skipped=True)
    probe = text if len(text) <= 2 * _PROBE else f"{text[:_PROBE]}\n{text[-_PROBE:]}"
    status = exit_status(probe) if "xit" in probe or "eturn" in probe or "XIT" in probe else None
    failed = result.is_error or (status is not None and status != 0) or _SAYS_ERROR.match(probe) is not None
    suspect = not failed and _reads_failed(text)
    line = ""
    if failed or suspect:
        match = _TELLING.search(probe) or _COMPILER.search(probe)
        first = match[0] if match else _find_line_of_error(probe)
        line = shorten(redact(_ERROR_TAG.sub("", first).strip()), _LONGEST_SENTENCE)
    task = _TASK_ID.search(text) if len(text) < _SHORT_RESULT and not failed else None
    return Fact(
        FactKind.OUTCOME,
        line,
        call_id=result.call_id,
        label=(task[1] or task[2]) if task else "",
        status=status,
        failed=failed,
        process="" if failed else find_running(text),
        suspect=suspect,
    )


def _find_line_of_error(text: str) -> str:
    """Returns the first line with a word of failure; without any, the first line that is not blank."""
    if (found := _ERROR.find(text)) is None:
        return next((one for one in text.split("\n") if one.strip()), "")
    end = text.find("\n", found.end())
    return text[text.rfind("\n", 0, found.start()) + 1 : end if end >= 0 else len(text)]


class DeniedCall(NamedTuple):
    """A call that was not allowed, as its result says."""

    by_person: bool
    """True if a person denied it, False for a rule or a program."""
    words: str
    """The person's words, where the result quotes any."""


def read_refusal(text: str) -> DeniedCall | None:
    """Returns the denial that a result states; None for the result of a call that was allowed."""
    head = text[:_REFUSAL_STARTS_WITHIN]
    lowered = head.lower()
    if "user" not in lowered and "permission" not in lowered and is_plain(head):
        return None  # one of them stands in each, and is found much sooner
    refused = _REFUSED.match(head)
    if refused is None:
        return None
    said = _SAID_WITH_IT.search(text, refused.end())
    return DeniedCall(bool(refused["person"] or refused["also"]), said[1].strip() if said is not None else "")


def _reads_failed(text: str) -> bool:
    """Returns True if the start or the end of an output, where runners report, says that a check failed."""
    ends = text if len(text) <= 4 * _ENDS else f"{text[:_ENDS]}\n{text[-3 * _ENDS :]}"
    ends = f"\n{ends}\n"
    return (
        any(map(ends.__contains__, _FAILED_SIGNS))
        or (_PLACE.search(ends) is not None and _COMPILER.search(ends) is not None)
        or any(
            _COUNTED.search(ends[max(0, found.start() - 16) : found.start()])
            for found in (_FAIL_WORD.finditer(ends) if "fail" in ends or "error" in ends else ())
        )
    )


_Pairs = list[tuple[Fact, Fact | None]]
_EFFECTS = {ToolFamily.WRITE: "wrote", ToolFamily.PATCH: "patched", ToolFamily.TERMINAL: "ran"}
_QUOTED = re.compile(
    r"'[^']*'|\"(?:\\.|[^\"\\])*+(?:\"|\\?\Z)", re.DOTALL
)  # one that is never closed ends with the command
_PIECES = re.compile(r"&&|\|\||[;\n|]|(?<![<>&])&(?![>&])")
_TO_NOWHERE = re.compile(r"\d?>{1,2}\s*(?:/dev/null|&\d)|&>\s*/dev/null")
_LEADS = re.compile(r"^(?:(?:do|then|else|if|while|!|time|\w+=[^\s$(]*)\s+|\(\s*)+")
_LOOKS_ONLY = re.compile(
    r"(?:\S*/)?(?:ls|cat|head|tail|[ef]?grep|rg|ag|pwd|which|sed -n|wc|echo|printf|tree|nl|stat|file|du|df|jq|yq|date|ps|diff|"
    r"cmp|md5(?:sum)?|sha\d*sum|shasum|xxd|od|hexdump|sort|uniq|cut|tr|column|less|more|basename|dirname|realpath|readlink|"
    r"type|command -v|uname|whoami|id|printenv|cd|test|\[|true|sleep|set|done|fi|for \w+ in|"
    r"find(?!.*\s-(?:delete|exec|execdir|ok|fprint)\b)|"
    r"git (?:-\w \S+ |--no-pager )*+(?:status|log|show|diff|rev-parse|rev-list|blame|ls-files|ls-tree|ls-remote|cat-file|"
    r"reflog|grep|describe|merge-base|name-rev|shortlog|check-ignore|for-each-ref|stash list|worktree list|config (?:--get|-l)|"
    r"branch(?=$| -(?:a|r|v|-show-current|-list|-all|-contains))|tag(?=$| -(?:l|-list))|remote(?! (?:add|remove|rm|rename|set)))|"
    r"gh (?:(?:pr|issue|run|repo|release) (?:view|list|diff|checks|status)|search|api(?!.* (?:-[fFX]|--method|--field|"
    r"--raw-field|--input)\b))|"
    r"docker (?:ps|logs|images|inspect)|kubectl (?:get|describe|logs|top))(?![\w.-])"
)


def _only_looks(command: str) -> bool:
    """Returns True if every part of a command only looks at something."""
    bare = _TO_NOWHERE.sub("", _QUOTED.sub("''", command))
    if re.search(r">(?!\()", bare):
        return False
    pieces = (_LEADS.sub("", piece.strip(), count=1) for piece in _PIECES.split(bare))
    return all(_LOOKS_ONLY.match(piece) for piece in pieces if piece)


def kinds_of_command(command: str) -> list[str]:
    """Returns the kinds of tests, builds and runs in a command, such as "go test"; nothing for other commands."""
    found = (_CHECK.match(piece.strip()) for piece in re.split(r"&&|\|\||;|\n|\|", command))
    kinds = (" ".join(one[1].split()) for one in found if one is not None)
    return list(dict.fromkeys(re.sub(r"^(npm|pnpm|yarn|bun) run ", r"\1 ", kind) for kind in kinds))


class Failures(msgspec.Struct, frozen=True):
    """The remaining failures, oldest first, and the commands (and kinds of commands) that succeeded last."""

    standing: tuple[Fact, ...] = ()
    cleared: frozenset[str] = frozenset()


class _Failure(msgspec.Struct):
    """A failure that nothing has cleared yet: what would clear it, and how many calls went well since."""

    fact: Fact
    names: frozenset[str]
    successes: int = 0
    is_old: bool = False  # True if a person has asked for something else since


def fold_failures(facts: Sequence[Fact]) -> Failures:
    """Returns the failures that remain.

    A later success of the same call, or of the same kind of command, clears a failure. A failed look at something (a
    search, a missing file) never counts. A failed check remains until it succeeds; once a person has asked for
    something else, the success of any check of its sort, or a commit, is enough. A failed build also ends when tests
    pass. Any other failure remains only while the agent is working on it: not after a new request, nor after several
    successful calls.
    """
    calls = {fact.call_id: fact for fact in facts if fact.kind is FactKind.CALL}
    standing: list[_Failure] = []
    cleared: set[str] = set()
    for fact in facts:
        if fact.kind is FactKind.ASKED and fact.label != "go on":
            standing = [one for one in standing if one.fact.check]
            for one in standing:
                one.is_old = True
        call = calls.get(fact.call_id) if fact.kind is FactKind.OUTCOME else None
        if call is None or call.family in _LOOKS or call.only_looks or fact.process or fact.skipped:
            continue
        names = _names_of(call)
        if fact.failed or (fact.suspect and call.check):
            cleared -= names
            standing = [one for one in standing if not names & one.names]
            text = f"{call.text}: {fact.text}" if call.text and fact.text else call.text or fact.text
            # A denied check tells nothing, nor does one whose program is not there: the agent finds another way to run it.
            check = "" if fact.refused or _lacks_program(fact.text, call.text) else call.check
            failure = msgspec.structs.replace(fact, text=text, check=check, label=call.label)
            standing.append(_Failure(failure, names))
        else:
            cleared |= names
            standing = [one for one in standing if not _clears(call, names, one)]
    texts = (one.fact for one in standing)
    return Failures(tuple(fact for fact in texts if fact.text), frozenset(cleared))


_LOOKS = frozenset({ToolFamily.READ, ToolFamily.SEARCH, ToolFamily.LIST})
_STALE = 6  # successful calls after a failure that is not a check: the agent has found another way
_LANDS = re.compile(r"\bgit (?:-\w \S+ )*+(?:commit|push|merge)\b")
_NO_PROGRAM = re.compile(
    r"(?:command not found: |(?=\S+: (?:command )?not found|['\"]\S+['\"](?:: executable file not found| is not recognized as))['\"]?)"
    r"([^\s:'\"]+)"
)
_SORTS = (
    ("test", re.compile(r"test|spec|tox|nox|jest|mocha|phpunit")),
    ("lint", re.compile(r"lint|ruff|mypy|pyright|flake8|biome|prettier|vet|clippy|fmt|format|pre-commit")),
    ("build", re.compile(r"build|tsc|compile|make|ninja|mvn|gradle|check")),
)


def _lacks_program(error: str, command: str) -> bool:
    """Returns True if the command could not be run, since a program that it names is not there."""
    return not {*command.split()}.isdisjoint(_NO_PROGRAM.findall(error))


def _clears(call: Fact, names: frozenset[str], failure: _Failure) -> bool:
    """Returns True if the success of a call clears the failure."""
    if names & failure.names or _includes(names, failure.names):
        return True
    if call.family is ToolFamily.TERMINAL and f" {call.text}: " in failure.fact.text:
        return True  # the same command, without the program in front of it that failed
    if not failure.fact.check:
        failure.successes += 1
        return failure.successes > _STALE
    sorts = {_sort_of(kind) for kind in call.check.split("\n")}
    if "test" in sorts and _sort_of(failure.fact.check) == "build":
        return True  # tested code was built
    if not failure.is_old:
        return False
    return call.lands or _sort_of(failure.fact.check) in sorts - {""}


def _includes(names: frozenset[str], failed: frozenset[str]) -> bool:
    """Returns True if a script passed and its variant failed: "lint" says as much as "lint:fix"."""
    return any(one.startswith(f"{name}:") for one in failed for name in names)


def _sort_of(check: str) -> str:
    return next((sort for sort, pattern in _SORTS if pattern.search(check)), "")


def _names_of(call: Fact) -> frozenset[str]:
    """Returns the names of which a later call must share one to be of the same kind."""
    if call.check:
        return frozenset(call.check.split("\n"))
    if call.family is ToolFamily.TERMINAL:
        words = re.sub(r"^(?:cd [^&;|]+&& ?)+", "", call.text).split()
        return frozenset({" ".join(words[:2] if len(words) > 1 and words[1].isalpha() else words[:1])})
    return frozenset({f"{call.label} {call.path}" if call.path else call.label})


def _actions(calls: _Pairs) -> Iterator[Fact]:
    """Yields calls with side effects, each with its outcome; a repeated one at its last place."""
    latest: dict[tuple[str, str], Fact] = {}
    runs: dict[str, list[tuple[str, str]]] = {}  # the runs that still count, by the kinds of their check
    for call, outcome in calls:
        verb = _EFFECTS.get(call.family)
        undone = outcome is not None and (outcome.refused or outcome.skipped)
        if verb is None or not call.text or call.only_looks or undone:
            continue
        key = (verb, call.text)
        uses = latest.pop(key).uses + 1 if key in latest else 1
        text = f"{verb} {call.text}{_result_words(call, outcome)}"
        latest[key] = msgspec.structs.replace(call, text=text, uses=uses, failed=_has_failed(call, outcome))
        if call.check:
            # A failure means nothing once the check has run again, and a success nothing once it has failed since.
            for kind in call.check.split("\n"):
                before = [one for one in runs.get(kind, ()) if one in latest and one != key]
                for one in before:
                    if latest[one].failed or (latest[key].failed and latest[one].check == call.check):
                        del latest[one]
                runs[kind] = [*(one for one in before if one in latest), key]
    yield from latest.values()


def _has_failed(call: Fact, outcome: Fact | None) -> bool:
    return outcome is not None and (outcome.failed or (outcome.suspect and bool(call.check)))


def _result_words(call: Fact, outcome: Fact | None) -> str:
    if outcome is None:
        return " → not confirmed"
    if _has_failed(call, outcome):
        return f" → {outcome.text or 'failed'}"
    if outcome.process:
        return " → still running"
    return f" → exit {outcome.status}" if outcome.status is not None else " → done"


def _files(calls: _Pairs) -> Iterator[Fact]:
    """Yields each file once, with everything that was done to it, in the order of the last actions."""
    done: dict[str, dict[str, int]] = {}
    verbs: dict[ToolFamily, str] = {
        ToolFamily.READ: "read",
        ToolFamily.WRITE: "written",
        ToolFamily.PATCH: "patched",
    }
    for call, outcome in calls:
        verb = verbs.get(call.family)
        failed = outcome is not None and outcome.failed
        if verb and not failed and call.text and len(call.text.split()) == 1:
            touched = done.pop(call.text, {})
            touched[verb] = call.number
            done[call.text] = touched
    for path, touched in done.items():
        text = f"{path} {', '.join(touched)}"
        yield Fact(FactKind.CALL, text, number=max(touched.values()), label=path, uses=len(touched))


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


@lru_cache(maxsize=2 * _MOST_CONSTRAINTS)
def _read_demand(text: str) -> tuple[frozenset[str], bool]:
    """Returns the words of a demand, and whether it changes another. Most are the same from one compaction to the next."""
    return frozenset(sub_words(text)), _CHANGE.search(text) is not None


def _with_changes(constraints: list[Fact]) -> list[Fact]:
    """Returns each constraint once; one that was changed later names the message that changed it."""
    distinct: dict[str, Fact] = {}
    some = (
        constraints
        if len(constraints) <= _MOST_CONSTRAINTS
        else [*constraints[:50], *constraints[-_MOST_CONSTRAINTS + 50 :]]
    )
    for fact in some:
        distinct.setdefault(" ".join(fact.text.lower().split()), fact)
    kept = list(distinct.values())
    read = [_read_demand(fact.text) for fact in kept]
    words = [one for one, _ in read]
    changes = [place for place, (_, is_change) in enumerate(read) if is_change]
    for place, fact in enumerate(kept):
        for later in changes:
            shared = words[place] & words[later]
            if kept[later].number > fact.number and len(shared) >= 2 and 2 * len(shared) >= len(words[place]):
                kept[place] = msgspec.structs.replace(fact, superseded_by=kept[later].number)
    return kept
