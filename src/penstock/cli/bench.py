"""`penstock bench`: measurements on your own sessions.

`recall`: how often a search brings back what a small view leaves out. `replay`: what past sessions would have cost with
compactions at other moments.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.accounts.conversations import find_conversation, iterate_conversations
from penstock.accounts.display import format_money, shorten_count
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import Screen, align, printable, screen_of, wrap
from penstock.cli.source import read_bytes, settings_of
from penstock.cli.stored import open_store_of
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.wire import parse_json
from penstock.errors import InputError, SettingsError
from penstock.measure.prices import Unknown, price_of
from penstock.measure.wording import pluralise
from penstock.planning.economics import Caching, PriceTerms, terms_of
from penstock.replay.bills import Case, course_of
from penstock.replay.needles import PLACES, Lookups, Recalled, look_up
from penstock.replay.policies import GATED, POLICIES, RULE, PolicyOutcome, compare, has_room
from penstock.replay.traces import Trace, read_stored_trace, read_traces, turns_of
from penstock.transfer.reading import read_recorded

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.conversation.message import Message
    from penstock.stores.store import Store

__all__ = ["Replay", "ReplayCase", "replay", "replay_lines", "run_recall", "run_replay"]

_DEFAULT_MODEL = "claude-opus-4-8"
_NAMES = {
    "5m": "5-minute cache",
    "1h": "1-hour cache",
    "automatic": "automatic cache, as at OpenAI",
    "none": "no cache",
}
_RECALL_NOTE = (
    "recall: of the values that the agent used again after a compaction, and that nothing had mentioned in between, the "
    "share that the view still held; search finds the others"
)
_MILLION = 1_000_000


_NOTHING_TO_LOOK_UP = (
    "no conversation is long enough, or none uses earlier values again; add some with penstock sessions import, "
    "or name files"
)


def run_recall(args: argparse.Namespace) -> int:
    """Searches for values, and shows how often they are found. Raises InputError, StoreError."""
    total = Lookups()
    with ProgressLine("looking up") as progress:
        for number, messages in enumerate(
            _read_files(args.files) if args.files else _read_store(args), start=1
        ):
            total += look_up(messages)
            progress.now(f"looking up, {pluralise(number, 'conversation')} read")
    if not total.asked:
        raise InputError(_NOTHING_TO_LOOK_UP)
    screen = screen_of(sys.stdout)
    shares = dict(zip(map(str, PLACES), total.shares(), strict=True))
    if args.json:
        screen.say(json.dumps({"sessions": total.sessions, "asked": total.asked, "found": shares}, indent=2))
        return 0
    screen.say(
        f"{pluralise(total.asked, 'value')} that a view of 10% lacks, looked up in {pluralise(total.sessions, 'session')} "
        "by the words before their next use"
    )
    for place, share in shares.items():
        where = "in the first excerpt" if place == "1" else f"in the first {place}"
        screen.say(f"  {where:<22}{share:>6.1%}")
    return 0


def _read_files(files: Sequence[str]) -> Iterator[Sequence[Message]]:
    for file in files:
        for recorded in read_recorded(read_bytes(file), "auto").conversations:
            wires = [parse_json(said.raw) for said in recorded.messages]
            yield decode_all(dialect_named(recorded.dialect), wires)


def _read_store(args: argparse.Namespace) -> Iterator[Sequence[Message]]:
    with open_store_of(args) as store:
        if args.session:
            tips = [find_conversation(store, args.session)]
        else:
            tips = [row.tip for row in islice(iterate_conversations(store), args.limit)]
        for tip in tips:
            wires = [parse_json(entry.raw) for entry in store.read_from(tip.id, 0)]
            yield decode_all(dialect_named(tip.dialect), wires)


class ReplayCase(msgspec.Struct, frozen=True):
    """All policies under one window and one kind of cache."""

    caching: Caching
    case: Case
    outcomes: tuple[PolicyOutcome, ...]
    without_room: int = 0
    """Sessions that the window is too small for."""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that were replayed, and the outcome."""

    sessions: int
    requests: int
    left_out: int
    """Conversations without usage on record."""
    model: str
    cases: tuple[ReplayCase, ...]
    recall: dict[str, Recalled] = {}
    """By policy; empty if it was not asked for."""


