"""`penstock bench replay`: what past sessions would have cost with compactions at other moments."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.layout import aligned, plural, printable, wrapped
from penstock.cli.progress import Progress
from penstock.cli.screen import Screen, screen_of
from penstock.cli.source import read_bytes
from penstock.cli.stored import conversations, found_session, money, opened_store
from penstock.compaction.economics import Caching, Terms, terms_of
from penstock.errors import InputError, SettingsError
from penstock.measure.prices import Unknown, price_of
from penstock.replay.bills import Case
from penstock.replay.compare import Outcome, compare
from penstock.replay.policies import GATED, RULE
from penstock.replay.traces import Trace, read_traces, stored_trace

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.stores.base import Store

__all__ = ["Replay", "Replayed", "lines", "replayed", "run"]

MODEL = "claude-opus-4-8"
_NAMES = {
    "5m": "5-minute cache",
    "1h": "1-hour cache",
    "automatic": "automatic cache, as at OpenAI",
    "none": "no cache",
}
_MILLION = 1_000_000


class Replayed(msgspec.Struct, frozen=True):
    """All policies under one window and one kind of cache."""

    caching: Caching
    terms: Terms
    window_tokens: int
    outcomes: tuple[Outcome, ...]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What was replayed, and what came out. `left_out` counts conversations without usage on record."""

    sessions: int
    requests: int
    left_out: int
    model: str
    kept_tokens: int
    summary_tokens: int
    cases: tuple[Replayed, ...]


def run(args: argparse.Namespace) -> int:
    """Replay, and show it. Raises InputError, SettingsError, StoreError."""
    with Progress("reading") as progress:
        traces, left_out, used = _traces(args)
        if not traces:
            raise InputError(
                "no conversation in the store has two requests or more on record; bring some with penstock sessions "
                "import FILE, or give --traces FILE"
            )
        progress.now("replaying")
        found = replayed(args, traces, left_out, used)
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps(_as_json(found), indent=2))
        return 0
    for line in lines(found, screen):
        screen.say(line)
    return 0


def replayed(args: argparse.Namespace, traces: Sequence[Trace], left_out: int, used: str) -> Replay:
    """Every window under every kind of cache. Raises SettingsError for a model whose prices are not known."""
    model = args.model or used or MODEL
    kept = args.handoff_tokens + args.tail_tokens
    if args.summary_tokens > args.handoff_tokens:
        raise SettingsError(
            f"a model cannot write {args.summary_tokens:,} tokens of a handoff of {args.handoff_tokens:,}: give a smaller "
            "--summary-tokens or a larger --handoff-tokens"
        )
    cases = []
    for caching in args.cache:
        terms = _terms(model, caching)
        for window in args.window:
            case = Case(
                terms=terms, window_tokens=window, kept_tokens=kept, summary_tokens=args.summary_tokens
            )
            cases.append(Replayed(caching, terms, window, tuple(compare(traces, case))))
    return Replay(
        sessions=len(traces),
        requests=sum(trace.requests for trace in traces),
        left_out=left_out,
        model=model,
        kept_tokens=kept,
        summary_tokens=args.summary_tokens,
        cases=tuple(cases),
    )


def _terms(model: str, caching: Caching) -> Terms:
    price = price_of(model)
    terms = Unknown(f"no price for {model!r}") if price is None else terms_of(price, caching)
    if isinstance(terms, Unknown):
        raise SettingsError(f"{terms.reason}: name another model with --model, such as {MODEL}")
    return terms


def _traces(args: argparse.Namespace) -> tuple[list[Trace], int, str]:
    """The traces, how many conversations had none, and the model that was used most where its price is known."""
    if args.traces:
        return [trace for name in args.traces for trace in _file(name, args.static_tokens)], 0, ""
    with opened_store(args) as store:
        rows = store.usage()
        ids = [found_session(store, args.session).id] if args.session else _all(store)
        found = [stored_trace(store, session_id) for session_id in ids]
    traces = [trace for trace in found if trace is not None]
    models = Counter(row.model for row in rows).most_common()
    used = next((name for name, _ in models if name and price_of(name) is not None), "")
    return traces, len(found) - len(traces), used


