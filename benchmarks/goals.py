"""What is asked of fidelity on recorded sessions, and what simple compactors reach there."""

from typing import NamedTuple

from benchmarks.report import Limit

__all__ = ["METRICS", "REAL", "ROWS", "Row"]

METRICS = ("recall", "ctx", "far")
REAL = "real compactions"


class Row(NamedTuple):
    """A kind of sessions at one budget. `share` is None where the recorded summary's size is the budget.

    `limits` and each of `recorded` are in the order of METRICS.
    """

    group: str
    share: float | None
    limits: tuple[Limit | None, ...]
    recorded: dict[str, tuple[float, float, float]]

    @property
    def name(self) -> str:
        if self.share is None:
            return f"{self.group}, size of the model's own summary"
        return f"{self.group}, {100 * self.share:.0f} %"


def _limits(*pairs: tuple[float, float] | None) -> tuple[Limit | None, ...]:
    return tuple(Limit(*pair, at_least=True) if pair else None for pair in pairs)


ROWS = (
    Row(
        "coding",
        0.10,
        _limits((64, 82), (58, 76), (48, 72)),
        {"last_k": (38.4, 35.4, 9.5), "head3_tail": (44.4, 41.1, 25.4)},
    ),
    Row(
        "coding",
        0.20,
        _limits((78, 92), (72, 88), (68, 88)),
        {"last_k": (52.8, 50.0, 14.1), "head3_tail": (60.6, 57.5, 37.0)},
    ),
    Row(
        "coding",
        0.30,
        _limits((86, 96), (80, 92), (80, 94)),
        {"last_k": (61.6, 59.0, 19.3), "head3_tail": (70.6, 67.9, 43.8)},
    ),
    Row(
        "customer service",
        0.20,
        _limits((62, 80), (55, 76), (50, 72)),
        {"last_k": (38.1, 37.3, 14.4), "head3_tail": (35.5, 33.7, 14.4)},
    ),
    Row(
        REAL,
        None,
        _limits((56, 70), (50, 65), None),
        {
            "last_k": (33.1, 31.7, 2.4),
            "head3_tail": (41.0, 40.0, 15.6),
            "the model's summary": (41.8, 36.4, 23.0),
        },
    ),
)
