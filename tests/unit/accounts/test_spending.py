"""Adding up: what is not known stays unknown, and savings are those of requests that came after."""

from __future__ import annotations

import pytest

from penstock.accounts.spending import CompactionTotals, group_requests, sum_compactions, sum_requests
from penstock.conversation.view import Compaction
from penstock.measure.usage import Usage
from penstock.stores.values import CompactionRow, UsageRow


def request(at, model="gpt-4.1", cost=0.5, usage=None, task="turn"):
    return UsageRow(session="s", at=at, model=model, task=task, usage=usage or Usage(100, 10, 300), cost=cost)


def compaction(created, undone=None, **receipt):
    counted = {"tokens_before": 10_000, "tokens_after": 2_000, "model_calls": 0, "cost": None, **receipt}
    return CompactionRow(
        key=1,
        compaction=Compaction("", 0, ()),
        over=0,
        receipt=counted,
        created=created,
        session="s",
        undone=undone,
    )


def test_sums():
    total = sum_requests([request(1.0), request(2.0)])
    assert (total.requests, total.usage, total.cost) == (2, Usage(200, 20, 600), 1.0)
    assert total.cache_hit_ratio == 0.75


def test_one_unknown_cost_makes_the_sum_unknown_and_none_is_not_nothing():
    assert sum_requests([request(1.0), request(2.0, cost=None)]).cost is None
    assert sum_requests([]).cost is None
    assert sum_requests([request(1.0, cost=0.0)]).cost == 0.0


def test_groups_are_in_order():
    groups = group_requests([request(1.0, "b"), request(2.0, "a"), request(3.0, "b")], lambda row: row.model)
    assert [(name, one.requests) for name, one in groups.items()] == [("a", 1), ("b", 2)]


def test_a_compaction_saves_in_every_later_request():
    made = sum_compactions([compaction(10.0)], [request(5.0), request(11.0), request(12.0)])
    assert (made.count, made.saved_tokens) == (1, 16_000)
    assert made.saved == pytest.approx(16_000 * 0.5 / 1e6)  # a cached token of gpt-4.1
    assert made.cost == 0.0


def test_nothing_is_saved_in_requests_that_do_not_send_the_view():
    made = sum_compactions([compaction(10.0)], [request(11.0, task="compression"), request(12.0)])
    assert made.saved_tokens == 8_000


def test_one_that_a_branch_took_over_saves_there_and_is_not_made_twice():
    rows = [compaction(10.0, model_calls=1, cost=0.25, taken_over_from="s")]
    made = sum_compactions(rows, [request(11.0)])
    assert (made.count, made.model_calls, made.cost, made.tokens_before) == (0, 0, 0.0, 0)
    assert made.saved_tokens == 8_000


def test_one_that_was_taken_back_saved_until_then():
    assert sum_compactions([compaction(10.0, 11.5)], [request(11.0), request(12.0)]).saved_tokens == 8_000


def test_two_add_up():
    made = sum_compactions(
        [compaction(10.0), compaction(20.0, cost=0.02, model_calls=1)], [request(15.0), request(25.0)]
    )
    assert made.saved_tokens == 24_000
    assert (made.cost, made.model_calls) == (0.02, 1)


def test_what_a_model_took_or_saved_without_a_price_is_unknown():
    assert sum_compactions([compaction(10.0, model_calls=2)], []).cost is None
    assert sum_compactions([compaction(10.0)], [request(11.0, "unheard-of")]).saved is None
    assert sum_compactions([compaction(10.0)], [request(11.0, "")]).saved is None


def test_a_compaction_that_made_it_longer_saves_nothing():
    assert sum_compactions([compaction(10.0, tokens_after=11_000)], [request(11.0)]).saved_tokens == 0


def test_a_receipt_of_another_version_does_not_break_the_sum():
    made = sum_compactions([compaction(10.0, tokens_before="many", tokens_after=None)], [request(11.0)])
    assert made == CompactionTotals(count=1)
