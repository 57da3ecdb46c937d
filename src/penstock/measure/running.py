"""The size of the next prompt, kept up to date as messages come: O(new messages), never O(conversation)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.measure.calibration import Calibration

__all__ = ["RunningEstimate"]


class RunningEstimate(msgspec.Struct, frozen=True):
    """What the provider last reported, plus the calibrated count of what came since.

    `counted_tokens` is our count of everything in the prompt so far, `reported_tokens` the last report (0 before
    the first) and `covered_tokens` our count of what that report covers. A compaction replaces the prompt, so
    it starts a new estimate.
    """

    counted_tokens: int = 0
    reported_tokens: int = 0
    covered_tokens: int = 0

    def append(self, weights: Iterable[int]) -> RunningEstimate:
        """The estimate with messages of these counted `weights` added."""
        return msgspec.structs.replace(self, counted_tokens=self.counted_tokens + sum(weights))

    def report(self, prompt_tokens: int, covered_tokens: int | None = None) -> RunningEstimate:
        """The estimate after the provider reported `prompt_tokens`.

        The report covers everything counted so far, or `covered_tokens` of it where messages were added while
        the request was under way. A report that is not positive says nothing.
        """
        if prompt_tokens <= 0:
            return self
        covered = self.counted_tokens if covered_tokens is None else covered_tokens
        return msgspec.structs.replace(
            self,
            reported_tokens=prompt_tokens,
            covered_tokens=min(max(0, covered), self.counted_tokens),
        )

    def tokens(self, calibration: Calibration) -> int:
        """Prompt tokens of the next request: the report wins, only what came after it is estimated."""
        return self.reported_tokens + calibration.estimate(self.counted_tokens - self.covered_tokens)
