"""What sessions would have cost with compactions at other moments: on generated traces, on recorded ones where given."""

from collections.abc import Sequence

from benchmarks.clock import note
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table, share
from benchmarks.traces import generated_traces
from penstock.measure.prices import price_of
from penstock.planning.economics import Caching, PriceTerms, terms_of
from penstock.replay.bills import Case
from penstock.replay.policies import BEST, GATED, LATE, NEVER, POLICIES, RULE, PolicyOutcome, compare
from penstock.replay.traces import Trace, read_traces

__all__ = ["run"]

MODEL = "claude-opus-4-8"
KEPT_TOKENS = 30_000  # 10,000 of a handoff and 20,000 of the tail
WINDOWS = {"128K": 128_000, "200K": 200_000, "1M": 1_000_000}
CACHES: dict[str, Caching] = {"5 min": "5m", "1 h": "1h", "automatic": "automatic", "none": "none"}
FLOORS = {"200K": Limit(78, 72), "1M": Limit(60, 50)}
NEAR, NONE_DEARER = Limit(105), Limit(0)
UNSET = (
    "Not run: PENSTOCK_CORPORA names no folder with `traces/*.jsonl.gz`. It would add recorded sessions, with the floors "
    "for what the rule saves."
)


def run(options: Options) -> list[Table]:
    count = 20 if options.quick else 300
    note(f"replay: {count} generated sessions")
    tables = [_policies("replay-generated", "Replay of generated sessions", generated_traces(count))]
    files = sorted(options.corpora.glob("traces/*.jsonl.gz")) if options.corpora else []
    if not files:
        return [*tables, Table("replay", "Replay of recorded sessions", (), (), UNSET)]
    sets = {path.name.partition(".")[0]: read_traces(path.read_bytes()) for path in files}
    if options.quick:
        sets = {name: traces[: options.limit] for name, traces in sets.items()}
    together = [trace for traces in sets.values() for trace in traces]
    note(f"replay: {len(together)} recorded sessions")
    sets |= {"together": together} if len(sets) > 1 else {}
    return [
        *tables,
        _floors(sets),
        _money(together),
        _policies("replay-policies", "Replay of recorded sessions, all policies", together),
    ]


def _floors(sets: dict[str, list[Trace]]) -> Table:
    rows = []
    for name, traces in sets.items():
        for window, limit in FLOORS.items():
            found = _compared(traces, "5m", WINDOWS[window])
            rule, gated = found[RULE], found[GATED]
            rows.append(
                (
                    f"{name}, {window}",
                    Figure(len(traces)),
                    share(rule.bill.units / found[LATE].bill.units, limit),
                    share(gated.bill.units / found[LATE].bill.units),
                    share(found[BEST].bill.units / found[LATE].bill.units),
                    share(rule.bill.units / found[BEST].bill.units, NEAR),
                    Figure(gated.below),
                    Figure(gated.dearer, "", NONE_DEARER),
                    Figure(rule.dearer),
                )
            )
    return Table(
        "replay",
        "Replay of recorded sessions",
        (
            "sessions, window",
            "sessions",
            "rule / at 83 % (floor · goal)",
            "gated / at 83 %",
            "hindsight / at 83 %",
            "rule / hindsight (floor)",
            "fit the window",
            "dearer: gated (floor)",
            "dearer: rule",
        ),
        tuple(rows),
        f"5-minute cache at the prices of {MODEL}; each compaction is extractive and keeps 10,000 tokens of a handoff and a "
        "tail of 20,000. Every policy compacts in the same way, so that only the moment differs. *Dearer* are sessions "
        "that fit the window and cost more than without a compaction.",
    )


def _money(traces: Sequence[Trace]) -> Table:
    found = _compared(traces, "5m", WINDOWS["200K"])
    unit = _terms("5m").unit_usd or 0.0
    rows = [
        (
            name,
            f"{outcome.bill.sent_tokens / 1e6:,.0f} M",
            f"{outcome.bill.read_tokens / 1e6:,.0f} M",
            f"{outcome.bill.fresh_tokens / 1e6:,.0f} M",
            f"${outcome.bill.units * unit:,.0f}",
            share(outcome.of_never),
            Figure(outcome.bill.compactions),
        )
        for name, outcome in found.items()
    ]
    return Table(
        "replay-money",
        "Replay of recorded sessions, tokens and money",
        ("compacted", "sent", "read from the cache", "written to it", "cost", "of never", "compactions"),
        tuple(rows),
        f"All sessions together, a window of 200,000 tokens, 5-minute cache, prices of {MODEL}.",
    )


def _policies(key: str, title: str, traces: Sequence[Trace]) -> Table:
    cases = {
        f"{cache}, {window}": _compared(traces, caching, tokens)
        for cache, caching in CACHES.items()
        for window, tokens in WINDOWS.items()
    }
    rows = tuple(
        (policy.name, *(share(found[policy.name].of_never) for found in cases.values()))
        for policy in POLICIES
        if policy.name != NEVER
    )
    requests = sum(trace.requests for trace in traces)
    return Table(
        key,
        title,
        ("compacted", *cases),
        rows,
        f"{len(traces):,} sessions with {requests:,} requests: the bill against that of never compacting until the window "
        "forces it. *Gated, and threshold* is what the default settings do.",
    )


def _compared(traces: Sequence[Trace], caching: Caching, window_tokens: int) -> dict[str, PolicyOutcome]:
    case = Case(terms=_terms(caching), window_tokens=window_tokens, kept_tokens=KEPT_TOKENS)
    return {outcome.policy: outcome for outcome in compare(traces, case)}


def _terms(caching: Caching) -> PriceTerms:
    price = price_of(MODEL)
    assert price is not None, f"the price table does not know {MODEL}"
    terms = terms_of(price, caching)
    assert isinstance(terms, PriceTerms), terms
    return terms
