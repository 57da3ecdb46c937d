"""`python -m benchmarks.digests`: a digest of every result, to see that a change of the source tree changes none.

    PENSTOCK_CORPORA=… python -m benchmarks.digests --write base.json            # before
    PENSTOCK_CORPORA=… python -m benchmarks.digests --check base.json            # after: all of it
    PENSTOCK_CORPORA=… python -m benchmarks.digests --check base.json --sample 20
    PENSTOCK_CORPORA=… python -m benchmarks.digests --dump out --only lossless-20/cc_cli/007

A case is `MODE/FILE/NUMBER`: one recorded conversation, sent one way through the public interface. Golden files
are `golden/NAME`, wherever they lie. Nothing below `penstock.` is imported, so that modules can move; nor are benchmarks
that do. Digests hold nothing of what was said; what `--dump` writes does, and is not to be committed.
"""

import argparse
import gzip
import hashlib
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import penstock
from benchmarks import WITHOUT_CORE
from benchmarks.clock import note

__all__ = ["main"]

TESTS = Path(__file__).parents[1] / "tests"
GOLDEN = "golden"
TRAJECTORY = "trajectory"  # reported, and never a failure: these results may change
BOUNDLESS = 10**9  # tokens: a target at which nothing is done but counting
SHOWN = 12  # keys of a kind, at most
VARIES = (
    "seconds",
    "room",
)  # of receipts and metrics; without a model there are no costs; `room` follows from the view

