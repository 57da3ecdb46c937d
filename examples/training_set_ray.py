"""A training set in a Ray pipeline: long runs of an agent in, rows that fit the training window out.

Where the runs are files and the result is too, one command does it, with the same rows, a report, and `--resume`:

    penstock trajectories runs/ runs.15k/ --engine ray --ray-address auto

Inside a pipeline of your own, `compress_trajectories` is a step like any other:

    python -m examples.training_set_ray runs.jsonl runs.15k/ 15250
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reads it when it is imported

import ray
import ray.data

import penstock

if TYPE_CHECKING:
    from collections.abc import Iterator

WHOLE = ("under_target", "compressed", "degraded")  # the outcomes of rows that can be read


def prepare(rows: ray.data.Dataset, target_tokens: int) -> ray.data.Dataset:
    """Returns the rows that fit the target, shortened where they did not. What cannot be read or made to fit is left out."""

    def fit(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for shorter in penstock.compress_trajectories([row], target_tokens=target_tokens):
            figures = shorter.pop("penstock")
            if figures["outcome"] in WHOLE and not figures.get("still_over_limit"):
                yield {**shorter, "tokens": figures.get("tokens_after", 0), "outcome": figures["outcome"]}

    return rows.flat_map(fit)


if __name__ == "__main__":
    source, target, target_tokens = sys.argv[1:]
    ray.init(include_dashboard=False)  # or the address of your cluster
    prepare(ray.data.read_json(source, lines=True), int(target_tokens)).write_parquet(target)
