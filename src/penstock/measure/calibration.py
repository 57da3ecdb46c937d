"""Calibration: what a provider reports, learned as a ratio to what we count.

One `Calibration` belongs to one model at one endpoint; the caller keeps it, also across restarts (it encodes
to JSON). The ratio is that of the summed reports to the summed counts of the last accepted responses, so
large prompts, where fixed overhead matters least, decide.

A report far off the ratio is held back as a suspect. One suspect is an accident, or a prompt that the
provider silently cut; suspects that agree with each other are a change, and the ratio follows them.
"""

from __future__ import annotations

import msgspec

__all__ = ["Calibration", "looks_truncated"]

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
_BASIS_TOKENS = 1_000  # counted tokens from which a ratio is evidence against a report
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
            return self._replace_recent((*self.recent, sample)[-_KEPT_SAMPLES:], added=1)
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
        """True where enough was counted for the ratio to speak against a report."""
        return sum(sample.counted for sample in self.recent) >= _BASIS_TOKENS

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
        return (first, *others[-(_KEPT_SUSPECTS - 2) :], sample)

    def _is_change(self, suspects: tuple[CalibrationSample, ...]) -> bool:
        if len(suspects) < _CHANGE_AFTER:
            return False
        if not any(looks_truncated(self, sample.counted, sample.reported) for sample in suspects):
            return True
        sizes = [sample.counted for sample in suspects]
        return max(sizes) > min(sizes) * (1 + _SIZES_DIFFER)

    def _replace_recent(self, recent: tuple[CalibrationSample, ...], *, added: int) -> Calibration:
        counted = sum(sample.counted for sample in recent)
        reported = sum(sample.reported for sample in recent)
        return Calibration(ratio=reported / counted, samples=self.samples + added, recent=recent)


def looks_truncated(calibration: Calibration, counted: int, reported: int) -> bool:
    """Returns whether the provider seems to have read less than was sent.

    Either the report is far under the calibrated count, or the count grew since the last response and the
    report stood still.
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