def run_replay(args: argparse.Namespace) -> int:
    """Replays sessions, and shows what each policy would have cost. Raises InputError, SettingsError, StoreError."""
    _check(args)
    with ProgressLine("reading") as progress, ExitStack() as opened:
        store = None if args.traces else opened.enter_context(open_store_of(args))
        traces, left_out, used = _trace_files(args) if store is None else _trace_store(args, store)
        if not traces:
            raise InputError(
                "no conversation in the store has two or more requests on record; add some with penstock sessions "
                "import FILE, or give --traces FILE"
            )
        progress.now("replaying")
        found = replay(args, traces, left_out, used)
        if store is not None and args.recall:
            progress.now("compacting")
            found = msgspec.structs.replace(found, recall=_recall(args, store, traces, found.cases[0]))
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps(_as_json(found), indent=2))
        return 0
    for line in replay_lines(found, screen):
        screen.say(line)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises SettingsError for options that exclude each other."""
    if args.summary_tokens > args.handoff_tokens:
        raise SettingsError(
            f"a handoff of {args.handoff_tokens:,} tokens cannot have {args.summary_tokens:,} from a model: give a smaller "
            "--summary-tokens or a larger --handoff-tokens"
        )
    if not args.recall:
        return
    if args.traces:
        raise SettingsError("--recall needs the messages, and traces hold none: leave --traces out")
    if args.summary_tokens:
        raise SettingsError("--recall compacts without a model: leave --summary-tokens out")
    if len(args.window) != 1 or len(args.cache) != 1:
        raise SettingsError(
            "--recall takes one window and one kind of cache, such as --window 200k --cache 5m"
        )


def replay(args: argparse.Namespace, traces: Sequence[Trace], left_out: int, used: str) -> Replay:
    """Replays every window under every kind of cache. Raises SettingsError for a model without known prices."""
    model = args.model or used or _DEFAULT_MODEL
    kept = args.handoff_tokens + args.tail_tokens
    cases = []
    for caching in args.cache:
        terms = _terms(model, caching)
        for window in args.window:
            case = Case(
                terms=terms, window_tokens=window, kept_tokens=kept, summary_tokens=args.summary_tokens
            )
            without_room = sum(not has_room(trace, case) for trace in traces)
            cases.append(ReplayCase(caching, case, tuple(compare(traces, case)), without_room))
    return Replay(
        sessions=len(traces),
        requests=sum(trace.requests for trace in traces),
        left_out=left_out,
        model=model,
        cases=tuple(cases),
    )


def _recall(
    args: argparse.Namespace, store: Store, traces: Sequence[Trace], replay: ReplayCase
) -> dict[str, Recalled]:
    """Returns what each policy would have kept; leaves out hindsight, which no agent could follow."""
    from penstock.replay.recall import measure_recall, read_recorded_session  # noqa: PLC0415 - loads the whole engine

    settings = settings_of(args)
    total = {policy.name: Recalled() for policy in POLICIES if not policy.best}
    for trace in traces:
        if not has_room(trace, replay.case):
            continue
        session, course = read_recorded_session(store, trace.id), course_of(trace, replay.case.terms)
        known: dict[tuple[int, ...], Recalled] = {}
        for policy in POLICIES:
            if policy.best:
                continue
            schedule = tuple(policy.schedule(course, replay.case))
            if schedule not in known:
                known[schedule] = measure_recall(session, schedule, replay.case.kept_tokens, settings)
            total[policy.name] += known[schedule]
    return total


def _terms(model: str, caching: Caching) -> PriceTerms:
    price = price_of(model)
    terms = Unknown(f"no price for {model!r}") if price is None else terms_of(price, caching)
    if isinstance(terms, Unknown):
        raise SettingsError(f"{terms.reason}: name another model with --model, such as {_DEFAULT_MODEL}")
    return terms


def _trace_files(args: argparse.Namespace) -> tuple[list[Trace], int, str]:
    names = [name for given in args.traces for name in _files_in(given)]
    return [trace for name in names for trace in _read_traces(name, args.static_tokens)], 0, ""


def _files_in(given: str) -> list[str]:
    """Returns the file, or the trace files of a folder."""
    folder = Path(given)
    if not folder.is_dir():
        return [given]
    found = sorted(str(path) for path in folder.iterdir() if path.name.endswith((".jsonl", ".jsonl.gz")))
    if not found:
        raise InputError(f"{given}: there are no trace files (.jsonl, .jsonl.gz) in this folder")
    return found


def _trace_store(args: argparse.Namespace, store: Store) -> tuple[list[Trace], int, str]:
    """Returns the traces, how many conversations had none, and the most used model whose price is known."""
    if args.session:
        ids = [find_conversation(store, args.session).id]
    else:
        ids = [row.tip.id for row in islice(iterate_conversations(store), args.limit)]
    found = [read_stored_trace(store, session_id) for session_id in ids]
    traces = [trace for trace in found if trace is not None]
    models = Counter(row.model for trace in traces for row in turns_of(store, trace.id)).most_common()
    used = next((name for name, _ in models if name and price_of(name) is not None), "")
    return traces, len(found) - len(traces), used


def _read_traces(name: str, static_tokens: int) -> list[Trace]:
    try:
        return read_traces(read_bytes(name), static_tokens)
    except InputError as error:
        shown = "standard input" if name == "-" else name
        raise InputError(f"{shown}: {error}") from None


def replay_lines(found: Replay, screen: Screen) -> Iterator[str]:
    """Yields the report: a table for each kind of cache, a group of columns for each window."""
    case = found.cases[0].case
    yield (
        f"{pluralise(found.sessions, 'session')}, {pluralise(found.requests, 'request')}, at the prices of "
        f"{printable(found.model)}; a compaction keeps {case.kept_tokens:,} tokens beside the static prefix"
    )
    if found.left_out:
        yield f"{pluralise(found.left_out, 'conversation')} skipped: fewer than two requests on record"
    if case.summary_tokens:
        yield f"{case.summary_tokens:,} of them are written by a model that reads the cached prompt"
    for window, count in {one.case.window_tokens: one.without_room for one in found.cases}.items():
        if count:
            yield f"{pluralise(count, 'session')} left out of {shorten_count(window)}: no room beside the static prefix"
    for caching in dict.fromkeys(one.caching for one in found.cases):
        own = [one for one in found.cases if one.caching == caching]
        terms = own[0].case.terms
        yield ""
        yield screen.paint(
            f"{_NAMES[caching]}: reading {terms.read:g}, writing {terms.write:g} times the price of input",
            "bold",
        )
        yield from _table(own, found.recall, screen)
        yield from wrap(_promise(own), screen.columns, indent=2)
    if found.recall:
        yield from wrap(_RECALL_NOTE, screen.columns, indent=2)


def _table(cases: Sequence[ReplayCase], recall: Mapping[str, Recalled], screen: Screen) -> Iterator[str]:
    """Yields columns for each window: tokens sent, cost, share of the first policy's cost; more for a single window."""
    single = len(cases) == 1
    headings = ["compacted"]
    for case in cases:
        headings += [f"{shorten_count(case.case.window_tokens)} sent", "cost", "share"]
    headings += (["compactions"] if single else []) + (["recall"] if recall else [])
    rows = [headings]
    for at, outcome in enumerate(cases[0].outcomes):
        row = [outcome.policy]
        for case in cases:
            own = case.outcomes[at]
            row += [_millions(own.bill.sent_tokens), _cost(own, case.case.terms), f"{own.of_never:.3f}"]
        row += [f"{outcome.bill.compactions:,}"] if single else []
        rows.append([*row, *([_format_recall(recall.get(outcome.policy))] if recall else [])])
    for number, line in enumerate(align(rows, right=set(range(1, len(headings))))):
        text = "  ".join(line)
        yield screen.paint(text, "dim") if number == 0 else text


