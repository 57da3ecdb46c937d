"""What redaction costs inside a compaction, and whether a secret of the example session gets through."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from examples.build_long_session import fake_secrets

import penstock
from benchmarks.clock import json_seconds, note, timed
from benchmarks.generate import many_messages, window_200k
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table, share
from benchmarks.speed import WINDOW_TOKENS, warm
from penstock.redaction import Redactor

__all__ = ["run"]

SHARE = Limit(100 / 3)
NONE_LEFT = Limit(0)
EXAMPLE = Path(__file__).parents[1] / "examples" / "long_session.json"


def run(options: Options) -> list[Table]:
    note("redaction: its share of a compaction, and its speed alone")
    warm()
    count = 500 if options.quick else 2_000
    window, many = window_200k(), many_messages(count, 1_500 * count)
    texts = [text for message in window for text in leaves(message)]
    data = json.dumps(texts).encode()
    redactor = Redactor()
    alone = timed(lambda every: [redactor.redact(text) for text in every], lambda: texts, options.repeat)
    alarms = sum(len(redactor.find(text)) for text in texts)
    left, planted = _left_in_example()
    rows = (
        ("share of a compaction's time, 200,000-token window", _share(window, options.repeat)),
        (f"share of a compaction's time, {count:,} messages", _share(many, options.repeat)),
        ("speed alone, message by message", Figure(len(data) / 1e6 / alone.cpu, "MB/s")),
        ("CPU time alone / json.loads of the same texts", Figure(alone.cpu / json_seconds(data), "×")),
        ("found in generated text, which holds no secret", Figure(alarms)),
        (
            f"of the example session's {planted} secrets, left in what was written",
            Figure(left, "", NONE_LEFT),
        ),
    )
    remark = (
        "The share is that of the fastest run, with a clock around `Redactor.find` and `.redact`. Which kinds of "
        "secrets are found is shown by the tests (`tests/unit/redaction`) and in docs/adr/0003-redaction.md."
    )
    return [Table("redaction", "Redaction", ("what", "figure (floor)"), rows, remark)]


def _share(messages: list[dict[str, Any]], repeat: int) -> Figure:
    runs = []
    for _ in range(repeat):
        with _watched(Redactor, "find", "redact") as spent:
            start = time.perf_counter()
            penstock.ContextCompressor(WINDOW_TOKENS).compress(messages)
            runs.append((time.perf_counter() - start, spent[0]))
    total, inside = min(runs)
    return share(inside / total, SHARE)


@contextmanager
def _watched(owner: type, *names: str) -> Iterator[list[float]]:
    """Seconds spent in these methods, whoever calls them; one that calls another is counted once."""
    spent, depth = [0.0], [0]

    def clocked(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if depth[0]:
                return method(*args, **kwargs)
            depth[0], start = 1, time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                spent[0] += time.perf_counter() - start
                depth[0] = 0

        return call

    methods = {name: getattr(owner, name) for name in names}
    try:
        for name, method in methods.items():
            setattr(owner, name, clocked(method))
        yield spent
    finally:
        for name, method in methods.items():
            setattr(owner, name, method)


def leaves(node: Any) -> Iterator[str]:
    """Every text in a message, however deep."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for child in node.values():
            yield from leaves(child)
    elif isinstance(node, list):
        for child in node:
            yield from leaves(child)


def _left_in_example() -> tuple[int, int]:
    """Secrets of the example that stand, whole or by a line, in what a compression to a fifth wrote; and all."""
    messages = json.loads(EXAMPLE.read_text(encoding="utf-8"))["messages"]
    before = penstock.compress(messages).receipt.tokens_before
    result = penstock.compress(messages, target_tokens=before // 5)
    given = {id(message) for message in messages}
    written = "\n".join(text for m in result.messages if id(m) not in given for text in leaves(m))
    secrets = fake_secrets().values()
    lines = [[line for line in secret.splitlines() if not line.startswith("-----")] for secret in secrets]
    return sum(any(line in written for line in secret) for secret in lines), len(lines)
