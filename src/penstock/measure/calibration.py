"""Calibration: what a provider reports, learned as a ratio to what we count.

One `Calibration` belongs to one model at one endpoint; the caller keeps it, also across restarts (it encodes
to JSON). The ratio is that of the summed reports to the summed counts of the last accepted responses, so
large prompts decide, for which fixed overhead matters least. A greeting of five tokens that is reported as fifteen says
nothing about a prompt of 20,000: until `_BASIS_TOKENS` have been counted, the rest is assumed to be counted exactly.

A report far off the ratio is held back as a suspect. One suspect is an accident, or a prompt that the
provider silently cut; suspects that agree with each other are a change, and the ratio follows them.

`RunningEstimate` is the size of the next prompt: the last report, plus the calibrated count of what was added since.
"""

from __future__ import annotations

import msgspec

__all__ = ["Calibration", "RunningEstimate", "looks_truncated"]

_KEPT_SAMPLES = 8
_KEPT_SUSPECTS = 5
_CHANGE_AFTER = 3  # suspects that agree
_BAND = 0.12  # a report this far off the ratio is no suspect yet
_AGREEMENT = 0.05  # suspects within this of the first one agree
# A cut prompt reports the same however much is sent. So reports far under are believed only from prompts that
# differ in size by more than this, which must be over `_AGREEMENT` for a constant report to disagree.
_SIZES_DIFFER = 0.10
_FAR_UNDER = 0.70  # of the calibrated count
_PLATEAU_GROWTH = 1.05  # the count grew by this, and the report did not
_PLATEAU_REPORT = 1.005
_PLATEAU_UNDER = 0.95
# No tokenizer in use needs fewer or more tokens than this beside o200k: what to believe before any evidence.
_LOWEST_RATIO, _HIGHEST_RATIO = 0.40, 4.0
_BASIS_TOKENS = 1_000  # counted tokens from which a ratio holds by itself, and is evidence against a report
_SMALLEST_CUT_TOKENS = 512  # no window is so small that a prompt under this is cut


class CalibrationSample(msgspec.Struct, frozen=True, array_like=True):
    """One response: what we counted and what the provider reported for the same prompt."""

    counted: int
    reported: int

    @property
    def ratio(self) -> float:
        """Reported tokens for each counted one."""
        return self.reported / self.counted


class Calibration(msgspec.Struct, frozen=True):
    """The ratio of reported to counted prompt tokens, with the evidence for it."""

    ratio: float = 1.0
    samples: int = 0
    recent: tuple[CalibrationSample, ...] = ()
    suspects: tuple[CalibrationSample, ...] = ()

    def observe(self, counted: int, reported: int) -> Calibration:
        """Returns the calibration after one more response. Counts that are not positive teach nothing."""
        if counted <= 0 or reported <= 0:
            return self
        sample = CalibrationSample(counted, reported)
        if self._believes(sample):
            return self._replace_recent(_newest((*self.recent, sample), _KEPT_SAMPLES), added=1)
        suspects = self._add_suspect(sample)
        if self._is_change(suspects):
            return self._replace_recent(suspects, added=len(suspects))
        return msgspec.structs.replace(self, suspects=suspects)

    def estimate(self, counted: int) -> int:
        """Returns what the provider would report for `counted` tokens."""
        return round(max(0, counted) * self.ratio)

    def count(self, reported: int) -> int:
        """Returns the most tokens, as we count, that the provider would report as no more than `reported`."""
        return int(max(0, reported) / self.ratio)

    @property
    def has_basis(self) -> bool:
        """True if enough was counted for the ratio to speak against a report."""
        return _count_all(self.recent) >= _BASIS_TOKENS

    def _believes(self, sample: CalibrationSample) -> bool:
        if looks_truncated(self, sample.counted, sample.reported):
            return False
        if not self.has_basis:
            return _LOWEST_RATIO <= sample.ratio <= _HIGHEST_RATIO
        return abs(sample.ratio / self.ratio - 1) <= _BAND

    def _add_suspect(self, sample: CalibrationSample) -> tuple[CalibrationSample, ...]:
        """Returns the suspects with one more; those that it contradicts are forgotten.

        The first of them is kept longest, so that slow growth of the prompts still shows.
        """
        if not self.suspects or abs(sample.ratio / self.suspects[0].ratio - 1) > _AGREEMENT:
            return (sample,)
        first, *others = self.suspects
        return (first, *_newest((*others, sample), _KEPT_SUSPECTS - 1))

    def _is_change(self, suspects: tuple[CalibrationSample, ...]) -> bool:
        if len(suspects) < _CHANGE_AFTER or _count_all(suspects) < _BASIS_TOKENS:
            return False
        if not any(looks_truncated(self, sample.counted, sample.reported) for sample in suspects):
            return True
        sizes = [sample.counted for sample in suspects]
        return max(sizes) > min(sizes) * (1 + _SIZES_DIFFER)

    def _replace_recent(self, recent: tuple[CalibrationSample, ...], *, added: int) -> Calibration:
        counted = _count_all(recent)
        reported = sum(sample.reported for sample in recent)
        missing = max(0, _BASIS_TOKENS - counted)
        ratio = (reported + missing) / (counted + missing)
        return Calibration(ratio=ratio, samples=self.samples + added, recent=recent)


