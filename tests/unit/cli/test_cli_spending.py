"""`usage` and `insights` at 80 columns, and sums in which a price is unknown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.accounts.spending import CompactionTotals, group_requests, sum_compactions, sum_requests
from penstock.cli.screen import Screen, width_of
from penstock.cli.spending import savings_lines, spending_table
from penstock.measure.usage import Usage
from penstock.stores.values import UsageRow

PIPE = Screen(print)
names = st.text(st.characters(categories=("L", "N", "P")), max_size=70) | st.sampled_from(
    ["gpt-4.1", "openrouter/anthropic/claude-sonnet-4-5-20250929:beta"]
)
costs = st.none() | st.floats(0, 10_000)


def request(model="gpt-4.1", cost=None, tokens=1_000):
    usage = Usage(input_tokens=tokens, output_tokens=tokens)
    return UsageRow(session="s", at=1.0, model=model, task="turn", usage=usage, cost=cost)


@given(st.lists(st.builds(request, names, costs, st.integers(0, 10**12)), min_size=1, max_size=6))
def test_a_table_fits_80_columns_and_keeps_its_cost(rows):
    groups = group_requests(rows, lambda row: row.model)
    shown = list(spending_table("model", groups, PIPE, sum_requests(rows)))
    assert max(map(width_of, shown)) <= 80
    assert shown[0].endswith("cost")


def test_a_sum_with_an_unknown_price_says_at_least():
    rows = [request(cost=0.25), request(cost=0.5), request("a-new-model")]
    shown = list(
        spending_table("model", group_requests(rows, lambda row: row.model), PIPE, sum_requests(rows))
    )
    assert [line.split(maxsplit=1)[0] for line in shown[1:]] == ["a-new-model", "gpt-4.1", "total"]
    assert shown[1].endswith(" unknown")
    assert shown[2].endswith(" $0.7500")
    assert shown[3].endswith(" at least $0.7500")


def test_so_do_the_sums_over_compactions():
    made = CompactionTotals(
        count=2, model_calls=2, cost=None, known_cost=0.5, saved_tokens=9, saved=None, known_saved=1.5
    )
    text = "\n".join(savings_lines(made, PIPE))
    assert "2 model calls, at least $0.5000" in text
    assert "at least $1.50 at the price of cached tokens" in text


@given(st.lists(st.builds(CompactionTotals, cost=costs, saved=costs), max_size=5))
def test_what_is_known_is_never_more_than_the_sum(parts):
    known = [
        CompactionTotals(
            cost=one.cost, saved=one.saved, known_cost=one.cost or 0.0, known_saved=one.saved or 0.0
        )
        for one in parts
    ]
    total = sum(known, CompactionTotals())
    assert total.cost in (None, total.known_cost)
    assert total.saved in (None, total.known_saved)
    assert sum_compactions([], ()) == CompactionTotals()