Record = dict[str, Any]
WRITE = {"name": "write_file", "arguments": '{"path": "docs/later.md", "text": "port 5433"}'}
CALL = {"id": "call_later_1", "type": "function", "function": WRITE}
LATER: list[Record] = [  # what is said in a stored session after its first compaction
    {"role": "user", "content": "One more thing: add a note to docs/later.md, port 5433, and then go on."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_later_1", "content": "wrote docs/later.md, 9 bytes\n" * 20},
    {"role": "assistant", "content": "The note is in docs/later.md. Shall I put it on staging as well?"},
    {"role": "user", "content": "Yes, as release 2.14.1, and tell me what is still open."},
]


class Case(NamedTuple):
    """One conversation of a file, by its line from 0, and what is to be done with it."""

    mode: str
    file: Path
    line: int = 0

    @property
    def key(self) -> str:
        if self.mode == GOLDEN:
            return f"{GOLDEN}/{self.file.name}"
        return f"{self.mode}/{self.file.name.partition('.jsonl')[0]}/{self.line:03}"


class Talk(NamedTuple):
    """A recorded conversation, and how many tokens it has, in all and in its system messages."""

    record: Record
    messages: list[Record]
    tokens: int
    system: int

    def share(self, percent: int) -> int:
        """A target in tokens. System messages are not in the share: they stay, and often are more than it."""
        return self.system + (self.tokens - self.system) * percent // 100


class Outcome(NamedTuple):
    """What came of a case: the text that is digested, which is the type of an error where there was one."""

    key: str
    text: str
    failed: bool = False

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def lossless_engine() -> Any:
    """The engine `lossless`. ADAPT HERE when modules move: the only place that may look below `penstock.`."""
    if hasattr(penstock, "LosslessEngine"):
        return penstock.LosslessEngine()
    from penstock.engine.engines import engine_named  # noqa: PLC0415  # only where the name above is gone

    return engine_named("lossless")


def _compress(percent: int, talk: Talk) -> Any:
    return _told(penstock.compress(talk.messages, target_tokens=talk.share(percent)))


def _window(talk: Talk) -> Any:
    """In a window that the conversation fills, with the tools that were recorded."""
    window, tools = max(8_000, talk.tokens), talk.record.get("tools")
    return _told(penstock.compress(talk.messages, context_length=window, tools=tools))


def _session(talk: Talk) -> Any:
    """Kept in a store and compacted, then compacted again, smaller, with more behind it."""
    store = penstock.open_store("memory:")
    session = penstock.Session.create(store)
    session.append(talk.messages)
    first = session.compact(target_tokens=talk.share(20)).receipt
    views = [session.view()]
    session.append(LATER)
    second = session.compact(target_tokens=talk.share(15) + _count(LATER)).receipt
    views.append(session.view())
    store.close()
    return [views, [_steady(receipt.to_dict()) for receipt in (first, second)]]


def _lossless(talk: Talk) -> Any:
    return _told(lossless_engine().compact(talk.messages, target_tokens=talk.share(20)))


def _trajectory(talk: Talk) -> Any:
    turns, metrics = penstock.compress_trajectory(talk.messages, target_tokens=talk.share(40))
    return [turns, _steady(metrics.to_dict())]


def _natural(talk: Talk) -> Any:
    """To the size of the summary that a model wrote in its place."""
    target = _count([{"role": "user", "content": talk.record["summary"]}])
    return _told(penstock.compress(talk.messages, target_tokens=target))


MODES: dict[str, tuple[str, Callable[[Talk], Any]]] = {
    "compress-10": ("openai", partial(_compress, 10)),
    "compress-20": ("openai", partial(_compress, 20)),
    "compress-30": ("openai", partial(_compress, 30)),
    "window": ("openai", _window),
    "session": ("openai", _session),
    "lossless-20": ("openai", _lossless),
    "sharegpt-20": ("sharegpt", partial(_compress, 20)),
    TRAJECTORY: ("sharegpt", _trajectory),
    "natural": ("natural", _natural),
}


def main() -> int:
    """0, or 1 where `--check` finds results that changed or are missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.digests", description="Digests of results.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, metavar="FILE", help="record the digests")
    action.add_argument("--check", type=Path, metavar="FILE", help="compare with those that were recorded")
    action.add_argument("--dump", type=Path, metavar="DIR", help="write what is digested, a file a case")
    parser.add_argument("--only", default="", metavar="PREFIX", help="cases whose key begins so")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="every Nth case of these")
    parser.add_argument(WITHOUT_CORE, action="store_true", help="with the inner loops in Python")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (2)")
    wished = parser.parse_args()
    named = os.environ.get("PENSTOCK_CORPORA", "")
    if not (Path(named) / "future_recall.py").is_file():
        parser.error(f"PENSTOCK_CORPORA is {named!r}, where there is no future_recall.py")
    recorded = json.loads(wished.check.read_text(encoding="utf-8")) if wished.check else {}
    every = [case for case in _cases(Path(named).resolve()) if case.key.startswith(wished.only)]
    if len({case.key for case in every}) < len(every):
        parser.error("two golden files have one name")
    outcomes = _outcomes(every[:: max(1, wished.sample)], wished.jobs)
    digests = {outcome.key: outcome.digest for outcome in outcomes}
    if wished.write:
        wished.write.write_text(json.dumps(digests, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    if wished.dump:
        wished.dump.mkdir(parents=True, exist_ok=True)
        for outcome in outcomes:
            file = wished.dump / f"{outcome.key.replace('/', '__')}.txt"
            file.write_text(outcome.text, encoding="utf-8", errors="surrogatepass")
    if wished.check:
        gone = {key for key in recorded if key.startswith(wished.only)} - {case.key for case in every}
        return _compared(recorded, digests, gone)
    return 0


def _cases(corpora: Path) -> Iterator[Case]:
    """All cases, mode by mode, so that every Nth of them is every Nth of each mode."""
    for mode, (folder, _) in MODES.items():
        for file in sorted((corpora / folder).glob("*.jsonl.gz")):
            yield from (Case(mode, file, line) for line in range(len(_lines(file))))
    files = [path for path in TESTS.rglob("*.*") if GOLDEN in path.relative_to(TESTS).parts[:-1]]
    yield from (Case(GOLDEN, path) for path in sorted(files) if path.suffix not in (".py", ".pyc"))


def _outcomes(cases: list[Case], jobs: int) -> list[Outcome]:
    note(f"digests: {len(cases):,} cases, {jobs} processes, penstock of {Path(penstock.__file__).parent}")
    started = time.perf_counter()
    together = sorted(cases, key=lambda case: (case.file, case.line))  # so that each is counted once
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(jobs) as pool:
        for outcome in pool.map(_outcome, together, chunksize=8):
            outcomes.append(outcome)
            if len(outcomes) % 500 == 0 or len(outcomes) == len(together):
                note(f"digests: {len(outcomes):,} cases in {time.perf_counter() - started:,.0f} s")
    for error, count in Counter(outcome.text for outcome in outcomes if outcome.failed).items():
        note(f"digests: {count:,} ended in {error}")
    return outcomes


def _outcome(case: Case) -> Outcome:
    if case.mode == GOLDEN:
        return Outcome(case.key, case.file.read_bytes().decode("utf-8"))
    record = _record(case.file, case.line)  # anew for each case: what one does to it is not the next one's
    try:
        result = MODES[case.mode][1](Talk(record, _messages(record), *_sizes(case.file, case.line)))
        return Outcome(case.key, json.dumps(result, sort_keys=True, ensure_ascii=False, indent=1))
    except Exception as error:  # noqa: BLE001  # an error is a result: it is to stay the same
        return Outcome(case.key, type(error).__name__, failed=True)


@lru_cache(maxsize=32)
def _lines(file: Path) -> list[bytes]:
    return gzip.decompress(file.read_bytes()).splitlines()


def _record(file: Path, line: int) -> Record:
    record: Record = json.loads(_lines(file)[line])
    return record


@lru_cache(maxsize=8)
def _sizes(file: Path, line: int) -> tuple[int, int]:
    messages = _messages(_record(file, line))
    system = [one for one in messages if one.get("role", one.get("from")) == "system"]
    return _count(messages), _count(system)


def _count(messages: list[Record]) -> int:
    return penstock.compress(messages, target_tokens=BOUNDLESS).receipt.tokens_before


def _messages(record: Record) -> list[Record]:
    return next(record[name] for name in ("messages", "conversations", "prefix") if name in record)


def _told(result: Any) -> Any:
    return [result.messages, _steady(result.receipt.to_dict())]


def _steady(figures: Record) -> Record:
    return {name: value for name, value in figures.items() if name not in VARIES}


def _compared(recorded: dict[str, str], digests: dict[str, str], gone: set[str]) -> int:
    """Print what is equal and what is not. A new case is no difference: there is nothing to compare it with."""
    changed = [key for key in digests if key in recorded and recorded[key] != digests[key]]
    new = [key for key in digests if key not in recorded]
    equal = len(digests) - len(changed) - len(new)
    print(f"{equal:,} equal, {len(changed):,} changed, {len(gone):,} missing, {len(new):,} new")
    for what, keys in (("changed", changed), ("missing", gone), ("new", new)):
        modes = defaultdict(list)
        for key in sorted(keys):
            modes[key.partition("/")[0]].append(key)
        for mode, some in modes.items():
            more = f" … and {len(some) - SHOWN:,} more" if len(some) > SHOWN else ""
            print(f"{what}, {mode}: {len(some):,}: {' '.join(some[:SHOWN])}{more}")
    return int(any(not key.startswith(f"{TRAJECTORY}/") for key in (*changed, *gone)))


if __name__ == "__main__":
    sys.exit(main())
