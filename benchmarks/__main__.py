"""`python -m benchmarks [speed|memory|stores|recall|dialogue|search|fidelity|compactbench|engines|summaries|tasks|replay|bill|trajectories|page|redaction|hostile|startup|gateway|gateway-bill|gateway-recall|gateway-soak|hosted|clients|peers …]`: measure, and print tables."""

import argparse
import datetime as dt
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import (
    WITHOUT_CORE,
    clients,
    dialogue,
    engines,
    fidelity,
    gateway,
    gateway_bill,
    gateway_recall,
    gateway_soak,
    hosted,
    hostile,
    live_bill,
    memory,
    page,
    peers,
    practice,
    recall,
    redaction,
    replay,
    search,
    speed,
    speed_guard,
    startup,
    stores,
    summaries,
    tasks,
    trajectories,
)
from benchmarks.clock import cores, machine
from benchmarks.options import Endpoint, Options
from benchmarks.report import LEGEND, Table, as_json, markdown, missed
from benchmarks.written import list_documents, write_tables

SUBJECTS: dict[str, Callable[[Options], list[Table]]] = {
    "startup": startup.run,
    "speed": speed.run,
    "redaction": redaction.run,
    "hostile": hostile.run,
    "memory": memory.run,
    "stores": stores.run,
    "recall": recall.run,
    "dialogue": dialogue.run,
    "search": search.run,
    "fidelity": fidelity.run,
    "compactbench": practice.run,
    "engines": engines.run,
    "summaries": summaries.run,
    "tasks": tasks.run,
    "replay": replay.run,
    "bill": live_bill.run,
    "trajectories": trajectories.run,
    "page": page.run,
    "gateway": gateway.run,
    "gateway-bill": gateway_bill.run,
    "gateway-recall": gateway_recall.run,
    "gateway-soak": gateway_soak.run,
    "hosted": hosted.run,
    "clients": clients.run,
    "peers": peers.run,
}
BY_NAME_ONLY = {"peers"}  # installs 750 MB of other projects


