"""The size of the next prompt, kept up to date as messages come: O(new messages), never O(conversation)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.measure.calibration import Calibration

__all__ = ["RunningEstimate"]


class RunningEstimate(msgspec.Struct, frozen=True):
    """The last report of a provider, plus the calibrated count of what came since.

    `counted_tokens` is our count of everything in the prompt so far, `reported_tokens` the last report (0 before
    the first) and `covered_tokens` our count of what that report covers. A compaction replaces the prompt, so
    it starts a new estimate.
    """

    counted_tokens: int = 0
    reported_tokens: int = 0
    covered_tokens: int = 0

    def append(self, weights: Iterable[int]) -> RunningEstimate:
        """Returns the estimate with messages of these counted `weights` added."""
        return msgspec.structs.replace(self, counted_tokens=self.counted_tokens + sum(weights))

    def recount(self, counted_tokens: int) -> RunningEstimate:
        """Returns the estimate for a prompt that we count so many tokens in now; it may have shrunk."""
        return msgspec.structs.replace(self, counted_tokens=counted_tokens)

    def report(self, prompt_tokens: int, covered_tokens: int | None = None) -> RunningEstimate:
        """Returns the estimate after the provider reported `prompt_tokens`.

        The report covers everything counted so far, or `covered_tokens` of it where messages were added while
        the request was under way. A report that is not positive, or of a prompt of which nothing was counted, says nothing.
        """
        covered = self.counted_tokens if covered_tokens is None else covered_tokens
        covered = min(max(0, covered), self.counted_tokens)
        if prompt_tokens <= 0 or covered <= 0:
            return self
        return msgspec.structs.replace(self, reported_tokens=prompt_tokens, covered_tokens=covered)

    def tokens(self, calibration: Calibration) -> int:
        """Prompt tokens of the next request: the report wins, only what came or went after it is estimated."""
        grown = self.counted_tokens - self.covered_tokens
        since = calibration.estimate(grown) if grown >= 0 else -calibration.estimate(-grown)
        return max(0, self.reported_tokens + since)
