"""The text of metrics, read by the official parser."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.gateway import metrics
from penstock.gateway.metrics import MetricsPage

LABELS = st.text(st.characters(codec="utf-8"), max_size=12)


def read(page):
    return {family.name: family for family in text_string_to_metric_families(page.write())}


@settings(max_examples=30)
@given(
    counts=st.lists(st.tuples(LABELS, LABELS, st.integers(0, 10**12))),
    figures=st.lists(st.tuples(LABELS, st.floats(0, 100, allow_nan=False))),
    help_text=LABELS,
)
def test_what_was_counted_is_what_prometheus_reads(counts, figures, help_text):
    page = MetricsPage()
    counter = page.add_counter("penstock_things_total", f"Things. {help_text}", "one", "two")
    histogram = page.add_histogram("penstock_wait_seconds", "Waits.", [0.5, 0.001, 50.0], "who")
    page.watch("penstock_open", "Open.", lambda: 3)
    page.watch("penstock_restarts_total", "Restarts.", lambda: 4)
    expected = {}
    for one, two, by in counts:
        counter.add(one, two, by=by)
        expected[one, two] = expected.get((one, two), 0) + by
    for who, figure in figures:
        histogram.observe(figure, who)
    families = read(page)
    assert families["penstock_things"].type == "counter"
    assert {
        (sample.labels["one"], sample.labels["two"]): sample.value
        for sample in families["penstock_things"].samples
    } == expected
    waits = families["penstock_wait_seconds"]
    assert waits.type == "histogram"
    for who in {who for who, _ in figures}:
        own = [figure for name, figure in figures if name == who]
        samples = [sample for sample in waits.samples if sample.labels["who"] == who]
        buckets = {sample.labels["le"]: sample.value for sample in samples if sample.name.endswith("_bucket")}
        assert buckets == {
            "0.001": sum(one <= 0.001 for one in own),
            "0.5": sum(one <= 0.5 for one in own),
            "50": sum(one <= 50 for one in own),
            "+Inf": len(own),
        }
        (total,) = (sample.value for sample in samples if sample.name.endswith("_sum"))
        assert total == pytest.approx(sum(own))
    assert [families["penstock_open"].samples[0].value, families["penstock_restarts"].samples[0].value] == [
        3,
        4,
    ]


def test_labels_without_number_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(metrics, "_MOST_SERIES", 3)
    page = MetricsPage()
    counter = page.add_counter("penstock_things_total", "Things.", "who")
    for number in range(100):
        counter.add(f"n{number}")
    samples = read(page)["penstock_things"].samples
    assert {sample.labels["who"]: sample.value for sample in samples} == {
        "n0": 1,
        "n1": 1,
        "n2": 1,
        "other": 97,
    }


def test_mistakes_of_ours_are_told():
    page = MetricsPage()
    counter = page.add_counter("penstock_things_total", "Things.", "who")
    with pytest.raises(ValueError, match="labels"):
        counter.add()
    with pytest.raises(ValueError, match="already"):
        page.watch("penstock_things_total", "Again.", lambda: 1)