def main() -> int:
    """0, or 1 with `--strict` where a floor is missed, or 2 for what cannot be done."""
    parser = _parser()
    wished = parser.parse_args()
    if unknown := [name for name in wished.subjects if name not in SUBJECTS]:
        parser.error(f"there is no benchmark {unknown[0]!r}: use {', '.join(SUBJECTS)}")
    if wished.write and wished.quick:
        parser.error("--quick figures are for trying; they are not to be written into documents")
    if wished.guard:
        if wished.subjects != ["speed"] or wished.write:
            parser.error("--guard goes with speed alone, and writes nothing")
        tables = speed_guard.guard()
        print("".join(f"\n{markdown(table)}\n" for table in tables), flush=True)
        return 1 if missed(tables) else 0
    options = _options(wished, parser)
    where = machine()
    measured = _measured(where, wished.quick)
    print(f"{measured}\n{LEGEND}", flush=True)
    tables = []
    for name in wished.subjects or [name for name in SUBJECTS if name not in BY_NAME_ONLY]:
        new = SUBJECTS[name](options)
        tables += new
        print("".join(f"\n{markdown(table)}\n" for table in new), flush=True)
    if wished.json:
        wished.json.write_text(as_json(tables, where) + "\n", encoding="utf-8")
    if wished.write:
        try:
            write_tables(list_documents(), tables, measured)
        except ValueError as error:
            parser.error(str(error))
    under = missed(tables)
    print(_verdict(tables, under, wished.quick))
    return 1 if under and wished.strict else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Penstock; everything but peers where none is named."
    )
    parser.add_argument("subjects", nargs="*", metavar="subject", help=", ".join(SUBJECTS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the tables in their places in the documents of this repository",
    )
    parser.add_argument(
        WITHOUT_CORE,
        action="store_true",
        help="run the inner loops in Python where the compiled ones are installed",
    )
    parser.add_argument(
        "--guard",
        action="store_true",
        help="with speed: a few seconds on fixed inputs; exits with 1 where what can be counted has grown",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a floor is missed")
    parser.add_argument("--quick", action="store_true", help="small inputs, few runs: to see that it works")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of what is timed (5)")
    parser.add_argument(
        "--jobs",
        type=int,
        default=cores(),
        metavar="N",
        help="processes for fidelity, engines, recall and summaries, and tasks at once (all cores)",
    )
    parser.add_argument(
        "--needles", choices=("theirs", "ours", "both"), default="both", help="on recorded sessions"
    )
    parser.add_argument(
        "--baselines", action="store_true", help="run simple compactors on recorded sessions as well"
    )
    parser.add_argument(
        "--messages", type=int, default=100_000, metavar="N", help="in the store that is searched (100,000)"
    )
    parser.add_argument(
        "--requests", type=int, default=10_000, metavar="N", help="to the gateway over time (10,000)"
    )
    parser.add_argument(
        "--trajectory-mb", type=int, default=200, metavar="N", help="of the large file of trajectories (200)"
    )
    parser.add_argument(
        "--limit", type=int, default=40, metavar="N", help="recorded sessions of a file, at most (40)"
    )
    _add_tasks(parser.add_argument_group("tasks", "which model does them (none: a scripted one), and how"))
    return parser


def _add_tasks(group: Any) -> None:
    group.add_argument("--model", metavar="NAME", help="as its provider calls it")
    group.add_argument(
        "--provider",
        default="openai",
        metavar="NAME",
        help="decides the API: openai, responses, anthropic or another that Penstock knows (openai)",
    )
    group.add_argument("--base-url", metavar="URL", help="a server with that API (the provider's own)")
    group.add_argument(
        "--api-key-env",
        metavar="VARIABLE",
        help="the variable with the key; needed where --base-url is not the provider's own address",
    )
    group.add_argument(
        "--keep",
        type=_share,
        action="append",
        metavar="SHARE",
        help="of the tokens, after a forced compaction; may be given again (0.25)",
    )
    group.add_argument(
        "--summaries",
        action="store_true",
        help="also run with compactions that the model writes a summary for",
    )
    group.add_argument(
        "--engine", default="compressor", metavar="NAME", help="that compacts: as context.engine (compressor)"
    )
    group.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="tasks with this text in their names; for search: sqlite, store or indexes",
    )


def _share(text: str) -> float:
    value = float(text)
    if not 0.02 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share from 0.02 to below 1")
    return value


def _options(wished: argparse.Namespace, parser: argparse.ArgumentParser) -> Options:
    named = os.environ.get("PENSTOCK_CORPORA")
    folder = Path(named).resolve() if named else None
    if folder is not None and not (folder / "future_recall.py").is_file():
        parser.error(
            f"PENSTOCK_CORPORA is {named!r}, where there is no future_recall.py: name another folder or none"
        )
    if wished.model is None and (wished.base_url or wished.api_key_env):
        parser.error("--base-url and --api-key-env are for a model: name it with --model")
    endpoint = (
        Endpoint(wished.model, wished.provider, wished.base_url, wished.api_key_env) if wished.model else None
    )
    return Options(
        repeat=2 if wished.quick else max(1, wished.repeat),
        quick=wished.quick,
        corpora=folder,
        needles=wished.needles,
        baselines=wished.baselines,
        limit=min(4, wished.limit) if wished.quick else max(1, wished.limit),
        jobs=max(1, wished.jobs),
        messages=max(2_000, wished.messages),
        requests=max(1_000, wished.requests),
        trajectory_mb=max(1, wished.trajectory_mb),
        endpoint=endpoint,
        keep=tuple(wished.keep or ()),
        engine=wished.engine,
        summaries=wished.summaries,
        only=wished.only,
    )


def _measured(where: dict[str, Any], quick: bool) -> str:
    today = dt.datetime.now(tz=dt.UTC).date()
    return (
        f"Measured {today}, {where['python']}, {where['system']}, {where['cores']} cores, load "
        f"{'unknown' if where['load'] is None else where['load']} at the start; `json.loads` "
        f"{where['json_loads_mb_per_s']:.0f} MB/s, SHA-256 {where['sha256_mb_per_s']:,.0f} MB/s"
        f"{' (--quick: small inputs, few runs)' if quick else ''}."
    )


def _verdict(tables: list[Table], under: list[str], quick: bool) -> str:
    lines = (
        ["Floors missed:", *(f"- {line}" for line in under)]
        if under
        else ["No floor that was measured is missed."]
    )
    lines += [f"Not measured: {table.title} (see above)." for table in tables if not table.columns]
    if quick:
        lines.append("Not measured with --quick: the floors for 20,000 messages.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