def _count_all(samples: tuple[CalibrationSample, ...]) -> int:
    return sum(sample.counted for sample in samples)


def _newest(samples: tuple[CalibrationSample, ...], kept: int) -> tuple[CalibrationSample, ...]:
    """Returns the last `kept` samples, and as many before them as it takes to have counted `_BASIS_TOKENS`."""
    start, counted = len(samples), 0
    while start > 0 and (len(samples) - start < kept or counted < _BASIS_TOKENS):
        start -= 1
        counted += samples[start].counted
    return samples[start:]


def looks_truncated(calibration: Calibration, counted: int, reported: int) -> bool:
    """Returns True if the provider seems to have read less than was sent.

    Either the report is far below the calibrated count, or the count grew since the last response and the
    report did not.
    """
    if reported <= 0 or counted < _SMALLEST_CUT_TOKENS:
        return False
    if not calibration.has_basis:
        return reported < counted * _LOWEST_RATIO
    expected = counted * calibration.ratio
    if reported < expected * _FAR_UNDER:
        return True
    last = calibration.recent[-1]
    grew = counted >= last.counted * _PLATEAU_GROWTH
    stood_still = reported <= last.reported * _PLATEAU_REPORT
    return grew and stood_still and reported < expected * _PLATEAU_UNDER


class RunningEstimate(msgspec.Struct, frozen=True):
    """The last report of a provider, plus the calibrated count of what was added since.

    `counted_tokens` is our count of everything in the prompt so far, `reported_tokens` the last report (0 before
    the first) and `covered_tokens` our count of what that report covers. A compaction replaces the prompt, so
    it starts a new estimate.
    """

    counted_tokens: int = 0
    reported_tokens: int = 0
    covered_tokens: int = 0

    def recount(self, counted_tokens: int) -> RunningEstimate:
        """Returns the estimate for a prompt that we now count as `counted_tokens`; it may have shrunk."""
        return msgspec.structs.replace(self, counted_tokens=counted_tokens)

    def report(self, prompt_tokens: int) -> RunningEstimate:
        """Returns the estimate after the provider reported `prompt_tokens` for everything counted so far.

        A report that is not positive, or of a prompt of which nothing was counted, says nothing.
        """
        if prompt_tokens <= 0 or self.counted_tokens <= 0:
            return self
        return msgspec.structs.replace(
            self, reported_tokens=prompt_tokens, covered_tokens=self.counted_tokens
        )

    def tokens(self, calibration: Calibration) -> int:
        """Returns the prompt tokens of the next request: the report, corrected by what was added or removed since."""
        grown = self.counted_tokens - self.covered_tokens
        since = calibration.estimate(grown) if grown >= 0 else -calibration.estimate(-grown)
        return max(0, self.reported_tokens + since)
