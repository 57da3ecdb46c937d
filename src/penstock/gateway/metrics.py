"""Figures of a running gateway in the text format of Prometheus.

Labels are names of ours or of the settings: never words of a caller, and so never many. As a second lock, a metric has
at most so many series; what comes beyond is counted under `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.gateway.logs import read_tokens, read_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.gateway.callers import ServedRequest

__all__ = [
    "CONTENT_TYPE",
    "Counter",
    "GatewayMetrics",
    "Gauge",
    "Histogram",
    "Metric",
    "MetricsPage",
    "ReadCounter",
]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_MOST_SERIES: Final = 500
_OTHER: Final = "other"


class Metric:
    """A figure with a name, one line of help, and a value for each combination of its labels."""

    kind = ""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self._text = text
        self._labels = tuple(labels)
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def write(self) -> Iterator[str]:
        """Yields its lines."""
        yield f"# HELP {self.name} {_escape(self._text)}\n"
        yield f"# TYPE {self.name} {self.kind}\n"
        yield from self._write_values()

    def _write_values(self) -> Iterator[str]:
        raise NotImplementedError

    def _series(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the values of the labels under which something is counted."""
        if given in self._known:
            return given
        if len(given) != len(self._labels):
            raise ValueError(f"{self.name} has the labels {self._labels}")
        if len(self._known) >= _MOST_SERIES:
            return tuple(_OTHER for _ in given)
        self._known[given] = given
        return given

    def _line(self, values: tuple[str, ...], value: float, *, suffix: str = "", le: str = "") -> str:
        pairs = [f'{name}="{_escape_value(one)}"' for name, one in zip(self._labels, values, strict=True)]
        if le:
            pairs.append(f'le="{le}"')
        labels = f"{{{','.join(pairs)}}}" if pairs else ""
        return f"{self.name}{suffix}{labels} {_format(value)}\n"


class Counter(Metric):
    """A figure that only grows. Its name ends in `_total`."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, text, labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Adds to the figure of these labels."""
        series = self._series(labels)
        self._values[series] = self._values.get(series, 0.0) + by

    def _write_values(self) -> Iterator[str]:
        for values, value in self._values.items():
            yield self._line(values, value)


class Gauge(Metric):
    """A figure that is read when it is asked for."""

    kind = "gauge"

    def __init__(self, name: str, text: str, read: Callable[[], float]) -> None:
        super().__init__(name, text)
        self._read = read

    def _write_values(self) -> Iterator[str]:
        yield self._line((), self._read())


class ReadCounter(Gauge):
    """A counter that another part keeps, read when it is asked for."""

    kind = "counter"


class Histogram(Metric):
    """Counts how often a figure fell below each bound, and the sum of all."""

    kind = "histogram"

    def __init__(self, name: str, text: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        super().__init__(name, text, labels)
        self._bounds = sorted(bounds)
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Takes in one figure."""
        series = self._series(labels)
        counts = self._counts.get(series)
        if counts is None:
            counts = self._counts[series] = [0] * (len(self._bounds) + 1)
            self._sums[series] = 0.0
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[series] += value

    def _write_values(self) -> Iterator[str]:
        for values, counts in self._counts.items():
            below = 0
            for bound, count in zip([*self._bounds, float("inf")], counts, strict=True):
                below += count
                yield self._line(values, below, suffix="_bucket", le=_format(bound))
            yield self._line(values, self._sums[values], suffix="_sum")
            yield self._line(values, below, suffix="_count")


_M = TypeVar("_M", bound=Metric)


class MetricsPage:
    """All metrics of a process, in the order in which they were added."""

    def __init__(self) -> None:
        self._all: dict[str, Metric] = {}

    def add_counter(self, name: str, text: str, *labels: str) -> Counter:
        """Adds a counter."""
        return self._add(Counter(name, text, labels))

    def add_histogram(self, name: str, text: str, bounds: Sequence[float], *labels: str) -> Histogram:
        """Adds a histogram."""
        return self._add(Histogram(name, text, bounds, labels))

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Adds a figure that is read for each page; one whose name ends in `_total` only grows."""
        self._add((ReadCounter if name.endswith("_total") else Gauge)(name, text, read))

    def _add(self, metric: _M) -> _M:
        if metric.name in self._all:
            raise ValueError(f"there is a metric {metric.name} already")
        self._all[metric.name] = metric
        return metric

    def write(self) -> str:
        """Returns the page."""
        return "".join(line for metric in self._all.values() for line in metric.write())


_SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    120,
    300,
    600,
)
_OWN_SECONDS: Final = (0.0005, *_SECONDS[:12])
_NONE: Final = "none"