def _format_recall(recall: Recalled | None) -> str:
    return "-" if recall is None or recall.share is None else f"{recall.share:.1%}"


def _promise(cases: Sequence[ReplayCase]) -> str:
    """Returns how many sessions cost more by the rule, among those that never had to be compacted."""
    counts = []
    for case in cases:
        by_name = {outcome.policy: outcome for outcome in case.outcomes}
        rule, gated = by_name[RULE], by_name[GATED]
        counts.append(
            f"{shorten_count(case.case.window_tokens)}: {rule.dearer:,} by the rule, {gated.dearer:,} gated, of {gated.below:,}"
        )
    return f"sessions that fit but cost more than without compaction: {'; '.join(counts)}"


def _millions(tokens: int) -> str:
    return f"{tokens / _MILLION:,.{1 if tokens < 100 * _MILLION else 0}f}M"


def _cost(outcome: PolicyOutcome, terms: PriceTerms) -> str:
    usd = _usd(outcome, terms)
    return format_money(usd) if usd is None or usd < 100 else f"${usd:,.0f}"


def _usd(outcome: PolicyOutcome, terms: PriceTerms) -> float | None:
    return None if terms.unit_usd is None else outcome.bill.units * terms.unit_usd


def _as_json(found: Replay) -> dict[str, Any]:
    return {
        "sessions": found.sessions,
        "requests": found.requests,
        "left_out": found.left_out,
        "model": found.model,
        "kept_tokens": found.cases[0].case.kept_tokens,
        "summary_tokens": found.cases[0].case.summary_tokens,
        "cases": [
            {
                "cache": case.caching,
                "terms": msgspec.structs.asdict(case.case.terms),
                "window_tokens": case.case.window_tokens,
                "without_room": case.without_room,
                "policies": [
                    {
                        **outcome.to_dict(),
                        "cost": _usd(outcome, case.case.terms),
                        **_recall_as_json(found.recall.get(outcome.policy)),
                    }
                    for outcome in case.outcomes
                ],
            }
            for case in found.cases
        ],
    }


def _recall_as_json(recall: Recalled | None) -> dict[str, Any]:
    if recall is None:
        return {}
    return {"recall": recall.share, "values_needed": recall.needed, "values_kept": recall.kept}
