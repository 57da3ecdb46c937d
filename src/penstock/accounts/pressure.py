"""The pressure on the window of a stored conversation: its tokens, and the limits that they approach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.planning.policy import budgets
from penstock.sessions.metering import TURN_TASK, Meter

if TYPE_CHECKING:
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow

__all__ = ["PressureGauge", "WindowPressure"]

_NEAR = 0.8  # of the threshold


class WindowPressure(msgspec.Struct, frozen=True):
    """The tokens of the next request, beside the window of its model and the threshold of a compaction."""

    tokens: int
    window_tokens: int
    threshold_tokens: int

    @property
    def share(self) -> float:
        """Returns the share of the window that is filled; above 1 if it is too small."""
        return self.tokens / self.window_tokens

    @property
    def level(self) -> str:
        """Returns `calm`, `near` the threshold, or `over` it."""
        if self.tokens >= self.threshold_tokens:
            return "over"
        return "near" if self.tokens >= _NEAR * self.threshold_tokens else "calm"


class PressureGauge:
    """Measures pressure for one look at the store: what is known of a model is read once."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._windows: dict[str, tuple[int, int]] = {}

    def measure(self, tip: SessionRow, view_tokens: int) -> WindowPressure:
        """Returns the pressure of the conversation with that tip.

        The provider's last report counts, since it includes the system prompt and the tools, unless the view has
        outgrown it. A compaction opens another session: what was reported before it is not looked at.
        """
        last = self._store.last_request(tip.id, TURN_TASK)
        reported = last.usage.prompt_tokens + last.usage.output_tokens if last is not None else 0
        window, threshold = self._find_window(tip.model)
        return WindowPressure(max(view_tokens, reported), window, threshold)

    def _find_window(self, model: str) -> tuple[int, int]:
        found = self._windows.get(model)
        if found is None:
            window = Meter(self._store, model).window(self._settings.model.window_of(model)).tokens
            found = window, budgets(self._settings.compression, window).threshold_tokens
            self._windows[model] = found
        return found