class GatewayMetrics:
    """The figures of requests. Everything is on `page`, where other parts add their own."""

    def __init__(self) -> None:
        self.page = page = MetricsPage()
        self._requests = page.add_counter(
            "penstock_requests_total", "Requests that have ended.", "dialect", "status", "upstream"
        )
        self._refusals = page.add_counter(
            "penstock_refusals_total",
            "Requests that were not let in: by key, model, rate, budget or busy.",
            "reason",
        )
        self._seconds = page.add_histogram(
            "penstock_request_seconds",
            "From the arrival of a request to the end of its answer.",
            _SECONDS,
            "dialect",
        )
        self._own_seconds = page.add_histogram(
            "penstock_before_upstream_seconds",
            "From the arrival of a request until it went upstream: its body, and the gateway's own work.",
            _OWN_SECONDS,
            "dialect",
        )
        self._first_byte = page.add_histogram(
            "penstock_upstream_first_byte_seconds",
            "From sending a request upstream until the answer began.",
            _SECONDS,
            "upstream",
        )
        self._before = page.add_counter(
            "penstock_tokens_before_total", "Tokens of prompts as received.", "dialect"
        )
        self._after = page.add_counter("penstock_tokens_after_total", "Tokens of prompts as sent.", "dialect")
        self._used = page.add_counter(
            "penstock_usage_tokens_total", "Tokens as upstreams reported them.", "upstream", "kind"
        )
        self._compactions = page.add_counter(
            "penstock_compactions_total",
            "Requests whose conversation was compacted, by what led to it.",
            "trigger",
        )
        self._recoveries = page.add_counter(
            "penstock_recoveries_total",
            "Requests made smaller because the upstream refused them as too large.",
        )
        self._retries = page.add_counter(
            "penstock_retries_total", "Requests sent again because no answer came.", "upstream"
        )
        self._fallbacks = page.add_counter(
            "penstock_fallbacks_total", "Requests answered by another upstream than the first.", "upstream"
        )
        self._passed = page.add_counter(
            "penstock_passed_through_total",
            "Requests passed on unchanged, by wish or by failure.",
            "reason",
        )
        self._cut_off = page.add_counter(
            "penstock_cut_off_total",
            "Answers that were cut off: by client, upstream or gateway.",
            "side",
        )

    def observe(self, served: ServedRequest) -> None:
        """Takes in a request that has ended."""
        dialect, upstream = served.dialect or _NONE, served.upstream or _NONE
        self._requests.add(dialect, str(served.status or _NONE), upstream)
        if served.refused:
            self._refusals.add(served.refused)
            return
        self._seconds.observe(served.ended_at - served.started_at, dialect)
        if served.sent_at:
            self._own_seconds.observe(served.sent_at - served.started_at, dialect)
        if served.first_byte_at:
            self._first_byte.observe(served.first_byte_at - served.sent_at, upstream)
        self._count_tokens(served, dialect, upstream)
        if served.retries:
            self._retries.add(upstream, by=served.retries)
        if served.fallbacks:
            self._fallbacks.add(upstream)
        if served.recoveries:
            self._recoveries.add(by=served.recoveries)
        if served.cut_off:
            self._cut_off.add(served.cut_off)

    def _count_tokens(self, served: ServedRequest, dialect: str, upstream: str) -> None:
        headers = served.headers
        before, after = read_tokens(headers, "before"), read_tokens(headers, "after")
        if before is not None and after is not None:
            self._before.add(dialect, by=before)
            self._after.add(dialect, by=after)
        if read_word(headers, "compacted") == "now":
            self._compactions.add("overflow" if served.recoveries else "preflight")
        if reason := read_word(headers, "passed-through"):
            self._passed.add(reason)
        if (usage := served.usage) is not None:
            for kind, tokens in (
                ("input", usage.input_tokens),
                ("output", usage.output_tokens),
                ("cache_read", usage.cache_read_tokens),
                ("cache_write", usage.cache_write_tokens),
            ):
                if tokens:
                    self._used.add(upstream, kind, by=tokens)


def _format(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_value(text: str) -> str:
    return _escape(text).replace('"', '\\"')