def _all(store: Store) -> list[str]:
    return [row.tip.id for row in conversations(store)]


def _file(name: str, static_tokens: int) -> list[Trace]:
    try:
        return read_traces(read_bytes(name), static_tokens)
    except InputError as error:
        shown = "standard input" if name == "-" else name
        raise InputError(f"{shown}: {error}") from None


def lines(found: Replay, screen: Screen) -> Iterator[str]:
    """The report: a table for each kind of cache, a group of columns for each window."""
    yield (
        f"{plural(found.sessions, 'session')}, {plural(found.requests, 'request')}, at the prices of "
        f"{printable(found.model)}; a compaction keeps {found.kept_tokens:,} tokens beside the static prefix"
    )
    if found.left_out:
        yield f"{plural(found.left_out, 'conversation')} left out: fewer than two requests on record"
    if found.summary_tokens:
        yield f"{found.summary_tokens:,} of them are written by a model, on the prompt that is in the cache"
    for caching in dict.fromkeys(case.caching for case in found.cases):
        own = [case for case in found.cases if case.caching == caching]
        terms = own[0].terms
        yield ""
        yield screen.paint(
            f"{_NAMES[caching]}: reading {terms.read:g}, writing {terms.write:g} times the price of input",
            "bold",
        )
        yield from _table(own, screen)
        yield from wrapped(_promise(own), screen.columns, indent=2)


def _table(cases: Sequence[Replayed], screen: Screen) -> Iterator[str]:
    """Columns for each window: tokens sent, money, the share of the first policy's money; more where there is one."""
    single = len(cases) == 1
    headings = ["compacted"]
    for case in cases:
        headings += [
            f"{_short(case.window_tokens)} sent",
            "cost",
            "share",
            *(["compactions"] if single else []),
        ]
    rows = [headings]
    for at, outcome in enumerate(cases[0].outcomes):
        row = [outcome.policy]
        for case in cases:
            own = case.outcomes[at]
            row += [_millions(own.bill.sent_tokens), _cost(own, case.terms), f"{own.of_never:.3f}"]
            row += [f"{own.bill.compactions:,}"] if single else []
        rows.append(row)
    for number, line in enumerate(aligned(rows, right=set(range(1, len(headings))))):
        text = "  ".join(line)
        yield screen.paint(text, "dim") if number == 0 else text


def _promise(cases: Sequence[Replayed]) -> str:
    """Whom the rule costs more, among the sessions that would never have had to be compacted."""
    told = []
    for case in cases:
        by_name = {outcome.policy: outcome for outcome in case.outcomes}
        rule, gated = by_name[RULE], by_name[GATED]
        told.append(
            f"{_short(case.window_tokens)}: {rule.dearer:,} by the rule, {gated.dearer:,} gated, of {gated.below:,}"
        )
    return f"sessions that fit and cost more than without a compaction: {'; '.join(told)}"


def _short(tokens: int) -> str:
    for unit, name in ((_MILLION, "m"), (1_000, "k")):
        if tokens >= unit:
            return f"{tokens / unit:g}{name}"
    return str(tokens)


def _millions(tokens: int) -> str:
    return f"{tokens / _MILLION:,.{1 if tokens < 100 * _MILLION else 0}f}M"


def _cost(outcome: Outcome, terms: Terms) -> str:
    usd = _usd(outcome, terms)
    return money(usd) if usd is None or usd < 100 else f"${usd:,.0f}"


def _usd(outcome: Outcome, terms: Terms) -> float | None:
    return None if terms.unit_usd is None else outcome.bill.units * terms.unit_usd


def _as_json(found: Replay) -> dict[str, Any]:
    return {
        "sessions": found.sessions,
        "requests": found.requests,
        "left_out": found.left_out,
        "model": found.model,
        "kept_tokens": found.kept_tokens,
        "summary_tokens": found.summary_tokens,
        "cases": [
            {
                "cache": case.caching,
                "terms": msgspec.structs.asdict(case.terms),
                "window_tokens": case.window_tokens,
                "policies": [
                    {**outcome.to_dict(), "cost": _usd(outcome, case.terms)} for outcome in case.outcomes
                ],
            }
            for case in found.cases
        ],
    }
